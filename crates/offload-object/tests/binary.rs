//! Offload binaries: bytes built by hand against the layout in the header file, LLVM's own writer, and everything that can be wrong.

mod common;

use std::borrow::Cow;

use common::{read, run, scratch, tool, write};
use offload_object::{Error, ImageKind, ImageSpec, OffloadImage, OffloadKind, parse_section, set_metadata, write_v1, write_v2, write_v3};
use proptest::prelude::*;

/// One string pair as this file builds it: the key, and where its value starts in the string table.
struct Built {
    bytes: Vec<u8>,
}

impl Built {
    fn put(&mut self, at: usize, value: &[u8]) {
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }
}

/// Version 1 with one image, `triple` = nvptx64, `arch` = 64 (the end of nvptx64, as LLVM shares it).
fn v1() -> Built {
    let mut built = Built { bytes: vec![0; 136] };
    built.put(0, &[0x10, 0xff, 0x10, 0xad, 1, 0, 0, 0]);
    for (at, value) in [(8, 136), (16, 32), (24, 40)] {
        built.u64(at, value);
    }
    // entry
    built.put(32, &[2, 0, 2, 0, 7, 0, 0, 0]);
    for (at, value) in [(40, 72), (48, 2), (56, 128), (64, 5)] {
        built.u64(at, value);
    }
    // string entries
    for (at, value) in [(72, 105), (80, 112), (88, 120), (96, 117)] {
        built.u64(at, value);
    }
    built.put(104, b"\0triple\0nvptx64\0");
    built.put(120, b"arch\0");
    built.put(128, b"IMAGE");
    built
}

fn image<'a>(version: u32, strings: &[(&'a str, &'a str)], bytes: &'a [u8]) -> OffloadImage<'a> {
    OffloadImage {
        version,
        image_kind: ImageKind::Bitcode,
        offload_kind: OffloadKind::CUDA,
        flags: 7,
        strings: strings.iter().map(|(key, value)| (Cow::Borrowed(*key), Cow::Borrowed(*value))).collect(),
        image: Cow::Borrowed(bytes),
        offset: 0,
    }
}

#[test]
fn version_1() {
    let built = v1();
    let images = parse_section(&built.bytes).unwrap();
    assert_eq!(images, [image(1, &[("triple", "nvptx64"), ("arch", "64")], b"IMAGE")]);
    assert_eq!(images[0].triple(), "nvptx64");
    assert_eq!(images[0].arch(), "64");
    assert_eq!(images[0].get("feature"), None);
    assert_eq!(images[0].offload_kind.names().collect::<Vec<_>>(), ["cuda"]);
    assert_eq!(images[0].image_kind.name(), "bc");
}

#[test]
fn version_2_has_many_entries_and_sized_values() {
    let mut built = Built { bytes: vec![0; 192] };
    built.put(0, &[0x10, 0xff, 0x10, 0xad, 2, 0, 0, 0]);
    for (at, value) in [(8, 192), (16, 32), (24, 2)] {
        built.u64(at, value);
    }
    for (entry, strings, count, image, size) in [(32, 112, 2u64, 184, 3), (72, 160, 0, 187, 2)] {
        built.put(entry, &[2, 0, 2, 0, 7, 0, 0, 0]);
        for (at, value) in [(8, strings), (16, count), (24, image), (32, size)] {
            built.u64(entry + at, value);
        }
    }
    for (at, value) in [(112, 161), (120, 166), (128, 5), (136, 172), (144, 166), (152, 1)] {
        built.u64(at, value);
    }
    built.put(160, b"\0arch\0sm\090\0symbols\0");
    built.put(184, b"onetw");
    let images = parse_section(&built.bytes).unwrap();
    assert_eq!(images, [image(2, &[("arch", "sm\090"), ("symbols", "s")], b"one"), image(2, &[], b"tw")]);
}

#[test]
fn version_3_stored() {
    let mut built = Built { bytes: vec![0; 80] };
    built.put(0, &[0x10, 0xff, 0x10, 0xad, 3, 0, 0, 0]);
    for (at, value) in [(8, 80), (16, 40), (24, 1), (32, 0)] {
        built.u64(at, value);
    }
    built.put(40, &[2, 0, 2, 0, 7, 0, 0, 0]);
    built.u64(64, 80);
    assert_eq!(parse_section(&built.bytes).unwrap(), [image(3, &[], b"")]);
}

