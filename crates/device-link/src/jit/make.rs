//! One link: the phases of [`crate::device`] for a single architecture, with inputs that lie in memory.

use std::borrow::Cow;
use std::collections::HashSet;

use fatbin::Arch;
use fatbin::cubin::Cubin;
use fatbin::ptx;
use nvjitlink::{InputKind, Library};

use super::job::Input;
use super::{ContentId, DeviceImage, DeviceLinker, ENV, LinkJob};
use crate::assemble;
use crate::cache::{Cache, Fields, Hash, Kind};
use crate::device::{self, Setting, all_or_errors};
use crate::device_files;
use crate::diagnostics::Diagnostics;
use crate::error::{Error, Result, bail};
use crate::extract::{DeviceInput, Image, ImageClass, classify};
use crate::jobs;
use crate::kernels;
use crate::lto;
use crate::nvcc;
use crate::options::{OptLevel, Options};
use crate::record::{Recorder, Wanted};
use crate::select::{self, Failure, UnitState};
use crate::temps::Temps;
use crate::timing::Timing;
use crate::undefined::Explainer;

/// The one target of CUDA code.
const TRIPLE: &str = "nvptx64-nvidia-cuda";

/// Everything that an image depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ImageKey<'k> {
    /// That of the linker.
    identity: ContentId,
    /// The inputs in order, and whether each takes part only if it is needed. What they are called is not part of the key.
    inputs: Vec<(Hash, bool)>,
    /// What must stay findable.
    roots: Option<&'k [Cow<'k, str>]>,
}

impl ImageKey<'_> {
    fn key(&self) -> Hash {
        let ImageKey { identity, inputs, roots } = self;
        let mut fields = Fields::new(Kind::Image);
        fields.hash("linker", "the linker", *identity).value("inputs", inputs).value("roots", roots);
        fields.key()
    }
}

/// Links a job, or takes it from the cache on disk.
pub(super) fn image(linker: &DeviceLinker, job: &LinkJob) -> Result<DeviceImage> {
    let options = &linker.options;
    let diagnostics = Diagnostics::new(options);
    let cache = Cache::open(options, ENV, &diagnostics);
    let key = cache.is_on().then(|| {
        let inputs = job.inputs.iter().map(|input| (Hash::of(&input.bytes), input.on_demand)).collect();
        ImageKey { identity: linker.identity, inputs, roots: job.roots.as_deref() }.key()
    });
    if let Some(image) = key.and_then(|key| known(&cache, &key, linker.arch)) {
        return Ok(image);
    }
    diagnostics.record();
    let (cubin, ptx) = link(linker, job, &diagnostics, &cache)?;
    let warnings = diagnostics.recorded();
    if let Some(key) = key {
        cache.put(Kind::Image, &key, &[&cubin, ptx.as_deref().unwrap_or_default()], &warnings);
    }
    Ok(DeviceImage { arch: linker.arch, cubin, ptx, warnings })
}

fn known(cache: &Cache, key: &Hash, arch: Arch) -> Option<DeviceImage> {
    let mut entry = cache.get(Kind::Image, key)?;
    let (cubin, ptx) = (entry.take(0), entry.take(1));
    Cubin::is_cubin(&cubin).then(|| DeviceImage {
        arch,
        cubin,
        ptx: Some(ptx).filter(|ptx| !ptx.is_empty()),
        warnings: std::mem::take(&mut entry.warnings),
    })
}

