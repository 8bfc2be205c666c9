//! Makes the result of a relocatable link (`ld -r`) self-contained: its device code is linked, so later links must neither link it again nor
//! register its entries a second time.
//!
//! The file is taken apart into sections, edited and laid out anew. Section and symbol numbers change where something is dropped, so whatever
//! holds one is rewritten: symbols, extended section indexes, relocations, groups, address-significance tables.

use std::borrow::Cow;

use object::elf::{self, FileHeader64, Rel64, Rela64, SectionHeader64, Sym64};
use object::pod::{bytes_of, bytes_of_slice, from_bytes, slice_from_all_bytes};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, SymbolIndex, U32};

use crate::bytes;
use crate::error::{Error, OrError, Result};
use crate::file::{FileKind, file_kind};
use crate::host::{EntrySection, check_total, entry_section_names};
use crate::{OFFLOAD_SECTION, SHT_LLVM_OFFLOADING};

/// Table of the symbols whose address matters, which lets linkers fold the rest: symbol numbers in ULEB128.
const SHT_LLVM_ADDRSIG: u32 = 0x6fff_4c03;
const SHF_GNU_RETAIN: u64 = 1 << 21;
const ELFOSABI_NONE: u8 = 0;
const ELFOSABI_GNU: u8 = 3;

struct Section<'a> {
    header: SectionHeader64<Endianness>,
    name: &'a [u8],
    data: Cow<'a, [u8]>,
    keep: bool,
}

/// Takes the device images out of `object`, and sets its offload entries apart: the section `llvm_offload_entries` and the symbols
/// `__start_llvm_offload_entries` and `__stop_llvm_offload_entries` get `_` and `suffix` at their end, and so do the sections of LLVM 20 and
/// older. The section is marked with
/// `SHF_GNU_RETAIN`, since lld's `--gc-sections` does not count start and stop symbols as references.
///
/// # Errors
/// `object` is no relocatable 64-bit ELF file, or is malformed; `suffix` is not made of letters, digits and underscores; what would be dropped
/// is referred to from elsewhere.
pub fn separate_relocatable(object: &[u8], suffix: &str) -> Result<Vec<u8>> {
    if suffix.is_empty() || !suffix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(Error("suffix of the offload entries is not part of a C identifier"));
    }
    match (file_kind(object), object.get(4)) {
        (FileKind::ElfRelocatable, Some(2)) => Separation::parse(object)?.run(suffix),
        (FileKind::Coff, _) => Err(Error("relocatable linking is for ELF objects only")),
        _ => Err(Error("not a relocatable 64-bit ELF object")),
    }
}

struct Separation<'a> {
    endian: Endianness,
    header: FileHeader64<Endianness>,
    sections: Vec<Section<'a>>,
    section_names: u32,
    symbol_table: Option<u32>,
}

impl<'a> Separation<'a> {
    fn parse(object: &'a [u8]) -> Result<Self> {
        const MALFORMED: &str = "ELF section table is malformed";
        let header = FileHeader64::<Endianness>::parse(object).or_error("ELF header is malformed")?;
        let endian = header.endian().or_error("ELF header is malformed")?;
        let table = header.sections(endian, object).or_error(MALFORMED)?;
        let section_names = header.shstrndx(endian, object).or_error(MALFORMED)?;
        let mut sections = Vec::with_capacity(table.len());
        let mut symbol_table = None;
        for (index, section) in table.enumerate() {
            let data = section.data(endian, object).or_error("ELF section lies outside the file")?;
            let name = table.section_name(endian, section).or_error("ELF section name is malformed")?;
            if section.sh_type(endian) == elf::SHT_SYMTAB {
                symbol_table = u32::try_from(index.0).ok();
            }
            // Section 0 has sizes of the whole file in it and no bytes.
            let data = if index.0 == 0 { &[][..] } else { data };
            sections.push(Section { header: *section, name, data: Cow::Borrowed(data), keep: true });
        }
        check_total(object, sections.iter().map(|section| section.data.len() as u64))?;
        Ok(Separation { endian, header: *header, sections, section_names, symbol_table })
    }

