//! Lines without device code are told from others at a glance, and what looks empty at a glance is empty.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use device_link::inputs::{self, LinkerFlavour};
use device_link::{Opened, link_line, scan};

const DEVICE_CODE: &str = ".section .llvm.offloading,\"\",@0x6fff4c0b\n.quad 0\n";
const NVCC_MODULE: &str = ".section __nv_module_id,\"a\",@progbits\n.quad 0\n";

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn assemble(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join("source.s"), text).unwrap();
    run(Command::new("as").current_dir(dir).args(["-o", name, "source.s"]));
}

/// What a glance says of a line, after a comparison with the whole.
fn is_host_only(dir: &Path, line: &str) -> bool {
    let words = ["ld", "-C"].map(OsString::from).into_iter().chain([dir.into()]).chain(line.split_whitespace().map(OsString::from));
    let line = link_line::parse(words.collect(), &|_| None).unwrap();
    let flavour = LinkerFlavour::Gnu;
    let glance = inputs::none_holds_device_code(&line.options, &line.host, flavour);
    let whole = inputs::load(&line.options, &line.host, flavour).ok().and_then(|files| {
        let opened = Opened { linker: None, files, missing: false };
        scan(&opened).ok().map(|scan| !scan.holding.contains(&true))
    });
    assert!(!glance || whole == Some(true), "{line:?}");
    glance
}

#[test]
fn device_code_is_seen_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let large = format!(".fill 100000\n{}", (0..50).map(|i| format!(".section .rodata.{i},\"a\"\n.quad 0\n")).collect::<String>());
    for (name, text) in [("host.o", ".globl f\nf: .quad 0\n"), ("largehost.o", large.as_str())] {
        assemble(dir, name, text);
    }
    for (name, code) in [("clang", DEVICE_CODE), ("nvcc", NVCC_MODULE)] {
        assemble(dir, &format!("{name}.o"), code);
        assemble(dir, &format!("large{name}.o"), &format!("{large}{code}{large}"));
        for (archive, members) in [("first", [format!("{name}.o"), "host.o".into()]), ("last", ["host.o".into(), format!("large{name}.o")])]
        {
            run(Command::new("ar").current_dir(dir).arg("rc").arg(format!("lib{name}{archive}.a")).args(&members));
            run(Command::new("ar").current_dir(dir).arg("rcT").arg(format!("lib{name}{archive}thin.a")).args(&members));
        }
        std::fs::write(dir.join(format!("lib{name}script.a")), format!("INPUT({name}.o)")).unwrap();
        std::fs::write(dir.join(format!("lib{name}group.so")), format!("GROUP(host.o AS_NEEDED(-l{name}last))")).unwrap();
    }
    run(Command::new("ar").current_dir(dir).args(["rc", "libhost.a", "host.o", "largehost.o"]));
    run(Command::new("ar").current_dir(dir).args(["rcT", "libhostthin.a", "host.o", "largehost.o"]));
    run(Command::new("ld.bfd").current_dir(dir).args(["-shared", "-o", "libdyn.so", "host.o"]));
    std::fs::write(dir.join("libscript.so"), "INPUT(host.o -lhost)").unwrap();
    std::fs::write(dir.join("empty.o"), "").unwrap();
    std::fs::write(dir.join("code.bc"), b"BC\xc0\xde").unwrap();
    std::fs::write(dir.join("damaged.a"), "!<arch>\nnothing of an archive").unwrap();
    std::fs::write(dir.join("bare.bin"), b"\x10\xff\x10\xad").unwrap();

    for line in [
        "host.o",
        "host.o largehost.o empty.o missing.o .",
        "host.o -L. -lhost -lhostthin -ldyn -lscript -lhost -lmissing",
        "--whole-archive -L. -lhost --no-whole-archive host.o",
    ] {
        assert!(is_host_only(dir, line), "{line}");
    }
    for line in ["code.bc", "damaged.a", "bare.bin", "host.o damaged.a"] {
        assert!(!is_host_only(dir, line), "{line}");
    }
    for name in ["clang", "nvcc"] {
        for input in
            ["NAME.o", "largeNAME.o", "-lNAMEfirst", "-lNAMElast", "-lNAMEfirstthin", "-lNAMElastthin", "-lNAMEscript", "-lNAMEgroup"]
        {
            let line = format!("host.o largehost.o -L. -lhost {} host.o", input.replace("NAME", name));
            assert!(!is_host_only(dir, &line), "{line}");
        }
    }
}

#[test]
fn many_objects_are_all_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assemble(dir, "host.o", ".quad 0\n");
    assemble(dir, "device.o", DEVICE_CODE);
    let line = |device: Option<usize>| (0..400).map(|i| if Some(i) == device { "device.o " } else { "host.o " }).collect::<String>();
    assert!(is_host_only(dir, &line(None)));
    for at in [0, 1, 40, 199, 200, 201, 398, 399] {
        assert!(!is_host_only(dir, &line(Some(at))), "{at}");
    }
}
