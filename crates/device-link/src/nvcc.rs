//! nvcc's modules in a link: which of them are ours to link, which members of archives their device code draws in, and the device runtime
//! (libcudadevrt) that launches from device code need.
//!
//! The host side of a module calls `__cudaRegisterLinkedBinary<id>`. Who defines that function has linked the module's device code: `nvcc
//! -dlink`, whose output says `def <id>` in its section `__nv_module_id`, or this link.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::OnceLock;

use offload_object::{FileKind, HostObject, SymbolKind};

use crate::cache::{Cache, Hash};
use crate::device_files;
use crate::error::Result;
use crate::extract::nvcc::wrapper_symbol;
use crate::extract::{DeviceInput, Found};
use crate::inputs::InputFile;
use crate::resolve::{Unit, units};
use crate::select::{LinkJob, UnitState};
use crate::toolchain::cuda::Toolkit;

/// The device runtime's file.
pub const LIBRARY: &str = "libcudadevrt.a";

/// Whether a device symbol is one that libcudadevrt defines: kernels launched from device code, and the CUDA calls that it may make.
pub fn is_device_runtime(name: &str) -> bool {
    name.starts_with("__cudaCDP2") || (name.starts_with("cuda") && name.chars().nth(4).is_some_and(|c| c.is_ascii_uppercase()))
}

/// Takes out the modules that something on the line has linked already. Returns the units that had one, as messages call them.
pub fn leave_linked_alone(found: &mut [Found], units: &[Unit]) -> Vec<String> {
    let linked: HashSet<&str> = found.iter().flat_map(|found| found.linked_modules.iter().copied()).collect();
    if linked.is_empty() {
        return Vec::new();
    }
    let is_linked = |module: &str| linked.contains(module);
    let mut names = Vec::new();
    for (found, unit) in found.iter_mut().zip(units) {
        if found.modules.iter().any(|module| is_linked(module)) {
            names.push(unit.name.to_string());
        }
        found.modules.retain(|module| !is_linked(module));
        found.inputs.retain(|input| !input.module.is_some_and(is_linked));
    }
    names
}

/// What a selection asks for beyond what it had.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Host symbols that draw the members in whose device code takes part.
    pub host_symbols: Vec<String>,
    /// Device code needs libcudadevrt.
    pub device_runtime: bool,
}

/// What the selected jobs need that is not there yet. The host sides of members that only a device symbol has drawn in must come into the
/// program, because they register what is theirs; they may in turn need others. `drawing` is what was wanted before.
pub fn wanted(jobs: &[LinkJob], inputs: &[DeviceInput], states: &[UnitState], drawing: &[String]) -> Wanted {
    let mut wanted = Wanted::default();
    let drawn: HashSet<usize> = jobs.iter().flat_map(|job| job.drawn.iter().copied()).collect();
    for input in inputs.iter().filter(|input| drawn.contains(&input.unit)) {
        let Some(module) = input.module.filter(|_| states.get(input.unit).is_some_and(|state| !state.taken)) else { continue };
        let symbol = wrapper_symbol(module);
        if !wanted.host_symbols.contains(&symbol) && !drawing.contains(&symbol) {
            wanted.host_symbols.push(symbol);
        }
    }
    wanted.device_runtime = jobs.iter().any(|job| job.undefined.iter().any(|name| is_device_runtime(name)));
    wanted
}

/// The modules that a link registers.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Modules<'a> {
    /// Their identifiers, in line order.
    pub ids: Vec<&'a str>,
    /// The program's device code is nothing but these: the driver can link their PTX for a GPU that there is no image for.
    pub are_all: bool,
    /// Of all of nvcc's modules on the line, those with managed variables: nothing is registered before these are.
    pub awaited: Vec<&'a str>,
}

