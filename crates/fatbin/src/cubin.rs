//! Reads cubins, the ELF files that hold machine code for one GPU architecture.
//!
//! NVIDIA does not document how it uses ELF. What is read here is what `readelf` shows beside
//! `cuobjdump -elf` and `cuobjdump -res-usage` for cubins of ptxas 11.8 to 13.4: the architecture in
//! `e_flags`, kernels as functions whose `st_other` has bit 4, and the attributes of `.nv.info`.

mod kernel_references;

use crate::bytes::{array, c_str, slice, u16_at, u32_at, u64_at};
use crate::{Arch, Error, Result, Spills, Suffix, spills};
use std::collections::HashMap;

/// The ELF machine number of cubins.
pub const MACHINE: u16 = 190;

const OSABI_CUDA: u8 = 0x33;
const OSABI_CUDA_V8: u8 = 0x41;
const HEADER_SIZE: usize = 64;
const SECTION_HEADER_SIZE: usize = 64;
const SYMBOL_SIZE: usize = 24;
const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;
const SHT_SYMTAB_SHNDX: u32 = 18;
/// Data that takes no room in relocatable cubins: SHT_CUDA_GLOBAL, _LOCAL and _SHARED.
const SHT_CUDA_NOBITS: [u32; 3] = [0x7000_0007, 0x7000_0009, 0x7000_000a];
const SHN_LORESERVE: u16 = 0xff00;
const SHN_COMMON: u16 = 0xfff2;
const SHN_XINDEX: u16 = 0xffff;
const STO_ENTRY: u8 = 0x10;
/// What ptxas leaves of itself in its cubins since it marks spills.
const TOOLKIT_NOTE: &str = ".note.nv.tkinfo";

/// A cubin whose header, section and symbol tables have been read.
#[derive(Debug, Clone)]
pub struct Cubin<'a> {
    arch: Arch,
    abi_version: u8,
    relocatable: bool,
    mercury: bool,
    sections: Vec<Section<'a>>,
    symbols: Vec<Symbol<'a>>,
    by_name: HashMap<&'a str, usize>,
}

/// A section of a cubin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its ELF type.
    pub kind: u32,
    /// Its size in bytes, in memory for those without content.
    pub size: u64,
    /// Its content; empty for those without.
    pub data: &'a [u8],
    link: u32,
}

/// Who sees a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    /// This cubin only.
    Local,
    /// Every cubin of the link.
    Global,
    /// Every cubin of the link, and another definition may take its place.
    Weak,
}

/// In which memory a variable lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// `__device__` and `__managed__`.
    Global,
    /// `__constant__`.
    Constant,
    /// `__shared__`.
    Shared,
}

/// What a symbol of a cubin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SymbolKind {
    /// A `__global__` function.
    Kernel,
    /// A `__device__` function. In linked cubins those of a kernel are named `$kernel$function`.
    Function,
    /// A variable.
    Variable(Space),
    /// A texture, surface or sampler reference.
    Texture,
    /// Undefined here, so that only its name is known.
    Undefined,
    /// Anything else: sections, labels.
    Other,
}

/// A symbol of a cubin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Its name, mangled.
    pub name: &'a str,
    /// What it is.
    pub kind: SymbolKind,
    /// Who sees it.
    pub binding: Binding,
    /// Its size in bytes.
    pub size: u64,
    /// The index of its section among [`Cubin::sections`]; `None` if undefined, common or absolute.
    pub section: Option<usize>,
    /// Where it starts in its section, in bytes.
    pub value: u64,
}

/// What a kernel needs, in the terms of `cuobjdump -res-usage`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel<'a> {
    /// Its name, mangled.
    pub name: &'a str,
    /// Who sees it.
    pub binding: Binding,
    /// Registers per thread, if recorded.
    pub registers: Option<u32>,
    /// The most registers that ptxas was allowed (`-maxrregcount`, `.maxnreg`, or what the launch bounds leave), if recorded.
    pub max_registers: Option<u32>,
    /// What ptxas spilled; `None` where the cubin's ptxas did not note it.
    pub spills: Option<Spills>,
    /// Bytes of stack per thread, with those of the functions called. In relocatable cubins without
    /// the functions that other cubins define.
    pub stack: u32,
    /// Bytes of statically allocated shared memory per block, with those the system reserves.
    pub shared: u64,
    /// Sizes in bytes of its constant banks by number. Bank 0 holds the parameters.
    pub constants: Vec<(u32, u64)>,
    /// Bytes of parameters, if recorded.
    pub parameters: Option<u32>,
    /// Bytes of machine code, with that of the functions in the same section.
    pub code: u64,
    /// The largest block in x, y and z (`__launch_bounds__`, `.maxntid`), if given.
    pub max_threads: Option<[u32; 3]>,
    /// The exact block in x, y and z (`.reqntid`), if given.
    pub required_threads: Option<[u32; 3]>,
    /// The blocks of a cluster in x, y and z (`__cluster_dims__`, `.reqnctapercluster`), if given.
    pub cluster: Option<[u32; 3]>,
    /// Named barriers, if any.
    pub barriers: u32,
}

