//! `warplink explain` on a fat binary made here and a record of the link that might have made it.

use super::*;
use device_link::record::{Architecture, Fate, Input, InputImage, Reason, SCHEMA, Symbol};
use fatbin::{Arch, Compression, Kind};
use std::ffi::OsString;
use std::path::Path;

const PTX_80: &[u8] = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry _Z1kPi(.param .u64 p) { ret; }\n";

fn fat(images: &[(Kind, u32, &[u8])]) -> Vec<u8> {
    let image = |(kind, sm, data)| {
        let compression = Compression::None;
        fatbin::Image { kind, arch: Arch::new(sm), data, ident: None, options: "", debug: false, compression }
    };
    fatbin::write(&images.iter().copied().map(image).collect::<Vec<_>>()).expect("write")
}

fn cubin(sm: u32) -> Vec<u8> {
    let mut elf = vec![0u8; 64];
    elf[..9].copy_from_slice(b"\x7fELF\x02\x01\x01\x41\x08");
    elf[16..20].copy_from_slice(&[2, 0, 190, 0]);
    elf[48..52].copy_from_slice(&(0x0600_0004 | sm << 8).to_le_bytes());
    elf
}

fn record() -> Record {
    let image = |arch: &str| InputImage { arch: arch.to_owned(), kind: "bitcode".to_owned(), size: 10 };
    let input = |name: &str, archive: Option<&str>, taken, reason| Input {
        name: name.to_owned(),
        archive: archive.map(str::to_owned),
        size: 100,
        taken,
        reason,
        images: vec![image("sm_80"), image("sm_90")],
    };
    let used = Reason::HostSymbol { symbol: "_Z3runv".to_owned(), demangled: None, from: Some("main.o".to_owned()) };
    Record {
        schema: SCHEMA,
        architectures: ["sm_80", "sm_90"].map(|arch| Architecture { arch: arch.to_owned(), ..Architecture::default() }).into(),
        inputs: vec![
            input("main.o", None, true, Reason::OnTheLine),
            input("lib/libk.a(reduce.o)", Some("lib/libk.a"), true, used),
            input("lib/libk.a(other.o)", Some("lib/libk.a"), false, Reason::NotNeeded),
        ],
        symbols: vec![
            Symbol {
                name: "_Z1kPi".to_owned(),
                kind: "kernel".to_owned(),
                archs: vec![0, 1],
                definition: Some(0),
                binding: "strong".to_owned(),
                fate: Some(Fate::Kept),
                ..Symbol::default()
            },
            Symbol {
                name: "_Z5twiceIiET_S0_".to_owned(),
                kind: "function".to_owned(),
                archs: vec![0, 1],
                definition: Some(1),
                binding: "weak".to_owned(),
                others: vec![(0, "weak".to_owned())],
                references: vec![0],
                fate: Some(Fate::Inlined),
                ..Symbol::default()
            },
        ],
        ..Record::default()
    }
}

struct Place(tempfile::TempDir);

impl Place {
    fn new(program: &[u8], record: Option<Record>) -> Place {
        let place = Place(tempfile::tempdir().expect("tempdir"));
        std::fs::write(place.program(), program).expect("program");
        if let Some(mut record) = record {
            record.stamp = store::stamp(&place.program());
            store::keep(&place.0.path().join("warplink/records"), &place.program(), &record).expect("keep");
        }
        place
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("app")
    }

    fn ask(&self, question: (&str, &str), json: bool) -> (String, Result<Outcome, String>) {
        let of = |name: &str| (question.0 == name).then(|| question.1.to_owned());
        let args = Args { gpu: of("gpu"), symbol: of("symbol"), member: of("member"), record: None, json, file: self.program() };
        let cache: OsString = self.0.path().into();
        let mut out = Vec::new();
        let result = run(&args, &move |name| (name == "XDG_CACHE_HOME").then(|| cache.clone()), &mut out);
        let text = anstream::adapter::strip_str(&String::from_utf8(out).expect("utf-8")).to_string();
        (text.replace(&self.program().display().to_string(), "app"), result)
    }
}

