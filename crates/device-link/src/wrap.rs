//! The registration object: the fat binary as a host object together with the code that hands it to the runtime. The code is
//! `wrap/cuda.ll` and what finds entries in ELF or COFF, compiled for each host when warplink was built; here it is joined with the data of
//! one link.

mod coff;
mod guard;
mod nvcc;

use std::borrow::Cow;
use std::collections::HashMap;

use object::elf::{
    RelocationType, SHF_ALLOC, SHF_WRITE, SHT_PROGBITS, STB_WEAK, STT_NOTYPE, STV_HIDDEN, SectionFlags as ElfFlags, SymbolInfo, SymbolOther,
};
use object::write::{Object, Relocation, SectionId, StandardSegment, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget,
    SectionFlags, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};

use crate::error::{Error, Result};
use crate::launch_guard::Guard;
use crate::nvcc::Modules;

/// From this size on the fat binary goes where x86-64's small code model does not reach, so that code and data keep within 2 GB of each
/// other whatever the fat binary's size.
const LARGE: usize = 256 << 20;

/// Whether a fat binary of this size has to keep out of the way of code and data.
pub fn is_large(size: usize) -> bool {
    size >= LARGE
}

/// The section flag for what the small code model does not reach (x86-64 psABI).
const SHF_X86_64_LARGE: ElfFlags = ElfFlags(0x1000_0000);

/// Magic of the wrapper that the runtime gets, from NVIDIA's `fatbinary_section.h`.
const WRAPPER_MAGIC: u32 = 0x4662_43b1;

/// What differs between hosts.
struct Host {
    architecture: Architecture,
    /// The registration code as a relocatable object.
    code: &'static [u8],
    /// The launch guard.
    guard: guard::Code,
    /// The relocation that writes a 64-bit address.
    absolute: RelocationType,
}

/// The host of a triple.
fn host(triple: &str) -> Result<Host> {
    match triple.split('-').next().unwrap_or_default() {
        "x86_64" => Ok(Host {
            architecture: Architecture::X86_64,
            code: include_bytes!(concat!(env!("OUT_DIR"), "/cuda.x86_64.o")),
            guard: guard::Code {
                speaker: include_bytes!(concat!(env!("OUT_DIR"), "/guard.x86_64.o")),
                launch: include_bytes!(concat!(env!("OUT_DIR"), "/guard-launch.x86_64.o")),
                call: include_bytes!(concat!(env!("OUT_DIR"), "/guard-call.x86_64.o")),
            },
            absolute: object::elf::R_X86_64_64,
        }),
        "aarch64" | "arm64" => Ok(Host {
            architecture: Architecture::Aarch64,
            code: include_bytes!(concat!(env!("OUT_DIR"), "/cuda.aarch64.o")),
            guard: guard::Code {
                speaker: include_bytes!(concat!(env!("OUT_DIR"), "/guard.aarch64.o")),
                launch: include_bytes!(concat!(env!("OUT_DIR"), "/guard-launch.aarch64.o")),
                call: include_bytes!(concat!(env!("OUT_DIR"), "/guard-call.aarch64.o")),
            },
            absolute: object::elf::R_AARCH64_ABS64,
        }),
        other => Err(Error::new(format!("no registration code for the host {other} ({triple}); warplink links for x86_64 and aarch64"))),
    }
}

/// Whether a host's objects are COFF.
pub fn is_coff(triple: &str) -> bool {
    coff::is_host(triple)
}

