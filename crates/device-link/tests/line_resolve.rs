//! The rules of host symbol resolution as small tables: objects and archives with their symbols, and which members each kind of linker
//! takes. `line_resolve_linkers.rs` compares the same code with the linkers; these tables say what the rules are.

use std::borrow::Cow;
use std::path::Path;

use device_link::link_line;
use device_link::options::ItemState;
use device_link::resolve::{Because, LinkerFlavour, MemberRef, Unit, UnitName, resolution, taken};
use offload_object::{FileKind, SymbolKind};

use LinkerFlavour::{Gnu, Gold, Lld, Mold};

/// One unit in words: `name: +strong ~weak =common -undefined ?undefined-weak`. The name says what it is: `m.o` an object, `x.so` a shared
/// object (`x.so*` as needed), `a/m` the member m of archive a, `L/m` an object between --start-lib and --end-lib. A `(1)` after it is
/// the number of its group.
fn unit(number: usize, words: &'static str, names: &mut Vec<&'static str>) -> Unit<'static> {
    let name = words.split(':').next().unwrap().trim();
    let (name, group) = match name.split_once('(') {
        Some((name, group)) => (name, Some(group.trim_end_matches(')').parse().unwrap())),
        None => (name, None),
    };
    let archive = name.split_once('/').map(|(archive, _)| archive);
    let input = match archive {
        Some(archive) if archive != "L" => names.iter().position(|known| *known == archive).unwrap_or_else(|| {
            names.push(archive);
            names.len() - 1
        }),
        _ => {
            names.push(name);
            names.len() - 1
        }
    };
    let state = ItemState { group, as_needed: name.ends_with('*'), start_lib: (archive == Some("L")).then_some(1), ..Default::default() };
    let member = archive.filter(|archive| *archive != "L").map(|_| MemberRef { index: number, header_offset: 0 });
    let kind = if name.contains(".so") { FileKind::ElfShared } else { FileKind::ElfRelocatable };
    Unit {
        input,
        position: input,
        member,
        name: UnitName::File(Path::new(name)),
        data: words.as_bytes(),
        kind,
        lazy: archive.is_some(),
        state,
    }
}

