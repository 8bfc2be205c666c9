//! The house's rules, checked over the sources of all crates: which crate may do what, what each file opens with, what must not be committed.
//! Each test lists every place that breaks its rule.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A file above this many lines says in its first lines why it is that long.
const LONG: usize = 600;

/// A Rust source file of the workspace.
struct Source {
    /// Path from the workspace's root, with `/`.
    path: String,
    /// As it is.
    text: String,
    /// The text with the insides of comments, strings and characters as blanks: what is left is code, at the same lines.
    code: String,
    /// The code without test modules; empty for files that only exist for tests or for building.
    program: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn walk(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = path.file_name().unwrap_or_default();
            if name != "target" && !name.to_string_lossy().starts_with('.') {
                walk(&path, extension, found);
            }
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

fn files(extension: &str) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    for dir in ["crates", "tools"] {
        walk(&root.join(dir), extension, &mut found);
    }
    found.sort();
    found
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/"), text)
        })
        .collect()
}

fn sources() -> Vec<Source> {
    let mut sources: Vec<Source> = files("rs")
        .into_iter()
        .map(|(path, text)| {
            let code = blank(&text);
            let program = if is_program(&path) { without_test_modules(&code) } else { String::new() };
            Source { path, text, code, program }
        })
        .collect();
    assert!(sources.len() > 50, "only {} sources found", sources.len());
    let of_tests: BTreeSet<String> = sources.iter().flat_map(test_files).collect();
    for source in &mut sources {
        if of_tests.contains(&source.path) {
            source.program.clear();
        }
    }
    sources
}

/// Whether a file is part of a crate or program, rather than of its tests or its build.
fn is_program(path: &str) -> bool {
    path.split('/').nth(2) == Some("src")
}