impl<'a> Cubin<'a> {
    /// Whether `bytes` start like a cubin.
    pub fn is_cubin(bytes: &[u8]) -> bool {
        bytes.starts_with(b"\x7fELF") && u16_at(bytes, 18) == Some(MACHINE)
    }

    /// Reads the header, the sections and the symbols of the cubin in `bytes`; padding may follow it.
    ///
    /// # Errors
    /// If it is no 64-bit little-endian ELF file for CUDA of an ABI known here, or a table is cut off.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let short = || Error::new("cubin is cut off");
        if !bytes.starts_with(b"\x7fELF") {
            return Err(Error::new("cubin is not an elf file"));
        }
        let [class, data, _, os_abi, abi_version] = array(bytes, 4).ok_or_else(short)?;
        if (class, data) != (2, 1) {
            return Err(Error::new("cubin is not a 64-bit little-endian elf file"));
        }
        let header = bytes.get(..HEADER_SIZE).ok_or_else(short)?;
        let machine = u16_at(header, 18).ok_or_else(short)?;
        if machine != MACHINE {
            return Err(Error::new(format!("elf file is for machine {machine}, not for cuda")));
        }
        let relocatable = match u16_at(header, 16).ok_or_else(short)? {
            1 => true,
            2 => false,
            other => return Err(Error::new(format!("cubin has elf type {other}"))),
        };
        let e_flags = u32_at(header, 48).ok_or_else(short)?;

