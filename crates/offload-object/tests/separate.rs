//! Relocatable links set apart: linked again by every linker, run, and compared with what llvm-objcopy makes.

mod common;

use std::path::Path;

use common::{input, linkers, read, run, scratch, tool, write, yaml};
use offload_object::{Error, HostObject, ImageKind, ImageSpec, OffloadKind, linked_entries, separate_relocatable, write_v1};

/// Compiles `entries.c` with a device image in it, and `registration.c`, both for `prefix`.
fn compile(dir: &Path, clang: &Path, prefix: &str, flags: &[&str]) {
    let image = ImageSpec {
        image_kind: ImageKind::Bitcode,
        offload_kind: OffloadKind::CUDA,
        flags: 0,
        strings: vec![("triple".into(), "nvptx64-nvidia-cuda".into()), ("arch".into(), "sm_90".into())],
        image: b"BC\xc0\xde".to_vec(),
    };
    write(dir, "image", &write_v1(&image));
    let define = format!("-DPREFIX={prefix}");
    for (name, extra) in [("entries", &["-Xclang", "-fembed-offload-object=image"][..]), ("registration", &[])] {
        let source = input(&format!("{name}.c"));
        let object = format!("{prefix}_{name}.o");
        run(dir, clang, &[&["-c", "-O1", "-g", &define, source.to_str().unwrap(), "-o", &object], extra, flags].concat());
    }
}

fn expected_output(prefix: &str) -> Vec<String> {
    let rest = [
        "kernel kind=2 flags=0 size=0",
        "static kind=2 flags=0 size=0",
        "weak kind=2 flags=0 size=0",
        "constant kind=2 flags=16 size=16",
        "managed kind=4 flags=9 size=8",
    ];
    let mut lines: Vec<_> = rest.iter().map(|rest| format!("{prefix}: {prefix}_{rest} address=set")).collect();
    lines.sort();
    lines
}

/// Two relocatable links of `first`, each set apart, in one program with a third, plain device link. Each part must see its own entries only.
#[test]
fn every_linker_keeps_them_apart() {
    let Some(clang) = tool("clang") else { return };
    let dir = scratch();
    let dir = dir.path();
    for prefix in ["a", "b", "c"] {
        compile(dir, &clang, prefix, &["-fPIC", "-ffunction-sections", "-fdata-sections"]);
    }
    run(dir, &clang, &["-c", input("main.c").to_str().unwrap(), "-o", "main.o"]);
    for (first_name, first) in linkers() {
        for prefix in ["a", "b"] {
            run(dir, &first, &["-r", &format!("{prefix}_entries.o"), &format!("{prefix}_registration.o"), "-o", "joined.o"]);
            let joined = read(dir, "joined.o");
            assert!(HostObject::parse(&joined).unwrap().has_offload_section(), "{first_name}");
            let apart = separate_relocatable(&joined, &format!("{prefix}0f")).unwrap();
            let object = HostObject::parse(&apart).unwrap();
            assert!(!object.has_offload_section() && object.section_named(".llvm.offloading").is_none(), "{first_name}");
            assert!(object.entries().unwrap().is_empty() && !object.is_registration_object(), "{first_name}");
            write(dir, &format!("{prefix}.o"), &apart);
        }
        for (second_name, second) in linkers() {
            let ld = format!("--ld-path={}", second.display());
            for flags in [&["-pie"][..], &["-no-pie"], &["-pie", "-Wl,--gc-sections"], &["-no-pie", "-Wl,--gc-sections", "-O1"]] {
                let what = format!("{first_name}, then {second_name} {flags:?}");
                // lld drops plain entries under --gc-sections, and then has nothing for the plain registration to walk.
                let plain = if flags.contains(&"-Wl,--gc-sections") { &[][..] } else { &["c_registration.o", "c_entries.o"] };
                run(dir, &clang, &[&[&ld, "a.o", "main.o", "b.o", "-o", "out"], plain, flags].concat());
                let printed = run(dir, dir.join("out"), &[]);
                let linked = linked_entries(&read(dir, "out")).unwrap();
                for prefix in ["a", "b"] {
                    let mut lines: Vec<_> = printed.lines().filter(|line| line.starts_with(&format!("{prefix}:"))).collect();
                    lines.sort();
                    assert_eq!(lines, expected_output(prefix), "{what}");
                    let count = linked.iter().filter(|entry| entry.name.starts_with(format!("{prefix}_").as_bytes())).count();
                    assert_eq!(count, 5, "{what}");
                }
                let mut lines: Vec<_> = printed.lines().filter(|line| line.starts_with("c:")).collect();
                lines.sort();
                assert_eq!(lines, if plain.is_empty() { vec![] } else { expected_output("c") }, "{what}");
            }
        }
    }
}

