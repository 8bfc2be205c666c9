//! Tables of what makes another device link and what does not.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::*;
use crate::cache::tests::{line, open};
use crate::diagnostics::Diagnostics;
use crate::options::*;

fn input(label: &str) -> InputKey<'static> {
    InputKey {
        label: label.to_owned(),
        unit: 0,
        namesake: 0,
        part: 0,
        on_host_line: true,
        state: Some((true, false)),
        module: None,
        triple: "nvptx64-nvidia-cuda",
        arch: Arch::new(90),
        class: ImageClass::Bitcode,
        ptx: None,
        contents: Hash::of(b"bitcode"),
    }
}

fn link() -> LinkKey<'static> {
    LinkKey {
        warplink: Hash::of(b"warplink"),
        ptxas: Some(Hash::of(b"ptxas")),
        nvlink: Some(Hash::of(b"nvlink")),
        release: vec![Some(Hash::of(b"13.0")), None],
        options: vec![("-O", "None".to_owned()), ("-g", "None".to_owned())],
        inputs: vec![input("a.o"), InputKey { unit: 1, namesake: 1, contents: Hash::of(b"more"), ..input("b.o") }],
        roots: BTreeSet::from(["k", "v"]),
    }
}

#[test]
fn every_field_of_a_link_counts() {
    type Change = fn(&mut LinkKey<'static>);
    let changes: &[(&str, Change)] = &[
        ("nothing", |_| ()),
        ("warplink", |link| link.warplink = Hash::of(b"other")),
        ("ptxas", |link| link.ptxas = Some(Hash::of(b"other"))),
        ("no ptxas", |link| link.ptxas = None),
        ("nvlink", |link| link.nvlink = Some(Hash::of(b"other"))),
        ("no nvlink", |link| link.nvlink = None),
        ("release", |link| link.release = vec![Some(Hash::of(b"13.1")), None]),
        ("other release", |link| link.release = vec![None, Some(Hash::of(b"13.0"))]),
        ("an option", |link| link.options[0].1 = "Some(O3)".to_owned()),
        ("another option", |link| link.options[1].1 = "Some(O3)".to_owned()),
        ("a root more", |link| link.roots.extend(["w"])),
        ("a root less", |link| link.roots.retain(|root| *root != "v")),
        ("roots in one", |link| link.roots = BTreeSet::from(["kv"])),
        ("order of inputs", |link| link.inputs.swap(0, 1)),
        ("an input more", |link| link.inputs.push(input("a.o"))),
        ("an input less", |link| drop(link.inputs.pop())),
        ("unit", |link| link.inputs[1].unit = 0),
        ("namesake", |link| link.inputs[1].namesake = 0),
        ("part", |link| link.inputs[1].part = 1),
        ("on the host line", |link| link.inputs[1].on_host_line = false),
        ("taken", |link| link.inputs[1].state = Some((false, false))),
        ("lazy", |link| link.inputs[1].state = Some((true, true))),
        ("no state", |link| link.inputs[1].state = None),
        ("module", |link| link.inputs[1].module = Some("_1")),
        ("triple", |link| link.inputs[1].triple = "nvptx"),
        ("architecture", |link| link.inputs[1].arch = Arch::new(80)),
        ("class", |link| link.inputs[1].class = ImageClass::Ptx),
        ("PTX", |link| link.inputs[1].ptx = Some("all")),
        ("contents", |link| link.inputs[1].contents = Hash::of(b"other")),
    ];
    let mut keys: HashMap<Key, &str> = HashMap::new();
    for (what, change) in changes {
        let mut link = link();
        change(&mut link);
        assert_eq!(keys.insert(link.fields().key(), what), None, "{what}");
    }
}

#[test]
fn names_of_inputs_do_not_count() {
    let mut other = link();
    other.inputs[0].label = "/elsewhere/c.o".to_owned();
    assert_eq!(other.fields().key(), link().fields().key());
}

fn option_key(options: &Options) -> Result<Vec<(&'static str, String)>, &'static str> {
    options_that_count(options)
}

#[test]
fn every_option_is_decided() {
    type Change = fn(&mut Options);
    let counts: &[(&str, Change)] = &[
        ("should_extract", |o| o.should_extract.push("sm_80".into())),
        ("opt_level", |o| o.opt_level = Some(OptLevel::O3)),
        ("other opt_level", |o| o.opt_level = Some(OptLevel::O1)),
        ("ptxas_args", |o| o.ptxas_args.push("--maxrregcount=32".into())),
        ("two ptxas_args", |o| o.ptxas_args.extend(["--maxrregcount".into(), "32".into()])),
        ("device_debug", |o| o.device_debug = Some(DebugRequest::LineTables)),
        ("device_undefined", |o| o.device_undefined.push("k".into())),
        ("mllvm", |o| o.mllvm.push("-inline-threshold=9".into())),
        ("lto", |o| o.lto = Some(LtoMode::Off)),
        ("lto_partitions", |o| o.lto_partitions = Some(4)),
        ("device_features", |o| o.device_features.push("+ptx88".into())),
        ("device_emit", |o| o.device_emit = Some(DeviceEmit::Assembly)),
        ("compress", |o| o.compress = Some(true)),
        ("compression_level", |o| o.compression_level = Some(3)),
        ("compress_mode", |o| o.compress_mode = Some(CompressMode::Lz4)),
        ("ptx", |o| o.ptx = Some(PtxChoice::All)),
        ("other ptx", |o| o.ptx = Some(PtxChoice::Archs(vec!["sm_90".into()]))),
        ("ptxas_mode", |o| o.ptxas_mode = PtxasMode::Whole),
        ("allow_multiple_definition", |o| o.allow_multiple_definition = true),
    ];
    let mut keys: HashMap<Vec<(&str, String)>, &str> = HashMap::from([(option_key(&line(&[], &[])).unwrap(), "none")]);
    for (what, change) in counts {
        let mut options = line(&[], &[]);
        change(&mut options);
        assert_eq!(keys.insert(option_key(&options).unwrap(), what), None, "{what}");
    }
    let does_not: &[(&str, Change)] = &[
        ("invoked_as", |o| o.invoked_as = Invocation::Linker("ld".into())),
        ("output", |o| o.output = "other".into()),
        ("relocatable", |o| o.relocatable = true),
        ("cuda_path", |o| o.cuda_path = Some("/cuda".into())),
        ("ptxas_path", |o| o.ptxas_path = Some("/ptxas".into())),
        ("linker", |o| o.linker = Some("lld".into())),
        ("device_libs", |o| o.device_libs.push(DeviceLib::File("a.o".into()))),
        ("lto_jobs", |o| o.lto_jobs = Some(2)),
        ("verbose", |o| o.verbose = true),
        ("jobs", |o| o.jobs = Jobs::Count(7)),
        ("time_trace", |o| o.time_trace = Some("t".into())),
        ("emit_fatbin_only", |o| o.emit_fatbin_only = true),
        ("print_wrapped_module", |o| o.print_wrapped_module = true),
        ("demangle", |o| o.demangle = false),
        ("warnings", |o| o.warnings.push(("all".into(), Level::Error))),
        ("undefined", |o| o.undefined.push("f".into())),
        ("cache", |o| o.cache.size = Some(1)),
    ];
    for (what, change) in does_not {
        let mut options = line(&[], &[]);
        change(&mut options);
        assert_eq!(keys.get(&option_key(&options).unwrap()), Some(&"none"), "{what}");
    }
    let refused: &[(&str, Change)] = &[
        ("dry_run", |o| o.dry_run = true),
        ("save_temps", |o| o.save_temps = true),
        ("override_image", |o| o.override_image.push(("cuda".into(), "x".into()))),
        ("device_verbose", |o| o.device_verbose = true),
        ("ptxas -v", |o| o.ptxas_args.push("-v".into())),
        ("ptxas @file", |o| o.ptxas_args.push("@file".into())),
        ("nvlink_args", |o| o.nvlink_args.push("--kernels-used=file".into())),
        ("remarks", |o| o.remarks.push("-Rpass=inline".into())),
        ("printing", |o| o.mllvm.push("-print-after-all".into())),
        ("timing", |o| o.mllvm.push("-time-passes".into())),
        ("embed_bitcode", |o| o.embed_bitcode = true),
    ];
    for (what, change) in refused {
        let mut options = line(&[], &[]);
        change(&mut options);
        assert!(option_key(&options).is_err(), "{what}");
    }
}

#[test]
fn options_of_llvm_that_do_more_than_code() {
    for (option, expected) in [
        ("-print-after-all", true),
        ("-debug-pass-manager", true),
        ("-time-passes", true),
        ("-stats", true),
        ("-pass-remarks-output=x", true),
        ("-info-output-file=x", true),
        ("-opt-bisect-limit=7", true),
        ("-dot-callgraph", true),
        ("-ir-dump-directory=d", true),
        ("-sample-profile-file=p", true),
        ("-cgscc-inline-replay=r", true),
        ("-some-option=/a/file", true),
        ("-unroll-runtime", false),
        ("-inline-threshold=500", false),
        ("-nvptx-fma-level=1", false),
        ("-enable-static-analysis", false),
        ("-passes=default<O3>", false),
    ] {
        assert_eq!(prints_or_reads(option), expected, "{option}");
    }
}

fn present() -> Present {
    Present { arch: Arch::new(90), has_cubin: true, ptx: Some("7.8".to_owned()), names: ["k".to_owned(), "v".to_owned()].into() }
}

fn device_input<'a>(unit: usize, origin: &str, bytes: &'a [u8]) -> DeviceInput<'a> {
    DeviceInput {
        unit,
        part: 0,
        module: None,
        origin: origin.to_owned(),
        triple: "nvptx64-nvidia-cuda".to_owned(),
        arch: Arch::new(90),
        class: ImageClass::Bitcode,
        ptx: None,
        launch_guard: None,
        image: Image::Plain(Cow::Borrowed(bytes)),
    }
}

