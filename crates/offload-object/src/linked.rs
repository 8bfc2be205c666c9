//! Offload entries of a linked program or shared object.
//!
//! The pointers of an entry are addresses. In a position-independent file they come from dynamic relocations: RELA ones hold the value
//! themselves and leave the bytes in the file open (GNU ld fills them, lld does not); REL and RELR ones leave it in the bytes. So the value
//! is the RELA addend where there is one, and the bytes otherwise. No relocation type needs to be known for that, and no symbol table.

use std::collections::HashMap;

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader, Sym};
use object::{SectionIndex, SymbolIndex};

use crate::binary::OffloadKind;
use crate::bytes;
use crate::error::{Error, OrError, Result};
use crate::host::{EntryFlags, EntrySection, HostTarget, ObjectFormat, check_total};

/// One offload entry of a linked file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedEntry {
    /// Name of the symbol in the device image.
    pub name: Vec<u8>,
    /// The languages that it is for, as a bit mask.
    pub kind: OffloadKind,
    /// Flags.
    pub flags: EntryFlags,
    /// Size of a variable in bytes; 0 for a kernel.
    pub size: u64,
    /// Address of the stub or shadow variable, relative to the load address of a position-independent file. 0 if another file defines it.
    pub address: u64,
}

impl LinkedEntry {
    /// Whether it is a kernel and not a variable.
    pub fn is_kernel(&self) -> bool {
        self.size == 0
    }
}

/// Reads the offload entries of a linked ELF file, in file order: those of the section `llvm_offload_entries`, of the sections that LLVM
/// 20 and older used, and those that relocatable links have set apart in sections of their own. A file without such a section has none.
///
/// # Errors
/// `data` is no ELF file, its headers are malformed, an entry is cut short, or its name is not in the file.
pub fn linked_entries(data: &[u8]) -> Result<Vec<LinkedEntry>> {
    match data {
        [0x7f, b'E', b'L', b'F', 1, ..] => read::<FileHeader32<Endianness>>(data),
        [0x7f, b'E', b'L', b'F', 2, ..] => read::<FileHeader64<Endianness>>(data),
        _ => Err(Error("not an ELF file")),
    }
}

fn read<H: FileHeader<Endian = Endianness>>(data: &[u8]) -> Result<Vec<LinkedEntry>> {
    let header = H::parse(data).or_error("ELF header is malformed")?;
    let endian = header.endian().or_error("ELF header is malformed")?;
    let sections = header.sections(endian, data).or_error("ELF section table is malformed")?;
    let segments = header.program_headers(endian, data).or_error("ELF program headers are malformed")?;
    let target = HostTarget {
        format: ObjectFormat::Elf,
        machine: header.e_machine(endian).0,
        is_64: header.is_type_64(),
        little_endian: header.is_little_endian(),
    };

    let mut entry_sections = Vec::new();
    for section in sections.iter() {
        let name = sections.section_name(endian, section).unwrap_or_default();
        if let Some(kind) = EntrySection::linked(name)
            && section.sh_type(endian) != elf::SHT_NOBITS
        {
            let bytes = section.data(endian, data).or_error("offload entries lie outside the file")?;
            entry_sections.push((kind, section.sh_addr(endian).into(), bytes));
        }
    }
    check_total(data, entry_sections.iter().map(|(_, _, bytes)| bytes.len() as u64))?;
    let relocations =
        sections.iter().filter(|section| section.sh_type(endian) == elf::SHT_RELA && section.sh_flags(endian).contains(elf::SHF_ALLOC));
    check_total(data, relocations.map(|section| section.sh_size(endian).into()))?;
    let in_entries = |address: u64| entry_sections.iter().any(|(_, start, bytes)| address.wrapping_sub(*start) < bytes.len() as u64);

    // The values that the dynamic linker stores over the entries.
    let mut values: HashMap<u64, u64> = HashMap::new();
    for section in sections.iter() {
        // Relocations that `--emit-relocs` keeps are not loaded and not applied.
        if entry_sections.is_empty() || !section.sh_flags(endian).contains(elf::SHF_ALLOC) {
            continue;
        }
        let Some((relocations, link)) = section.rela(endian, data).or_error("ELF relocation section is malformed")? else {
            continue;
        };
        for relocation in relocations {
            let offset: u64 = relocation.r_offset(endian).into();
            if !in_entries(offset) {
                continue;
            }
            let symbol = relocation.r_sym(endian, false);
            let base = if symbol == 0 { 0 } else { symbol_value::<H>(data, endian, &sections, link, symbol)? };
            values.insert(offset, base.wrapping_add_signed(relocation.r_addend(endian).into()));
        }
    }

    let mut entries = Vec::new();
    for (kind, start, bytes) in entry_sections {
        let points = |at: u64| {
            let stored = bytes::slice(bytes, at, if target.is_64 { 8 } else { 4 });
            values.contains_key(&u64::wrapping_add(start, at)) || stored.is_some_and(|stored| stored.iter().any(|&byte| byte != 0))
        };
        for (at, layout, raw) in kind.entries(target, bytes, points)? {
            let at = u64::wrapping_add(start, at);
            let value = |offset: u64, stored: u64| values.get(&at.wrapping_add(offset)).copied().unwrap_or(stored);
            let name = string_at::<H>(data, endian, segments, value(layout.name(), raw.name));
            entries.push(LinkedEntry {
                name: name.or_error("offload entry has a name outside the file")?.to_vec(),
                kind: OffloadKind(raw.kind),
                flags: EntryFlags(raw.flags),
                size: raw.size,
                address: value(layout.address(), raw.address),
            });
        }
    }
    Ok(entries)
}

fn symbol_value<H: FileHeader<Endian = Endianness>>(
    data: &[u8],
    endian: Endianness,
    sections: &object::read::elf::SectionTable<H>,
    table: SectionIndex,
    symbol: u32,
) -> Result<u64> {
    const MALFORMED: &str = "ELF relocation has a malformed symbol";
    let section = sections.section(table).or_error(MALFORMED)?;
    let symbols: &[H::Sym] = section.data_as_array(endian, data).or_error(MALFORMED)?;
    let symbol = symbols.get(SymbolIndex(symbol as usize).0).or_error(MALFORMED)?;
    Ok(symbol.st_value(endian).into())
}

/// The string at virtual address `address`.
fn string_at<'a, H: FileHeader<Endian = Endianness>>(
    data: &'a [u8],
    endian: Endianness,
    segments: &[H::ProgramHeader],
    address: u64,
) -> Option<&'a [u8]> {
    let mut loaded = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
    loaded.find_map(|segment| {
        let offset = address.checked_sub(segment.p_vaddr(endian).into())?;
        let segment = bytes::slice(data, segment.p_offset(endian).into(), segment.p_filesz(endian).into())?;
        bytes::c_string(segment, offset)
    })
}
