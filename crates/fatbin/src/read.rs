//! Reads containers: the entries' headers, their payloads, and containers inside other bytes.

use crate::bytes::{slice, u16_at, u32_at, u64_at};
use crate::format::{ENTRY_HEADER_SIZE, ENTRY_VERSION, HEADER_SIZE, MAGIC, VERSION};
use crate::{Arch, Compression, Error, Flags, Kind, Result, Suffix, compress};
use std::borrow::Cow;

/// No payload is larger than this, because the driver keeps sizes in signed 32-bit numbers.
const PAYLOAD_LIMIT: u64 = i32::MAX as u64;

/// One container: the header and the entries behind it, not yet looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Container<'a> {
    bytes: &'a [u8],
}

impl<'a> Container<'a> {
    /// Reads the container at the start of `bytes`; more may follow it.
    ///
    /// # Errors
    /// If the header is not that of a container, or the container is cut off.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let short = || Error::new("fat binary is cut off");
        let magic = u32_at(bytes, 0).ok_or_else(short)?;
        let version = u16_at(bytes, 4).ok_or_else(short)?;
        let header_size = u16_at(bytes, 6).ok_or_else(short)?;
        let size = u64_at(bytes, 8).ok_or_else(short)?;
        if magic != MAGIC {
            return Err(Error::new(format!("fat binary has magic {magic:#010x}, not {MAGIC:#010x}")));
        }
        if version != VERSION {
            return Err(Error::new(format!("fat binary has version {version}, not {VERSION}")));
        }
        if usize::from(header_size) != HEADER_SIZE {
            return Err(Error::new(format!("fat binary has a header of {header_size} bytes, not {HEADER_SIZE}")));
        }
        let all = size.checked_add(HEADER_SIZE as u64).ok_or_else(short)?;
        Ok(Container { bytes: slice(bytes, 0, all).ok_or_else(short)? })
    }

    /// The whole container with its header.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The entries in their order.
    ///
    /// # Errors
    /// If one of them is malformed.
    pub fn entries(&self) -> Result<Vec<Entry<'a>>> {
        let mut entries = Vec::new();
        let mut rest = self.bytes.get(HEADER_SIZE..).unwrap_or_default();
        while !rest.is_empty() {
            let entry = Entry::parse(rest).map_err(|error| Error::new(format!("entry {}: {error}", entries.len())))?;
            rest = rest.get(entry.bytes.len()..).unwrap_or_default();
            entries.push(entry);
        }
        Ok(entries)
    }
}

/// Reads the container that `container` holds, zero padding behind it allowed.
///
/// # Errors
/// If the header or an entry is malformed, or something else follows the container.
pub fn read(container: &[u8]) -> Result<Vec<Entry<'_>>> {
    let parsed = Container::parse(container)?;
    let rest = container.get(parsed.bytes.len()..).unwrap_or_default();
    if rest.iter().any(|&byte| byte != 0) {
        return Err(Error::new(format!("{} bytes follow the fat binary", rest.len())));
    }
    parsed.entries()
}

/// One image of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What the payload is.
    pub kind: Kind,
    /// For which architecture, with the suffix that the flags state.
    pub arch: Arch,
    /// All flag bits.
    pub flags: Flags,
    /// Major and minor number: of the PTX ISA, 1 and the ELF ABI version for cubins, of the
    /// bitcode for NVVM.
    pub version: (u16, u16),
    /// The name of the source, if given.
    pub ident: Option<Cow<'a, str>>,
    /// The ptxas or cicc command line, if there is a place for one.
    pub options: Option<Cow<'a, str>>,
    /// The copy of the section `.nv.compat` in the entry of a Mercury cubin.
    pub compat: Option<&'a [u8]>,
    /// How the payload is stored.
    pub compression: Compression,
    /// The payload as stored: compressed to the byte, or else with up to 7 bytes of padding.
    pub stored: &'a [u8],
    /// The size of the payload in bytes; of a stored one with its padding.
    pub uncompressed_size: u64,
    bytes: &'a [u8],
    header_size: usize,
}