        // ptxas writes it last.
        let [entry_size, count] = [54, 56].map(|at| u16_at(header, at).map(u64::from));
        let segments = entry_size.zip(count).and_then(|(size, count)| size.checked_mul(count)).ok_or_else(short)?;
        if segments > 0 && slice(bytes, u64_at(header, 32).ok_or_else(short)?, segments).is_none() {
            return Err(Error::new("program header table of the cubin is cut off"));
        }
        let sections = parse_sections(bytes, header)?;
        let symbols = parse_symbols(&sections)?;
        let mut by_name = HashMap::new();
        for (index, section) in sections.iter().enumerate() {
            by_name.entry(section.name).or_insert(index);
        }
        let mut cubin = Cubin {
            arch: Arch::new(0),
            abi_version,
            relocatable,
            mercury: os_abi == OSABI_CUDA_V8 && e_flags & 2 != 0,
            sections,
            symbols,
            by_name,
        };
        let (sm, specific) = match os_abi {
            OSABI_CUDA => (e_flags & 0xff, e_flags & 0x800 != 0),
            OSABI_CUDA_V8 => ((e_flags >> 8) & 0xff, e_flags & 8 != 0 || cubin.is_accelerator_target()),
            other => {
                return Err(Error::new(format!("cubin has the unknown os abi {other:#x}")));
            }
        };
        cubin.arch = Arch { sm, suffix: specific.then_some(Suffix::ArchSpecific) };
        Ok(cubin)
    }

    /// CUDA 13's ptxas notes the `a` of the architecture in `.nv.compat`.
    fn is_accelerator_target(&self) -> bool {
        const CUDA_ACCELERATOR_TARGET: u8 = 9;
        let data = self.section(".nv.compat").unwrap_or_default();
        Attributes { data }
            .flatten()
            .any(|(number, value)| number == CUDA_ACCELERATOR_TARGET && value.first().is_some_and(|&byte| byte == 1))
    }

    /// The architecture. The suffix is only what the file tells: the `f` of `sm_100f` leaves no trace.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The ELF ABI version: 7 or 8.
    pub fn abi_version(&self) -> u8 {
        self.abi_version
    }

    /// Whether it still has to be linked.
    pub fn is_relocatable(&self) -> bool {
        self.relocatable
    }

    /// Whether it also holds the code in the form that the driver can finish (sm_100 and up).
    pub fn is_mercury(&self) -> bool {
        self.mercury
    }

    /// All sections, the null section first.
    pub fn sections(&self) -> &[Section<'a>] {
        &self.sections
    }

    /// The content of the first section with this name.
    pub fn section(&self, name: &str) -> Option<&'a [u8]> {
        self.named(name).map(|section| section.data)
    }

    fn named(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.get(*self.by_name.get(name)?)
    }

    /// All symbols, without the null symbol.
    pub fn symbols(&self) -> &[Symbol<'a>] {
        // The null symbol stays in the table because attributes refer to symbols by index.
        self.symbols.get(1..).unwrap_or_default()
    }

    /// The variables that this cubin defines in global and constant memory, sizes of all included.
    pub fn variables(&self) -> impl Iterator<Item = &Symbol<'a>> {
        self.symbols().iter().filter(|symbol| matches!(symbol.kind, SymbolKind::Variable(Space::Global | Space::Constant)))
    }

    /// The size in bytes of all sections whose name is `name` or starts with `name` and a dot.
    pub fn size_of_sections(&self, name: &str) -> u64 {
        self.sections
            .iter()
            .filter(|section| section.name.strip_prefix(name).is_some_and(|r| r.is_empty() || r.starts_with('.')))
            .fold(0, |sum, section| sum.saturating_add(section.size))
    }

    /// The kernels in the order of the symbol table, with what they need.
    ///
    /// # Errors
    /// If an `.nv.info` section is malformed.
    pub fn kernels(&self) -> Result<Vec<Kernel<'a>>> {
        let mut registers = HashMap::new();
        let mut frames = HashMap::new();
        let mut stacks = HashMap::new();
        for attribute in (Attributes { data: self.section(".nv.info").unwrap_or_default() }) {
            let (number, value) = attribute?;
            let table = match number {
                attribute::REGISTER_COUNT => &mut registers,
                attribute::FRAME_SIZE => &mut frames,
                attribute::MIN_STACK_SIZE => &mut stacks,
                _ => continue,
            };
            if let (Some(symbol), Some(count)) = (u32_at(value, 0), u32_at(value, 4)) {
                table.insert(symbol as usize, count);
            }
        }
        let mut banks: HashMap<&str, Vec<(u32, u64)>> = HashMap::new();
        for section in &self.sections {
            if let Some((bank, kernel)) = constant_bank(section.name) {
                banks.entry(kernel).or_default().push((bank, section.size));
            }
        }

        let mut kernels = Vec::new();
        for (index, symbol) in self.symbols.iter().enumerate() {
            if symbol.kind != SymbolKind::Kernel {
                continue;
            }
            let own = |prefix: &str| self.named(&format!("{prefix}{}", symbol.name));
            let mut constants = banks.remove(symbol.name).unwrap_or_default();
            constants.sort_unstable();
            let stack = stacks.get(&index).or_else(|| frames.get(&index));
            let mut kernel = Kernel {
                name: symbol.name,
                binding: symbol.binding,
                registers: registers.get(&index).copied(),
                max_registers: None,
                spills: None,
                stack: stack.copied().unwrap_or(0),
                shared: own(".nv.shared.").map_or(0, |section| section.size),
                constants,
                parameters: None,
                code: symbol.section.and_then(|section| self.sections.get(section)).map_or(symbol.size, |section| section.size),
                max_threads: None,
                required_threads: None,
                cluster: None,
                barriers: 0,
            };
            let code = symbol.section.and_then(|section| self.sections.get(section)).map(|section| section.data).unwrap_or_default();
            let mut annotations = None;
            let info = own(".nv.info.").map(|section| section.data).unwrap_or_default();
            for attribute in (Attributes { data: info }) {
                let (number, value) = attribute?;
                match number {
                    attribute::MAX_THREADS => kernel.max_threads = three(value),
                    attribute::REQUIRED_THREADS => kernel.required_threads = three(value),
                    attribute::CLUSTER => kernel.cluster = three(value),
                    attribute::MAX_REGISTERS => kernel.max_registers = u16_at(value, 0).map(u32::from),
                    attribute::ANNOTATIONS => annotations = Some(value),
                    attribute::PARAMETER_SIZE => {
                        kernel.parameters = u16_at(value, 0).map(u32::from);
                    }
                    attribute::BARRIER_COUNT => {
                        kernel.barriers = value.first().copied().map_or(0, u32::from);
                    }
                    _ => {}
                }
            }
            kernel.spills = match annotations {
                Some(annotations) => Some(spills::count(annotations, code)),
                // Where nothing is marked there is nothing, if this ptxas marks spills or the kernel has nowhere to spill to.
                None if kernel.stack == 0 || self.named(TOOLKIT_NOTE).is_some() => Some(Spills::default()),
                None => None,
            };
            kernels.push(kernel);
        }
        Ok(kernels)
    }
}