/// Makes the registration object for the host `triple`. `entries` are the symbols of the host's offload entries, each once, in COFF only
/// those that several objects have; `modules` are those of nvcc that register themselves with it.
pub fn registration_object(triple: &str, fatbin: &[u8], entries: &[String], modules: &Modules, guard: Option<&Guard>) -> Result<Vec<u8>> {
    if coff::is_host(triple) {
        if let Some(id) = modules.ids.first() {
            return Err(Error::new(format!("nvcc's relocatable objects (module {id}) cannot be linked for {triple}")));
        }
        return coff::registration_object(triple, fatbin, entries);
    }
    let host = host(triple)?;
    let failed = |what: &str| Error::new(format!("registration object for {triple}: {what}"));
    let code = object::File::parse(host.code).map_err(|error| failed(&error.to_string()))?;
    let mut object = Object::new(BinaryFormat::Elf, host.architecture, Endianness::Little);
    object.add_file_symbol(b"warplink.registration".to_vec());

    // The data of this link.
    let mut flags = SHF_ALLOC;
    if is_large(fatbin.len()) && host.architecture == Architecture::X86_64 {
        flags |= SHF_X86_64_LARGE;
    }
    let image = add_section(&mut object, fatbin::SECTION_FATBIN, SectionKind::ReadOnlyData, flags, Cow::Borrowed(fatbin), 16);
    let mut header = Vec::with_capacity(24);
    header.extend(WRAPPER_MAGIC.to_le_bytes());
    header.extend(nvcc::wrapper_version(modules).to_le_bytes());
    header.extend([0; 16]);
    let writable = SHF_ALLOC | SHF_WRITE;
    let wrapper = add_section(&mut object, fatbin::SECTION_WRAPPER, SectionKind::Data, writable, header.into(), 8);
    let image_symbol = add_local(&mut object, ".fatbin_image", image, 0, fatbin.len() as u64);
    relocate(&mut object, wrapper, 8, image_symbol, 0, host.absolute).map_err(|error| failed(&error))?;
    // Pointers to entries, and behind them their number and a mark: by this reference to a name of LLVM's, a wrapper that gets this object
    // among its inputs knows it for what it is.
    let table_size = entries.len() * 8;
    let mut table = vec![0; table_size];
    table.extend((entries.len() as u64).to_le_bytes());
    table.extend([0; 8]);
    let table = add_section(&mut object, ".data.rel.ro", SectionKind::Data, writable, table.into(), 8);
    for (index, name) in entries.iter().enumerate() {
        let symbol = add_weak_reference(&mut object, name);
        relocate(&mut object, table, index as u64 * 8, symbol, 0, host.absolute).map_err(|error| failed(&error))?;
    }
    let mark = add_weak_reference(&mut object, "__start_llvm_offload_entries");
    relocate(&mut object, table, table_size as u64 + 8, mark, 0, host.absolute).map_err(|error| failed(&error))?;
    let nvcc_data = nvcc::add_data(&mut object, modules, wrapper, host.absolute).map_err(|error| failed(&error))?;
    let mut data = vec![
        (".fatbin_wrapper", add_local(&mut object, ".fatbin_wrapper", wrapper, 0, 24)),
        (".cuda.entries", add_local(&mut object, ".cuda.entries", table, 0, table_size as u64)),
        (".cuda.entry_count", add_local(&mut object, ".cuda.entry_count", table, table_size as u64, 8)),
    ];
    data.extend(nvcc_data);
    add_code(&mut object, &code, &data).map_err(|error| failed(&error))?;
    nvcc::add_functions(&mut object, modules);
    if let Some(guard) = guard {
        guard::add(&mut object, &host.guard, guard).map_err(|error| failed(&error))?;
    }
    add_section(&mut object, ".note.GNU-stack", SectionKind::Other, ElfFlags(0), Cow::Borrowed(&[]), 1);
    object.write().map_err(|error| failed(&error.to_string()))
}

fn add_section<'a>(object: &mut Object<'a>, name: &str, kind: SectionKind, flags: ElfFlags, data: Cow<'a, [u8]>, align: u64) -> SectionId {
    let segment = object.segment_name(StandardSegment::Data).to_vec();
    let id = object.add_section(segment, name.as_bytes().to_vec(), kind);
    object.section_mut(id).flags = SectionFlags::Elf { sh_type: SHT_PROGBITS, sh_flags: flags };
    object.set_section_data(id, data, align);
    id
}

