//! The launch guard in the registration object: `guard.ll`, what calls go through (`guard-launch.ll`, `guard-call.ll`, once for each guarded
//! function), and the words that it says.

use object::elf::{
    SHF_ALLOC, STB_GLOBAL, STT_FUNC, STT_NOTYPE, STV_DEFAULT, STV_HIDDEN, STV_PROTECTED, SymbolInfo, SymbolOther, SymbolType,
    SymbolVisibility,
};
use object::write::{Object, Symbol, SymbolId, SymbolSection};
use object::{SectionKind, SymbolFlags, SymbolKind, SymbolScope};

use super::{add_code, add_local, add_section};
use crate::launch_guard::{Guard, Shape};

/// The compiled code for one host.
pub(super) struct Code {
    /// `guard.ll`
    pub(super) speaker: &'static [u8],
    /// `guard-launch.ll`
    pub(super) launch: &'static [u8],
    /// `guard-call.ll`
    pub(super) call: &'static [u8],
}

/// The format of the whole message: program, what is wrong, error, GPU, its architecture, CUDA release of the driver, program, images, advice.
const MESSAGE: &str = "%s: %s (error %d)
>>> GPU: %s (%s), its driver is for CUDA %s
>>> %s holds: %s
>>> to run here: %s
>>> said once by warplink's launch guard; WARPLINK_LAUNCH_GUARD=0 silences it
";

/// Compiled for the GPU, a program needs nothing of what has failed. The `%s` is the GPU's architecture.
const FOR_THIS_GPU: &str = "compile with --offload-arch=%s as well";

/// The errors that are about images, from `driver_types.h`: the code, the lowest architecture (10 times major and minor) of the GPUs that
/// the case is for, what is wrong, and what to do. -1 is for runs with CUDA_FORCE_PTX_JIT.
fn cases(guard: &Guard) -> Vec<(u32, i32, &'static str, String)> {
    let mut cases = vec![(
        209,
        -1,
        "no PTX in it fits this GPU, and only PTX counts",
        format!("unset CUDA_FORCE_PTX_JIT, or {FOR_THIS_GPU} and link with -Wl,--warplink-ptx=all"),
    )];
    let number = |arch: Option<u32>| arch.and_then(|arch| i32::try_from(arch).ok());
    if let Some(lowest) = number(guard.lowest_ptx) {
        let advice = format!("unset CUDA_DISABLE_PTX_JIT and CUDA_DISABLE_JIT if they are set, or {FOR_THIS_GPU}");
        cases.push((209, lowest, "the driver has not compiled the PTX in it for this GPU", advice));
    }
    if let Some(lowest) = number(guard.lowest_for_ptx).filter(|lowest| number(guard.lowest_ptx).is_none_or(|ptx| *lowest < ptx)) {
        let advice = format!("{FOR_THIS_GPU}, or embed PTX for the driver to compile: link with -Wl,--warplink-ptx=all");
        cases.push((209, lowest, "no image in it fits this GPU", advice));
    }
    let native = format!("{FOR_THIS_GPU}, so that nothing has to be compiled at run time");
    cases.extend([
        (209, 0, "no image in it fits this GPU", FOR_THIS_GPU.to_owned()),
        (
            200,
            0,
            "the driver cannot read an image in it",
            "update the driver, or link with what this driver knows: an older toolkit, -Wl,--warplink-compress=none".to_owned(),
        ),
        (218, 0, "the driver cannot compile the PTX in it", native.clone()),
        (
            221,
            0,
            "the driver's PTX compiler (libnvidia-ptxjitcompiler.so) is not there, and no cubin in it fits this GPU",
            format!("install it, or {native}"),
        ),
        (222, 0, "the PTX in it is of a later version than the driver can compile", format!("update the driver, or {native}")),
        (
            223,
            0,
            "compiling PTX is turned off, and no cubin in it fits this GPU",
            format!("unset CUDA_DISABLE_PTX_JIT and CUDA_DISABLE_JIT, or {native}"),
        ),
    ]);
    // `-1` must not catch GPUs that it is not for: what is tried first is what fits fewest.
    cases.sort_by_key(|(error, lowest, ..)| (*error, std::cmp::Reverse(*lowest)));
    cases
}