/// The sections of older releases are set apart, too.
#[test]
fn entries_of_older_releases() {
    let Some(clang) = tool("clang") else { return };
    let dir = scratch();
    let dir = dir.path();
    compile(dir, &clang, "a", &["-fPIC", "-DOLD=19"]);
    for (name, linker) in linkers() {
        run(dir, &linker, &["-r", "a_entries.o", "-o", "joined.o"]);
        assert_eq!(HostObject::parse(&read(dir, "joined.o")).unwrap().entries().unwrap().len(), 5, "{name}");
        let apart = separate_relocatable(&read(dir, "joined.o"), "one").unwrap();
        let object = HostObject::parse(&apart).unwrap();
        assert!(object.entries().unwrap().is_empty(), "{name}");
        for section in ["cuda_offloading_entries_one", "hip_offloading_entries_one"] {
            assert!(object.section_named(section).is_some(), "{name}: {section}");
        }
        write(dir, "apart.o", &apart);
        run(dir, tool("ld.lld").unwrap(), &["-shared", "--allow-shlib-undefined", "--gc-sections", "apart.o", "-o", "out"]);
        assert_eq!(linked_entries(&read(dir, "out")).unwrap().len(), 5, "{name}");
    }
}

/// A relocatable link of something that was set apart before leaves it apart.
#[test]
fn twice() {
    let (Some(clang), Some(ld)) = (tool("clang"), tool("ld.lld")) else { return };
    let dir = scratch();
    let dir = dir.path();
    compile(dir, &clang, "a", &["-fPIC"]);
    compile(dir, &clang, "b", &["-fPIC"]);
    run(dir, &clang, &["-c", input("main.c").to_str().unwrap(), "-o", "main.o"]);
    run(dir, &ld, &["-r", "a_entries.o", "a_registration.o", "-o", "a.o"]);
    write(dir, "a.o", &separate_relocatable(&read(dir, "a.o"), "one").unwrap());
    run(dir, &ld, &["-r", "a.o", "b_entries.o", "b_registration.o", "-o", "ab.o"]);
    write(dir, "ab.o", &separate_relocatable(&read(dir, "ab.o"), "two").unwrap());
    run(dir, &clang, &["ab.o", "main.o", "-o", "out"]);
    let mut printed: Vec<_> = run(dir, dir.join("out"), &[]).lines().map(str::to_owned).collect();
    printed.sort();
    assert_eq!(printed, [expected_output("a"), expected_output("b")].concat());
}

/// What a reader sees of an object: sections, symbols and relocations by name.
fn dump(bytes: &[u8], ignore_flags_of_entries: bool) -> String {
    use std::fmt::Write;
    let elf = goblin::elf::Elf::parse(bytes).unwrap();
    let mut out = String::new();
    let name = |index: usize| elf.shdr_strtab.get_at(elf.section_headers[index].sh_name).unwrap();
    let place = |index: usize| if (1..0xff00).contains(&index) { name(index).to_owned() } else { format!("{index:x}") };
    let symbol_name = |index: usize| {
        let symbol = elf.syms.get(index).unwrap();
        format!("{}/{}", elf.strtab.get_at(symbol.st_name).unwrap(), place(symbol.st_shndx))
    };
    for (index, header) in elf.section_headers.iter().enumerate().skip(1) {
        let mut flags = header.sh_flags;
        if ignore_flags_of_entries && name(index).starts_with("llvm_offload_entries") {
            flags &= !(1 << 21);
        }
        // String and symbol tables are compared by what they hold; where a table is not linked to symbols its link is no section.
        let contents = match header.sh_type {
            1 | 14 | 15 | 0x7000_0001 => format!("{:x?}", &bytes[header.file_range().unwrap()]),
            _ => String::new(),
        };
        let link = if header.sh_type == 0x6fff_4c03 { String::new() } else { place(header.sh_link as usize) };
        writeln!(out, "{} {:x} {flags:x} {} {} {link} {contents}", name(index), header.sh_type, header.sh_addralign, header.sh_entsize)
            .unwrap();
    }
    let mut symbols: Vec<_> =
        elf.syms.iter().enumerate().map(|(i, s)| (symbol_name(i), s.st_info, s.st_other, s.st_value, s.st_size)).collect();
    symbols.sort();
    for symbol in symbols {
        writeln!(out, "{symbol:x?}").unwrap();
    }
    for (section, relocations) in &elf.shdr_relocs {
        for relocation in relocations.iter() {
            let symbol = symbol_name(relocation.r_sym);
            writeln!(out, "{} {:x} {} {symbol} {:?}", name(*section), relocation.r_offset, relocation.r_type, relocation.r_addend).unwrap();
        }
    }
    out
}

