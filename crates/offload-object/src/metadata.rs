//! Changes one recorded string of the CUDA images in a finished file, which is how a choice is recorded without compiling again.
//!
//! Nothing else of the file changes: the new section takes the place of the old one, and what lies behind it moves by a multiple of the
//! largest alignment. So relocations, groups and symbol tables need no edit, only the file offsets in the headers.

use std::collections::HashMap;

use object::elf::{self, FileHeader32, FileHeader64};
use object::pe::{AnonObjectHeaderBigobj, ImageFileHeader};
use object::read::coff::{CoffHeader, Symbol as _};
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, LittleEndian};

use crate::archive::{Archive, HEADER_SIZE, MAGIC, RawMember, Role};
use crate::binary::{ALIGN, OffloadImage, OffloadKind, parse_section};
use crate::bytes;
use crate::error::{Error, OrError, Result};
use crate::file::{FileKind, file_kind, is_bigobj};
use crate::host::check_total;
use crate::write::{ImageSpec, write_v1, write_v2, write_v3};
use crate::{OFFLOAD_SECTION, SHT_LLVM_OFFLOADING};

/// Level for binaries that were compressed before; zstd's own default.
const ZSTD_LEVEL: i32 = 3;

/// Archives in archives; no linker looks into them, so that even one is rare.
const MAX_ARCHIVE_DEPTH: u32 = 8;

/// Sets the string `key` of every CUDA image in `file` to `value`, or removes it for `None`. `file` is an object, an archive of them or a bare
/// offload binary. Gives the new bytes and how many images changed; images of other languages stay as they are.
///
/// # Errors
/// `file` is of another kind or malformed; it is a thin archive, whose members are files of their own; it is host bitcode with device images
/// inside, which only a compiler can change; a 32-bit offset would overflow.
pub fn set_metadata(file: &[u8], key: &str, value: Option<&str>) -> Result<(Vec<u8>, usize)> {
    let new = match file_kind(file) {
        FileKind::Archive => archive(file, key, value, 0)?,
        FileKind::ThinArchive => return Err(Error("thin archive: its members are to be annotated, not the archive")),
        FileKind::Cubin | FileKind::Fatbin | FileKind::Text | FileKind::Unknown | FileKind::Empty => {
            return Err(Error("not an object, an archive or an offload binary"));
        }
        _ => file_with(file, key, value)?,
    };
    Ok(new.unwrap_or_else(|| (file.to_vec(), 0)))
}

/// New bytes and the number of images changed; `None` if nothing changes.
type Change = Option<(Vec<u8>, usize)>;

