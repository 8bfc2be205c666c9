//! The registration object in COFF. Entries are not named but lie between marks (`entries-coff.ll` says why), and sections of one name are
//! one only if they have the same characteristics: those of the marks are the ones that clang's entries have.
//!
//! Instances of one template have an entry in each object, under one weak name. A weak definition in COFF is a reference with a default of
//! its own, and linkers take two with different defaults for a duplicate symbol; not where the name is defined. Nobody refers to entries by
//! name, so the registration object, which comes first, defines those names as the mark before all entries.

use std::borrow::Cow;

use object::pe::{
    IMAGE_REL_AMD64_ADDR64, IMAGE_REL_ARM64_ADDR64, IMAGE_SCN_CNT_INITIALIZED_DATA, IMAGE_SCN_LNK_INFO, IMAGE_SCN_LNK_REMOVE,
    IMAGE_SCN_MEM_READ, IMAGE_SCN_MEM_WRITE, RelocationType, SectionFlags as Characteristics,
};
use object::write::{Object, Relocation, SectionId, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, RelocationFlags, SectionFlags, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

use super::{WRAPPER_MAGIC, add_code, add_local};
use crate::error::{Error, Result};

/// The marks: symbol in the code, section. Eight zeros at either end, which the code skips: a section without bytes may end up anywhere.
const MARKS: [(&str, &str); 4] = [
    (".cuda.entries_start", "llvm_offload_entries$OA"),
    (".cuda.entries_stop", "llvm_offload_entries$OZ"),
    (".cuda.old_entries_start", "cuda_offloading_entries$OA"),
    (".cuda.old_entries_stop", "cuda_offloading_entries$OZ"),
];

/// Whether a triple's objects are COFF.
pub(super) fn is_host(triple: &str) -> bool {
    triple.split('-').any(|part| part == "win32" || part.starts_with("windows"))
}

/// Whether a section of the compiled code is part of the program.
pub(super) fn is_loaded(characteristics: Characteristics) -> bool {
    !characteristics.contains(IMAGE_SCN_LNK_REMOVE) && !characteristics.contains(IMAGE_SCN_LNK_INFO)
}

pub(super) fn registration_object(triple: &str, fatbin: &[u8], repeated: &[String]) -> Result<Vec<u8>> {
    let (architecture, code, absolute): (_, &[u8], _) = match triple.split('-').next().unwrap_or_default() {
        "x86_64" => (Architecture::X86_64, include_bytes!(concat!(env!("OUT_DIR"), "/cuda.x86_64.coff.o")), IMAGE_REL_AMD64_ADDR64),
        "aarch64" | "arm64" => {
            (Architecture::Aarch64, include_bytes!(concat!(env!("OUT_DIR"), "/cuda.aarch64.coff.o")), IMAGE_REL_ARM64_ADDR64)
        }
        other => {
            return Err(Error::new(format!("no registration code for the host {other} ({triple}); warplink links for x86_64 and aarch64")));
        }
    };
    build(architecture, code, absolute, fatbin, repeated).map_err(|error| Error::new(format!("registration object for {triple}: {error}")))
}

fn build(
    architecture: Architecture,
    code: &[u8],
    absolute: RelocationType,
    fatbin: &[u8],
    repeated: &[String],
) -> std::result::Result<Vec<u8>, String> {
    let code = object::File::parse(code).map_err(|error| error.to_string())?;
    if u32::try_from(fatbin.len()).is_err() {
        return Err("the fat binary is larger than a COFF object can be".to_owned());
    }
    let mut object = Object::new(BinaryFormat::Coff, architecture, Endianness::Little);
    object.add_file_symbol(b"warplink.registration".to_vec());
    let readable = IMAGE_SCN_CNT_INITIALIZED_DATA | IMAGE_SCN_MEM_READ;
    let image = add_section(&mut object, fatbin::SECTION_FATBIN, readable, Cow::Borrowed(fatbin), 16);
    let mut header = Vec::with_capacity(24);
    header.extend(WRAPPER_MAGIC.to_le_bytes());
    header.extend(1u32.to_le_bytes());
    header.extend([0; 16]);
    let wrapper = add_section(&mut object, fatbin::SECTION_WRAPPER, readable | IMAGE_SCN_MEM_WRITE, header.into(), 8);
    let symbol = add_local(&mut object, ".fatbin_image", image, 0, fatbin.len() as u64);
    let flags = RelocationFlags::Coff { typ: absolute };
    object.add_relocation(wrapper, Relocation { offset: 8, symbol, addend: 0, flags }).map_err(|error| error.to_string())?;
    let mut data = vec![(".fatbin_wrapper", add_local(&mut object, ".fatbin_wrapper", wrapper, 0, 24))];
    // nvcc's modules do not take part here: none is waited for, and their tables are empty.
    let none = add_section(&mut object, ".data", readable | IMAGE_SCN_MEM_WRITE, Cow::Borrowed(&[0; 40]), 8);
    for (index, name) in
        [".cuda.module_count", ".cuda.awaited_count", ".cuda.modules", ".cuda.callbacks", ".cuda.parts"].into_iter().enumerate()
    {
        data.push((name, add_local(&mut object, name, none, index as u64 * 8, 8)));
    }
    for (name, section) in MARKS {
        let section = add_section(&mut object, section, readable, Cow::Borrowed(&[0; 8]), 8);
        data.push((name, add_local(&mut object, name, section, 0, 8)));
        if name == MARKS[0].0 {
            for entry in repeated {
                add_global(&mut object, entry, section);
            }
        }
    }
    add_code(&mut object, &code, &data)?;
    object.write().map_err(|error| error.to_string())
}

fn add_section<'a>(object: &mut Object<'a>, name: &str, characteristics: Characteristics, data: Cow<'a, [u8]>, align: u64) -> SectionId {
    let id = object.add_section(Vec::new(), name.as_bytes().to_vec(), SectionKind::Data);
    object.section_mut(id).flags = SectionFlags::Coff { characteristics };
    object.set_section_data(id, data, align);
    id
}

