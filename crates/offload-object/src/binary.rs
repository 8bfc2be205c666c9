//! Reads LLVM offload binaries, the container that clang embeds device images in: versions 1 (LLVM 15 to 22), 2 (LLVM 23) and 3 (LLVM 24).
//!
//! The layout is that of `llvm/Object/OffloadBinary.h`: little-endian, all offsets counted from the start of the binary.
//!
//! | offset | v1 | v2 | v3 |
//! |---|---|---|---|
//! | 0 | magic `10 FF 10 AD` | | |
//! | 4 | u32 version | | |
//! | 8 | u64 size of the whole binary | | size as stored, not padded |
//! | 16 | u64 offset of the entry | of the entries | |
//! | 24 | u64 size of the entry | number of entries | |
//! | 32 | | | u64 size once inflated, 0 = not compressed |
//!
//! An entry is 40 bytes: u16 image kind, u16 offload kind, u32 flags, u64 offset of the strings, u64 their number, u64 offset and u64 size of
//! the image. A string is u64 key offset, u64 value offset and, from v2 on, u64 value size; strings end with a NUL and may share bytes.

use std::borrow::Cow;
use std::io::Read;

use crate::bytes;
use crate::error::{Error, OrError, Result};
use crate::zlib;

pub(crate) const MAGIC: [u8; 4] = [0x10, 0xff, 0x10, 0xad];
pub(crate) const ENTRY_SIZE: u64 = 40;
pub(crate) const ALIGN: u64 = 8;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The most that a compressed binary may say it inflates to. Device images are far smaller; without a bound a few bytes could claim all memory.
const MAX_INFLATED: u64 = 4 << 30;

/// Strings may share bytes, so that a small table can stand for a lot of text: more than the binary has, and more than this, is refused.
const MAX_SHARED_TEXT: u64 = 1 << 20;

/// What an image is, according to its producer (LLVM's `ImageKind`). Not more than a hint: a cubin in a file named `.o` is an `Object`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageKind {
    /// Nothing was said.
    None,
    /// An object of the device, relocatable or linked.
    Object,
    /// LLVM bitcode.
    Bitcode,
    /// An NVIDIA cubin.
    Cubin,
    /// An NVIDIA fat binary.
    Fatbinary,
    /// PTX text.
    Ptx,
    /// SPIR-V.
    Spirv,
    /// A kind that LLVM 22 does not know.
    Other(u16),
}

impl ImageKind {
    /// The name as LLVM prints it, which is also the file extension that it stands for.
    pub fn name(self) -> &'static str {
        match self {
            ImageKind::Object => "o",
            ImageKind::Bitcode => "bc",
            ImageKind::Cubin => "cubin",
            ImageKind::Fatbinary => "fatbin",
            ImageKind::Ptx => "s",
            ImageKind::Spirv => "spv",
            ImageKind::None | ImageKind::Other(_) => "",
        }
    }

    /// The kind that LLVM infers from a file's extension, without the dot.
    pub fn from_extension(extension: &str) -> Self {
        match extension {
            "o" => ImageKind::Object,
            "bc" => ImageKind::Bitcode,
            "cubin" => ImageKind::Cubin,
            "fatbin" => ImageKind::Fatbinary,
            "s" => ImageKind::Ptx,
            "spv" => ImageKind::Spirv,
            _ => ImageKind::None,
        }
    }
}

impl From<u16> for ImageKind {
    fn from(value: u16) -> Self {
        match value {
            0 => ImageKind::None,
            1 => ImageKind::Object,
            2 => ImageKind::Bitcode,
            3 => ImageKind::Cubin,
            4 => ImageKind::Fatbinary,
            5 => ImageKind::Ptx,
            6 => ImageKind::Spirv,
            other => ImageKind::Other(other),
        }
    }
}

impl From<ImageKind> for u16 {
    fn from(kind: ImageKind) -> Self {
        match kind {
            ImageKind::None => 0,
            ImageKind::Object => 1,
            ImageKind::Bitcode => 2,
            ImageKind::Cubin => 3,
            ImageKind::Fatbinary => 4,
            ImageKind::Ptx => 5,
            ImageKind::Spirv => 6,
            ImageKind::Other(other) => other,
        }
    }
}

/// The languages that an image or an entry is for: a bit mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OffloadKind(pub u16);

impl OffloadKind {
    /// No language.
    pub const NONE: Self = OffloadKind(0);
    /// OpenMP.
    pub const OPENMP: Self = OffloadKind(1);
    /// CUDA.
    pub const CUDA: Self = OffloadKind(2);
    /// HIP.
    pub const HIP: Self = OffloadKind(4);
    /// SYCL.
    pub const SYCL: Self = OffloadKind(8);

