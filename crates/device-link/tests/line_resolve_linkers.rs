//! Which archive members a link takes, compared with GNU ld, gold, lld and mold themselves on random programs.
//!
//! Every object defines a symbol that nothing refers to, `MARKn_`; the object was linked if and only if that name is in the output.
//! Needs `as`, `ar` and the linkers; a linker that is not there is left out with a printed line.

mod line_support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use device_link::inputs;
use device_link::link_line;
use device_link::resolve::{self, LinkerFlavour};
use line_support::find;

/// A small generator whose numbers are the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn linker(flavour: LinkerFlavour) -> Option<PathBuf> {
    find(&[match flavour {
        LinkerFlavour::Gnu => "ld.bfd",
        LinkerFlavour::Gold => "ld.gold",
        LinkerFlavour::Lld => "ld.lld",
        LinkerFlavour::Mold => "mold",
    }])
}

fn run(command: &mut Command) -> std::process::Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

const SYMBOLS: u64 = 14;

/// What a set of random programs has besides objects and archives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feature {
    Plain,
    Common,
    Shared,
    AsNeeded,
    Groups,
    Lists,
    Options,
    Wrap,
    WholeArchive,
}

struct Program {
    dir: tempfile::TempDir,
    line: Vec<String>,
    marks: usize,
}

impl Program {
    fn random(seed: u64, feature: Feature, flavour: LinkerFlavour) -> Program {
        let mut random = Random(seed * 7919 + 17);
        random.below(2);
        let mut program = Program { dir: tempfile::tempdir().unwrap(), line: Vec::new(), marks: 0 };
        let dir = program.dir.path().to_owned();
        let mut pieces = Vec::new();
        let main = program.object(&mut random, &dir, feature, true);
        let in_group = feature == Feature::Groups;
        for _ in 0..1 + random.below(2) {
            let object = program.object(&mut random, &dir, feature, false);
            pieces.push(vec![object]);
        }
        for number in 0..2 + random.below(2) {
            let count = 2 + random.below(4);
            let members: Vec<String> = (0..count).map(|_| program.object(&mut random, &dir, feature, false)).collect();
            if feature == Feature::Lists && flavour != LinkerFlavour::Gnu && random.chance(60) {
                let mut list = vec!["--start-lib".to_owned()];
                list.extend(members);
                list.push("--end-lib".to_owned());
                pieces.push(list);
                continue;
            }
            let archive = format!("lib{number}.a");
            run(Command::new("ar").current_dir(&dir).arg("rc").arg(&archive).args(&members));
            match feature {
                Feature::WholeArchive if random.chance(50) => {
                    pieces.push(vec!["--whole-archive".into(), archive, "--no-whole-archive".into()]);
                }
                _ => pieces.push(vec![archive]),
            }
        }
        if matches!(feature, Feature::Shared | Feature::AsNeeded | Feature::Groups) {
            for number in 0..1 + random.below(2) {
                let object = program.object(&mut random, &dir, Feature::Plain, false);
                let library = format!("lib{number}.so");
                run(Command::new("ld.bfd").current_dir(&dir).args(["-shared", "-o", &library, &object]));
                let mut piece = vec![library];
                if feature == Feature::AsNeeded && random.chance(60) {
                    piece.insert(0, "--as-needed".into());
                    piece.push("--no-as-needed".into());
                }
                pieces.push(piece);
            }
        }
        // Any order of the pieces.
        for last in (1..pieces.len()).rev() {
            pieces.swap(last, random.below(last as u64 + 1) as usize);
        }
        let bracket = in_group && random.chance(80);
        let from = random.below(2) as usize;
        pieces.insert(random.below(3) as usize, vec![main]);
        for (position, piece) in pieces.into_iter().enumerate() {
            if bracket && position == from {
                program.line.push("--start-group".into());
            }
            program.line.extend(piece);
        }
        if bracket {
            program.line.push("--end-group".into());
        }
        match feature {
            Feature::Options => {
                for option in ["-u", "--undefined", "-e", "--defsym"] {
                    let (a, b) = (random.below(SYMBOLS), random.below(SYMBOLS));
                    if random.chance(40) {
                        let value = if option == "--defsym" { format!("defined{a}=s{b}") } else { format!("s{b}") };
                        let at = random.below(program.line.len() as u64 + 1) as usize;
                        program.line.splice(at..at, [option.to_owned(), value]);
                    }
                }
            }
            Feature::Wrap => program.line.extend(["--wrap".to_owned(), "s1".to_owned(), "--wrap=s2".to_owned()]),
            _ => {}
        }
        program
    }

    fn object(&mut self, random: &mut Random, dir: &Path, feature: Feature, main: bool) -> String {
        let mark = self.marks;
        self.marks += 1;
        let mut text = format!(".data\n.globl MARK{mark}_\nMARK{mark}_: .quad 0\n");
        if main {
            text.push_str(".globl _start\n_start: .quad 0\n");
        }
        let name = |random: &mut Random, symbol: u64| match feature {
            Feature::Wrap if random.chance(25) => format!("__wrap_s{}", 1 + random.below(2)),
            Feature::Wrap if random.chance(15) => format!("__real_s{}", 1 + random.below(2)),
            _ => format!("s{symbol}"),
        };
        let mut seen = BTreeSet::new();
        for _ in 0..1 + random.below(3) {
            let symbol = random.below(SYMBOLS);
            let symbol = name(random, symbol);
            if main || symbol.starts_with("__real") || !seen.insert(symbol.clone()) {
                continue;
            }
            if feature == Feature::Common && random.chance(35) {
                writeln!(text, ".comm {symbol},8,8").unwrap();
            } else if random.chance(25) {
                writeln!(text, ".weak {symbol}\n{symbol}: .quad 0").unwrap();
            } else {
                writeln!(text, ".globl {symbol}\n{symbol}: .quad 0").unwrap();
            }
        }
        for _ in 0..1 + random.below(3) {
            let symbol = random.below(SYMBOLS);
            let symbol = name(random, symbol);
            if seen.insert(symbol.clone()) {
                if random.chance(20) {
                    writeln!(text, ".weak {symbol}").unwrap();
                }
                writeln!(text, ".quad {symbol}").unwrap();
            }
        }
        let (source, object) = (format!("u{mark}.s"), format!("u{mark}.o"));
        std::fs::write(dir.join(&source), text).unwrap();
        run(Command::new("as").current_dir(dir).args(["-o", &object, &source]));
        object
    }

