//! Fat binaries: containers in any bytes, their entries and what these unpack to; entries written again are read as the same.
#![no_main]

use fatbin::{Compression, Image, Kind, container_of, containers, read, section_containers, write};
use libfuzzer_sys::fuzz_target;
use warplink_fuzz::{bounded, is_part, is_part_or_owned};

/// The most that an image of an input this small is unpacked to.
const LIMIT: u64 = 1 << 22;

fuzz_target!(|data: &[u8]| {
    let _ = read(data);
    let _ = fatbin::wrapper::Wrapper::parse(data).map(|wrapper| {
        assert_eq!(fatbin::wrapper::Wrapper::parse(&wrapper.to_bytes()), Ok(wrapper));
    });
    for (at, container) in containers(data).chain(section_containers(data)) {
        let Ok(container) = container else { continue };
        assert!(at < data.len() && is_part(data, container.bytes()));
        let Ok(entries) = bounded(data.len(), 64, || container.entries()) else { continue };
        let mut sum = 0;
        for entry in &entries {
            sum += entry.bytes().len();
            assert!(is_part(data, entry.bytes()) && is_part(data, entry.stored));
            assert!(entry.compat.is_none_or(|compat| is_part(data, compat)));
            // The decoder of zstd has a window of its own, and a vector that grows has two sizes.
            let payload = bounded(data.len(), 64, || ()).clone();
            let _ = payload;
            let payload = bounded(3 * LIMIT as usize, 1, || entry.payload_within(LIMIT));
            if let Ok(payload) = &payload {
                assert!(is_part_or_owned(data, payload) && payload.len() as u64 <= entry.uncompressed_size.min(LIMIT));
                assert!(entry.kind.is_ptx() || payload.len() as u64 == entry.uncompressed_size);
            }
            for part in entry.parts().unwrap_or_default() {
                assert!(part.offset + part.size <= entry.uncompressed_size);
            }
            let alone = container_of(entry);
            let again = read(&alone).expect("a container of one entry");
            assert!(again.len() == 1 && again[0].bytes() == entry.bytes() && again[0].kind == entry.kind);
            let Ok(payload) = payload else { continue };
            for compression in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
                let image = Image {
                    kind: entry.kind,
                    arch: entry.arch,
                    data: &payload,
                    ident: entry.ident.as_deref(),
                    options: entry.options.as_deref().unwrap_or_default(),
                    debug: entry.is_debug(),
                    compression,
                };
                let Ok(written) = write(&[image]) else { continue };
                let again = read(&written).expect("what was written");
                assert!(again.len() == 1 && again[0].kind == entry.kind && again[0].arch == entry.arch);
                let unpacked = again[0].payload().expect("what was written");
                // Of text comments and blanks are left out, and cubins are padded where they are stored.
                if !matches!(entry.kind, Kind::Ptx | Kind::RelocatablePtx) {
                    assert!(unpacked.starts_with(&payload) && unpacked.len() < payload.len() + 8);
                }
            }
        }
        assert_eq!(sum + 16, container.bytes().len());
    }
});
