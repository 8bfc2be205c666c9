//! Offload binaries of all versions, packed and not: what is read lies in the input, and is the same when written and read again.
#![no_main]

use std::borrow::Cow;

use libfuzzer_sys::fuzz_target;
use offload_object::{ImageSpec, parse_section, write_v1, write_v2, write_v3};
use warplink_fuzz::{bounded, is_part_or_owned};

/// zstd writes a block of 128 KiB in four bytes.
const PACKED: usize = 1 << 16;

fuzz_target!(|data: &[u8]| {
    if let Some((&len, stream)) = data.split_first().filter(|(_, stream)| stream.first() == Some(&0x78)) {
        let len = usize::from(len) * 8;
        if let Ok(inflated) = bounded(data.len(), 64, || offload_object::fuzzing::inflate(stream, len)) {
            assert_eq!(inflated.len(), len);
        }
        return;
    }
    let is_packed = data.windows(4).any(|window| window == [0x28, 0xb5, 0x2f, 0xfd] || window[0] == 0x78);
    let factor = if is_packed { PACKED } else { 64 };
    let Ok(images) = bounded(data.len(), factor, || parse_section(data)) else { return };
    for image in &images {
        assert!(image.offset < data.len() && is_part_or_owned(data, &image.image));
        for (key, value) in &image.strings {
            for text in [key, value] {
                if let (Cow::Borrowed(text), Cow::Borrowed(_)) = (text, &image.image) {
                    assert!(is_part_or_owned(data, &Cow::Borrowed(text.as_bytes())));
                }
            }
            assert!(image.get(key).is_some());
        }
    }
    for binary in images.chunk_by(|a, b| a.offset == b.offset) {
        let version = binary[0].version;
        let specs: Vec<ImageSpec> = binary.iter().map(ImageSpec::from).collect();
        let written = write(version, &specs);
        let again = parse_section(&written).expect("what was written");
        assert_eq!(again.len(), binary.len());
        for (again, image) in again.iter().zip(binary) {
            assert_eq!((again.version, again.image_kind, again.offload_kind), (version, image.image_kind, image.offload_kind));
            assert!(again.flags == image.flags && again.image == image.image);
            for (key, _) in &image.strings {
                assert_eq!(again.get(key), image.get(key));
            }
        }
        let specs: Vec<ImageSpec> = again.iter().map(ImageSpec::from).collect();
        assert!(write(version, &specs) == written);
    }
});

fn write(version: u32, specs: &[ImageSpec]) -> Vec<u8> {
    match version {
        1 => write_v1(&specs[0]),
        2 => write_v2(specs),
        _ => write_v3(specs, None),
    }
}
