//! One host object as the device link sees it: its offload sections, its symbols and its offload entries, whatever the file format.
//!
//! Every object of every link line passes through [`HostObject::parse`] and [`HostObject::has_offload_section`], also on lines without
//! device code. Both look at headers only and allocate nothing.

use object::Endianness;
use object::elf::{FileHeader32, FileHeader64};
use object::pe::{AnonObjectHeaderBigobj, ImageFileHeader};

use crate::binary::OffloadKind;
use crate::bytes;
use crate::error::{Error, OrError, Result};
use crate::file::{FileKind, file_kind, is_bigobj};
use crate::host_coff::Coff;
use crate::host_elf::Elf;
use crate::{ENTRIES_SECTION, NVCC_MODULES_SECTION, OFFLOAD_SECTION};

/// An ELF or COFF object, or an ELF shared object or executable.
#[derive(Debug)]
pub struct HostObject<'a> {
    format: Format<'a>,
}

#[derive(Debug)]
enum Format<'a> {
    Elf32(Elf<'a, FileHeader32<Endianness>>),
    Elf64(Elf<'a, FileHeader64<Endianness>>),
    Coff(Coff<'a, ImageFileHeader>),
    BigCoff(Coff<'a, AnonObjectHeaderBigobj>),
}

/// The same call on whichever format the object has.
macro_rules! in_format {
    ($self:expr, $object:ident => $call:expr) => {
        match &$self.format {
            Format::Elf32($object) => $call,
            Format::Elf64($object) => $call,
            Format::Coff($object) => $call,
            Format::BigCoff($object) => $call,
        }
    };
}

/// Container format of a host object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectFormat {
    /// ELF.
    Elf,
    /// COFF, as Windows uses it.
    Coff,
}

/// What a host object is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostTarget {
    /// Container format.
    pub format: ObjectFormat,
    /// `e_machine` of ELF or `Machine` of COFF.
    pub machine: u16,
    /// Whether pointers have 64 bits.
    pub is_64: bool,
    /// Whether it is little-endian.
    pub little_endian: bool,
}

impl HostTarget {
    /// First part of the target's triple, as in `x86_64-unknown-linux-gnu`; `None` for machines that no offloading host has.
    pub fn arch_name(&self) -> Option<&'static str> {
        Some(match (self.format, self.machine, self.is_64, self.little_endian) {
            (ObjectFormat::Elf, 3, ..) | (ObjectFormat::Coff, 0x14c, ..) => "i386",
            (ObjectFormat::Elf, 62, ..) | (ObjectFormat::Coff, 0x8664, ..) => "x86_64",
            (ObjectFormat::Elf, 183, _, true) | (ObjectFormat::Coff, 0xaa64, ..) => "aarch64",
            (ObjectFormat::Elf, 21, _, true) => "powerpc64le",
            (ObjectFormat::Elf, 21, _, false) => "powerpc64",
            (ObjectFormat::Elf, 22, true, _) => "s390x",
            (ObjectFormat::Elf, 243, true, _) => "riscv64",
            (ObjectFormat::Elf, 258, true, _) => "loongarch64",
            _ => return None,
        })
    }
}

/// How an object takes part in symbol resolution by one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SymbolKind {
    /// Defined here.
    Defined,
    /// Defined here, but another definition may win.
    DefinedWeak,
    /// A tentative definition.
    Common,
    /// Needed from elsewhere.
    Undefined,
    /// Used if it is there, but pulls in no archive member.
    UndefinedWeak,
}

/// A symbol that is not local to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSymbol<'a> {
    /// The mangled name, without any version.
    pub name: &'a [u8],
    /// Definition or reference.
    pub kind: SymbolKind,
}

/// Flags of an offload entry: what a variable is, and how to register it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EntryFlags(pub u32);

/// What kind of variable an entry registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VariableKind {
    /// `__device__` or `__constant__`.
    Global,
    /// `__managed__`.
    Managed,
    /// A surface reference.
    Surface,
    /// A texture reference.
    Texture,
    /// A kind that LLVM 22 does not know.
    Other(u8),
}

impl EntryFlags {
    /// The kind of variable, from the low three bits.
    pub fn variable_kind(self) -> VariableKind {
        match self.0 & 7 {
            0 => VariableKind::Global,
            1 => VariableKind::Managed,
            2 => VariableKind::Surface,
            3 => VariableKind::Texture,
            other => VariableKind::Other(other as u8),
        }
    }

    /// Whether the variable is declared `extern`.
    pub fn is_extern(self) -> bool {
        self.0 & 1 << 3 != 0
    }

