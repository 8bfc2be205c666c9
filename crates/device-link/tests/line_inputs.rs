//! How inputs are found: search order, `-Bstatic`, `-l:`, sysroots, linker scripts, thin archives; and the same lines given to the linkers
//! themselves, whose `--trace` says what they opened.

mod line_support;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use device_link::inputs::{self, LinkerFlavour};
use device_link::link_line;
use device_link::resolve;
use device_link::response::to_response_file;
use line_support::find;

const LINKERS: &[(LinkerFlavour, &str)] =
    &[(LinkerFlavour::Gnu, "ld.bfd"), (LinkerFlavour::Gold, "ld.gold"), (LinkerFlavour::Lld, "ld.lld"), (LinkerFlavour::Mold, "mold")];

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Objects, archives, shared objects and scripts in a directory of their own.
struct Tree(tempfile::TempDir);

impl Tree {
    /// Makes `names`: `.o` with a symbol of its own name, `.a` of one such object, `.so`, and `name: text` for scripts.
    fn new(names: &[&str]) -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        for (number, name) in names.iter().enumerate() {
            if let Some((name, text)) = name.split_once(": ") {
                tree.write(name, text);
                continue;
            }
            let path = tree.0.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let object = if name.ends_with(".o") { path.clone() } else { tree.0.path().join(format!("object{number}.tmp")) };
            tree.assemble(&format!(".globl f{number}\nf{number}: .quad 0\n"), &object);
            if name.ends_with(".a") {
                run(Command::new("ar").arg("rc").arg(&path).arg(&object));
            } else if name.ends_with(".so") {
                run(Command::new("ld.bfd").arg("-shared").arg("-o").arg(&path).arg(&object));
            }
        }
        tree.assemble(".globl _start\n_start: .quad 0\n", &tree.0.path().join("start.o"));
        tree
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replace("ROOT", &self.0.path().display().to_string())).unwrap();
    }

    fn assemble(&self, text: &str, object: &Path) {
        let source = self.0.path().join("source.tmp");
        std::fs::write(&source, text).unwrap();
        run(Command::new("as").arg("-o").arg(object).arg(&source));
    }

    fn line(&self, line: &str) -> Vec<String> {
        line.replace("ROOT", &self.0.path().display().to_string()).split_whitespace().map(str::to_owned).collect()
    }

    /// What we find, relative to the tree, scripts left out.
    fn found(&self, line: &str, flavour: LinkerFlavour) -> Vec<String> {
        let mut argv: Vec<OsString> = vec!["ld".into(), "-C".into(), self.0.path().into()];
        argv.extend(self.line(line).into_iter().map(OsString::from));
        let line = link_line::parse(argv, &|_| None).unwrap();
        let files = inputs::load(&line.options, &line.host, flavour).unwrap();
        let objects = files.iter().filter(|file| file.kind != offload_object::FileKind::Text);
        objects.map(|file| self.name(&file.path)).collect()
    }

    fn name(&self, path: &Path) -> String {
        let full = self.0.path().join(path);
        let full = full.canonicalize().unwrap_or(full);
        let root = self.0.path().canonicalize().unwrap();
        full.strip_prefix(root).unwrap_or(&full).display().to_string()
    }

    /// What the linker says it opened, relative to the tree, archives once.
    fn opened(&self, line: &str, linker: &Path) -> Option<Vec<String>> {
        let whole = ["-o", "out", "--trace", "--unresolved-symbols=ignore-all", "-m", "elf_x86_64"];
        let output = Command::new(linker).current_dir(self.0.path()).args(whole).args(self.line(line)).output().unwrap();
        if !output.status.success() {
            return None;
        }
        let mut names: Vec<String> = Vec::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let line = line.strip_prefix("trace: ").unwrap_or(line);
            let path = line.split('(').find(|part| !part.is_empty()).unwrap_or_default();
            let path = path.trim_end_matches(')');
            let name = self.name(Path::new(path));
            let is_script = std::fs::read(self.0.path().join(&name)).is_ok_and(|bytes| bytes.is_ascii());
            if !path.is_empty() && !is_script && names.last() != Some(&name) {
                names.push(name);
            }
        }
        Some(names)
    }
}

