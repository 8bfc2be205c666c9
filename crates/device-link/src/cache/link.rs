//! Whole device links: from all device inputs to the fat binary and what the rest of a link must know of it. A hit needs neither LLVM nor
//! ptxas, and host code that names the same kernels and variables does not matter to it.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::PathBuf;

use fatbin::Arch;
use serde_json::{Value, json};

use super::assembly::is_about_files;
use super::record::{self, Outcome};
use super::{Cache, Fields, Hash, Key, Kind, Warning};
use crate::extract::{DeviceInput, Image, ImageClass};
use crate::nvcc::{self, Modules};
use crate::options::Options;
use crate::record::Wanted;
use crate::record::later;
use crate::select::UnitState;
use crate::toolchain::cuda::Toolkit;
use crate::verify::Present;

/// Everything that a device link depends on. What it finds on the way (libcudadevrt) is compared when an entry is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkKey<'k> {
    /// Our own identity.
    pub warplink: Hash,
    /// The identity of ptxas, where there is one.
    pub ptxas: Option<Hash>,
    /// The identity of nvlink, where there is one.
    pub nvlink: Option<Hash>,
    /// The toolkit's headers that say which release it is.
    pub release: Vec<Option<Hash>>,
    /// The options that matter, by the name that people know, with their values.
    pub options: Vec<(&'static str, String)>,
    /// All device images of the line and the device linker's own files, in order: those that take part and those that might.
    pub inputs: Vec<InputKey<'k>>,
    /// What host code refers to.
    pub roots: BTreeSet<&'k str>,
}

/// One device image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputKey<'k> {
    /// What messages call it. Not part of the key.
    pub label: String,
    /// Which of the units with device images holds it, counted from 0: host objects between them do not matter.
    pub unit: usize,
    /// The first input that messages call the same: recorded commands are looked up by that.
    pub namesake: usize,
    /// The part of the unit.
    pub part: usize,
    /// It is on the line of the host link, not only the device linker's.
    pub on_host_line: bool,
    /// What is known of its unit.
    pub state: Option<(bool, bool)>,
    /// The nvcc module.
    pub module: Option<&'k str>,
    /// Target triple.
    pub triple: &'k str,
    /// Architecture.
    pub arch: Arch,
    /// What it is.
    pub class: ImageClass,
    /// The recorded choice about PTX.
    pub ptx: Option<&'k str>,
    /// Its bytes.
    pub contents: Hash,
}

impl LinkKey<'_> {
    /// The fields in the words that `warplink cache why` uses.
    pub fn fields(&self) -> Fields {
        let LinkKey { warplink, ptxas, nvlink, release, options, inputs, roots } = self;
        let mut fields = Fields::new(Kind::Link);
        fields.hash("warplink", "warplink itself", *warplink);
        fields.value("ptxas", ptxas).value("nvlink", nvlink).value("toolkit", release);
        for (name, value) in options {
            fields.shown(name, value);
        }
        for input in inputs {
            let InputKey { label, unit: _, namesake: _, part: _, on_host_line: _, state, module, triple, arch, class, ptx, contents } =
                input;
            let text = format!("{state:?} {module:?} {triple:?} {arch:?} {class:?} {ptx:?} {contents}");
            fields.hash("input", format!("{label} ({arch})"), Hash::of(text.as_bytes()));
        }
        let arrangement: Vec<_> = inputs.iter().map(|input| (input.unit, input.namesake, input.part, input.on_host_line)).collect();
        fields.value(ARRANGEMENT, arrangement).value(ROOTS, roots);
        fields
    }
}

/// How the inputs lie in their objects.
pub(super) const ARRANGEMENT: &str = "the arrangement of the inputs";
/// What the host refers to.
pub(super) const ROOTS: &str = "the kernels and variables that host code refers to";