fn check(line: &str, units: &[&'static str], expected: &[(LinkerFlavour, &str)]) {
    let mut names = Vec::new();
    let made: Vec<Unit<'_>> = units.iter().enumerate().map(|(number, words)| unit(number, words, &mut names)).collect();
    let argv = format!("ld {line}").split_whitespace().map(Into::into).collect();
    let options = link_line::parse(argv, &|_| None).unwrap().options;
    for (flavour, expected) in expected {
        let chosen = taken(&made, *flavour, &options, |unit| {
            let text = std::str::from_utf8(unit.data).unwrap().split_once(':').unwrap().1;
            Ok(text
                .split_whitespace()
                .map(|word| {
                    let kind = match word.as_bytes()[0] {
                        b'+' => SymbolKind::Defined,
                        b'~' => SymbolKind::DefinedWeak,
                        b'=' => SymbolKind::Common,
                        b'-' => SymbolKind::Undefined,
                        _ => SymbolKind::UndefinedWeak,
                    };
                    (Cow::Borrowed(&word.as_bytes()[1..]), kind)
                })
                .collect())
        })
        .unwrap();
        let names: Vec<_> =
            made.iter().zip(chosen).filter(|(unit, chosen)| *chosen && unit.lazy).map(|(unit, _)| unit.name.to_string()).collect();
        assert_eq!(names.join(" "), *expected, "{flavour:?} {line}: {units:?}");
    }
}

fn same(line: &str, units: &[&'static str], expected: &str) {
    check(line, units, &[(Gnu, expected), (Gold, expected), (Lld, expected), (Mold, expected)]);
}

#[test]
fn what_all_linkers_agree_on() {
    same("", &["m.o: -f", "a/1: +f", "a/2: +g"], "a/1");
    same("", &["m.o: -f", "a/1: +f -g", "a/2: +g -h", "a/3: +h", "a/4: +i"], "a/1 a/2 a/3");
    // Backwards inside an archive.
    same("", &["m.o: -f", "a/1: +h", "a/2: +g -h", "a/3: +f -g"], "a/1 a/2 a/3");
    // Weak references take nothing, weak definitions serve.
    same("", &["m.o: ?f", "a/1: +f"], "");
    same("", &["m.o: -f", "a/1: ~f"], "a/1");
    same("", &["m.o: ?f -f", "a/1: +f"], "a/1");
    same("", &["m.o: -f", "a/1: =f"], "a/1");
    // What is defined already needs nobody.
    same("", &["m.o: -f", "d.o: +f", "a/1: +f"], "");
    same("", &["m.o: -f", "d.o: ~f", "a/1: +f"], "");
    same("", &["m.o: -f", "x.so: +f", "a/1: +f"], "");
    same("", &["m.o: -f", "a/1: +f", "x.so: +f"], "a/1");
    // The first archive wins.
    same("", &["m.o: -f", "a/1: +f", "b/1: +f"], "a/1");
    // Lists are archives.
    check(
        "",
        &["m.o: -f", "L/1.o: +f -g", "L/2.o: +g", "L/3.o: +h"],
        &[(Gold, "L/1.o L/2.o"), (Lld, "L/1.o L/2.o"), (Mold, "L/1.o L/2.o")],
    );
    // A shared object's references count as an object's do.
    same("", &["x.so: -f", "a/1: +f"], "a/1");
    // Roots
    same("-u f", &["m.o:", "a/1: +f", "a/2: +g"], "a/1");
    same("-e f", &["m.o:", "a/1: +f", "a/2: +g"], "a/1");
    same("", &["m.o:", "a/1: +_start"], "a/1");
    same("--defsym=x=g+4", &["m.o:", "a/1: +f", "a/2: +g"], "a/2");
    same("", &["m.o:", "a/1: +f"], "");
}

#[test]
fn order_matters_to_gnu_ld_and_gold_only() {
    let late = &["a/1: +f", "m.o: -f"];
    check("", late, &[(Gnu, ""), (Gold, ""), (Lld, "a/1"), (Mold, "a/1")]);
    let circle = &["m.o: -f", "a/1: +f -g", "a/2: +h", "b/1: +g -h"];
    check("", circle, &[(Gnu, "a/1 b/1"), (Gold, "a/1 b/1"), (Lld, "a/1 a/2 b/1"), (Mold, "a/1 a/2 b/1")]);
    same("", &["m.o: -f", "a/1(1): +f -g", "a/2(1): +h", "b/1(1): +g -h"], "a/1 a/2 b/1");
    same("", &["a/1(1): +f", "m.o(1): -f"], "a/1");
    // -u counts from the start.
    same("-u f", &["a/1: +f", "m.o:"], "a/1");
}

#[test]
fn definitions_elsewhere_on_the_line() {
    // Only mold looks at the whole line before it decides.
    let later = &["m.o: -f", "a/1: +f", "d.o: +f"];
    check("", later, &[(Gnu, "a/1"), (Gold, "a/1"), (Lld, "a/1"), (Mold, "")]);
    // A strong shared definition beats a weak one in an archive, in mold wherever it stands.
    let weak = &["m.o: -f", "a/1: ~f", "x.so: +f"];
    check("", weak, &[(Gnu, "a/1"), (Gold, "a/1"), (Lld, "a/1"), (Mold, "")]);
    // lld lets a shared object displace what an archive before it only offers.
    let offered = &["a/1: +f", "x.so: +f", "m.o: -f"];
    check("", offered, &[(Gnu, ""), (Gold, ""), (Lld, ""), (Mold, "a/1")]);
}

#[test]
fn common_symbols() {
    let units = &["m.o: =f", "a/1: +f"];
    check("", units, &[(Gnu, "a/1"), (Gold, ""), (Lld, ""), (Mold, "a/1")]);
    check("--fortran-common", units, &[(Lld, "a/1")]);
    check("", &["m.o: =f", "a/1: ~f"], &[(Gnu, ""), (Gold, ""), (Lld, "")]);
    check("", &["m.o: =f", "a/1: =f"], &[(Gnu, ""), (Gold, ""), (Lld, ""), (Mold, "")]);
}

#[test]
fn libraries_as_needed() {
    // GNU ld forgets what was not needed when it came by.
    let early = &["x.so*: +f", "m.o: -f", "a/1: +f"];
    check("", early, &[(Gnu, "a/1"), (Gold, ""), (Lld, ""), (Mold, "")]);
    // mold does not look at what an unneeded library refers to.
    let refers = &["m.o:", "x.so*: +g -f", "a/1: +f"];
    check("", refers, &[(Gnu, ""), (Gold, "a/1"), (Lld, "a/1"), (Mold, "")]);
}

#[test]
fn wrapped_symbols() {
    same("--wrap=f", &["m.o: -f", "a/1: +__wrap_f"], "a/1");
    check(
        "--wrap=f",
        &["m.o: -f", "a/1: +__wrap_f -__real_f", "b/1: +f"],
        &[(Gnu, "a/1 b/1"), (Gold, "a/1 b/1"), (Mold, "a/1 b/1"), (Lld, "a/1 b/1")],
    );
}

/// Chains as long as an archive and archives of many members take no time worth noting, and no stack.
#[test]
fn large_archives_are_no_trouble() {
    const COUNT: usize = 20_000;
    let texts: Vec<String> = (0..COUNT).map(|number| format!("f{number} f{}", number + 1)).collect();
    let mut units = vec![Unit {
        input: 0,
        position: 0,
        member: None,
        name: UnitName::File(Path::new("m.o")),
        data: b"main f0",
        kind: FileKind::ElfRelocatable,
        lazy: false,
        state: ItemState::default(),
    }];
    for (index, text) in texts.iter().enumerate() {
        let member = Some(MemberRef { index, header_offset: index as u64 });
        units.push(Unit {
            input: 1,
            position: 1,
            member,
            name: UnitName::Member(Path::new("a"), b"m"),
            data: text.as_bytes(),
            lazy: true,
            ..units[0].clone()
        });
    }
    let options = link_line::parse(vec!["ld".into()], &|_| None).unwrap().options;
    for flavour in [Gnu, Gold, Lld, Mold] {
        let chosen = taken(&units, flavour, &options, |unit| {
            let (defined, undefined) = std::str::from_utf8(unit.data).unwrap().split_once(' ').unwrap();
            let borrowed = |name: &str| Cow::Owned(name.as_bytes().to_vec());
            Ok(vec![(borrowed(defined), SymbolKind::Defined), (borrowed(undefined), SymbolKind::Undefined)])
        })
        .unwrap();
        assert!(chosen.iter().all(|taken| *taken), "{flavour:?}");
    }
}

#[test]
fn a_member_that_is_taken_has_a_reason() {
    let lines = ["main.o: +main -f -g", "a/f: +f -h", "a/h: +h", "a/u: +u", "a/unneeded: +x", "a/not_asked: +g"];
    let mut names = Vec::new();
    let units: Vec<Unit<'_>> = lines.iter().enumerate().map(|(number, words)| unit(number, words, &mut names)).collect();
    let argv = "ld -u u".split_whitespace().map(Into::into).collect();
    let options = link_line::parse(argv, &|_| None).unwrap().options;
    for flavour in [Gnu, Gold, Lld, Mold] {
        let found = resolution(&units, flavour, &options, &[true, true, true, true, true, false], |unit| {
            let words = std::str::from_utf8(unit.data).unwrap().split_once(':').unwrap().1.split_whitespace();
            let kind = |word: &str| if word.starts_with('+') { SymbolKind::Defined } else { SymbolKind::Undefined };
            Ok(words.map(|word| (Cow::Borrowed(&word.as_bytes()[1..]), kind(word))).collect())
        })
        .unwrap();
        let because = |symbol: &str, from| Some(Because { symbol: symbol.to_owned(), from });
        assert_eq!(found.taken, [true, true, true, true, false, true], "{flavour:?}");
        assert_eq!(found.because, [None, because("f", Some(0)), because("h", Some(1)), because("u", None), None, None], "{flavour:?}");
    }
}
