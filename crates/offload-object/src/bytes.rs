//! Reads from a slice that cannot panic: every access is checked and gives `None` where the bytes end.

/// `len` bytes at `offset`, with offsets as files state them.
pub(crate) fn slice(data: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    data.get(start..end)
}

pub(crate) fn array<const N: usize>(data: &[u8], offset: u64) -> Option<[u8; N]> {
    slice(data, offset, N as u64)?.try_into().ok()
}

pub(crate) fn u16_le(data: &[u8], offset: u64) -> Option<u16> {
    array(data, offset).map(u16::from_le_bytes)
}

pub(crate) fn u32_le(data: &[u8], offset: u64) -> Option<u32> {
    array(data, offset).map(u32::from_le_bytes)
}

pub(crate) fn u64_le(data: &[u8], offset: u64) -> Option<u64> {
    array(data, offset).map(u64::from_le_bytes)
}

/// The bytes from `offset` up to the next NUL, which must be there.
pub(crate) fn c_string(data: &[u8], offset: u64) -> Option<&[u8]> {
    let rest = data.get(usize::try_from(offset).ok()?..)?;
    let len = rest.iter().position(|&byte| byte == 0)?;
    rest.get(..len)
}

/// `value` rounded up to a multiple of `align`, which is a power of two.
pub(crate) fn align_up(value: u64, align: u64) -> Option<u64> {
    Some(value.checked_add(align - 1)? & !(align - 1))
}
