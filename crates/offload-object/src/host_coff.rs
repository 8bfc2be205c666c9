//! Host objects in COFF, with and without `/bigobj`.

use std::collections::{HashMap, HashSet};

use object::pe;
use object::read::StringTable;
use object::read::coff::{CoffHeader, SectionTable, Symbol as _, SymbolTable};
use object::{LittleEndian as LE, SectionIndex, SymbolIndex};

use crate::OFFLOAD_SECTION;
use crate::binary::OffloadKind;
use crate::bytes;
use crate::error::{OrError, Result};
use crate::host::{EntryFlags, EntrySection, HostEntry, HostSymbol, HostTarget, ObjectFormat, SymbolKind, check_total};

/// COFF sorts `$` suffixes when it merges sections: LLVM puts start and stop marks into `$OA` and `$OZ`, the entries between them.
const ENTRIES_SUFFIX: &[u8] = b"$OE";

#[derive(Debug)]
pub(crate) struct Coff<'a, H: CoffHeader> {
    data: &'a [u8],
    header: &'a H,
    sections: SectionTable<'a>,
    symbols: SymbolTable<'a, &'a [u8], H>,
}

impl<'a, H: CoffHeader> Coff<'a, H> {
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self> {
        let mut offset = 0;
        let header = H::parse(data, &mut offset).or_error("COFF header is malformed")?;
        let sections = header.sections(data, offset).or_error("COFF section table is malformed")?;
        let symbols = header.symbols(data).or_error("COFF symbol table is malformed")?;
        Ok(Coff { data, header, sections, symbols })
    }

