//! A static hello world in C++, as clang links it: which of the thousands of members of libc.a and libstdc++.a are linked must be what the
//! linkers' own maps say. Skipped with a printed line where there is no clang or no static libc.

mod line_support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use device_link::inputs::{self, LinkerFlavour};
use device_link::link_line;
use device_link::resolve;
use line_support::find;

/// The link line that the driver would run, without the linker's name.
fn driver_line(clang: &Path, dir: &Path, extra: &[&str]) -> Vec<String> {
    let output = Command::new(clang).current_dir(dir).args(["-###", "hello.o", "-o", "hello"]).args(extra).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = text.lines().last().unwrap_or_default();
    let words = device_link::response::split(last.as_bytes());
    words.into_iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

/// `libc.a(puts.o)` for every member in a trace or a map of mold's.
fn members(trace: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_map = trace.contains(" VMA ");
    for line in trace.lines().filter(|line| !is_map || line.contains("):(")) {
        let line = line.split(":(").next().unwrap_or_default();
        let line = line.split_whitespace().last().unwrap_or_default();
        // GNU ld writes (lib.a)m.o, all others lib.a(m.o).
        let pair = match line.strip_prefix('(') {
            Some(rest) => rest.split_once(')'),
            None => line.strip_suffix(')').and_then(|line| line.rsplit_once('(')),
        };
        if let Some((archive, member)) = pair {
            let archive = archive.rsplit('/').next().unwrap_or_default();
            found.insert(format!("{archive}({member})"));
        }
    }
    found
}

fn compare(extra: &[&str], source: &str) {
    let Some(clang) = find(&["clang++"]) else {
        println!("skipped: no clang++");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hello.cc"), source).unwrap();
    let compiled = Command::new(&clang).current_dir(dir.path()).args(["-c", "hello.cc"]).status().unwrap();
    assert!(compiled.success());
    let line = driver_line(&clang, dir.path(), extra);
    let mut compared = 0;
    for (flavour, name, trace) in [
        (LinkerFlavour::Gnu, "ld.bfd", &["-t", "-t"][..]),
        (LinkerFlavour::Gold, "ld.gold", &["-t"]),
        (LinkerFlavour::Lld, "ld.lld", &["-t"]),
        // Its trace shows what it opens; its map, what it takes.
        (LinkerFlavour::Mold, "mold", &["--print-map"]),
    ] {
        let Some(linker) = find(&[name]) else {
            println!("skipped: {name} is not there");
            continue;
        };
        let output = Command::new(&linker).current_dir(dir.path()).args(&line).args(trace).output().unwrap();
        if !output.status.success() {
            println!(
                "skipped: {name} cannot link this here: {}",
                String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default()
            );
            continue;
        }
        let linked = members(&String::from_utf8_lossy(&output.stdout));
        let mut argv: Vec<OsString> = vec!["ld".into(), "-C".into(), dir.path().into()];
        argv.extend(line.iter().map(OsString::from));
        let parsed = link_line::parse(argv, &|_| None).unwrap();
        let start = Instant::now();
        let files = inputs::load(&parsed.options, &parsed.host, flavour).unwrap();
        let units = resolve::units(&files).unwrap();
        let no_bitcode = |_: &[u8]| Err("no bitcode here".to_owned());
        let taken = resolve::taken(&units, flavour, &parsed.options, |unit| resolve::host_symbols(unit, no_bitcode)).unwrap();
        let time = start.elapsed();
        let ours: BTreeSet<String> = units
            .iter()
            .zip(&taken)
            .filter(|(unit, taken)| **taken && unit.member.is_some())
            .map(|(unit, _)| unit.name.to_string().rsplit('/').next().unwrap_or_default().to_owned())
            .collect();
        let missing: Vec<_> = linked.difference(&ours).take(5).collect();
        let extra: Vec<_> = ours.difference(&linked).take(5).collect();
        assert!(missing.is_empty() && extra.is_empty(), "{flavour:?}: missing {missing:?}, too many {extra:?}");
        println!("{flavour:?}: {} of {} units, {time:?}", ours.len(), units.len());
        compared += 1;
    }
    assert!(compared > 0 || find(&["ld.bfd"]).is_none());
}

#[test]
fn static_hello_world_takes_the_same_members() {
    if find(&["clang++"]).is_none() || !Path::new("/usr/lib/x86_64-linux-gnu/libc.a").exists() {
        println!("skipped: no static libc");
        return;
    }
    compare(
        &["-static"],
        "#include <iostream>\n#include <map>\n#include <string>\nint main() { std::map<std::string, int> m{{\"a\", 1}}; std::cout << m[\"a\"] << std::endl; }\n",
    );
}

#[test]
fn dynamic_hello_world_takes_the_same_members() {
    compare(&[], "#include <cstdio>\n#include <cstdlib>\nint main() { return atexit([] { puts(\"bye\"); }); }\n");
}