#[test]
fn version_3_zlib() {
    // The entry and the image "x" of a version 3 binary, as a stored deflate block.
    let mut body = vec![0u8; 48];
    body[..8].copy_from_slice(&[2, 0, 2, 0, 7, 0, 0, 0]);
    body[24..32].copy_from_slice(&80u64.to_le_bytes());
    body[32..40].copy_from_slice(&1u64.to_le_bytes());
    body[40] = b'x';
    let mut packed = vec![0x78, 0x01, 0x01, 48, 0, !48, 0xff];
    packed.extend(&body);
    let (a, b) = body.iter().fold((1u32, 0u32), |(a, b), byte| (a + u32::from(*byte), b + a + u32::from(*byte)));
    packed.extend((((b % 65521) << 16) | (a % 65521)).to_be_bytes());
    let mut bytes = vec![0x10, 0xff, 0x10, 0xad, 3, 0, 0, 0];
    for value in [40 + packed.len() as u64, 40, 1, 88] {
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(packed);
    let size = bytes.len();
    // Another binary follows at the next multiple of 8.
    bytes.resize(size.next_multiple_of(8), 0);
    let second = bytes.len();
    bytes.extend(v1().bytes);
    let images = parse_section(&bytes).unwrap();
    assert_eq!(images[0], image(3, &[], b"x"));
    assert_eq!((images[1].version, images[1].offset), (1, second));

    // A checksum that is wrong.
    bytes[size - 1] ^= 1;
    assert_eq!(parse_section(&bytes), Err(Error("zlib data has a wrong checksum")));
}

#[test]
fn concatenated_misaligned_and_padded() {
    let mut bytes = vec![0xee];
    bytes.extend(v1().bytes);
    bytes.extend(v1().bytes);
    bytes.extend([0; 24]);
    let images = parse_section(&bytes[1..]).unwrap();
    assert_eq!(images.iter().map(|image| image.offset).collect::<Vec<_>>(), [0, 136]);
    assert_eq!(images[0].image, images[1].image);
    assert_eq!(parse_section(&[]), Ok(vec![]));
    assert_eq!(parse_section(&[0; 16]), Ok(vec![]));
}

#[test]
fn every_wrong_field() {
    let wrong = |edit: &dyn Fn(&mut Built), expected: &'static str| {
        let mut built = v1();
        edit(&mut built);
        assert_eq!(parse_section(&built.bytes), Err(Error(expected)));
    };
    wrong(&|b| b.bytes[0] = 0x11, "offload binary has a wrong magic number");
    for version in [0, 4, 9] {
        wrong(&|b| b.bytes[4] = version, "offload binary has an unknown version");
    }
    wrong(&|b| b.u64(8, 31), "offload binary is smaller than its header");
    wrong(&|b| b.u64(8, 137), "offload binary goes past the end of its section");
    wrong(&|b| b.u64(8, u64::MAX), "offload binary goes past the end of its section");
    wrong(&|b| b.u64(16, 31), "offload binary has its entries inside the header");
    for offset in [97, 137, u64::MAX - 8, u64::MAX] {
        wrong(&|b| b.u64(16, offset), "offload binary has its entries outside");
    }
    wrong(&|b| b.u64(24, 39), "offload binary has a wrong entry size");
    for (count, offset) in [(5, 72), (2, 105), (u64::MAX, 72), (1 << 60, 72), (2, u64::MAX)] {
        wrong(
            &|b| {
                b.u64(40, offset);
                b.u64(48, count);
            },
            match count {
                u64::MAX | 0x1000_0000_0000_0000 => "offload binary has a string outside",
                _ => "offload binary has its string entries outside",
            },
        );
    }
    for (at, value) in [(56, 132), (56, u64::MAX), (64, 9), (64, u64::MAX)] {
        wrong(&|b| b.u64(at, value), "offload image is outside its binary");
    }
    for at in [72, 80, 88, 96] {
        for value in [136, u64::MAX] {
            wrong(&|b| b.u64(at, value), "offload binary has a string outside");
        }
    }
    // A string without an end.
    wrong(
        &|b| {
            b.put(128, &[b'x'; 8]);
            b.u64(96, 130);
        },
        "offload binary has a string outside",
    );
    wrong(&|b| b.bytes[113] = 0xff, "offload binary has a string that is not UTF-8");

    let mut two = Built { bytes: write_v2(&[]) };
    two.u64(24, u64::MAX);
    assert_eq!(parse_section(&two.bytes), Err(Error("offload binary has its entries outside")));
}