/// The options that decide about device code, with their values as text. A new option does not compile until it is decided here whether it
/// counts.
///
/// # Errors
/// Why a link with these options is not to be taken from the cache as a whole.
fn options_that_count(options: &Options) -> Result<Vec<(&'static str, String)>, &'static str> {
    let Options {
        // Messages, and where things lie. The identities of the tools count, not their places.
        invoked_as: _,
        program: _,
        output: _,
        cuda_path: _,
        ptxas_path: _,
        linker: _,
        demangle: _,
        fatal_warnings: _,
        no_warnings: _,
        color: _,
        warnings: _,
        announce_version: _,
        verbose: _,
        all_commands: _,
        // The host link: what it takes is in the states of the inputs, what it refers to in the roots.
        relocatable: _,
        shared: _,
        static_link: _,
        pie: _,
        host_triple: _,
        sysroot: _,
        emulation: _,
        nostdlib: _,
        directory: _,
        gc_sections: _,
        icf: _,
        dependency_file: _,
        undefined: _,
        entry: _,
        init: _,
        fini: _,
        map_file: _,
        defsyms: _,
        defsym_positions: _,
        fortran_common: _,
        // Speed, and what is made beside or after the images.
        jobs: _,
        max_memory: _,
        lto_jobs: _,
        time_trace: _,
        time_trace_granularity: _,
        print_wrapped_module: _,
        emit_fatbin_only: _,
        cache: _,
        progress: _,
        repro: _,
        repro_on_crash: _,
        tool_timeout: _,
        tool_env: _,
        diagnostics: _,
        launch_guard: _,
        wrap_symbols: _,
        // What a record needs is looked at when an entry is used.
        report: _,
        stats: _,
        record: _,
        // Has become other options and inputs.
        device_args: _,
        device_libs: _,
        // These show or keep intermediate results, or bring their own.
        dry_run,
        save_temps,
        override_image,
        device_verbose,
        remarks,
        embed_bitcode,
        nvlink_args,
        // These make the code what it is.
        should_extract,
        opt_level,
        ptxas_args,
        device_debug,
        device_undefined,
        mllvm,
        lto,
        lto_partitions,
        device_features,
        device_emit,
        compress,
        compression_level,
        compress_mode,
        ptx,
        kernels,
        partition,
        ptxas_mode,
        allow_multiple_definition,
    } = options;
    let refused = [
        (*dry_run || *save_temps, "intermediate results are asked for"),
        (!override_image.is_empty(), "--override-image gives finished images"),
        (*device_verbose || ptxas_args.iter().any(|arg| is_verbose(arg)), "ptxas is asked to print what it uses"),
        (ptxas_args.iter().any(|arg| is_about_files(arg)), "an argument of ptxas names a file"),
        (!nvlink_args.is_empty(), "arguments of nvlink may name files"),
        (!remarks.is_empty() || mllvm.iter().any(|option| prints_or_reads(option)), "LLVM is asked to print, write or read something"),
        (*embed_bitcode, "bitcode is asked for"),
    ];
    if let Some((_, why)) = refused.iter().find(|(refused, _)| *refused) {
        return Err(why);
    }
    Ok(vec![
        ("the architectures to extract (--should-extract)", format!("{should_extract:?}")),
        ("the optimisation level (-O, --warplink-opt-level)", format!("{opt_level:?}")),
        ("the arguments of ptxas (-Xcuda-ptxas, --warplink-ptxas)", format!("{ptxas_args:?}")),
        ("debug information (-g)", format!("{device_debug:?}")),
        ("the device linker's undefined symbols (-u)", format!("{device_undefined:?}")),
        ("LLVM's options (-mllvm)", format!("{mllvm:?}")),
        ("the kind of LTO (-flto)", format!("{lto:?}")),
        ("the partitions of LTO (--lto-partitions)", format!("{lto_partitions:?}")),
        ("the device's features (--cuda-feature)", format!("{device_features:?}")),
        ("what is emitted (--lto-emit-asm)", format!("{device_emit:?}")),
        ("compression (--compress)", format!("{compress:?}")),
        ("the level of compression (--compression-level)", format!("{compression_level:?}")),
        ("the kind of compression (--warplink-compress)", format!("{compress_mode:?}")),
        ("the choice about PTX (--warplink-ptx)", format!("{ptx:?}")),
        ("launch limits of kernels (--warplink-kernel)", format!("{kernels:?}")),
        ("the cut into parts (--warplink-partition)", format!("{partition:?}")),
        ("the mode of ptxas (--warplink-ptxas-mode)", format!("{ptxas_mode:?}")),
        ("multiple definitions (-z muldefs)", format!("{allow_multiple_definition:?}")),
    ])
}

/// Whether an argument of ptxas makes it print more than warnings.
fn is_verbose(argument: &OsStr) -> bool {
    matches!(argument.to_str(), Some("-v" | "--verbose" | "-verbose"))
}

/// Whether an option of LLVM may make it print or write something beside the code, which an entry could not do again, or read a file, which
/// no key covers. There are thousands of options; the words in their names tell.
fn prints_or_reads(option: &str) -> bool {
    let beginnings = ["print", "debug", "dump", "remark", "report", "trac", "help", "view"];
    let words = [
        "time",
        "timing",
        "stat",
        "stats",
        "dot",
        "output",
        "bisect",
        "version",
        "file",
        "files",
        "filename",
        "dir",
        "directory",
        "path",
        "load",
        "plugin",
        "replay",
    ];
    let name = option.split('=').next().unwrap_or_default();
    let tells = |word: &str| words.contains(&word) || beginnings.iter().any(|beginning| word.starts_with(beginning));
    option.contains('/') || name.split(['-', '_']).any(tells)
}

/// What a device link is made of, as far as the cache looks at it.
pub struct Asked<'k, 'a> {
    /// The user's options.
    pub options: &'k Options,
    /// The user's toolkit.
    pub toolkit: &'k Toolkit,
    /// All device images.
    pub inputs: &'k [DeviceInput<'a>],
    /// What is known of their units, those of the host link first.
    pub states: &'k [UnitState],
    /// How many of these are of the host link.
    pub host_units: usize,
    /// Something is given to nvlink that only it can read.
    pub opaque: bool,
    /// What host code refers to.
    pub roots: BTreeSet<&'k str>,
}

