//! Everything that is read of a host object.

use offload_object::{HostObject, parse_section};

use crate::{bounded, is_part};

/// Reads all of an object. What comes out lies in it.
pub fn check(data: &[u8]) {
    let Ok(object) = HostObject::parse(data) else { return };
    bounded(data.len(), 256, || {
        let _ = (object.target().arch_name(), object.machine(), object.is_registration_object(), object.has_nvcc_modules());
        let sections = object.offload_sections().unwrap_or_default();
        assert!(sections.is_empty() || object.has_offload_section());
        assert!(sections.iter().all(|section| is_part(data, section)));
        assert!(sections.iter().map(|section| section.len()).sum::<usize>() <= data.len());
        assert!(object.symbols().iter().all(|symbol| is_part(data, symbol.name)));
        assert!(object.file_symbols().iter().all(|name| is_part(data, name)));
        for name in ["llvm_offload_entries", ".nv_fatbin", "__nv_relfatbin", ".drectve", ".llvm.lto"] {
            assert!(object.section_named(name).is_none_or(|section| is_part(data, section)));
        }
        for ids in [object.nvcc_module_ids(), object.linked_nvcc_module_ids()] {
            assert!(ids.unwrap_or_default().iter().all(|id| is_part(data, id.as_bytes())));
        }
        for entry in object.entries().unwrap_or_default() {
            let names = [Some(entry.name), entry.address_symbol, entry.entry_symbol];
            assert!(names.into_iter().flatten().all(|name| is_part(data, name)));
        }
        assert!(object.section_sizes().iter().all(|(_, size)| *size <= data.len() as u64));
    });
    for section in object.offload_sections().unwrap_or_default() {
        let _ = parse_section(section);
    }
}