fn file_with(file: &[u8], key: &str, value: Option<&str>) -> Result<Change> {
    match file_kind(file) {
        FileKind::OffloadBinary => section(file, key, value),
        FileKind::ElfRelocatable => match file.get(4) {
            Some(1) => elf::<FileHeader32<Endianness>>(file, &ELF32, key, value),
            _ => elf::<FileHeader64<Endianness>>(file, &ELF64, key, value),
        },
        FileKind::Coff if is_bigobj(file) => coff::<AnonObjectHeaderBigobj>(file, 48, key, value),
        FileKind::Coff => coff::<ImageFileHeader>(file, 8, key, value),
        // Constants of bitcode lie at any bit offset, but the names of its globals are bytes at its end.
        FileKind::Bitcode if contains(file, b"llvm.embedded.object") => {
            Err(Error("host bitcode with device images can be annotated only when it is compiled"))
        }
        _ => Ok(None),
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// A section's worth of offload binaries with the key changed. Binaries without a change keep their bytes.
fn section(old: &[u8], key: &str, value: Option<&str>) -> Result<Change> {
    let images = parse_section(old)?;
    let mut out = Vec::with_capacity(old.len() + 64);
    let mut count = 0;
    let mut binaries = images.chunk_by(|a, b| a.offset == b.offset).peekable();
    while let Some(binary) = binaries.next() {
        let first = binary.first().or_error("offload binary has no entry")?;
        let changes = binary.iter().filter(|image| is_change(image, key, value)).count();
        count += changes;
        if changes == 0 {
            let end = binaries.peek().and_then(|next| next.first()).map_or(old.len(), |next| next.offset);
            out.extend(old.get(first.offset..end).unwrap_or_default());
            continue;
        }
        let specs: Vec<ImageSpec> = binary.iter().map(|image| changed(image, key, value)).collect();
        let was_compressed = matches!(first.image, std::borrow::Cow::Owned(_));
        match (first.version, specs.as_slice()) {
            (1, [spec]) => out.extend(write_v1(spec)),
            (2, specs) => out.extend(write_v2(specs)),
            (_, specs) => out.extend(write_v3(specs, was_compressed.then_some(ZSTD_LEVEL))),
        }
    }
    Ok((count > 0).then_some((out, count)))
}

fn is_cuda(image: &OffloadImage) -> bool {
    image.offload_kind.contains(OffloadKind::CUDA)
}

fn is_change(image: &OffloadImage, key: &str, value: Option<&str>) -> bool {
    is_cuda(image) && image.get(key) != value
}

fn changed(image: &OffloadImage, key: &str, value: Option<&str>) -> ImageSpec {
    let mut spec = ImageSpec::from(image);
    if !is_cuda(image) {
        return spec;
    }
    match (spec.strings.iter().position(|(name, _)| name == key), value) {
        (Some(_), Some(value)) => spec.strings.iter_mut().filter(|(name, _)| name == key).for_each(|known| known.1 = value.to_owned()),
        (None, Some(value)) => spec.strings.push((key.to_owned(), value.to_owned())),
        (_, None) => spec.strings.retain(|(name, _)| name != key),
    }
    spec
}

/// A part of a file that gets other bytes.
struct Edit {
    start: u64,
    end: u64,
    content: Vec<u8>,
}

impl Edit {
    /// A section that starts at `start` with `len` bytes. The padding behind it, up to the next of the `used` offsets, goes with it, so that a
    /// change back gives the same file.
    fn section(file: &[u8], start: u64, len: u64, used: &[u64], content: Vec<u8>) -> Self {
        let end = start + len;
        let next = used.iter().copied().filter(|offset| *offset >= end).min().unwrap_or(end);
        let gap = bytes::slice(file, end, next - end).unwrap_or_default();
        let end = if gap.iter().all(|&byte| byte == 0) { end + gap.len() as u64 } else { end };
        Edit { start, end, content }
    }
}

/// Parts of a file that are not to be replaced: headers, tables, other sections. Start and length of each.
type Kept = Vec<(u64, u64)>;

/// A file with some parts replaced, and where everything has gone.
struct Spliced {
    bytes: Vec<u8>,
    /// End of each replaced part in the old file, and by how much what follows has moved.
    moves: Vec<(u64, u64, i64)>,
}

impl Spliced {
    /// Replaces `edits`, and moves what follows each by a multiple of `align`.
    fn new(old: &[u8], mut edits: Vec<Edit>, kept: &Kept, align: u64) -> Result<Self> {
        const OVERLAP: &str = "sections of device images overlap";
        edits.sort_by_key(|edit| edit.start);
        let overlaps = |edit: &Edit| kept.iter().any(|&(start, len)| len > 0 && start < edit.end && start.saturating_add(len) > edit.start);
        if edits.iter().any(overlaps) {
            return Err(Error("something else of the file lies inside a section of device images"));
        }
        let mut spliced = Spliced { bytes: Vec::with_capacity(old.len() + 4096), moves: Vec::new() };
        let (mut position, mut moved) = (0u64, 0i64);
        for edit in edits {
            let kept = edit.start.checked_sub(position).or_error(OVERLAP)?;
            spliced.bytes.extend(bytes::slice(old, position, kept).or_error(OVERLAP)?);
            let old_len = edit.end.checked_sub(edit.start).or_error(OVERLAP)?;
            let room = {
                let rest = old_len % align;
                // The least length that holds the content and leaves the same rest.
                let len = edit.content.len() as u64;
                let least = len - len % align + rest;
                if least < len { least + align } else { least }
            };
            spliced.bytes.extend(&edit.content);
            spliced.bytes.resize(spliced.bytes.len() + (room as usize - edit.content.len()), 0);
            moved += room as i64 - old_len as i64;
            spliced.moves.push((edit.start, edit.end, moved));
            position = edit.end;
        }
        spliced.bytes.extend(bytes::slice(old, position, (old.len() as u64).saturating_sub(position)).or_error(OVERLAP)?);
        Ok(spliced)
    }

    /// Where `offset` of the old file is now.
    fn offset(&self, offset: u64) -> Result<u64> {
        if self.moves.iter().any(|(start, end, _)| (*start + 1..*end).contains(&offset)) {
            return Err(Error("something else of the file lies inside a section of device images"));
        }
        let moved = self.moves.iter().rev().find(|(_, end, _)| *end <= offset).map_or(0, |(_, _, moved)| *moved);
        offset.checked_add_signed(moved).or_error("file offset is too large")
    }

    fn write(&mut self, at: u64, width: usize, big_endian: bool, value: u64) -> Result<()> {
        let value_bytes = if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let value_bytes = if big_endian { value_bytes.get(8 - width..) } else { value_bytes.get(..width) };
        if width < 8 && value >> (8 * width) != 0 {
            return Err(Error("file offset does not fit into 32 bits"));
        }
        let start = usize::try_from(at).or_error("file offset is too large")?;
        let field = self.bytes.get_mut(start..start + width).or_error("header lies outside the file")?;
        field.copy_from_slice(value_bytes.unwrap_or_default());
        Ok(())
    }
}

/// Where the ELF fields that hold file offsets lie, and how wide they are.
struct ElfFields {
    width: usize,
    e_shoff: u64,
    sh_offset: u64,
    sh_size: u64,
    header_size: u64,
}

const ELF32: ElfFields = ElfFields { width: 4, e_shoff: 32, sh_offset: 16, sh_size: 20, header_size: 40 };
const ELF64: ElfFields = ElfFields { width: 8, e_shoff: 40, sh_offset: 24, sh_size: 32, header_size: 64 };

fn elf<H: FileHeader<Endian = Endianness>>(file: &[u8], fields: &ElfFields, key: &str, value: Option<&str>) -> Result<Change> {
    const MALFORMED: &str = "ELF section table is malformed";
    let header = H::parse(file).or_error("ELF header is malformed")?;
    let endian = header.endian().or_error("ELF header is malformed")?;
    let sections = header.section_headers(endian, file).or_error(MALFORMED)?;
    let (mut edits, mut count) = (Vec::new(), 0);
    let mut sizes = HashMap::new();
    let mut align = ALIGN;
    let table: u64 = header.e_shoff(endian).into();
    let mut used = vec![table, file.len() as u64];
    used.extend(sections.iter().map(|section| -> u64 { section.sh_offset(endian).into() }));
    let mut kept = vec![(0, size_of::<H>() as u64), (table, size_of_val(sections) as u64)];
    check_total(
        file,
        sections
            .iter()
            .filter(|section| section.sh_type(endian).0 == SHT_LLVM_OFFLOADING)
            .map(|section| section.data(endian, file).unwrap_or_default().len() as u64),
    )?;
    for (index, header) in (0u64..).zip(sections) {
        align = align.max(header.sh_addralign(endian).into().min(4096));
        let (offset, size): (u64, u64) = (header.sh_offset(endian).into(), header.sh_size(endian).into());
        if header.sh_type(endian).0 != SHT_LLVM_OFFLOADING {
            if header.sh_type(endian) != elf::SHT_NOBITS && header.sh_type(endian) != elf::SHT_NULL {
                kept.push((offset, size));
            }
            continue;
        }
        let data = header.data(endian, file).or_error("section of device images lies outside the file")?;
        if let Some((content, changes)) = section(data, key, value)? {
            sizes.insert(index, content.len() as u64);
            edits.push(Edit::section(file, offset, data.len() as u64, &used, content));
            count += changes;
        } else {
            kept.push((offset, size));
        }
    }
    if edits.is_empty() {
        return Ok(None);
    }
    if !align.is_power_of_two() {
        return Err(Error("ELF section has an alignment that is no power of two"));
    }
    let mut out = Spliced::new(file, edits, &kept, align)?;
    let big_endian = header.is_big_endian();
    let new_table = out.offset(table)?;
    out.write(fields.e_shoff, fields.width, big_endian, new_table)?;
    for (index, header) in (0u64..).zip(sections) {
        let at = new_table + index * fields.header_size;
        if let Some(&size) = sizes.get(&index) {
            out.write(at + fields.sh_size, fields.width, big_endian, size)?;
        }
        // Offsets of sections without bytes in the file may be anything.
        let old: u64 = header.sh_offset(endian).into();
        if header.sh_type(endian) != elf::SHT_NOBITS && header.sh_type(endian) != elf::SHT_NULL {
            let new = out.offset(old)?;
            out.write(at + fields.sh_offset, fields.width, big_endian, new)?;
        }
    }
    Ok(Some((out.bytes, count)))
}

fn coff<H: CoffHeader>(file: &[u8], symbols_field: u64, key: &str, value: Option<&str>) -> Result<Change> {
    const RAW_SIZE: u64 = 16;
    const POINTERS: [u64; 3] = [20, 24, 28];
    const MALFORMED: &str = "COFF header is malformed";
    let mut table = 0;
    let header = H::parse(file, &mut table).or_error(MALFORMED)?;
    let sections = header.sections(file, table).or_error("COFF section table is malformed")?;
    let symbols = header.symbols(file).or_error("COFF symbol table is malformed")?;
    let (mut edits, mut count) = (Vec::new(), 0);
    let mut definitions = HashMap::new();
    let mut used = vec![u64::from(header.pointer_to_symbol_table()), file.len() as u64];
    let is_offload = |section: &object::pe::ImageSectionHeader| {
        section.name(symbols.strings()).is_ok_and(|name| name.starts_with(OFFLOAD_SECTION.as_bytes()))
    };
    check_total(
        file,
        sections.iter().filter(|section| is_offload(section)).map(|section| section.coff_data(file).unwrap_or_default().len() as u64),
    )?;
    let symbol_size = size_of::<H::Symbol>() as u64;
    let mut kept = vec![(0, table + 40 * sections.len() as u64)];
    // The string table follows the symbols.
    kept.push((header.pointer_to_symbol_table().into(), symbol_size * symbols.len() as u64 + 4));
    for section in sections.iter() {
        kept.push((
            section.pointer_to_relocations.get(LittleEndian).into(),
            10 * u64::from(section.number_of_relocations.get(LittleEndian)),
        ));
        let pointers = [section.pointer_to_raw_data, section.pointer_to_relocations, section.pointer_to_linenumbers];
        used.extend(pointers.map(|pointer| u64::from(pointer.get(LittleEndian))));
    }
    for (index, header) in sections.enumerate() {
        let (offset, size) = header.coff_file_range().map_or((0, 0), |(offset, size)| (u64::from(offset), u64::from(size)));
        if !is_offload(header) {
            kept.push((offset, size));
            continue;
        }
        let data = header.coff_data(file).or_error("section of device images lies outside the file")?;
        if let Some((content, changes)) = section(data, key, value)? {
            definitions.insert(index, (content.len() as u64, coff_checksum(&content)));
            edits.push(Edit::section(file, offset, data.len() as u64, &used, content));
            count += changes;
        } else {
            kept.push((offset, size));
        }
    }
    if edits.is_empty() {
        return Ok(None);
    }
    let mut out = Spliced::new(file, edits, &kept, ALIGN)?;
    let move_pointer = |out: &mut Spliced, at: u64| -> Result<()> {
        let old = bytes::u32_le(file, at).or_error(MALFORMED)?;
        // 0 stands for none.
        if old != 0 {
            let new = out.offset(u64::from(old))?;
            out.write(at, 4, false, new)?;
        }
        Ok(())
    };
    for (index, _) in sections.enumerate() {
        let at = table + 40 * (index.0 as u64 - 1);
        for pointer in POINTERS {
            move_pointer(&mut out, at + pointer)?;
        }
        if let Some(&(size, _)) = definitions.get(&index) {
            out.write(at + RAW_SIZE, 4, false, size)?;
        }
    }
    move_pointer(&mut out, symbols_field)?;
    // The symbol of a section repeats its size, and has a checksum, where 0 stands for not computed.
    for (index, symbol) in symbols.iter() {
        let definition = symbol.section().filter(|_| symbol.has_aux_section()).and_then(|section| definitions.get(&section));
        if let Some(&(size, checksum)) = definition {
            let old = u64::from(header.pointer_to_symbol_table()) + (index.0 as u64 + 1) * symbol_size;
            let aux = out.offset(old)?;
            out.write(aux, 4, false, size)?;
            if bytes::u32_le(file, old + 8) != Some(0) {
                out.write(aux + 8, 4, false, checksum.into())?;
            }
        }
    }
    Ok(Some((out.bytes, count)))
}

/// CRC-32 that starts at 0 and is not inverted, as LLVM and Microsoft's compiler compute it for sections.
fn coff_checksum(data: &[u8]) -> u32 {
    data.iter().fold(0, |crc, &byte| {
        let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        (0..8).fold(crc ^ u32::from(byte), step)
    })
}

/// `depth` says in how many archives this one is.
fn archive(file: &[u8], key: &str, value: Option<&str>, depth: u32) -> Result<Change> {
    if depth > MAX_ARCHIVE_DEPTH {
        return Err(Error("archives lie too deep in archives"));
    }
    let mut members = Archive::parse(file)?.members();
    let mut out = MAGIC.to_vec();
    let mut offsets = HashMap::new();
    let mut indexes = Vec::new();
    let mut count = 0;
    while let Some(raw) = members.next_raw() {
        let raw = raw?;
        let contents = raw.data.unwrap_or_default();
        // A BSD name is part of the contents.
        let name_len = raw.bsd_name().map_or(0, |(_, len)| len);
        let (name, data) = contents.split_at_checked(name_len).or_error("archive member name is cut short")?;
        let new = match raw.role() {
            Role::Member if file_kind(data) == FileKind::Archive => archive(data, key, value, depth + 1)?,
            Role::Member => file_with(data, key, value)?,
            _ => None,
        };
        let header = bytes::slice(file, raw.header_offset, HEADER_SIZE).or_error("archive member header is cut short")?;
        offsets.insert(raw.header_offset, out.len() as u64);
        indexes.push((raw, out.len() as u64 + HEADER_SIZE));
        match new {
            None => {
                out.extend(header);
                out.extend(contents);
            }
            Some((data, changes)) => {
                count += changes;
                let size = format!("{:<10}", name.len() + data.len());
                if size.len() > 10 {
                    return Err(Error("archive member is too large"));
                }
                out.extend(header.get(..48).unwrap_or_default());
                out.extend(size.as_bytes());
                out.extend(header.get(58..).unwrap_or_default());
                out.extend(name);
                out.extend(data);
            }
        }
        if out.len() % 2 == 1 {
            out.push(b'\n');
        }
    }
    if count == 0 {
        return Ok(None);
    }
    let mut seen_gnu_index = false;
    for (raw, at) in indexes {
        match raw.role() {
            // Of two indexes named `/` the second is Microsoft's.
            Role::GnuIndex if seen_gnu_index => move_index(&mut out, &raw, at, &offsets, &MICROSOFT)?,
            Role::GnuIndex => {
                seen_gnu_index = true;
                move_index(&mut out, &raw, at, &offsets, &GNU)?;
            }
            Role::GnuIndex64 => move_index(&mut out, &raw, at, &offsets, &GNU_64)?,
            Role::BsdIndex => move_index(&mut out, &raw, at, &offsets, &BSD)?,
            Role::BsdIndex64 => move_index(&mut out, &raw, at, &offsets, &BSD_64)?,
            Role::LongNames | Role::Table | Role::Member => {}
        }
    }
    Ok(Some((out, count)))
}

/// A symbol index: a number, then that many records with the offset of a member's header in each.
struct Index {
    big_endian: bool,
    width: u64,
    record: u64,
    /// Where in the record the offset is.
    field: u64,
    /// Whether the number counts bytes and not records.
    counts_bytes: bool,
}

const GNU: Index = Index { big_endian: true, width: 4, record: 4, field: 0, counts_bytes: false };
const GNU_64: Index = Index { big_endian: true, width: 8, record: 8, field: 0, counts_bytes: false };
const MICROSOFT: Index = Index { big_endian: false, width: 4, record: 4, field: 0, counts_bytes: false };
const BSD: Index = Index { big_endian: false, width: 4, record: 8, field: 4, counts_bytes: true };
const BSD_64: Index = Index { big_endian: false, width: 8, record: 16, field: 8, counts_bytes: true };

impl Index {
    fn read(&self, data: &[u8], offset: u64) -> Option<u64> {
        let bytes = bytes::slice(data, offset, self.width)?.iter();
        let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(if self.big_endian { bytes.fold(0, push) } else { bytes.rev().fold(0, push) })
    }
}

/// Rewrites the offsets of the index `raw`, which now lies at `at`.
fn move_index(out: &mut [u8], raw: &RawMember, at: u64, offsets: &HashMap<u64, u64>, index: &Index) -> Result<()> {
    const MALFORMED: &str = "archive symbol index is malformed";
    let name_len = raw.bsd_name().map_or(0, |(_, len)| len);
    let old = raw.data.and_then(|data| data.get(name_len..)).or_error(MALFORMED)?;
    // An index may be empty altogether.
    if old.is_empty() {
        return Ok(());
    }
    let at = at + name_len as u64;
    let number = index.read(old, 0).or_error(MALFORMED)?;
    let number = if index.counts_bytes { number / index.record } else { number };
    if number > old.len() as u64 / index.record {
        return Err(Error(MALFORMED));
    }
    for record in 0..number {
        let field = index.width + record * index.record + index.field;
        let member = index.read(old, field).or_error(MALFORMED)?;
        let new = *offsets.get(&member).or_error("archive symbol index points at no member")?;
        if index.width == 4 && new > u64::from(u32::MAX) {
            return Err(Error("archive is too large for its symbol index"));
        }
        let value = if index.big_endian { new.to_be_bytes() } else { new.to_le_bytes() };
        let width = index.width as usize;
        let value = if index.big_endian { value.get(8 - width..) } else { value.get(..width) };
        let start = usize::try_from(at + field).or_error(MALFORMED)?;
        let target = out.get_mut(start..start + width).or_error(MALFORMED)?;
        target.copy_from_slice(value.unwrap_or_default());
    }
    Ok(())
}
