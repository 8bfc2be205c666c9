//! Changing what is recorded: objects, archives and bare binaries. What is not recorded must stay as it was, and everything must still link.

mod common;

use std::path::Path;

use common::{input, linkers, read, run, scratch, tool, write, yaml};
use offload_object::{
    Archive, Error, HostObject, ImageKind, ImageSpec, OffloadKind, parse_section, set_metadata, write_v1, write_v2, write_v3,
};

fn spec(kind: OffloadKind, strings: &[(&str, &str)]) -> ImageSpec {
    ImageSpec {
        image_kind: ImageKind::Bitcode,
        offload_kind: kind,
        flags: 5,
        strings: strings.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        image: b"BC\xc0\xde and more".to_vec(),
    }
}

fn strings(section: &[u8]) -> Vec<Vec<(String, String)>> {
    parse_section(section).unwrap().iter().map(|image| ImageSpec::from(image).strings).collect()
}

#[test]
fn bare_binaries() {
    let cuda = spec(OffloadKind::CUDA, &[("arch", "sm_90"), ("triple", "nvptx64-nvidia-cuda")]);
    let hip = spec(OffloadKind::HIP, &[("arch", "gfx90a")]);
    let both = spec(OffloadKind(OffloadKind::CUDA.0 | OffloadKind::OPENMP.0), &[("ptx", "none"), ("arch", "sm_80")]);
    let specs = [cuda, hip, both];
    let with = |value: &str| {
        let mut specs = specs.clone();
        specs[0].strings.push(("ptx".into(), value.into()));
        specs[2].strings[0].1 = value.into();
        specs
    };
    let v1 = |specs: &[ImageSpec]| specs.iter().flat_map(write_v1).collect::<Vec<u8>>();
    let v2 = |specs: &[ImageSpec]| write_v2(specs);
    let v3 = |specs: &[ImageSpec]| write_v3(specs, None);
    let packed = |specs: &[ImageSpec]| write_v3(specs, Some(3));
    for write in [&v1 as &dyn Fn(&[ImageSpec]) -> Vec<u8>, &v2, &v3, &packed] {
        let file = write(&specs);
        assert_eq!(set_metadata(&file, "ptx", Some("all")), Ok((write(&with("all")), 2)));
        assert_eq!(set_metadata(&file, "ptx", Some("none")), Ok((write(&with("none")), 1)));
        let without = set_metadata(&file, "ptx", None).unwrap();
        assert_eq!(without.1, 1);
        assert_eq!(set_metadata(&without.0, "ptx", None), Ok((without.0.clone(), 0)));
        assert_eq!(set_metadata(&without.0, "ptx", Some("sm_90,sm_80")).unwrap().1, 2);
    }
    // Binaries without a CUDA image keep their bytes, even such as we would not write.
    let mut odd = write_v1(&specs[1]);
    odd.extend([0; 8]);
    odd[8] += 8;
    let file = [write_v1(&specs[0]), odd.clone()].concat();
    let (new, _) = set_metadata(&file, "ptx", Some("all")).unwrap();
    assert!(new.ends_with(&odd));
}

fn compile(dir: &Path, name: &str, flags: &[&str]) -> Option<Vec<u8>> {
    write(dir, "cuda.bin", &write_v1(&spec(OffloadKind::CUDA, &[("arch", "sm_90"), ("triple", "nvptx64-nvidia-cuda")])));
    write(dir, "hip.bin", &write_v1(&spec(OffloadKind::HIP, &[("arch", "gfx90a")])));
    let source = input("entries.c");
    let embed = ["-Xclang", "-fembed-offload-object=cuda.bin", "-Xclang", "-fembed-offload-object=hip.bin"];
    run(dir, tool("clang")?, &[&["-c", "-g", "-O1", source.to_str().unwrap(), "-o", name], &embed[..], flags].concat());
    Some(read(dir, name))
}

