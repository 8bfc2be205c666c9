//! The cubin reader without a toolkit: built cubins of both ABIs, and malformed ones.

mod support;

use fatbin::Arch;
use fatbin::cubin::{Binding, Cubin, Space, SymbolKind};
use support::{Head, Section, cubin, head, old_head, symbol};

const STRTAB: &[u8] = b"\0k\0f\0g\0c\0s\0u\0t\0p\0";
const FUNC: u8 = 2;
const OBJECT: u8 = 1;
const CUDA_OBJECT: u8 = 13;
const GLOBAL: u8 = 1 << 4;
const WEAK: u8 = 2 << 4;

fn sized(number: u8, words: &[u32]) -> Vec<u8> {
    let mut bytes = vec![4, number, (words.len() * 4) as u8, 0];
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

/// One kernel, one function, variables of each memory, an undefined symbol.
fn sections() -> Vec<Section> {
    let symbols = [
        symbol(0, 0, 0, 0, 0, 0),
        symbol(1, GLOBAL | FUNC, 0x10, 3, 0, 100),
        symbol(3, FUNC, 0, 3, 100, 28),
        symbol(5, WEAK | OBJECT, 0, 4, 0, 40),
        symbol(7, GLOBAL | CUDA_OBJECT, 0x80, 5, 8, 16),
        symbol(9, OBJECT, 0, 6, 0, 512),
        symbol(11, GLOBAL, 0, 0, 0, 0),
        symbol(13, GLOBAL | 10, 0, 0xfff1, 0, 0),
        symbol(15, OBJECT, 0, 10, 0, 8),
    ];
    let mut table = Section::new(".symtab", 2, symbols.as_flattened());
    table.link = 1;
    let global = [sized(0x2f, &[1, 24]), sized(0x11, &[1, 64]), sized(0x12, &[1, 96]), sized(0x11, &[2, 32])];
    let own = [sized(0x05, &[128, 2, 1]), sized(0x10, &[32, 1, 1]), vec![2, 0x4c, 3, 0], vec![3, 0x19, 12, 0], vec![1, 0x99, 0, 0]];
    vec![
        Section::new(".strtab", 3, STRTAB),
        table,
        Section::new(".text.k", 1, &[0; 128]),
        Section::nobits(".nv.global", 0x7000_0007, 40),
        Section::new(".nv.constant3", 1, &[0; 24]),
        Section::nobits(".nv.shared.k", 8, 1536),
        Section::new(".nv.info", 0x7000_0000, &global.concat()),
        Section::new(".nv.info.k", 0x7000_0000, &own.concat()),
        Section::new(".nv.constant2.k", 1, &[0; 8]),
        Section::new(".nv.constant0.k", 1, &[0; 540]),
    ]
}

#[test]
fn architectures_of_both_abis() {
    let accelerator = |value| [Section::new(".nv.compat", 0x7000_0086, &[2, 9, value, 0])];
    for (head, sections, arch, abi) in [
        (head(90), vec![], "sm_90", 8),
        (head(120), vec![], "sm_120", 8),
        (Head { flags: head(100).flags | 8, ..head(100) }, vec![], "sm_100a", 8),
        (head(90), Vec::from(accelerator(1)), "sm_90a", 8),
        (head(90), Vec::from(accelerator(0)), "sm_90", 8),
        (old_head(86), vec![], "sm_86", 7),
        (Head { flags: old_head(90).flags | 0x800, ..old_head(90) }, vec![], "sm_90a", 7),
    ] {
        let bytes = cubin(head, &sections);
        let parsed = Cubin::parse(&bytes).expect(arch);
        assert_eq!(parsed.arch().to_string(), arch);
        assert_eq!(parsed.abi_version(), abi);
        assert!(Cubin::is_cubin(&bytes) && !parsed.is_relocatable() && !parsed.is_mercury());
    }
    let bytes = cubin(Head { elf_type: 1, flags: head(100).flags | 2, ..head(100) }, &[]);
    let parsed = Cubin::parse(&bytes).expect("cubin");
    assert!(parsed.is_relocatable() && parsed.is_mercury());
    // Bit 1 is nothing of the kind in the old ABI.
    let bytes = cubin(Head { flags: 0x0056_0556, ..old_head(86) }, &[]);
    assert!(!Cubin::parse(&bytes).expect("cubin").is_mercury());
}

#[test]
fn symbols_and_resources() {
    let bytes = cubin(head(90), &sections());
    let parsed = Cubin::parse(&bytes).expect("cubin");
    let symbols: Vec<_> = parsed.symbols().iter().map(|s| (s.name, s.kind, s.binding, s.size, s.section)).collect();
    use Binding::{Global, Local, Weak};
    assert_eq!(
        symbols,
        [
            ("k", SymbolKind::Kernel, Global, 100, Some(3)),
            ("f", SymbolKind::Function, Local, 28, Some(3)),
            ("g", SymbolKind::Variable(Space::Global), Weak, 40, Some(4)),
            ("c", SymbolKind::Variable(Space::Constant), Global, 16, Some(5)),
            ("s", SymbolKind::Variable(Space::Shared), Local, 512, Some(6)),
            ("u", SymbolKind::Undefined, Global, 0, None),
            ("t", SymbolKind::Texture, Global, 0, None),
            ("p", SymbolKind::Other, Local, 8, Some(10)),
        ]
    );
    assert_eq!(parsed.variables().map(|s| (s.name, s.value)).collect::<Vec<_>>(), [("g", 0), ("c", 8)]);
    assert_eq!(parsed.size_of_sections(".nv.global"), 40);
    assert_eq!(parsed.size_of_sections(".nv.constant0"), 540);
    assert_eq!(parsed.section(".nv.constant3").map(<[u8]>::len), Some(24));
    assert_eq!(parsed.section(".nv.constant4"), None);

    let kernels = parsed.kernels().expect("kernels");
    let [kernel] = &kernels[..] else { panic!("{} kernels", kernels.len()) };
    assert_eq!((kernel.name, kernel.binding), ("k", Global));
    assert_eq!(kernel.registers, Some(24));
    assert_eq!(kernel.stack, 96);
    assert_eq!(kernel.shared, 1536);
    assert_eq!(kernel.constants, [(0, 540), (2, 8)]);
    assert_eq!(kernel.code, 128);
    assert_eq!(kernel.parameters, Some(12));
    assert_eq!(kernel.max_threads, Some([128, 2, 1]));
    assert_eq!(kernel.required_threads, Some([32, 1, 1]));
    assert_eq!(kernel.barriers, 3);
}

#[test]
fn references_to_kernels_are_marked() {
    let bytes = cubin(head(90), &sections());
    let changed = Cubin::with_kernels_marked(&bytes, |name| name == "u").unwrap().unwrap();
    let places: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != changed[at]).collect();
    assert_eq!(places.len(), 1);
    assert_eq!(changed[places[0]], bytes[places[0]] | 0x10);
    assert!(Cubin::parse(&changed).is_ok());
    // Definitions are what they are, and what is marked needs no mark.
    assert_eq!(Cubin::with_kernels_marked(&bytes, |name| name == "k" || name == "f").unwrap(), None);
    assert_eq!(Cubin::with_kernels_marked(&changed, |name| name == "u").unwrap(), None);
    assert!(Cubin::with_kernels_marked(b"no cubin", |_| true).is_err());
}