    fn run(mut self, suffix: &str) -> Result<Vec<u8>> {
        self.mark_dropped()?;
        self.rename_sections(suffix)?;
        self.rename_symbols(suffix)?;
        // From here on names are fixed; what follows changes numbers only.
        let section_numbers = self.new_section_numbers();
        let symbol_numbers = self.drop_symbols(&section_numbers)?;
        self.renumber_symbols(&symbol_numbers)?;
        self.renumber_sections(&section_numbers)?;
        self.layout(&section_numbers)
    }

    fn kind(&self, section: &Section) -> elf::SectionType {
        section.header.sh_type(self.endian)
    }

    fn is_relocation(&self, section: &Section) -> bool {
        matches!(self.kind(section), elf::SHT_REL | elf::SHT_RELA | elf::SHT_CREL)
    }

    fn mark_dropped(&mut self) -> Result<()> {
        let endian = self.endian;
        let mut dropped = vec![false; self.sections.len()];
        for (section, dropped) in self.sections.iter().zip(&mut dropped) {
            *dropped = self.kind(section).0 == SHT_LLVM_OFFLOADING || section.name == OFFLOAD_SECTION.as_bytes();
        }
        let is_dropped = |index: u32| dropped.get(index as usize).copied().unwrap_or(false);
        let mut with_relocations = dropped.clone();
        for (section, goes) in self.sections.iter().zip(&mut with_relocations) {
            *goes |= self.is_relocation(section) && is_dropped(section.header.sh_info(endian));
        }
        for (section, goes) in self.sections.iter_mut().zip(&with_relocations) {
            section.keep = !goes;
        }
        // A group loses the members that go, and goes with its last one.
        for section in self.sections.iter_mut().filter(|section| section.header.sh_type(endian) == elf::SHT_GROUP) {
            let words: &[U32<Endianness>] = slice_from_all_bytes(&section.data).or_error("ELF section group is malformed")?;
            let goes = |word: &U32<Endianness>| with_relocations.get(word.get(endian) as usize).copied().unwrap_or(false);
            let (flags, members) = words.split_first().or_error("ELF section group is malformed")?;
            if members.iter().any(goes) {
                let kept: Vec<_> = std::iter::once(flags).chain(members.iter().filter(|word| !goes(word))).copied().collect();
                section.keep = kept.len() > 1;
                section.data = bytes_of_slice(&kept).to_vec().into();
            }
        }
        Ok(())
    }

    /// Adds `name` to the string table in section `table`; gives its offset there.
    fn add_string(&mut self, table: u32, name: &[u8]) -> Result<u32> {
        let section = self.sections.get_mut(table as usize).or_error("ELF string table is missing")?;
        if section.header.sh_type(self.endian) != elf::SHT_STRTAB {
            return Err(Error("ELF string table is missing"));
        }
        let data = section.data.to_mut();
        let offset = u32::try_from(data.len()).or_error("ELF string table is too large")?;
        data.extend(name);
        data.push(0);
        Ok(offset)
    }

    fn rename_sections(&mut self, suffix: &str) -> Result<()> {
        let endian = self.endian;
        let mut retained = false;
        for index in 0..self.sections.len() {
            let Some(section) = self.sections.get(index) else { break };
            let is_entries = EntrySection::named(section.name).is_some();
            let is_their_relocations =
                self.is_relocation(section) && entry_section_names().any(|name| section.name.ends_with(name.as_bytes()));
            if !is_entries && !is_their_relocations {
                continue;
            }
            let name = [section.name, b"_", suffix.as_bytes()].concat();
            let offset = self.add_string(self.section_names, &name)?;
            let Some(section) = self.sections.get_mut(index) else { break };
            section.header.sh_name.set(endian, offset);
            if is_entries {
                let flags = section.header.sh_flags.get(endian).0 | SHF_GNU_RETAIN;
                section.header.sh_flags.set(endian, elf::SectionFlags(flags));
                retained = true;
            }
        }
        // GNU tools know SHF_GNU_RETAIN only in files that say they use GNU extensions.
        if retained && self.header.e_ident.os_abi.0 == ELFOSABI_NONE {
            self.header.e_ident.os_abi.0 = ELFOSABI_GNU;
        }
        Ok(())
    }

