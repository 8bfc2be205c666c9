//! Host objects in ELF, of either class and byte order.

use std::collections::HashMap;

use object::elf;
use object::read::elf::{FileHeader, Rel, Rela, SectionHeader, SectionTable, Sym, SymbolTable};
use object::{Endianness, SectionIndex, SymbolIndex};

use crate::binary::OffloadKind;
use crate::bytes;
use crate::error::{OrError, Result};
use crate::host::{EntryFlags, EntrySection, HostEntry, HostSymbol, HostTarget, ObjectFormat, SymbolKind, check_total, int};
use crate::{NVCC_MODULES_SECTION, SHT_LLVM_OFFLOADING};

/// Common symbols of the large code model.
const SHN_X86_64_LCOMMON: elf::SymbolSection = elf::SymbolSection(0xff02);

#[derive(Debug)]
pub(crate) struct Elf<'a, H: FileHeader> {
    data: &'a [u8],
    header: &'a H,
    endian: Endianness,
    sections: SectionTable<'a, H>,
}

/// Where a pointer of an entry leads.
#[derive(Clone, Copy)]
struct Target<'a> {
    section: Option<SectionIndex>,
    /// Offset in that section.
    offset: u64,
    /// Name of the symbol that the relocation uses, if it has one.
    symbol: Option<&'a [u8]>,
    is_local: bool,
}

impl<'a, H: FileHeader<Endian = Endianness>> Elf<'a, H> {
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self> {
        let header = H::parse(data).or_error("ELF header is malformed")?;
        let endian = header.endian().or_error("ELF header is malformed")?;
        let sections = header.sections(endian, data).or_error("ELF section table is malformed")?;
        Ok(Elf { data, header, endian, sections })
    }