    /// Whether the variable is `__constant__`.
    pub fn is_constant(self) -> bool {
        self.0 & 1 << 4 != 0
    }

    /// Whether a texture's coordinates are normalised.
    pub fn is_normalized(self) -> bool {
        self.0 & 1 << 5 != 0
    }
}

/// One offload entry of an object: a kernel or variable that the program registers with the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostEntry<'a> {
    /// Version of the entry: 1 in LLVM 22, 0 for the layout of LLVM 19 and older.
    pub version: u16,
    /// The languages that it is for, as a bit mask.
    pub kind: OffloadKind,
    /// Flags.
    pub flags: EntryFlags,
    /// Name of the symbol in the device image.
    pub name: &'a [u8],
    /// Size of a variable in bytes; 0 for a kernel.
    pub size: u64,
    /// Alignment of a managed variable, type of a surface or texture.
    pub data: u64,
    /// The host's stub or shadow variable. `None` if no symbol of the object names it.
    pub address_symbol: Option<&'a [u8]>,
    /// Whether that symbol is local to its object, so that other objects may have another one of the same name.
    pub address_is_local: bool,
    /// The symbol of the entry itself, such as `.offloading.entry._Z1kv`; weak, so that a program may have more entries than it has kernels.
    pub entry_symbol: Option<&'a [u8]>,
}

impl HostEntry<'_> {
    /// Whether it is a kernel and not a variable.
    pub fn is_kernel(&self) -> bool {
        self.size == 0
    }
}

/// Where the fields of an entry lie. The struct is
/// `{ u64 reserved, u16 version, u16 kind, u32 flags, ptr address, ptr name, u64 size, u64 data, ptr aux }`;
/// up to LLVM 19 it was `{ ptr address, ptr name, size_t size, i32 flags, i32 data }`, with one section for each language in place of the kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryLayout {
    pub(crate) pointer: u64,
    little_endian: bool,
    /// The language, where the layout is the old one.
    old: Option<OffloadKind>,
}

pub(crate) struct RawEntry {
    pub(crate) version: u16,
    pub(crate) kind: u16,
    pub(crate) flags: u32,
    pub(crate) address: u64,
    pub(crate) name: u64,
    pub(crate) size: u64,
    pub(crate) data: u64,
}

impl EntryLayout {
    fn new(target: HostTarget, old: Option<OffloadKind>) -> Self {
        EntryLayout { pointer: pointer_size(target), little_endian: target.little_endian, old }
    }

    /// Size of an entry in bytes.
    pub(crate) fn size(&self) -> u64 {
        match (self.old, self.pointer) {
            (Some(_), pointer) => 3 * pointer + 8,
            (None, 8) => 56,
            // With small pointers four bytes are behind the last one, since the u64s are aligned. (Not on i386, where LLVM aligns the
            // entries and then walks them by their size; no program with two entries can work there.)
            (None, _) => 48,
        }
    }

    /// Offset of the address.
    pub(crate) fn address(&self) -> u64 {
        if self.old.is_some() { 0 } else { 16 }
    }

    /// Offset of the pointer to the name.
    pub(crate) fn name(&self) -> u64 {
        self.address() + self.pointer
    }

    fn read(&self, entry: &[u8]) -> Result<RawEntry> {
        let field = |offset, len| int(entry, offset, len, self.little_endian).or_error(SHORT_ENTRY);
        let (address, name) = (field(self.address(), self.pointer)?, field(self.name(), self.pointer)?);
        let after = self.name() + self.pointer;
        if let Some(kind) = self.old {
            let (size, flags) = (field(after, self.pointer)?, field(after + self.pointer, 4)? as u32);
            return Ok(RawEntry { version: 0, kind: kind.0, flags, address, name, size, data: field(after + self.pointer + 4, 4)? });
        }
        if field(0, 8)? != 0 {
            return Err(Error("offload entry has an unknown layout"));
        }
        let (version, kind, flags) = (field(8, 2)? as u16, field(10, 2)? as u16, field(12, 4)? as u32);
        Ok(RawEntry { version, kind, flags, address, name, size: field(after, 8)?, data: field(after + 8, 8)? })
    }
}

const SHORT_ENTRY: &str = "offload entry is cut short";

fn pointer_size(target: HostTarget) -> u64 {
    if target.is_64 { 8 } else { 4 }
}

/// The integer of `len` bytes at `offset`.
pub(crate) fn int(bytes: &[u8], offset: u64, len: u64, little_endian: bool) -> Option<u64> {
    let bytes = bytes::slice(bytes, offset, len)?.iter();
    let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    Some(if little_endian { bytes.rev().fold(0, push) } else { bytes.fold(0, push) })
}