/// The files of `#[cfg(test)] mod name;`.
fn test_files(source: &Source) -> Vec<String> {
    let (dir, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let stem = file.trim_end_matches(".rs");
    let dir = if ["lib", "main", "mod"].contains(&stem) { dir.to_owned() } else { format!("{dir}/{stem}") };
    source
        .code
        .split("#[cfg(test)]")
        .skip(1)
        .filter_map(|rest| rest.trim_start().strip_prefix("mod ")?.split_once(';'))
        .filter(|(name, _)| name.chars().all(is_word))
        .flat_map(|(name, _)| [format!("{dir}/{name}.rs"), format!("{dir}/{name}/mod.rs")])
        .collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Replaces what is inside comments, strings and character literals by blanks. Line breaks stay.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let hide = |code: &mut String, part: &[char]| code.extend(part.iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
    let mut at = 0;
    while at < chars.len() {
        let rest = &chars[at..];
        let after_word = at > 0 && is_word(chars[at - 1]);
        let length =
            comment(rest).or_else(|| if after_word { None } else { raw_string(rest) }).or_else(|| string(rest)).or_else(|| character(rest));
        match length {
            Some(length) => {
                hide(&mut code, &rest[..length]);
                at += length;
            }
            None => {
                code.push(chars[at]);
                at += 1;
            }
        }
    }
    code
}

fn comment(rest: &[char]) -> Option<usize> {
    if rest.starts_with(&['/', '/']) {
        return Some(rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with(&['/', '*']) {
        return None;
    }
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match (rest[at], rest.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    Some(rest.len())
}

/// `r"..."`, `r#"..."#`, with `b` or `c` before.
fn raw_string(rest: &[char]) -> Option<usize> {
    let start = usize::from(matches!(rest.first(), Some('b' | 'c')));
    if rest.get(start) != Some(&'r') {
        return None;
    }
    let hashes = rest[start + 1..].iter().take_while(|&&c| c == '#').count();
    let open = start + 1 + hashes;
    if rest.get(open) != Some(&'"') {
        return None;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let end = rest[open + 1..].windows(closing.len()).position(|window| window == closing);
    Some(end.map_or(rest.len(), |end| open + 1 + end + closing.len()))
}

fn string(rest: &[char]) -> Option<usize> {
    if rest.first() != Some(&'"') {
        return None;
    }
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    Some((at + 1).min(rest.len()))
}

/// `'x'` and `'\x'`; a lifetime is neither.
fn character(rest: &[char]) -> Option<usize> {
    if rest.first() != Some(&'\'') {
        return None;
    }
    if rest.get(1) == Some(&'\\') {
        return rest.iter().skip(3).position(|&c| c == '\'').map(|end| end + 4);
    }
    (rest.get(2) == Some(&'\'')).then_some(3)
}

/// Blanks `#[cfg(test)] mod name { ... }`.
fn without_test_modules(code: &str) -> String {
    let mut program = String::new();
    let mut rest = code;
    while let Some(start) = rest.find("#[cfg(test)]") {
        let (before, from) = rest.split_at(start);
        program.push_str(before);
        // The item ends with the bracket that closes its first one, or with a semicolon before any.
        let mut depth = 0;
        let body = &from["#[cfg(test)]".len()..];
        let end = body.char_indices().find_map(|(at, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            (depth == 0 && (c == '}' || c == ';')).then_some(at + 1)
        });
        let item = &from[.."#[cfg(test)]".len() + end.unwrap_or(body.len())];
        program.extend(item.chars().filter(|&c| c == '\n'));
        rest = &from[item.len()..];
    }
    program.push_str(rest);
    program
}

/// Lines, from 1, on which a sequence of tokens occurs; words count only as whole words, blanks between tokens do not count.
fn lines_with(code: &str, tokens: &[&str]) -> Vec<usize> {
    let Some((first, others)) = tokens.split_first() else { return Vec::new() };
    code.match_indices(first)
        .filter(|&(at, found)| {
            let mut rest = &code[at + found.len()..];
            let mut last = found;
            !(found.starts_with(is_word) && code[..at].ends_with(is_word))
                && others.iter().all(|&token| {
                    let ends = !(last.ends_with(is_word) && rest.starts_with(is_word));
                    last = token;
                    rest.trim_start().strip_prefix(token).is_some_and(|after| {
                        rest = after;
                        ends
                    })
                })
                && !(last.ends_with(is_word) && rest.starts_with(is_word))
        })
        .map(|(at, _)| code[..at].matches('\n').count() + 1)
        .collect()
}

/// Fails with all places at once.
fn none(rule: &str, places: Vec<String>) {
    let mut text = String::new();
    for place in &places {
        let _ = write!(text, "\n  {place}");
    }
    assert!(places.is_empty(), "{rule}:{text}");
}

/// The places where a program uses one of several token sequences, outside the files for which `allowed` is true.
fn uses(part: impl Fn(&Source) -> &str, sequences: &[&[&str]], allowed: impl Fn(&str) -> bool) -> Vec<String> {
    let mut places = Vec::new();
    for source in sources().iter().filter(|source| !allowed(&source.path)) {
        for tokens in sequences {
            places.extend(lines_with(part(source), tokens).into_iter().map(|line| format!("{}:{line}: {}", source.path, tokens.concat())));
        }
    }
    places
}

#[test]
fn unsafe_code_is_where_foreign_code_is_called() {
    // LLVM's, NVIDIA's; and what every program that launches kernels has to do itself, in the example of one.
    let may_use = |path: &str| {
        path.starts_with("crates/llvm-lto/") || path.starts_with("crates/nvjitlink/") || path == "crates/device-link/examples/jit.rs"
    };
    none("`unsafe` where no foreign code is called", uses(|s| &s.code, &[&["unsafe"]], may_use));
    // early.rs expands a macro of llvm-lto whose attribute the compiler counts as unsafe; the reason stands there.
    let may_allow = |path: &str| {
        ["crates/llvm-lto/src/lib.rs", "crates/nvjitlink/src/lib.rs", "crates/device-link/examples/jit.rs", "tools/warplink/src/early.rs"]
            .contains(&path)
    };
    none("unsafe code is allowed by", uses(|s| &s.code, &[&["allow", "(", "unsafe_code"]], may_allow));
}

#[test]
fn every_other_crate_forbids_it() {
    let mut places = Vec::new();
    for source in sources() {
        let krate = source.path.split('/').take(2).collect::<Vec<_>>().join("/");
        let is_root = source.path == format!("{krate}/src/lib.rs") || source.path == format!("{krate}/src/main.rs");
        if !is_root || krate == "crates/llvm-lto" || krate == "crates/nvjitlink" {
            continue;
        }
        // The one program has the exception above, which `forbid` would not let it make.
        let level = if krate == "tools/warplink" { "deny" } else { "forbid" };
        if lines_with(&source.code, &["#", "!", "[", level, "(", "unsafe_code", ")", "]"]).is_empty() {
            places.push(format!("{}: no #![{level}(unsafe_code)]", source.path));
        }
    }
    none("crate roots", places);
}

#[test]
fn children_are_started_by_command_rs_only() {
    let sequences: [&[&str]; 4] =
        [&["process", "::", "Command"], &["process", "::", "{"], &["process", "::", "CommandExt"], &["Command", "::", "new", "("]];
    none("starts a process", uses(|s| &s.program, &sequences, |path| path == "crates/device-link/src/command.rs"));
}

#[test]
fn the_environment_is_read_with_options_and_toolchain_only() {
    // The library is given a function that reads a variable; these, where a process begins, make it.
    let readers = [
        "crates/device-link/src/options.rs",
        "crates/device-link/src/toolchain.rs",
        "tools/warplink/src/cache.rs",
        "tools/warplink/src/doctor.rs",
        "tools/warplink/src/early.rs",
        "tools/warplink/src/main.rs",
    ];
    let sequences: Vec<Vec<&str>> =
        ["var", "var_os", "vars", "vars_os", "set_var", "remove_var", "{"].iter().map(|name| vec!["env", "::", *name]).collect();
    let sequences: Vec<&[&str]> = sequences.iter().map(Vec::as_slice).collect();
    none("reads the environment", uses(|s| &s.program, &sequences, |path| readers.contains(&path)));
}

#[test]
fn only_tools_end_the_process() {
    let sequences: [&[&str]; 3] = [&["process", "::", "exit"], &["process", "::", "abort"], &["libc", "::", "_exit"]];
    none("ends the process", uses(|s| &s.program, &sequences, |path| path.starts_with("tools/")));
}

#[test]
fn the_formats_touch_no_files() {
    let sequences: [&[&str]; 2] = [&["std", "::", "fs"], &["std", "::", "net"]];
    let formats = |path: &str| !path.starts_with("crates/offload-object/") && !path.starts_with("crates/fatbin/");
    none("touches files", uses(|s| &s.program, &sequences, formats));
}

#[test]
fn every_file_says_what_it_is_for() {
    let places = sources().into_iter().filter(|s| !s.text.starts_with("//! ")).map(|s| s.path).collect();
    none("does not open with //!", places);
}

#[test]
fn a_long_file_says_why() {
    let mut places = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        let reason = source.text.lines().take(15).take_while(|line| line.starts_with("//!")).any(|line| {
            let words: Vec<&str> = line.split(|c| !is_word(c)).collect();
            words.contains(&"lines") || words.contains(&"long")
        });
        if lines > LONG && !reason {
            places.push(format!("{}: {lines} lines", source.path));
        }
    }
    none("gives no reason for its length", places);
}

#[test]
fn nothing_is_left_to_do() {
    let sequences: [&[&str]; 3] = [&["todo", "!"], &["unimplemented", "!"], &["#", "[", "ignore"]];
    none("is not done", uses(|s| &s.code, &sequences, |_| false));
    let marks = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("not yet ", "supported")];
    let mut places = Vec::new();
    for source in sources() {
        for (number, line) in source.text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                places.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    none("is not done", places);
}

#[test]
fn blanks() {
    let mut places = Vec::new();
    for source in sources() {
        for (number, (line, code)) in source.text.lines().zip(source.code.lines()).enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                places.push(format!("{}:{}: ends in a blank", source.path, number + 1));
            }
            // PTX in strings has tabs.
            if code.contains('\t') {
                places.push(format!("{}:{}: a tab", source.path, number + 1));
            }
        }
        if !source.text.ends_with('\n') || source.text.ends_with("\n\n") {
            places.push(format!("{}: does not end in one line break", source.path));
        }
    }
    none("blanks", places);
}

/// The crates that a manifest names as dependencies of any kind.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut inside = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let (table, name) = section.rsplit_once("dependencies.").map_or((section, None), |(_, name)| ("dependencies", Some(name)));
            inside = table.ends_with("dependencies") && name.is_none();
            found.extend(name.map(str::to_owned));
        } else if inside && let Some((name, value)) = line.split_once('=') {
            let name = name.trim().split('.').next().unwrap_or_default();
            let renamed = value.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
            found.insert(renamed.unwrap_or(name).trim_matches('"').to_owned());
        }
    }
    found
}