/// The texts with the message's format first, and the table that points into them.
fn data(guard: &Guard) -> (Vec<u8>, Vec<u8>) {
    let mut texts = text(MESSAGE);
    let mut table = Vec::new();
    let place = |texts: &mut Vec<u8>, words: &str| {
        let words = text(words);
        // Cases share their words.
        let known = texts.windows(words.len()).position(|window| window == words);
        let at = known.unwrap_or(texts.len());
        if known.is_none() {
            texts.extend(words);
        }
        u32::try_from(at).unwrap_or(0)
    };
    for (error, lowest, what, advice) in cases(guard) {
        table.extend(error.to_le_bytes());
        table.extend(lowest.to_le_bytes());
        table.extend(place(&mut texts, what).to_le_bytes());
        table.extend(place(&mut texts, &advice).to_le_bytes());
    }
    table.extend([0; 16]);
    (texts, table)
}

/// A text as C has it.
fn text(words: &str) -> Vec<u8> {
    let mut bytes = words.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// Adds the guard to the registration object.
pub(super) fn add(object: &mut Object, code: &Code, guard: &Guard) -> Result<(), String> {
    let parse = |bytes| object::File::parse(bytes).map_err(|error: object::Error| error.to_string());
    let (texts, table) = data(guard);
    let holds = text(&guard.holds);
    let mut known = Vec::new();
    for (name, bytes, align) in [(".cuda.guard_cases", table, 4), (".cuda.guard_texts", texts, 1), (".cuda.guard_holds", holds, 1)] {
        let size = bytes.len() as u64;
        let section = add_section(object, ".rodata.warplink.guard", SectionKind::ReadOnlyData, SHF_ALLOC, bytes.into(), align);
        known.push((name, add_local(object, name, section, 0, size)));
    }
    add_code(object, &parse(code.speaker)?, &known)?;
    let say = object.symbol_id(b".cuda.guard_say").ok_or("the launch guard's code is not complete")?;
    for call in &guard.calls {
        let visibility = if guard.is_visible { STV_PROTECTED } else { STV_HIDDEN };
        let guarded = add_function(object, &format!("__wrap_{}", call.name), STT_FUNC, visibility);
        let real = add_function(object, &format!("__real_{}", call.name), STT_NOTYPE, STV_DEFAULT);
        let code = match call.shape {
            Shape::Launch => code.launch,
            Shape::Call => code.call,
        };
        let known = [(".cuda.guarded", guarded), (".cuda.real", real), (".cuda.guard_say", say)];
        add_code(object, &parse(code)?, &known)?;
    }
    Ok(())
}

fn add_function(object: &mut Object, name: &str, st_type: SymbolType, visibility: SymbolVisibility) -> SymbolId {
    object.add_symbol(Symbol {
        name: name.as_bytes().to_vec(),
        value: 0,
        size: 0,
        kind: SymbolKind::Text,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Undefined,
        flags: SymbolFlags::Elf { st_info: SymbolInfo::new(STB_GLOBAL, st_type), st_other: SymbolOther(visibility.0) },
    })
}

/// The guard as LLVM's text.
pub(super) fn printed(guard: &Guard) -> String {
    let (texts, table) = data(guard);
    let holds = text(&guard.holds);
    let mut module = String::new();
    for (name, bytes) in [("cases", table), ("texts", texts), ("holds", holds)] {
        let quoted: String = bytes.iter().map(|&byte| super::quoted(byte)).collect();
        module.push_str(&format!("@.cuda.guard_{name} = internal constant [{} x i8] c\"{quoted}\", align 4\n", bytes.len()));
    }
    let shown = |line: &&str| {
        let is_data = line.contains("= external hidden") || line.starts_with("source_filename") || line.contains("@.cuda.guard_say(i32)");
        !line.starts_with(';') && !is_data
    };
    let mut add = |code: &str| code.lines().filter(shown).for_each(|line| module.push_str(&format!("{line}\n")));
    add(include_str!("guard.ll"));
    for (index, call) in guard.calls.iter().enumerate() {
        let code = match call.shape {
            Shape::Launch => include_str!("guard-launch.ll"),
            Shape::Call => include_str!("guard-call.ll"),
        };
        let code = code.replace("@.cuda.guarded", &format!("@__wrap_{}", call.name));
        add(&code.replace("@.cuda.real", &format!("@__real_{}", call.name)).replace("!0", &format!("!{index}")));
    }
    module
}

#[cfg(test)]
mod tests {
    use offload_object::{HostObject, SymbolKind};

    use super::*;
    use crate::nvcc::Modules;
    use crate::wrap::{printed_module, registration_object};

    fn guard() -> Guard {
        let calls = ["cudaLaunchKernel", "cudaFuncGetAttributes"].into_iter().filter_map(crate::launch_guard::call).collect();
        Guard { calls, holds: "cubins for sm_80, no PTX".to_owned(), lowest_for_ptx: Some(80), lowest_ptx: Some(90), is_visible: false }
    }

    #[test]
    fn only_what_is_guarded_is_referred_to() {
        for triple in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
            let bytes = registration_object(triple, b"fat binary", &[], &Modules::default(), Some(&guard())).unwrap();
            let object = HostObject::parse(&bytes).unwrap();
            let symbols = object.symbols();
            let names = |kind| -> Vec<String> {
                let of_kind = symbols.iter().filter(|symbol| symbol.kind == kind);
                let mut names: Vec<_> = of_kind.map(|symbol| String::from_utf8_lossy(symbol.name).into_owned()).collect();
                names.retain(|name| !name.starts_with("__cuda"));
                names.sort();
                names
            };
            assert_eq!(names(SymbolKind::Defined), ["__wrap_cudaFuncGetAttributes", "__wrap_cudaLaunchKernel"], "{triple}");
            assert_eq!(names(SymbolKind::Undefined), ["__real_cudaFuncGetAttributes", "__real_cudaLaunchKernel", "atexit"], "{triple}");
            let weak = names(SymbolKind::UndefinedWeak);
            assert!(weak.iter().any(|name| name == "cudaGetDevice") && weak.iter().any(|name| name == "snprintf"), "{weak:?}");
        }
    }

    #[test]
    fn every_case_points_at_its_words() {
        let (texts, table) = data(&guard());
        let words = |offset: u32| {
            let rest = &texts[offset as usize..];
            String::from_utf8(rest[..rest.iter().position(|&byte| byte == 0).unwrap()].to_vec()).unwrap()
        };
        let number = |at: usize| u32::from_le_bytes(table[at..at + 4].try_into().unwrap());
        let shown: Vec<String> = (0..table.len() / 16 - 1)
            .map(|index| index * 16)
            .map(|at| format!("{} {}: {}", number(at), number(at + 4) as i32, words(number(at + 8))))
            .collect();
        let expected = [
            "200 0: the driver cannot read an image in it",
            "209 90: the driver has not compiled the PTX in it for this GPU",
            "209 80: no image in it fits this GPU",
            "209 0: no image in it fits this GPU",
            "209 -1: no PTX in it fits this GPU, and only PTX counts",
            "218 0: the driver cannot compile the PTX in it",
            "221 0: the driver's PTX compiler (libnvidia-ptxjitcompiler.so) is not there, and no cubin in it fits this GPU",
            "222 0: the PTX in it is of a later version than the driver can compile",
            "223 0: compiling PTX is turned off, and no cubin in it fits this GPU",
        ];
        assert_eq!(shown, expected);
        assert_eq!(number(table.len() - 16), 0);
        assert_eq!(words(0), MESSAGE);
        // Each advice takes one argument at most, the message the nine that guard.ll gives it.
        for (_, _, what, advice) in cases(&guard()) {
            assert!(
                !what.contains('%') && advice.matches('%').count() == advice.matches("%s").count() && advice.matches("%s").count() <= 1
            );
        }
        assert_eq!(MESSAGE.matches('%').count(), 9);
    }

    #[test]
    fn the_printed_module_has_the_guard() {
        let text = printed_module("x86_64-unknown-linux-gnu", b"x", &[], &Modules::default(), Some(&guard())).unwrap();
        for part in ["define hidden i32 @__wrap_cudaLaunchKernel(", "@__real_cudaFuncGetAttributes(i64 %a", "cubins for sm_80, no PTX"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("external hidden") && !text.contains("@.cuda.real"));
    }
}