#[test]
fn a_gpu_that_nothing_runs_on() {
    let elf = cubin(90);
    let place = Place::new(&fat(&[(Kind::Elf, 90, &elf)]), Some(record()));
    let (text, result) = place.ask(("gpu", "H100"), false);
    assert_eq!(result, Ok(Outcome::Good));
    assert!(text.contains("app: runs on sm_90 (H100/H200): the driver loads the sm_90 cubin\n"), "{text}");
    assert!(!text.contains("what to do"), "{text}");
    // Every architecture of the link is later: PTX of it is no help.
    let (text, result) = place.ask(("gpu", "7.5"), false);
    assert_eq!(result, Ok(Outcome::Nothing));
    assert!(text.contains("the objects were compiled for sm_80, sm_90; PTX was embedded for none\n"), "{text}");
    assert!(text.contains("what to do: compile all objects with --offload-arch=sm_75") && !text.contains("warplink-ptx"), "{text}");
    let (text, _) = place.ask(("gpu", "A10"), false);
    assert!(text.contains("or: link again with -Wl,--warplink-ptx=sm_80:"), "{text}");
    assert!(text.ends_with("(from app and the record of its link)\n"), "{text}");
    let (text, _) = place.ask(("gpu", "sm_86"), true);
    let json: serde_json::Value = serde_json::from_str(&text).expect("json");
    assert_eq!((json["gpu"].as_str(), json["runs"].as_str(), json["source"].as_str()), (Some("sm_86"), Some("no"), Some("record")));
    assert_eq!(json["advice"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_gpu_from_the_file_alone() {
    let elf = cubin(90);
    let place = Place::new(&fat(&[(Kind::Elf, 90, &elf)]), None);
    let (text, result) = place.ask(("gpu", "sm_120"), false);
    assert_eq!(result, Ok(Outcome::Nothing));
    assert!(text.contains("--warplink-ptx=sm_90") && text.contains("(from app alone: there is no record of its link here)"), "{text}");
    assert!(!text.contains("objects were compiled"), "{text}");
}

#[test]
fn where_a_symbol_comes_from() {
    let place = Place::new(&fat(&[(Kind::Ptx, 80, PTX_80)]), Some(record()));
    for name in ["_Z5twiceIiET_S0_", "int twice<int>(int)", "twice"] {
        let (text, result) = place.ask(("symbol", name), false);
        assert_eq!(result, Ok(Outcome::Good));
        let expected = "int twice<int>(int) [_Z5twiceIiET_S0_]: device function\n  defined in lib/libk.a(reduce.o) (a template or inline function, of \
                        which one definition is kept)\n    which is in the link because main.o refers to run() in host code, which it defines\n  also \
                        defined in main.o (a template or inline function, of which one definition is kept), which gives way\n  referred to by \
                        main.o\n  LTO: gone: inlined into its users, or they do without it\n(from";
        assert!(text.starts_with(expected), "{name}: {text}");
    }
    let (text, _) = place.ask(("symbol", "k"), false);
    assert!(text.starts_with("k(int*) [_Z1kPi]: kernel\n") && text.contains("  LTO: kept\n  in app: sm_80 ptx\n"), "{text}");
    let (text, result) = place.ask(("symbol", "nothing"), false);
    assert_eq!(result, Ok(Outcome::Nothing));
    assert!(text.starts_with("nothing: no device symbol of this name\n"), "{text}");
    let (text, _) = place.ask(("symbol", "twice"), true);
    let json: serde_json::Value = serde_json::from_str(&text).expect("json");
    assert_eq!(json["found"][0]["record"][0]["definition"], "lib/libk.a(reduce.o)");
    assert_eq!(json["found"][0]["record"][0]["fate"], "inlined");
}

#[test]
fn many_symbols_are_listed() {
    let mut record = record();
    record.symbols = (0..40).map(|number| Symbol { name: format!("part{number}"), ..Symbol::default() }).collect();
    let place = Place::new(&fat(&[(Kind::Ptx, 80, PTX_80)]), Some(record));
    let (text, _) = place.ask(("symbol", "part"), false);
    assert!(text.starts_with("part: a part of 40 names; which one?\n  part0\n") && text.contains("  ... and 15 more\n"), "{text}");
}

#[test]
fn a_symbol_from_the_file_alone() {
    let place = Place::new(&fat(&[(Kind::Ptx, 80, PTX_80)]), None);
    let (text, result) = place.ask(("symbol", "k(int*)"), false);
    assert_eq!(result, Ok(Outcome::Good));
    assert!(text.starts_with("k(int*) [_Z1kPi]\n  in app: sm_80 ptx\n(from app alone"), "{text}");
}

#[test]
fn why_a_member_is_in_the_link() {
    let place = Place::new(&fat(&[(Kind::Ptx, 80, PTX_80)]), Some(record()));
    let (text, result) = place.ask(("member", "libk.a(reduce.o)"), false);
    assert_eq!(result, Ok(Outcome::Good));
    assert!(
        text.starts_with(
            "lib/libk.a(reduce.o): device code is in the link\n  because main.o refers to run() in host code, which it defines\n"
        ),
        "{text}"
    );
    let (text, _) = place.ask(("member", "lib/libk.a(other.o)"), false);
    assert!(
        text.contains("is not in the link\n  because neither host code nor device code refers to anything that it defines\n"),
        "{text}"
    );
    let (text, result) = place.ask(("member", "other.o"), false);
    assert_eq!(result, Ok(Outcome::Good));
    assert!(text.starts_with("lib/libk.a(other.o): device code is not in the link\n"), "{text}");
    let (text, result) = place.ask(("member", "libk.a(missing.o)"), false);
    assert_eq!(result, Ok(Outcome::Nothing));
    assert!(text.contains("  with device code there are lib/libk.a(reduce.o), lib/libk.a(other.o)\n"), "{text}");
}

#[test]
fn without_a_record_members_are_unknown() {
    let place = Place::new(&fat(&[(Kind::Ptx, 80, PTX_80)]), None);
    let error = place.ask(("member", "libk.a(reduce.o)"), false).1.expect_err("no record");
    assert!(error.contains("there is no record of its link here"), "{error}");
}

#[test]
fn a_changed_file_is_said_to_have_changed() {
    let place = Place::new(&fat(&[(Kind::Ptx, 80, PTX_80)]), Some(record()));
    let elf = cubin(90);
    std::fs::write(place.program(), fat(&[(Kind::Elf, 90, &elf)])).expect("write");
    let (text, _) = place.ask(("symbol", "twice"), false);
    assert!(text.contains("the file has been changed since"), "{text}");
}

#[test]
fn a_record_by_name() {
    let place = Place::new(&fat(&[(Kind::Ptx, 80, PTX_80)]), None);
    let path = place.0.path().join("r.json");
    let ask = |path: &Path| {
        let (gpu, symbol, member) = (None, None, Some("main.o".to_owned()));
        let args = Args { gpu, symbol, member, record: Some(path.to_owned()), json: false, file: place.program() };
        run(&args, &|_| None, &mut Vec::new())
    };
    std::fs::write(&path, serde_json::to_vec(&record()).expect("json")).expect("write");
    assert_eq!(ask(&path), Ok(Outcome::Good));
    std::fs::write(&path, serde_json::to_vec(&Record { schema: SCHEMA + 1, ..record() }).expect("json")).expect("write");
    assert!(ask(&path).expect_err("schema").contains("is a record of schema"));
    std::fs::write(&path, "[").expect("write");
    assert!(ask(&path).expect_err("damaged").contains("is no record of a link"));
}