/// The numbers of the attributes in `.nv.info`, named as `cuobjdump -elf` names them (EIATTR_...).
mod attribute {
    pub(super) const MAX_THREADS: u8 = 0x05;
    pub(super) const REQUIRED_THREADS: u8 = 0x10;
    pub(super) const FRAME_SIZE: u8 = 0x11;
    pub(super) const MIN_STACK_SIZE: u8 = 0x12;
    pub(super) const PARAMETER_SIZE: u8 = 0x19;
    pub(super) const MAX_REGISTERS: u8 = 0x1b;
    pub(super) const REGISTER_COUNT: u8 = 0x2f;
    pub(super) const CLUSTER: u8 = 0x3d;
    pub(super) const BARRIER_COUNT: u8 = 0x4c;
    pub(super) const ANNOTATIONS: u8 = 0x55;
}

/// The attributes of an `.nv.info` section: a format byte, a number, and a value of 2 bytes, or
/// with format 4 its length and then the value.
struct Attributes<'a> {
    data: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u8, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        const FORMAT_SIZED: u8 = 4;
        if self.data.is_empty() {
            return None;
        }
        let data = std::mem::take(&mut self.data);
        let read = || {
            let (&format, &number) = (data.first()?, data.get(1)?);
            let inline = data.get(2..4)?;
            if !(1..=FORMAT_SIZED).contains(&format) {
                return None;
            }
            if format < FORMAT_SIZED {
                return Some(((number, inline), data.get(4..)?));
            }
            let value = slice(data, 4, u64::from(u16_at(inline, 0)?))?;
            Some(((number, value), data.get(4 + value.len()..)?))
        };
        match read() {
            Some((attribute, rest)) => {
                self.data = rest;
                Some(Ok(attribute))
            }
            None => Some(Err(Error::new("cubin has a malformed .nv.info section"))),
        }
    }
}

fn three(value: &[u8]) -> Option<[u32; 3]> {
    Some([u32_at(value, 0)?, u32_at(value, 4)?, u32_at(value, 8)?])
}

/// The bank and the kernel of a section named `.nv.constant<bank>.<kernel>`.
fn constant_bank(name: &str) -> Option<(u32, &str)> {
    let (bank, kernel) = name.strip_prefix(".nv.constant")?.split_once('.')?;
    Some((bank.parse().ok()?, kernel))
}

fn parse_sections<'a>(bytes: &'a [u8], header: &[u8]) -> Result<Vec<Section<'a>>> {
    let short = || Error::new("section table of the cubin is cut off");
    let offset = u64_at(header, 40).ok_or_else(short)?;
    let entry_size = u16_at(header, 58).ok_or_else(short)?;
    let stated_count = u16_at(header, 60).ok_or_else(short)?;
    let stated_names = u16_at(header, 62).ok_or_else(short)?;
    if offset == 0 {
        return Ok(Vec::new());
    }
    if usize::from(entry_size) != SECTION_HEADER_SIZE {
        return Err(Error::new(format!("cubin has section headers of {entry_size} bytes")));
    }
    // Numbers from 0xff00 on do not fit the header and stand in the null section.
    let null = slice(bytes, offset, SECTION_HEADER_SIZE as u64).ok_or_else(short)?;
    let count = match stated_count {
        0 => u64_at(null, 32).ok_or_else(short)?,
        count => u64::from(count),
    };
    let names = match stated_names {
        SHN_XINDEX => u32_at(null, 40).ok_or_else(short)?,
        index => u32::from(index),
    };
    let size = count.checked_mul(SECTION_HEADER_SIZE as u64).ok_or_else(short)?;
    let table = slice(bytes, offset, size).ok_or_else(short)?;

    let content = |header: &[u8]| -> Option<(u32, u64, &'a [u8])> {
        let kind = u32_at(header, 4)?;
        let size = u64_at(header, 32)?;
        let empty = kind == 0 || kind == SHT_NOBITS || SHT_CUDA_NOBITS.contains(&kind);
        let data = if empty { &[] } else { slice(bytes, u64_at(header, 24)?, size)? };
        Some((kind, size, data))
    };
    let outside = || Error::new("section of the cubin lies outside the file");
    let names = table.chunks_exact(SECTION_HEADER_SIZE).nth(names as usize).ok_or_else(outside)?;
    let (_, _, names) = content(names).ok_or_else(outside)?;
    table
        .chunks_exact(SECTION_HEADER_SIZE)
        .map(|header| {
            let (kind, size, data) = content(header).ok_or_else(outside)?;
            let name = u32_at(header, 0).ok_or_else(short)?;
            Ok(Section {
                name: string(names, name)?,
                kind,
                size: if kind == 0 { 0 } else { size },
                data,
                link: u32_at(header, 40).ok_or_else(short)?,
            })
        })
        .collect()
}