/// The cubin and, where it is wanted and there is one, the PTX.
fn link(linker: &DeviceLinker, job: &LinkJob, diagnostics: &Diagnostics, cache: &Cache) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let DeviceLinker { arch, options, toolkit, library, .. } = linker;
    let mut inputs = Vec::new();
    let mut states = Vec::new();
    for (unit, input) in job.inputs.iter().enumerate() {
        inputs.push(device_input(unit, input, *arch)?);
        states.push(UnitState { taken: !input.on_demand, lazy: input.on_demand });
    }
    let roots: Vec<String> = job.roots.iter().flatten().map(|root| root.clone().into_owned()).collect();
    let (temps, recorder) = (Temps::new(None, false), Recorder::new(Wanted::Nothing));
    let timing = Timing::new(false, diagnostics.progress().clone());
    let runtime = nvcc::DeviceRuntime::default();
    loop {
        let explainer = Explainer {
            inputs: &inputs,
            linked_by_nvcc: &[],
            no_device_runtime: runtime.missing(),
            units: &[],
            shared: &[],
            diagnostics,
            keep_seen: false,
        };
        let setting = Setting {
            toolkit,
            options,
            env: &|_| None,
            temps: &temps,
            timing: &timing,
            recorder: &recorder,
            diagnostics,
            explainer: &explainer,
            device_libs: &[],
            host_references: &roots,
            cache,
        };
        let mut selection = device::select(&inputs, &states, &[], &setting)?;
        if nvcc::wanted(&selection.jobs, &inputs, &states, &[]).device_runtime && !runtime.is_asked_for() {
            let first = inputs.len();
            runtime.find(toolkit)?;
            states.extend(runtime.units().iter().map(device_files::state));
            inputs.extend(device_files::inputs(runtime.units(), first)?);
            continue;
        }
        let Some(selected) = selection.jobs.first_mut() else {
            bail!("there is nothing to link for {arch}: no input is more than a library");
        };
        if job.roots.is_some() {
            check_roots(&roots, selected, diagnostics)?;
            selected.only_roots = true;
        }
        if let Some(library) = library {
            return in_process(selection, library, &setting);
        }
        let image = device::images(selection, &setting)?.into_iter().next();
        let Some((Some(cubin), ptx)) = image.map(|image| (image.cubin, image.ptx)) else {
            bail!("no machine code was made for {arch}");
        };
        return Ok((cubin, ptx));
    }
}

/// An input as a link has it.
fn device_input<'i>(unit: usize, input: &'i Input, arch: Arch) -> Result<DeviceInput<'i>> {
    let Input { name, bytes, .. } = input;
    let named = |error: fatbin::Error| Error::new(format!("{name}: {error}")).named("damaged-input");
    let class = classify(bytes);
    match class {
        ImageClass::Bitcode => {}
        ImageClass::Ptx => {
            let target = ptx::Header::parse(bytes).map_err(named)?.target;
            // PTX for an `a` or `f` variant serves nothing else.
            if target != arch && (target.suffix.is_some() || !target.ptx_runs_on(arch)) {
                bail!("{name}: is PTX for {target}, which cannot become code for {arch}");
            }
        }
        ImageClass::Cubin => {
            let made_for = Cubin::parse(bytes).map_err(named)?.arch();
            if !made_for.cubin_runs_on(arch) {
                bail!("{name}: is a cubin for {made_for}, which does not run on {arch}");
            }
        }
        ImageClass::Fatbin | ImageClass::LtoIr | ImageClass::Unknown => bail!("{name}: is neither bitcode nor PTX nor a cubin"),
    }
    Ok(DeviceInput {
        unit,
        part: 0,
        module: None,
        origin: name.clone().into_owned(),
        triple: TRIPLE.to_owned(),
        arch,
        class,
        ptx: None,
        launch_guard: None,
        image: Image::Plain(Cow::Borrowed(bytes)),
    })
}

/// A root that nothing defines would be missed only when somebody looks for it in the image.
fn check_roots(roots: &[String], selected: &select::LinkJob, diagnostics: &Diagnostics) -> Result<()> {
    let mut seen = HashSet::new();
    Error::all(roots.iter().filter(|root| !selected.definers.contains_key(*root) && seen.insert(*root)).map(|root| {
        let name = diagnostics.name(root);
        Error::new(format!("{}: no input defines {name}, which is named as a root", lto::describe(selected))).named("undefined-symbol")
    }))
}