/// Lines with every archive whole, so that all linkers show all of them; what all four and we must find.
const SAME_FOR_ALL: &[(&str, &str)] = &[
    ("start.o a.o", "start.o a.o"),
    ("start.o -L one -L two -lboth", "start.o one/libboth.so"),
    ("start.o -L two -L one -lboth", "start.o two/libboth.a"),
    ("start.o -lboth -L one", "start.o one/libboth.so"),
    ("start.o -Bstatic -L one -L two -lboth", "start.o one/libboth.a"),
    ("start.o -static -Lone -lboth", "start.o one/libboth.a"),
    ("start.o -Lone -Bstatic -lboth -Bdynamic -lboth", "start.o one/libboth.a one/libboth.so"),
    ("start.o --push-state -Bstatic -Lone -lboth --pop-state -lboth", "start.o one/libboth.a one/libboth.so"),
    ("start.o -Lone -Ltwo -Bstatic -lonlyso -lsecond -Bdynamic", ""),
    ("start.o -Lone -Ltwo -lsecond", "start.o two/libsecond.a"),
    ("start.o -L one -l:libboth.a", "start.o one/libboth.a"),
    ("start.o -L one -l:odd.name.a", "start.o one/odd.name.a"),
    ("start.o -L one --library-path=two --library=second", "start.o two/libsecond.a"),
    // Scripts
    ("start.o plain.ld", "start.o a.o one/libboth.a"),
    ("start.o -L scripts -lscript", "start.o a.o one/libboth.so"),
    ("start.o -L scripts -lbeside", "start.o scripts/beside.o"),
    ("start.o -L scripts -Lone -lsearch", "start.o one/libboth.so"),
    ("start.o -L scripts -labsolute", "start.o a.o"),
    ("start.o -Lscripts -lneeded", "start.o a.o one/libboth.a"),
    ("start.o -Lscripts -lnested", "start.o a.o one/libboth.a"),
    ("start.o -Lscripts -lquoted", "start.o a.o"),
    ("start.o -Lscripts -lstaticscript", "start.o one/libboth.a"),
    // Sysroot
    ("--sysroot=ROOT/sys -L=/lib start.o -lrooted", "start.o sys/lib/librooted.a"),
    ("--sysroot=ROOT/sys -LROOT/sys/lib start.o -lrootscript", "start.o sys/lib/librooted.a"),
    ("--sysroot=ROOT/sys -LROOT/sys/lib start.o -lforced", "start.o sys/lib/librooted.a"),
    ("--sysroot=ROOT/sys start.o outside.ld", "start.o a.o"),
];

/// GNU ld alone puts the sysroot before a file of the line, too.
const GNU_ONLY: &[(&str, &str)] = &[("--sysroot=ROOT/sys start.o =/lib/librooted.a", "start.o sys/lib/librooted.a")];

fn tree() -> Tree {
    Tree::new(&[
        "a.o",
        "one/libboth.so",
        "one/libboth.a",
        "two/libboth.a",
        "one/libonlyso.so",
        "two/libsecond.a",
        "one/odd.name.a",
        "scripts/beside.o",
        "sys/lib/librooted.a",
        "plain.ld: /* comment */ INPUT(a.o one/libboth.a)",
        "scripts/libscript.so: GROUP(a.o one/libboth.so)",
        "scripts/libbeside.so: INPUT(beside.o)",
        "scripts/libsearch.so: INPUT(-lboth)",
        "scripts/libabsolute.so: INPUT(ROOT/a.o)",
        "scripts/libneeded.so: INPUT(a.o AS_NEEDED(one/libboth.a))",
        "scripts/libnested.so: INPUT(plain.ld)",
        "scripts/libquoted.so: INPUT(\"a.o\")",
        "scripts/libstaticscript.so: SEARCH_DIR(one) INPUT(-l:libboth.a)",
        "sys/lib/librootscript.so: INPUT(/lib/librooted.a)",
        "sys/lib/libforced.so: INPUT(=/lib/librooted.a)",
        "outside.ld: INPUT(ROOT/a.o)",
    ])
}

#[test]
fn files_are_found_where_they_are_looked_for() {
    let tree = tree();
    for (line, expected) in SAME_FOR_ALL {
        for (flavour, _) in LINKERS {
            if expected.is_empty() {
                // Not found: left to the linker. What can be found is still found.
                assert_eq!(tree.found(line, *flavour).join(" "), "start.o two/libsecond.a", "{flavour:?}: {line}");
            } else {
                assert_eq!(tree.found(line, *flavour).join(" "), *expected, "{flavour:?}: {line}");
            }
        }
    }
}

