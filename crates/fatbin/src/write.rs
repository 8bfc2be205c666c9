//! Writes containers with the bytes that `fatbinary` 13.0 writes for the same images and options.
//!
//! Two things differ, both on purpose: LZ4 blocks come from another compressor, and NVVM bitcode is
//! always stored, because `fatbinary` scrambles it when it compresses it.

use crate::format::{ENTRY_HEADER_SIZE, ENTRY_VERSION, HEADER_SIZE, MAGIC, VERSION};
use crate::{Arch, Compression, Error, Flags, Kind, Result, Suffix, compress, cubin, ptx};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// One image to put into a container.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// What `data` is. [`Kind::Concat`] and [`Kind::Other`] cannot be written.
    pub kind: Kind,
    /// For which architecture the driver takes it. The suffix counts: it is never taken from `data`.
    pub arch: Arch,
    /// The cubin, the PTX text with or without a final NUL, or the bitcode.
    pub data: &'a [u8],
    /// The name of the source (`--ident`); none if absent or empty.
    pub ident: Option<&'a str>,
    /// The command line of ptxas for PTX (`--cmdline`), of cicc for NVVM bitcode
    /// (`--cicc-cmdline`). Entries of cubins have no place for it.
    pub options: &'a str,
    /// Compiled with `-g`. `fatbinary` then compresses cubins as well; here `compression` decides.
    pub debug: bool,
    /// How `data` is stored. NVVM bitcode is stored as it is whatever this says.
    pub compression: Compression,
}

/// Writes a container with these images, in this order.
///
/// # Errors
/// - two images of the same kind and architecture: the driver's choice would depend on their order;
/// - a cubin that is none, or made for another architecture than `arch`;
/// - PTX without `.version` or `.target`, with a NUL inside, or for a later or other architecture
///   than `arch`, which the driver would not compile;
/// - bitcode of less than 8 bytes; a kind that cannot be written; a NUL in `ident` or `options`;
/// - a level that zstd does not have;
/// - a container of 2 GiB or more: the driver keeps the size in a signed 32-bit number.
pub fn write(images: &[Image<'_>]) -> Result<Vec<u8>> {
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    out.extend(MAGIC.to_le_bytes());
    out.extend(VERSION.to_le_bytes());
    out.extend((HEADER_SIZE as u16).to_le_bytes());
    out.extend([0; 8]);
    for image in images {
        if !seen.insert((image.kind, image.arch)) {
            return Err(Error::new(format!("two {} images for {}", image.kind, image.arch)));
        }
        write_entry(image, &mut out).map_err(|error| Error::new(format!("{} image for {}: {error}", image.kind, image.arch)))?;
    }
    let size = out.len() - HEADER_SIZE;
    if i32::try_from(size).is_err() {
        return Err(Error::new(format!("fat binary of {size} bytes is over the limit of 2 GiB")));
    }
    if let Some(field) = out.get_mut(8..HEADER_SIZE) {
        field.copy_from_slice(&(size as u64).to_le_bytes());
    }
    Ok(out)
}

/// The options block: the length that it states, which is not always that of the body.
struct Options<'a> {
    stated: usize,
    body: Cow<'a, [u8]>,
}

/// A container with one entry, copied as it is: for payloads that only NVIDIA's tools can read.
pub fn container_of(entry: &crate::Entry<'_>) -> Vec<u8> {
    let bytes = entry.bytes();
    let mut out = Vec::with_capacity(HEADER_SIZE + bytes.len());
    out.extend(MAGIC.to_le_bytes());
    out.extend(VERSION.to_le_bytes());
    out.extend((HEADER_SIZE as u16).to_le_bytes());
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
    out
}

