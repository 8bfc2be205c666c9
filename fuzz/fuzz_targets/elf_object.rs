//! ELF objects, relocatable and linked: sections, symbols, entries; and what `ld -r` is made into.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offload_object::{HostObject, linked_entries, separate_relocatable};
use warplink_fuzz::{bounded, object};

fuzz_target!(|data: &[u8]| {
    if !data.starts_with(b"\x7fELF") {
        return;
    }
    object::check(data);
    let _ = bounded(data.len(), 256, || linked_entries(data));
    let Ok(separated) = bounded(data.len(), 256, || separate_relocatable(data, "0123")) else { return };
    let object = HostObject::parse(&separated).expect("what was written can be read");
    assert!(!object.has_offload_section());
    object::check(&separated);
});
