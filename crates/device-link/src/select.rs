//! Which device code goes into which image. For every architecture: the images of the units that the host link takes, members of archives
//! that a device symbol needs, one definition of each symbol, the roots, the recorded options. All errors are found before any is shown.

mod fault;
mod recorded;
mod twin;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use fatbin::Arch;
use llvm_lto::{Binding, Exclusive, InputId, ModuleInfo, Session, SymbolKind};

pub use self::fault::{Failure, Fault, merge_faults};
pub use self::twin::{Candidates, twin};
use crate::device_object;
use crate::diagnostics::Diagnostics;
use crate::error::{Error, Result};
use crate::extract::{DeviceInput, ImageClass};
use crate::options::{OptLevel, Options};
use crate::undefined::Explainer;

/// One device link: everything for one architecture.
pub struct LinkJob<'a> {
    /// Target triple.
    pub triple: String,
    /// Architecture.
    pub arch: Arch,
    /// The bitcode that takes part, loaded, in link order.
    pub session: Exclusive<Session<'a>>,
    /// Its inputs in the order in which they are merged.
    pub members: Vec<Member<'a>>,
    /// Device objects that are machine code or PTX already.
    pub objects: Vec<DeviceObject<'a>>,
    /// Names that must stay findable.
    pub roots: HashSet<String>,
    /// Kernels that are no roots are not wanted.
    pub only_roots: bool,
    /// Whether PTX is embedded.
    pub ptx: bool,
    /// Level of the LTO pipeline, where the line or an object says one.
    pub level: Option<OptLevel>,
    /// Arguments for ptxas recorded in the objects.
    pub recorded_ptxas_args: Vec<String>,
    /// The highest PTX version among the objects, as `+ptxNN` has it.
    pub ptx_version: Option<u32>,
    /// Which object defines a symbol: for messages of tools that only know the symbol.
    pub definers: HashMap<String, String>,
    /// The kernels of the program, whoever defines them.
    pub kernels: HashSet<String>,
    /// Nothing that could be looked into defines these.
    pub undefined: BTreeSet<String>,
    /// Units beyond those of the host link whose device code takes part.
    pub drawn: Vec<usize>,
    /// An older architecture of the link whose code differs from this one's in nothing but the architecture. This job has loaded nothing.
    pub twin_of: Option<Arch>,
    /// The same units, each with the symbol that was undefined.
    pub drawn_for: Vec<(usize, String)>,
    /// The units whose device code takes part, in link order.
    pub units: Vec<usize>,
    /// Every symbol of theirs, where a record of the link is kept.
    pub seen: Vec<crate::record::Seen>,
}

impl LinkJob<'_> {
    /// Whether an object takes part of which nobody but nvlink knows what it defines and refers to.
    pub fn is_opaque(&self) -> bool {
        self.objects.iter().any(|object| object.class == ImageClass::LtoIr)
    }
}

/// A bitcode input that takes part.
#[derive(Debug, Clone)]
pub struct Member<'a> {
    /// In the session.
    pub id: InputId,
    /// What messages call it.
    pub origin: String,
    /// Its bitcode.
    pub image: &'a [u8],
    /// What it says of itself.
    pub info: ModuleInfo,
}

/// A device object that needs no LTO.
#[derive(Debug, Clone)]
pub struct DeviceObject<'a> {
    /// What messages call it.
    pub origin: String,
    /// What it is.
    pub class: ImageClass,
    /// Made by nvcc, or by clang's old driver.
    pub by_nvcc: bool,
    /// Its bytes.
    pub image: &'a [u8],
}

/// A unit as selection sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitState {
    /// The host link takes it, or it is device code only and stands on the line itself.
    pub taken: bool,
    /// A member of an archive, or an object between `--start-lib` and `--end-lib`.
    pub lazy: bool,
}