    /// LLVM's names and their bits.
    const NAMES: [(Self, &'static str); 4] = [(Self::OPENMP, "openmp"), (Self::CUDA, "cuda"), (Self::HIP, "hip"), (Self::SYCL, "sycl")];

    /// Whether all languages of `other` are in `self`.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names of the languages, in bit order. Bits that LLVM 22 does not know have none.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(kind, _)| self.contains(*kind)).map(|(_, name)| name)
    }

    /// The language with LLVM's name `name`; `none` and unknown names are [`OffloadKind::NONE`], as in LLVM.
    pub fn from_name(name: &str) -> Self {
        Self::NAMES.into_iter().find(|(_, known)| *known == name).map_or(Self::NONE, |(kind, _)| kind)
    }
}

/// One device image and what is recorded with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffloadImage<'a> {
    /// Version of the container, 1 to 3.
    pub version: u32,
    /// What the producer took the image for.
    pub image_kind: ImageKind,
    /// The languages that it is for.
    pub offload_kind: OffloadKind,
    /// Flags of the entry. From version 2 on bit 0 says that the entry carries metadata only.
    pub flags: u32,
    /// Keys and values in the order they are stored. Values may hold NULs from version 2 on.
    pub strings: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The image itself, at any alignment. Owned if it had to be inflated.
    pub image: Cow<'a, [u8]>,
    /// Offset of the binary that holds the image, from the start of the section. Images of one binary share it.
    pub offset: usize,
}

impl OffloadImage<'_> {
    /// The value of `key`: of a key that comes twice the last one, as for LLVM.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.strings.iter().rev().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    /// The target triple, empty if there is none.
    pub fn triple(&self) -> &str {
        self.get("triple").unwrap_or_default()
    }

    /// The architecture, such as `sm_90`; empty if there is none.
    pub fn arch(&self) -> &str {
        self.get("arch").unwrap_or_default()
    }
}

/// Reads a sequence of offload binaries: a section of an object (also one that `ld -r` made from several), or a file.
///
/// # Errors
/// A header, an offset, a size or a string is wrong; a compressed binary does not inflate to what its header says.
pub fn parse_section(bytes: &[u8]) -> Result<Vec<OffloadImage<'_>>> {
    let mut images = Vec::new();
    let mut offset = 0usize;
    while let Some(rest) = bytes.get(offset..) {
        // What a linker put behind the last binary to align it.
        if rest.iter().all(|&byte| byte == 0) {
            break;
        }
        let size = parse_binary(rest, offset, &mut images)?;
        let next = (offset as u64).checked_add(size).and_then(|end| bytes::align_up(end, ALIGN));
        offset = next.and_then(|next| usize::try_from(next).ok()).or_error("offload binary is too large")?;
    }
    Ok(images)
}

struct Header {
    version: u32,
    size: u64,
    entries_offset: u64,
    entries_count: u64,
    inflated_size: u64,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self> {
        const SHORT: &str = "offload binary header is cut short";
        if bytes::array::<4>(bytes, 0).or_error(SHORT)? != MAGIC {
            return Err(Error("offload binary has a wrong magic number"));
        }
        let version = bytes::u32_le(bytes, 4).or_error(SHORT)?;
        if !(1..=3).contains(&version) {
            return Err(Error("offload binary has an unknown version"));
        }
        let field = |offset| bytes::u64_le(bytes, offset).or_error(SHORT);
        let header = Header {
            version,
            size: field(8)?,
            entries_offset: field(16)?,
            // Version 1 has exactly one entry and states its size here.
            entries_count: if version == 1 { 1 } else { field(24)? },
            inflated_size: if version == 3 { field(32)? } else { 0 },
        };
        if version == 1 && field(24)? < ENTRY_SIZE {
            return Err(Error("offload binary has a wrong entry size"));
        }
        if header.size < header.len() {
            return Err(Error("offload binary is smaller than its header"));
        }
        if header.entries_offset < header.len() {
            return Err(Error("offload binary has its entries inside the header"));
        }
        Ok(header)
    }

    fn len(&self) -> u64 {
        if self.version == 3 { 40 } else { 32 }
    }

    fn string_entry_size(&self) -> u64 {
        if self.version == 1 { 16 } else { 24 }
    }
}

/// Reads the binary at the start of `bytes`, which lies at `offset` in its section. Gives its size in bytes.
fn parse_binary<'a>(bytes: &'a [u8], offset: usize, images: &mut Vec<OffloadImage<'a>>) -> Result<u64> {
    let header = Header::read(bytes)?;
    let stored = bytes::slice(bytes, 0, header.size).or_error("offload binary goes past the end of its section")?;
    if header.inflated_size == 0 {
        parse_entries(&header, stored, offset, images)?;
    } else {
        let inflated = inflate(&header, stored)?;
        let mut borrowed = Vec::new();
        parse_entries(&header, &inflated, offset, &mut borrowed)?;
        images.extend(borrowed.into_iter().map(into_owned));
    }
    Ok(header.size)
}

