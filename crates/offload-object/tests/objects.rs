//! Host objects: made by clang in the test, or from YAML where compilers make no such thing. goblin is the second reader.

mod common;

use std::path::{Path, PathBuf};

use common::{cuda_path, input, read, run, scratch, tool, write, yaml};
use offload_object::{
    Archive, Error, FileKind, HostEntry, HostObject, ImageKind, ImageSpec, ObjectFormat, OffloadKind, SymbolKind, VariableKind, file_kind,
    parse_section, write_v1,
};

fn image(arch: &str) -> ImageSpec {
    ImageSpec {
        image_kind: ImageKind::Bitcode,
        offload_kind: OffloadKind::CUDA,
        flags: 0,
        strings: vec![("triple".into(), "nvptx64-nvidia-cuda".into()), ("arch".into(), arch.into())],
        image: b"BC\xc0\xde".to_vec(),
    }
}

/// `entries.c` with two device images in it, compiled into `dir` as `name`.
fn compile(dir: &Path, name: &str, flags: &[&str]) -> Option<Vec<u8>> {
    write(dir, "80.bin", &write_v1(&image("sm_80")));
    write(dir, "90.bin", &write_v1(&image("sm_90")));
    let source = input("entries.c");
    let mut args = vec!["-c", "-O1", source.to_str().unwrap(), "-o", name];
    args.extend(["-Xclang", "-fembed-offload-object=80.bin", "-Xclang", "-fembed-offload-object=90.bin"]);
    args.extend(flags);
    run(dir, tool("clang")?, &args);
    Some(read(dir, name))
}

fn text(name: Option<&[u8]>) -> &str {
    std::str::from_utf8(name.unwrap_or(b"-")).unwrap()
}

/// One line for each entry.
fn lines(entries: &[HostEntry]) -> Vec<String> {
    let line = |e: &HostEntry| {
        format!(
            "{} v{} {} flags={} size={} data={} at {}{} by {}",
            text(Some(e.name)),
            e.version,
            e.kind.names().collect::<Vec<_>>().join("+"),
            e.flags.0,
            e.size,
            e.data,
            text(e.address_symbol),
            if e.address_is_local { " (local)" } else { "" },
            text(e.entry_symbol),
        )
    };
    entries.iter().map(line).collect()
}

const ENTRIES: [&str; 5] = [
    "x_kernel v1 cuda flags=0 size=0 data=0 at x_kernel_stub by .offloading.entry.x_kernel",
    "x_static v1 cuda flags=0 size=0 data=0 at static_stub (local) by .offloading.entry.x_static",
    "x_weak v1 cuda flags=0 size=0 data=0 at x_weak_stub by .offloading.entry.x_weak",
    "x_constant v1 cuda flags=16 size=16 data=0 at x_variable by .offloading.entry.x_constant",
    "x_managed v1 hip flags=9 size=8 data=4 at x_variable by .offloading.entry.x_managed",
];