#[test]
fn addresses_of_kernels_become_those_of_descriptors() {
    let relocations = |size: usize, kinds: &[(u32, u32)]| -> Vec<u8> {
        let entry = |&(kind, symbol): &(u32, u32)| {
            let mut bytes = vec![0; size];
            bytes[8..12].copy_from_slice(&kind.to_le_bytes());
            bytes[12..16].copy_from_slice(&symbol.to_le_bytes());
            bytes
        };
        kinds.iter().flat_map(entry).collect()
    };
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let all = |kinds: [u32; 9]| kinds.map(|kind| (kind, 6));
    // R_CUDA_64, ABS32_LO_32, ABS32_HI_32, ABS32_LO_20, 8_16, UNIFIED, UNIFIED32_LO_32, UNIFIED_8_56, and a call, which is no address.
    let before = all([0x02, 0x38, 0x39, 0x2b, 0x4e, 0x66, 0x70, 0x6f, 0x4b]);
    let after = all([0x23, 0x3e, 0x3f, 0x30, 0x5e, 0x23, 0x3e, 0x63, 0x4b]);
    let others = [(0x38, 1), (0x70, 2)];
    let graph = |flag| words(&[0, u32::MAX, 1, 6, 0, u32::MAX - 1, 6, flag, 2, 1, 0, u32::MAX - 2, 6, 1]);
    let with = |kinds: &[(u32, u32)], flag| {
        let mut sections = sections();
        sections.push(Section::new(".rela.text.k", 4, &relocations(24, kinds)));
        sections.push(Section::new(".rel.text.k", 9, &relocations(16, kinds)));
        sections.push(Section::new(".rela.text.k", 4, &relocations(24, &others)));
        sections.push(Section::new(".rela.debug_info", 4, &relocations(24, &before)));
        sections.push(Section::new(".nv.callgraph", 0x7000_0001, &graph(flag)));
        cubin(head(90), &sections)
    };
    let bytes = with(&before, 1);
    let changed = Cubin::with_kernels_marked(&bytes, |name| name == "u").unwrap().unwrap();
    let mut expected = with(&after, 0);
    let mark = (0..bytes.len()).find(|&at| changed[at] == bytes[at] | 0x10 && changed[at] != bytes[at]).unwrap();
    expected[mark] |= 0x10;
    assert!(changed == expected);
    for cut in [1, 20, 23] {
        let mut sections = sections();
        sections.push(Section::new(".rela.text.k", 4, &relocations(24, &before)[..24 + cut]));
        let result = Cubin::with_kernels_marked(&cubin(head(90), &sections), |name| name == "u");
        assert_eq!(result.is_err(), cut < 16, "{cut}");
    }
    let mut sections = sections();
    sections.push(Section::new(".nv.callgraph", 0x7000_0001, &graph(1)[..52]));
    let error = Cubin::with_kernels_marked(&cubin(head(90), &sections), |name| name == "u").unwrap_err();
    assert_eq!(error.to_string(), "section .nv.callgraph of the cubin is cut off");
}

