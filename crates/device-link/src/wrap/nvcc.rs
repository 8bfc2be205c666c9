//! What registers nvcc's modules: their host side calls `__cudaRegisterLinkedBinary<id>` with a function that registers the module's
//! kernels and variables under a handle. There is one handle for the whole program, made before all constructors of users' variables, or,
//! where modules have managed variables, when the last of those has called.

use std::borrow::Cow;

use object::elf::{RelocationType, SHF_ALLOC, SHF_WRITE, STB_GLOBAL, STT_FUNC, STT_NOTYPE, STV_HIDDEN, SymbolInfo, SymbolOther};
use object::write::{Object, SectionId, Symbol, SymbolId, SymbolSection};
use object::{SectionKind, SymbolFlags, SymbolKind, SymbolScope};

use super::{add_local, add_section, relocate};
use crate::extract::nvcc::{register_symbol, wrapper_symbol};
use crate::nvcc::Modules;

/// The functions of `wrap/cuda.ll` that the names of [`register_symbol`] lead to; the second one for modules that registration waits for.
const REGISTER: [&str; 2] = [".cuda.register_module", ".cuda.register_awaited_module"];

fn function_of(modules: &Modules, module: &str) -> &'static str {
    let [at_once, awaited] = REGISTER;
    if modules.awaited.contains(&module) { awaited } else { at_once }
}

/// How many of the modules are awaited.
fn awaited_count(modules: &Modules) -> usize {
    modules.ids.iter().filter(|module| modules.awaited.contains(module)).count()
}

/// The section in which nvcc's tools look up who has linked which module.
const MODULE_IDS: &str = "__nv_module_id";

/// The version of the wrapper: with the second one the driver finds the parts' own fat binaries, to link their PTX.
pub(super) fn wrapper_version(modules: &Modules) -> u32 {
    if has_parts(modules) { fatbin::wrapper::VERSION_LINKED } else { fatbin::wrapper::VERSION_PLAIN }
}

fn has_parts(modules: &Modules) -> bool {
    modules.are_all && !modules.ids.is_empty()
}

/// Adds the tables that the code works on. Each module's wrapper is named: that draws the module out of its archive.
pub(super) fn add_data<'n>(
    object: &mut Object,
    modules: &Modules,
    wrapper: SectionId,
    absolute: RelocationType,
) -> Result<Vec<(&'n str, SymbolId)>, String> {
    let count = modules.ids.len();
    let writable = SHF_ALLOC | SHF_WRITE;
    // Callbacks, then parts with the null behind them.
    let size = (2 * count + 1) * 8;
    let tables = add_section(object, ".data.cuda.modules", SectionKind::Data, writable, vec![0; size].into(), 8);
    let callbacks = add_local(object, ".cuda.callbacks", tables, 0, count as u64 * 8);
    let parts = add_local(object, ".cuda.parts", tables, count as u64 * 8, (count as u64 + 1) * 8);
    if has_parts(modules) {
        relocate(object, wrapper, fatbin::wrapper::PARTS_OFFSET as u64, parts, 0, absolute)?;
    }
    let mut numbers = vec![0; count * 8];
    numbers.extend((count as u64).to_le_bytes());
    numbers.extend((awaited_count(modules) as u64).to_le_bytes());
    let list = add_section(object, ".data.rel.ro.modules", SectionKind::Data, writable, numbers.into(), 8);
    for (index, module) in modules.ids.iter().enumerate() {
        let symbol = add_symbol(object, &wrapper_symbol(module), SymbolSection::Undefined, 0, SymbolInfo::new(STB_GLOBAL, STT_NOTYPE));
        relocate(object, list, index as u64 * 8, symbol, 0, absolute)?;
    }
    let wrappers = add_local(object, ".cuda.modules", list, 0, count as u64 * 8);
    let module_count = add_local(object, ".cuda.module_count", list, count as u64 * 8, 8);
    let awaited_count = add_local(object, ".cuda.awaited_count", list, count as u64 * 8 + 8, 8);
    if count > 0 {
        let mut ids = Vec::new();
        for module in &modules.ids {
            ids.extend(format!("def {module}\0").into_bytes());
        }
        add_section(object, MODULE_IDS, SectionKind::ReadOnlyData, SHF_ALLOC, Cow::Owned(ids), 1);
    }
    Ok(vec![
        (".cuda.callbacks", callbacks),
        (".cuda.parts", parts),
        (".cuda.modules", wrappers),
        (".cuda.module_count", module_count),
        (".cuda.awaited_count", awaited_count),
    ])
}

/// Gives the registering functions, which the code must hold by now, the names that the modules call.
pub(super) fn add_functions(object: &mut Object, modules: &Modules) {
    for module in &modules.ids {
        let Some(id) = object.symbol_id(function_of(modules, module).as_bytes()) else { continue };
        let (section, value) = (object.symbol(id).section, object.symbol(id).value);
        add_symbol(object, &register_symbol(module), section, value, SymbolInfo::new(STB_GLOBAL, STT_FUNC));
    }
}