#[test]
fn every_wrong_field_of_version_3() {
    let good = write_v3(&[spec()], Some(3));
    assert_eq!(parse_section(&good).unwrap()[0].image.len(), spec().image.len());
    let wrong = |at: usize, value: u64, expected: &'static str| {
        let mut built = Built { bytes: good.clone() };
        built.u64(at, value);
        assert_eq!(parse_section(&built.bytes), Err(Error(expected)), "{at} = {value}");
    };
    let inflated = u64::from_le_bytes(good[32..40].try_into().unwrap());
    wrong(8, 39, "offload binary is smaller than its header");
    wrong(16, 39, "offload binary has its entries inside the header");
    wrong(16, good.len() as u64 + 1, "offload binary has its entries outside");
    wrong(32, 39, "offload binary has a wrong inflated size");
    wrong(32, inflated - 1, "zstd data has another size than stated");
    wrong(32, inflated + 1, "zstd data has another size than stated");
    wrong(32, u64::MAX, "offload binary claims to inflate to more than 4 GiB");
    // Not the magic of zstd, so zlib.
    let mut built = Built { bytes: good.clone() };
    built.bytes[40] ^= 1;
    assert_eq!(parse_section(&built.bytes), Err(Error("zlib data is damaged")));
    let mut built = Built { bytes: good.clone() };
    built.bytes[44..50].fill(0xff);
    assert_eq!(parse_section(&built.bytes), Err(Error("zstd data is damaged")));
}

#[test]
fn truncation_never_panics() {
    for good in [v1().bytes, write_v2(&[spec(), spec()]), write_v3(&[spec()], None), write_v3(&[spec()], Some(1))] {
        for len in 1..good.len() {
            // Only padding may be missing.
            let cut = parse_section(&good[..len]);
            let padding = good[len..].iter().all(|&byte| byte == 0) && good.len() - len < 8;
            assert!(cut.is_err() || padding, "{len} of {}", good.len());
        }
    }
}

fn spec() -> ImageSpec {
    ImageSpec {
        image_kind: ImageKind::Bitcode,
        offload_kind: OffloadKind::CUDA,
        flags: 0,
        strings: vec![
            ("feature".into(), "+ptx88".into()),
            ("arch".into(), "sm_90".into()),
            ("triple".into(), "nvptx64-nvidia-cuda".into()),
        ],
        image: b"BC\xc0\xde bitcode, which compresses compresses compresses compresses".to_vec(),
    }
}