#[test]
fn elf_objects_of_clang() {
    let dir = scratch();
    for (name, flags) in [
        ("pic.o", &["-fPIC"][..]),
        ("nopic.o", &["-fno-pic"]),
        ("sections.o", &["-ffunction-sections", "-fdata-sections"]),
        ("aarch64.o", &["--target=aarch64-linux-gnu"]),
        // `.text + 0x30` addends in the section itself, and a big-endian host.
        ("ppc64.o", &["--target=powerpc64-linux-gnu"]),
        ("crel.o", &["-Wa,--crel,--allow-experimental-crel"]),
    ] {
        let Some(bytes) = compile(dir.path(), name, flags) else { return };
        assert_eq!(file_kind(&bytes), FileKind::ElfRelocatable);
        let object = HostObject::parse(&bytes).unwrap();
        assert!(object.has_offload_section() && !object.is_registration_object(), "{name}");
        let sections = object.offload_sections().unwrap();
        let archs: Vec<_> =
            sections.iter().flat_map(|section| parse_section(section).unwrap()).map(|image| image.arch().to_owned()).collect();
        assert_eq!(archs, ["sm_80", "sm_90"], "{name}");
        assert_eq!(lines(&object.entries().unwrap()), ENTRIES, "{name}");
        assert_eq!(object.file_symbols(), [b"entries.c"]);
        assert_eq!(
            object.target().arch_name(),
            Some(match name {
                "aarch64.o" => "aarch64",
                "ppc64.o" => "powerpc64",
                _ => "x86_64",
            })
        );
        same_as_goblin(&bytes);
    }
    let bytes = compile(dir.path(), "pic.o", &["-fPIC"]).unwrap();
    let object = HostObject::parse(&bytes).unwrap();
    let entries = object.entries().unwrap();
    assert_eq!(entries.iter().map(HostEntry::is_kernel).collect::<Vec<_>>(), [true, true, true, false, false]);
    assert_eq!(entries[3].flags.variable_kind(), VariableKind::Global);
    assert!(entries[3].flags.is_constant() && !entries[3].flags.is_extern());
    assert_eq!(entries[4].flags.variable_kind(), VariableKind::Managed);
    assert!(entries[4].flags.is_extern() && !entries[4].flags.is_normalized());
}

#[test]
fn elf_32_with_rel_relocations() {
    let dir = scratch();
    let Some(bytes) = compile(dir.path(), "arm.o", &["--target=armv7-linux-gnueabihf"]) else { return };
    let object = HostObject::parse(&bytes).unwrap();
    assert!(!object.target().is_64);
    assert_eq!(lines(&object.entries().unwrap()), ENTRIES);
    same_as_goblin(&bytes);
}

#[test]
fn coff_objects_of_clang() {
    let dir = scratch();
    for (name, flags) in
        [("a.obj", &["--target=x86_64-pc-windows-msvc"][..]), ("big.obj", &["--target=x86_64-pc-windows-msvc", "-Wa,-mbig-obj"])]
    {
        let Some(bytes) = compile(dir.path(), name, flags) else { return };
        assert_eq!(file_kind(&bytes), FileKind::Coff);
        let object = HostObject::parse(&bytes).unwrap();
        assert_eq!((object.target().format, object.target().arch_name()), (ObjectFormat::Coff, Some("x86_64")));
        assert!(object.has_offload_section());
        let archs: Vec<_> =
            object.offload_sections().unwrap().iter().flat_map(|s| parse_section(s).unwrap()).map(|i| i.arch().to_owned()).collect();
        assert_eq!(archs, ["sm_80", "sm_90"]);
        assert_eq!(lines(&object.entries().unwrap()), ENTRIES, "{name}");
        assert_eq!(object.file_symbols(), [b"entries.c"]);
        let symbols = object.symbols();
        let kind = |name: &[u8]| symbols.iter().find(|symbol| symbol.name == name).map(|symbol| symbol.kind);
        assert_eq!(kind(b"x_kernel_stub"), Some(SymbolKind::Defined));
        assert_eq!(kind(b"x_weak_stub"), Some(SymbolKind::DefinedWeak));
        assert_eq!(kind(b"static_stub"), None);
        assert_eq!(object.section_named("llvm_offload_entries$OE").map(<[u8]>::len), Some(5 * 56));
    }
}