fn add_local(object: &mut Object, name: &str, section: SectionId, value: u64, size: u64) -> SymbolId {
    object.add_symbol(Symbol {
        name: name.as_bytes().to_vec(),
        value,
        size,
        kind: SymbolKind::Data,
        scope: SymbolScope::Compilation,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    })
}

fn add_weak_reference(object: &mut Object, name: &str) -> SymbolId {
    object.add_symbol(Symbol {
        name: name.as_bytes().to_vec(),
        value: 0,
        size: 0,
        kind: SymbolKind::Unknown,
        scope: SymbolScope::Unknown,
        weak: true,
        section: SymbolSection::Undefined,
        flags: SymbolFlags::Elf { st_info: SymbolInfo::new(STB_WEAK, STT_NOTYPE), st_other: SymbolOther(STV_HIDDEN.0) },
    })
}

fn relocate(
    object: &mut Object,
    section: SectionId,
    offset: u64,
    symbol: SymbolId,
    addend: i64,
    r_type: RelocationType,
) -> std::result::Result<(), String> {
    object
        .add_relocation(section, Relocation { offset, symbol, addend, flags: RelocationFlags::Elf { r_type } })
        .map_err(|error| error.to_string())
}

/// Copies compiled code, with `data` in place of what it leaves undefined. What it defines and `data` names is put into the symbol there.
fn add_code<'a>(object: &mut Object<'a>, code: &object::File<'a>, data: &[(&str, SymbolId)]) -> std::result::Result<(), String> {
    let text = |error: object::Error| error.to_string();
    let mut sections = HashMap::new();
    for section in code.sections() {
        let loaded = match section.flags() {
            SectionFlags::Elf { sh_flags, .. } => sh_flags.0 & SHF_ALLOC.0 != 0,
            SectionFlags::Coff { characteristics } => coff::is_loaded(characteristics),
            _ => false,
        };
        if !loaded || section.size() == 0 {
            continue;
        }
        let name = section.name().map_err(text)?;
        let segment = object.segment_name(StandardSegment::Text).to_vec();
        let id = object.add_section(segment, name.as_bytes().to_vec(), section.kind());
        object.section_mut(id).flags = section.flags();
        if section.kind() == SectionKind::UninitializedData {
            object.append_section_bss(id, section.size(), section.align());
        } else {
            object.set_section_data(id, section.data().map_err(text)?, section.align());
        }
        sections.insert(section.index(), id);
    }
    let mut symbols = HashMap::new();
    for symbol in code.symbols() {
        let name = symbol.name().map_err(text)?;
        let place = symbol.section_index().and_then(|index| sections.get(&index));
        let id = match (symbol.kind(), place) {
            (SymbolKind::Section, Some(&section)) => object.section_symbol(section),
            (SymbolKind::Section | SymbolKind::File, _) => continue,
            // `$x` and its kind mark code and data for disassemblers; the section's kind says as much.
            (SymbolKind::Unknown, Some(_)) => continue,
            (_, Some(&section)) if data.iter().any(|(known, _)| *known == name) => {
                let Some((_, id)) = data.iter().find(|(known, _)| *known == name) else { continue };
                let named = object.symbol_mut(*id);
                (named.section, named.value, named.size) = (SymbolSection::Section(section), symbol.address(), symbol.size());
                *id
            }
            (kind, Some(&section)) => object.add_symbol(Symbol {
                name: name.as_bytes().to_vec(),
                value: symbol.address(),
                size: symbol.size(),
                kind,
                scope: SymbolScope::Compilation,
                weak: false,
                section: SymbolSection::Section(section),
                flags: SymbolFlags::None,
            }),
            (_, None) if !symbol.is_undefined() || name.is_empty() => continue,
            (_, None) => match data.iter().find(|(known, _)| *known == name) {
                Some((_, id)) => *id,
                None => object.add_symbol(Symbol {
                    name: name.as_bytes().to_vec(),
                    value: 0,
                    size: 0,
                    kind: SymbolKind::Text,
                    scope: SymbolScope::Unknown,
                    weak: symbol.is_weak(),
                    section: SymbolSection::Undefined,
                    flags: SymbolFlags::None,
                }),
            },
        };
        symbols.insert(symbol.index(), id);
    }
    for section in code.sections() {
        let Some(&id) = sections.get(&section.index()) else { continue };
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(target) = relocation.target() else { return Err("relocation without a symbol".to_owned()) };
            let symbol = *symbols.get(&target).ok_or("relocation against an unknown symbol")?;
            let flags = relocation.flags();
            object
                .add_relocation(id, Relocation { offset, symbol, addend: relocation.addend(), flags })
                .map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// The registration module's text as `--print-wrapped-module` shows it: the code, with the data of this link but for the fat binary's
/// content.
pub fn printed_module(triple: &str, fatbin: &[u8], entries: &[String], modules: &Modules, guard: Option<&Guard>) -> Result<String> {
    let is_coff = coff::is_host(triple);
    if !is_coff {
        host(triple)?;
    }
    let quoted: Vec<String> = entries.iter().map(|symbol| format!("@\"{}\"", escape(symbol))).collect();
    let list: Vec<String> = quoted.iter().map(|name| format!("ptr {name}")).collect();
    let mut data = String::new();
    if is_coff {
        data.push_str(&coff::printed_marks());
    } else {
        for name in &quoted {
            data.push_str(&format!("{name} = extern_weak hidden constant %entry, align 8\n"));
        }
        data.push_str(&format!("@.cuda.entries = internal constant [{} x ptr] [{}], align 8\n", entries.len(), list.join(", ")));
        data.push_str(&format!("@.cuda.entry_count = internal constant i64 {}, align 8\n", entries.len()));
    }
    data.push_str(&format!(
        "@.fatbin_image = internal constant [{} x i8] c\"...\", section \"{}\", align 16\n\
         @.fatbin_wrapper = internal constant %wrapper {{ i32 {WRAPPER_MAGIC}, i32 {}, ptr @.fatbin_image, ptr {} }}, section \"{}\", align 8\n",
        fatbin.len(),
        fatbin::SECTION_FATBIN,
        nvcc::wrapper_version(modules),
        if modules.are_all && !modules.ids.is_empty() { "@.cuda.parts" } else { "null" },
        fatbin::SECTION_WRAPPER
    ));
    data.push_str(&nvcc::printed(modules));
    let finds = if is_coff { include_str!("wrap/entries-coff.ll") } else { include_str!("wrap/entries-elf.ll") };
    let mut module = String::new();
    for line in include_str!("wrap/cuda.ll").lines().chain(finds.lines()).filter(|line| !line.starts_with(';')) {
        match line {
            "source_filename = \"warplink.registration\"" => module.push_str(&format!("{line}\ntarget triple = \"{triple}\"\n")),
            // The last of the types that the data needs.
            _ if line.starts_with("%wrapper = type") => module.push_str(&format!("{line}\n\n{data}")),
            _ if line.contains("= external hidden") => {}
            _ => {
                module.push_str(line);
                module.push('\n');
            }
        }
    }
    module.push_str(&guard.map(guard::printed).unwrap_or_default());
    Ok(module)
}

/// A name between the quotes of LLVM's text.
fn escape(name: &str) -> String {
    name.bytes().map(quoted).collect()
}

/// A byte between the quotes of LLVM's text.
fn quoted(b: u8) -> String {
    if (b.is_ascii_graphic() || b == b' ') && b != b'"' && b != b'\\' { char::from(b).to_string() } else { format!("\\{b:02X}") }
}

#[cfg(test)]
mod tests {
    use offload_object::{HostObject, SymbolKind};

    use super::*;

    #[test]
    fn the_object_holds_what_a_program_needs() {
        for triple in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
            let entries = [".offloading.entry._Z1kPi".to_owned(), "odd \"name\\".to_owned()];
            let bytes = registration_object(triple, b"fat binary", &entries, &Modules::default(), None).unwrap();
            let object = HostObject::parse(&bytes).unwrap();
            assert!(object.is_registration_object(), "{triple}");
            assert_eq!(object.section_named(".nv_fatbin"), Some(&b"fat binary"[..]), "{triple}");
            assert_eq!(object.section_named(".nvFatBinSegment").map(<[u8]>::len), Some(24), "{triple}");
            assert!(object.section_named(".init_array.101").is_some(), "{triple}");
            for name in entries {
                let symbol = object.symbols().into_iter().find(|symbol| symbol.name == name.as_bytes()).unwrap();
                assert_eq!(symbol.kind, SymbolKind::UndefinedWeak, "{triple}");
            }
            let undefined: Vec<_> = object
                .symbols()
                .into_iter()
                .filter(|symbol| symbol.kind == SymbolKind::Undefined)
                .map(|symbol| String::from_utf8_lossy(symbol.name).into_owned())
                .collect();
            for name in undefined {
                assert!(name.starts_with("__cuda") || name == "atexit", "{triple}: {name} is left undefined");
            }
        }
    }

    #[test]
    fn an_independent_reader_agrees() {
        let bytes =
            registration_object("x86_64-unknown-linux-gnu", b"fat binary", &["e1".to_owned(), "e2".to_owned()], &Modules::default(), None)
                .unwrap();
        let elf = goblin::elf::Elf::parse(&bytes).unwrap();
        let section = |name: &str| elf.section_headers.iter().find(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(name)).unwrap();
        assert_eq!(section(".nv_fatbin").sh_addralign, 16);
        assert_eq!(section(".nvFatBinSegment").sh_addralign, 8);
        assert_eq!(section(".init_array.101").sh_type, goblin::elf::section_header::SHT_INIT_ARRAY);
        assert_eq!(section(".data.rel.ro").sh_size, 2 * 8 + 8 + 8);
        let relocated = |name: &str| {
            let index = elf.section_headers.iter().position(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(name)).unwrap();
            elf.shdr_relocs.iter().find(|(i, _)| *i == index).unwrap().1.iter().collect::<Vec<_>>()
        };
        let names: Vec<_> = relocated(".rela.data.rel.ro")
            .iter()
            .map(|r| elf.strtab.get_at(elf.syms.get(r.r_sym).unwrap().st_name).unwrap().to_owned())
            .collect();
        assert_eq!(names, ["e1", "e2", "__start_llvm_offload_entries"]);
    }

    #[test]
    fn same_input_same_bytes() {
        let make = || registration_object("x86_64-unknown-linux-gnu", b"x", &["e".to_owned()], &Modules::default(), None).unwrap();
        assert_eq!(make(), make());
    }

    #[test]
    fn a_huge_fat_binary_leaves_the_small_code_model() {
        let flags = |triple: &str, size: usize| {
            let bytes = registration_object(triple, &vec![1; size], &[], &Modules::default(), None).unwrap();
            let elf = goblin::elf::Elf::parse(&bytes).unwrap();
            elf.section_headers.iter().find(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(".nv_fatbin")).unwrap().sh_flags
        };
        assert_eq!(flags("x86_64-unknown-linux-gnu", LARGE), 0x1000_0002);
        assert_eq!(flags("x86_64-unknown-linux-gnu", 1000), 2);
        assert_eq!(flags("aarch64-unknown-linux-gnu", LARGE), 2);
    }

    #[test]
    fn other_hosts_are_refused_by_name() {
        for (triple, word) in [("riscv64-unknown-linux-gnu", "riscv64"), ("i686-pc-windows-msvc", "i686")] {
            let error = registration_object(triple, b"x", &[], &Modules::default(), None).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_printed_module_has_the_data_of_the_link() {
        let text = printed_module("x86_64-unknown-linux-gnu", b"fat binary", &["e".to_owned()], &Modules::default(), None).unwrap();
        for part in ["target triple = \"x86_64-unknown-linux-gnu\"", "[10 x i8]", "i64 1", "ptr @\"e\"", "__cudaRegisterFatBinaryEnd"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("external hidden"));
    }
}