/// The architectures of the link, ascending: those of the objects on the line. Archives only add their own where no object has device
/// code, or where the driver asked for it.
pub fn architectures(inputs: &[DeviceInput], units: &[UnitState], options: &Options) -> Vec<(String, Arch)> {
    let of = |wanted: &dyn Fn(&DeviceInput, &UnitState) -> bool| -> BTreeSet<(String, Arch)> {
        inputs
            .iter()
            .filter(|input| units.get(input.unit).is_some_and(|unit| wanted(input, unit)))
            .map(|input| (input.triple.clone(), input.arch))
            .collect()
    };
    // PTX serves every later architecture: it is no reason to make an image for its own.
    let mut archs = of(&|input, unit| unit.taken && !unit.lazy && input.class != ImageClass::Ptx);
    if archs.is_empty() {
        archs = of(&|input, unit| unit.taken && input.class != ImageClass::Ptx);
    }
    if archs.is_empty() {
        archs = of(&|_, unit| unit.taken);
    }
    let extract: Vec<Arch> = options.should_extract.iter().filter_map(|name| name.parse().ok()).collect();
    archs.extend(of(&|_, _| true).into_iter().filter(|(_, arch)| extract.contains(arch)));
    let mut archs: Vec<_> = archs.into_iter().collect();
    archs.sort_by_key(|(triple, arch)| (*arch, triple.clone()));
    archs
}

/// For one part of a unit, the images that serve an architecture, and whether they are made for it. Code for an `a` or `f` variant serves
/// nothing else.
fn images_for<'i, 'a>(images: &[&'i DeviceInput<'a>], triple: &str, arch: Arch) -> (Vec<&'i DeviceInput<'a>>, bool) {
    let of = |arch: Arch| images.iter().copied().filter(move |image| image.triple == triple && image.arch == arch);
    let exact: Vec<_> = of(arch).collect();
    if exact.first().is_some_and(|image| image.part != 0) {
        // The entries of a fat binary are one code in several forms: machine code first, bitcode of NVIDIA's only where nothing else is.
        let rank = |image: &&DeviceInput| match image.class {
            ImageClass::LtoIr => 2,
            ImageClass::Ptx => 1,
            _ => 0,
        };
        return (exact.into_iter().min_by_key(rank).into_iter().collect(), true);
    }
    if !exact.is_empty() {
        // What `ld -r` made of several objects has several images for one architecture, all of which count.
        return (exact, true);
    }
    let nearest = |class: ImageClass, serves: &dyn Fn(Arch) -> bool| {
        images
            .iter()
            .filter(|image| image.triple == triple && image.class == class)
            .map(|image| image.arch)
            .filter(|older| older.suffix.is_none() && serves(*older))
            .max()
            .map(|older| of(older).filter(|image| image.class == class).collect::<Vec<_>>())
    };
    let older = |older: Arch| older.sm <= arch.sm;
    let chosen = nearest(ImageClass::Bitcode, &older)
        .or_else(|| nearest(ImageClass::Cubin, &|cubin| cubin.cubin_runs_on(arch)))
        .or_else(|| nearest(ImageClass::Ptx, &older))
        .or_else(|| nearest(ImageClass::LtoIr, &older));
    (chosen.unwrap_or_default(), false)
}

/// The table of inputs and architectures that errors about missing ones show.
fn matrix(inputs: &[DeviceInput], units: &[UnitState], archs: &[(String, Arch)]) -> Vec<String> {
    let mut rows: BTreeMap<usize, (&str, BTreeSet<Arch>)> = BTreeMap::new();
    for input in inputs.iter().filter(|input| units.get(input.unit).is_some_and(|unit| unit.taken)) {
        rows.entry(input.unit).or_insert((&input.origin, BTreeSet::new())).1.insert(input.arch);
    }
    let width = rows.values().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut lines =
        vec![format!("{:width$}  {}", "", archs.iter().map(|(_, arch)| format!("{:<9}", arch.to_string())).collect::<String>().trim_end())];
    let shown = 20;
    for (name, has) in rows.values().take(shown) {
        let cells: String = archs.iter().map(|(_, arch)| format!("{:<9}", if has.contains(arch) { "yes" } else { "missing" })).collect();
        lines.push(format!("{name:width$}  {}", cells.trim_end()));
    }
    if rows.len() > shown {
        lines.push(format!("... and {} more", rows.len() - shown));
    }
    lines
}