impl Asked<'_, '_> {
    /// The key.
    ///
    /// # Errors
    /// Why this link is not to be taken from the cache as a whole.
    fn key(&self, cache: &Cache) -> Result<LinkKey<'_>, &'static str> {
        let options = options_that_count(self.options)?;
        if self.opaque || self.inputs.iter().any(|input| input.class == ImageClass::LtoIr) {
            return Err("nvlink compiles bitcode or reads files of which nothing is known here");
        }
        let unknown = "the tools cannot be read";
        let tool = |path: &Option<PathBuf>| path.as_deref().map(|path| cache.tool(path).ok_or(unknown)).transpose();
        let headers = ["include/cuda.h", "include/cuda_runtime_api.h"];
        let release = headers.map(|header| cache.contents(&self.toolkit.root.as_deref()?.join(header)));
        let mut units: HashMap<usize, usize> = HashMap::new();
        let mut names: HashMap<&str, usize> = HashMap::new();
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for input in self.inputs {
            // The guard is no part of the device code.
            let DeviceInput { unit, part, module, origin, triple, arch, class, ptx, image, launch_guard: _ } = input;
            let (count, index) = (units.len(), inputs.len());
            inputs.push(InputKey {
                label: origin.clone(),
                unit: *units.entry(*unit).or_insert(count),
                namesake: *names.entry(origin).or_insert(index),
                part: *part,
                on_host_line: *unit < self.host_units,
                state: self.states.get(*unit).map(|state| (state.taken, state.lazy)),
                module: *module,
                triple,
                arch: *arch,
                class: *class,
                ptx: ptx.as_deref(),
                contents: contents(image),
            });
        }
        Ok(LinkKey {
            warplink: cache.own_identity().ok_or(unknown)?,
            ptxas: tool(&self.toolkit.ptxas)?,
            nvlink: tool(&self.toolkit.nvlink)?,
            release: release.into(),
            options,
            inputs,
            roots: self.roots.clone(),
        })
    }
}