/// All recorded strings of an object, one line for each image.
fn recorded(object: &[u8]) -> Vec<String> {
    let object = HostObject::parse(object).unwrap();
    let images = object.offload_sections().unwrap().into_iter().flat_map(strings);
    images.map(|strings| strings.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")).collect()
}

const LONG: &str = "sm_80,sm_86,sm_89,sm_90,sm_100,sm_103,sm_110,sm_120,sm_121,and,some,more,to,make,it,longer,than,any,alignment";

#[test]
fn elf_and_coff_objects() {
    let dir = scratch();
    let dir = dir.path();
    let objcopy = tool("llvm-objcopy");
    for (name, flags) in [
        ("a.o", &["-ffunction-sections"][..]),
        ("ppc64.o", &["--target=powerpc64-linux-gnu"]),
        ("arm.o", &["--target=armv7-linux-gnueabihf"]),
        ("a.obj", &["--target=x86_64-pc-windows-msvc"]),
        ("big.obj", &["--target=x86_64-pc-windows-msvc", "-Wa,-mbig-obj"]),
    ] {
        let Some(old) = compile(dir, name, flags) else { return };
        for value in ["all", LONG] {
            let (new, count) = set_metadata(&old, "ptx", Some(value)).unwrap();
            assert_eq!(count, 1, "{name}");
            assert_eq!(recorded(&new), [format!("arch=sm_90,triple=nvptx64-nvidia-cuda,ptx={value}"), "arch=gfx90a".into()], "{name}");
            // Back again: the very same file.
            assert_eq!(set_metadata(&new, "ptx", None).unwrap(), (old.clone(), 1), "{name}");
            // A second change of the same length changes the same bytes only.
            assert_eq!(set_metadata(&new, "ptx", Some(value)).unwrap(), (new.clone(), 0), "{name}");
            // All the rest is as LLVM reads it.
            if let Some(objcopy) = &objcopy {
                let strip = ["--remove-section=.llvm.offloading", "in.o", "out.o"];
                let rest = |bytes: &[u8]| {
                    write(dir, "in.o", bytes);
                    run(dir, objcopy, &strip);
                    read(dir, "out.o")
                };
                assert_eq!(rest(&new), rest(&old), "{name}");
            }
        }
    }
}

#[test]
fn odd_elf_objects() {
    for name in ["offload-by-type.yaml", "big-endian-32.yaml", "group.yaml", "coff.yaml"] {
        let Some(old) = yaml(name) else { return };
        let (new, count) = set_metadata(&old, "ptx", Some(LONG)).unwrap();
        assert_eq!(count, if name == "group.yaml" { 2 } else { 1 }, "{name}");
        assert!(recorded(&new)[0].ends_with(&format!("ptx={LONG}")), "{name}");
        let symbols =
            |bytes: &[u8]| HostObject::parse(bytes).unwrap().symbols().iter().map(|s| (s.name.to_vec(), s.kind)).collect::<Vec<_>>();
        assert_eq!(symbols(&new), symbols(&old), "{name}");
        let (back, _) = set_metadata(&new, "ptx", None).unwrap();
        assert_eq!(recorded(&back), recorded(&old), "{name}");
    }
    let Some(bytes) = yaml("section-outside.yaml") else { return };
    assert_eq!(set_metadata(&bytes, "ptx", Some("all")), Err(Error("section of device images lies outside the file")));
}

#[test]
fn section_of_coff_symbol_keeps_its_size() {
    let Some(old) = yaml("coff.yaml") else { return };
    let (new, _) = set_metadata(&old, "ptx", Some(LONG)).unwrap();
    let object = HostObject::parse(&new).unwrap();
    let size = object.offload_sections().unwrap()[0].len() as u32;
    let coff = goblin::pe::Coff::parse(&new).unwrap();
    // The first symbol is that of the first offload section; its definition is the record after it.
    let symbols = coff.symbols.unwrap();
    assert_eq!(symbols.get(0).unwrap().1.section_number, 2);
    let definition = symbols.aux_section_definition(1).unwrap();
    assert_eq!(definition.length, size);
    // There was one, so there is a new one. That it is the right one the way back to the old file of `elf_and_coff_objects` shows.
    assert!(![0, 305_419_896].contains(&definition.checksum));
}

/// The members' names and what is recorded in each.
fn archive_contents(bytes: &[u8]) -> Vec<(String, Vec<String>)> {
    let archive = Archive::parse(bytes).unwrap();
    let members = archive.members().map(|member| member.unwrap());
    members.map(|m| (String::from_utf8(m.name.to_vec()).unwrap(), m.data.map(recorded).unwrap_or_default())).collect()
}

#[test]
fn archives() {
    let dir = scratch();
    let dir = dir.path();
    let (Some(_), Some(ar)) = (compile(dir, "long_member_name_a.o", &["-DPREFIX=a"]), tool("llvm-ar")) else { return };
    compile(dir, "b.o", &["-DPREFIX=b"]);
    run(dir, tool("clang").unwrap(), &["-c", input("main.c").to_str().unwrap(), "-o", "main.o"]);
    for (format, more) in [("gnu", None), ("bsd", None), ("coff", None), ("gnu", Some("SYM64_THRESHOLD"))] {
        let _ = std::fs::remove_file(dir.join("lib.a"));
        let mut command = std::process::Command::new(&ar);
        command.current_dir(dir).args(["rcs", "--format", format, "lib.a", "long_member_name_a.o", "main.o", "b.o"]);
        // LLVM's own test hook for indexes with 64-bit offsets.
        command.envs(more.map(|name| (name, "10")));
        assert!(command.status().unwrap().success());
        let old = read(dir, "lib.a");
        let (new, count) = set_metadata(&old, "ptx", Some(LONG)).unwrap();
        assert_eq!(count, 2, "{format}");
        let line = format!("arch=sm_90,triple=nvptx64-nvidia-cuda,ptx={LONG}");
        let images = vec![line, "arch=gfx90a".to_owned()];
        let expected = [("long_member_name_a.o".to_owned(), images.clone()), ("main.o".to_owned(), vec![]), ("b.o".to_owned(), images)];
        assert_eq!(archive_contents(&new), expected, "{format}");
        // The index leads to the members that define the symbols, as LLVM, and goblin for its formats, see it.
        write(dir, "new.a", &new);
        if let Some(nm) = tool("llvm-nm") {
            let map = |name: &str| run(dir, &nm, &["--print-armap", name]).replace(name, "");
            assert_eq!(map("new.a"), map("lib.a"), "{format}");
            assert!(map("new.a").contains("a_kernel_stub in long_member_name_a.o"), "{}", map("new.a"));
        }
        if format == "gnu" && more.is_none() {
            let second = goblin::archive::Archive::parse(&new).unwrap();
            assert_eq!(second.member_of_symbol("b_kernel_stub"), Some("b.o"));
            assert_eq!(recorded(second.extract("b.o", &new).unwrap()).len(), 2);
        }
        if format == "gnu" {
            for (name, linker) in linkers() {
                let args = ["-u", "b_kernel_stub", "-e", "main", "new.a", "-o", "out"];
                run(dir, linker, &args);
                let entries = offload_object::linked_entries(&read(dir, "out")).unwrap();
                assert_eq!(entries.len(), 5, "{name}: the member was found through the index");
            }
        }
        let (back, count) = set_metadata(&new, "ptx", None).unwrap();
        assert_eq!((back == old, count), (true, 2), "{format}");
    }
    run(dir, &ar, &["rcs", "--thin", "thin.a", "b.o"]);
    let thin = set_metadata(&read(dir, "thin.a"), "ptx", Some("all"));
    assert_eq!(thin, Err(Error("thin archive: its members are to be annotated, not the archive")));
}

#[test]
fn host_bitcode() {
    let dir = scratch();
    let Some(bitcode) = compile(dir.path(), "a.bc", &["-flto"]) else { return };
    assert_eq!(
        set_metadata(&bitcode, "ptx", Some("all")),
        Err(Error("host bitcode with device images can be annotated only when it is compiled"))
    );
    run(dir.path(), tool("clang").unwrap(), &["-flto", "-c", input("main.c").to_str().unwrap(), "-o", "main.bc"]);
    let plain = read(dir.path(), "main.bc");
    assert_eq!(set_metadata(&plain, "ptx", Some("all")), Ok((plain.clone(), 0)));
}

#[test]
fn other_files() {
    for file in [&b""[..], b"INPUT(a.o)\n", b"\0\0\0\0\0", b"\x50\xed\x55\xba"] {
        assert_eq!(set_metadata(file, "ptx", Some("all")), Err(Error("not an object, an archive or an offload binary")));
    }
    assert!(set_metadata(b"!<arch>\nx", "ptx", Some("all")).is_err());
}

#[test]
fn damaged_archives_never_panic() {
    let dir = scratch();
    let dir = dir.path();
    let (Some(_), Some(ar)) = (compile(dir, "a.o", &[]), tool("llvm-ar")) else { return };
    for format in ["gnu", "bsd", "coff"] {
        let _ = std::fs::remove_file(dir.join("lib.a"));
        run(dir, &ar, &["rcs", "--format", format, "lib.a", "a.o"]);
        let good = read(dir, "lib.a");
        for len in (0..good.len()).step_by(7) {
            let _ = set_metadata(&good[..len], "ptx", Some("all"));
        }
        // Headers and indexes are at the start.
        for at in 0..600 {
            for value in [0, b'1', 0x7f, 0xff] {
                let mut damaged = good.clone();
                damaged[at] = value;
                let _ = set_metadata(&damaged, "ptx", Some("all"));
            }
        }
    }
}
