//! Parsers that are nobody else's business, for the fuzz targets in `fuzz/`.

/// Inflates zlib data to exactly `len` bytes.
///
/// # Errors
/// The data is damaged, or of another size.
pub fn inflate(data: &[u8], len: usize) -> crate::Result<Vec<u8>> {
    crate::zlib::inflate(data, len)
}