/// Sections of offload entries up to LLVM 20, one for each language.
const OLD_ENTRY_SECTIONS: [(&str, OffloadKind); 3] = [
    ("cuda_offloading_entries", OffloadKind::CUDA),
    ("hip_offloading_entries", OffloadKind::HIP),
    ("omp_offloading_entries", OffloadKind::OPENMP),
];

/// The names of all sections of offload entries.
pub(crate) fn entry_section_names() -> impl Iterator<Item = &'static str> {
    std::iter::once(ENTRIES_SECTION).chain(OLD_ENTRY_SECTIONS.iter().map(|(name, _)| *name))
}

/// A section of offload entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntrySection {
    /// The language, if it is a section of LLVM 20 or older.
    old: Option<OffloadKind>,
}

impl EntrySection {
    /// The section with this name in an object.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        // Few sections of an object end so: the comparison with all names is for those.
        if !name.ends_with(b"_entries") {
            return None;
        }
        if name == ENTRIES_SECTION.as_bytes() {
            return Some(EntrySection { old: None });
        }
        let old = OLD_ENTRY_SECTIONS.iter().find(|(old, _)| old.as_bytes() == name);
        old.map(|(_, kind)| EntrySection { old: Some(*kind) })
    }

    /// The section with this name in a linked file, where a relocatable link may have added to it.
    pub(crate) fn linked(name: &[u8]) -> Option<Self> {
        let base = entry_section_names().find(|base| {
            let rest = name.strip_prefix(base.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"_"))
        });
        Self::named(base?.as_bytes())
    }

    /// Takes a section apart into entries and their offsets. LLVM 20 wrote the new struct into the old sections, so that both may lie side
    /// by side there: the old one begins with a pointer, the new one with eight zeros. `points` says whether a pointer is at an offset.
    pub(crate) fn entries(
        self,
        target: HostTarget,
        data: &[u8],
        points: impl Fn(u64) -> bool,
    ) -> Result<Vec<(u64, EntryLayout, RawEntry)>> {
        let mut entries = Vec::new();
        let mut at = 0;
        while at < data.len() as u64 {
            let layout = EntryLayout::new(target, self.old.filter(|_| points(at)));
            let entry = bytes::slice(data, at, layout.size()).or_error(SHORT_ENTRY)?;
            entries.push((at, layout, layout.read(entry)?));
            at += layout.size();
        }
        Ok(entries)
    }
}

/// Refuses sections that overlap so much that they are together larger than `file`: thousands of headers may name the same bytes, and
/// what is made of these would be that many times as large.
pub(crate) fn check_total(file: &[u8], sizes: impl Iterator<Item = u64>) -> Result<()> {
    let total = sizes.fold(0, u64::saturating_add);
    if total > file.len() as u64 { Err(Error("sections are together larger than the file")) } else { Ok(()) }
}

impl<'a> HostObject<'a> {
    /// Reads the headers.
    ///
    /// # Errors
    /// `data` is neither ELF nor COFF, or its header or section table is malformed.
    pub fn parse(data: &'a [u8]) -> Result<Self> {
        let format = match file_kind(data) {
            FileKind::ElfRelocatable | FileKind::ElfShared | FileKind::ElfExecutable | FileKind::Cubin => match data.get(4) {
                Some(1) => Format::Elf32(Elf::parse(data)?),
                Some(2) => Format::Elf64(Elf::parse(data)?),
                _ => return Err(Error("ELF class is neither 32 nor 64 bits")),
            },
            FileKind::Coff if is_bigobj(data) => Format::BigCoff(Coff::parse(data)?),
            FileKind::Coff => Format::Coff(Coff::parse(data)?),
            _ => return Err(Error("not an ELF or COFF object")),
        };
        Ok(HostObject { format })
    }

    /// What the object is made for.
    pub fn target(&self) -> HostTarget {
        in_format!(self, object => object.target())
    }

    /// `e_machine` of ELF, `Machine` of COFF.
    pub fn machine(&self) -> u16 {
        self.target().machine
    }

    /// Whether the object has device code, or at least a section for it.
    pub fn has_offload_section(&self) -> bool {
        in_format!(self, object => object.has_offload_section())
    }