#[test]
fn same_as_llvm_objcopy() {
    let (Some(clang), Some(objcopy)) = (tool("clang"), tool("llvm-objcopy")) else { return };
    let dir = scratch();
    let dir = dir.path();
    compile(dir, &clang, "a", &["-fPIC", "-ffunction-sections"]);
    for (name, linker) in linkers() {
        run(dir, linker, &["-r", "a_entries.o", "a_registration.o", "-o", "joined.o"]);
        let args = [
            "joined.o",
            "theirs.o",
            "--remove-section",
            ".llvm.offloading",
            "--rename-section",
            "llvm_offload_entries=llvm_offload_entries_0f",
            "--redefine-sym",
            "__start_llvm_offload_entries=__start_llvm_offload_entries_0f",
            "--redefine-sym",
            "__stop_llvm_offload_entries=__stop_llvm_offload_entries_0f",
        ];
        run(dir, &objcopy, &args);
        let ours = separate_relocatable(&read(dir, "joined.o"), "0f").unwrap();
        let ours_text = dump(&ours, true);
        assert_eq!(ours_text, dump(&read(dir, "theirs.o"), true), "{name}");
        assert_ne!(ours_text, dump(&ours, false), "SHF_GNU_RETAIN is set");
        assert_eq!(ours[7], 3, "ELFOSABI_GNU");
    }
}

#[test]
fn whatever_holds_a_number() {
    for data in ["ELFDATA2LSB", "ELFDATA2MSB"] {
        let dir = scratch();
        let dir = dir.path();
        let Some(yaml2obj) = tool("yaml2obj") else { return };
        let source = input("group.yaml");
        run(dir, &yaml2obj, &[source.to_str().unwrap(), &format!("-DDATA={data}"), "-o", "in.o"]);
        let apart = separate_relocatable(&read(dir, "in.o"), "s").unwrap();
        write(dir, "out.o", &apart);
        let Some(readelf) = tool("llvm-readelf") else { return };
        let shown = run(dir, &readelf, &["--section-groups", "--addrsig", "-r", "-s", "out.o"]);
        let order: Vec<&str> = goblin_sections(&apart).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            order,
            [
                "",
                ".group",
                ".text.inline",
                ".order",
                ".data",
                ".rela.data",
                ".rel.data",
                ".bss",
                "llvm_offload_entries_s",
                ".relallvm_offload_entries_s",
                ".llvm_addrsig",
                ".symtab",
                ".strtab",
                ".shstrtab",
            ]
        );
        let expect = |text: &str| assert!(shown.contains(text), "{text}\n{shown}");
        expect("COMDAT group section [    1] `.group' [inline] contains 2 sections:");
        expect("[    2]   .text.inline");
        expect("[    3]   .order");
        assert!(!shown.contains("gone"), "{shown}");
        let lines: Vec<String> = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for relocation in ["inline + 3", "local + 0", "needed"] {
            assert!(lines.iter().any(|line| line.contains("R_X86_64_64") && line.ends_with(relocation)), "{relocation}\n{shown}");
        }
        let significant = shown.split("Address-significant").nth(1).unwrap_or_default();
        assert!(["inline", "local", "needed"].iter().all(|name| significant.contains(name)), "{shown}");
        // .order is still linked to the section before it.
        assert_eq!(goblin_sections(&apart)[3].1, 2);
    }
}