    /// The symbol table and the number of its string table.
    fn symbols(&self) -> Result<(Vec<Sym64<Endianness>>, u32)> {
        let Some(section) = self.symbol_table.and_then(|index| self.sections.get(index as usize)) else {
            return Ok((Vec::new(), 0));
        };
        let symbols: &[Sym64<Endianness>] = slice_from_all_bytes(&section.data).or_error("ELF symbol table is malformed")?;
        Ok((symbols.to_vec(), section.header.sh_link(self.endian)))
    }

    fn set_symbols(&mut self, symbols: &[Sym64<Endianness>]) {
        let endian = self.endian;
        if let Some(section) = self.symbol_table.and_then(|index| self.sections.get_mut(index as usize)) {
            let locals = symbols.iter().take_while(|symbol| symbol.is_local()).count();
            section.header.sh_info.set(endian, locals as u32);
            section.data = bytes_of_slice(symbols).to_vec().into();
        }
    }

    fn rename_symbols(&mut self, suffix: &str) -> Result<()> {
        let endian = self.endian;
        let (mut symbols, strings) = self.symbols()?;
        let names = self.sections.get(strings as usize).map(|section| section.data.clone().into_owned()).unwrap_or_default();
        for (section, mark) in entry_section_names().flat_map(|section| ["__start_", "__stop_"].map(|mark| (section, mark))) {
            let old = format!("{mark}{section}");
            let mut new = None;
            for symbol in &mut symbols {
                let name = bytes::c_string(&names, symbol.st_name(endian).into());
                if name == Some(old.as_bytes()) {
                    let offset = match new {
                        Some(offset) => offset,
                        None => *new.insert(self.add_string(strings, format!("{old}_{suffix}").as_bytes())?),
                    };
                    symbol.st_name.set(endian, offset);
                }
            }
        }
        self.set_symbols(&symbols);
        Ok(())
    }

    /// New number of each section; `None` for those that go.
    fn new_section_numbers(&self) -> Vec<Option<u32>> {
        let mut next = 0;
        let number = |section: &Section| {
            let number = section.keep.then_some(next);
            next += u32::from(section.keep);
            number
        };
        self.sections.iter().map(number).collect()
    }

    /// The extended section indexes of the symbols, where the file has more sections than a symbol's own field can number.
    fn extended_indexes(&self) -> Option<usize> {
        let linked = |section: &Section| Some(section.header.sh_link(self.endian)) == self.symbol_table;
        self.sections.iter().position(|section| self.kind(section) == elf::SHT_SYMTAB_SHNDX && linked(section))
    }