impl<'a> Entry<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self> {
        let short = || Error::new("entry is cut off");
        let fixed = bytes.get(..ENTRY_HEADER_SIZE).ok_or_else(short)?;
        let header_size = u32_at(fixed, 4).ok_or_else(short)?;
        let payload_size = u64_at(fixed, 8).ok_or_else(short)?;
        let compressed_size = u64::from(u32_at(fixed, 16).ok_or_else(short)?);
        if (header_size as usize) < ENTRY_HEADER_SIZE || header_size % 8 != 0 {
            return Err(Error::new(format!("entry has a header of {header_size} bytes")));
        }
        if payload_size % 8 != 0 {
            return Err(Error::new(format!("entry has a payload of {payload_size} bytes")));
        }
        let all = payload_size.checked_add(u64::from(header_size)).ok_or_else(short)?;
        let bytes = slice(bytes, 0, all).ok_or_else(short)?;
        let header = slice(bytes, 0, u64::from(header_size)).ok_or_else(short)?;
        let payload = bytes.get(header.len()..).ok_or_else(short)?;

        let meta = Meta::parse(header)?;
        let compression = match (meta.flags.contains(Flags::LZ4), meta.flags.contains(Flags::ZSTD)) {
            (false, false) => Compression::None,
            (true, false) => Compression::Lz4,
            (false, true) => Compression::Zstd(0),
            (true, true) => return Err(Error::new("entry claims to be both lz4 and zstd")),
        };
        let (stored, uncompressed_size) = if compression == Compression::None {
            if compressed_size != 0 {
                return Err(Error::new("stored entry states a compressed size"));
            }
            (payload, payload_size)
        } else {
            let stored = slice(payload, 0, compressed_size).ok_or_else(|| Error::new("compressed size is larger than the payload"))?;
            (stored, meta.uncompressed_size)
        };
        Ok(Entry {
            kind: meta.kind,
            arch: meta.arch,
            flags: meta.flags,
            version: meta.version,
            ident: meta.ident,
            options: meta.options,
            compat: meta.compat,
            compression,
            stored,
            uncompressed_size,
            bytes,
            header_size: header.len(),
        })
    }

    /// The whole entry, header and payload, as it can be copied into another container.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether the code was compiled with `-g`.
    pub fn is_debug(&self) -> bool {
        self.flags.contains(Flags::DEBUG)
    }

    /// The payload: for PTX the text without its NUL, for a stored cubin with up to 7 zero bytes
    /// behind it, because its length is nowhere.
    ///
    /// # Errors
    /// If it is damaged, of another size than the header states, over 2 GiB, or scrambled (NVVM
    /// bitcode that `fatbinary` compressed).
    pub fn payload(&self) -> Result<Cow<'a, [u8]>> {
        self.payload_within(PAYLOAD_LIMIT)
    }

    /// As [`Entry::payload`], of at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Entry::payload`], and if the header states more than `limit` bytes.
    pub fn payload_within(&self, limit: u64) -> Result<Cow<'a, [u8]>> {
        if self.flags.contains(Flags::OBFUSCATED) {
            return Err(Error::new("payload is scrambled, only NVIDIA's tools can read it"));
        }
        let size = usize::try_from(self.uncompressed_size)
            .ok()
            .filter(|_| self.uncompressed_size <= limit)
            .ok_or_else(|| Error::new(format!("payload of {} bytes is over the limit of {limit}", self.uncompressed_size)))?;
        let mut data = match self.compression {
            Compression::None => Cow::Borrowed(self.stored),
            Compression::Lz4 => Cow::Owned(compress::decompress_lz4(self.stored, size)?),
            Compression::Zstd(_) => Cow::Owned(compress::decompress_zstd(self.stored, size)?),
        };
        if self.kind.is_ptx() {
            // The driver reads up to the first NUL.
            if let Some(end) = data.iter().position(|&byte| byte == 0) {
                match &mut data {
                    Cow::Borrowed(text) => *text = text.get(..end).unwrap_or_default(),
                    Cow::Owned(text) => text.truncate(end),
                }
            }
        }
        Ok(data)
    }

    /// The images of a [`Kind::Concat`] entry; their bytes are ranges of [`Entry::payload`].
    ///
    /// # Errors
    /// If the entry is of another kind or its list is malformed.
    pub fn parts(&self) -> Result<Vec<Part<'a>>> {
        let short = || Error::new("list of concatenated images is cut off");
        if self.kind != Kind::Concat {
            return Err(Error::new("entry holds only one image"));
        }
        let extension = self.bytes.get(ENTRY_HEADER_SIZE..self.header_size).ok_or_else(short)?;
        let count = u32_at(extension, 0).ok_or_else(short)?;
        let list_size = u32_at(extension, 4).ok_or_else(short)?;
        let list = slice(extension, 0, u64::from(list_size)).ok_or_else(short)?;
        let mut rest = list.get(8..).ok_or_else(short)?;
        let mut parts = Vec::new();
        // Thousands of parts may each be the whole payload.
        let mut left = self.uncompressed_size;
        for _ in 0..count {
            let meta = Meta::parse(rest)?;
            let offset = u64::from(u32_at(rest, 4).ok_or_else(short)?);
            let size = u64_at(rest, 8).ok_or_else(short)?;
            let end = offset.checked_add(size).ok_or_else(short)?;
            if end > self.uncompressed_size {
                return Err(Error::new("concatenated image lies outside the payload"));
            }
            left = left.checked_sub(size).ok_or_else(|| Error::new("concatenated images overlap"))?;
            rest = rest.get(meta.header_end..).ok_or_else(short)?;
            parts.push(Part {
                kind: meta.kind,
                arch: meta.arch,
                flags: meta.flags,
                version: meta.version,
                ident: meta.ident,
                options: meta.options,
                offset,
                size,
            });
        }
        Ok(parts)
    }
}