#[test]
fn gnu_ld_roots_files_of_the_line() {
    let tree = tree();
    for (line, expected) in GNU_ONLY {
        assert_eq!(tree.found(line, LinkerFlavour::Gnu).join(" "), *expected, "{line}");
        assert_eq!(tree.found(line, LinkerFlavour::Lld), ["start.o"], "{line}");
        if let Some(linker) = find(&["ld.bfd"]) {
            assert_eq!(tree.opened(&format!("--whole-archive {line}"), &linker).unwrap().join(" "), *expected, "{line}");
        }
    }
}

#[test]
fn the_linkers_find_the_same_files() {
    let tree = tree();
    for (flavour, name) in LINKERS {
        let Some(linker) = find(&[name]) else {
            println!("skipped: {name} is not there");
            continue;
        };
        let mut compared = 0;
        for (line, expected) in SAME_FOR_ALL.iter().filter(|(_, expected)| !expected.is_empty()) {
            // mold 1.10 does not take -Bstatic back with --pop-state, other than documented and than later versions.
            if *flavour == LinkerFlavour::Mold && line.contains("--push-state -Bstatic") {
                continue;
            }
            let line = format!("--whole-archive {line}");
            // mold knows fewer script commands, gold fewer sysroot rules: a line that the linker refuses proves nothing.
            let Some(opened) = tree.opened(&line, &linker) else { continue };
            compared += 1;
            assert_eq!(opened.join(" "), *expected, "{flavour:?}: {line}");
        }
        assert!(compared >= 18, "{flavour:?} refuses too many of the lines: {compared}");
        println!("{flavour:?}: {compared} lines agree");
    }
}

#[test]
fn default_directories_are_those_of_the_linker() {
    let tree = Tree::new(&["sys/usr/lib/x86_64-linux-gnu/libzz.a", "sys/usr/lib/libzz.a", "sys/lib64/libyy.a"]);
    let line = "--sysroot=ROOT/sys -m elf_x86_64 -lzz";
    assert_eq!(tree.found(line, LinkerFlavour::Gnu), ["sys/usr/lib/x86_64-linux-gnu/libzz.a"]);
    assert_eq!(tree.found(line, LinkerFlavour::Gold), ["sys/usr/lib/x86_64-linux-gnu/libzz.a"]);
    assert!(tree.found(line, LinkerFlavour::Lld).is_empty());
    assert!(tree.found(line, LinkerFlavour::Mold).is_empty());
    assert!(tree.found(&format!("-nostdlib {line}"), LinkerFlavour::Gnu).is_empty());
    assert_eq!(tree.found("--sysroot=ROOT/sys -m elf_x86_64 -lyy", LinkerFlavour::Gnu), ["sys/lib64/libyy.a"]);
    // The default script, and with it its directories, gives way to -T.
    tree.write("x.ld", "SECTIONS { }");
    tree.write("insert.ld", "SECTIONS { } INSERT AFTER .text;");
    assert!(tree.found(&format!("-T x.ld {line}"), LinkerFlavour::Gnu).is_empty());
    assert_eq!(tree.found(&format!("-T insert.ld {line}"), LinkerFlavour::Gnu).len(), 1);
    // Nothing of another machine.
    assert!(tree.found("--sysroot=ROOT/sys -m elf_i386 -L=/usr/lib/x86_64-linux-gnu -lzz", LinkerFlavour::Gnu).is_empty());
}

