//! `warplink inspect` on files made here: fat binaries, cubins, PTX, offload binaries, archives.

use super::report::{Container, Entry, File, Image, ImageKind};
use super::*;
use fatbin::{Arch, Compression, Kind};
use offload_object::{ImageSpec, OffloadKind};
use std::path::Path;

const PTX_80: &[u8] = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .global .u32 v;\n\
                        .visible .entry _ZN2ns1kEPi(.param .u64 p) { ret; }\n";

/// A cubin without any section.
fn cubin(sm: u32) -> Vec<u8> {
    let mut elf = vec![0u8; 64];
    elf[..9].copy_from_slice(b"\x7fELF\x02\x01\x01\x41\x08");
    elf[16..20].copy_from_slice(&[2, 0, 190, 0]);
    elf[48..52].copy_from_slice(&(0x0600_0004 | sm << 8).to_le_bytes());
    elf
}

fn image(kind: Kind, sm: u32, data: &[u8]) -> fatbin::Image<'_> {
    let compression = Compression::None;
    fatbin::Image { kind, arch: Arch::new(sm), data, ident: None, options: "", debug: false, compression }
}

fn fat(images: &[fatbin::Image<'_>]) -> Vec<u8> {
    fatbin::write(images).expect("write")
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Dir(tempfile::tempdir().expect("tempdir"))
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect(name);
        path
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// The output without colours, and what `run` says.
fn inspect(files: &[PathBuf], json: bool, gpu: Option<&str>) -> (String, Result<Outcome, String>) {
    let args = Args { files: files.to_vec(), json, gpu: gpu.map(str::to_owned), no_demangle: false, wide: true, diff: false };
    let mut out = Vec::new();
    let result = run(&args, None, &mut out);
    let text = String::from_utf8(out).expect("utf-8");
    (anstream::adapter::strip_str(&text).to_string(), result)
}

fn report(dir: &Dir, bytes: &[u8]) -> String {
    let (text, result) = inspect(&[dir.file("f", bytes)], false, None);
    assert_eq!(result, Ok(Outcome::Good));
    for line in text.lines() {
        assert_eq!(line, line.trim_end(), "blanks at the end of {line:?}");
    }
    text
}

#[test]
fn a_program_for_another_gpu_is_recognised() {
    let dir = Dir::new();
    let elf = cubin(80);
    let bytes = fat(&[image(Kind::Elf, 80, &elf)]);
    let text = report(&dir, &bytes);
    assert!(text.contains("Runs natively on sm_80 (A100), sm_86 (A10/RTX 30) and sm_89 (L4/L40/RTX 40).\n"), "{text}");
    let not = text.lines().find(|line| line.starts_with("Does not run on ")).expect("line");
    assert!(not.contains("sm_90 (H100/H200)") && not.contains("sm_87 (Jetson Orin)"), "{not}");
    assert!(not.ends_with(": it has a cubin for sm_80 (8.x GPUs only), and no ptx."), "{not}");

    let file = dir.file("a.fatbin", &bytes);
    for (gpu, outcome, message) in [
        ("H200", Outcome::DoesNotRun, "does not run on sm_90 (H100/H200): it has a cubin for sm_80 (8.x GPUs only), and no ptx\n"),
        ("sm_86", Outcome::Good, "runs on sm_86 (A10/RTX 30): the driver loads the sm_80 cubin\n"),
        ("8.8", Outcome::Good, "runs on sm_88: the driver loads the sm_80 cubin\n"),
    ] {
        let (text, result) = inspect(std::slice::from_ref(&file), false, Some(gpu));
        assert_eq!(result, Ok(outcome), "{gpu}");
        assert_eq!(text, format!("{}: {message}", file.display()));
    }
}

#[test]
fn ptx_serves_later_gpus() {
    let dir = Dir::new();
    let elf = cubin(80);
    let bytes = fat(&[image(Kind::Elf, 80, &elf), image(Kind::Ptx, 80, PTX_80)]);
    let text = report(&dir, &bytes);
    assert!(text.contains("ISA 7.0: CUDA 11.0, driver r445 or newer"), "{text}");
    assert!(
        text.contains(
            "Runs after JIT compilation of its PTX by a driver of branch r445 or newer on sm_87 (Jetson Orin), sm_90 (H100/H200)"
        )
    );
    assert!(text.contains("\n  KERNEL\n  ns::k(int*)\n") && text.contains("\n  global      -  v\n"), "{text}");
    let (text, result) = inspect(&[dir.file("a.ptx", PTX_80)], false, Some("B200"));
    assert_eq!(result, Ok(Outcome::Good));
    assert!(text.ends_with("a.ptx: runs on sm_100 (B200): a driver of branch r445 or newer compiles the sm_80 ptx\n"), "{text}");
}

#[test]
fn statics_are_shown_with_their_hash() {
    let dir = Dir::new();
    let ptx = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry _ZN2nsL1sEPi__intern__0a1b(.param .u64 p) { ret; }\n";
    let text = report(&dir, ptx);
    assert!(text.contains("\n  ns::s(int*) (__intern__0a1b)\n"), "{text}");
}

#[test]
fn several_fat_binaries_must_all_run() {
    let dir = Dir::new();
    let (old, new) = (cubin(80), cubin(90));
    let both = [fat(&[image(Kind::Elf, 80, &old)]), fat(&[image(Kind::Elf, 90, &new)])].concat();
    let text = report(&dir, &both);
    assert!(text.contains("Runs only in part on sm_80 (A100)"), "{text}");
    let (text, result) = inspect(&[dir.file("f", &both)], false, Some("H100"));
    assert_eq!(result, Ok(Outcome::DoesNotRun));
    assert_eq!(text.lines().count(), 2);
    assert!(text.contains("does not run on sm_90") && text.contains("f: at 0x90: runs on sm_90"), "{text}");
}

fn offload(arch: &str, bytes: &[u8]) -> Vec<u8> {
    let strings = [("triple", "nvptx64-nvidia-cuda"), ("arch", arch), ("ptx", "all")];
    offload_object::write_v1(&ImageSpec {
        image_kind: offload_object::ImageKind::Bitcode,
        offload_kind: OffloadKind::CUDA,
        flags: 0,
        strings: strings.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        image: bytes.to_vec(),
    })
}

#[test]
fn offload_binaries_show_what_is_recorded() {
    let dir = Dir::new();
    let bytes = [offload("sm_90a", b"BC\xc0\xde1234"), offload("sm_80", &cubin(80))].concat();
    let text = report(&dir, &bytes);
    assert!(text.contains("bitcode  sm_90a       8      8  stored  cuda nvptx64-nvidia-cuda; ptx=all\n"), "{text}");
    assert!(text.contains("cubin    sm_80       64     64  stored  cuda nvptx64-nvidia-cuda; ptx=all\n"), "{text}");
    assert!(text.ends_with("Device code for sm_80 and sm_90a that still has to be linked: it runs on no GPU as it is.\n"), "{text}");
    let (_, result) = inspect(&[dir.file("f", &bytes)], false, Some("sm_80"));
    assert_eq!(result, Ok(Outcome::DoesNotRun));
}

fn archive(magic: &str, members: &[(&str, &[u8])], thin: bool) -> Vec<u8> {
    let mut bytes = magic.as_bytes().to_vec();
    if thin {
        // Thin archives keep all names in a table.
        let names: String = members.iter().map(|(name, _)| format!("{name}/\n")).collect();
        bytes.extend(format!("{:<48}{:<10}`\n{names}", "//", names.len()).into_bytes());
        bytes.resize(bytes.len().next_multiple_of(2), b'\n');
    }
    let mut at = 0;
    for (name, data) in members {
        let name_field = if thin { format!("/{at}") } else { format!("{name}/") };
        at += name.len() + 2;
        bytes.extend(format!("{name_field:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, data.len()).into_bytes());
        if !thin {
            bytes.extend(*data);
            bytes.resize(bytes.len().next_multiple_of(2), b'\n');
        }
    }
    bytes
}

#[test]
fn archives_show_their_members() {
    let dir = Dir::new();
    let bitcode = offload("sm_90", b"BC\xc0\xde1234");
    let members: [(&str, &[u8]); 3] = [("a.o", &bitcode), ("b.o", b"neither object nor anything\0"), ("c.o", b"\x7fELF")];
    let text = report(&dir, &archive("!<arch>\n", &members, false));
    assert!(text.contains("f: archive, 3 members\n") && text.contains("\na.o: offload binary, 1 image\n"), "{text}");

    dir.file("a.o", &bitcode);
    let thin = dir.file("lib.a", &archive("!<thin>\n", &[members[0], ("gone.o", b"x")], true));
    let (text, result) = inspect(&[thin], false, None);
    assert_eq!(result, Ok(Outcome::Good));
    assert!(text.contains("thin archive, 2 members\n") && text.contains("\na.o: offload binary, 1 image\n"), "{text}");
    assert!(text.contains("\nproblem: gone.o: No such file"), "{text}");
}

#[test]
fn what_cannot_be_read_is_an_error_beside_the_report() {
    let dir = Dir::new();
    let good = dir.file("good.ptx", PTX_80);
    let whole = fat(&[image(Kind::Ptx, 80, PTX_80)]);
    let short = dir.file("short.fatbin", &whole[..whole.len() - 1]);
    let nowhere = dir.path().join("nowhere");
    let (text, result) = inspect(&[nowhere.clone(), good, short.clone()], false, None);
    assert!(text.contains("good.ptx: ptx\n"), "{text}");
    let error = result.expect_err("two files cannot be read");
    let lines: Vec<_> = error.lines().collect();
    assert!(lines[0].starts_with(&format!("{}: no such file", nowhere.display())), "{error}");
    assert_eq!(lines[1], format!("{}: at 0x0: fat binary is cut off", short.display()));
    assert_eq!(
        inspect(&[nowhere], false, Some("Voodoo")).1,
        Err("'Voodoo' is neither a gpu architecture such as sm_90 nor the name of a gpu such as H200".to_owned())
    );
    assert!(report(&dir, b"").ends_with("f: empty file\n\nNo device code.\n"));
    assert!(report(&dir, b"just text").ends_with("f: text\n\nNo device code.\n"));
}

#[test]
fn containers_are_found_in_files_of_other_systems() {
    let dir = Dir::new();
    let inside = [b"MZ\0\0....", &fat(&[image(Kind::Ptx, 80, PTX_80)])[..], b"rest"].concat();
    let text = report(&dir, &inside);
    assert!(text.contains("\nat 0x8: fat binary, 1 image\n"), "{text}");
}

#[test]
fn json_has_the_same_facts() {
    let dir = Dir::new();
    let elf = cubin(80);
    let bytes = fat(&[image(Kind::Elf, 80, &elf), image(Kind::Ptx, 80, PTX_80)]);
    let (text, result) = inspect(&[dir.file("f", &bytes)], true, Some("H200"));
    assert_eq!(result, Ok(Outcome::Good));
    let json: serde_json::Value = serde_json::from_str(&text).expect("json");
    let at = |pointer: &str| json.pointer(pointer).unwrap_or_else(|| panic!("{pointer}: {text}")).clone();
    assert_eq!(at("/schema"), 1);
    assert_eq!(at("/files/0/format"), "fat binary");
    assert_eq!(at("/files/0/containers/0/kind"), "fatbin");
    assert_eq!(at("/files/0/containers/0/images/0/kind"), "cubin");
    assert_eq!(at("/files/0/containers/0/images/1/ptx/driver"), 445);
    assert_eq!(at("/files/0/containers/0/images/1/kernels/0/name"), "_ZN2ns1kEPi");
    assert_eq!(at("/files/0/containers/0/images/1/kernels/0/demangled"), "ns::k(int*)");
    assert_eq!(at("/files/0/gpus/0/runs"), "jit");
    assert_eq!(at("/files/0/gpus/0/choices/0/image"), 1);
}

#[test]
fn entries_are_looked_up_in_their_fat_binary() {
    let image = |arch: &str, names: &[&str]| Image {
        kind: ImageKind::Cubin,
        arch: arch.to_owned(),
        target: arch.parse().ok(),
        defined: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..Image::default()
    };
    let container = |images| Container { images, ..Container::default() };
    let entry = |name: &str, size| Entry {
        member: None,
        name: name.to_owned(),
        demangled: None,
        kind: if size == 0 { "kernel" } else { "variable" },
        size,
        images: Vec::new(),
    };
    let mut file = File {
        path: "a.out".to_owned(),
        format: "x86_64 elf program".to_owned(),
        containers: vec![container(vec![image("sm_80", &["k", "v"]), image("sm_90", &["k"])]), container(vec![image("sm_90", &["other"])])],
        entries: vec![entry("k", 0), entry("v", 4), entry("other", 0), entry("nowhere", 0)],
        ..File::default()
    };
    gather::match_entries(&mut file);
    let found: Vec<Vec<_>> =
        file.entries.iter().map(|entry| entry.images.iter().map(|at| (at.container, at.image, at.found)).collect()).collect();
    assert_eq!(
        found,
        [
            vec![(0, 0, true), (0, 1, true)],
            vec![(0, 0, true), (0, 1, false)],
            vec![(1, 0, true)],
            vec![(0, 0, false), (0, 1, false), (1, 0, false)],
        ]
    );
    let mut out = Vec::new();
    render::file(&file, None, &mut out).expect("write");
    let text = anstream::adapter::strip_str(&String::from_utf8(out).expect("utf-8")).to_string();
    for line in [
        "  kernel        -  in all images           k\n",
        "  variable      4  MISSING in sm_90 cubin  v\n",
        "  kernel        -  MISSING in all images   nowhere\n",
        "\n2 of 4 host names missing: ",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
}

/// A file with one image that has these kernels: name, code, registers, bytes of spill stores.
fn with_kernels(stored: u64, kernels: &[(&str, u64, u32, u64)]) -> File {
    let kernels: Vec<report::Kernel> = kernels
        .iter()
        .map(|(name, code, registers, spilled)| report::Kernel {
            name: (*name).to_owned(),
            demangled: None,
            resources: Some(report::Resources {
                registers: Some(*registers),
                max_registers: None,
                spill_stores: Some(*spilled),
                spill_loads: Some(*spilled),
                stack: 0,
                shared: 0,
                constants: Vec::new(),
                parameters: None,
                code: *code,
                barriers: 0,
                max_threads: None,
                required_threads: None,
                cluster: None,
            }),
        })
        .collect();
    let code = kernels.iter().filter_map(|kernel| Some(kernel.resources.as_ref()?.code)).sum();
    let image = Image {
        kind: ImageKind::Cubin,
        arch: "sm_90".to_owned(),
        stored_size: stored,
        size: code,
        kernels,
        sections: vec![report::Part { name: ".text".to_owned(), size: code }],
        ..Image::default()
    };
    let parts = [(".nv_fatbin", stored), (".text", 1000)].map(|(name, size)| report::Part { name: name.to_owned(), size });
    File {
        path: "a.out".to_owned(),
        format: "x86_64 elf program".to_owned(),
        size: stored + 1000,
        parts: parts.into(),
        containers: vec![Container { images: vec![image], ..Container::default() }],
        ..File::default()
    }
}

fn diff(old: &File, new: &File, columns: Columns) -> String {
    let mut out = Vec::new();
    diff::render(&diff::compare(old, new), columns, &mut out).expect("write");
    anstream::adapter::strip_str(&String::from_utf8(out).expect("utf-8")).to_string()
}

#[test]
fn growth_is_traced_to_the_kernel() {
    let old = with_kernels(1000, &[("shrinks", 400, 20, 0), ("same", 100, 10, 0), ("spills", 300, 32, 0), ("goes", 200, 8, 0)]);
    let new = with_kernels(1600, &[("shrinks", 300, 20, 0), ("same", 100, 10, 0), ("spills", 300, 40, 16), ("comes", 900, 64, 0)]);
    assert_eq!(
        diff(&old, &new, Some(100)),
        "a.out (x86_64 elf program) -> a.out (x86_64 elf program)\n\n  \
         GROWTH            OLD   NEW  TOTAL\n    \
         +600  +30.0 %  2000  2600  file\n    \
         +600  +60.0 %  1000  1600  device code\n    \
         +600  +60.0 %  1000  1600  device code, decompressed\n       \
         0   +0.0 %  1000  1000  everything else\n\n\
         images, as stored: +600 grown, 0 shrunk\n  \
         GROWTH            OLD   NEW  IMAGE\n    \
         +600  +60.0 %  1000  1600  sm_90 cubin\n\n\
         sections of the file: +600 grown, 0 shrunk\n  \
         GROWTH            OLD   NEW  SECTION\n    \
         +600  +60.0 %  1000  1600  .nv_fatbin\n\n\
         sections of the images, decompressed: +600 grown, 0 shrunk\n  \
         GROWTH            OLD   NEW  IMAGE        SECTION\n    \
         +600  +60.0 %  1000  1600  sm_90 cubin  .text\n\n\
         kernels, machine code: +900 grown, -300 shrunk\n  \
         GROWTH           OLD  NEW  IMAGE        NEEDS                                       KERNEL\n    \
         +900      new    -  900  sm_90 cubin                                              comes\n       \
         0   +0.0 %  300  300  sm_90 cubin  regs 32->40, spilled 0->16, reloaded 0->16  spills\n    \
         -100  -25.0 %  400  300  sm_90 cubin                                              shrinks\n    \
         -200     gone  200    -  sm_90 cubin                                              goes\n"
    );
    let same = diff(&old, &old, Some(100));
    assert!(!same.contains("KERNEL") && !same.contains("SECTION"), "{same}");
}

#[test]
fn long_lists_keep_both_ends() {
    let names: Vec<String> = (0..30).map(|index| format!("k{index:02}")).collect();
    let old: Vec<_> = names.iter().map(|name| (name.as_str(), 1000, 8, 0)).collect();
    let new: Vec<_> = names.iter().enumerate().map(|(index, name)| (name.as_str(), 985 + index as u64, 8, 0)).collect();
    let text = diff(&with_kernels(1, &old), &with_kernels(1, &new), Some(100));
    assert!(text.contains("  k29\n") && text.contains("  k00\n") && !text.contains("  k10\n"), "{text}");
    assert!(text.contains("  9 more between these; --wide shows all\n"), "{text}");
    assert!(diff(&with_kernels(1, &old), &with_kernels(1, &new), None).contains("  k10\n"));
}

#[test]
fn a_diff_is_of_two_files() {
    let dir = Dir::new();
    let file = dir.file("a.ptx", PTX_80);
    let args = |files: Vec<PathBuf>| Args { files, json: true, gpu: None, no_demangle: false, wide: false, diff: true };
    let mut out = Vec::new();
    assert_eq!(run(&args(vec![file.clone()]), None, &mut out), Err("--diff compares two files, got 1 file".to_owned()));
    let gone = dir.path().join("gone");
    assert!(run(&args(vec![gone.clone(), gone]), None, &mut out).is_err_and(|error| error.lines().count() == 2));
    assert_eq!(out, b"");
    assert_eq!(run(&args(vec![file.clone(), file]), None, &mut out), Ok(Outcome::Good));
    let json: serde_json::Value = serde_json::from_slice(&out).expect("json");
    assert_eq!(json.pointer("/totals/0/fate"), Some(&"same".into()));
}

#[test]
fn lines_fit_the_terminal() {
    let dir = Dir::new();
    let ptx = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry \
                _ZN2ns6kernelINS_6policyINS_5inner4deepINS_9parameterEEEEEdEEvPT0_iS7_S7_S7_S7_S7_(.param .u64 p) { ret; }\n";
    let args = Args { files: vec![dir.file("k.ptx", ptx)], json: false, gpu: None, no_demangle: false, wide: false, diff: false };
    for (terminal, width) in [(Some(80), 80), (Some(20), 80), (None, 100), (Some(300), 160)] {
        let mut out = Vec::new();
        assert_eq!(run(&args, terminal, &mut out), Ok(Outcome::Good));
        let text = anstream::adapter::strip_str(&String::from_utf8(out).expect("utf-8")).to_string();
        // The first line is the file's path, which is nobody's to shorten.
        let longest = text.lines().skip(1).map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(longest <= width && longest + 25 > width, "{terminal:?}: {longest}\n{text}");
    }
}