/// Sections by name and symbols by kind, both as goblin reads them.
fn same_as_goblin(bytes: &[u8]) {
    use goblin::elf::section_header::{SHN_COMMON, SHN_UNDEF};
    use goblin::elf::sym::{STB_LOCAL, STB_WEAK};
    let elf = goblin::elf::Elf::parse(bytes).unwrap();
    let object = HostObject::parse(bytes).unwrap();
    for header in &elf.section_headers {
        let name = elf.shdr_strtab.get_at(header.sh_name).unwrap();
        let range = header.file_range().unwrap_or_default();
        // Names may come twice; the first counts.
        if elf.section_headers.iter().find(|other| elf.shdr_strtab.get_at(other.sh_name) == Some(name)) == Some(header) {
            assert_eq!(object.section_named(name), Some(&bytes[range]), "{name}");
        }
    }
    let table = if elf.header.e_type == goblin::elf::header::ET_DYN { (&elf.dynsyms, &elf.dynstrtab) } else { (&elf.syms, &elf.strtab) };
    let expected: Vec<_> = table
        .0
        .iter()
        .filter(|symbol| symbol.st_bind() != STB_LOCAL)
        .map(|symbol| {
            let kind = match (symbol.st_shndx as u32, symbol.st_bind()) {
                (SHN_UNDEF, STB_WEAK) => SymbolKind::UndefinedWeak,
                (SHN_UNDEF, _) => SymbolKind::Undefined,
                (SHN_COMMON, _) => SymbolKind::Common,
                (_, STB_WEAK) => SymbolKind::DefinedWeak,
                _ => SymbolKind::Defined,
            };
            (table.1.get_at(symbol.st_name).unwrap(), kind)
        })
        .collect();
    let found: Vec<_> = object.symbols().into_iter().map(|symbol| (std::str::from_utf8(symbol.name).unwrap(), symbol.kind)).collect();
    assert_eq!(found, expected);
}

#[test]
fn objects_at_odd_addresses() {
    let dir = scratch();
    let (Some(elf), Some(coff)) = (compile(dir.path(), "a.o", &[]), compile(dir.path(), "a.obj", &["--target=x86_64-pc-windows-msvc"]))
    else {
        return;
    };
    for bytes in [elf, coff] {
        let shifted = [b"x", &bytes[..]].concat();
        let object = HostObject::parse(&shifted[1..]).unwrap();
        assert_eq!(lines(&object.entries().unwrap()), ENTRIES);
        assert_eq!(object.offload_sections().unwrap(), HostObject::parse(&bytes).unwrap().offload_sections().unwrap());
    }
}

#[test]
fn truncated_and_damaged_objects_never_panic() {
    let dir = scratch();
    let Some(elf) = compile(dir.path(), "a.o", &[]) else { return };
    let coff = compile(dir.path(), "a.obj", &["--target=x86_64-pc-windows-msvc"]).unwrap();
    let big = compile(dir.path(), "big.obj", &["--target=x86_64-pc-windows-msvc", "-Wa,-mbig-obj"]).unwrap();
    let elf32 = compile(dir.path(), "32.o", &["--target=i386-linux-gnu"]).unwrap();
    let look = |bytes: &[u8]| {
        if let Ok(object) = HostObject::parse(bytes) {
            object.offload_sections().into_iter().flatten().for_each(|section| _ = parse_section(section));
            let _ = (object.entries(), object.symbols(), object.file_symbols(), object.is_registration_object(), object.nvcc_module_ids());
        }
        let _ = offload_object::linked_entries(bytes);
        let _ = offload_object::set_metadata(bytes, "ptx", Some("all"));
        let _ = offload_object::separate_relocatable(bytes, "s");
    };
    for bytes in [elf, coff, big, elf32] {
        for len in 0..bytes.len() {
            look(&bytes[..len]);
        }
        // One byte at a time, to values that make sizes and offsets zero, huge and negative.
        for at in 0..bytes.len() {
            for value in [0, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                look(&damaged);
            }
        }
    }
}

#[test]
fn sections_count_by_type() {
    let Some(bytes) = yaml("offload-by-type.yaml") else { return };
    let object = HostObject::parse(&bytes).unwrap();
    let sections = object.offload_sections().unwrap();
    let archs: Vec<Vec<_>> =
        sections.iter().map(|s| parse_section(s).unwrap().iter().map(|image| image.arch().to_owned()).collect()).collect();
    assert_eq!(archs, [vec!["sm_90"], vec!["gfx90a"], vec![]]);
    let symbols: Vec<_> = object.symbols().into_iter().map(|symbol| (std::str::from_utf8(symbol.name).unwrap(), symbol.kind)).collect();
    assert_eq!(
        symbols,
        [
            ("strong", SymbolKind::Defined),
            ("weak", SymbolKind::DefinedWeak),
            ("unique", SymbolKind::Defined),
            ("common", SymbolKind::Common),
            ("large_common", SymbolKind::Common),
            ("needed", SymbolKind::Undefined),
            ("wanted", SymbolKind::UndefinedWeak),
        ]
    );
    assert_eq!(object.file_symbols(), [b"source.cu"]);
    assert_eq!(object.fat_lto_bitcode(), None);
}

