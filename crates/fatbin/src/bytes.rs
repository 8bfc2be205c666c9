//! Little-endian reads that return `None` outside the slice, so that no header can make us panic.

pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// The slice `[start, start + len)`, both as a file states them.
pub(crate) fn slice(bytes: &[u8], start: u64, len: u64) -> Option<&[u8]> {
    let end = usize::try_from(start.checked_add(len)?).ok()?;
    bytes.get(usize::try_from(start).ok()?..end)
}

/// The bytes from `start` to the next NUL, without it.
pub(crate) fn c_str(bytes: &[u8], start: usize) -> Option<&[u8]> {
    bytes.get(start..)?.split(|&b| b == 0).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stay_inside() {
        let b = [1u8, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(u16_at(&b, 6), Some(0x0807));
        assert_eq!(u16_at(&b, 7), None);
        assert_eq!(u32_at(&b, 4), Some(0x0807_0605));
        assert_eq!(u32_at(&b, 5), None);
        assert_eq!(u64_at(&b, 0), Some(0x0807_0605_0403_0201));
        assert_eq!(u64_at(&b, 1), None);
        assert_eq!(u64_at(&b, usize::MAX), None);
        assert_eq!(slice(&b, 8, 0), Some(&[][..]));
        assert_eq!(slice(&b, 8, 1), None);
        assert_eq!(slice(&b, u64::MAX, 2), None);
        assert_eq!(c_str(b"ab\0c", 1), Some(&b"b"[..]));
        assert_eq!(c_str(b"ab", 3), None);
    }
}