/// The modules to be registered: those of units in the host link, and the device runtime's where the link has added it.
pub fn registered<'a>(
    inputs: &[DeviceInput<'a>],
    jobs: &[LinkJob],
    states: &[UnitState],
    is_on_host_line: impl Fn(usize) -> bool,
) -> Modules<'a> {
    let drawn: HashSet<usize> = jobs.iter().flat_map(|job| job.drawn.iter().copied()).collect();
    let mut modules = Modules { are_all: true, ..Modules::default() };
    for input in inputs {
        if !drawn.contains(&input.unit) && states.get(input.unit).is_none_or(|state| !state.taken) {
            continue;
        }
        match input.module.filter(|_| is_on_host_line(input.unit)) {
            None => modules.are_all = false,
            Some(module) if !modules.ids.contains(&module) => modules.ids.push(module),
            Some(_) => {}
        }
    }
    modules
}

/// The modules of objects whose host side registers managed variables.
pub fn with_managed_variables<'a>(found: &[Found<'a>]) -> Vec<&'a str> {
    found.iter().filter(|found| found.manages).flat_map(|found| found.modules.iter().copied()).collect()
}

/// What clang puts before a kernel's name to name its launch stub. nvcc's has the kernel's own name.
const STUB_PREFIX: &str = "__device_stub__";

/// The kernel's own name, from that of clang's launch stub.
fn without_stub_prefix(stub: &str) -> Option<String> {
    let at = stub.find(STUB_PREFIX)?;
    let (before, after) = (stub.get(..at)?, stub.get(at + STUB_PREFIX.len()..)?);
    let head = before.trim_end_matches(|c: char| c.is_ascii_digit());
    // In a mangled name the length comes first; the stub of an `extern "C"` kernel has none.
    match before.get(head.len()..)?.parse::<usize>() {
        Ok(length) => Some(format!("{head}{}{after}", length.checked_sub(STUB_PREFIX.len()).filter(|&length| length > 0)?)),
        Err(_) => before.is_empty().then(|| after.to_owned()),
    }
}

/// Launch stubs that host code of one compiler calls and an object of the other defines: the missing name and the one that is there. Both
/// compilers' stubs take the kernel's parameters and find the launch configuration where the caller has pushed it, so that one can stand
/// for the other.
pub fn stub_aliases(units: &[Unit], states: &[UnitState]) -> Vec<(String, String)> {
    let tables: Vec<_> = units
        .iter()
        .zip(states)
        .filter(|(unit, state)| state.taken && matches!(unit.kind, FileKind::ElfRelocatable))
        .filter_map(|(unit, _)| HostObject::parse(unit.data).ok())
        .map(|object| object.symbols())
        .collect();
    let named = |name: &[u8]| std::str::from_utf8(name).ok().and_then(|stub| Some((without_stub_prefix(stub)?, stub.to_owned())));
    // By the kernel's name: the name of its stub and whether either is defined.
    let mut kernels: BTreeMap<String, (String, bool, bool, bool)> = BTreeMap::new();
    let is_defined = |kind| !matches!(kind, SymbolKind::Undefined | SymbolKind::UndefinedWeak);
    for symbol in tables.iter().flatten() {
        if let Some((kernel, stub)) = named(symbol.name) {
            kernels.entry(kernel).or_insert((stub, false, false, false)).1 |= is_defined(symbol.kind);
        }
    }
    for symbol in tables.iter().flatten() {
        let kernel = std::str::from_utf8(symbol.name).ok().and_then(|name| kernels.get_mut(name));
        if let Some((_, _, defined, mentioned)) = kernel {
            *defined |= is_defined(symbol.kind);
            *mentioned = true;
        }
    }
    kernels
        .into_iter()
        .filter_map(|(kernel, (stub, stub_defined, defined, mentioned))| match (stub_defined, defined) {
            (false, true) => Some((stub, kernel)),
            (true, false) if mentioned => Some((kernel, stub)),
            _ => None,
        })
        .collect()
}

/// Which device runtime the user's toolkit has; None where it has none, or the cache is off.
pub fn runtime_identity(toolkit: &Toolkit, cache: &Cache) -> Option<Hash> {
    cache.contents(&toolkit.library(LIBRARY).ok()?)
}

