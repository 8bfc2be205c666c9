//! One string of all device images in a file is changed: it is what was asked for, nothing else is, and the change can be taken back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offload_object::{FileKind, HostObject, OffloadKind, file_kind, parse_section, set_metadata};
use warplink_fuzz::bounded;

/// Packed binaries are unpacked, and packed again.
const FACTOR: usize = 1 << 17;

fuzz_target!(|data: &[u8]| {
    let Ok((with, count)) = bounded(data.len(), FACTOR, || set_metadata(data, "ptx", Some("all"))) else { return };
    assert!(count > 0 || with == data);
    for strings in strings(&with) {
        assert!(strings.iter().any(|(key, value)| key == "ptx" && value == "all") || strings.is_empty());
    }
    let (again, changes) = set_metadata(&with, "ptx", Some("all")).expect("what was changed can be read");
    assert!(changes == 0 && again == with, "{changes} changes the second time");
    let (without, _) = set_metadata(&with, "ptx", None).expect("what was changed can be read");
    for strings in strings(&without) {
        assert!(!strings.iter().any(|(key, _)| key == "ptx") || strings.is_empty());
    }
});

/// The strings of all CUDA images of a file that is no archive.
fn strings(file: &[u8]) -> Vec<Vec<(String, String)>> {
    let sections = match file_kind(file) {
        FileKind::OffloadBinary => vec![file],
        FileKind::ElfRelocatable | FileKind::Coff => {
            HostObject::parse(file).and_then(|object| object.offload_sections()).unwrap_or_default()
        }
        _ => return Vec::new(),
    };
    let images = sections.into_iter().flat_map(|section| parse_section(section).unwrap_or_default());
    let images = images.filter(|image| image.offload_kind.contains(OffloadKind::CUDA));
    images.map(|image| image.strings.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()).collect()
}
