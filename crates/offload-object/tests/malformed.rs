//! Each field of each header set wrong in turn: to 0, 1, the largest value, one off, the end of the file and past it, and to what its
//! neighbours hold, so that parts overlap. Whatever becomes of it, nothing is read outside of the file, nothing multiplies, and what can be
//! changed can be read again. Which fields must be refused, and in which words, stands in tables.

mod common;

use common::{input, read, run, scratch, tool, write};
use offload_object::{
    Archive, HostObject, ImageKind, ImageSpec, OffloadKind, linked_entries, parse_section, separate_relocatable, set_metadata, write_v1,
    write_v2, write_v3,
};

/// `entries.c` with a device image in it, compiled as `name`.
fn compile(name: &str, flags: &[&str]) -> Option<Vec<u8>> {
    let dir = scratch();
    write(dir.path(), "image", &write_v1(&image("sm_90")));
    let source = input("entries.c");
    let mut args = vec!["-c", "-O1", source.to_str().unwrap(), "-o", name, "-Xclang", "-fembed-offload-object=image"];
    args.extend(flags);
    run(dir.path(), tool("clang")?, &args);
    Some(read(dir.path(), name))
}

/// A field: its name, where it lies, how many bytes it has.
type Field = (String, usize, usize);

fn get(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn set(bytes: &mut [u8], at: usize, width: usize, value: u64) {
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

/// The values that a field gets instead of its own.
fn wrong_values(bytes: &[u8], at: usize, width: usize) -> Vec<u64> {
    let (good, most, len) = (get(bytes, at, width), u64::MAX >> (64 - 8 * width), bytes.len() as u64);
    let neighbour = |at: Option<usize>| at.and_then(|at| Some(get(bytes.get(..at + width)?, at, width)));
    let mut values = vec![0, 1, most, most - 1, most / 2, most / 2 + 1, good.wrapping_add(1), good.wrapping_sub(1), good ^ (most / 2 + 1)];
    values.extend([len - 1, len, len + 1, good.wrapping_mul(2)]);
    values.extend(neighbour(at.checked_sub(width)));
    values.extend(neighbour(Some(at + width)));
    values.iter_mut().for_each(|value| *value &= most);
    values.retain(|value| *value != good);
    values.sort();
    values.dedup();
    values
}

/// Calls `look` with each field wrong in turn. Gives how many files that were.
fn each_wrong(good: &[u8], fields: &[Field], look: impl Fn(&[u8], &str)) -> usize {
    let mut count = 0;
    for (name, at, width) in fields {
        for value in wrong_values(good, *at, *width) {
            let mut bytes = good.to_vec();
            set(&mut bytes, *at, *width, value);
            look(&bytes, &format!("{name} = {value:#x}"));
            count += 1;
        }
    }
    count
}

fn fields(prefix: &str, start: usize, layout: &[(&str, usize, usize)]) -> Vec<Field> {
    layout.iter().map(|(name, at, width)| (format!("{prefix}{name}"), start + at, *width)).collect()
}

fn is_part(whole: &[u8], part: &[u8]) -> bool {
    let (whole, part) = (whole.as_ptr_range(), part.as_ptr_range());
    part.is_empty() || (whole.start <= part.start && part.end <= whole.end)
}

/// Reads everything of a host object.
fn look_at_object(bytes: &[u8], what: &str) {
    let _ = linked_entries(bytes);
    for value in [Some("all"), None] {
        if let Ok((changed, count)) = set_metadata(bytes, "ptx", value)
            && count > 0
        {
            let (again, count) = set_metadata(&changed, "ptx", value).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(count == 0 && again == changed, "{what}");
        }
    }
    if let Ok(separated) = separate_relocatable(bytes, "s") {
        assert!(!HostObject::parse(&separated).unwrap_or_else(|error| panic!("{what}: {error}")).has_offload_section(), "{what}");
    }
    let Ok(object) = HostObject::parse(bytes) else { return };
    let sections = object.offload_sections().unwrap_or_default();
    assert!(sections.iter().map(|section| section.len()).sum::<usize>() <= bytes.len(), "{what}");
    for section in sections {
        assert!(is_part(bytes, section), "{what}");
        for image in parse_section(section).unwrap_or_default() {
            assert!(is_part(bytes, &image.image), "{what}");
        }
    }
    assert!(object.symbols().iter().all(|symbol| is_part(bytes, symbol.name)), "{what}");
    assert!(object.file_symbols().iter().all(|name| is_part(bytes, name)), "{what}");
    for entry in object.entries().unwrap_or_default() {
        let names = [Some(entry.name), entry.address_symbol, entry.entry_symbol];
        assert!(names.into_iter().flatten().all(|name| is_part(bytes, name)), "{what}");
    }
    let _ = (object.is_registration_object(), object.nvcc_module_ids(), object.section_sizes());
}

const ELF64: [(&str, usize, usize); 17] = [
    ("e_ident.class", 4, 1),
    ("e_ident.data", 5, 1),
    ("e_ident.version", 6, 1),
    ("e_ident.os_abi", 7, 1),
    ("e_type", 16, 2),
    ("e_machine", 18, 2),
    ("e_version", 20, 4),
    ("e_entry", 24, 8),
    ("e_phoff", 32, 8),
    ("e_shoff", 40, 8),
    ("e_flags", 48, 4),
    ("e_ehsize", 52, 2),
    ("e_phentsize", 54, 2),
    ("e_phnum", 56, 2),
    ("e_shentsize", 58, 2),
    ("e_shnum", 60, 2),
    ("e_shstrndx", 62, 2),
];

const ELF64_SECTION: [(&str, usize, usize); 10] = [
    ("sh_name", 0, 4),
    ("sh_type", 4, 4),
    ("sh_flags", 8, 8),
    ("sh_addr", 16, 8),
    ("sh_offset", 24, 8),
    ("sh_size", 32, 8),
    ("sh_link", 40, 4),
    ("sh_info", 44, 4),
    ("sh_addralign", 48, 8),
    ("sh_entsize", 56, 8),
];

const ELF64_SYMBOL: [(&str, usize, usize); 6] =
    [("st_name", 0, 4), ("st_info", 4, 1), ("st_other", 5, 1), ("st_shndx", 6, 2), ("st_value", 8, 8), ("st_size", 16, 8)];

const ELF64_RELOCATION: [(&str, usize, usize); 4] = [("r_offset", 0, 8), ("r_type", 8, 4), ("r_sym", 12, 4), ("r_addend", 16, 8)];

/// The fields of all headers, symbols and relocations of an ELF file with 64 bits.
fn elf_fields(bytes: &[u8]) -> Vec<Field> {
    let mut all = fields("", 0, &ELF64);
    let table = get(bytes, 40, 8) as usize;
    for index in 0..get(bytes, 60, 2) as usize {
        let header = table + 64 * index;
        all.extend(fields(&format!("section {index} "), header, &ELF64_SECTION));
        let (kind, start, size) = (get(bytes, header + 4, 4), get(bytes, header + 24, 8) as usize, get(bytes, header + 32, 8) as usize);
        let layout: &[(&str, usize, usize)] = match kind {
            2 => &ELF64_SYMBOL,
            4 => &ELF64_RELOCATION,
            _ => continue,
        };
        // The first and the last few: those between are like them.
        let count = size / 24;
        for record in (0..count).filter(|record| *record < 6 || record + 10 >= count) {
            all.extend(fields(&format!("section {index} record {record} "), start + 24 * record, layout));
        }
    }
    all
}

#[test]
fn every_field_of_elf_objects() {
    let Some(embedded) = compile("a.o", &[]) else { return };
    look_at_object(&embedded, "nothing");
    assert_eq!(HostObject::parse(&embedded).unwrap().offload_sections().unwrap().len(), 1);
    let tried = each_wrong(&embedded, &elf_fields(&embedded), look_at_object);
    assert!(tried > 1500, "{tried}");
    for (field, value, expected) in [
        (40, embedded.len() as u64, "ELF section table is malformed"),
        (40, embedded.len() as u64 - 1, "ELF section table is malformed"),
        (40, u64::MAX, "ELF section table is malformed"),
        (58, 63, "ELF section table is malformed"),
        (60, 0xff00, "ELF section table is malformed"),
        (62, 0xfeff, "ELF section table is malformed"),
        (4, 3, "ELF class is neither 32 nor 64 bits"),
        (5, 3, "not an ELF or COFF object"),
        (16, 4, "not an ELF or COFF object"),
    ] {
        let mut bytes = embedded.clone();
        let width = ELF64.iter().find(|(_, at, _)| *at == field).unwrap().2;
        set(&mut bytes, field, width, value);
        assert_eq!(HostObject::parse(&bytes).map(|_| ()).unwrap_err().to_string(), expected, "{field} = {value}");
    }
}

fn image(arch: &str) -> ImageSpec {
    ImageSpec {
        image_kind: ImageKind::Bitcode,
        offload_kind: OffloadKind::CUDA,
        flags: 0,
        strings: vec![("triple".to_owned(), "nvptx64-nvidia-cuda".to_owned()), ("arch".to_owned(), arch.to_owned())],
        image: b"BC\xc0\xde and more".to_vec(),
    }
}

/// Thousands of headers that name the same bytes.
#[test]
fn sections_that_overlap() {
    let Some(one) = compile("a.o", &[]) else { return };
    let (table, count) = (get(&one, 40, 8) as usize, get(&one, 60, 2) as usize);
    assert_eq!(table + 64 * count, one.len(), "the table is the last thing in the file");
    let header = |name: &[u8]| {
        let names = get(&one, table + 64 * get(&one, 62, 2) as usize + 24, 8) as usize;
        let mut headers = (0..count).map(|index| &one[table + 64 * index..table + 64 * (index + 1)]);
        headers.find(|header| one[names + get(header, 0, 4) as usize..].starts_with(&[name, b"\0"].concat())).unwrap().to_vec()
    };
    let repeated = |header: &[u8]| {
        let mut bytes = one.clone();
        (0..2000).for_each(|_| bytes.extend(header));
        set(&mut bytes, 60, 2, count as u64 + 2000);
        bytes
    };
    const TOO_LARGE: &str = "sections are together larger than the file";
    // The headers themselves make the file larger: sections of most of the file, then.
    let wide = |header: &[u8]| {
        let mut header = header.to_vec();
        set(&mut header, 32, 8, one.len() as u64 / 8);
        set(&mut header, 24, 8, 0);
        header
    };
    let bytes = repeated(&wide(&header(b".llvm.offloading")));
    assert_eq!(HostObject::parse(&bytes).unwrap().offload_sections().unwrap_err().to_string(), TOO_LARGE);
    assert_eq!(set_metadata(&bytes, "ptx", Some("all")).unwrap_err().to_string(), TOO_LARGE);
    assert_eq!(separate_relocatable(&bytes, "s").unwrap_err().to_string(), TOO_LARGE);
    for name in [&b".relallvm_offload_entries"[..], b"llvm_offload_entries"] {
        let bytes = repeated(&wide(&header(name)));
        assert_eq!(HostObject::parse(&bytes).unwrap().entries().unwrap_err().to_string(), TOO_LARGE);
    }
}

/// A header, a table or another section inside the bytes that a change moves.
#[test]
fn what_lies_inside_of_a_section_of_images() {
    const INSIDE: &str = "something else of the file lies inside a section of device images";
    let Some(good) = compile("a.o", &[]) else { return };
    assert_eq!(set_metadata(&good, "ptx", Some("all")).unwrap().1, 1);
    let (table, count) = (get(&good, 40, 8) as usize, get(&good, 60, 2) as usize);
    let headers: Vec<usize> = (0..count).map(|index| table + 64 * index).collect();
    let images = *headers.iter().find(|header| get(&good, **header + 4, 4) == u64::from(offload_object::SHT_LLVM_OFFLOADING)).unwrap();
    let start = get(&good, images + 24, 8);
    let before = *headers.iter().find(|header| get(&good, **header + 4, 4) == 1 && get(&good, **header + 24, 8) < start).unwrap();
    for (what, field, value) in [
        ("a section begins inside", before + 24, start + 8),
        ("a section reaches into it", before + 32, start + 8 - get(&good, before + 24, 8)),
        ("a section is around it", before + 32, good.len() as u64 - get(&good, before + 24, 8)),
    ] {
        let mut bytes = good.clone();
        set(&mut bytes, field, 8, value);
        assert_eq!(set_metadata(&bytes, "ptx", Some("all")).unwrap_err().to_string(), INSIDE, "{what}");
    }
    // More sections than there are: what follows the table is taken for headers, here the images themselves. Found by fuzzing.
    let Some(good) = compile("a.obj", &["--target=x86_64-pc-windows-msvc"]) else { return };
    assert_eq!(set_metadata(&good, "ptx", Some("all")).unwrap().1, 1);
    let inside = get(&good, coff_images(&good) + 20, 4);
    let mut bytes = good.clone();
    set(&mut bytes, 2, 2, (inside - 20) / 40 + 2);
    assert_eq!(set_metadata(&bytes, "ptx", Some("all")).unwrap_err().to_string(), INSIDE);
    // The symbol table in the middle of the images.
    let mut bytes = good.clone();
    set(&mut bytes, 8, 4, inside + 8);
    set(&mut bytes, 12, 4, 1);
    assert!(set_metadata(&bytes, "ptx", Some("all")).is_err() || set_metadata(&bytes, "ptx", Some("all")).unwrap().1 == 0);
}

const COFF: [(&str, usize, usize); 7] = [
    ("machine", 0, 2),
    ("number_of_sections", 2, 2),
    ("time", 4, 4),
    ("pointer_to_symbol_table", 8, 4),
    ("number_of_symbols", 12, 4),
    ("size_of_optional_header", 16, 2),
    ("characteristics", 18, 2),
];

const COFF_SECTION: [(&str, usize, usize); 11] = [
    ("name", 0, 1),
    ("name in the string table", 1, 4),
    ("virtual_size", 8, 4),
    ("virtual_address", 12, 4),
    ("size_of_raw_data", 16, 4),
    ("pointer_to_raw_data", 20, 4),
    ("pointer_to_relocations", 24, 4),
    ("pointer_to_linenumbers", 28, 4),
    ("number_of_relocations", 32, 2),
    ("number_of_linenumbers", 34, 2),
    ("characteristics", 36, 4),
];

const COFF_SYMBOL: [(&str, usize, usize); 7] = [
    ("name", 0, 4),
    ("name in the string table", 4, 4),
    ("value", 8, 4),
    ("section_number", 12, 2),
    ("type", 14, 2),
    ("storage_class", 16, 1),
    ("number_of_aux_symbols", 17, 1),
];

const COFF_RELOCATION: [(&str, usize, usize); 3] = [("virtual_address", 0, 4), ("symbol", 4, 4), ("type", 8, 2)];

/// The header of the first section of device images of a COFF object.
fn coff_images(bytes: &[u8]) -> usize {
    let images = HostObject::parse(bytes).unwrap().offload_sections().unwrap()[0];
    let start = images.as_ptr() as u64 - bytes.as_ptr() as u64;
    let headers = (0..get(bytes, 2, 2) as usize).map(|section| 20 + 40 * section);
    headers.into_iter().find(|header| get(bytes, header + 20, 4) == start).unwrap()
}

#[test]
fn every_field_of_coff_objects() {
    for target in ["x86_64-pc-windows-msvc", "i686-pc-windows-msvc"] {
        let Some(good) = compile("a.obj", &[&format!("--target={target}")]) else { return };
        let object = HostObject::parse(&good).unwrap();
        assert_eq!((object.offload_sections().unwrap().len(), object.entries().unwrap().is_empty()), (1, false));
        look_at_object(&good, "nothing");
        let mut all = fields("", 0, &COFF);
        for section in 0..get(&good, 2, 2) as usize {
            let header = 20 + 40 * section;
            all.extend(fields(&format!("section {section} "), header, &COFF_SECTION));
            if get(&good, header + 32, 2) > 0 {
                all.extend(fields(&format!("relocation of section {section} "), get(&good, header + 24, 4) as usize, &COFF_RELOCATION));
            }
        }
        for symbol in 0..get(&good, 12, 4) as usize {
            all.extend(fields(&format!("symbol {symbol} "), get(&good, 8, 4) as usize + 18 * symbol, &COFF_SYMBOL));
        }
        let tried = each_wrong(&good, &all, look_at_object);
        assert!(tried > 1500, "{tried}");
        // The machine stays, or it is no COFF file at all.
        for (field, value, expected) in [
            (2, 0xffff, "COFF section table is malformed"),
            (12, 0xffff_ffff, "COFF symbol table is malformed"),
            (8, good.len() as u64 - 1, "COFF symbol table is malformed"),
            (8, good.len() as u64 + 1, "not an ELF or COFF object"),
            (16, 2, "not an ELF or COFF object"),
        ] {
            let mut bytes = good.clone();
            let width = COFF.iter().find(|(_, at, _)| *at == field).unwrap().2;
            set(&mut bytes, field, width, value);
            assert_eq!(HostObject::parse(&bytes).map(|_| ()).unwrap_err().to_string(), expected, "{field} = {value}");
        }
    }
}

/// The same for versions 2 and 3 as the tests of version 1 do, by the promise and not by the words.
#[test]
fn every_field_of_offload_binaries() {
    const HEADER: [(&str, usize, usize); 6] =
        [("magic", 0, 4), ("version", 4, 4), ("size", 8, 8), ("entries_offset", 16, 8), ("entries_count", 24, 8), ("inflated_size", 32, 8)];
    const ENTRY: [(&str, usize, usize); 7] = [
        ("image_kind", 0, 2),
        ("offload_kind", 2, 2),
        ("flags", 4, 4),
        ("strings_offset", 8, 8),
        ("strings_count", 16, 8),
        ("image_offset", 24, 8),
        ("image_size", 32, 8),
    ];
    let two = [image("sm_90"), image("sm_100")];
    for (version, good) in [(1, write_v1(&two[0])), (2, write_v2(&two)), (3, write_v3(&two, None)), (3, write_v3(&two, Some(3)))] {
        let head = if version == 3 { 40 } else { 32 };
        let packed = version == 3 && get(&good, 32, 8) != 0;
        let mut all = fields("", 0, &HEADER[..if version == 3 { 6 } else { 5 }]);
        let entries = if packed { 0 } else { version.min(2) };
        for entry in 0..entries {
            all.extend(fields(&format!("entry {entry} "), head + 40 * entry, &ENTRY));
        }
        let pair = if version == 1 { 16 } else { 24 };
        for string in 0..if packed { 0 } else { 2 * entries } {
            let start = head + 40 * entries + pair * string;
            let layout = [("key_offset", 0, 8), ("value_offset", 8, 8), ("value_size", 16, 8)];
            all.extend(fields(&format!("string {string} "), start, &layout[..pair / 8]));
        }
        let tried = each_wrong(&good, &all, |bytes, what| {
            let Ok(images) = parse_section(bytes) else { return };
            for image in images {
                assert!(packed || is_part(bytes, &image.image), "{what}");
                assert!(image.strings.iter().all(|(key, value)| key.len() + value.len() <= 2 * bytes.len()), "{what}");
            }
            let (changed, _) = set_metadata(bytes, "ptx", Some("all")).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(set_metadata(&changed, "ptx", Some("all")), Ok((changed, 0)), "{what}");
        });
        assert!(tried >= 5 * 8, "{tried}");
    }
}

/// Archive headers are text: fields that are no numbers, too large, or point elsewhere.
#[test]
fn every_field_of_archives() {
    let header = |name: &str, size: usize| format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, "644").into_bytes();
    let mut good = b"!<arch>\n".to_vec();
    for (name, data) in
        [("/", &b"\0\0\0\x01\0\0\0\x4cf\0"[..]), ("//", b"long_member_name.o/\n"), ("/0", b"four"), ("b.o/", b"xy"), ("#1/4", b"c.o\0z")]
    {
        good.extend(header(name, data.len()));
        good.extend(data);
        good.resize(good.len().next_multiple_of(2), b'\n');
    }
    let members =
        |bytes: &[u8]| Archive::parse(bytes).and_then(|archive| archive.members().collect::<Result<Vec<_>, _>>().map(|all| all.len()));
    assert_eq!(members(&good), Ok(3));
    let starts: Vec<usize> = (8..good.len() - 59).filter(|at| &good[at + 58..at + 60] == b"`\n").collect();
    assert_eq!(starts.len(), 5);
    let texts = [
        "",
        "0",
        "1",
        "3",
        "5",
        "9999999999",
        "4294967296",
        "-1",
        "+1",
        " 4",
        "4 4",
        "0x4",
        "4a",
        "\0",
        "\u{e9}",
        "/",
        "//",
        "/99",
        "/1:2",
        "/18446744073709551616",
        "#1/",
        "#1/99",
        "#1/-1",
        "`\n",
        "/<x>/",
        "__.SYMDEF",
        "/SYM64/",
    ];
    let mut tried = 0;
    for magic in [&b"!<arch>\n"[..], b"!<thin>\n"] {
        for &start in &starts {
            for (field, at, width) in
                [("name", 0, 16), ("date", 16, 12), ("uid", 28, 6), ("gid", 34, 6), ("mode", 40, 8), ("size", 48, 10), ("end", 58, 2)]
            {
                for text in texts.iter().filter(|text| text.len() <= width) {
                    let mut bytes = good.clone();
                    bytes[..8].copy_from_slice(magic);
                    bytes[start + at..start + at + width].fill(b' ');
                    bytes[start + at..start + at + text.len()].copy_from_slice(text.as_bytes());
                    let what = format!("{field} of {start} = {text:?}");
                    tried += 1;
                    let _ = set_metadata(&bytes, "ptx", Some("all"));
                    let Ok(archive) = Archive::parse(&bytes) else { continue };
                    let mut before = 0;
                    for member in archive.members().flatten() {
                        assert!(member.header_offset >= before && is_part(&bytes, member.name), "{what}");
                        assert!(member.data.is_none_or(|data| is_part(&bytes, data)), "{what}");
                        before = member.header_offset + 60 + member.data.map_or(0, <[u8]>::len) as u64;
                    }
                }
            }
        }
    }
    assert!(tried > 1000, "{tried}");
    for (start, at, text, expected) in [
        (starts[2], 48, "x         ", "archive member size is not a number"),
        (starts[2], 48, "          ", "archive member size is not a number"),
        (starts[2], 48, "9999999999", "archive member goes past the end of the archive"),
        (starts[2], 58, "xx", "archive member header has no end mark"),
        (starts[2], 0, "/99", "archive member name is outside the name table"),
        (starts[2], 0, "/0:x", "archive member name is not a number"),
        (starts[4], 0, "#1/9", "archive member name is cut short"),
    ] {
        let mut bytes = good.clone();
        bytes[start + at..start + at + text.len()].copy_from_slice(text.as_bytes());
        assert_eq!(members(&bytes).unwrap_err().to_string(), expected, "{text:?}");
    }
}

/// An archive in an archive in an archive, and so on: deeper than any stack is.
#[test]
fn archives_in_archives() {
    let nested = |depth: usize| {
        let mut bytes = Vec::new();
        for level in 0..depth {
            bytes.extend(b"!<arch>\n");
            let size = (depth - level - 1) * 68;
            bytes.extend(format!("{:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", "a.a/", 0, 0, 0, "644").into_bytes());
        }
        bytes
    };
    assert_eq!(set_metadata(&nested(8), "ptx", Some("all")), Ok((nested(8), 0)));
    assert_eq!(set_metadata(&nested(100_000), "ptx", Some("all")).unwrap_err().to_string(), "archives lie too deep in archives");
}

/// Thin archives, and whatever `llvm-ar` writes, cut off at every byte.
#[test]
fn archives_cut_off() {
    let Some(ar) = tool("llvm-ar") else { return };
    let dir = scratch();
    for name in ["a.o", "a_member_with_a_long_name.o"] {
        write(dir.path(), name, b"contents");
    }
    for flags in [["rc", "--format=gnu"], ["rc", "--format=bsd"], ["rcT", "--format=gnu"]] {
        let _ = std::fs::remove_file(dir.path().join("x.a"));
        run(dir.path(), &ar, &[flags[0], flags[1], "x.a", "a.o", "a_member_with_a_long_name.o"]);
        let good = read(dir.path(), "x.a");
        for len in 0..good.len() {
            if let Ok(archive) = Archive::parse(&good[..len]) {
                assert!(archive.members().flatten().count() <= 2);
            }
        }
    }
}