#[test]
fn crates_know_only_what_is_below_them() {
    let below: [(&str, &[&str]); 6] = [
        ("crates/offload-object", &[]),
        ("crates/fatbin", &[]),
        ("crates/llvm-lto", &[]),
        ("crates/nvjitlink", &[]),
        ("crates/device-link", &["fatbin", "llvm-lto", "nvjitlink", "offload-object"]),
        ("tools/warplink", &["device-link", "fatbin", "offload-object"]),
    ];
    let members: BTreeSet<&str> = below.iter().filter_map(|(path, _)| path.split('/').nth(1)).collect();
    let mut manifests: Vec<String> = Vec::new();
    let mut places = Vec::new();
    for (path, text) in files("toml").into_iter().filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        let krate = path.trim_end_matches("/Cargo.toml").to_owned();
        let Some((_, allowed)) = below.iter().find(|(known, _)| *known == krate) else {
            places.push(format!("{path}: not a crate that this test knows"));
            continue;
        };
        let ours = dependencies(&text).into_iter().filter(|name| members.contains(name.as_str()) && !allowed.contains(&name.as_str()));
        places.extend(ours.map(|name| format!("{path}: depends on {name}")));
        manifests.push(krate);
    }
    none("dependencies", places);
    assert_eq!(manifests.len(), below.len(), "{manifests:?}");
}