/// Chooses images for every architecture. The result has one list per architecture, in the order of `archs`: first those that take part,
/// then those that a device symbol may call for.
pub fn choose<'i, 'a>(
    inputs: &'i [DeviceInput<'a>],
    units: &[UnitState],
    archs: &[(String, Arch)],
    diagnostics: &Diagnostics,
) -> Result<Vec<Candidates<'i, 'a>>> {
    let mut by_part: BTreeMap<(usize, usize), Vec<&DeviceInput>> = BTreeMap::new();
    for input in inputs {
        by_part.entry((input.unit, input.part)).or_default().push(input);
    }
    let mut errors = Vec::new();
    let mut warnings = Vec::new();
    let mut all = Vec::new();
    for (triple, arch) in archs {
        let mut candidates = Candidates { primary: Vec::new(), lazy: Vec::new() };
        let mut missing = Vec::new();
        for ((unit, _), images) in &by_part {
            let Some(state) = units.get(*unit) else { continue };
            let (chosen, exact) = images_for(images, triple, *arch);
            match (chosen.first(), state.taken) {
                (None, true) => missing.extend(images.first().map(|image| image.origin.clone())),
                (None, false) => {}
                (Some(image), true) => {
                    if !exact {
                        warnings.push(format!("{}: has no code for {arch}; its {} code is linked instead", image.origin, image.arch));
                    }
                    candidates.primary.extend(chosen);
                }
                (Some(_), false) => candidates.lazy.extend(chosen),
            }
        }
        if let Some(first) = missing.first() {
            let others = match missing.len() {
                0 | 1 => String::new(),
                2 => " (nor has 1 other object)".to_owned(),
                count => format!(" (nor have {} other objects)", count - 1),
            };
            errors.push(format!("{first}: has no device code for {arch} or older{others}, which other objects of the link have"));
        }
        all.push(candidates);
    }
    if !errors.is_empty() {
        let table: String = matrix(inputs, units, archs).iter().map(|line| format!("\n>>> {line}")).collect();
        let last = errors.len() - 1;
        let by_nvcc = inputs.iter().any(|input| input.module.is_some());
        let nvcc_too = if by_nvcc { ", those of nvcc with -gencode arch=compute_NN,code=sm_NN for each" } else { "" };
        return Err(Error::all(errors.into_iter().enumerate().map(|(i, text)| {
            let text = if i == last {
                format!("{text}{table}\n>>> compile all objects with the same --offload-arch= options{nvcc_too}")
            } else {
                text
            };
            Error::new(text).named("missing-architecture")
        }))
        .err()
        .unwrap_or_else(|| Error::new("objects for different architectures")));
    }
    // An error shows the same and more.
    warnings.iter().for_each(|text| diagnostics.warn("older-arch", text));
    Ok(all)
}

/// Loads the candidates of one architecture and decides which take part. `roots` are what host code refers to; `external` says that nvlink
/// gets more than the candidates. Faults are collected; a job with faults is not to be linked.
#[allow(clippy::too_many_arguments)]
pub fn resolve<'i, 'a>(
    triple: &str,
    arch: Arch,
    candidates: Candidates<'i, 'a>,
    roots: HashSet<String>,
    external: bool,
    options: &Options,
    diagnostics: &Diagnostics,
    explainer: &Explainer,
) -> (LinkJob<'i>, Vec<Fault>) {
    let mut resolver = Resolver {
        job: LinkJob {
            triple: triple.to_owned(),
            arch,
            session: Exclusive::new(Session::new()),
            members: Vec::new(),
            objects: Vec::new(),
            roots: roots.into_iter().chain(options.device_undefined.iter().cloned()).collect(),
            only_roots: false,
            ptx: false,
            level: None,
            recorded_ptxas_args: Vec::new(),
            ptx_version: None,
            definers: HashMap::new(),
            kernels: HashSet::new(),
            undefined: BTreeSet::new(),
            drawn: Vec::new(),
            twin_of: None,
            drawn_for: Vec::new(),
            units: Vec::new(),
            seen: Vec::new(),
        },
        faults: Vec::new(),
        defined: HashMap::new(),
        undefined: options.device_undefined.iter().cloned().collect(),
        yields: HashMap::new(),
        overridden: HashSet::new(),
        unread: false,
        keep_seen: explainer.keep_seen,
        allow_duplicates: options.allow_multiple_definition,
        diagnostics,
    };
    let mut inputs = Vec::new();
    for input in candidates.primary {
        resolver.take(input, None);
        inputs.push(input);
    }
    resolver.take_needed(candidates.lazy, &mut inputs);
    // Only bitcode can become PTX again.
    inputs.retain(|input| input.class == ImageClass::Bitcode);
    if !resolver.overridden.is_empty() {
        let names = resolver.overridden.iter().map(String::as_str).collect();
        resolver.job.members.iter().for_each(|member| resolver.job.session.get_mut().drop_definitions(member.id, &names));
    }
    for (id, names) in std::mem::take(&mut resolver.yields) {
        resolver.job.session.get_mut().yield_definitions(id, &names.iter().map(String::as_str).collect());
    }
    let Resolver { mut job, mut faults, defined, undefined, unread, .. } = resolver;
    if job.is_opaque() || external {
        // Any of our symbols may be what such an object refers to.
        job.roots.extend(defined.keys().cloned());
    }
    job.definers = defined.into_iter().map(|(name, definer)| (name, definer.origin)).collect();
    job.ptx_version = job.members.iter().filter_map(|member| member.info.ptx_version).max();
    recorded::apply(&mut job, &inputs, options, diagnostics);
    if !faults.is_empty() && !external && !unread {
        // What is undefined is known for certain only after optimisation, which will not be reached: say now what looks undefined.
        for name in undefined.iter().filter(|name| !crate::lto::DEVICE_RUNTIME.contains(&name.as_str())) {
            let fault = explainer.undefined(name, &job);
            if !fault.notes.is_empty() && fault.notes.iter().any(|note| note.starts_with("referenced by")) {
                faults.push(fault);
            }
        }
    }
    job.undefined = undefined;
    (job, faults)
}