/// An image as it lies in the object: unpacking it would take longer than its hash.
fn contents(image: &Image) -> Hash {
    match image {
        Image::Plain(bytes) => Hash::of(bytes),
        Image::Packed(entry, _) => {
            let mut fields = Fields::new(Kind::Link);
            fields.value("form", (entry.kind, entry.compression, entry.uncompressed_size)).bytes("stored", entry.stored);
            fields.key()
        }
    }
}

/// A device link that the cache is asked for.
pub struct Question<'c> {
    cache: &'c Cache<'c>,
    fields: Fields,
    key: Key,
    /// What warnings may name.
    names: Hash,
    output: PathBuf,
}

/// A device link that has been made before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The images, packed.
    pub fatbin: Vec<u8>,
    /// What is in them.
    pub images: Vec<Present>,
    /// libcudadevrt takes part.
    pub device_runtime: bool,
    /// [`crate::record::Recorder::for_later`] of the link that made it.
    pub record: Vec<u8>,
    modules: Vec<String>,
    only_modules: bool,
}

/// A device link that has been made now.
#[derive(Clone, Copy)]
pub struct Made<'m> {
    /// The images, packed.
    pub fatbin: &'m [u8],
    /// What is in them.
    pub images: &'m [Present],
    /// The modules to be registered.
    pub modules: &'m Modules<'m>,
    /// libcudadevrt takes part.
    pub device_runtime: bool,
    /// [`crate::record::Recorder::for_later`].
    pub record: &'m [u8],
}

impl Known {
    /// The modules to be registered, as the inputs call them. None if they are not there.
    pub fn modules<'a>(&self, inputs: &[DeviceInput<'a>]) -> Option<Modules<'a>> {
        let of = |id: &String| inputs.iter().filter_map(|input| input.module).find(|module| module == id);
        Some(Modules { ids: self.modules.iter().map(of).collect::<Option<_>>()?, are_all: self.only_modules, awaited: Vec::new() })
    }
}

/// What an entry says beside the fat binary.
pub(super) struct Facts {
    /// What warnings may name.
    names: String,
    /// The identity of libcudadevrt, where it takes part.
    runtime: Option<String>,
    known: Known,
}

impl Facts {
    /// Reads them.
    ///
    /// # Errors
    /// They are not such as this program writes.
    pub(super) fn read(section: &[u8]) -> Result<Facts, &'static str> {
        let unreadable = "the entry is of another form";
        let facts: Value = serde_json::from_slice(section).map_err(|_| unreadable)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(unreadable);
        let texts = |value: &Value| value.as_array().ok_or(unreadable)?.iter().map(text).collect::<Result<Vec<_>, _>>();
        let image = |value: &Value| {
            let arch = text(&value["arch"])?.parse().map_err(|_| unreadable)?;
            Ok(Present {
                arch,
                has_cubin: value["cubin"].as_bool().ok_or(unreadable)?,
                ptx: value["ptx"].as_str().map(str::to_owned),
                names: texts(&value["names"])?.into_iter().collect(),
            })
        };
        let runtime = if facts["runtime"].is_null() { None } else { Some(text(&facts["runtime"])?) };
        let known = Known {
            fatbin: Vec::new(),
            images: facts["images"].as_array().ok_or(unreadable)?.iter().map(image).collect::<Result<_, _>>()?,
            device_runtime: runtime.is_some(),
            record: Vec::new(),
            modules: texts(&facts["modules"])?,
            only_modules: facts["only-modules"].as_bool().ok_or(unreadable)?,
        };
        Ok(Facts { names: text(&facts["names"])?, runtime, known })
    }
}