/// The name that the other compiler gives to the launch stub of a kernel: clang's for nvcc's, and the reverse.
fn other_stub(name: &str) -> Option<String> {
    without_stub_prefix(name).or_else(|| with_stub_prefix(name))
}

/// clang's name of a kernel's launch stub. The prefix goes before the last plain name of a mangled one, which for kernels is the last
/// that stands before template arguments or parameters.
fn with_stub_prefix(kernel: &str) -> Option<String> {
    let Some(rest) = kernel.strip_prefix("_Z") else { return Some(format!("{STUB_PREFIX}{kernel}")) };
    let nested = rest.starts_with('N');
    let mut at = 2 + usize::from(nested);
    let mut last = None;
    loop {
        let text = kernel.get(at..)?;
        // `St` is the namespace std; other parts of a name than plain ones are not what a kernel has.
        if nested && let Some(after) = text.strip_prefix("St") {
            at = kernel.len() - after.len();
            continue;
        }
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Ok(length) = text.get(..digits)?.parse::<usize>() else { break };
        let name = at + digits;
        kernel.get(name..name.checked_add(length)?)?;
        last = Some((at, name, length));
        at = name + length;
        if !nested {
            break;
        }
    }
    let (at, name, length) = last?;
    Some(format!("{}{}{STUB_PREFIX}{}", kernel.get(..at)?, length + STUB_PREFIX.len(), kernel.get(name..)?))
}

/// Launch stubs of archive members that the host link does not take by itself, because host code calls them by the other compiler's name.
/// `holding` says which units hold device code, `drawing` what is drawn in already.
pub fn stubs_to_draw(units: &[Unit], holding: &[bool], states: &[UnitState], drawing: &[String]) -> Vec<String> {
    let symbols = |unit: &Unit| -> Vec<(String, SymbolKind)> {
        let Ok(object) = HostObject::parse(unit.data) else { return Vec::new() };
        object.symbols().into_iter().map(|symbol| (String::from_utf8_lossy(symbol.name).into_owned(), symbol.kind)).collect()
    };
    let is_elf = |unit: &Unit| unit.kind == FileKind::ElfRelocatable;
    let with_device_code = || units.iter().zip(states).zip(holding).filter(|((unit, _), holding)| **holding && is_elf(unit));
    // What lies in members that stay out so far.
    let waiting: HashSet<String> = with_device_code()
        .filter(|((_, state), _)| state.lazy && !state.taken)
        .flat_map(|((unit, _), _)| symbols(unit))
        .filter(|(_, kind)| !matches!(kind, SymbolKind::Undefined | SymbolKind::UndefinedWeak))
        .map(|(name, _)| name)
        .collect();
    if waiting.is_empty() {
        return Vec::new();
    }
    // What a taken object calls, and who could stand for it.
    let mut wanted: BTreeMap<String, String> = with_device_code()
        .filter(|((_, state), _)| state.taken)
        .flat_map(|((unit, _), _)| symbols(unit))
        .filter(|(name, kind)| *kind == SymbolKind::Undefined && !waiting.contains(name))
        .filter_map(|(name, _)| Some((other_stub(&name).filter(|other| waiting.contains(other) && !drawing.contains(other))?, name)))
        .map(|(there, missing)| (missing, there))
        .collect();
    if !wanted.is_empty() {
        for (unit, _) in units.iter().zip(states).filter(|(unit, state)| state.taken && (is_elf(unit) || unit.kind == FileKind::ElfShared))
        {
            for (name, kind) in symbols(unit) {
                if !matches!(kind, SymbolKind::Undefined | SymbolKind::UndefinedWeak) {
                    wanted.remove(&name);
                }
            }
        }
    }
    let mut stubs: Vec<String> = wanted.into_values().collect();
    stubs.dedup();
    stubs
}