/// The rest of a link without ptxas and nvlink: LTO, then libnvJitLink.
fn in_process(selection: device::Selection, library: &Library, setting: &Setting) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let Setting { options, env, temps, timing, recorder, diagnostics, explainer, .. } = *setting;
    // On a thread of its own: LLVM's recursion is deeper than the stacks that some languages give their threads.
    let linked = jobs::run_all(selection.without_faults()?, options, env, |_, mut job| {
        let result = llvm_lto::working_on(&lto::describe(&job), || {
            lto::merge(&mut job, timing, 0)?;
            kernels::apply(&mut job, &options.kernels, diagnostics)?;
            let ptx = lto::run(&mut job, options, false, temps, timing, 0, recorder, diagnostics, explainer)?;
            Ok(assemble(&job, ptx, library, options, diagnostics)?)
        });
        result.map_err(|failure: Failure| (vec![job.arch], failure))
    })?;
    let linked = all_or_errors(linked)?.into_iter().next();
    linked.ok_or_else(|| Error::new("no machine code was made"))
}

fn assemble(
    job: &select::LinkJob,
    ptx: Option<lto::Ptx>,
    library: &Library,
    options: &Options,
    diagnostics: &Diagnostics,
) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let name = lto::describe(job);
    let words = library_options(job, ptx.as_ref(), options);
    let mut own = ptx.map(|mut ptx| {
        assemble::declare_kernels(job, &mut ptx);
        ptx.text
    });
    let mut objects = Vec::new();
    for object in &job.objects {
        let kind = if object.class == ImageClass::Ptx { InputKind::Ptx } else { InputKind::Cubin };
        objects.push((kind, object.origin.as_str(), assemble::for_linking(job, object)?));
    }
    let mut tried = None;
    loop {
        let text = own.iter().map(|text| nvjitlink::Input { kind: InputKind::Ptx, name: &name, bytes: text });
        let others = objects.iter().map(|(kind, name, bytes)| nvjitlink::Input { kind: *kind, name, bytes });
        match library.link(&words, &text.chain(others).collect::<Vec<_>>()) {
            Ok(linked) if Cubin::is_cubin(&linked.cubin) => {
                for line in linked.log.lines().filter(|line| line.to_ascii_lowercase().contains("warning")) {
                    diagnostics.warn("ptxas", &format!("nvJitLink, {}: {}", job.arch, diagnostics.names(line.trim())));
                }
                return Ok((linked.cubin, own.filter(|_| job.ptx && job.objects.is_empty())));
            }
            Ok(_) => bail!("{name}: nvJitLink made something that is no cubin, and said that all went well"),
            Err(error) => {
                // As with ptxas: the lowest version is tried first, and raised to what the code needs.
                let needed = assemble::required_version(&error.to_string());
                match (&mut own, needed) {
                    (Some(text), Some(version)) if needed > tried => {
                        tried = needed;
                        lto::set_version(text, version);
                    }
                    _ => {
                        let words: String = error.to_string().lines().map(|line| format!("\n>>> {}", diagnostics.names(line))).collect();
                        return Err(Error::new(format!("{name}: nvJitLink failed{words}")).named("ptxas-failed"));
                    }
                }
            }
        }
    }
}

/// What [`assemble`] tells libnvJitLink: what ptxas is told.
fn library_options(job: &select::LinkJob, ptx: Option<&lto::Ptx>, options: &Options) -> Vec<String> {
    let mut words = vec![format!("-arch={}", job.arch)];
    if let Some(ptx) = ptx {
        let level = match ptx.level {
            _ if ptx.debug => 0,
            OptLevel::O0 => 0,
            OptLevel::O1 => 1,
            OptLevel::O2 | OptLevel::Os | OptLevel::Oz => 2,
            OptLevel::O3 => 3,
        };
        words.push(format!("-O{level}"));
        words.extend(ptx.debug.then(|| "-g".to_owned()));
        words.extend(ptx.line_tables.then(|| "-lineinfo".to_owned()));
    }
    words.extend(assemble::ptxas_args(job, options).into_iter().map(|word| format!("-Xptxas={word}")));
    words
}