    pub(crate) fn data(&self) -> &'a [u8] {
        self.data
    }

    pub(crate) fn target(&self) -> HostTarget {
        HostTarget {
            format: ObjectFormat::Elf,
            machine: self.header.e_machine(self.endian).0,
            is_64: self.header.is_type_64(),
            little_endian: self.header.is_little_endian(),
        }
    }

    fn offload_headers(&self) -> impl Iterator<Item = &'a H::SectionHeader> {
        let endian = self.endian;
        self.sections.iter().filter(move |section| section.sh_type(endian).0 == SHT_LLVM_OFFLOADING)
    }

    pub(crate) fn has_offload_section(&self) -> bool {
        self.offload_headers().next().is_some()
    }

    pub(crate) fn offload_sections(&self) -> Vec<&'a [u8]> {
        self.offload_headers().map(|section| section.data(self.endian, self.data).unwrap_or_default()).collect()
    }

    pub(crate) fn section_named(&self, name: &[u8]) -> Option<&'a [u8]> {
        let (_, section) = self.sections.section_by_name(self.endian, name)?;
        section.data(self.endian, self.data).ok()
    }

    pub(crate) fn section_sizes(&self) -> Vec<(String, u64)> {
        let sections = self.sections.iter().filter(|section| !matches!(section.sh_type(self.endian), elf::SHT_NULL | elf::SHT_NOBITS));
        let named = sections.map(|section| {
            let name = self.sections.section_name(self.endian, section).unwrap_or_default();
            let size = section.data(self.endian, self.data).unwrap_or_default().len() as u64;
            (String::from_utf8_lossy(name).into_owned(), size)
        });
        named.collect()
    }

    /// nvcc's modules name themselves in a section that is read-only data. Names are looked at last: this is asked of every object.
    pub(crate) fn has_nvcc_modules(&self) -> bool {
        self.sections.iter().any(|section| {
            section.sh_type(self.endian) == elf::SHT_PROGBITS
                && section.sh_flags(self.endian) == elf::SHF_ALLOC
                && self.sections.section_name(self.endian, section).is_ok_and(|name| name == NVCC_MODULES_SECTION.as_bytes())
        })
    }

    pub(crate) fn has_any_section(&self, names: &[&[u8]]) -> bool {
        self.sections.iter().any(|section| self.sections.section_name(self.endian, section).is_ok_and(|name| names.contains(&name)))
    }

    /// The symbols that other files see: of a linked file those that the dynamic linker resolves.
    fn symbol_table(&self) -> Result<SymbolTable<'a, H>> {
        let kind = match self.header.e_type(self.endian) {
            elf::ET_DYN => elf::SHT_DYNSYM,
            _ => elf::SHT_SYMTAB,
        };
        self.sections.symbols(self.endian, self.data, kind).or_error("ELF symbol table is malformed")
    }

    pub(crate) fn symbols(&self) -> Vec<HostSymbol<'a>> {
        let Ok(table) = self.symbol_table() else {
            return Vec::new();
        };
        // The locals come first; null is one of them.
        let globals = table.iter().filter(|symbol| !symbol.is_local());
        globals.filter_map(|symbol| Some(HostSymbol { name: self.symbol_name(&table, symbol)?, kind: self.symbol_kind(symbol) })).collect()
    }

    /// The name, if the symbol has one.
    fn symbol_name(&self, table: &SymbolTable<'a, H>, symbol: &H::Sym) -> Option<&'a [u8]> {
        table.symbol_name(self.endian, symbol).ok().filter(|name| !name.is_empty())
    }

    fn symbol_kind(&self, symbol: &H::Sym) -> SymbolKind {
        let section = symbol.st_shndx(self.endian);
        let is_x86_64 = self.header.e_machine(self.endian) == elf::EM_X86_64;
        if section == elf::SHN_COMMON || symbol.st_type() == elf::STT_COMMON || (is_x86_64 && section == SHN_X86_64_LCOMMON) {
            return SymbolKind::Common;
        }
        match (section == elf::SHN_UNDEF, symbol.is_weak()) {
            (true, true) => SymbolKind::UndefinedWeak,
            (true, false) => SymbolKind::Undefined,
            (false, true) => SymbolKind::DefinedWeak,
            (false, false) => SymbolKind::Defined,
        }
    }

    pub(crate) fn file_symbols(&self) -> Vec<&'a [u8]> {
        let Ok(table) = self.sections.symbols(self.endian, self.data, elf::SHT_SYMTAB) else {
            return Vec::new();
        };
        table.iter().filter(|symbol| symbol.st_type() == elf::STT_FILE).filter_map(|symbol| self.symbol_name(&table, symbol)).collect()
    }

    pub(crate) fn entries(&self) -> Result<Vec<HostEntry<'a>>> {
        let mut found = Vec::new();
        for (index, section) in self.sections.enumerate() {
            let name = self.sections.section_name(self.endian, section).unwrap_or_default();
            if let Some(kind) = EntrySection::named(name)
                && section.sh_type(self.endian) != elf::SHT_NOBITS
            {
                found.push((index, kind, section));
            }
        }
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let size = |section: &H::SectionHeader| -> u64 { section.sh_size(self.endian).into() };
        check_total(self.data, found.iter().map(|(_, _, section)| size(section)))?;
        let relocations = self.sections.iter().filter(|section| {
            matches!(section.sh_type(self.endian), elf::SHT_REL | elf::SHT_RELA | elf::SHT_CREL)
                && found.iter().any(|(index, ..)| section.info_link(self.endian) == *index)
        });
        check_total(self.data, relocations.map(size))?;
        let table = self.sections.symbols(self.endian, self.data, elf::SHT_SYMTAB).or_error("ELF symbol table is malformed")?;
        let mut entries = Vec::new();
        for (index, kind, section) in found {
            self.entries_of(&table, index, kind, section, &mut entries)?;
        }
        Ok(entries)
    }

    fn entries_of(
        &self,
        table: &SymbolTable<'a, H>,
        index: SectionIndex,
        kind: EntrySection,
        section: &H::SectionHeader,
        entries: &mut Vec<HostEntry<'a>>,
    ) -> Result<()> {
        let data = section.data(self.endian, self.data).or_error("offload entries lie outside the file")?;
        if data.is_empty() {
            return Ok(());
        }
        let targets = self.relocation_targets(table, index, data)?;
        let symbols = self.symbols_by_place(table, index, &targets);
        let symbol_at = |section, offset| symbols.get(&(section, offset)).copied();
        for (at, layout, raw) in kind.entries(self.target(), data, |at| targets.contains_key(&at))? {
            let name = targets.get(&(at + layout.name())).or_error("offload entry has no name")?;
            let address = targets.get(&(at + layout.address())).copied();
            let placed = address.filter(|address| address.symbol.is_none()).and_then(|address| symbol_at(address.section?, address.offset));
            entries.push(HostEntry {
                version: raw.version,
                kind: OffloadKind(raw.kind),
                flags: EntryFlags(raw.flags),
                name: self.string_at(name).or_error("offload entry has a name outside the file")?,
                size: raw.size,
                data: raw.data,
                address_symbol: address.and_then(|address| address.symbol).or(placed),
                address_is_local: address.is_some_and(|address| address.is_local),
                entry_symbol: symbol_at(index, at),
            });
        }
        Ok(())
    }

    fn string_at(&self, target: &Target) -> Option<&'a [u8]> {
        let section = self.sections.section(target.section?).ok()?;
        bytes::c_string(section.data(self.endian, self.data).ok()?, target.offset)
    }

    /// What the relocations of section `index` point at, by the offset that they apply to.
    fn relocation_targets(&self, table: &SymbolTable<'a, H>, index: SectionIndex, data: &[u8]) -> Result<HashMap<u64, Target<'a>>> {
        const MALFORMED: &str = "ELF relocation section is malformed";
        let mut targets = HashMap::new();
        let mut add = |offset: u64, symbol: u32, addend: i64| -> Result<()> {
            if let Some(target) = self.target_of(table, symbol, addend)? {
                targets.insert(offset, target);
            }
            Ok(())
        };
        for section in self.sections.iter().filter(|section| section.info_link(self.endian) == index) {
            if let Some((relocations, _)) = section.rela(self.endian, self.data).or_error(MALFORMED)? {
                for relocation in relocations {
                    let symbol = relocation.r_sym(self.endian, false);
                    add(relocation.r_offset(self.endian).into(), symbol, relocation.r_addend(self.endian).into())?;
                }
            } else if let Some((relocations, _)) = section.rel(self.endian, self.data).or_error(MALFORMED)? {
                for relocation in relocations {
                    let offset = relocation.r_offset(self.endian).into();
                    let (size, little_endian) = (size_of::<H::Word>() as u64, self.header.is_little_endian());
                    let addend = int(data, offset, size, little_endian).or_error(MALFORMED)?;
                    add(offset, relocation.r_sym(self.endian), addend as i64)?;
                }
            } else if let Some((relocations, _)) = section.crel(self.endian, self.data).or_error(MALFORMED)? {
                for relocation in relocations {
                    let relocation = relocation.or_error(MALFORMED)?;
                    add(relocation.r_offset, relocation.r_sym, relocation.r_addend)?;
                }
            }
        }
        Ok(targets)
    }

    fn target_of(&self, table: &SymbolTable<'a, H>, symbol: u32, addend: i64) -> Result<Option<Target<'a>>> {
        const MALFORMED: &str = "ELF relocation has a malformed symbol";
        if symbol == 0 {
            return Ok(None);
        }
        let index = SymbolIndex(symbol as usize);
        let symbol = table.symbol(index).or_error(MALFORMED)?;
        let is_section = symbol.st_type() == elf::STT_SECTION;
        let value: u64 = symbol.st_value(self.endian).into();
        Ok(Some(Target {
            section: table.symbol_section(self.endian, symbol, index).or_error(MALFORMED)?,
            offset: value.wrapping_add_signed(addend),
            symbol: if is_section { None } else { self.symbol_name(table, symbol) },
            is_local: symbol.is_local(),
        }))
    }

    /// Names of the symbols at the places that matter: those of the entries themselves, and those that entries reach through the symbol of
    /// a whole section.
    fn symbols_by_place(
        &self,
        table: &SymbolTable<'a, H>,
        entries: SectionIndex,
        targets: &HashMap<u64, Target<'a>>,
    ) -> HashMap<(SectionIndex, u64), &'a [u8]> {
        let mut wanted: HashMap<(SectionIndex, u64), &'a [u8]> = HashMap::new();
        for target in targets.values().filter(|target| target.symbol.is_none()) {
            wanted.extend(target.section.map(|section| ((section, target.offset), &b""[..])));
        }
        for (index, symbol) in table.enumerate() {
            if !matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_OBJECT | elf::STT_NOTYPE) {
                continue;
            }
            let Ok(Some(section)) = table.symbol_section(self.endian, symbol, index) else {
                continue;
            };
            let place = (section, symbol.st_value(self.endian).into());
            let Some(name) = self.symbol_name(table, symbol) else {
                continue;
            };
            // A mark of an empty range, such as `__dummy.llvm_offload_entries`, names no entry.
            if section == entries && symbol.st_size(self.endian).into() > 0 {
                wanted.insert(place, name);
            } else if let Some(known) = wanted.get_mut(&place) {
                *known = name;
            }
        }
        wanted.retain(|_, name| !name.is_empty());
        wanted
    }
}