/// The definition of a symbol.
struct Definer {
    /// What messages call the object.
    origin: String,
    binding: Binding,
    /// The module, where it is bitcode.
    id: Option<InputId>,
}

struct Resolver<'i, 'd> {
    job: LinkJob<'i>,
    faults: Vec<Fault>,
    defined: HashMap<String, Definer>,
    undefined: BTreeSet<String>,
    yields: HashMap<InputId, HashSet<String>>,
    /// Defined by machine code, to which the bitcode's definitions give way.
    overridden: HashSet<String>,
    /// An input could not be read: what it defines is unknown.
    unread: bool,
    /// A record of the link is kept.
    keep_seen: bool,
    allow_duplicates: bool,
    diagnostics: &'d Diagnostics,
}

impl<'i> Resolver<'i, '_> {
    /// Adds an input; `loaded` is its module where it has been looked at before.
    fn take(&mut self, input: &'i DeviceInput<'_>, loaded: Option<InputId>) {
        match input.class {
            ImageClass::Bitcode => self.take_bitcode(input, loaded),
            ImageClass::Cubin | ImageClass::Ptx | ImageClass::LtoIr => self.take_object(input),
            // Fat binaries were taken apart when they were found.
            ImageClass::Fatbin | ImageClass::Unknown => {}
        }
    }

    /// The bytes of an image, or a fault.
    fn bytes(&mut self, input: &'i DeviceInput<'_>) -> Option<&'i [u8]> {
        match input.image.bytes() {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.unread = true;
                self.faults.push(Fault {
                    what: format!("{}: device code is damaged: {error}; compile it again", input.origin),
                    notes: Vec::new(),
                    code: "damaged-input",
                });
                None
            }
        }
    }

    fn load(&mut self, input: &'i DeviceInput<'_>) -> Option<InputId> {
        let image: &'i [u8] = self.bytes(input)?;
        match self.job.session.get_mut().load(&input.origin, image) {
            Ok(id) => Some(id),
            Err(error) => {
                let text = crate::extract::unreadable(image, &error.to_string());
                self.unread = true;
                self.faults.push(Fault {
                    what: format!("{}: device bitcode cannot be read: {text}", input.origin),
                    notes: Vec::new(),
                    code: "damaged-input",
                });
                None
            }
        }
    }

    fn take_bitcode(&mut self, input: &'i DeviceInput<'_>, loaded: Option<InputId>) {
        let Some(id) = loaded.or_else(|| self.load(input)) else { return };
        if let Err(error) = self.job.session.get_mut().bind_renamed_statics(id) {
            self.faults.push(Fault {
                what: format!("{}: device bitcode cannot be read: {error}", input.origin),
                notes: Vec::new(),
                code: "damaged-input",
            });
            return;
        }
        for symbol in self.job.session.get_mut().symbols(id) {
            self.see(input.unit, &symbol.name, symbol.binding, symbol.kind);
            match symbol.binding {
                Binding::Undefined => {
                    if !self.defined.contains_key(&symbol.name) {
                        self.undefined.insert(symbol.name);
                    }
                }
                Binding::UndefinedWeak => {}
                binding => {
                    self.undefined.remove(&symbol.name);
                    self.define(Some(id), &symbol.name, binding, symbol.kind, &input.origin);
                }
            }
        }
        let info = self.job.session.get_mut().info(id);
        let Some(image) = self.bytes(input) else { return };
        self.job.units.push(input.unit);
        self.job.members.push(Member { id, origin: input.origin.clone(), image, info });
    }

    /// Takes a symbol down for the record.
    fn see(&mut self, unit: usize, name: &str, binding: Binding, kind: SymbolKind) {
        if self.keep_seen {
            self.job.seen.push(crate::record::Seen { name: name.to_owned(), unit, binding, kind });
        }
    }

    fn define(&mut self, id: Option<InputId>, name: &str, binding: Binding, kind: SymbolKind, origin: &str) {
        if kind == SymbolKind::Kernel {
            self.job.kernels.insert(name.to_owned());
        }
        let Some(Definer { origin: other, binding: before, id: other_id }) = self.defined.get(name) else {
            self.defined.insert(name.to_owned(), Definer { origin: origin.to_owned(), binding, id });
            return;
        };
        // nvlink makes one of what both a module of ours and another object define, provided that it sees ours.
        if other_id.is_some() != id.is_some() {
            self.job.roots.insert(name.to_owned());
            // To nvlink our weak definition is one like any other: it gives way to a strong one of machine code before.
            let (ours, theirs) = if id.is_some() { (binding, *before) } else { (*before, binding) };
            self.overridden.extend((ours != Binding::Strong && theirs == Binding::Strong).then(|| name.to_owned()));
        }
        // A hash of the source's path tells two internal names of two files apart; two files of one relative path get the same one, and
        // then even two weak definitions are different things under one name.
        let externalized = name.contains("__static__") || name.contains("__intern__");
        let clash = externalized || (binding == Binding::Strong && *before == Binding::Strong);
        // nvlink knows no option for this: one of the two must be bitcode, which yields.
        if let Some(yielding) = id.or(*other_id).filter(|_| clash && self.allow_duplicates) {
            if other_id.is_some() != id.is_some() {
                self.overridden.insert(name.to_owned());
            } else {
                self.yields.entry(yielding).or_default().insert(name.to_owned());
            }
            return;
        }
        if clash {
            let what = match kind {
                SymbolKind::Kernel => "kernel",
                SymbolKind::Function => "device function",
                SymbolKind::Variable => "device variable",
            };
            let mut notes = vec![format!("defined in {other}"), format!("defined in {origin}")];
            if externalized {
                notes.push(externalized_names(name).to_owned());
            }
            // With bitcode on both sides all is as for any linker; a choice between two kinds has to be explained.
            if other_id.is_some() != id.is_some() {
                let object = if id.is_some() { other.as_str() } else { origin };
                notes.push(format!("make one of them static, or take that of {object} with -Wl,-z,muldefs"));
            } else if id.is_none() {
                notes.push("make one of them static; -z muldefs cannot choose between two that are machine code already".to_owned());
            }
            self.faults.push(Fault {
                what: format!("{origin}: duplicate {what}: {}", self.diagnostics.name(name)),
                notes,
                code: "duplicate-symbol",
            });
            return;
        }
        if binding == Binding::Strong {
            self.defined.insert(name.to_owned(), Definer { origin: origin.to_owned(), binding, id });
        }
    }

    /// A device object: its symbols take part, and what it refers to must stay findable.
    fn take_object(&mut self, input: &'i DeviceInput<'_>) {
        let Some(image) = self.bytes(input) else { return };
        let symbols = match device_object::symbols(input.class, image) {
            Ok(symbols) => symbols,
            Err(error) => {
                self.unread = true;
                self.faults.push(Fault {
                    what: format!("{}: device code is damaged: {error}; compile it again", input.origin),
                    notes: Vec::new(),
                    code: "damaged-input",
                });
                return;
            }
        };
        for symbol in &symbols {
            self.see(input.unit, symbol.name, symbol.binding, symbol.kind);
        }
        for symbol in symbols.iter().filter(|symbol| symbol.is_defined()) {
            self.undefined.remove(symbol.name);
            self.define(None, symbol.name, symbol.binding, symbol.kind, &input.origin);
        }
        for symbol in symbols.iter().filter(|symbol| !symbol.is_defined()) {
            self.job.roots.insert(symbol.name.to_owned());
            if symbol.binding == Binding::Undefined && !self.defined.contains_key(symbol.name) {
                self.undefined.insert(symbol.name.to_owned());
            }
        }
        self.job.units.push(input.unit);
        self.job.objects.push(DeviceObject { origin: input.origin.clone(), class: input.class, by_nvcc: input.module.is_some(), image });
    }

    /// Members whose device code something needs, until nothing is needed that a member has. Order on the line does not matter: the host
    /// link has long taken what it needs.
    fn take_needed(&mut self, lazy: Vec<&'i DeviceInput<'_>>, recorded: &mut Vec<&'i DeviceInput<'i>>) {
        let mut waiting: Vec<(&'i DeviceInput<'_>, Option<InputId>, HashSet<String>)> = Vec::new();
        if self.undefined.is_empty() {
            return;
        }
        let mut opaque = Vec::new();
        for input in lazy {
            match input.class {
                ImageClass::Bitcode => {
                    let Some(id) = self.load(input) else { continue };
                    let defines = self
                        .job
                        .session
                        .get_mut()
                        .symbols(id)
                        .into_iter()
                        .filter(|s| !matches!(s.binding, Binding::Undefined | Binding::UndefinedWeak))
                        .map(|s| s.name)
                        .collect();
                    waiting.push((input, Some(id), defines));
                }
                ImageClass::Cubin | ImageClass::Ptx => {
                    let Some(image) = self.bytes(input) else { continue };
                    let symbols = device_object::symbols(input.class, image).unwrap_or_default();
                    let defines = symbols.iter().filter(|s| s.is_defined()).map(|s| s.name.to_owned()).collect();
                    waiting.push((input, None, defines));
                }
                ImageClass::LtoIr => opaque.push(input),
                ImageClass::Fatbin | ImageClass::Unknown => {}
            }
        }
        loop {
            let next = waiting.iter().position(|(_, _, defines)| self.undefined.iter().any(|name| defines.contains(name)));
            let (input, id) = match next {
                Some(next) => {
                    let (input, id, defines) = waiting.remove(next);
                    let needed = self.undefined.iter().find(|name| defines.contains(*name)).cloned();
                    self.job.drawn_for.extend(needed.map(|name| (input.unit, name)));
                    (input, id)
                }
                // What cannot be looked into may be what is missing.
                None if self.undefined.iter().all(|name| is_provided(name)) => return,
                None => match opaque.pop() {
                    Some(input) => (input, None),
                    None => return,
                },
            };
            self.take(input, id);
            self.job.drawn.push(input.unit);
            recorded.push(input);
        }
    }
}

/// How two different static kernels or variables come to one name. clang 19 and earlier put the file of the declaration into it, as two
/// numbers, and no option of theirs tells two inclusions of a header apart.
fn externalized_names(name: &str) -> &'static str {
    let hash = name.split_once("__intern__").or_else(|| name.split_once("__static__")).map_or("", |(_, hash)| hash);
    if hash.contains('_') {
        "clang 19 and earlier name it after the file that it stands in, a header for instance: make it inline instead of static, or compile with a \
         later clang"
    } else {
        "clang named both after one source path: they were compiled from files of the same relative name in two directories; compile one with \
         another spelling of its path, or give -cuid=UNIQUE"
    }
}

/// Whether the driver, ptxas or nvlink gives a symbol that no object defines.
fn is_provided(name: &str) -> bool {
    crate::lto::DEVICE_RUNTIME.contains(&name) || name.starts_with("__cuda_syscall_")
}
