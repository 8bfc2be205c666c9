//! The launch guard: whether a program gets one, which calls it looks at, and what it knows of the program. A guarded program says on stderr,
//! once, why its kernels do not run, where the reason is that no image fits the GPU or that the driver cannot compile the PTX.
//!
//! It is on unless somebody turns it off: who needs it is who has never heard of it, and a program that does not fail is the same but for
//! one comparison per launch. Carriers of a choice, strongest first: the link line (or `WARPLINK_LAUNCH_GUARD`), and the image's metadata
//! (key `launch-guard`). Where one object says yes and another no, there is none: whoever turned it off has a reason.

use std::collections::BTreeSet;

use offload_object::{FileKind, HostObject, SymbolKind};

use crate::diagnostics::Diagnostics;
use crate::extract::{DeviceInput, Found, ImageClass};
use crate::options::Options;
use crate::resolve::Unit;
use crate::select::UnitState;
use crate::toolchain::LinkerKind;
use crate::verify::Present;

/// The key of an image's strings that holds the choice.
pub const KEY: &str = "launch-guard";

/// The code that passes a call on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The parameters of `cudaLaunchKernel`.
    Launch,
    /// Up to six numbers and pointers.
    Call,
}

/// A function of the runtime that fails where no image fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Its symbol.
    pub name: &'static str,
    /// How it is passed on.
    pub shape: Shape,
}

/// The functions that are guarded where host code refers to them: launches, and what programs ask or copy before their first launch.
/// The `_ptsz` and `_ptds` forms are those of `--default-stream per-thread`, the ones with underscores those of nvcc's launch stubs.
const CALLS: &[Call] = &{
    const fn launch(name: &'static str) -> Call {
        Call { name, shape: Shape::Launch }
    }
    const fn call(name: &'static str) -> Call {
        Call { name, shape: Shape::Call }
    }
    [
        launch("cudaLaunchKernel"),
        launch("cudaLaunchKernel_ptsz"),
        launch("cudaLaunchCooperativeKernel"),
        launch("cudaLaunchCooperativeKernel_ptsz"),
        launch("__cudaLaunchKernel"),
        launch("__cudaLaunchKernel_ptsz"),
        call("cudaLaunchKernelExC"),
        call("cudaLaunchKernelExC_ptsz"),
        call("cudaFuncGetAttributes"),
        call("cudaFuncSetAttribute"),
        call("cudaFuncSetCacheConfig"),
        call("cudaOccupancyMaxActiveBlocksPerMultiprocessor"),
        call("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags"),
        call("cudaMemcpyToSymbol"),
        call("cudaMemcpyToSymbol_ptds"),
        call("cudaMemcpyToSymbolAsync"),
        call("cudaMemcpyToSymbolAsync_ptsz"),
        call("cudaMemcpyFromSymbol"),
        call("cudaMemcpyFromSymbol_ptds"),
        call("cudaMemcpyFromSymbolAsync"),
        call("cudaMemcpyFromSymbolAsync_ptsz"),
        call("cudaGetSymbolAddress"),
        call("cudaGetSymbolSize"),
        call("__cudaGetKernel"),
    ]
};

/// The guarded function of this name.
pub fn call(name: &str) -> Option<Call> {
    CALLS.iter().find(|call| call.name == name).copied()
}

/// The guarded functions among the names that an object leaves undefined.
pub fn calls<'n>(undefined: impl Iterator<Item = &'n [u8]>) -> Vec<Call> {
    undefined
        .filter(|name| name.starts_with(b"cuda") || name.starts_with(b"__cuda"))
        .filter_map(|name| call(std::str::from_utf8(name).ok()?))
        .collect()
}

/// What a guard is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// What it looks at.
    pub calls: Vec<Call>,
    /// The program's images in words: `cubins for sm_80, sm_90; PTX for sm_90 (version 7.8)`.
    pub holds: String,
    /// The lowest architecture, 80 for instance, whose PTX could be embedded for later GPUs; none where the images are of
    /// architecture-specific kinds only, all of it is embedded already, or part of the program is no bitcode.
    pub lowest_for_ptx: Option<u32>,
    /// The lowest architecture of which PTX is embedded for later GPUs.
    pub lowest_ptx: Option<u32>,
    /// Whether other shared objects may see it. GNU ld has a shared object's references lead to the guard, too, and refuses to link when it
    /// is hidden from them.
    pub is_visible: bool,
}

impl Guard {
    /// For the host linker: references to the functions lead to the guard.
    pub fn linker_options(&self) -> impl Iterator<Item = String> {
        self.calls.iter().map(|call| format!("--wrap={}", call.name))
    }
}

/// The guard of a link, if it gets one. Relocatable outputs get none, as two of them could not go into one program, and neither does COFF,
/// whose linkers cannot redirect references.
#[allow(clippy::too_many_arguments)]
pub fn plan(
    options: &Options,
    is_coff: bool,
    linker: LinkerKind,
    units: &[Unit],
    found: &[Found],
    states: &[UnitState],
    inputs: &[DeviceInput],
    images: &[Present],
    diagnostics: &Diagnostics,
) -> Option<Guard> {
    if is_coff || options.relocatable || images.is_empty() || !is_wanted(options, states, inputs, diagnostics) {
        return None;
    }
    let taken = found.iter().zip(states).filter(|(_, state)| state.taken);
    let called: BTreeSet<&str> = taken.flat_map(|(found, _)| found.calls.iter().map(|call| call.name)).collect();
    let of_this_program = exported(linker, units, &called);
    // Who wraps a function himself looks at what it returns.
    let calls: Vec<Call> = CALLS
        .iter()
        .filter(|call| called.contains(call.name) && !of_this_program.contains(call.name))
        .filter(|call| !options.wrap_symbols.iter().any(|name| name == call.name))
        .copied()
        .collect();
    if calls.is_empty() {
        return None;
    }
    // Of a program that is partly machine code there is no PTX.
    let takes_part = |input: &&DeviceInput| states.get(input.unit).is_some_and(|state| state.taken);
    let all_bitcode = inputs.iter().filter(takes_part).all(|input| input.class == ImageClass::Bitcode);
    // Code of an architecture with a suffix is for that one alone.
    let lowest = |has_ptx: bool| images.iter().filter(|i| i.ptx.is_some() == has_ptx && i.arch.suffix.is_none()).map(|i| i.arch.sm).min();
    Some(Guard {
        calls,
        holds: holds(images),
        lowest_for_ptx: lowest(false).filter(|_| all_bitcode),
        lowest_ptx: lowest(true),
        is_visible: linker == LinkerKind::Gnu,
    })
}

