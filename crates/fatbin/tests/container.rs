//! Containers without a toolkit: every field written and read, and every way to be malformed.

mod support;

use fatbin::{Arch, Compression, Entry, Flags, Image, Kind, Suffix, containers, read, section_containers, write};
use proptest::prelude::*;
use std::borrow::Cow;
use support::{Section, cubin, head, old_head};

const PTX: &[u8] = b"//\n.version 7.8\n.target sm_90\n.address_size 64\n\n  .visible .entry k() { ret; }";
const STRIPPED: &[u8] = b"\n.version 7.8\n.target sm_90\n.address_size 64\n\n.visible .entry k() { ret; }";

fn ptx_image() -> Image<'static> {
    Image { kind: Kind::Ptx, arch: Arch::new(90), data: PTX, ident: None, options: "", debug: false, compression: Compression::None }
}

fn arch(text: &str) -> Arch {
    text.parse().expect("arch")
}

fn u32_of(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_of(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[test]
fn an_empty_container_is_its_header() {
    let bytes = write(&[]).expect("write");
    assert_eq!(bytes, [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(&bytes), Ok(Vec::new()));
}

#[test]
fn one_entry_is_copied_as_it_is() {
    let bytes = write(&[ptx_image(), Image { arch: arch("sm_100"), ..ptx_image() }]).unwrap();
    let entries = read(&bytes).unwrap();
    let copy = fatbin::container_of(&entries[1]);
    assert_eq!(read(&copy).unwrap(), entries[1..]);
    assert_eq!(copy.len(), 16 + entries[1].bytes().len());
}

#[test]
fn every_field_of_a_stored_ptx_entry() {
    let image = Image { ident: Some("a.cu"), options: "-O3", debug: true, ..ptx_image() };
    let bytes = write(&[image]).expect("write");
    let payload = (STRIPPED.len() + 1).next_multiple_of(8);
    let entry = &bytes[16..];
    assert_eq!(u64_of(&bytes, 8) as usize, entry.len());
    assert_eq!(entry[0..4], [1, 0, 1, 1]);
    assert_eq!(u32_of(entry, 4), 64 + 8 + 16);
    assert_eq!(u64_of(entry, 8) as usize, payload);
    assert_eq!(u32_of(entry, 16), 0);
    assert_eq!(u32_of(entry, 20), 72);
    assert_eq!(entry[24..28], [8, 0, 7, 0]);
    assert_eq!(u32_of(entry, 28), 90);
    assert_eq!(u32_of(entry, 32), 64);
    assert_eq!(u32_of(entry, 36), 4);
    assert_eq!(u64_of(entry, 40), 0x13);
    assert_eq!(u64_of(entry, 48), 0);
    assert_eq!(u64_of(entry, 56), 0);
    assert_eq!(&entry[64..72], b"a.cu\0\0\0\0");
    assert_eq!(&entry[72..88], b"\x50\0\0\0\x03\0\0\0-O3\0\0\0\0\0");
    assert_eq!(&entry[88..88 + STRIPPED.len()], STRIPPED);
    assert!(entry[88 + STRIPPED.len()..].iter().all(|&byte| byte == 0));
    assert_eq!(entry.len(), 88 + payload);

    let read = read(&bytes).expect("read");
    let [entry] = &read[..] else { panic!("{} entries", read.len()) };
    assert_eq!((entry.kind, entry.arch, entry.version), (Kind::Ptx, Arch::new(90), (7, 8)));
    assert_eq!(entry.ident.as_deref(), Some("a.cu"));
    assert_eq!(entry.options.as_deref(), Some("-O3"));
    assert!(entry.is_debug() && entry.compat.is_none());
    assert_eq!(entry.payload().as_deref(), Ok(STRIPPED));
    assert_eq!(entry.bytes(), &bytes[16..]);
}

#[test]
fn ptx_has_an_options_block_even_when_empty() {
    let bytes = write(&[ptx_image()]).expect("write");
    assert_eq!(u32_of(&bytes, 16 + 4), 80);
    assert_eq!(&bytes[16 + 64..16 + 80], b"\x48\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(read(&bytes).expect("read")[0].options.as_deref(), Some(""));
}

#[test]
fn compressed_entries_state_both_sizes() {
    for (compression, flag) in [(Compression::Lz4, Flags::LZ4), (Compression::ZSTD, Flags::ZSTD), (Compression::ZSTD_SIZE, Flags::ZSTD)] {
        let bytes = write(&[Image { compression, ..ptx_image() }]).expect("write");
        let entry = &read(&bytes).expect("read")[0];
        assert!(entry.flags.contains(flag));
        assert_eq!(entry.compression.name(), compression.name());
        assert_eq!(u32_of(&bytes, 16 + 16) as usize, entry.stored.len());
        assert_eq!(u64_of(&bytes, 16 + 56) as usize, STRIPPED.len() + 1);
        assert_eq!(entry.uncompressed_size as usize, STRIPPED.len() + 1);
        assert_eq!(entry.payload().as_deref(), Ok(STRIPPED));
        assert!(entry.payload_within(STRIPPED.len() as u64).is_err());
    }
}

#[test]
fn the_suffix_comes_from_the_request() {
    for (name, flag) in [("100", 0), ("100a", 0x10_0000), ("100f", 0x20_0000)] {
        let data = cubin(head(100), &[]);
        let image = Image { kind: Kind::Elf, arch: arch(name), data: &data, ..ptx_image() };
        let bytes = write(&[image]).expect("write");
        let entry = &read(&bytes).expect("read")[0];
        assert_eq!(entry.flags, Flags(0x11 | flag));
        assert_eq!(entry.arch, arch(name));
        assert_eq!(entry.version, (1, 8));
        assert_eq!((entry.options.as_deref(), entry.compat), (None, None));
        assert_eq!(entry.stored, data);
    }
}

#[test]
fn mercury_cubins_bring_their_compat_section() {
    let compat = [2, 9, 1, 0, 2, 2, 1, 0, 2, 5, 5, 0];
    let with = cubin(support::Head { flags: head(100).flags | 2, ..head(100) }, &[Section::new(".nv.compat", 0x7000_0086, &compat)]);
    let image = Image { kind: Kind::Elf, arch: arch("100a"), data: &with, ..ptx_image() };
    let bytes = write(&[image]).expect("write");
    assert_eq!(u32_of(&bytes, 16 + 4), 64 + 24);
    assert_eq!(u32_of(&bytes, 16 + 20), 64);
    assert_eq!(&bytes[16 + 64..16 + 73], b"\x48\0\0\0\x0c\0\0\0\0");
    let entry = &read(&bytes).expect("read")[0];
    assert!(entry.flags.contains(Flags::MERCURY | Flags::ARCH_SPECIFIC));
    assert_eq!(entry.compat, Some(&compat[..]));

    let without = cubin(support::Head { flags: head(100).flags | 2, ..head(100) }, &[]);
    let bytes = write(&[Image { data: &without, ..image }]).expect("write");
    let entry = &read(&bytes).expect("read")[0];
    assert!(entry.flags.contains(Flags::MERCURY) && entry.compat.is_none());
}

#[test]
fn bitcode_is_stored_and_has_its_version() {
    let image = Image { kind: Kind::Nvvm, data: b"ABCD\x02\x03hello", options: "-O3", compression: Compression::ZSTD, ..ptx_image() };
    let bytes = write(&[image]).expect("write");
    let entry = &read(&bytes).expect("read")[0];
    assert_eq!((entry.version, entry.compression), ((2, 3), Compression::None));
    assert_eq!(entry.options.as_deref(), Some("-O3"));
    assert_eq!(entry.stored, b"ABCD\x02\x03hello\0\0\0\0\0");
}

#[test]
fn refuses_images_that_would_mislead() {
    let sm_80 = cubin(head(80), &[]);
    let old_sm_80 = cubin(old_head(80), &[]);
    let other = cubin(support::Head { os_abi: 0, ..head(90) }, &[]);
    let elf = |data| Image { kind: Kind::Elf, data, ..ptx_image() };
    let text = |data| Image { data, ..ptx_image() };
    let cases: &[(&str, &[Image<'_>])] = &[
        ("two ptx images for sm_90", &[ptx_image(), ptx_image()]),
        ("cubin image for sm_90: cubin is made for sm_80", &[elf(&sm_80)]),
        ("cubin image for sm_90: cubin is made for sm_80", &[elf(&old_sm_80)]),
        ("cubin image for sm_90: cubin has the unknown os abi 0x0", &[elf(&other)]),
        ("cubin image for sm_90: cubin is not an elf file", &[elf(PTX)]),
        ("cubin image for sm_90: cubin is cut off", &[elf(b"\x7fELF")]),
        ("ptx image for sm_90: ptx does not start with .version", &[text(b"")]),
        ("ptx image for sm_90: nul byte in the text, which the driver takes for its end", &[text(b".version 7.8\n.target sm_90\n\0x")]),
        ("ptx image for sm_90: text has .target sm_100", &[text(b".version 8.8 .target sm_100")]),
        ("ptx image for sm_90: text has .target sm_90a", &[text(b".version 8.8 .target sm_90a")]),
        ("nvvm image for sm_90: bitcode is cut off", &[Image { kind: Kind::Nvvm, data: b"ABCD\x02\x03\x00", ..ptx_image() }]),
        ("concatenated image for sm_90: this kind cannot be written", &[Image { kind: Kind::Concat, ..ptx_image() }]),
        ("kind 0x80 image for sm_90: this kind cannot be written", &[Image { kind: Kind::Other(0x80), ..ptx_image() }]),
        ("ptx image for sm_90: nul byte in the ident or the options", &[Image { ident: Some("a\0b"), ..ptx_image() }]),
        ("ptx image for sm_90: nul byte in the ident or the options", &[Image { options: "\0", ..ptx_image() }]),
        ("ptx image for sm_90: zstd has no level 23, only -131072 to 22", &[Image { compression: Compression::Zstd(23), ..ptx_image() }]),
    ];
    for (message, images) in cases {
        assert_eq!(write(images).map_err(|e| e.to_string()), Err((*message).to_owned()));
    }
    // The same kind with another suffix, and PTX of an older architecture, are different images.
    let specific = Image { arch: arch("90a"), data: b".version 8.0 .target sm_90a", ..ptx_image() };
    let older = text(b".version 7.0 .target sm_80");
    assert!(write(&[specific, older]).is_ok());
}

#[test]
fn a_final_nul_is_not_doubled() {
    let with_nul = [PTX, b"\0"].concat();
    assert_eq!(write(&[Image { data: &with_nul, ..ptx_image() }]), write(&[ptx_image()]));
}

/// A container of every kind of entry, small enough to try every byte of it.
fn sample() -> Vec<u8> {
    let elf = cubin(head(90), &[Section::new(".text.k", 1, &[7; 40])]);
    let merc = cubin(support::Head { flags: head(100).flags | 2, ..head(100) }, &[Section::new(".nv.compat", 0x7000_0086, &[2, 9, 1, 0])]);
    write(&[
        Image { ident: Some("a.cu"), options: "-O3", ..ptx_image() },
        Image { kind: Kind::Elf, data: &elf, compression: Compression::ZSTD, ..ptx_image() },
        Image { kind: Kind::Elf, arch: arch("100f"), data: &merc, compression: Compression::Lz4, ..ptx_image() },
        Image { kind: Kind::Nvvm, data: b"ABCD\x02\x03hello", ..ptx_image() },
    ])
    .expect("write")
}

fn look_at_everything(bytes: &[u8]) {
    for (_, container) in containers(bytes).chain(section_containers(bytes)) {
        for entry in container.and_then(|c| c.entries()).unwrap_or_default() {
            // An error is as good as a payload: only panics count.
            let _ = (entry.payload(), entry.parts());
        }
    }
    let _ = read(bytes);
}

#[test]
fn truncation_is_an_error_at_every_byte() {
    let sample = sample();
    assert_eq!(read(&sample).expect("read").len(), 4);
    for end in 0..sample.len() {
        assert!(read(&sample[..end]).is_err(), "{end}");
        look_at_everything(&sample[..end]);
    }
}

#[test]
fn any_changed_byte_is_survived() {
    let sample = sample();
    for at in 0..sample.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = sample.clone();
            bytes[at] = value;
            look_at_everything(&bytes);
        }
    }
}

#[test]
fn each_header_field_wrong_in_turn() {
    let zstd = |data| Image { compression: Compression::ZSTD, ident: Some("a.cu"), options: "-O3", ..Image { data, ..ptx_image() } };
    let good = write(&[zstd(PTX)]).expect("write");
    let size = u64_of(&good, 8);
    let payload = u64_of(&good, 24);
    let compressed = u32_of(&good, 32);
    // Offset in the file, the field's new bytes, the message.
    let cases: &[(usize, Vec<u8>, &str)] = &[
        (0, vec![0x51], "fat binary has magic 0xba55ed51, not 0xba55ed50"),
        (4, vec![2, 0], "fat binary has version 2, not 1"),
        (6, vec![24, 0], "fat binary has a header of 24 bytes, not 16"),
        (8, (size + 1).to_le_bytes().to_vec(), "fat binary is cut off"),
        (8, u64::MAX.to_le_bytes().to_vec(), "fat binary is cut off"),
        (8, (size - 8).to_le_bytes().to_vec(), "8 bytes follow the fat binary"),
        (18, vec![0x01, 0x02], "entry 0: entry has version 0x0201"),
        (20, 56u32.to_le_bytes().to_vec(), "entry 0: entry has a header of 56 bytes"),
        (20, 65u32.to_le_bytes().to_vec(), "entry 0: entry has a header of 65 bytes"),
        (20, u32::MAX.to_le_bytes().to_vec(), "entry 0: entry has a header of 4294967295 bytes"),
        (20, 0xffff_fff8u32.to_le_bytes().to_vec(), "entry 0: entry is cut off"),
        (24, (payload + 8).to_le_bytes().to_vec(), "entry 0: entry is cut off"),
        (24, (payload - 1).to_le_bytes().to_vec(), "entry 0: entry has a payload of"),
        (24, (u64::MAX - 7).to_le_bytes().to_vec(), "entry 0: entry is cut off"),
        (32, u32::MAX.to_le_bytes().to_vec(), "entry 0: compressed size is larger than the payload"),
        (36, 88u32.to_le_bytes().to_vec(), "entry 0: options lie outside the entry header"),
        (36, u32::MAX.to_le_bytes().to_vec(), "entry 0: options lie outside the entry header"),
        (48, 88u32.to_le_bytes().to_vec(), "entry 0: ident lies outside the entry header"),
        (52, u32::MAX.to_le_bytes().to_vec(), "entry 0: ident lies outside the entry header"),
        (56, 0x30_8011u64.to_le_bytes().to_vec(), "entry 0: entry claims to be both arch- and family-specific"),
        (56, 0xa011u64.to_le_bytes().to_vec(), "entry 0: entry claims to be both lz4 and zstd"),
        (56, 0x11u64.to_le_bytes().to_vec(), "entry 0: stored entry states a compressed size"),
        (88, 400u32.to_le_bytes().to_vec(), "entry 0: options lie outside the entry header"),
        (92, 400u32.to_le_bytes().to_vec(), "entry 0: options lie outside the entry header"),
        // These fields are right by themselves and wrong for the payload.
        (32, (compressed - 1).to_le_bytes().to_vec(), "zstd payload is damaged: "),
        (56, 0x2011u64.to_le_bytes().to_vec(), "lz4 payload is damaged: "),
        (56, 0x1_8011u64.to_le_bytes().to_vec(), "payload is scrambled, only NVIDIA's tools can read it"),
        (72, (STRIPPED.len() as u64).to_le_bytes().to_vec(), "payload is larger than the"),
        (72, 1000u64.to_le_bytes().to_vec(), "payload has"),
        (72, (1u64 << 31).to_le_bytes().to_vec(), "payload of 2147483648 bytes is over the limit of 2147483647"),
        (72, u64::MAX.to_le_bytes().to_vec(), "payload of 18446744073709551615 bytes is over the limit of 2147483647"),
        (104, vec![0; 4], "zstd payload is damaged: "),
    ];
    for (at, field, message) in cases {
        let mut bytes = good.clone();
        bytes[*at..*at + field.len()].copy_from_slice(field);
        let result = read(&bytes)
            .and_then(|entries| entries.iter().map(|entry| entry.payload().map(Cow::into_owned)).collect::<Result<Vec<_>, _>>());
        let found = result.expect_err(message).to_string();
        assert!(found.starts_with(message), "at {at}: {found:?} is not {message:?}");
    }
}

#[test]
fn a_bomb_costs_no_memory() {
    // 2 GiB of zeros in a stream of some hundred kilobytes, whose header owns up to 100 bytes.
    let zeros = vec![0u8; 16 << 20];
    let bomb = zstd::bulk::compress(&zeros, 1).expect("compress").repeat(128);
    let mut bytes = write(&[Image { compression: Compression::ZSTD, ..ptx_image() }]).expect("write");
    bytes.truncate(16 + 80);
    bytes.extend(&bomb);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let payload = (bytes.len() - 96) as u64;
    bytes[8..16].copy_from_slice(&(payload + 80).to_le_bytes());
    bytes[24..32].copy_from_slice(&payload.to_le_bytes());
    bytes[32..36].copy_from_slice(&(bomb.len() as u32).to_le_bytes());
    bytes[72..80].copy_from_slice(&100u64.to_le_bytes());
    let entry = &read(&bytes).expect("read")[0];
    assert_eq!(entry.payload().map_err(|e| e.to_string()), Err("payload is larger than the 100 bytes its header states".to_owned()));
    bytes[72..80].copy_from_slice(&(1u64 << 31).to_le_bytes());
    let entry = &read(&bytes).expect("read")[0];
    assert!(entry.payload().is_err() && entry.payload_within(1 << 20).is_err());
}

#[test]
fn finds_containers_between_other_bytes() {
    let one = write(&[ptx_image()]).expect("write");
    let empty = write(&[]).expect("write");
    let section = [&one[..], &empty, &[0; 24], &one, &[0; 4096], &one, &[0; 8]].concat();
    let at = [0, one.len(), one.len() + 40, 2 * one.len() + 40 + 4096];
    let offsets = |found: &mut dyn Iterator<Item = (usize, bool)>| found.collect::<Vec<_>>();
    let good = at.map(|offset| (offset, true));
    assert_eq!(offsets(&mut containers(&section).map(|(o, c)| (o, c.is_ok()))), good);
    assert_eq!(offsets(&mut section_containers(&section).map(|(o, c)| (o, c.is_ok()))), good);
    assert!(read(&section).is_err());

    // In a file, anything can surround them, also something with the same magic.
    let file = [&b"\x7fELF.."[..], &one, b"rodata", &one[..4], b"xx", &one, b"end"].concat();
    let second = 6 + one.len() + 6;
    assert_eq!(offsets(&mut containers(&file).map(|(o, c)| (o, c.is_ok()))), [(6, true), (second, false), (second + 6, true)]);
    // A section is nothing but containers.
    let section = [&one[..], &[0; 8], b"garbage", &one].concat();
    assert_eq!(offsets(&mut section_containers(&section).map(|(o, c)| (o, c.is_ok()))), [(0, true), (one.len() + 8, false)]);
    assert_eq!(containers(b"").count() + section_containers(b"").count(), 0);
    assert_eq!(section_containers(&[0; 64]).count(), 0);
}

/// A container as `fatbinary --concat` of CUDA 13.4 lays it out.
fn concatenated() -> Vec<u8> {
    let single = write(&[ptx_image(), Image { arch: Arch::new(100), ident: Some("b.cu"), ..ptx_image() }]).expect("write");
    let entries = read(&single).expect("read");
    let mut list = Vec::new();
    let mut data = Vec::new();
    for entry in &entries {
        let header = entry.bytes().len() - entry.stored.len();
        let mut part = entry.bytes()[..header].to_vec();
        part[4..8].copy_from_slice(&(data.len() as u32).to_le_bytes());
        list.extend(part);
        data.extend(entry.stored);
    }
    let stored = zstd::bulk::compress(&data, 5).expect("compress");
    let mut bytes = vec![0; 16 + 64];
    bytes[..16].copy_from_slice(&single[..16]);
    bytes[16..20].copy_from_slice(&[0, 1, 1, 1]);
    bytes[20..24].copy_from_slice(&(72 + list.len() as u32).to_le_bytes());
    bytes[24..32].copy_from_slice(&(stored.len() as u64).next_multiple_of(8).to_le_bytes());
    bytes[32..36].copy_from_slice(&(stored.len() as u32).to_le_bytes());
    bytes[36..40].copy_from_slice(&64u32.to_le_bytes());
    bytes[56..64].copy_from_slice(&0x8011u64.to_le_bytes());
    bytes[72..80].copy_from_slice(&(data.len() as u64).to_le_bytes());
    bytes.extend((entries.len() as u32).to_le_bytes());
    bytes.extend((8 + list.len() as u32).to_le_bytes());
    bytes.extend(list);
    bytes.extend(stored);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let size = bytes.len() as u64 - 16;
    bytes[8..16].copy_from_slice(&size.to_le_bytes());
    bytes
}

#[test]
fn reads_concatenated_images() {
    let bytes = concatenated();
    let entries = read(&bytes).expect("read");
    let [entry] = &entries[..] else { panic!("{} entries", entries.len()) };
    assert_eq!((entry.kind, &entry.options), (Kind::Concat, &None));
    let parts = entry.parts().expect("parts");
    assert_eq!(parts.iter().map(|p| p.arch.sm).collect::<Vec<_>>(), [90, 100]);
    assert_eq!(parts[1].ident.as_deref(), Some("b.cu"));
    assert_eq!(parts[0].version, (7, 8));
    let payload = entry.payload().expect("payload");
    for part in &parts {
        let range = part.offset as usize..(part.offset + part.size) as usize;
        assert!(payload[range].starts_with(STRIPPED));
    }
    for at in 80..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] = 0xff;
        look_at_everything(&bad);
    }
    let plain = write(&[ptx_image()]).expect("write");
    assert!(read(&plain).expect("read")[0].parts().is_err());
    for (at, field) in [(80, [3, 0]), (84, [0xff, 0xff]), (84, [7, 0]), (80 + 8 + 8, [0xff, 0xff])] {
        let mut bad = bytes.clone();
        bad[at..at + 2].copy_from_slice(&field);
        assert!(read(&bad).expect("read")[0].parts().is_err(), "{at}");
    }
}

#[derive(Debug, Clone)]
struct Owned {
    kind: Kind,
    arch: Arch,
    data: Vec<u8>,
    ident: Option<String>,
    options: String,
    debug: bool,
    compression: Compression,
}

fn any_image() -> impl Strategy<Value = Owned> {
    let kind = prop_oneof![Just(Kind::Ptx), Just(Kind::RelocatablePtx), Just(Kind::Elf), Just(Kind::Nvvm)];
    let suffix = prop_oneof![Just(None), Just(Some(Suffix::ArchSpecific)), Just(Some(Suffix::Family))];
    let compression = prop_oneof![Just(Compression::None), Just(Compression::Lz4), (-3..=12).prop_map(Compression::Zstd)];
    let ident = proptest::option::of("[a-zé./ ]{1,20}");
    let body = proptest::collection::vec(1u8.., 0..300);
    (kind, 10u32..=255, suffix, body, ident, "[ -~]{0,20}", any::<bool>(), compression).prop_map(
        |(kind, sm, suffix, body, ident, options, debug, compression)| {
            let arch = Arch { sm, suffix };
            let data = match kind {
                Kind::Elf => cubin(head(sm), &[Section::new(".text.k", 1, &body)]),
                Kind::Nvvm => [b"ABCD\x01\x02\x03\x04", &body[..]].concat(),
                _ => [format!(".version 8.8\n.target {arch}\n").as_bytes(), &body].concat(),
            };
            Owned { kind, arch, data, ident, options, debug, compression }
        },
    )
}

fn check_entry(image: &Owned, entry: &Entry<'_>) {
    assert_eq!((entry.kind, entry.arch), (image.kind, image.arch));
    assert_eq!(entry.ident.as_deref(), image.ident.as_deref());
    assert_eq!(entry.is_debug(), image.debug);
    let payload = entry.payload().expect("payload");
    if image.kind == Kind::Elf {
        assert_eq!(entry.options, None);
    } else {
        assert_eq!(entry.options.as_deref(), Some(&image.options[..]));
    }
    if image.kind == Kind::Nvvm {
        assert_eq!(entry.compression, Compression::None);
    } else {
        assert_eq!(entry.compression.name(), image.compression.name());
    }
    match image.kind {
        Kind::Elf | Kind::Nvvm => {
            assert!(payload.starts_with(&image.data));
            assert!(payload[image.data.len()..].iter().all(|&byte| byte == 0));
            assert!(payload.len() < image.data.len() + 8);
        }
        // What stripping leaves is the business of the tests in ptx.rs.
        _ => assert!(payload.starts_with(b".version 8.8\n.target sm_")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(images in proptest::collection::vec(any_image(), 0..5)) {
        let mut images = images;
        let mut seen = std::collections::BTreeSet::new();
        images.retain(|image| seen.insert((image.kind, image.arch)));
        let borrowed: Vec<_> = images.iter().map(|image| Image {
            kind: image.kind,
            arch: image.arch,
            data: &image.data,
            ident: image.ident.as_deref(),
            options: &image.options,
            debug: image.debug,
            compression: image.compression,
        }).collect();
        let bytes = write(&borrowed).expect("write");
        let entries = read(&bytes).expect("read");
        prop_assert_eq!(entries.len(), images.len());
        for (image, entry) in images.iter().zip(&entries) {
            check_entry(image, entry);
        }
        prop_assert_eq!(containers(&bytes).count(), 1);
    }

    #[test]
    fn random_bytes_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        at in 0usize..300,
    ) {
        look_at_everything(&bytes);
        let mut sample = sample();
        let at = at.min(sample.len() - 1);
        let len = bytes.len().min(sample.len() - at);
        sample[at..at + len].copy_from_slice(&bytes[..len]);
        look_at_everything(&sample);
    }
}