#[test]
fn a_kernel_without_notes_has_none() {
    let mut sections = sections();
    sections.truncate(3);
    let bytes = cubin(
        old_head(80),
        &[
            Section::new(".strtab", 3, STRTAB),
            {
                let rows = [symbol(0, 0, 0, 0, 0, 0), symbol(1, GLOBAL | FUNC, 0x10, 3, 0, 100)];
                Section { link: 1, ..Section::new(".symtab", 2, rows.as_flattened()) }
            },
            Section::new(".text.k", 1, &[0; 128]),
        ],
    );
    let parsed = Cubin::parse(&bytes).expect("cubin");
    let kernel = &parsed.kernels().expect("kernels")[0];
    assert_eq!((kernel.registers, kernel.stack, kernel.shared), (None, 0, 0));
    assert_eq!((kernel.parameters, kernel.max_threads, kernel.barriers), (None, None, 0));
    assert!(kernel.constants.is_empty());
}

#[test]
fn more_sections_than_the_header_can_count() {
    let mut sections = sections();
    let extended = |symbols: &mut [u8], at: usize| {
        symbols[at * 24 + 6..at * 24 + 8].copy_from_slice(&[0xff, 0xff]);
    };
    extended(&mut sections[1].data, 1);
    let mut indices = vec![0u8; 8 * 4];
    indices[4] = 3;
    sections.push(Section { link: 2, ..Section::new(".symtab_shndx", 18, &indices) });
    let bytes = cubin(Head { extended: true, ..head(90) }, &sections);
    let parsed = Cubin::parse(&bytes).expect("cubin");
    assert_eq!(parsed.sections().len(), sections.len() + 2);
    assert_eq!(parsed.symbols()[0].section, Some(3));
    assert_eq!(parsed.kernels().expect("kernels")[0].code, 128);

    // Without the table of the large indices, the symbol has no section to be found.
    sections.pop();
    let bytes = cubin(Head { extended: true, ..head(90) }, &sections);
    assert!(Cubin::parse(&bytes).is_err());
}