fn write_entry(image: &Image<'_>, out: &mut Vec<u8>) -> Result<()> {
    let ident = image.ident.unwrap_or_default();
    if ident.contains('\0') || image.options.contains('\0') {
        return Err(Error::new("nul byte in the ident or the options"));
    }
    let mut flags = Flags::BITS_64 | Flags::LINUX;
    if image.debug {
        flags |= Flags::DEBUG;
    }
    match image.arch.suffix {
        Some(Suffix::ArchSpecific) => flags |= Flags::ARCH_SPECIFIC,
        Some(Suffix::Family) => flags |= Flags::FAMILY,
        None => {}
    }

    let text_options = || {
        let mut body = image.options.as_bytes().to_vec();
        body.push(0);
        Some(Options { stated: image.options.len(), body: Cow::Owned(body) })
    };
    let (version, data, options) = match image.kind {
        Kind::Ptx | Kind::RelocatablePtx => {
            let text = image.data.strip_suffix(b"\0").unwrap_or(image.data);
            let version = check_ptx(text, image.arch)?;
            let mut text = ptx::strip(text);
            text.push(0);
            (version, Cow::Owned(text), text_options())
        }
        Kind::Elf => {
            let elf = cubin::Cubin::parse(image.data)?;
            if elf.arch().sm != image.arch.sm {
                return Err(Error::new(format!("cubin is made for {}", elf.arch())));
            }
            let mut options = None;
            if elf.is_mercury() {
                flags |= Flags::MERCURY;
                options =
                    elf.section(".nv.compat").map(|compat| Options { stated: compat.len(), body: Cow::Owned([&[0], compat].concat()) });
            }
            ((1, u16::from(elf.abi_version())), Cow::Borrowed(image.data), options)
        }
        Kind::Nvvm => match image.data {
            [_, _, _, _, major, minor, _, _, ..] => ((u16::from(*major), u16::from(*minor)), Cow::Borrowed(image.data), text_options()),
            _ => return Err(Error::new("bitcode is cut off")),
        },
        Kind::Concat | Kind::Other(_) => return Err(Error::new("this kind cannot be written")),
    };

    let mut extension = Vec::new();
    let mut ident_offset = 0;
    if !ident.is_empty() {
        ident_offset = ENTRY_HEADER_SIZE;
        extension.extend(ident.as_bytes());
        extension.push(0);
        pad_to_8(&mut extension);
    }
    let mut options_offset = 0;
    if let Some(options) = options {
        options_offset = ENTRY_HEADER_SIZE + extension.len();
        extension.extend(field_u32(options_offset + 8)?.to_le_bytes());
        extension.extend(field_u32(options.stated)?.to_le_bytes());
        extension.extend(options.body.as_ref());
        pad_to_8(&mut extension);
    }

    let (stored, compressed) = match image.compression {
        _ if image.kind == Kind::Nvvm => (Cow::Borrowed(data.as_ref()), false),
        Compression::None => (Cow::Borrowed(data.as_ref()), false),
        Compression::Lz4 => {
            flags |= Flags::LZ4;
            (Cow::Owned(compress::compress_lz4(&data)), true)
        }
        Compression::Zstd(level) => {
            flags |= Flags::ZSTD;
            (Cow::Owned(compress::compress_zstd(&data, level)?), true)
        }
    };
    let padded = (stored.len() as u64).next_multiple_of(8);
    let compressed_size = if compressed { field_u32(stored.len())? } else { 0 };
    let uncompressed_size = if compressed { data.len() as u64 } else { 0 };

    out.extend(image.kind.to_u16().to_le_bytes());
    out.extend(ENTRY_VERSION.to_le_bytes());
    out.extend(field_u32(ENTRY_HEADER_SIZE + extension.len())?.to_le_bytes());
    out.extend(padded.to_le_bytes());
    out.extend(compressed_size.to_le_bytes());
    out.extend(field_u32(options_offset)?.to_le_bytes());
    out.extend(version.1.to_le_bytes());
    out.extend(version.0.to_le_bytes());
    out.extend(image.arch.sm.to_le_bytes());
    out.extend(field_u32(ident_offset)?.to_le_bytes());
    out.extend(field_u32(ident.len())?.to_le_bytes());
    out.extend(flags.0.to_le_bytes());
    out.extend([0; 8]);
    out.extend(uncompressed_size.to_le_bytes());
    out.extend(extension);
    out.extend(stored.as_ref());
    pad_to_8(out);
    Ok(())
}

/// The PTX ISA version, after the checks that make the label on the entry true.
fn check_ptx(text: &[u8], arch: Arch) -> Result<(u16, u16)> {
    if text.contains(&0) {
        return Err(Error::new("nul byte in the text, which the driver takes for its end"));
    }
    let header = ptx::Header::parse(text)?;
    let target = header.target;
    let compiles = match target.suffix {
        None => target.sm <= arch.sm,
        Some(_) => target == arch,
    };
    if !compiles {
        return Err(Error::new(format!("text has .target {target}")));
    }
    Ok((header.version.major, header.version.minor))
}

fn field_u32(value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::new("image is over the limit of 4 GiB"))
}

fn pad_to_8(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}
