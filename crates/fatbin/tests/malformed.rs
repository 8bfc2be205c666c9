//! Each field of each header of fat binaries and cubins set wrong in turn: to 0, 1, the largest value, one off, the end of the file and past
//! it, and to what its neighbours hold, so that parts overlap. Nothing is read outside of the file and nothing multiplies. The words of the
//! errors are tested in container.rs and cubin.rs.

mod support;

use fatbin::cubin::Cubin;
use fatbin::{Arch, Compression, Image, Kind, containers, read, section_containers, write};
use support::{Section, cubin, head, old_head, symbol};

const PTX: &[u8] = b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }";

fn get(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn set(bytes: &mut [u8], at: usize, width: usize, value: u64) {
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

/// Calls `look` with the field at `at` wrong in each way. Gives how many there were.
fn each_wrong(good: &[u8], at: usize, width: usize, look: impl Fn(&[u8])) -> usize {
    let (own, most, len) = (get(good, at, width), u64::MAX >> (64 - 8 * width), good.len() as u64);
    let mut values = vec![0, 1, most, most - 1, most / 2, most / 2 + 1, own.wrapping_add(1), own.wrapping_sub(1), own.wrapping_add(8)];
    values.extend([own.wrapping_sub(8), own.wrapping_mul(2), own ^ (most / 2 + 1), len - 1, len, len + 1, len - 16]);
    let neighbours = [at.checked_sub(width), Some(at + width)].into_iter().flatten().filter(|at| at + width <= good.len());
    values.extend(neighbours.map(|at| get(good, at, width)));
    values.iter_mut().for_each(|value| *value &= most);
    values.retain(|value| *value != own);
    values.sort();
    values.dedup();
    for value in &values {
        let mut bytes = good.to_vec();
        set(&mut bytes, at, width, *value);
        look(&bytes);
    }
    values.len()
}

fn is_part(whole: &[u8], part: &[u8]) -> bool {
    let (whole, part) = (whole.as_ptr_range(), part.as_ptr_range());
    part.is_empty() || (whole.start <= part.start && part.end <= whole.end)
}

/// Reads everything of what may be a container.
fn look_at_container(bytes: &[u8]) {
    let _ = read(bytes);
    for (_, container) in containers(bytes).chain(section_containers(bytes)) {
        let Ok(container) = container else { continue };
        assert!(is_part(bytes, container.bytes()));
        for entry in container.entries().unwrap_or_default() {
            assert!(is_part(bytes, entry.bytes()) && is_part(bytes, entry.stored));
            assert!(entry.compat.is_none_or(|compat| is_part(bytes, compat)));
            if let Ok(payload) = entry.payload() {
                assert!(payload.len() as u64 <= entry.uncompressed_size);
            }
            let parts = entry.parts().unwrap_or_default();
            assert!(parts.iter().map(|part| part.size).sum::<u64>() <= entry.uncompressed_size);
        }
    }
}

const ENTRY: [(usize, usize); 14] =
    [(0, 2), (2, 2), (4, 4), (8, 8), (16, 4), (20, 4), (24, 2), (26, 2), (28, 4), (32, 4), (36, 4), (40, 8), (48, 8), (56, 8)];

#[test]
fn every_field_of_containers() {
    let cubin = cubin(head(90), &sections());
    let image = Image {
        kind: Kind::Ptx,
        arch: Arch::new(90),
        data: PTX,
        ident: Some("a.cu"),
        options: "-O3",
        debug: false,
        compression: Compression::None,
    };
    let elf = Image { kind: Kind::Elf, data: &cubin, ident: None, options: "", ..image };
    let mut tried = 0;
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd(3)] {
        let good = write(&[Image { compression, ..image }, Image { compression, ..elf }]).expect("write");
        look_at_container(&good);
        for (at, width) in [(0, 4), (4, 2), (6, 2), (8, 8)] {
            tried += each_wrong(&good, at, width, look_at_container);
        }
        let second = 16 + read(&good).expect("read")[0].bytes().len();
        for start in [16, second] {
            for (at, width) in ENTRY {
                tried += each_wrong(&good, start + at, width, look_at_container);
            }
        }
        // The options block of the first: where they are, how long they are.
        let options = 16 + get(&good, 36, 4) as usize;
        tried += each_wrong(&good, options, 4, look_at_container) + each_wrong(&good, options + 4, 4, look_at_container);
    }
    assert!(tried > 1000, "{tried}");
}

fn sections() -> Vec<Section> {
    let symbols = [symbol(0, 0, 0, 0, 0, 0), symbol(1, 0x12, 0x10, 3, 0, 16), symbol(3, 0x10, 0, 0, 0, 0), symbol(5, 0x11, 0, 4, 0, 40)];
    let mut table = Section::new(".symtab", 2, symbols.as_flattened());
    table.link = 1;
    let mut relocations = Section::new(".rel.text.k", 9, &[[0; 8], [0x39, 0, 0, 0, 2, 0, 0, 0]].concat());
    relocations.link = 2;
    vec![
        Section::new(".strtab", 3, b"\0k\0f\0g\0"),
        table,
        Section::new(".text.k", 1, &[0; 128]),
        Section::nobits(".nv.global", 0x7000_0007, 40),
        Section::new(".nv.info", 0x7000_0000, &[4, 0x2f, 8, 0, 1, 0, 0, 0, 24, 0, 0, 0]),
        Section::new(".nv.info.k", 0x7000_0000, &[4, 5, 12, 0, 128, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]),
        relocations,
        Section::new(".nv.callgraph", 0x7000_0001, &[0, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 2, 0, 0, 0, 1, 0, 0, 0]),
    ]
}

fn look_at_cubin(bytes: &[u8]) {
    let Ok(cubin) = Cubin::parse(bytes) else { return };
    assert!(cubin.sections().iter().all(|section| is_part(bytes, section.data) && is_part(bytes, section.name.as_bytes())));
    assert!(cubin.symbols().iter().all(|symbol| is_part(bytes, symbol.name.as_bytes())));
    assert!(cubin.symbols().iter().flat_map(|symbol| symbol.section).all(|section| section < cubin.sections().len()));
    assert!(cubin.kernels().is_ok_and(|kernels| kernels.len() <= cubin.symbols().len()) || cubin.kernels().is_err());
    let _ = (cubin.variables().count(), cubin.size_of_sections(".text"));
    if let Ok(Some(marked)) = Cubin::with_kernels_marked(bytes, |name| name == "f") {
        assert_eq!(marked.len(), bytes.len());
    }
}

#[test]
fn every_field_of_cubins() {
    let mut tried = 0;
    for head in [head(90), old_head(80)] {
        let good = cubin(head, &sections());
        assert!(Cubin::with_kernels_marked(&good, |name| name == "f").expect("cubin").is_some());
        look_at_cubin(&good);
        let header = [
            (4, 1),
            (5, 1),
            (6, 1),
            (7, 1),
            (8, 1),
            (16, 2),
            (18, 2),
            (20, 4),
            (24, 8),
            (32, 8),
            (40, 8),
            (48, 4),
            (52, 2),
            (54, 2),
            (56, 2),
            (58, 2),
            (60, 2),
            (62, 2),
        ];
        for (at, width) in header {
            tried += each_wrong(&good, at, width, look_at_cubin);
        }
        let (table, count) = (get(&good, 40, 8) as usize, get(&good, 60, 2) as usize);
        for section in (0..count).map(|section| table + 64 * section) {
            for (at, width) in [(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8), (56, 8)] {
                tried += each_wrong(&good, section + at, width, look_at_cubin);
            }
        }
        let symbols = get(&good, table + 128 + 24, 8) as usize;
        for symbol in (0..4).map(|symbol| symbols + 24 * symbol) {
            for (at, width) in [(0, 4), (4, 1), (5, 1), (6, 2), (8, 8), (16, 8)] {
                tried += each_wrong(&good, symbol + at, width, look_at_cubin);
            }
        }
    }
    assert!(tried > 2000, "{tried}");
}

/// Parts of one payload that are all of it, many times over.
#[test]
fn concatenated_images_do_not_multiply() {
    let single = write(&[Image {
        kind: Kind::Ptx,
        arch: Arch::new(90),
        data: PTX,
        ident: None,
        options: "",
        debug: false,
        compression: Compression::None,
    }])
    .expect("write");
    let entry = &read(&single).expect("read")[0];
    let (header, payload) = entry.bytes().split_at(entry.bytes().len() - entry.stored.len());
    let concatenated = |count: usize| {
        let mut part = header.to_vec();
        part[4..8].fill(0);
        part[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        let list = part.repeat(count);
        let mut bytes = single[..16].to_vec();
        bytes.extend([0; 64]);
        bytes[16..20].copy_from_slice(&[0, 1, 1, 1]);
        bytes[20..24].copy_from_slice(&(72 + list.len() as u32).to_le_bytes());
        bytes[24..32].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        bytes[36..40].copy_from_slice(&64u32.to_le_bytes());
        bytes[56..64].copy_from_slice(&0x11u64.to_le_bytes());
        bytes.extend((count as u32).to_le_bytes());
        bytes.extend((8 + list.len() as u32).to_le_bytes());
        bytes.extend(list);
        bytes.extend(payload);
        let size = bytes.len() as u64 - 16;
        bytes[8..16].copy_from_slice(&size.to_le_bytes());
        bytes
    };
    let parts = |bytes: &[u8]| read(bytes).expect("read")[0].parts().map(|parts| parts.len()).map_err(|error| error.to_string());
    assert_eq!(parts(&concatenated(1)), Ok(1));
    assert_eq!(parts(&concatenated(1000)), Err("concatenated images overlap".to_owned()));
}