fn add_global(object: &mut Object, name: &str, section: SectionId) {
    object.add_symbol(Symbol {
        name: name.as_bytes().to_vec(),
        value: 0,
        size: 0,
        kind: SymbolKind::Data,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    });
}

/// The marks as `--print-wrapped-module` shows them.
pub(super) fn printed_marks() -> String {
    MARKS.map(|(name, section)| format!("@{name} = internal constant [8 x i8] zeroinitializer, section \"{section}\", align 8\n")).concat()
}

#[cfg(test)]
mod tests {
    use offload_object::HostObject;

    use super::*;

    #[test]
    fn the_object_holds_what_a_program_needs() {
        for triple in ["x86_64-pc-windows-msvc", "aarch64-pc-windows-msvc"] {
            let bytes =
                super::super::registration_object(triple, b"fat binary", &["repeated".to_owned()], &super::super::Modules::default(), None)
                    .unwrap();
            let object = HostObject::parse(&bytes).unwrap();
            let defined: Vec<&[u8]> = object
                .symbols()
                .iter()
                .filter(|symbol| symbol.kind == offload_object::SymbolKind::Defined)
                .map(|symbol| symbol.name)
                .collect();
            assert_eq!(defined, [b"repeated"], "{triple}");
            assert!(object.is_registration_object(), "{triple}");
            assert_eq!(object.section_named(".nv_fatbin"), Some(&b"fat binary"[..]), "{triple}");
            assert_eq!(object.section_named(".nvFatBinSegment").map(<[u8]>::len), Some(24), "{triple}");
            // Between the CRT's .CRT$XCA and a program's own constructors in .CRT$XCU.
            assert_eq!(object.section_named(".CRT$XCA00101").map(<[u8]>::len), Some(8), "{triple}");
            for (_, section) in MARKS {
                assert_eq!(object.section_named(section), Some(&[0; 8][..]), "{triple}");
            }
            for symbol in object.symbols().into_iter().filter(|symbol| symbol.kind == offload_object::SymbolKind::Undefined) {
                let name = String::from_utf8_lossy(symbol.name);
                assert!(name.starts_with("__cuda") || name == "atexit", "{triple}: {name} is left undefined");
            }
        }
    }

    #[test]
    fn an_independent_reader_agrees() {
        let bytes =
            super::super::registration_object("x86_64-pc-windows-msvc", b"fat binary", &[], &super::super::Modules::default(), None)
                .unwrap();
        let coff = goblin::pe::Coff::parse(&bytes).unwrap();
        assert_eq!(coff.header.machine, goblin::pe::header::COFF_MACHINE_X86_64);
        let named: Vec<_> = coff.sections.iter().map(|section| section.real_name.as_deref().or(section.name().ok()).unwrap()).collect();
        for name in [".nv_fatbin", ".nvFatBinSegment", "llvm_offload_entries$OA", "llvm_offload_entries$OZ", ".CRT$XCA00101"] {
            assert!(named.contains(&name), "{name} is not in {named:?}");
        }
    }
}
