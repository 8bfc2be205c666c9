//! Compression of payloads: zstd frames and LZ4 blocks.

use crate::{Error, Result};
use std::io::Read;

/// How a payload is stored.
///
/// Drivers of CUDA 12.4 (r550) and later read zstd, every driver reads LZ4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// As it is.
    #[default]
    None,
    /// One LZ4 block without frame or size.
    Lz4,
    /// zstd at this level; `fatbinary` 13.0 uses [`Compression::ZSTD`] and, for
    /// `--compress-mode=size`, [`Compression::ZSTD_SIZE`]. Entries that were read say 0, because
    /// the stream does not tell its level.
    Zstd(i32),
}

impl Compression {
    /// What `fatbinary` 13.0 does by default.
    pub const ZSTD: Compression = Compression::Zstd(5);
    /// What `fatbinary` 13.0 does for `--compress-mode=size`.
    pub const ZSTD_SIZE: Compression = Compression::Zstd(19);

    /// The name without the level: `stored`, `lz4` or `zstd`.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "stored",
            Compression::Lz4 => "lz4",
            Compression::Zstd(_) => "zstd",
        }
    }
}

pub(crate) fn compress_lz4(data: &[u8]) -> Vec<u8> {
    lz4_flex::block::compress(data)
}

pub(crate) fn compress_zstd(data: &[u8], level: i32) -> Result<Vec<u8>> {
    let range = zstd::compression_level_range();
    if !range.contains(&level) {
        return Err(Error::new(format!("zstd has no level {level}, only {} to {}", range.start(), range.end())));
    }
    zstd::bulk::compress(data, level).map_err(|error| Error::new(format!("zstd compression failed: {error}")))
}

/// Gives exactly `size` bytes or an error.
///
/// The output grows with what really comes out, so that a lying header costs no memory.
pub(crate) fn decompress_zstd(stored: &[u8], size: usize) -> Result<Vec<u8>> {
    let bad = |error: std::io::Error| Error::new(format!("zstd payload is damaged: {error}"));
    let decoder = zstd::stream::read::Decoder::with_buffer(stored).map_err(bad)?;
    let mut data = Vec::new();
    let one_more = u64::try_from(size).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(one_more).read_to_end(&mut data).map_err(bad)?;
    check_size(&data, size)?;
    Ok(data)
}

/// Gives exactly `size` bytes or an error.
pub(crate) fn decompress_lz4(stored: &[u8], size: usize) -> Result<Vec<u8>> {
    // One byte of an LZ4 block stands for at most 255 bytes, and the decoder allocates `size` first.
    if size / 255 > stored.len() {
        return Err(Error::new(format!("lz4 payload of {} bytes cannot hold {size} bytes", stored.len())));
    }
    let data = lz4_flex::block::decompress(stored, size).map_err(|error| Error::new(format!("lz4 payload is damaged: {error}")))?;
    check_size(&data, size)?;
    Ok(data)
}

fn check_size(data: &[u8], size: usize) -> Result<()> {
    if data.len() > size {
        return Err(Error::new(format!("payload is larger than the {size} bytes its header states")));
    }
    if data.len() < size {
        return Err(Error::new(format!("payload has {} bytes, its header states {size}", data.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc";

    #[test]
    fn goes_there_and_back() {
        assert_eq!(decompress_lz4(&compress_lz4(TEXT), TEXT.len()).as_deref(), Ok(TEXT));
        for level in [-5, 1, 5, 19, 22] {
            let stored = compress_zstd(TEXT, level).expect("level");
            assert_eq!(decompress_zstd(&stored, TEXT.len()).as_deref(), Ok(TEXT));
        }
    }

    #[test]
    fn reads_several_frames_and_frames_without_a_size() {
        let mut two = compress_zstd(TEXT, 1).expect("level");
        two.extend(compress_zstd(b"xyz", 1).expect("level"));
        assert_eq!(decompress_zstd(&two, TEXT.len() + 3), Ok([TEXT, b"xyz"].concat()));
        let streamed = zstd::stream::encode_all(TEXT, 3).expect("encode");
        assert_eq!(decompress_zstd(&streamed, TEXT.len()).as_deref(), Ok(TEXT));
    }

    #[test]
    fn refuses_wrong_sizes_and_levels() {
        let zstd = compress_zstd(TEXT, 5).expect("level");
        let lz4 = compress_lz4(TEXT);
        for size in [0, TEXT.len() - 1, TEXT.len() + 1, usize::MAX] {
            assert!(decompress_zstd(&zstd, size).is_err(), "{size}");
            assert!(decompress_lz4(&lz4, size).is_err(), "{size}");
        }
        assert!(compress_zstd(TEXT, 23).is_err());
        assert!(compress_zstd(TEXT, i32::MIN).is_err());
    }

    #[test]
    fn refuses_damage() {
        let zstd = compress_zstd(TEXT, 5).expect("level");
        let lz4 = compress_lz4(TEXT);
        for end in 0..zstd.len() {
            assert!(decompress_zstd(&zstd[..end], TEXT.len()).is_err(), "{end}");
        }
        for end in 0..lz4.len() {
            assert!(decompress_lz4(&lz4[..end], TEXT.len()).is_err(), "{end}");
        }
        assert!(decompress_zstd(&[&zstd[..], b"tail"].concat(), TEXT.len()).is_err());
    }
}