impl<'c> Question<'c> {
    /// None where the cache is off or this link must not come from it.
    pub fn new(cache: &'c Cache<'c>, asked: &Asked<'_, '_>) -> Option<Question<'c>> {
        if !cache.is_on() {
            return None;
        }
        let output = asked.options.output.clone();
        match asked.key(cache) {
            Ok(link) => {
                let fields = link.fields();
                let names = (&asked.options.demangle, link.inputs.iter().map(|input| &input.label).collect::<Vec<_>>());
                let names = Hash::of(format!("{names:?}").as_bytes());
                Some(Question { cache, key: fields.key(), fields, names, output })
            }
            Err(why) => {
                record::note(cache, &output, None, Outcome::Uncached(why));
                None
            }
        }
    }

    /// The link as it was made before, if it left so much of a record as is `wanted` now. Its warnings are given again.
    pub fn known(&self, options: &Options, toolkit: &Toolkit, wanted: Wanted) -> Option<Known> {
        let entry = self.cache.get(Kind::Link, &self.key);
        let outcome = match entry {
            None => Outcome::Miss(None),
            Some(entry) => match self.usable(&entry, toolkit, wanted) {
                Ok(known) => return Some(self.taken(known, entry, options)),
                Err(why) => Outcome::Miss(Some(why)),
            },
        };
        record::note(self.cache, &self.output, Some(&self.fields), outcome);
        None
    }

    fn taken(&self, mut known: Known, mut entry: super::Entry, options: &Options) -> Known {
        known.fatbin = entry.take(0);
        known.record = entry.take(2);
        for Warning { name, text } in &entry.warnings {
            self.cache.diagnostics.warn(name, text);
        }
        if options.verbose {
            let archs: Vec<String> = known.images.iter().map(|image| image.arch.to_string()).collect();
            self.cache.diagnostics.verbose(&format!("cache: hit: device link for {}", archs.join(", ")));
        }
        record::note(self.cache, &self.output, Some(&self.fields), Outcome::Hit);
        known
    }

    /// What an entry says beside the fat binary.
    fn usable(&self, entry: &super::Entry, toolkit: &Toolkit, wanted: Wanted) -> Result<Known, &'static str> {
        if !later::serves(entry.section(2), wanted) {
            return Err("the link that made it did not write down what is asked for now (--warplink-report, --warplink-stats)");
        }
        let Facts { names, runtime, known } = Facts::read(entry.section(1))?;
        if !entry.warnings.is_empty() && names != self.names.to_string() {
            return Err("the inputs have other names, which warnings of the link tell");
        }
        if known.device_runtime && nvcc::runtime_identity(toolkit, self.cache).map(|hash| hash.to_string()) != runtime {
            return Err("libcudadevrt is another one");
        }
        Ok(known)
    }

    /// Keeps a link that has been made.
    pub fn keep(&self, made: &Made, toolkit: &Toolkit, warnings: &[Warning]) {
        let Made { fatbin, images, modules, device_runtime, record } = *made;
        if self.cache.is_spoiled() {
            return;
        }
        let runtime = if device_runtime { nvcc::runtime_identity(toolkit, self.cache) } else { None };
        if device_runtime && runtime.is_none() {
            return;
        }
        let names = |image: &Present| -> Vec<String> {
            let names: BTreeSet<&String> = image.names.iter().collect();
            names.into_iter().cloned().collect()
        };
        let image =
            |image: &Present| json!({ "arch": image.arch.to_string(), "cubin": image.has_cubin, "ptx": image.ptx, "names": names(image) });
        let facts = json!({
            "names": self.names.to_string(),
            "runtime": runtime.map(|hash| hash.to_string()),
            "modules": modules.ids,
            "only-modules": modules.are_all,
            "images": images.iter().map(image).collect::<Vec<_>>(),
        });
        self.cache.put(Kind::Link, &self.key, &[fatbin, facts.to_string().as_bytes(), record], warnings);
    }
}

#[cfg(test)]
mod tests;
