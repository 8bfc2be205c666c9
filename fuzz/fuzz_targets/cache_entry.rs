//! Entries of the cache: as they lie on the disk, and with a right checksum, so that what is behind it is reached.
#![no_main]

use device_link::cache::{Key, Kind, fuzzing};
use libfuzzer_sys::fuzz_target;
use warplink_fuzz::bounded;

fuzz_target!(|data: &[u8]| {
    let key = Key::from_bytes([7; 32]);
    for kind in Kind::ALL {
        assert!(fuzzing::decode(data, kind, &key).is_err() || data.len() >= 96);
        let sealed = fuzzing::sealed(data, kind, &key);
        let Ok(entry) = bounded(data.len(), 64, || fuzzing::decode(&sealed, kind, &key)) else { continue };
        let texts = entry.warnings.iter().map(|warning| warning.name.len() + warning.text.len()).sum::<usize>();
        assert!(entry.sections.iter().map(Vec::len).sum::<usize>() + texts <= data.len());
        let sections: Vec<&[u8]> = entry.sections.iter().map(Vec::as_slice).collect();
        assert!(fuzzing::encode(kind, &key, &sections, &entry.warnings) == sealed);
    }
    bounded(data.len(), 256, || {
        fuzzing::record(data);
        fuzzing::facts(data);
        fuzzing::history(data);
    });
});