/// A toolkit of two files, an output, and options with a cache.
fn place(dir: &Path) -> (Toolkit, Options) {
    let tool = |name: &str| -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, format!("\x7fELF{name}")).unwrap();
        path
    };
    let mut toolkit = Toolkit::default();
    (toolkit.ptxas, toolkit.nvlink, toolkit.root) = (Some(tool("ptxas")), Some(tool("nvlink")), Some(dir.to_owned()));
    let mut options = line(&[], &[]);
    options.cache.dir = Some(dir.join("cache"));
    options.output = dir.join("program");
    (toolkit, options)
}

/// The key of a link of these units' images, all of them taken.
fn key_of(dir: &Path, units: usize, images: &[(usize, &str, &[u8])]) -> Key {
    let (toolkit, options) = place(dir);
    let diagnostics = Diagnostics::new(&options);
    let cache = open(&options, &diagnostics);
    let inputs: Vec<_> = images.iter().map(|(unit, origin, bytes)| device_input(*unit, origin, bytes)).collect();
    let states = vec![UnitState { taken: true, lazy: false }; units];
    let asked = Asked {
        options: &options,
        toolkit: &toolkit,
        inputs: &inputs,
        states: &states,
        host_units: units,
        opaque: false,
        roots: BTreeSet::new(),
    };
    asked.key(&cache).unwrap().fields().key()
}