    pub(crate) fn data(&self) -> &'a [u8] {
        self.data
    }

    pub(crate) fn target(&self) -> HostTarget {
        let machine = self.header.machine();
        let is_64 = !matches!(machine, pe::IMAGE_FILE_MACHINE_I386 | pe::IMAGE_FILE_MACHINE_ARMNT);
        HostTarget { format: ObjectFormat::Coff, machine: machine.0, is_64, little_endian: true }
    }

    fn strings(&self) -> StringTable<'a> {
        self.symbols.strings()
    }

    fn named(&self, matches: impl Fn(&[u8]) -> bool) -> impl Iterator<Item = &'a pe::ImageSectionHeader> {
        let strings = self.strings();
        self.sections.iter().filter(move |section| section.name(strings).is_ok_and(&matches))
    }

    fn contents(&self, section: &pe::ImageSectionHeader) -> &'a [u8] {
        section.coff_data(self.data).unwrap_or_default()
    }

    fn offload_headers(&self) -> impl Iterator<Item = &'a pe::ImageSectionHeader> {
        self.named(|name| name.starts_with(OFFLOAD_SECTION.as_bytes()))
    }

    pub(crate) fn has_offload_section(&self) -> bool {
        self.offload_headers().next().is_some()
    }

    pub(crate) fn offload_sections(&self) -> Vec<&'a [u8]> {
        self.offload_headers().map(|section| self.contents(section)).collect()
    }

    pub(crate) fn section_named(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.named(|found| found == name).next().map(|section| self.contents(section))
    }

    pub(crate) fn section_sizes(&self) -> Vec<(String, u64)> {
        let named = self.sections.iter().map(|section| {
            let name = section.name(self.symbols.strings()).unwrap_or_default();
            (String::from_utf8_lossy(name).into_owned(), self.contents(section).len() as u64)
        });
        named.collect()
    }

    pub(crate) fn has_any_section(&self, names: &[&[u8]]) -> bool {
        self.named(|found| names.contains(&found)).next().is_some()
    }

    pub(crate) fn symbols(&self) -> Vec<HostSymbol<'a>> {
        let mut found = Vec::new();
        for (index, symbol) in self.symbols.iter() {
            let kind = match symbol.storage_class() {
                // Compilers write a weak definition as a weak reference whose default is a definition of another name.
                pe::IMAGE_SYM_CLASS_WEAK_EXTERNAL => match self.weak_default(index) {
                    Some((_, default)) if default.section().is_some() => SymbolKind::DefinedWeak,
                    _ => SymbolKind::UndefinedWeak,
                },
                pe::IMAGE_SYM_CLASS_EXTERNAL => match (symbol.section_number(), symbol.value()) {
                    (pe::IMAGE_SYM_UNDEFINED, 0) => SymbolKind::Undefined,
                    // The value of a tentative definition is its size.
                    (pe::IMAGE_SYM_UNDEFINED, _) => SymbolKind::Common,
                    _ if self.is_comdat(symbol) => SymbolKind::DefinedWeak,
                    _ => SymbolKind::Defined,
                },
                _ => continue,
            };
            found.extend(symbol.name(self.strings()).ok().map(|name| HostSymbol { name, kind }));
        }
        found
    }

    fn weak_default(&self, index: SymbolIndex) -> Option<(SymbolIndex, &'a H::Symbol)> {
        let default = self.symbols.aux_weak_external(index).ok()?.default_symbol();
        Some((default, self.symbols.symbol(default).ok()?))
    }

    /// The symbols at each place of these sections: the name of the first, or that of the first weak symbol that it is the default of.
    fn owners(&self, sections: HashSet<SectionIndex>) -> HashMap<(SectionIndex, u64), &'a [u8]> {
        let mut aliases: HashMap<SymbolIndex, &'a H::Symbol> = HashMap::new();
        for (alias, symbol) in self.symbols.iter() {
            if symbol.storage_class() == pe::IMAGE_SYM_CLASS_WEAK_EXTERNAL
                && let Some((default, _)) = self.weak_default(alias)
            {
                aliases.entry(default).or_insert(symbol);
            }
        }
        let mut owners = HashMap::new();
        for (index, symbol) in self.symbols.iter() {
            let Some(section) = symbol.section().filter(|section| sections.contains(section) && !symbol.has_aux_section()) else {
                continue;
            };
            let name = aliases.get(&index).copied().unwrap_or(symbol).name(self.strings()).ok();
            owners.entry((section, u64::from(symbol.value()))).or_insert(name);
        }
        owners.into_iter().filter_map(|(place, name)| Some((place, name?))).collect()
    }

    fn is_comdat(&self, symbol: &H::Symbol) -> bool {
        let section = symbol.section().and_then(|index| self.sections.section(index).ok());
        section.is_some_and(|section| section.characteristics.get(LE).contains(pe::IMAGE_SCN_LNK_COMDAT))
    }

    pub(crate) fn file_symbols(&self) -> Vec<&'a [u8]> {
        let files = self.symbols.iter().filter(|(_, symbol)| symbol.has_aux_file_name());
        files.filter_map(|(index, symbol)| self.symbols.aux_file_name(index, symbol.number_of_aux_symbols()).ok()).collect()
    }

    pub(crate) fn entries(&self) -> Result<Vec<HostEntry<'a>>> {
        const MALFORMED: &str = "COFF relocation is malformed";
        // Each entry may be a COMDAT, so there may be one section for each.
        let mut found = Vec::new();
        for (index, section) in self.sections.enumerate() {
            let name = section.name(self.strings()).unwrap_or_default();
            if let Some(kind) = name.strip_suffix(ENTRIES_SUFFIX).and_then(EntrySection::named) {
                found.push((index, kind, section));
            }
        }
        if found.is_empty() {
            return Ok(Vec::new());
        }
        check_total(self.data, found.iter().map(|(.., section)| section.size_of_raw_data.get(LE).into()))?;
        check_total(self.data, found.iter().map(|(.., section)| 10 * u64::from(section.number_of_relocations.get(LE))))?;
        let owners = self.owners(found.iter().map(|(index, ..)| *index).collect());
        let mut entries = Vec::new();
        for (index, kind, section) in found {
            let data = section.coff_data(self.data).or_error("offload entries lie outside the file")?;
            let mut targets = HashMap::new();
            for relocation in section.coff_relocations(self.data).or_error(MALFORMED)? {
                let offset = u64::from(relocation.virtual_address.get(LE));
                let index = SymbolIndex(relocation.symbol_table_index.get(LE) as usize);
                targets.insert(offset, self.symbols.symbol(index).or_error(MALFORMED)?);
            }
            for (at, layout, raw) in kind.entries(self.target(), data, |at| targets.contains_key(&at))? {
                let name = targets.get(&(at + layout.name())).or_error("offload entry has no name")?;
                let address = targets.get(&(at + layout.address()));
                entries.push(HostEntry {
                    version: raw.version,
                    kind: OffloadKind(raw.kind),
                    flags: EntryFlags(raw.flags),
                    name: self.string_at(name, raw.name).or_error("offload entry has a name outside the file")?,
                    size: raw.size,
                    data: raw.data,
                    address_symbol: address.filter(|symbol| !symbol.has_aux_section()).and_then(|symbol| symbol.name(self.strings()).ok()),
                    address_is_local: address.is_some_and(|symbol| symbol.storage_class() == pe::IMAGE_SYM_CLASS_STATIC),
                    entry_symbol: owners.get(&(index, at)).copied(),
                });
            }
        }
        Ok(entries)
    }

    /// The string at `symbol` plus what the relocated field holds, which is COFF's addend.
    fn string_at(&self, symbol: &H::Symbol, addend: u64) -> Option<&'a [u8]> {
        let section = self.sections.section(symbol.section()?).ok()?;
        bytes::c_string(section.coff_data(self.data).ok()?, u64::from(symbol.value()).checked_add(addend)?)
    }
}
