//! Entries of finished programs: every linker, every kind of output, against what the program itself sees when it runs.

mod common;

use std::path::Path;

use common::{input, linkers, read, run, scratch, tool};
use offload_object::{Error, linked_entries};

/// What `registration.c` prints for each entry, from our reading of the file.
fn as_printed(prefix: &str, bytes: &[u8]) -> String {
    let line = |e: &offload_object::LinkedEntry| {
        let address = if e.address == 0 { "null" } else { "set" };
        let name = std::str::from_utf8(&e.name).unwrap();
        format!("{prefix}: {name} kind={} flags={} size={} address={address}\n", e.kind.0, e.flags.0, e.size)
    };
    linked_entries(bytes).unwrap().iter().map(line).collect()
}

fn compile(dir: &Path, clang: &Path, flags: &[&str]) {
    for name in ["entries", "registration", "main"] {
        let source = input(&format!("{name}.c"));
        let object = format!("{name}.o");
        run(dir, clang, &[&["-c", "-O1", source.to_str().unwrap(), "-o", &object], flags].concat());
    }
}

#[test]
fn every_linker_and_kind_of_output() {
    let Some(clang) = tool("clang") else { return };
    let strip = tool("llvm-strip");
    let dir = scratch();
    let dir = dir.path();
    for (compile_flag, link_flags) in [
        ("-fno-pic", &["-no-pie"][..]),
        ("-fPIC", &["-no-pie"]),
        ("-fPIC", &["-pie"]),
        ("-fPIC", &["-pie", "-Wl,-z,pack-relative-relocs"]),
        ("-fPIC", &["-pie", "-Wl,--emit-relocs"]),
        ("-fPIC", &["-static-pie"]),
        ("-fPIC", &["-shared"]),
        ("-fPIC", &["-shared", "-Wl,-Bsymbolic", "-Wl,-z,pack-relative-relocs"]),
    ] {
        compile(dir, &clang, &[compile_flag]);
        for (name, linker) in linkers() {
            if name == "ld.gold" && link_flags.iter().any(|flag| flag.contains("pack-relative")) {
                continue; // gold has no RELR
            }
            if name == "ld.gold" && link_flags == ["-static-pie"] {
                continue; // gold does not know --no-dynamic-linker
            }
            let ld = format!("--ld-path={}", linker.display());
            let what = format!("{name} {compile_flag} {link_flags:?}");
            run(dir, &clang, &[&[&ld, "entries.o", "registration.o", "main.o", "-o", "out"], link_flags].concat());
            // This mold forgets the version that glibc asks for in files with RELR; such a file is read but not run.
            let runs = name != "ld.mold" || !link_flags.iter().any(|flag| flag.contains("pack-relative"));
            let printed = if !runs {
                as_printed("x", &read(dir, "out"))
            } else if link_flags.contains(&"-shared") {
                // The constructor of a shared object runs when a program that uses it starts.
                run(dir, &clang, &["main.o", "-Wl,--no-as-needed", "./out", "-o", "user"]);
                run(dir, dir.join("user"), &[])
            } else {
                run(dir, dir.join("out"), &[])
            };
            assert_eq!(printed.lines().count(), 5, "{what}");
            let bytes = read(dir, "out");
            assert_eq!(as_printed("x", &bytes), printed, "{what}");
            let addresses: Vec<_> = linked_entries(&bytes).unwrap().iter().map(|entry| entry.address).collect();
            assert_eq!(addresses, stub_addresses(&bytes), "{what}");
            if let Some(strip) = &strip {
                run(dir, strip, &["-s", "out"]);
                let stripped = linked_entries(&read(dir, "out")).unwrap();
                assert_eq!(stripped, linked_entries(&bytes).unwrap(), "{what}, stripped");
            }
        }
    }
}

/// The addresses that goblin finds for the stubs and the variable, in the order of `entries.c`.
fn stub_addresses(bytes: &[u8]) -> Vec<u64> {
    let elf = goblin::elf::Elf::parse(bytes).unwrap();
    let address = |name: &str| elf.syms.iter().find(|symbol| elf.strtab.get_at(symbol.st_name) == Some(name)).map(|symbol| symbol.st_value);
    let names = ["x_kernel_stub", "static_stub", "x_weak_stub", "x_variable", "x_variable"];
    names.iter().map(|name| address(name).unwrap()).collect()
}

/// Entries of three generations in one program: those of old sections come in the order of the sections.
#[test]
fn entries_of_older_releases() {
    let Some(clang) = tool("clang") else { return };
    let dir = scratch();
    let dir = dir.path();
    compile(dir, &clang, &["-fPIC"]);
    for (prefix, old) in [("o", "19"), ("p", "20")] {
        let source = input("entries.c");
        let (prefix, object) = (format!("-DPREFIX={prefix}"), format!("entries{old}.o"));
        run(dir, &clang, &["-c", "-O1", "-fPIC", &prefix, &format!("-DOLD={old}"), source.to_str().unwrap(), "-o", &object]);
    }
    for (name, linker) in linkers() {
        for flag in ["-pie", "-no-pie", "-shared"] {
            let ld = format!("--ld-path={}", linker.display());
            run(dir, &clang, &[&ld, "entries.o", "entries19.o", "entries20.o", "registration.o", "main.o", "-o", "out", flag]);
            let bytes = read(dir, "out");
            let mut lines: Vec<String> = as_printed("", &bytes).lines().map(str::to_owned).collect();
            lines.sort();
            let mut expected: Vec<String> = ["x", "o", "p"]
                .iter()
                .flat_map(|prefix| {
                    [
                        "kernel kind=2 flags=0 size=0",
                        "static kind=2 flags=0 size=0",
                        "weak kind=2 flags=0 size=0",
                        "constant kind=2 flags=16 size=16",
                        "managed kind=4 flags=9 size=8",
                    ]
                    .map(|rest| format!(": {prefix}_{rest} address=set"))
                })
                .collect();
            expected.sort();
            // A shared object's stubs that others may replace have no address in the file.
            let addressless = |lines: &[String]| lines.iter().map(|l| l.split(" address").next().unwrap().to_owned()).collect::<Vec<_>>();
            if flag == "-shared" {
                assert_eq!(addressless(&lines), addressless(&expected), "{name} {flag}");
            } else {
                assert_eq!(lines, expected, "{name} {flag}");
            }
        }
    }
}

#[test]
fn files_without_entries() {
    let Some(clang) = tool("clang") else { return };
    let dir = scratch();
    compile(dir.path(), &clang, &[]);
    run(dir.path(), &clang, &["main.o", "-o", "out"]);
    assert_eq!(linked_entries(&read(dir.path(), "out")), Ok(vec![]));
    assert_eq!(linked_entries(b"not ELF"), Err(Error("not an ELF file")));
}

#[test]
fn truncated_and_damaged_programs_never_panic() {
    let Some(clang) = tool("clang") else { return };
    let dir = scratch();
    compile(dir.path(), &clang, &["-fPIC"]);
    let linker = tool("ld.lld").unwrap();
    run(dir.path(), linker, &["-shared", "--allow-shlib-undefined", "entries.o", "-o", "out"]);
    let good = read(dir.path(), "out");
    assert_eq!(linked_entries(&good).unwrap().len(), 5);
    for len in 0..good.len() {
        let _ = linked_entries(&good[..len]);
    }
    let mut errors = 0;
    for at in 0..good.len() {
        for value in [0, 0x7f, 0xff] {
            let mut damaged = good.clone();
            damaged[at] = value;
            errors += usize::from(linked_entries(&damaged).is_err());
        }
    }
    assert!(errors > 0);
}
