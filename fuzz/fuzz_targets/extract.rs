//! All that is taken out of one file of a link, through all parsers that it needs: objects, sections, offload binaries, fat binaries, device
//! files.
#![no_main]

use std::path::Path;

use device_link::extract::{extract, has_entries, may_hold_device_code, stray_entries};
use device_link::options::ItemState;
use device_link::resolve::{Unit, UnitName};
use libfuzzer_sys::fuzz_target;
use offload_object::{FileKind, file_kind};
use warplink_fuzz::bounded;

fuzz_target!(|data: &[u8]| {
    let kind = file_kind(data);
    // LLVM reads bitcode, which is not what is looked at here.
    if kind == FileKind::Bitcode {
        return;
    }
    let name = UnitName::File(Path::new("a.o"));
    let unit = Unit { input: 0, position: 0, member: None, name, data, kind, lazy: false, state: ItemState::default() };
    let packed = data.windows(4).any(|window| window == [0x28, 0xb5, 0x2f, 0xfd]);
    let factor = if packed { 1 << 17 } else { 1024 };
    bounded(data.len(), factor, || {
        let _ = (may_hold_device_code(&unit), has_entries(&unit), stray_entries(0, &unit));
        match extract(0, &unit) {
            Ok(found) => {
                assert!(found.inputs.len() <= data.len() / 8 && found.entries.len() <= data.len() / 8);
                for input in found.inputs.iter().filter(|input| input.image.size() <= 1 << 20) {
                    let _ = input.image.bytes();
                }
            }
            Err(error) => assert!(error.to_string().contains("a.o"), "{error}"),
        }
    });
});
