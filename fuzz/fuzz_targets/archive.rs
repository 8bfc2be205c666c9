//! Archives and thin archives, also those that name members of another one: members lie in the input, in order and side by side.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offload_object::Archive;
use warplink_fuzz::{bounded, is_part};

fuzz_target!(|data: &[u8]| {
    // An archive, and perhaps the one that it names members of.
    let inner = data.iter().skip(1).zip(1..).find(|(byte, at)| **byte == b'!' && data[*at..].starts_with(b"!<arch>\n"));
    let (outer, inner) = data.split_at(inner.map_or(data.len(), |(_, at)| at));
    let inner = Archive::parse(inner);
    for data in [data, outer] {
        let Ok(archive) = Archive::parse(data) else { continue };
        let members = bounded(data.len(), 64, || archive.members().collect::<Vec<_>>());
        assert!(members.iter().flatten().count() <= data.len() / 60);
        let mut before = 0;
        for member in members.iter().flatten() {
            assert!(member.header_offset >= before && is_part(data, member.name));
            before = member.header_offset + 60;
            assert_eq!(member.data.is_none(), archive.is_thin());
            if let Some(bytes) = member.data {
                assert!(is_part(data, bytes) && bytes.len() as u64 == member.size);
                before += member.size;
            }
            assert_eq!(archive.member_at(member.header_offset).as_ref(), Ok(member));
            if let (Some(offset), Ok(inner)) = (member.nested, &inner)
                && let Ok(nested) = inner.member_at(offset)
            {
                assert_eq!(nested.header_offset, offset);
            }
        }
        // An error ends the walk.
        assert!(members.iter().position(Result::is_err).is_none_or(|at| at == members.len() - 1));
    }
});