#[test]
fn refuses_wrong_headers() {
    let good = cubin(head(90), &sections());
    let table = u64::from_le_bytes(good[40..48].try_into().expect("8 bytes")) as usize;
    let names = good.len() - 64;
    let symtab = table + 2 * 64;
    let strtab_link = symtab + 40;
    for (at, bytes, message) in [
        (0, vec![0], "cubin is not an elf file"),
        (4, vec![1], "cubin is not a 64-bit little-endian elf file"),
        (5, vec![2], "cubin is not a 64-bit little-endian elf file"),
        (7, vec![0], "cubin has the unknown os abi 0x0"),
        (16, vec![3], "cubin has elf type 3"),
        (18, vec![62], "elf file is for machine 62, not for cuda"),
        (40, vec![0xff; 8], "section table of the cubin is cut off"),
        (58, vec![40], "cubin has section headers of 40 bytes"),
        (60, vec![0xff, 0xfe], "section table of the cubin is cut off"),
        (62, vec![0xfe, 0xfe], "section of the cubin lies outside the file"),
        (62, vec![0], "name in the cubin lies outside its table or is not utf-8"),
        (table + 64, vec![0xff; 4], "name in the cubin lies outside its table or is not utf-8"),
        (table + 64 + 24, vec![0xff; 8], "section of the cubin lies outside the file"),
        (names + 32, vec![0xff; 8], "section of the cubin lies outside the file"),
        (symtab + 32, vec![25], "symbol table of the cubin is cut off"),
        (strtab_link, vec![0xff], "symbol table of the cubin is cut off"),
    ] {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(&bytes);
        let found = Cubin::parse(&bad).expect_err(message).to_string();
        assert_eq!(found, message, "at {at}");
    }
}

#[test]
fn refuses_malformed_notes() {
    for bytes in [&[4u8][..], &[4, 5, 12, 0, 1], &[0, 5, 0, 0], &[5, 5, 0, 0], &[2, 0x4c, 1]] {
        for section in [6, 7] {
            let mut sections = sections();
            sections[section].data = bytes.to_vec();
            let bytes = cubin(head(90), &sections);
            let parsed = Cubin::parse(&bytes).expect("cubin");
            let error = parsed.kernels().expect_err("kernels").to_string();
            assert_eq!(error, "cubin has a malformed .nv.info section");
        }
    }
}

#[test]
fn truncation_and_changed_bytes_are_survived() {
    let good = cubin(head(90), &sections());
    for end in 0..good.len() {
        assert!(Cubin::parse(&good[..end]).is_err(), "{end}");
    }
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            if let Ok(parsed) = Cubin::parse(&bytes) {
                let _ = parsed.kernels();
                parsed.size_of_sections(".nv.global");
                parsed.variables().count();
            }
        }
    }
}

#[test]
fn an_elf_file_without_sections_is_a_cubin() {
    let mut bytes = cubin(head(75), &[]);
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    bytes.truncate(64);
    let parsed = Cubin::parse(&bytes).expect("cubin");
    assert_eq!(parsed.arch(), Arch::new(75));
    assert!(parsed.symbols().is_empty() && parsed.kernels().expect("kernels").is_empty());
}