/// Hidden: a module of the same name in another shared object is another module.
fn add_symbol(object: &mut Object, name: &str, section: SymbolSection, value: u64, st_info: SymbolInfo) -> SymbolId {
    object.add_symbol(Symbol {
        name: name.as_bytes().to_vec(),
        value,
        size: 0,
        kind: if section == SymbolSection::Undefined { SymbolKind::Unknown } else { SymbolKind::Text },
        scope: SymbolScope::Linkage,
        weak: false,
        section,
        flags: SymbolFlags::Elf { st_info, st_other: SymbolOther(STV_HIDDEN.0) },
    })
}

/// The tables and names as LLVM's text.
pub(super) fn printed(modules: &Modules) -> String {
    let count = modules.ids.len();
    let mut text = format!(
        "@.cuda.module_count = internal constant i64 {count}, align 8\n\
         @.cuda.awaited_count = internal constant i64 {}, align 8\n\
         @.cuda.callbacks = internal global [{count} x ptr] zeroinitializer, align 8\n\
         @.cuda.parts = internal global [{} x ptr] zeroinitializer, align 8\n",
        awaited_count(modules),
        count + 1
    );
    for module in &modules.ids {
        text.push_str(&format!(
            "@\"{0}\" = external hidden constant %wrapper, align 8\n\
             @\"{1}\" = hidden alias void (ptr, ptr, ptr, ptr), ptr @{2}\n",
            wrapper_symbol(module),
            register_symbol(module),
            function_of(modules, module)
        ));
    }
    let wrappers: Vec<String> = modules.ids.iter().map(|module| format!("ptr @\"{}\"", wrapper_symbol(module))).collect();
    text.push_str(&format!("@.cuda.modules = internal constant [{count} x ptr] [{}], align 8\n", wrappers.join(", ")));
    text
}

#[cfg(test)]
mod tests {
    use offload_object::{HostObject, SymbolKind};

    use super::*;
    use crate::wrap::registration_object;

    #[test]
    fn modules_are_defined_named_and_known_as_linked() {
        let modules = Modules { ids: vec!["_1_a_cu_2", "__nv_77"], ..Modules::default() };
        for triple in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
            let bytes = registration_object(triple, b"fat binary", &[], &modules, None).unwrap();
            let object = HostObject::parse(&bytes).unwrap();
            assert_eq!(object.linked_nvcc_module_ids().unwrap(), modules.ids, "{triple}");
            assert!(object.nvcc_module_ids().unwrap().is_empty(), "{triple}");
            let symbols = object.symbols();
            let kind = |name: &str| symbols.iter().find(|symbol| symbol.name == name.as_bytes()).map(|symbol| symbol.kind);
            assert_eq!(kind("__cudaRegisterLinkedBinary_1_a_cu_2"), Some(SymbolKind::Defined), "{triple}");
            assert_eq!(kind("__cudaRegisterLinkedBinary__nv_77"), Some(SymbolKind::Defined), "{triple}");
            assert_eq!(kind("__fatbinwrap_1_a_cu_2"), Some(SymbolKind::Undefined), "{triple}");
            assert_eq!(object.section_named(".nvFatBinSegment").unwrap()[4], 1, "{triple}");
        }
    }

    #[test]
    fn registration_waits_for_the_awaited() {
        let modules = Modules { ids: vec!["_1", "_2", "_3"], are_all: false, awaited: vec!["_2", "_not_in_the_link"] };
        assert_eq!(awaited_count(&modules), 1);
        let bytes = registration_object("x86_64-unknown-linux-gnu", b"fat binary", &[], &modules, None).unwrap();
        let elf = goblin::elf::Elf::parse(&bytes).unwrap();
        let place = |name: &str| {
            let symbol = elf.syms.iter().find(|symbol| elf.strtab.get_at(symbol.st_name) == Some(name));
            symbol.map(|symbol| (symbol.st_shndx, symbol.st_value))
        };
        let [at_once, awaited] = REGISTER.map(place);
        assert!(at_once.is_some() && awaited.is_some() && at_once != awaited);
        for (name, function) in [("_1", at_once), ("_2", awaited), ("_3", at_once)] {
            assert_eq!(place(&register_symbol(name)), function, "{name}");
        }
        let printed = printed(&modules);
        assert!(printed.contains("@.cuda.awaited_count = internal constant i64 1"), "{printed}");
        assert!(
            printed.contains("LinkedBinary_2\" = hidden alias void (ptr, ptr, ptr, ptr), ptr @.cuda.register_awaited_module"),
            "{printed}"
        );
    }

    #[test]
    fn without_others_the_driver_gets_the_parts() {
        let modules = Modules { ids: vec!["_1"], are_all: true, awaited: Vec::new() };
        let bytes = registration_object("x86_64-unknown-linux-gnu", b"fat binary", &[], &modules, None).unwrap();
        let elf = goblin::elf::Elf::parse(&bytes).unwrap();
        let index = elf.section_headers.iter().position(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(".rela.nvFatBinSegment")).unwrap();
        let offsets: Vec<u64> = elf.shdr_relocs.iter().find(|(i, _)| *i == index).unwrap().1.iter().map(|r| r.r_offset).collect();
        assert_eq!(offsets, [8, 16]);
        assert_eq!(HostObject::parse(&bytes).unwrap().section_named(".nvFatBinSegment").unwrap()[4], 2);
    }
}
