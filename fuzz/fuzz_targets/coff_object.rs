//! COFF objects, plain and `/bigobj`: sections, symbols, entries.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warplink_fuzz::object;

fuzz_target!(|data: &[u8]| {
    if !data.starts_with(b"\x7fELF") {
        object::check(data);
    }
});
