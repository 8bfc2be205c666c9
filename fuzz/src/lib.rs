//! What the fuzz targets have in common: bounds on memory, and the question whether a slice lies in the input.

pub mod object;

use std::borrow::Cow;

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What every input may take, however small it is.
const FLOOR: usize = 1 << 20;

/// Does `work`, which may take `factor` bytes for each of `len` bytes of input.
///
/// # Panics
/// It takes more.
pub fn bounded<R>(len: usize, factor: usize, work: impl FnOnce() -> R) -> R {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let result = work();
    let taken = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(taken <= FLOOR + factor * len, "{taken} bytes for an input of {len}");
    result
}

/// Whether `part` is a part of `whole`, and not only equal to one.
pub fn is_part(whole: &[u8], part: &[u8]) -> bool {
    let (whole, part) = (whole.as_ptr_range(), part.as_ptr_range());
    part.is_empty() || (whole.start <= part.start && part.end <= whole.end)
}

/// As [`is_part`], where the bytes are not owned.
pub fn is_part_or_owned(whole: &[u8], part: &Cow<[u8]>) -> bool {
    match part {
        Cow::Borrowed(part) => is_part(whole, part),
        Cow::Owned(_) => true,
    }
}
