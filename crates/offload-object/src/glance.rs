//! Whether an ELF object may hold device code, from as few of its bytes as that takes.
//!
//! Most objects of most link lines hold none, and to read their section tables alone costs a fifth of what mapping the whole files costs.

use crate::bytes;
use crate::file::{FileKind, file_kind};
use crate::{NVCC_MODULES_SECTION, SHT_LLVM_OFFLOADING};

/// Section tables and name tables that are larger than this are left to those who map the file.
const LARGE: u64 = 1 << 20;

/// Bytes before the section table that are read with it: that is where assemblers put the names.
const BEFORE_TABLE: u64 = 2048;

/// Up to so many bytes for each name that is looked for, reading all names costs no more than reading those.
const WORTH_A_READ: u64 = 4096;

const SHT_PROGBITS: u32 = 1;
const SHF_ALLOC: u64 = 2;
/// From here on section numbers mean something else (`SHN_LORESERVE`).
const RESERVED: u16 = 0xff00;
const SECTION_HEADER: u64 = 64;

/// Whether [`HostObject::has_offload_section`](crate::HostObject::has_offload_section) or
/// [`HostObject::has_nvcc_modules`](crate::HostObject::has_nvcc_modules) would be true of an object that begins with `head`. `read` fills a
/// buffer with the bytes at an offset, and says whether they were there.
///
/// `None` where that has to be seen from the whole: it is no little-endian ELF object of 64 bits, or an unusual one, or not well-formed.
pub fn may_hold_device_code(head: &[u8], mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<bool> {
    const CLASS_64_LITTLE: [u8; 2] = [2, 1];
    if file_kind(head) != FileKind::ElfRelocatable || bytes::array::<2>(head, 4)? != CLASS_64_LITTLE {
        return None;
    }
    let table = bytes::u64_le(head, 0x28)?;
    let (entry_size, count, names) = (bytes::u16_le(head, 0x3a)?, bytes::u16_le(head, 0x3c)?, bytes::u16_le(head, 0x3e)?);
    let size = u64::from(count) * SECTION_HEADER;
    let end = table.checked_add(size)?;
    if u64::from(entry_size) != SECTION_HEADER || count == 0 || count >= RESERVED || names >= count || size > LARGE {
        return None;
    }
    let mut seen = Window { start: 0, bytes: head.into() };
    if end > head.len() as u64 {
        seen = Window::read(table.saturating_sub(BEFORE_TABLE)..end, &mut read)?;
    }
    let headers = seen.get(table, size)?;
    let header = |index: u16| bytes::slice(headers, u64::from(index) * SECTION_HEADER, SECTION_HEADER);

    // In the order of the table: type, flags, and where the name is. Read-only data is what nvcc's modules name themselves in.
    let mut candidates = Vec::new();
    for index in 0..count {
        let header = header(index)?;
        let kind = bytes::u32_le(header, 4)?;
        if kind == SHT_LLVM_OFFLOADING {
            return Some(true);
        }
        if kind == SHT_PROGBITS && bytes::u64_le(header, 8)? == SHF_ALLOC {
            candidates.push(u64::from(bytes::u32_le(header, 0)?));
        }
    }
    let (names_at, names_size) = (bytes::u64_le(header(names)?, 24)?, bytes::u64_le(header(names)?, 32)?);
    let names_end = names_at.checked_add(names_size)?;
    // Where there is no name to look at, nobody looks whether the table of names is there.
    if candidates.is_empty() {
        return Some(false);
    }
    let mut wanted = [0; NVCC_MODULES_SECTION.len() + 1];
    wanted.get_mut(..NVCC_MODULES_SECTION.len())?.copy_from_slice(NVCC_MODULES_SECTION.as_bytes());
    // A name that ends closer to the end of the table than this one would is another.
    candidates.retain(|name| name.checked_add(wanted.len() as u64).is_some_and(|end| end <= names_size));
    let unseen = |candidates: &[u64], seen: &Window| {
        candidates.iter().filter(|&&name| seen.get(names_at + name, wanted.len() as u64).is_none()).count() as u64
    };
    let missing = unseen(&candidates, &seen);
    if missing > 0 && names_size <= missing.saturating_mul(WORTH_A_READ) {
        if names_size > LARGE {
            return None;
        }
        seen = Window::read(names_at..names_end, &mut read)?;
    }
    for name in candidates {
        let at = names_at + name;
        let mut own = [0; NVCC_MODULES_SECTION.len() + 1];
        let found = match seen.get(at, wanted.len() as u64) {
            Some(found) => found,
            None if read(at, &mut own) => &own,
            None => return None,
        };
        if found == wanted {
            return Some(true);
        }
    }
    Some(false)
}

/// Some of a file's bytes.
struct Window<'a> {
    start: u64,
    bytes: std::borrow::Cow<'a, [u8]>,
}