#[test]
fn odd_objects() {
    let Some(bytes) = yaml("big-endian-32.yaml") else { return };
    let object = HostObject::parse(&bytes).unwrap();
    assert!(!object.target().little_endian && !object.target().is_64);
    assert_eq!(parse_section(object.offload_sections().unwrap()[0]).unwrap()[0].arch(), "sm_90");
    same_as_goblin(&bytes);

    let bytes = yaml("no-sections.yaml").unwrap();
    let object = HostObject::parse(&bytes).unwrap();
    assert!(!object.has_offload_section() && object.symbols().is_empty() && object.entries().unwrap().is_empty());

    let bytes = yaml("section-outside.yaml").unwrap();
    let object = HostObject::parse(&bytes).unwrap();
    assert_eq!(object.offload_sections().unwrap(), [b""]);

    let bytes = yaml("coff.yaml").unwrap();
    let object = HostObject::parse(&bytes).unwrap();
    let archs: Vec<_> =
        object.offload_sections().unwrap().iter().flat_map(|s| parse_section(s).unwrap()).map(|i| i.arch().to_owned()).collect();
    assert_eq!(archs, ["sm_90", "gfx90a"]);
    let symbols: Vec<_> = object.symbols().into_iter().map(|symbol| (std::str::from_utf8(symbol.name).unwrap(), symbol.kind)).collect();
    assert_eq!(
        symbols,
        [
            ("strong", SymbolKind::Defined),
            ("needed", SymbolKind::Undefined),
            ("common", SymbolKind::Common),
            ("a_name_longer_than_eight", SymbolKind::Defined),
        ]
    );
}

/// `yaml2obj` with macros.
fn yaml_with(name: &str, defines: &[&str]) -> Option<Vec<u8>> {
    let dir = scratch();
    let path = input(name);
    let mut args = vec![path.to_str().unwrap().to_owned(), "-o".into(), "out".into()];
    args.extend(defines.iter().map(|define| format!("-D{define}")));
    run(dir.path(), tool("yaml2obj")?, &args.iter().map(String::as_str).collect::<Vec<_>>());
    Some(read(dir.path(), "out"))
}

#[test]
fn entries_that_cannot_be_read() {
    let check = |defines: &[&str], expected: Result<&[u8], Error>| -> Option<()> {
        let bytes = yaml_with("entries-bad.yaml", defines)?;
        let object = HostObject::parse(&bytes).unwrap();
        assert_eq!(object.entries().map(|entries| entries[0].name).as_deref().map_err(|error| *error), expected, "{defines:?}");
        Some(())
    };
    if check(&[], Ok(b"k")).is_none() {
        return;
    }
    check(&["MORE=00"], Err(Error("offload entry is cut short")));
    check(&["OFFSET=16"], Err(Error("offload entry has no name")));
    check(&["ADDEND=2"], Err(Error("offload entry has a name outside the file")));
    check(&["ADDEND=-1"], Err(Error("offload entry has a name outside the file")));
    check(&["SYMBOL=elsewhere"], Err(Error("offload entry has a name outside the file")));
    check(&["SYMBOL=99"], Err(Error("ELF relocation has a malformed symbol")));
    // In a section of LLVM 20 and older the entry itself says which struct it is.
    check(&["ENTRIES=cuda_offloading_entries"], Ok(b"k"));
    check(&["ENTRIES=cuda_offloading_entries", "MORE=00"], Err(Error("offload entry is cut short")));
    check(&["ENTRIES=cuda_offloading_entries", "OFFSET=0"], Err(Error("offload entry is cut short")));
    check(&["ENTRIES=llvm_offload_entries", "FIRST=01"], Err(Error("offload entry has an unknown layout")));
}