/// Functions that shared objects of the link want of the program itself. GNU ld and gold would no longer export them to those, since they
/// have their references lead to the guard as well. (NVIDIA's static runtime exports nothing, so this is about stand-ins for it.)
fn exported<'n>(linker: LinkerKind, units: &[Unit], called: &BTreeSet<&'n str>) -> BTreeSet<&'n str> {
    if !matches!(linker, LinkerKind::Gnu | LinkerKind::Gold) {
        return BTreeSet::new();
    }
    let (mut wanted, mut there) = (BTreeSet::new(), BTreeSet::new());
    for unit in units.iter().filter(|unit| unit.kind == FileKind::ElfShared) {
        let Ok(object) = HostObject::parse(unit.data) else { continue };
        // Most have thousands of symbols and nothing to do with CUDA.
        let names = object.section_named(".dynstr").unwrap_or_default();
        // Nearly all names are ASCII, which is seen much faster than what else they may be.
        if !std::str::from_utf8(names).map_or_else(|_| String::from_utf8_lossy(names).contains("cuda"), |names| names.contains("cuda")) {
            continue;
        }
        for symbol in object.symbols() {
            let Some(&name) = std::str::from_utf8(symbol.name).ok().and_then(|name| called.get(name)) else { continue };
            match symbol.kind {
                SymbolKind::Undefined | SymbolKind::UndefinedWeak => wanted.insert(name),
                _ => there.insert(name),
            };
        }
    }
    &wanted - &there
}

/// The choice; says what it had to overrule.
fn is_wanted(options: &Options, states: &[UnitState], inputs: &[DeviceInput], diagnostics: &Diagnostics) -> bool {
    if let Some(choice) = options.launch_guard {
        return choice;
    }
    let takes_part = |input: &&DeviceInput| states.get(input.unit).is_none_or(|state| state.taken);
    let choices = || inputs.iter().filter(takes_part).filter_map(|input| Some((input, input.launch_guard?)));
    let no = choices().find(|(_, wants)| !wants);
    if let (Some((no, _)), Some((yes, _))) = (no, choices().find(|(_, wants)| *wants)) {
        diagnostics.warn(
            "compile-choice",
            &format!(
                "{}: asks for a launch guard, {} asks for none; the program gets none (--warplink-launch-guard on the link line decides)",
                yes.origin, no.origin
            ),
        );
    }
    no.is_none()
}

/// What a recorded value says.
pub fn metadata_wants(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "on" | "1" | "yes" | "true" => Some(true),
        "off" | "0" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// The images in words.
fn holds(images: &[Present]) -> String {
    let list = |names: Vec<String>| names.join(", ");
    let cubins = list(images.iter().filter(|image| image.has_cubin).map(|image| image.arch.to_string()).collect());
    let ptx = images.iter().filter_map(|image| {
        let version = Some(image.ptx.as_deref()?).filter(|version| !version.is_empty());
        let version = version.map(|version| format!(" (version {version})")).unwrap_or_default();
        Some(format!("{}{version}", image.arch))
    });
    let ptx = list(ptx.collect());
    let or_none = |what: &str, names: String| if names.is_empty() { format!("no {what}") } else { format!("{what} for {names}") };
    let cubins = or_none(if cubins.contains(',') { "cubins" } else { "cubin" }, cubins);
    format!("{}; {}", cubins, or_none("PTX", ptx))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(arch: &str, has_cubin: bool, ptx: Option<&str>) -> Present {
        Present { arch: arch.parse().unwrap(), has_cubin, ptx: ptx.map(str::to_owned), names: Default::default() }
    }

    #[test]
    fn images_in_words() {
        let ptx = "7.8";
        for (images, expected) in [
            (vec![image("sm_80", true, None)], "cubin for sm_80; no PTX"),
            (vec![image("sm_80", true, None), image("sm_90", true, Some(ptx))], "cubins for sm_80, sm_90; PTX for sm_90 (version 7.8)"),
            (vec![image("sm_90", false, Some(ptx))], "no cubin; PTX for sm_90 (version 7.8)"),
        ] {
            assert_eq!(holds(&images), expected);
        }
    }

    #[test]
    fn recorded_values() {
        for (value, expected) in [("on", Some(true)), ("0", Some(false)), (" Off ", Some(false)), ("maybe", None), ("", None)] {
            assert_eq!(metadata_wants(value), expected, "{value}");
        }
    }

    #[test]
    fn names_among_the_undefined() {
        let names: [&[u8]; 4] = [b"cudaLaunchKernel", b"cudaMalloc", b"__cudaGetKernel", b"main"];
        let names: Vec<_> = calls(names.into_iter()).iter().map(|call| call.name).collect();
        assert_eq!(names, ["cudaLaunchKernel", "__cudaGetKernel"]);
    }
}
