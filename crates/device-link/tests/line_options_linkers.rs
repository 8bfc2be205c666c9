//! Whether an option takes the next word as its value, asked of the linkers themselves: a file that does not exist is put behind every
//! option that their `--help` shows or our table could know, and it is seen whether they miss it.
//!
//! A linker that is not there is left out with a printed line.

mod line_support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::Command;

use device_link::link_line;
use device_link::options::ItemKind;
use line_support::find;

/// Options where the linkers do not agree with each other, so that we go by the word that follows: see `Spelling::Number` and
/// `Spelling::Words`. With this word, a file name, it is an input.
const DISPUTED: &[&str] = &[
    "-O",
    "-G",
    "--threads",
    "--icf",
    "--sort-section",
    "--optimize",
    "-optimize",
    "--unique",
    "--package-metadata",
    "--shuffle-sections",
];

/// Every option spelled in a help text, as it would stand on a line without a value.
fn options_of(help: &str) -> BTreeSet<String> {
    let mut options = BTreeSet::new();
    for line in help.lines() {
        let Some(start) = line.find('-').filter(|start| *start <= 4) else { continue };
        // The description is set off by two spaces.
        let text = line[start..].split("  ").next().unwrap_or_default();
        for part in text.split([' ', ',']).filter(|part| part.starts_with('-')) {
            let name = part.split(['=', '[', '<', '(', '.']).next().unwrap_or_default().trim_end_matches(')');
            if name.trim_start_matches('-').chars().next().is_some_and(char::is_alphanumeric) {
                options.insert(name.to_owned());
            }
        }
    }
    options
}

const FILE: &str = "no-such-input.o";

/// Whether we take the word after `option` for an input.
fn we_see_an_input(option: &str) -> bool {
    let argv = ["ld", option, FILE].map(OsString::from).to_vec();
    let line = link_line::parse(argv, &|_| None).unwrap();
    line.host.items.iter().any(|item| matches!(&item.kind, ItemKind::Input(_)))
}

fn check(linker: &[&str], arguments: &[&str]) {
    let Some(program) = find(linker) else {
        println!("skipped: {linker:?} is not there");
        return;
    };
    let help = Command::new(&program).args(arguments).arg("--help").output().unwrap();
    let options = options_of(&String::from_utf8_lossy(&help.stdout));
    assert!(options.len() > 100, "{linker:?}: the help text has changed: {options:?}");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("empty.s"), ".globl _start\n_start:\n").unwrap();
    let object = dir.path().join("there.o");
    assert!(Command::new("as").arg("-o").arg(&object).arg(dir.path().join("empty.s")).status().unwrap().success());
    // What ends the run, needs another value than a file's name to get far enough, is half of a bracket, or keeps the linker silent.
    let unfit = [
        "--help",
        "--version",
        "-v",
        "-V",
        "--verbose",
        "--target-help",
        "--print-output-format",
        "--print-sysroot",
        "--run",
        "-T",
        "--script",
        "-c",
        "--mri-script",
        "-dT",
        "--default-script",
        "-b",
        "--format",
        "-m",
        "-C",
        "--directory",
        "--chroot",
        "-A",
        "--repro",
        "--debug",
        "-plugin",
        "--plugin",
        "-l",
        "--library",
        "--Tdata",
        "--Ttext",
        "-version",
        "-EB",
        "--EB",
        "--be8",
        "--oformat",
        "--reproduce",
        "--dynamic-list",
        "--start-group",
        "--end-group",
        "--start-lib",
        "--end-lib",
        "--pop-state",
        "-w",
        "--no-warnings",
        "--no-define-common",
    ];
    // gold's incremental links refuse the other options that are on by default.
    let unfit = |option: &str| unfit.contains(&option) || option.starts_with("--incremental");
    let mut wrong = Vec::new();
    let mut asked = 0;
    for option in options.iter().filter(|option| !unfit(option) && !DISPUTED.contains(&option.as_str())) {
        // An option that writes a file of this name has taken it as its value, and must not help the next one.
        let _ = std::fs::remove_file(dir.path().join(FILE));
        let run = Command::new(&program)
            .current_dir(dir.path())
            .args(arguments)
            .arg("there.o")
            .args(["-o", "out", option, FILE])
            .env("LC_ALL", "C")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&run.stderr).into_owned() + &String::from_utf8_lossy(&run.stdout);
        let missed = ["cannot find no-such-input.o", "cannot open no-such-input.o", "open no-such-input.o: No such"];
        let missed = missed.iter().any(|message| text.contains(message));
        // Values that are files or must have a form are complained about in other words, which is as good an answer; but an option that
        // the linker does not know at all gives none.
        if ["unknown option", "unrecognized option", "unknown argument", "unknown command line option"].iter().any(|m| text.contains(m)) {
            continue;
        }
        asked += 1;
        let files = [
            "version-script",
            "symbol-ordering",
            "section-ordering",
            "retain-symbols",
            "-list",
            "handling-script",
            "just-symbols",
            "-R",
            "implib",
            "remap",
            "irpgo",
            "call-graph",
            "error-handling",
        ];
        if missed != we_see_an_input(option) && !files.iter().any(|word| option.contains(word)) {
            wrong.push(format!(
                "{option}: the linker {} it for an input: {}",
                if missed { "takes" } else { "does not take" },
                text.lines().next().unwrap_or_default()
            ));
        }
    }
    assert!(asked > 60, "{linker:?}: only {asked} options could be asked about");
    assert!(wrong.is_empty(), "{linker:?}:\n{}", wrong.join("\n"));
    println!("{linker:?}: {asked} options agree");
}

#[test]
fn gnu_ld_agrees_on_values() {
    check(&["ld.bfd"], &[]);
}

#[test]
fn gold_agrees_on_values() {
    check(&["ld.gold"], &[]);
}

#[test]
fn lld_agrees_on_values() {
    check(&["ld.lld"], &[]);
}

#[test]
fn mold_agrees_on_values() {
    check(&["mold"], &["-m", "elf_x86_64"]);
}