#[test]
fn one_string_ends_another() {
    let mut spec = spec();
    spec.strings = [("a", "sm_90"), ("90", "m_90"), ("b", "a"), ("c", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let bytes = write_v1(&spec);
    // NUL, then "sm_90", "c", "b", "a" each once, compared from their ends and downwards; nothing else.
    let table = 32 + 40 + 4 * 16;
    assert_eq!(&bytes[table..table + 13], b"\0c\0b\0a\0sm_90\0");
    let images = parse_section(&bytes).unwrap();
    assert_eq!(ImageSpec::from(&images[0]), spec);
}

#[test]
fn a_key_that_comes_twice() {
    let mut spec = spec();
    spec.strings = [("a", "1"), ("b", "2"), ("a", "3")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let bytes = write_v1(&spec);
    let images = parse_section(&bytes).unwrap();
    assert_eq!(images[0].strings, [("a".into(), "3".into()), ("b".into(), "2".into())]);
}

/// Other writers may leave both: the last one counts, as in LLVM, and is the one that a change changes.
#[test]
fn a_key_that_is_stored_twice() {
    let mut built = v1();
    // `triple` = nvptx64, then `triple` = arch.
    built.u64(88, 105);
    built.u64(96, 120);
    let images = parse_section(&built.bytes).unwrap();
    assert_eq!(images[0].strings, [("triple".into(), "nvptx64".into()), ("triple".into(), "arch".into())]);
    assert_eq!(images[0].triple(), "arch");
    let (changed, count) = set_metadata(&built.bytes, "triple", Some("other")).unwrap();
    assert_eq!((count, parse_section(&changed).unwrap()[0].triple()), (1, "other"));
    assert_eq!(set_metadata(&changed, "triple", Some("other")).unwrap(), (changed, 0));
}

/// A few bytes that stand for many: each entry refers to all strings, each string and image to most of the binary.
#[test]
fn what_is_shared_does_not_multiply() {
    let text = "x".repeat(60_000);
    let mut one = spec();
    one.strings = (0..2000).map(|n| (n.to_string(), String::new())).collect();
    one.strings.push(("text".to_owned(), text));
    one.image = Vec::new();
    let good = write_v2(&[one.clone()]);
    assert_eq!(parse_section(&good).unwrap().len(), 1);
    // Every value is the long text.
    let mut built = Built { bytes: good.clone() };
    let pairs = 32 + 40;
    let long = built.bytes[pairs + 24 * 2000 + 8..pairs + 24 * 2001].to_vec();
    for pair in 0..2000 {
        built.put(pairs + 24 * pair + 8, &long);
    }
    assert_eq!(parse_section(&built.bytes), Err(Error("offload binary has more strings than it has room for")));
    // Every entry has all the strings of the first.
    let mut more = vec![one];
    more.resize(1000, ImageSpec { strings: Vec::new(), ..spec() });
    for version in [2, 3] {
        let mut built = Built { bytes: if version == 2 { write_v2(&more) } else { write_v3(&more, None) } };
        let entries = if version == 2 { 32 } else { 40 };
        let strings = built.bytes[entries + 8..entries + 24].to_vec();
        for entry in 1..1000 {
            built.put(entries + 40 * entry + 8, &strings);
        }
        assert_eq!(parse_section(&built.bytes), Err(Error("offload binary has more strings than it has room for")));
    }
    // Every entry has the whole binary as its image.
    let mut built = Built { bytes: write_v2(&[spec(), spec(), spec()]) };
    for entry in 0..3 {
        built.u64(32 + 40 * entry + 24, 0);
        built.u64(32 + 40 * entry + 32, built.bytes.len() as u64);
    }
    assert_eq!(parse_section(&built.bytes), Err(Error("offload images overlap")));
}

#[test]
fn same_bytes_as_llvm() {
    let Some(packager) = tool("llvm-offload-binary") else { return };
    let dir = scratch();
    let dir = dir.path();
    write(dir, "a.bc", b"BC\xc0\xde and some more");
    write(dir, "b.cubin", b"not really a cubin");
    write(dir, "empty.s", b"");
    type Case = (&'static str, &'static str, ImageKind, OffloadKind, &'static [(&'static str, &'static str)]);
    let cases: [Case; 6] = [
        (
            "a.bc",
            "triple=nvptx64-nvidia-cuda,arch=sm_90,kind=cuda,feature=+ptx88",
            ImageKind::Bitcode,
            OffloadKind::CUDA,
            &[("triple", "nvptx64-nvidia-cuda"), ("arch", "sm_90"), ("feature", "+ptx88")],
        ),
        (
            "b.cubin",
            "triple=nvptx64-nvidia-cuda,arch=sm_90a,kind=cuda",
            ImageKind::Cubin,
            OffloadKind::CUDA,
            &[("triple", "nvptx64-nvidia-cuda"), ("arch", "sm_90a")],
        ),
        ("empty.s", "triple=nvptx64,kind=openmp", ImageKind::Ptx, OffloadKind::OPENMP, &[("triple", "nvptx64")]),
        (
            "b.cubin",
            "arch=gfx90a:sramecc+:xnack-,triple=amdgcn-amd-amdhsa,kind=hip",
            ImageKind::Cubin,
            OffloadKind::HIP,
            &[("arch", "gfx90a:sramecc+:xnack-"), ("triple", "amdgcn-amd-amdhsa")],
        ),
        // Strings that share bytes in every way: equal, one the end of another, a key the end of a value, empty.
        (
            "a.bc",
            "triple=x,arch=x,kind=cuda,ptx=sm_90,px=90,90=m_90,x=,longer-x=longer-x",
            ImageKind::Bitcode,
            OffloadKind::CUDA,
            &[("triple", "x"), ("arch", "x"), ("ptx", "sm_90"), ("px", "90"), ("90", "m_90"), ("x", ""), ("longer-x", "longer-x")],
        ),
        (
            "a.bc",
            "triple=b,arch=a,kind=nonsense,a=ba,aa=aba,bbb=aaba",
            ImageKind::Bitcode,
            OffloadKind::NONE,
            &[("triple", "b"), ("arch", "a"), ("a", "ba"), ("aa", "aba"), ("bbb", "aaba")],
        ),
    ];
    for (file, keys, image_kind, offload_kind, strings) in cases {
        run(dir, &packager, &["-o", "out", &format!("--image=file={file},{keys}")]);
        let theirs = read(dir, "out");
        let images = parse_section(&theirs).unwrap();
        assert_eq!(images.len(), 1);
        let mut theirs_sorted: Vec<_> = images[0].strings.iter().map(|(k, v)| (&**k, &**v)).collect();
        let mut ours_sorted = strings.to_vec();
        theirs_sorted.sort();
        ours_sorted.sort();
        assert_eq!(theirs_sorted, ours_sorted, "{keys}");
        assert_eq!((images[0].image_kind, images[0].offload_kind, images[0].flags), (image_kind, offload_kind, 0), "{keys}");
        assert_eq!(images[0].image, read(dir, file));
        // The same strings in the same order give the same file.
        let ours = write_v1(&ImageSpec::from(&images[0]));
        assert_eq!(ours, theirs, "{keys}");
    }
}

#[test]
fn llvm_reads_what_we_write() {
    let Some(packager) = tool("llvm-offload-binary") else { return };
    let dir = scratch();
    let dir = dir.path();
    write(dir, "in", &write_v1(&spec()));
    run(dir, packager, &["in", "--image=file=out,triple=nvptx64-nvidia-cuda,arch=sm_90"]);
    assert_eq!(read(dir, "out"), spec().image);
}

fn any_spec() -> impl Strategy<Value = ImageSpec> {
    let strings = prop::collection::btree_map("[a-c]{1,3}", "[a-c_+]{0,4}", 0..5);
    let image = prop::collection::vec(any::<u8>(), 0..40);
    (any::<u16>(), any::<u16>(), any::<u32>(), strings, image).prop_map(|(image_kind, offload_kind, flags, strings, image)| ImageSpec {
        image_kind: image_kind.into(),
        offload_kind: OffloadKind(offload_kind),
        flags,
        strings: strings.into_iter().collect(),
        image,
    })
}

fn read_back(bytes: &[u8]) -> Vec<ImageSpec> {
    parse_section(bytes).unwrap().iter().map(ImageSpec::from).collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read(specs in prop::collection::vec(any_spec(), 1..4)) {
        let v1: Vec<u8> = specs.iter().flat_map(write_v1).collect();
        prop_assert_eq!(&read_back(&v1), &specs);
        prop_assert_eq!(&read_back(&write_v2(&specs)), &specs);
        prop_assert_eq!(&read_back(&write_v3(&specs, None)), &specs);
        let packed = write_v3(&specs, Some(1));
        prop_assert_eq!(packed.len() % 8, 0);
        prop_assert_eq!(&read_back(&packed), &specs);
        prop_assert_eq!(&read_back(&[packed, v1].concat()), &[&specs[..], &specs[..]].concat());
    }

    #[test]
    fn damage_never_panics(specs in prop::collection::vec(any_spec(), 1..3), edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        for mut bytes in [write_v1(&specs[0]), write_v2(&specs), write_v3(&specs, None), write_v3(&specs, Some(1))] {
            for (at, value) in &edits {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            let _ = parse_section(&bytes);
        }
    }
}