    /// The marks that the linker put into the output.
    fn linked(&self, linker: &Path) -> Option<BTreeSet<usize>> {
        let output = Command::new(linker)
            .current_dir(self.dir.path())
            .args(["--unresolved-symbols=ignore-all", "--allow-multiple-definition", "--noinhibit-exec", "-o", "out"])
            .args(&self.line)
            .output()
            .unwrap();
        let bytes = std::fs::read(self.dir.path().join("out")).ok()?;
        assert!(!bytes.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(marks(&bytes))
    }

    /// The marks of the units that we think are taken.
    fn predicted(&self, flavour: LinkerFlavour) -> BTreeSet<usize> {
        let mut argv: Vec<OsString> = vec!["ld".into(), "-C".into(), self.dir.path().into()];
        argv.extend(self.line.iter().map(OsString::from));
        let line = link_line::parse(argv, &|_| None).unwrap();
        let files = inputs::load(&line.options, &line.host, flavour).unwrap();
        let units = resolve::units(&files).unwrap();
        let no_bitcode = |_: &[u8]| Err("no bitcode here".to_owned());
        let taken = resolve::taken(&units, flavour, &line.options, |unit| resolve::host_symbols(unit, no_bitcode)).unwrap();
        let shared = |unit: &resolve::Unit<'_>| unit.kind == offload_object::FileKind::ElfShared;
        let chosen = units.iter().zip(&taken).filter(|(unit, taken)| **taken && !shared(unit));
        chosen.flat_map(|(unit, _)| marks(unit.data)).collect()
    }
}

fn marks(bytes: &[u8]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for (at, window) in bytes.windows(4).enumerate() {
        if window == b"MARK" {
            let digits: String = bytes[at + 4..].iter().take_while(|b| b.is_ascii_digit()).map(|&b| b as char).collect();
            found.extend(digits.parse::<usize>());
        }
    }
    found
}

fn compare(flavour: LinkerFlavour, features: &[Feature], seeds: std::ops::Range<u64>) {
    let Some(linker) = linker(flavour) else {
        println!("skipped: no linker for {flavour:?}");
        return;
    };
    let mut wrong = Vec::new();
    let (mut compared, mut lazy_taken) = (0, 0);
    for &feature in features {
        for seed in seeds.clone() {
            let program = Program::random(seed, feature, flavour);
            let Some(linked) = program.linked(&linker) else { continue };
            let predicted = program.predicted(flavour);
            compared += 1;
            lazy_taken += linked.len();
            // Marks of shared objects do not get into the output.
            if linked != predicted {
                let dir = program.dir.path().display().to_string();
                let sources: String = (0..program.marks)
                    .map(|mark| {
                        let text = std::fs::read_to_string(program.dir.path().join(format!("u{mark}.s"))).unwrap();
                        format!("u{mark}: {}\n", text.replace('\n', "; "))
                    })
                    .collect();
                let archives: String = (0..4)
                    .filter_map(|number| {
                        let name = format!("lib{number}.a");
                        program.dir.path().join(&name).exists().then(|| {
                            let list = run(Command::new("ar").current_dir(&dir).args(["t", &name]));
                            format!("{name}: {}\n", String::from_utf8_lossy(&list.stdout).replace('\n', " "))
                        })
                    })
                    .collect();
                wrong.push(format!(
                    "{feature:?} seed {seed}: {}\nlinker {linked:?}\nwe     {predicted:?}\n{archives}{sources}",
                    program.line.join(" ")
                ));
            }
        }
    }
    let first: Vec<_> = wrong.iter().take(3).cloned().collect();
    assert!(wrong.is_empty(), "{} of {compared} differ\n{}", wrong.len(), first.join("\n"));
    assert!(compared > 0 && lazy_taken > 2 * compared, "the programs test too little");
    println!("{flavour:?}: {compared} links agree");
}

const SHARED_BY_ALL: &[Feature] = &[
    Feature::Plain,
    Feature::Common,
    Feature::Shared,
    Feature::AsNeeded,
    Feature::Groups,
    Feature::Lists,
    Feature::Options,
    Feature::Wrap,
    Feature::WholeArchive,
];

fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("WARPLINK_TEST_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(6);
    1..count + 1
}

#[test]
fn gnu_ld_takes_the_same_members() {
    compare(LinkerFlavour::Gnu, SHARED_BY_ALL, seeds());
}

#[test]
fn gold_takes_the_same_members() {
    compare(LinkerFlavour::Gold, SHARED_BY_ALL, seeds());
}

#[test]
fn lld_takes_the_same_members() {
    compare(LinkerFlavour::Lld, SHARED_BY_ALL, seeds());
}

#[test]
fn mold_takes_the_same_members() {
    compare(LinkerFlavour::Mold, SHARED_BY_ALL, seeds());
}