fn parse_symbols<'a>(sections: &[Section<'a>]) -> Result<Vec<Symbol<'a>>> {
    let short = || Error::new("symbol table of the cubin is cut off");
    let Some((index, table)) = sections.iter().enumerate().find(|(_, s)| s.kind == SHT_SYMTAB) else {
        return Ok(Vec::new());
    };
    if table.data.len() % SYMBOL_SIZE != 0 {
        return Err(short());
    }
    let names = sections.get(table.link as usize).ok_or_else(short)?.data;
    let extended = sections.iter().find(|s| s.kind == SHT_SYMTAB_SHNDX && s.link as usize == index).map(|s| s.data).unwrap_or_default();
    table
        .data
        .chunks_exact(SYMBOL_SIZE)
        .enumerate()
        .map(|(at, symbol)| {
            let name = u32_at(symbol, 0).ok_or_else(short)?;
            let [info, other] = array(symbol, 4).ok_or_else(short)?;
            let shndx = u16_at(symbol, 6).ok_or_else(short)?;
            let section = match shndx {
                0 => None,
                SHN_XINDEX => Some(u32_at(extended, at * 4).ok_or_else(short)? as usize),
                SHN_LORESERVE.. => None,
                index => Some(usize::from(index)),
            };
            let section_name = match section {
                Some(index) => sections.get(index).ok_or_else(short)?.name,
                None => "",
            };
            Ok(Symbol {
                name: string(names, name)?,
                kind: symbol_kind(info & 0xf, other, shndx, section_name),
                binding: match info >> 4 {
                    0 => Binding::Local,
                    2 => Binding::Weak,
                    _ => Binding::Global,
                },
                size: u64_at(symbol, 16).ok_or_else(short)?,
                section,
                value: u64_at(symbol, 8).ok_or_else(short)?,
            })
        })
        .collect()
}

fn symbol_kind(symbol_type: u8, other: u8, shndx: u16, section: &str) -> SymbolKind {
    const OBJECT: u8 = 1;
    const FUNC: u8 = 2;
    const CUDA_TEXTURE: u8 = 10;
    const CUDA_SAMPLER: u8 = 12;
    const CUDA_OBJECT: u8 = 13;
    if shndx == 0 {
        return SymbolKind::Undefined;
    }
    match symbol_type {
        // Bank 0 holds the parameters of a kernel and what the driver adds.
        _ if section.starts_with(".nv.constant0") => SymbolKind::Other,
        FUNC if other & STO_ENTRY != 0 => SymbolKind::Kernel,
        FUNC => SymbolKind::Function,
        CUDA_TEXTURE..=CUDA_SAMPLER => SymbolKind::Texture,
        OBJECT | CUDA_OBJECT if section.starts_with(".nv.constant") => SymbolKind::Variable(Space::Constant),
        OBJECT | CUDA_OBJECT if section.starts_with(".nv.shared") => SymbolKind::Variable(Space::Shared),
        OBJECT | CUDA_OBJECT if shndx == SHN_COMMON || section.starts_with(".nv.global") => SymbolKind::Variable(Space::Global),
        _ => SymbolKind::Other,
    }
}

fn string(table: &[u8], at: u32) -> Result<&str> {
    c_str(table, at as usize)
        .and_then(|name| std::str::from_utf8(name).ok())
        .ok_or_else(|| Error::new("name in the cubin lies outside its table or is not utf-8"))
}