/// The binary as it was before compression: the header is kept, everything from the entries on is inflated.
fn inflate(header: &Header, stored: &[u8]) -> Result<Vec<u8>> {
    let packed = usize::try_from(header.entries_offset).ok().and_then(|start| stored.split_at_checked(start));
    let (head, packed) = packed.or_error("offload binary has its entries outside")?;
    if header.inflated_size > MAX_INFLATED {
        return Err(Error("offload binary claims to inflate to more than 4 GiB"));
    }
    let len = header.inflated_size.checked_sub(header.entries_offset).or_error("offload binary has a wrong inflated size")?;
    let len = usize::try_from(len).or_error("offload binary is too large")?;
    let mut inflated = head.to_vec();
    if packed.starts_with(&ZSTD_MAGIC) {
        let decoder = zstd::stream::read::Decoder::with_buffer(packed).or_error("zstd data is damaged")?;
        let read = decoder.single_frame().take(len as u64 + 1).read_to_end(&mut inflated).or_error("zstd data is damaged")?;
        if read != len {
            return Err(Error("zstd data has another size than stated"));
        }
    } else {
        inflated.extend(zlib::inflate(packed, len)?);
    }
    Ok(inflated)
}

fn parse_entries<'a>(header: &Header, data: &'a [u8], offset: usize, images: &mut Vec<OffloadImage<'a>>) -> Result<()> {
    const OUTSIDE: &str = "offload binary has its entries outside";
    let total = header.entries_count.checked_mul(ENTRY_SIZE).or_error(OUTSIDE)?;
    let entries = bytes::slice(data, header.entries_offset, total).or_error(OUTSIDE)?;
    // What entries may refer to, all of them together.
    let mut images_left = data.len() as u64;
    let mut text_left = images_left.max(MAX_SHARED_TEXT);
    for entry in entries.chunks_exact(ENTRY_SIZE as usize) {
        let field = |offset| bytes::u64_le(entry, offset).or_error(OUTSIDE);
        let half = |offset| bytes::u16_le(entry, offset).or_error(OUTSIDE);
        let image = bytes::slice(data, field(24)?, field(32)?).or_error("offload image is outside its binary")?;
        images_left = images_left.checked_sub(image.len() as u64).or_error("offload images overlap")?;
        images.push(OffloadImage {
            version: header.version,
            image_kind: half(0)?.into(),
            offload_kind: OffloadKind(half(2)?),
            flags: bytes::u32_le(entry, 4).or_error(OUTSIDE)?,
            strings: parse_strings(header, data, field(8)?, field(16)?, &mut text_left)?,
            image: Cow::Borrowed(image),
            offset,
        });
    }
    Ok(())
}

/// The strings of one entry. `text_left` is how much text there may still be.
fn parse_strings<'a>(
    header: &Header,
    data: &'a [u8],
    offset: u64,
    count: u64,
    text_left: &mut u64,
) -> Result<Vec<(Cow<'a, str>, Cow<'a, str>)>> {
    const OUTSIDE: &str = "offload binary has a string outside";
    let total = count.checked_mul(header.string_entry_size()).or_error(OUTSIDE)?;
    let table = bytes::slice(data, offset, total).or_error("offload binary has its string entries outside")?;
    let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).map(Cow::Borrowed).or_error("offload binary has a string that is not UTF-8");
    let mut strings = Vec::new();
    for entry in table.chunks_exact(header.string_entry_size() as usize) {
        let field = |offset| bytes::u64_le(entry, offset).or_error(OUTSIDE);
        let key = bytes::c_string(data, field(0)?).or_error(OUTSIDE)?;
        let value = match header.version {
            1 => bytes::c_string(data, field(8)?),
            _ => bytes::slice(data, field(8)?, field(16)?),
        };
        let value = value.or_error(OUTSIDE)?;
        // With what the pair itself takes in memory.
        let taken = header.string_entry_size() + (key.len() + value.len()) as u64;
        *text_left = text_left.checked_sub(taken).or_error("offload binary has more strings than it has room for")?;
        strings.push((text(key)?, text(value)?));
    }
    Ok(strings)
}

fn into_owned<'a>(image: OffloadImage<'_>) -> OffloadImage<'a> {
    let strings = image.strings.into_iter();
    OffloadImage {
        strings: strings.map(|(key, value)| (Cow::Owned(key.into_owned()), Cow::Owned(value.into_owned()))).collect(),
        image: Cow::Owned(image.image.into_owned()),
        version: image.version,
        image_kind: image.image_kind,
        offload_kind: image.offload_kind,
        flags: image.flags,
        offset: image.offset,
    }
}