    /// Takes out the symbols of sections that go, and gives the others their section's new number. Returns the new number of each symbol.
    fn drop_symbols(&mut self, section_numbers: &[Option<u32>]) -> Result<Vec<Option<u32>>> {
        let endian = self.endian;
        let (symbols, _) = self.symbols()?;
        let extended = self.extended_indexes();
        let mut indexes: Vec<U32<Endianness>> = match extended.and_then(|index| self.sections.get(index)) {
            Some(section) => slice_from_all_bytes(&section.data).or_error("ELF extended section indexes are malformed")?.to_vec(),
            None => Vec::new(),
        };
        let new_number = |old: u32| section_numbers.get(old as usize).copied().or_error("ELF symbol has a malformed section");
        let mut numbers = Vec::with_capacity(symbols.len());
        let (mut kept, mut kept_indexes) = (Vec::with_capacity(symbols.len()), Vec::new());
        for (number, mut symbol) in symbols.into_iter().enumerate() {
            let mut index = indexes.get_mut(number);
            let stays = if let Some(old) = symbol.st_shndx(endian).index() {
                let new = new_number(u32::from(old))?;
                symbol.st_shndx.set(endian, elf::SymbolSection(new.unwrap_or_default() as u16));
                new.is_some()
            } else if symbol.st_shndx(endian) == elf::SHN_XINDEX {
                let index = index.as_mut().or_error("ELF extended section indexes are malformed")?;
                let new = new_number(index.get(endian))?;
                index.set(endian, new.unwrap_or_default());
                new.is_some()
            } else {
                true
            };
            if !stays && !symbol.is_local() {
                return Err(Error("section of device images defines a global symbol"));
            }
            numbers.push(stays.then_some(kept.len() as u32));
            if stays {
                kept.push(symbol);
                kept_indexes.extend(index.map(|index| *index));
            }
        }
        self.set_symbols(&kept);
        if let Some(section) = extended.and_then(|index| self.sections.get_mut(index)) {
            section.data = bytes_of_slice(&kept_indexes).to_vec().into();
        }
        Ok(numbers)
    }