    /// The contents of all offload sections, for [`crate::parse_section`]. In ELF the section's type counts, in COFF its name.
    /// A section that lies outside the file is given as empty; no linker will take such a file.
    ///
    /// # Errors
    /// The sections overlap: they are together larger than the file.
    pub fn offload_sections(&self) -> Result<Vec<&'a [u8]>> {
        let sections: Vec<&[u8]> = in_format!(self, object => object.offload_sections());
        check_total(in_format!(self, object => object.data()), sections.iter().map(|section| section.len() as u64))?;
        Ok(sections)
    }

    /// All symbols that are not local: of a shared object those of its dynamic symbol table. A malformed table has none; that is the host
    /// linker's to report.
    pub fn symbols(&self) -> Vec<HostSymbol<'a>> {
        in_format!(self, object => object.symbols())
    }

    /// The source files that the object says it was made from, which need not be paths.
    pub fn file_symbols(&self) -> Vec<&'a [u8]> {
        in_format!(self, object => object.file_symbols())
    }

    /// The offload entries of a relocatable object, through its relocations: of any LLVM from 15 on.
    ///
    /// # Errors
    /// An entry is cut short, or its name leads nowhere.
    pub fn entries(&self) -> Result<Vec<HostEntry<'a>>> {
        in_format!(self, object => object.entries())
    }

    /// Whether this is the object that registers a device image, made by LLVM's wrapper or by ours: it holds the image or its descriptor and
    /// walks the program's offload entries.
    pub fn is_registration_object(&self) -> bool {
        const REGISTERS: [&[u8]; 2] = [b"__tgt_register_lib", b"__sycl_register_lib"];
        const SEGMENTS: [&[u8]; 2] = [b".nvFatBinSegment", b".hipFatBinSegment"];
        // Section names first: few objects have one of these, and symbol tables are long.
        let has_segment = in_format!(self, object => object.has_any_section(&SEGMENTS));
        if !has_segment && !in_format!(self, object => object.has_any_section(&[OFFLOAD_SECTION.as_bytes()])) {
            return false;
        }
        let symbols = self.symbols();
        // In COFF the marks are local; their section says as much.
        if has_segment && in_format!(self, object => object.has_any_section(&[b"llvm_offload_entries$OA"])) {
            return true;
        }
        let mentions = |name: &[u8]| symbols.iter().any(|symbol| symbol.name == name);
        let walks = entry_section_names().any(|section| mentions(format!("__start_{section}").as_bytes()));
        walks && (has_segment || REGISTERS.into_iter().any(mentions))
    }

    /// Identifiers of nvcc's relocatable device code in this object that nothing has registered yet.
    ///
    /// # Errors
    /// An identifier is not ASCII.
    pub fn nvcc_module_ids(&self) -> Result<Vec<&'a str>> {
        self.module_ids(|id| (!id.starts_with("def ")).then_some(id))
    }

    /// Identifiers of nvcc's relocatable device code that `nvcc -dlink`, or our own registration, has linked already.
    ///
    /// # Errors
    /// An identifier is not ASCII.
    pub fn linked_nvcc_module_ids(&self) -> Result<Vec<&'a str>> {
        self.module_ids(|id| id.strip_prefix("def "))
    }

    fn module_ids(&self, pick: impl Fn(&'a str) -> Option<&'a str>) -> Result<Vec<&'a str>> {
        let section = self.section_named(NVCC_MODULES_SECTION).unwrap_or_default();
        let mut ids = Vec::new();
        for id in section.split(|&byte| byte == 0).filter(|id| !id.is_empty()) {
            let id = std::str::from_utf8(id).ok().filter(|id| id.is_ascii()).or_error("nvcc module identifier is not ASCII")?;
            ids.extend(pick(id));
        }
        Ok(ids)
    }

    /// Whether nvcc has left device code for a device link in this object (`-rdc=true`), from headers only.
    pub fn has_nvcc_modules(&self) -> bool {
        match &self.format {
            Format::Elf32(object) => object.has_nvcc_modules(),
            Format::Elf64(object) => object.has_nvcc_modules(),
            Format::Coff(_) | Format::BigCoff(_) => self.section_named(NVCC_MODULES_SECTION).is_some(),
        }
    }

    /// The contents of the first section with this name; empty for a section without bytes in the file.
    pub fn section_named(&self, name: &str) -> Option<&'a [u8]> {
        in_format!(self, object => object.section_named(name.as_bytes()))
    }

    /// The sections in the order of their table, each with its bytes in the file (none for `.bss` and its like, and for damaged ones).
    pub fn section_sizes(&self) -> Vec<(String, u64)> {
        in_format!(self, object => object.section_sizes())
    }

    /// The host bitcode of a fat LTO object (`-ffat-lto-objects`).
    pub fn fat_lto_bitcode(&self) -> Option<&'a [u8]> {
        self.section_named(".llvm.lto")
    }
}