#[test]
fn thin_archives_open_their_members() {
    let tree = Tree::new(&["a.o", "dir/b.o", "dir/c.o"]);
    run(Command::new("ar").current_dir(tree.0.path()).args(["rcT", "dir/thin.a", "a.o", "dir/b.o", "dir/c.o"]));
    std::fs::remove_file(tree.0.path().join("dir/c.o")).unwrap();
    let argv = vec!["ld".into(), "-C".into(), tree.0.path().into(), "dir/thin.a".into(), "--whole-archive".into(), "dir/thin.a".into()];
    let line = link_line::parse(argv, &|_| None).unwrap();
    let files = inputs::load(&line.options, &line.host, LinkerFlavour::Gnu).unwrap();
    let units = resolve::units(&files).unwrap();
    let shown: Vec<_> = units.iter().map(|unit| format!("{} {} {}", unit.name, unit.data.starts_with(b"\x7fELF"), unit.lazy)).collect();
    let name = |name: &str| units.iter().any(|unit| unit.name.to_string().ends_with(name));
    assert_eq!(units.len(), 4, "{shown:?}");
    assert!(name("b.o)") && name("a.o)") && shown.iter().all(|line| line.contains(" true ")), "{shown:?}");
    assert_eq!(units.iter().map(|unit| unit.lazy).collect::<Vec<_>>(), [true, true, false, false]);
}

#[test]
fn a_script_that_names_itself_ends() {
    let tree = Tree::new(&["a.o", "loop.ld: INPUT(a.o loop.ld)"]);
    let found = tree.found("loop.ld", LinkerFlavour::Gnu);
    assert!(!found.is_empty() && found.iter().all(|name| name == "a.o"), "{found:?}");
}

/// Each of two names the other many times: as many reads as that to the power of the depth.
#[test]
fn scripts_that_multiply_are_an_error() {
    let tree = Tree::new(&[]);
    for (name, other) in [("a.ld", "b.ld"), ("b.ld", "a.ld")] {
        std::fs::write(tree.0.path().join(name), format!("INPUT({})", vec![other; 100].join(" "))).unwrap();
    }
    let argv = vec!["ld".into(), "-C".into(), tree.0.path().into(), "a.ld".into()];
    let line = link_line::parse(argv, &|_| None).unwrap();
    let error = inputs::load(&line.options, &line.host, LinkerFlavour::Gnu).unwrap_err().to_string();
    assert!(error.ends_with("there are too many linker scripts, or some that name each other"), "{error}");
}

#[test]
fn a_malformed_archive_is_an_error_that_names_it() {
    let tree = Tree::new(&[]);
    std::fs::write(tree.0.path().join("bad.a"), b"!<arch>\nnot a member header at all, but long enough to be read as one\n").unwrap();
    let argv = vec!["ld".into(), "-C".into(), tree.0.path().into(), "bad.a".into()];
    let line = link_line::parse(argv, &|_| None).unwrap();
    let files = inputs::load(&line.options, &line.host, LinkerFlavour::Gnu).unwrap();
    let error = resolve::units(&files).unwrap_err().to_string();
    assert!(error.starts_with("bad.a: "), "{error}");
}

/// Every linker reads a response file of ours as the words that went in: objects with odd names are all linked.
#[test]
fn response_files_are_read_back_by_every_linker() {
    let names = [
        "plain",
        "a b",
        "q'q",
        "d\"d",
        r"b\b",
        r"e\\",
        "t\tt",
        "n\nn",
        "$h",
        "c#c",
        "(p)",
        "*s?",
        "ü",
        "x,y",
        "~t",
        "semi;colon",
        "[b]",
        "%p",
        "a'b\"c d\\",
    ];
    for (flavour, linker) in LINKERS {
        let Some(linker) = find(&[linker]) else {
            println!("skipped: {linker} is not there");
            continue;
        };
        let tree = Tree::new(&[]);
        let mut words: Vec<OsString> = ["-m", "elf_x86_64", "-o", "out put\"'", "start.o"].map(OsString::from).to_vec();
        for (number, name) in names.iter().enumerate() {
            let object = tree.0.path().join(format!("{name}.o"));
            tree.assemble(&format!(".globl MARK{number}_\nMARK{number}_: .quad 0\n"), &object);
            words.push(format!("{name}.o").into());
        }
        std::fs::write(tree.0.path().join("args.rsp"), to_response_file(&words)).unwrap();
        run(Command::new(&linker).current_dir(tree.0.path()).arg("@args.rsp"));
        let bytes = std::fs::read(tree.0.path().join("out put\"'")).unwrap();
        for (number, name) in names.iter().enumerate() {
            let mark = format!("MARK{number}_");
            assert!(bytes.windows(mark.len()).any(|window| window == mark.as_bytes()), "{flavour:?} lost {name:?}");
        }
        assert!(words.iter().all(|word| !word.as_bytes().is_empty()));
    }
}