    /// Gives every reference to a symbol its new number.
    fn renumber_symbols(&mut self, numbers: &[Option<u32>]) -> Result<()> {
        if numbers.iter().enumerate().all(|(old, new)| *new == Some(old as u32)) {
            return Ok(());
        }
        let endian = self.endian;
        let symbol_table = self.symbol_table;
        let new_number = |old: u32| {
            let new = numbers.get(old as usize).copied().or_error("ELF symbol number is malformed")?;
            new.or_error("something refers into a section of device images")
        };
        for section in self.sections.iter_mut().filter(|section| section.keep) {
            if Some(section.header.sh_link(endian)) != symbol_table {
                continue;
            }
            match section.header.sh_type(endian) {
                elf::SHT_RELA => {
                    edit_records::<Rela64<Endianness>>(section, |record| renumber_info(&mut record.r_info, endian, new_number))?;
                }
                elf::SHT_REL => {
                    edit_records::<Rel64<Endianness>>(section, |record| renumber_info(&mut record.r_info, endian, new_number))?;
                }
                elf::SHT_CREL => return Err(Error("CREL relocations cannot be renumbered")),
                elf::SHT_GROUP => {
                    let signature = new_number(section.header.sh_info(endian))?;
                    section.header.sh_info.set(endian, signature);
                }
                elf::SectionType(SHT_LLVM_ADDRSIG) => {
                    let mut out = Vec::with_capacity(section.data.len());
                    let mut rest = &*section.data;
                    while !rest.is_empty() {
                        let old = read_uleb(&mut rest).or_error("ELF address-significance table is malformed")?;
                        // A symbol that goes needs no address.
                        if let Some(new) = numbers.get(old as usize).copied().or_error("ELF symbol number is malformed")? {
                            write_uleb(&mut out, new);
                        }
                    }
                    section.data = out.into();
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives every reference to a section in headers and groups its new number.
    fn renumber_sections(&mut self, numbers: &[Option<u32>]) -> Result<()> {
        let endian = self.endian;
        let new_number = |old: u32| {
            let new = numbers.get(old as usize).copied().or_error("ELF section number is malformed")?;
            new.or_error("a section depends on a section of device images")
        };
        for section in self.sections.iter_mut().skip(1).filter(|section| section.keep) {
            let link = new_number(section.header.sh_link(endian))?;
            section.header.sh_link.set(endian, link);
            let kind = section.header.sh_type(endian);
            if matches!(kind, elf::SHT_REL | elf::SHT_RELA | elf::SHT_CREL) || section.header.has_info_link(endian) {
                let info = new_number(section.header.sh_info(endian))?;
                section.header.sh_info.set(endian, info);
            }
            if kind == elf::SHT_GROUP {
                let mut is_flags = true;
                edit_records::<U32<Endianness>>(section, |word| {
                    if !std::mem::take(&mut is_flags) {
                        let number = new_number(word.get(endian))?;
                        word.set(endian, number);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Writes the file: the sections in the order they had, then the section table.
    fn layout(mut self, numbers: &[Option<u32>]) -> Result<Vec<u8>> {
        const LARGE: &str = "ELF file is too large";
        let endian = self.endian;
        let header_size = size_of::<FileHeader64<Endianness>>();
        let mut out = vec![0; header_size];
        let mut order: Vec<usize> = (1..self.sections.len()).filter(|&index| self.sections.get(index).is_some_and(|s| s.keep)).collect();
        order.sort_by_key(|&index| self.sections.get(index).map(|section| section.header.sh_offset(endian)));
        for index in order {
            let Some(section) = self.sections.get_mut(index) else { break };
            let align = section.header.sh_addralign(endian).max(1);
            if !align.is_power_of_two() {
                return Err(Error("ELF section has an alignment that is no power of two"));
            }
            let has_bytes = section.header.sh_type(endian) != elf::SHT_NOBITS;
            // Alignment beyond a page is for memory, not for the file.
            let offset = bytes::align_up(out.len() as u64, align.min(4096)).or_error(LARGE)?;
            section.header.sh_offset.set(endian, offset);
            if has_bytes {
                section.header.sh_size.set(endian, section.data.len() as u64);
                out.resize(usize::try_from(offset).or_error(LARGE)?, 0);
                out.extend(&*section.data);
            }
        }
        let table = bytes::align_up(out.len() as u64, 8).or_error(LARGE)?;
        out.resize(usize::try_from(table).or_error(LARGE)?, 0);

        let count = self.sections.iter().filter(|section| section.keep).count() as u32;
        let names = numbers.get(self.section_names as usize).copied().flatten().or_error("ELF section names are missing")?;
        let reserved = u32::from(elf::SHN_LORESERVE);
        if let Some(null) = self.sections.first_mut() {
            // Numbers that do not fit into the file header are kept in the first section header.
            null.header.sh_size.set(endian, if count < reserved { 0 } else { u64::from(count) });
            null.header.sh_link.set(endian, if names < reserved { 0 } else { names });
        }
        self.header.e_shnum.set(endian, if count < reserved { count as u16 } else { 0 });
        let names = if names < reserved { elf::SymbolSection(names as u16) } else { elf::SHN_XINDEX };
        self.header.e_shstrndx.set(endian, names);
        self.header.e_shoff.set(endian, table);
        for section in self.sections.iter().filter(|section| section.keep) {
            out.extend(bytes_of(&section.header));
        }
        if let Some(start) = out.get_mut(..header_size) {
            start.copy_from_slice(bytes_of(&self.header));
        }
        Ok(out)
    }
}

/// Runs `edit` over the fixed-size records of a section.
fn edit_records<T: object::Pod>(section: &mut Section, mut edit: impl FnMut(&mut T) -> Result<()>) -> Result<()> {
    const MALFORMED: &str = "ELF section has an incomplete record";
    let mut out = Vec::with_capacity(section.data.len());
    let mut rest = &*section.data;
    while !rest.is_empty() {
        let (record, tail) = from_bytes::<T>(rest).or_error(MALFORMED)?;
        let mut record = *record;
        edit(&mut record)?;
        out.extend(bytes_of(&record));
        rest = tail;
    }
    section.data = out.into();
    Ok(())
}

fn renumber_info(info: &mut object::U64<Endianness>, endian: Endianness, new_number: impl Fn(u32) -> Result<u32>) -> Result<()> {
    let old = info.get(endian);
    let symbol = SymbolIndex((old >> 32) as usize);
    if symbol.0 != 0 {
        let new = new_number(symbol.0 as u32)?;
        info.set(endian, u64::from(new) << 32 | old & 0xffff_ffff);
    }
    Ok(())
}

fn read_uleb(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..35).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        let part = u32::from(byte & 0x7f);
        value |= part.checked_shl(shift).filter(|shifted| shifted >> shift == part)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn write_uleb(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