impl Window<'_> {
    fn read(range: std::ops::Range<u64>, read: &mut impl FnMut(u64, &mut [u8]) -> bool) -> Option<Self> {
        let mut bytes = vec![0; usize::try_from(range.end.checked_sub(range.start)?).ok()?];
        read(range.start, &mut bytes).then_some(Window { start: range.start, bytes: bytes.into() })
    }

    fn get(&self, offset: u64, length: u64) -> Option<&[u8]> {
        bytes::slice(&self.bytes, offset.checked_sub(self.start)?, length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::HostObject;

    /// An object with these sections (name, type, flags), each of `size` bytes, its names `early` (before the contents) or right before
    /// the section table.
    fn object(sections: &[(&str, u32, u64)], size: usize, early: bool) -> Vec<u8> {
        let mut names = vec![0];
        let mut headers = vec![[0; 64]];
        let mut bytes = vec![0; 64];
        let mut add = |bytes: &Vec<u8>, name: &str, kind: u32, flags: u64, size: usize| {
            let mut header = [0; 64];
            header[..4].copy_from_slice(&(names.len() as u32).to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[8..16].copy_from_slice(&flags.to_le_bytes());
            header[24..32].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(size as u64).to_le_bytes());
            names.extend_from_slice(name.as_bytes());
            names.push(0);
            headers.push(header);
        };
        let names_size = 1 + ".shstrtab".len() + 1 + sections.iter().map(|(name, ..)| name.len() + 1).sum::<usize>();
        if early {
            add(&bytes, ".shstrtab", 3, 0, names_size);
            bytes.resize(64 + names_size, 0);
        }
        for &(name, kind, flags) in sections {
            add(&bytes, name, kind, flags, size);
            bytes.resize(bytes.len() + size, 0x55);
        }
        if !early {
            add(&bytes, ".shstrtab", 3, 0, names_size);
            bytes.extend_from_slice(&names);
        } else {
            bytes[64..64 + names_size].copy_from_slice(&names);
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let table = bytes.len() as u64;
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16] = 1;
        bytes[18] = 62;
        bytes[20] = 1;
        bytes[0x28..0x30].copy_from_slice(&table.to_le_bytes());
        bytes[0x34] = 64;
        bytes[0x3a] = 64;
        bytes[0x3c..0x3e].copy_from_slice(&(headers.len() as u16).to_le_bytes());
        let index = if early { 1 } else { headers.len() as u16 - 1 };
        bytes[0x3e..0x40].copy_from_slice(&index.to_le_bytes());
        bytes.extend(headers.concat());
        bytes
    }

    /// What a glance says with `head` bytes read at first, and how many bytes it read then.
    fn glance(bytes: &[u8], head: usize) -> (Option<bool>, usize) {
        let mut read = 0;
        let answer = may_hold_device_code(&bytes[..head.min(bytes.len())], |offset, buffer| {
            read += buffer.len();
            let found = bytes::slice(bytes, offset, buffer.len() as u64);
            found.is_some_and(|found| {
                buffer.copy_from_slice(found);
                true
            })
        });
        (answer, read)
    }

    fn whole(bytes: &[u8]) -> bool {
        HostObject::parse(bytes).is_ok_and(|object| object.has_offload_section() || object.has_nvcc_modules())
    }

    #[test]
    fn a_glance_sees_what_the_whole_shows() {
        let text = (".text", 1, 6);
        let data = (".rodata", 1, 2);
        let long: Vec<(String, u32, u64)> = (0..300).map(|i| (format!(".rodata._ZTS{i:0100}"), 1, 2)).collect();
        let mut many: Vec<(&str, u32, u64)> = long.iter().map(|(name, kind, flags)| (name.as_str(), *kind, *flags)).collect();
        let check = |sections: &[(&str, u32, u64)], expected: bool| {
            for size in [16, 5000] {
                for early in [false, true] {
                    let bytes = object(sections, size, early);
                    assert_eq!(whole(&bytes), expected);
                    for head in [64, 4096, usize::MAX] {
                        let (answer, read) = glance(&bytes, head);
                        assert_eq!(answer, Some(expected), "{sections:?} {size} {early} {head}");
                        assert!(read < 80_000 && (sections.len() > 10 || read < 5000), "{read} bytes");
                    }
                }
            }
        };
        check(&[], false);
        check(&[text, data], false);
        check(&[text, (".llvm.offloading", SHT_LLVM_OFFLOADING, 0), data], true);
        // The type counts, not the name.
        check(&[text, (".llvm.offloading", 1, 0)], false);
        check(&[text, data, ("__nv_module_id", 1, 2)], true);
        check(&[text, data, ("__nv_module_id", 1, 3)], false);
        check(&[text, data, ("__nv_module_ids", 1, 2), ("_nv_module_id", 1, 2), ("x__nv_module_id", 1, 2)], false);
        check(&many, false);
        many.push(("__nv_module_id", 1, 2));
        check(&many, true);
    }

    #[test]
    fn other_files_are_left_to_others() {
        let bytes = object(&[(".text", 1, 6)], 16, false);
        for (at, value) in [(0, 0), (4, 1), (5, 2), (16, 3), (18, 190), (0x3a, 40), (0x3c, 0), (0x3e, 9), (0x2a, 9)] {
            let mut other = bytes.clone();
            other[at] = value;
            assert_eq!(glance(&other, 64).0, None, "{at}");
        }
        assert_eq!(glance(&bytes[..bytes.len() - 1], 64).0, None);
        assert_eq!(glance(b"!<arch>\n", 64).0, None);
        assert_eq!(may_hold_device_code(&bytes[..64], |_, _| false), None);
    }

    proptest! {
        #[test]
        fn a_glance_overlooks_nothing(
            names in proptest::collection::vec(
                (prop::sample::select(vec![".text", ".rodata", "__nv_module_id", ".llvm.offloading"]), 0_u32..3, 0_u64..4), 0..6),
            early: bool,
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            head in 0_usize..600,
        ) {
            let kinds = [1, 8, SHT_LLVM_OFFLOADING];
            let sections: Vec<_> = names.iter().map(|&(name, kind, flags)| (name, kinds[kind as usize], flags)).collect();
            let mut bytes = object(&sections, 16, early);
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            // What is not well-formed may look more interesting than it is, never less.
            prop_assert!(glance(&bytes, head).0 != Some(false) || !whole(&bytes));
        }
    }
}