#[test]
fn host_objects_between_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let one = key_of(dir.path(), 2, &[(0, "a.o", b"1"), (1, "b.o", b"2")]);
    assert_eq!(key_of(dir.path(), 9, &[(3, "x/a.o", b"1"), (7, "x/b.o", b"2")]), one);
    assert_ne!(key_of(dir.path(), 2, &[(0, "a.o", b"1"), (0, "a.o", b"2")]), one);
    assert_ne!(key_of(dir.path(), 2, &[(0, "a.o", b"1"), (1, "a.o", b"2")]), one);
    assert_ne!(key_of(dir.path(), 2, &[(0, "b.o", b"2"), (1, "a.o", b"1")]), one);
}

#[test]
fn packed_images_count_as_they_are_stored() {
    let pack = |data: &[u8], compression| {
        fatbin::write(&[fatbin::Image {
            kind: fatbin::Kind::Ptx,
            arch: Arch::new(90),
            data,
            ident: None,
            options: "",
            debug: false,
            compression,
        }])
        .unwrap()
    };
    let text = b".version 7.8\n.target sm_90\n.address_size 64\n".repeat(20);
    let of = |bytes: &[u8]| {
        let entry = fatbin::read(bytes).unwrap().into_iter().next().unwrap();
        contents(&Image::Packed(Box::new(entry), OnceLock::new()))
    };
    let one = of(&pack(&text, fatbin::Compression::Lz4));
    assert_eq!(of(&pack(&text, fatbin::Compression::Lz4)), one);
    assert_ne!(of(&pack(&text[..text.len() - 44], fatbin::Compression::Lz4)), one);
    assert_ne!(of(&pack(&text, fatbin::Compression::Zstd(5))), one);
}

