//! Writes LLVM offload binaries, with the bytes that LLVM writes.
//!
//! The order in the file is header, entries, string entries, string table, images. The string table is LLVM's `StringTableBuilder` in ELF mode:
//! it starts with a NUL, holds each string once, and a string that ends another shares its bytes.

use std::collections::HashMap;
use std::io::Write;

use crate::binary::{ALIGN, ENTRY_SIZE, ImageKind, MAGIC, OffloadImage, OffloadKind};

/// One image to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSpec {
    /// What the image is.
    pub image_kind: ImageKind,
    /// The languages that it is for.
    pub offload_kind: OffloadKind,
    /// Flags of the entry.
    pub flags: u32,
    /// Keys and values; they are written in this order. A key that comes twice has the value of its last mention, at the place of the first.
    pub strings: Vec<(String, String)>,
    /// The image.
    pub image: Vec<u8>,
}

impl From<&OffloadImage<'_>> for ImageSpec {
    fn from(image: &OffloadImage) -> Self {
        ImageSpec {
            image_kind: image.image_kind,
            offload_kind: image.offload_kind,
            flags: image.flags,
            strings: image.strings.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            image: image.image.to_vec(),
        }
    }
}

/// One image as LLVM 15 to 22 write it. Strings are cut at their first NUL, since version 1 has no other end.
pub fn write_v1(spec: &ImageSpec) -> Vec<u8> {
    write(1, std::slice::from_ref(spec))
}

/// Several images in one binary, as LLVM 23 writes it: only the first image is aligned, the others follow byte on byte.
pub fn write_v2(specs: &[ImageSpec]) -> Vec<u8> {
    write(2, specs)
}

/// Several images in one binary, as LLVM 24 writes it: compressed with zstd at `level`, or stored if `level` is `None`.
/// Padded to a multiple of 8 bytes, which the size in the header does not count where the binary is compressed.
pub fn write_v3(specs: &[ImageSpec], level: Option<i32>) -> Vec<u8> {
    let mut binary = write(3, specs);
    let Some(level) = level else {
        return binary;
    };
    let head = 40;
    let inflated_size = binary.len() as u64;
    let packed = binary.split_off(head);
    let mut encoder = match zstd::stream::write::Encoder::new(binary, level) {
        Ok(encoder) => encoder,
        // An encoder fails only where memory does; the stored form says the same.
        Err(_) => return write(3, specs),
    };
    let Ok(mut binary) = encoder.write_all(&packed).and_then(|()| encoder.finish()) else {
        return write(3, specs);
    };
    let size = binary.len() as u64;
    set(&mut binary, 8, size);
    set(&mut binary, 32, inflated_size);
    pad(&mut binary);
    binary
}

fn write(version: u32, specs: &[ImageSpec]) -> Vec<u8> {
    let strings: Vec<Vec<(&str, &str)>> = specs.iter().map(|spec| unique_strings(version, spec)).collect();
    let header_size: u64 = if version == 3 { 40 } else { 32 };
    let string_entry_size: u64 = if version == 1 { 16 } else { 24 };
    let string_count: u64 = strings.iter().map(|strings| strings.len() as u64).sum();
    let string_entries = header_size + ENTRY_SIZE * specs.len() as u64;
    let table_offset = string_entries + string_entry_size * string_count;
    let table = StringTable::new(strings.iter().flatten().flat_map(|(key, value)| [*key, *value]));
    let images_offset = (table_offset + table.bytes.len() as u64).next_multiple_of(ALIGN);
    let images_size: u64 = specs.iter().map(|spec| spec.image.len() as u64).sum();
    let size = (images_offset + images_size).next_multiple_of(ALIGN);

    let mut out = Vec::with_capacity(size as usize);
    out.extend(MAGIC);
    out.extend(version.to_le_bytes());
    out.extend(size.to_le_bytes());
    out.extend(header_size.to_le_bytes());
    out.extend(if version == 1 { ENTRY_SIZE } else { specs.len() as u64 }.to_le_bytes());
    if version == 3 {
        out.extend(0u64.to_le_bytes());
    }
    let (mut string_entry, mut image_offset) = (string_entries, images_offset);
    for (spec, strings) in specs.iter().zip(&strings) {
        out.extend(u16::from(spec.image_kind).to_le_bytes());
        out.extend(spec.offload_kind.0.to_le_bytes());
        out.extend(spec.flags.to_le_bytes());
        for field in [string_entry, strings.len() as u64, image_offset, spec.image.len() as u64] {
            out.extend(field.to_le_bytes());
        }
        string_entry += string_entry_size * strings.len() as u64;
        image_offset += spec.image.len() as u64;
    }
    for (key, value) in strings.iter().flatten() {
        out.extend((table_offset + table.offset(key)).to_le_bytes());
        out.extend((table_offset + table.offset(value)).to_le_bytes());
        if version > 1 {
            out.extend((value.len() as u64).to_le_bytes());
        }
    }
    out.extend(&table.bytes);
    pad(&mut out);
    for spec in specs {
        out.extend(&spec.image);
    }
    pad(&mut out);
    out
}

fn unique_strings(version: u32, spec: &ImageSpec) -> Vec<(&str, &str)> {
    let mut strings: Vec<(&str, &str)> = Vec::with_capacity(spec.strings.len());
    for (key, value) in &spec.strings {
        let key = until_nul(key);
        let value = if version == 1 { until_nul(value) } else { value };
        match strings.iter_mut().find(|(known, _)| *known == key) {
            Some(known) => known.1 = value,
            None => strings.push((key, value)),
        }
    }
    strings
}

fn until_nul(text: &str) -> &str {
    text.split('\0').next().unwrap_or_default()
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(ALIGN as usize), 0);
}

fn set(out: &mut [u8], offset: usize, value: u64) {
    if let Some(field) = out.get_mut(offset..offset + 8) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

struct StringTable<'a> {
    bytes: Vec<u8>,
    offsets: HashMap<&'a str, u64>,
}

impl<'a> StringTable<'a> {
    fn new(strings: impl Iterator<Item = &'a str>) -> Self {
        let mut sorted: Vec<&str> = strings.collect();
        // Compared from the end and downwards, so that a string directly follows one that it ends.
        sorted.sort_by(|a, b| b.bytes().rev().cmp(a.bytes().rev()));
        sorted.dedup();
        let mut table = StringTable { bytes: vec![0], offsets: HashMap::new() };
        let mut previous = "";
        for string in sorted {
            let offset = if string.is_empty() {
                0
            } else if previous.ends_with(string) {
                table.bytes.len() - string.len() - 1
            } else {
                let offset = table.bytes.len();
                table.bytes.extend(string.as_bytes());
                table.bytes.push(0);
                previous = string;
                offset
            };
            table.offsets.insert(string, offset as u64);
        }
        table
    }

    fn offset(&self, string: &str) -> u64 {
        self.offsets.get(string).copied().unwrap_or_default()
    }
}