#[test]
fn entries_of_older_releases() {
    let dir = scratch();
    for (name, flags) in [
        ("x86_64.o", &["--target=x86_64-linux-gnu"][..]),
        ("aarch64.o", &["--target=aarch64-linux-gnu"]),
        ("arm.o", &["--target=armv7-linux-gnueabihf"]),
        ("ppc64.o", &["--target=powerpc64-linux-gnu"]),
        ("coff.obj", &["--target=x86_64-pc-windows-msvc"]),
    ] {
        for old in ["-DOLD=19", "-DOLD=20"] {
            let Some(bytes) = compile(dir.path(), name, &[flags, &[old]].concat()) else { return };
            let entries = HostObject::parse(&bytes).unwrap().entries().map(|entries| lines(&entries)).unwrap();
            let version = if old == "-DOLD=19" { " v0 " } else { " v1 " };
            assert_eq!(entries, ENTRIES.map(|line| line.replace(" v1 ", version)), "{name} {old}");
        }
    }
}

#[test]
fn nvcc_module_ids() {
    let Some(bytes) = yaml("nvcc.yaml") else { return };
    let object = HostObject::parse(&bytes).unwrap();
    assert_eq!(object.nvcc_module_ids().unwrap(), ["_1_a_cu_2", "_5_c_cu_6"]);
    assert_eq!(object.linked_nvcc_module_ids().unwrap(), ["_3_b_cu_4"]);
}

#[test]
fn archives_of_real_tools() {
    let dir = scratch();
    let dir = dir.path();
    let (Some(elf), Some(ar)) = (compile(dir, "a_name_that_is_longer.o", &[]), tool("llvm-ar")) else { return };
    // Of odd size.
    write(dir, "b.o", &[&elf[..], b"x"].concat());
    for (format, thin) in [("gnu", false), ("bsd", false), ("coff", false), ("gnu", true)] {
        let mut args = vec!["rcs", "--format", format, "out.a", "a_name_that_is_longer.o", "b.o"];
        if thin {
            args.insert(1, "--thin");
        }
        let _ = std::fs::remove_file(dir.join("out.a"));
        run(dir, &ar, &args);
        let bytes = read(dir, "out.a");
        assert_eq!(file_kind(&bytes), if thin { FileKind::ThinArchive } else { FileKind::Archive });
        let archive = Archive::parse(&bytes).unwrap();
        assert_eq!(archive.is_thin(), thin);
        let members: Vec<_> = archive.members().map(|member| member.unwrap()).collect();
        assert_eq!(members.iter().map(|m| m.name).collect::<Vec<_>>(), [&b"a_name_that_is_longer.o"[..], b"b.o"], "{format}");
        // BSD archives pad their members.
        let size = |m: &offload_object::Member| m.size as usize;
        assert!((elf.len()..elf.len() + 8).contains(&size(&members[0])));
        match members[0].data {
            Some(data) => assert_eq!(data[..elf.len()], elf[..]),
            None => assert!(thin),
        }
        // goblin knows neither thin archives nor Microsoft's second index.
        if format == "gnu" && !thin {
            let second = goblin::archive::Archive::parse(&bytes).unwrap();
            assert_eq!(second.members(), ["a_name_that_is_longer.o", "b.o"]);
            assert_eq!(second.extract("b.o", &bytes).unwrap(), members[1].data.unwrap());
        }
    }
}

fn compile_cuda(dir: &Path, flags: &[&str]) -> Option<()> {
    let cuda = format!("--cuda-path={}", cuda_path()?.display());
    let source = input("kernels.cu");
    let mut args =
        vec!["-c", "-O2", &cuda, "-fgpu-rdc", "-foffload-lto", "-Wno-unknown-cuda-version", source.to_str().unwrap(), "-o", "k.o"];
    args.extend(["--offload-arch=sm_90"]);
    args.extend(flags);
    run(dir, tool("clang++")?, &args);
    Some(())
}