/// One image of a [`Kind::Concat`] entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<'a> {
    /// As in [`Entry`].
    pub kind: Kind,
    /// As in [`Entry`].
    pub arch: Arch,
    /// As in [`Entry`].
    pub flags: Flags,
    /// As in [`Entry`].
    pub version: (u16, u16),
    /// As in [`Entry`].
    pub ident: Option<Cow<'a, str>>,
    /// As in [`Entry`].
    pub options: Option<Cow<'a, str>>,
    /// Where the image starts in the payload, in bytes.
    pub offset: u64,
    /// Its size in bytes, with the padding to a multiple of 8.
    pub size: u64,
}

/// The fields that entries and the parts of concatenated entries have in the same places.
struct Meta<'a> {
    kind: Kind,
    arch: Arch,
    flags: Flags,
    version: (u16, u16),
    ident: Option<Cow<'a, str>>,
    options: Option<Cow<'a, str>>,
    compat: Option<&'a [u8]>,
    uncompressed_size: u64,
    /// Where the extension ends as far as ident and options tell.
    header_end: usize,
}

impl<'a> Meta<'a> {
    fn parse(header: &'a [u8]) -> Result<Self> {
        let short = || Error::new("entry header is cut off");
        let fixed = header.get(..ENTRY_HEADER_SIZE).ok_or_else(short)?;
        let kind = Kind::from_u16(u16_at(fixed, 0).ok_or_else(short)?);
        let entry_version = u16_at(fixed, 2).ok_or_else(short)?;
        let options_offset = u32_at(fixed, 20).ok_or_else(short)?;
        let minor = u16_at(fixed, 24).ok_or_else(short)?;
        let major = u16_at(fixed, 26).ok_or_else(short)?;
        let sm = u32_at(fixed, 28).ok_or_else(short)?;
        let ident_offset = u32_at(fixed, 32).ok_or_else(short)?;
        let ident_len = u32_at(fixed, 36).ok_or_else(short)?;
        let flags = Flags(u64_at(fixed, 40).ok_or_else(short)?);
        let uncompressed_size = u64_at(fixed, 56).ok_or_else(short)?;
        if entry_version != ENTRY_VERSION {
            return Err(Error::new(format!("entry has version {entry_version:#06x}")));
        }
        let suffix = match (flags.contains(Flags::ARCH_SPECIFIC), flags.contains(Flags::FAMILY)) {
            (false, false) => None,
            (true, false) => Some(Suffix::ArchSpecific),
            (false, true) => Some(Suffix::Family),
            (true, true) => {
                return Err(Error::new("entry claims to be both arch- and family-specific"));
            }
        };

        let mut header_end = ENTRY_HEADER_SIZE;
        let ident = if ident_offset == 0 || ident_len == 0 {
            None
        } else {
            let text = slice(header, u64::from(ident_offset), u64::from(ident_len))
                .ok_or_else(|| Error::new("ident lies outside the entry header"))?;
            // Both fit a u32, so that the sum fits; a NUL follows, then padding to 8.
            let end = u64::from(ident_offset) + u64::from(ident_len) + 1;
            header_end = header_end.max(end.next_multiple_of(8) as usize);
            Some(String::from_utf8_lossy(text))
        };
        let mut options = None;
        let mut compat = None;
        // The list of a concatenated entry lies where others have their options.
        if options_offset != 0 && kind != Kind::Concat {
            let outside = || Error::new("options lie outside the entry header");
            let block = slice(header, u64::from(options_offset), 8).ok_or_else(outside)?;
            let offset = u64::from(u32_at(block, 0).ok_or_else(outside)?);
            let len = u64::from(u32_at(block, 4).ok_or_else(outside)?);
            if kind == Kind::Elf {
                // One zero byte before the copy, which the stated length does not count.
                compat = Some(slice(header, offset + 1, len).ok_or_else(outside)?);
            } else {
                let text = slice(header, offset, len).ok_or_else(outside)?;
                options = Some(String::from_utf8_lossy(text));
            }
            header_end = header_end.max((offset + len + 1).next_multiple_of(8) as usize);
        }
        Ok(Meta { kind, arch: Arch { sm, suffix }, flags, version: (major, minor), ident, options, compat, uncompressed_size, header_end })
    }
}