#[test]
fn what_counts_as_code() {
    for (text, expected) in [
        ("a // unsafe\nb", "a          \nb"),
        ("a /* x /* y */ z */ b", "a                     b"),
        (r#"f("unsafe \" x", y)"#, "f(              , y)"),
        ("r#\"a \"b\" c\"# d", "              d"),
        ("br\"\\\" x", "       x"),
        ("attr\"x\"", "attr   "),
        ("'\"' + '\\'' + '\\u{41}' + b'x'", "    +      +          + b   "),
        ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
        ("\"a\nb\" c", "  \n   c"),
    ] {
        let blanked = blank(text);
        assert_eq!(blanked.replace(' ', ""), expected.replace(' ', ""), "{text}");
        assert_eq!(blanked.chars().count(), text.chars().count(), "{text}");
    }
}

#[test]
fn what_counts_as_a_test() {
    let code = "a\n#[cfg(test)]\nmod tests {\n  fn f() { { } }\n}\nb\n#[cfg(test)]\nmod more;\nc";
    assert_eq!(without_test_modules(code), "a\n\n\n\n\nb\n\n\nc");
    let source = |path: &str| Source { path: path.to_owned(), text: String::new(), code: code.to_owned(), program: String::new() };
    assert_eq!(test_files(&source("x/src/lib.rs"))[0], "x/src/more.rs");
    assert_eq!(test_files(&source("x/src/part.rs"))[0], "x/src/part/more.rs");
}

#[test]
fn what_counts_as_a_use() {
    let code = "use std::process;\nprocess :: exit(1);\nmy_process::exit();\nprocess::exit_code();\nprocess::\n  exit(2)";
    assert_eq!(lines_with(code, &["process", "::", "exit"]), [2, 5]);
    assert_eq!(lines_with("unsafe_code unsafe", &["unsafe"]), [1]);
    assert_eq!(lines_with("my_unsafe", &["unsafe"]), Vec::<usize>::new());
}

#[test]
fn what_counts_as_a_dependency() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\na = \"1\"\nb.workspace = true\nc = { package = \"d\", version = \"1\" }\n\
        [dev-dependencies.e]\nversion = \"1\"\n[target.'cfg(unix)'.build-dependencies]\nf = \"1\"\n[lints]\nworkspace = true";
    assert_eq!(dependencies(manifest), ["a", "b", "d", "e", "f"].map(str::to_owned).into());
}