#[test]
fn real_cuda_object() {
    let dir = scratch();
    let dir = dir.path();
    if compile_cuda(dir, &["--offload-arch=sm_80", "-ffat-lto-objects", "-flto", "-fuse-cuid=none"]).is_none() {
        return;
    }
    let bytes = read(dir, "k.o");
    let object = HostObject::parse(&bytes).unwrap();
    assert_eq!(file_kind(object.fat_lto_bitcode().unwrap()), FileKind::Bitcode);
    let images: Vec<_> = object.offload_sections().unwrap().into_iter().flat_map(|section| parse_section(section).unwrap()).collect();
    let found: Vec<_> = images.iter().map(|i| (i.triple(), i.arch(), i.image_kind, i.offload_kind, i.get("feature").is_some())).collect();
    let expected = |arch| ("nvptx64-nvidia-cuda", arch, ImageKind::Bitcode, OffloadKind::CUDA, true);
    assert_eq!(found, [expected("sm_80"), expected("sm_90")]);
    assert!(images.iter().all(|image| file_kind(&image.image) == FileKind::Bitcode));
    let entries = object.entries().unwrap();
    let kernels: Vec<_> = entries.iter().filter(|entry| entry.is_kernel()).map(|e| (text(Some(e.name)), text(e.address_symbol))).collect();
    assert_eq!(kernels.len(), 3);
    assert!(kernels.contains(&("_Z5plainPi", "_Z20__device_stub__plainPi")), "{kernels:?}");
    assert!(kernels.contains(&("_Z7genericIiEvPT_", "_Z22__device_stub__genericIiEvPT_")), "{kernels:?}");
    let constants = entries.iter().find(|entry| entry.name == b"constants").unwrap();
    assert!(constants.flags.is_constant() && constants.size == 16 && constants.kind == OffloadKind::CUDA);
    let variable = entries.iter().find(|entry| entry.name == b"variable").unwrap();
    assert_eq!((variable.size, variable.address_symbol, variable.flags.is_constant()), (4, Some(&b"variable"[..]), false));
    same_as_goblin(&bytes);
}

/// What LLVM 22 makes to register an image, and the same after `ld -r` with an object.
#[test]
fn registration_object_of_llvm() {
    let dir = scratch();
    let dir = dir.path();
    let (Some(wrapper), Some(llc), Some(elf)) = (tool("llvm-offload-wrapper"), tool("llc"), compile(dir, "a.o", &[])) else { return };
    write(dir, "image", b"not looked at");
    let make = |kind: &str, triple: &str| -> PathBuf {
        let kind = format!("--kind={kind}");
        run(dir, &wrapper, &[&kind, &format!("--triple={triple}"), "-o", "w.bc", "image"]);
        run(dir, &llc, &["-filetype=obj", "--relocation-model=pic", "w.bc", "-o", "w.o"]);
        dir.join("w.o")
    };
    for kind in ["cuda", "hip", "openmp"] {
        for triple in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
            let bytes = std::fs::read(make(kind, triple)).unwrap();
            let object = HostObject::parse(&bytes).unwrap();
            assert!(object.is_registration_object(), "{kind} {triple}");
            assert!(object.entries().unwrap().is_empty());
        }
        let bytes = std::fs::read(make(kind, "x86_64-pc-windows-msvc")).unwrap();
        assert!(HostObject::parse(&bytes).unwrap().is_registration_object(), "{kind} COFF");
    }
    assert!(!HostObject::parse(&elf).unwrap().is_registration_object());
    make("cuda", "x86_64-unknown-linux-gnu");
    for (name, linker) in common::linkers() {
        run(dir, linker, &["-r", "a.o", "w.o", "-o", "r.o"]);
        let bytes = read(dir, "r.o");
        let object = HostObject::parse(&bytes).unwrap();
        assert!(object.is_registration_object(), "{name}");
        let mut found = lines(&object.entries().unwrap());
        found.sort();
        let mut expected = ENTRIES.map(str::to_owned);
        expected.sort();
        assert_eq!(found, expected, "{name}");
    }
}