/// Asks and, if nothing is known, keeps an answer with these warnings. Gives what was known.
fn ask(dir: &Path, origin: &str, warnings: &[Warning], device_runtime: bool, roots: &[&str]) -> Option<Known> {
    let (toolkit, options) = place(dir);
    let diagnostics = Diagnostics::new(&options);
    let cache = open(&options, &diagnostics);
    let inputs = [DeviceInput { module: Some("_module"), ..device_input(0, origin, b"bitcode") }];
    let states = [UnitState { taken: true, lazy: false }];
    let asked = Asked {
        options: &options,
        toolkit: &toolkit,
        inputs: &inputs,
        states: &states,
        host_units: 1,
        opaque: false,
        roots: roots.iter().copied().collect(),
    };
    let question = Question::new(&cache, &asked).unwrap();
    let known = question.known(&options, &toolkit, Wanted::Nothing);
    if known.is_none() {
        let images = [present()];
        let modules = Modules { ids: vec!["_module"], are_all: true, awaited: Vec::new() };
        question.keep(
            &Made { fatbin: b"fat binary", images: &images, modules: &modules, device_runtime, record: b"record" },
            &toolkit,
            warnings,
        );
    }
    if let Some(known) = &known {
        assert_eq!((known.fatbin.as_slice(), known.record.as_slice()), (b"fat binary".as_slice(), b"record".as_slice()));
        assert_eq!(known.modules(&inputs), Some(Modules { ids: vec!["_module"], are_all: true, awaited: Vec::new() }));
        assert_eq!(known.modules(&[]), None);
        assert_eq!(known.images, [present()]);
    }
    known
}

#[test]
fn a_link_comes_back_whole() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(ask(dir.path(), "a.o", &[], false, &["k"]), None);
    assert!(ask(dir.path(), "a.o", &[], false, &["k"]).is_some());
    // Without warnings nothing names the inputs.
    assert!(ask(dir.path(), "b.o", &[], false, &["k"]).is_some());
    assert_eq!(ask(dir.path(), "a.o", &[], false, &["k", "v"]), None);
}

#[test]
fn warnings_name_the_inputs_that_they_are_about() {
    let dir = tempfile::tempdir().unwrap();
    let warnings = [Warning { name: "icf".to_owned(), text: "a.o: something".to_owned() }];
    assert_eq!(ask(dir.path(), "a.o", &warnings, false, &[]), None);
    assert!(ask(dir.path(), "a.o", &warnings, false, &[]).is_some());
    assert_eq!(ask(dir.path(), "b.o", &warnings, false, &[]), None);
}