fn goblin_sections(bytes: &[u8]) -> Vec<(&str, u32)> {
    let elf = goblin::elf::Elf::parse(bytes).unwrap();
    let name = |offset: usize| {
        let start = elf.section_headers[elf.header.e_shstrndx as usize].sh_offset as usize + offset;
        let end = start + bytes[start..].iter().position(|&byte| byte == 0).unwrap();
        std::str::from_utf8(&bytes[start..end]).unwrap()
    };
    elf.section_headers.iter().map(|header| (name(header.sh_name), header.sh_link)).collect()
}

/// More sections than a symbol or the file header can number.
#[test]
fn more_than_65280_sections() {
    let (Some(clang), Some(ld)) = (tool("clang"), tool("ld.lld")) else { return };
    let dir = scratch();
    let dir = dir.path();
    let mut assembly: String = (0..66_000).map(|i| format!(".section .text.f{i},\"ax\",@progbits,unique,{i}\nf{i}: ret\n")).collect();
    assembly.push_str(".section .data.f,\"aw\"\n.quad f65999\n.globl last\nlast: .quad f1\n");
    write(dir, "many.s", assembly.as_bytes());
    run(dir, &clang, &["-c", "many.s", "-o", "many.o"]);
    compile(dir, &clang, "a", &["-fPIC"]);
    // Nothing is merged without a script, and the object with the image comes first so that all numbers change.
    run(dir, &ld, &["-r", "--unique", "a_entries.o", "a_registration.o", "many.o", "-o", "joined.o"]);
    let joined = read(dir, "joined.o");
    let apart = separate_relocatable(&joined, "s").unwrap();
    let before = HostObject::parse(&joined).unwrap();
    let after = HostObject::parse(&apart).unwrap();
    assert_eq!(before.symbols().len(), after.symbols().len());
    assert_eq!(after.section_named("llvm_offload_entries_s").map(<[u8]>::len), Some(5 * 56));
    write(dir, "apart.o", &apart);
    run(dir, &clang, &["-c", input("main.c").to_str().unwrap(), "-o", "main.o"]);
    run(dir, &clang, &["-fuse-ld=lld", "apart.o", "main.o", "-o", "out"]);
    let mut printed: Vec<_> = run(dir, dir.join("out"), &[]).lines().map(str::to_owned).collect();
    printed.sort();
    assert_eq!(printed, expected_output("a"));
}

#[test]
fn what_cannot_be_set_apart() {
    assert_eq!(separate_relocatable(b"", "s"), Err(Error("not a relocatable 64-bit ELF object")));
    for suffix in ["", "a-b", "a.b", "ä"] {
        assert_eq!(separate_relocatable(b"", suffix), Err(Error("suffix of the offload entries is not part of a C identifier")));
    }
    let Some(bytes) = yaml("big-endian-32.yaml") else { return };
    assert_eq!(separate_relocatable(&bytes, "s"), Err(Error("not a relocatable 64-bit ELF object")));
    let bytes = yaml("coff.yaml").unwrap();
    assert_eq!(separate_relocatable(&bytes, "s"), Err(Error("relocatable linking is for ELF objects only")));

    let dir = scratch();
    let source = input("group.yaml");
    let yaml2obj = tool("yaml2obj").unwrap();
    run(dir.path(), &yaml2obj, &[source.to_str().unwrap(), "-DREFERS=gone", "-o", "in.o"]);
    let refused = separate_relocatable(&read(dir.path(), "in.o"), "s");
    assert_eq!(refused, Err(Error("something refers into a section of device images")));
    run(dir.path(), &yaml2obj, &[source.to_str().unwrap(), "-DGLOBAL_BINDING=, Binding: STB_GLOBAL", "-o", "in.o"]);
    let refused = separate_relocatable(&read(dir.path(), "in.o"), "s");
    assert_eq!(refused, Err(Error("section of device images defines a global symbol")));
}

#[test]
fn damaged_objects_never_panic() {
    let Some(good) = yaml("group.yaml") else { return };
    assert!(separate_relocatable(&good, "s").is_ok());
    for len in 0..good.len() {
        let _ = separate_relocatable(&good[..len], "s");
    }
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut damaged = good.clone();
            damaged[at] = value;
            let _ = separate_relocatable(&damaged, "s");
        }
    }
}