/// NVIDIA's device runtime, looked for when device code first needs it.
#[derive(Default)]
pub struct DeviceRuntime<'a> {
    file: OnceLock<std::result::Result<Vec<InputFile>, String>>,
    units: OnceLock<Vec<Unit<'a>>>,
}

impl<'a> DeviceRuntime<'a> {
    /// Whether somebody has looked for it.
    pub fn is_asked_for(&self) -> bool {
        self.file.get().is_some()
    }

    /// Looks for it in the user's toolkit. It is no error if it is not there: then what needs it is undefined.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn find(&'a self, toolkit: &Toolkit) -> Result<()> {
        let file = match toolkit.library(LIBRARY) {
            Ok(path) => Ok(vec![device_files::open(path)?]),
            Err(places) => {
                let places: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
                let places =
                    if places.is_empty() { "no CUDA toolkit was found".to_owned() } else { format!("looked in {}", places.join(", ")) };
                Err(format!("device code that launches kernels or calls CUDA needs {LIBRARY}, which the toolkit does not have ({places})"))
            }
        };
        if let Ok(files) = self.file.get_or_init(|| file) {
            let units = units(files)?;
            self.units.get_or_init(|| units);
        }
        Ok(())
    }

    /// Its members.
    pub fn units(&self) -> &[Unit<'a>] {
        self.units.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// Why it is not there, where it was looked for.
    pub fn missing(&self) -> Option<&str> {
        self.file.get().and_then(|file| file.as_ref().err()).map(String::as_str)
    }

    /// The library for the host link, where one of the registered modules comes from it.
    pub fn library(&self, modules: &Modules) -> Option<PathBuf> {
        let holds = |unit: &Unit| {
            HostObject::parse(unit.data)
                .is_ok_and(|object| object.nvcc_module_ids().is_ok_and(|ids| ids.iter().any(|id| modules.ids.contains(id))))
        };
        let path = self.file.get()?.as_ref().ok()?.first()?.path.clone();
        self.units().iter().any(holds).then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_have_their_kernels_names() {
        for (stub, kernel) in [
            ("_Z16__device_stub__kPi", Some("_Z1kPi")),
            ("_ZN2ns21__device_stub__kernelEPjS0_", Some("_ZN2ns6kernelEPjS0_")),
            ("_Z19__device_stub__tmplIfEvPT_", Some("_Z4tmplIfEvPT_")),
            ("__device_stub__c_kernel", Some("c_kernel")),
            ("_Z15__device_stub__Pi", None),
            ("_Z1kPi", None),
            ("x__device_stub__k", None),
        ] {
            assert_eq!(without_stub_prefix(stub).as_deref(), kernel, "{stub}");
            if let Some(kernel) = kernel {
                assert_eq!(with_stub_prefix(kernel).as_deref(), Some(stub), "{kernel}");
            }
        }
        for (kernel, stub) in [
            ("_ZN2ns5inner1kILi3EEEvPf", Some("_ZN2ns5inner16__device_stub__kILi3EEEvPf")),
            ("_ZN12_GLOBAL__N_11kEv", Some("_ZN12_GLOBAL__N_116__device_stub__kEv")),
            ("_ZNSt1kEv", Some("_ZNSt16__device_stub__kEv")),
            ("_Z", None),
            ("_Z9k", None),
            ("_ZN", None),
            ("_ZN99999999999999999999k", None),
            ("_Zplii", None),
        ] {
            assert_eq!(with_stub_prefix(kernel).as_deref(), stub, "{kernel}");
        }
    }

    #[test]
    fn names_of_the_device_runtime() {
        for (name, expected) in [
            ("__cudaCDP2LaunchDeviceV2", true),
            ("__cudaCDP2GetParameterBuffer", true),
            ("cudaDeviceSynchronize", true),
            ("cudaGetParameterBuffer", true),
            ("cuda_helper", false),
            ("cudart", false),
            ("_Z10cudaHelperv", false),
            ("vprintf", false),
        ] {
            assert_eq!(is_device_runtime(name), expected, "{name}");
        }
    }
}