#[test]
fn the_device_runtime_is_compared() {
    let dir = tempfile::tempdir().unwrap();
    // None there: nothing to compare with later, so nothing is kept.
    assert_eq!(ask(dir.path(), "a.o", &[], true, &[]), None);
    assert_eq!(ask(dir.path(), "a.o", &[], true, &[]), None);
    let library = dir.path().join("lib64/libcudadevrt.a");
    std::fs::create_dir(dir.path().join("lib64")).unwrap();
    std::fs::write(&library, "!<arch>\n").unwrap();
    assert_eq!(ask(dir.path(), "a.o", &[], true, &[]), None);
    assert!(ask(dir.path(), "a.o", &[], true, &[]).is_some_and(|known| known.device_runtime));
    std::fs::write(&library, "!<arch>\nother").unwrap();
    assert_eq!(ask(dir.path(), "a.o", &[], true, &[]), None);
}

#[test]
fn a_spoiled_link_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (toolkit, options) = place(dir.path());
    let diagnostics = Diagnostics::new(&options);
    let asked =
        Asked { options: &options, toolkit: &toolkit, inputs: &[], states: &[], host_units: 0, opaque: false, roots: BTreeSet::new() };
    for (spoil, kept) in [(true, false), (false, true)] {
        let cache = open(&options, &diagnostics);
        let question = Question::new(&cache, &asked).unwrap();
        if spoil {
            cache.spoil();
        }
        question.keep(&nothing_in_it(b"", &[], &Modules::default()), &toolkit, &[]);
        assert_eq!(question.known(&options, &toolkit, Wanted::Nothing).is_some(), kept);
    }
    let cache = open(&options, &diagnostics);
    assert!(Question::new(&cache, &Asked { opaque: true, ..asked }).is_none());
}

#[test]
fn facts_of_another_form_are_a_miss() {
    let dir = tempfile::tempdir().unwrap();
    let (toolkit, options) = place(dir.path());
    let diagnostics = Diagnostics::new(&options);
    let cache = open(&options, &diagnostics);
    let asked =
        Asked { options: &options, toolkit: &toolkit, inputs: &[], states: &[], host_units: 0, opaque: false, roots: BTreeSet::new() };
    let question = Question::new(&cache, &asked).unwrap();
    let images = [present()];
    question.keep(&nothing_in_it(b"fat binary", &images, &Modules::default()), &toolkit, &[]);
    let good = cache.get(Kind::Link, &question.key).unwrap();
    let facts: Value = serde_json::from_slice(good.section(1)).unwrap();
    for (name, wrong) in [
        ("images", json!({})),
        ("images", json!([{ "arch": "sm_xy", "names": [] }])),
        ("images", json!([{ "arch": "sm_90", "names": [1] }])),
        ("images", json!([7])),
        ("modules", json!(null)),
        ("only-modules", json!("yes")),
        ("runtime", json!("another")),
    ] {
        let mut facts = facts.clone();
        facts[name] = wrong.clone();
        cache.put(Kind::Link, &question.key, &[b"fat binary", facts.to_string().as_bytes()], &[]);
        assert_eq!(question.known(&options, &toolkit, Wanted::Nothing), None, "{name}: {wrong}");
    }
    for wrong in [&b"{"[..], b"7", b""] {
        cache.put(Kind::Link, &question.key, &[b"fat binary", wrong], &[]);
        assert_eq!(question.known(&options, &toolkit, Wanted::Nothing), None);
    }
    cache.put(Kind::Link, &question.key, &[b"fat binary", facts.to_string().as_bytes()], &[]);
    assert!(question.known(&options, &toolkit, Wanted::Nothing).is_some());
}

fn nothing_in_it<'m>(fatbin: &'m [u8], images: &'m [Present], modules: &'m Modules<'m>) -> Made<'m> {
    Made { fatbin, images, modules, device_runtime: false, record: b"" }
}
