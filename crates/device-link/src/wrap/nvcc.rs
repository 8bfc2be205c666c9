//! What registers nvcc's modules: their host side calls `__cudaRegisterLinkedBinary<id>` with a function that registers the module's
//! kernels and variables under a handle. There is one handle for the whole program, so registration waits until all have called.

use std::borrow::Cow;

use object::elf::{RelocationType, SHF_ALLOC, SHF_WRITE, STB_GLOBAL, STT_FUNC, STT_NOTYPE, STV_HIDDEN, SymbolInfo, SymbolOther};
use object::write::{Object, SectionId, Symbol, SymbolId, SymbolSection};
use object::{SectionKind, SymbolFlags, SymbolKind, SymbolScope};

use super::{add_local, add_section, relocate};
use crate::extract::nvcc::{register_symbol, wrapper_symbol};
use crate::nvcc::Modules;

/// The function of `wrap/cuda.ll` that all names of [`register_symbol`] lead to: the arguments tell the modules apart.
const REGISTER: &str = ".cuda.register_module";

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
    let list = add_section(object, ".data.rel.ro.modules", SectionKind::Data, writable, numbers.into(), 8);
    for (index, module) in modules.ids.iter().enumerate() {
        let symbol = add_symbol(object, &wrapper_symbol(module), SymbolSection::Undefined, 0, SymbolInfo::new(STB_GLOBAL, STT_NOTYPE));
        relocate(object, list, index as u64 * 8, symbol, 0, absolute)?;
    }
    let module_count = add_local(object, ".cuda.module_count", list, count as u64 * 8, 8);
    if count > 0 {
        let mut ids = Vec::new();
        for module in &modules.ids {
            ids.extend(format!("def {module}\0").into_bytes());
        }
        add_section(object, MODULE_IDS, SectionKind::ReadOnlyData, SHF_ALLOC, Cow::Owned(ids), 1);
    }
    Ok(vec![(".cuda.callbacks", callbacks), (".cuda.parts", parts), (".cuda.module_count", module_count)])
}

/// Gives the registering function, which the code must hold by now, the names that the modules call.
pub(super) fn add_functions(object: &mut Object, modules: &Modules) {
    let Some(id) = object.symbol_id(REGISTER.as_bytes()) else { return };
    let (section, value) = (object.symbol(id).section, object.symbol(id).value);
    for module in &modules.ids {
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
         @.cuda.callbacks = internal global [{count} x ptr] zeroinitializer, align 8\n\
         @.cuda.parts = internal global [{} x ptr] zeroinitializer, align 8\n",
        count + 1
    );
    for module in &modules.ids {
        text.push_str(&format!(
            "@\"{0}\" = external hidden constant %wrapper, align 8\n\
             @\"{1}\" = hidden alias void (ptr, ptr, ptr, ptr), ptr @{REGISTER}\n",
            wrapper_symbol(module),
            register_symbol(module)
        ));
    }
    if count > 0 {
        let wrappers: Vec<String> = modules.ids.iter().map(|module| format!("ptr @\"{}\"", wrapper_symbol(module))).collect();
        text.push_str(&format!("@.cuda.modules = internal constant [{count} x ptr] [{}], align 8\n", wrappers.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use offload_object::{HostObject, SymbolKind};

    use super::*;
    use crate::wrap::registration_object;

    #[test]
    fn modules_are_defined_named_and_known_as_linked() {
        let modules = Modules { ids: vec!["_1_a_cu_2", "__nv_77"], are_all: false };
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
    fn without_others_the_driver_gets_the_parts() {
        let modules = Modules { ids: vec!["_1"], are_all: true };
        let bytes = registration_object("x86_64-unknown-linux-gnu", b"fat binary", &[], &modules, None).unwrap();
        let elf = goblin::elf::Elf::parse(&bytes).unwrap();
        let index = elf.section_headers.iter().position(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(".rela.nvFatBinSegment")).unwrap();
        let offsets: Vec<u64> = elf.shdr_relocs.iter().find(|(i, _)| *i == index).unwrap().1.iter().map(|r| r.r_offset).collect();
        assert_eq!(offsets, [8, 16]);
        assert_eq!(HostObject::parse(&bytes).unwrap().section_named(".nvFatBinSegment").unwrap()[4], 2);
    }
}