/// Finds the containers in any bytes: a file of them, an object, a program, an archive.
///
/// Gives the offset of each and what [`Container::parse`] says to it. After a malformed one the
/// search goes on behind its magic. What merely looks like a header gives an error, so callers that
/// know the sections should rather use [`section_containers`].
pub fn containers(bytes: &[u8]) -> Containers<'_> {
    Containers { bytes, at: 0 }
}

/// The iterator of [`containers`].
#[derive(Debug, Clone)]
pub struct Containers<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Containers<'a> {
    type Item = (usize, Result<Container<'a>>);

    fn next(&mut self) -> Option<Self::Item> {
        let magic = MAGIC.to_le_bytes();
        let rest = self.bytes.get(self.at..)?;
        let offset = self.at + rest.windows(magic.len()).position(|window| window == magic)?;
        let container = Container::parse(self.bytes.get(offset..)?);
        self.at = offset + container.as_ref().map_or(magic.len(), |found| found.bytes.len());
        Some((offset, container))
    }
}

/// The containers of a section `.nv_fatbin` or `__nv_relfatbin`: one behind the other, with nothing
/// but zeros between them.
///
/// Gives the offset of each, and an error for what is no container; that ends it.
pub fn section_containers(bytes: &[u8]) -> SectionContainers<'_> {
    SectionContainers { bytes, at: 0 }
}

/// The iterator of [`section_containers`].
#[derive(Debug, Clone)]
pub struct SectionContainers<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for SectionContainers<'a> {
    type Item = (usize, Result<Container<'a>>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..)?;
        let offset = self.at + rest.iter().position(|&byte| byte != 0)?;
        let container = Container::parse(self.bytes.get(offset..)?);
        self.at = match &container {
            Ok(found) => offset + found.bytes.len(),
            Err(_) => self.bytes.len(),
        };
        Some((offset, container))
    }
}
