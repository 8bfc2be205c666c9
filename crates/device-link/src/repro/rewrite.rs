//! The link line for the unpacked reproducer: names of packed files lead into its tree, what is left outside is named in full, outputs
//! come to lie in it, and what would write or read elsewhere is left out.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use crate::link_line::LinkLine;
use crate::options::{DeviceLib, ItemKind};

/// Options of ours that say where things go or come from on this machine only.
const DROPPED: [&str; 11] = [
    "repro",
    "repro-on-crash",
    "time-trace",
    "report",
    "record",
    "cache",
    "cache-dir",
    "cache-size",
    "cache-remote",
    "cache-remote-mode",
    "cache-remote-timeout",
];

/// Options of host linkers whose value is a file that they read and we do not.
const READ: [&str; 7] = [
    "version-script",
    "dynamic-list",
    "export-dynamic-symbol-list",
    "retain-symbols-file",
    "just-symbols",
    "symbol-ordering-file",
    "section-ordering-file",
];

/// Options of host linkers whose value is a file that they write.
const WRITTEN: [&str; 4] = ["Map", "dependency-file", "out-implib", "time-trace-file"];

/// The words for the reproducer, and files that they name and that are read by the host linker only.
pub(super) struct Rewritten {
    pub(super) words: Vec<OsString>,
    pub(super) host_files: Vec<PathBuf>,
}

/// Where a file lies below the reproducer's directory, by its full name here.
pub(super) fn in_tree(path: &Path) -> PathBuf {
    let mut tree = PathBuf::from("root");
    for component in path.components() {
        match component {
            Component::Normal(name) => tree.push(name),
            Component::ParentDir if tree.components().count() > 1 => {
                tree.pop();
            }
            _ => {}
        }
    }
    tree
}

/// Rewrites `words`, the line without the program's name and with response files expanded. `packed` holds the full names of the inputs that
/// are in the archive, `found` the file that each item of the host line led to, by its position. `base` is the directory that names of
/// inputs are relative to.
pub(super) fn rewrite(
    words: &[OsString],
    line: &LinkLine,
    packed: &dyn Fn(&Path) -> bool,
    found: &HashMap<usize, PathBuf>,
    base: &Path,
) -> Rewritten {
    let host = &line.host;
    let mut result = Rewritten { words: Vec::new(), host_files: Vec::new() };
    let items: HashMap<usize, &ItemKind> = host.items.iter().map(|item| (item.position, &item.kind)).collect();
    let place = |path: &Path| {
        let full = base.join(path);
        if packed(&full) { in_tree(&full) } else { full }
    };
    let device_files: Vec<&PathBuf> = line
        .options
        .device_libs
        .iter()
        .filter_map(|lib| match lib {
            DeviceLib::File(path) => Some(path),
            DeviceLib::Library(_) | DeviceLib::SearchDir(_) => None,
        })
        .collect();
    let mut added_dirs: Vec<PathBuf> = Vec::new();
    // What the host linker gets is a part of the line, word for word and in order.
    let mut next_host = 0;
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let position = (host.argv.get(next_host) == Some(word)).then_some(next_host);
        let Some(position) = position else {
            result.words.extend(own_word(word, &device_files, &place));
            continue;
        };
        next_host += 1;
        if host.output_index == Some(position) {
            let output = &line.options.output;
            let name = Path::new("out").join(output.file_name().unwrap_or(OsStr::new("a.out")));
            result.words.push(with_suffix(word, output, &name));
            continue;
        }
        match items.get(&position) {
            Some(ItemKind::Input(path) | ItemKind::Script(path)) => {
                let target = found.get(&position).map_or_else(|| place(path), |found| place(found));
                result.words.push(with_suffix(word, path, &target));
                continue;
            }
            Some(ItemKind::Library(_) | ItemKind::LibraryFile(_)) => {
                if let Some(dir) = found
                    .get(&position)
                    .map(|path| base.join(path))
                    .filter(|path| packed(path))
                    .and_then(|path| path.parent().map(Path::to_owned))
                    && !added_dirs.contains(&dir)
                {
                    added_dirs.push(dir);
                }
                result.words.push(word.clone());
                continue;
            }
            None => {}
        }
        if let Some((option, dir, is_next)) = search_dir(word, words.peek().copied()) {
            if is_next {
                words.next();
                next_host += 1;
            }
            // First what is packed from there, then the directory itself for what is not.
            let full = base.join(&dir);
            let keep = dir.as_os_str().as_bytes().starts_with(b"=") || dir.as_os_str().as_bytes().starts_with(b"$");
            let dirs = if keep { vec![dir] } else { vec![in_tree(&full), full] };
            result.words.extend(dirs.iter().map(|dir| joined(&option, dir.as_os_str())));
            continue;
        }
        let (name, value) = option(word);
        if matches!(name, b"C" | b"directory") && value.is_none() || name == b"directory" {
            if value.is_none() && words.next().is_some() {
                next_host += 1;
            }
            continue;
        }
        let reads = READ.iter().any(|known| known.as_bytes() == name);
        if reads || WRITTEN.iter().any(|known| known.as_bytes() == name) {
            let path = match value {
                Some(value) => Some(PathBuf::from(OsStr::from_bytes(value))),
                None => words.peek().map(PathBuf::from),
            };
            let Some(path) = path else {
                result.words.push(word.clone());
                continue;
            };
            let target = if reads {
                result.host_files.push(base.join(&path));
                in_tree(&base.join(&path))
            } else {
                Path::new("out").join(path.file_name().unwrap_or(OsStr::new("file")))
            };
            if value.is_some() {
                result.words.push(with_suffix(word, &path, &target));
            } else {
                words.next();
                next_host += 1;
                result.words.extend([word.clone(), target.into_os_string()]);
            }
            continue;
        }
        result.words.push(word.clone());
    }
    // Libraries that are packed although no option names their directory.
    for dir in added_dirs {
        let word = joined(OsStr::new("-L"), in_tree(&dir).as_os_str());
        if !result.words.contains(&word) {
            result.words.push(word);
        }
    }
    result
}

/// The first file outside of the directory that a link would write. For lines that come from strangers.
pub(super) fn written_outside(line: &LinkLine) -> Option<PathBuf> {
    let words = line.host.argv.iter().enumerate().filter_map(|(index, word)| {
        let (name, value) = option(word);
        let writes = WRITTEN.iter().any(|known| known.as_bytes() == name);
        let value = value.map(|value| OsStr::from_bytes(value).to_owned()).or_else(|| line.host.argv.get(index + 1).cloned());
        value.filter(|_| writes).map(PathBuf::from)
    });
    let options = &line.options;
    let named = std::iter::once(options.output.clone()).chain(options.dependency_file.clone()).chain(options.time_trace.clone());
    let named = named.chain(options.repro.clone()).chain(words);
    let is_outside = |path: &PathBuf| !path.components().all(|component| matches!(component, Component::Normal(_) | Component::CurDir));
    named.into_iter().find(is_outside)
}

/// A word that is ours or the wrapper's.
fn own_word(word: &OsStr, device_files: &[&PathBuf], place: &dyn Fn(&Path) -> PathBuf) -> Option<OsString> {
    let (name, value) = option(word);
    let text = String::from_utf8_lossy(name).into_owned();
    let ours = text.strip_prefix("warplink-").or_else(|| text.strip_prefix("wrapper-"));
    if ours.is_some_and(|name| DROPPED.contains(&name)) {
        return None;
    }
    let Some(value) = value else { return Some(word.to_owned()) };
    let value_path = |value: &[u8]| PathBuf::from(OsStr::from_bytes(value));
    // `--override-image=cuda=FILE`, `--device-linker=FILE`, `--device-compiler=--cuda-path=DIR`: the file is what comes last.
    let path = if name == b"override-image" || has_suffix(value, b"cuda-path=") || has_suffix(value, b"ptxas-path=") {
        value.iter().rposition(|&byte| byte == b'=').and_then(|at| value.get(at + 1..)).map(value_path)
    } else if name == b"device-linker" {
        device_files.iter().find(|file| value.ends_with(file.as_os_str().as_bytes())).map(|file| (*file).clone())
    } else {
        let is_path = matches!(name, b"cuda-path" | b"warplink-cuda-path" | b"ptxas-path" | b"warplink-ptxas-path");
        // A linker without a directory is looked for on PATH.
        let is_tool = matches!(name, b"linker-path" | b"warplink-linker") && value.contains(&b'/');
        (is_path || is_tool).then(|| value_path(value))
    };
    Some(match path {
        Some(path) if !path.as_os_str().is_empty() => with_suffix(word, &path, &place(&path)),
        _ => word.to_owned(),
    })
}

fn has_suffix(value: &[u8], option: &[u8]) -> bool {
    value.windows(option.len()).any(|window| window == option)
}

/// An option's name without dashes, and its value behind `=`.
fn option(word: &OsStr) -> (&[u8], Option<&[u8]>) {
    let bytes = word.as_bytes();
    let Some(body) = bytes.strip_prefix(b"--").or_else(|| bytes.strip_prefix(b"-")) else { return (b"", None) };
    match body.iter().position(|&byte| byte == b'=') {
        Some(at) => (body.get(..at).unwrap_or_default(), body.get(at + 1..)),
        None => (body, None),
    }
}

/// The directory of a `-L`, what to write before it, and whether it is a word of its own.
fn search_dir(word: &OsStr, next: Option<&OsString>) -> Option<(OsString, PathBuf, bool)> {
    let bytes = word.as_bytes();
    let here = |option: &str, dir: &[u8]| Some((OsString::from(option), PathBuf::from(OsStr::from_bytes(dir)), false));
    if let Some(dir) = bytes.strip_prefix(b"--library-path=").or_else(|| bytes.strip_prefix(b"-library-path=")) {
        return here("-L", dir);
    }
    if matches!(bytes, b"-L" | b"--library-path" | b"-library-path") {
        return Some((OsString::from("-L"), PathBuf::from(next?), true));
    }
    bytes.strip_prefix(b"-L").and_then(|dir| here("-L", dir))
}

fn joined(option: &OsStr, value: &OsStr) -> OsString {
    let mut word = option.to_owned();
    word.push(value);
    word
}

/// `word` with `path`, which it ends with, replaced by `target`; a word that does not end so becomes `target`.
fn with_suffix(word: &OsStr, path: &Path, target: &Path) -> OsString {
    let start = word.as_bytes().strip_suffix(path.as_os_str().as_bytes()).unwrap_or_default();
    let mut bytes = start.to_vec();
    bytes.extend(target.as_os_str().as_bytes());
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_line;

    fn rewritten(program: &str, words: &str, packed: &[&str], found: &[(&str, &str)]) -> (String, Vec<PathBuf>) {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        let argv = std::iter::once(OsString::from(program)).chain(words.iter().cloned()).collect();
        let line = link_line::parse(argv, &|_| None).unwrap();
        let position = |name: &str| line.host.argv.iter().position(|word| word == name).unwrap();
        let found = found.iter().map(|(name, path)| (position(name), PathBuf::from(path))).collect();
        let packed = |path: &Path| packed.iter().any(|known| path == Path::new(known));
        let result = rewrite(&words, &line, &packed, &found, Path::new("/b"));
        let words: Vec<_> = result.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        (words.join(" "), result.host_files)
    }

    #[test]
    fn lines_lead_into_the_tree() {
        let wrapper = "clang-linker-wrapper";
        for (program, words, packed, found, expected) in [
            ("ld", "-o prog a.o /usr/lib/crt1.o", &["/b/a.o"][..], &[][..], "-o out/prog root/b/a.o /usr/lib/crt1.o"),
            ("ld", "-o../x/prog ../a.o", &["/b/../a.o"], &[], "-oout/prog root/a.o"),
            (
                "ld",
                "-Llib -lk -lc",
                &["/b/lib/libk.a"],
                &[("-lk", "lib/libk.a"), ("-lc", "/usr/lib/libc.so")],
                "-Lroot/b/lib -L/b/lib -lk -lc",
            ),
            ("ld", "-L lib --library-path=/x -L=sys -lk", &[], &[], "-Lroot/b/lib -L/b/lib -Lroot/x -L/x -L=sys -lk"),
            (
                "ld",
                "-Ts.ld --version-script=v.map -Map=m.map a.o",
                &["/b/a.o"],
                &[],
                "-T/b/s.ld --version-script=root/b/v.map -Map=out/m.map root/b/a.o",
            ),
            (
                "ld",
                "--version-script v.map --dependency-file d a.o",
                &["/b/a.o"],
                &[],
                "--version-script root/b/v.map --dependency-file out/d root/b/a.o",
            ),
            (
                "ld",
                "--warplink-repro=r.tar.zst --warplink-ptx=all --warplink-cuda-path=cuda a.o",
                &["/b/a.o"],
                &[],
                "--warplink-ptx=all --warplink-cuda-path=/b/cuda root/b/a.o",
            ),
            (
                wrapper,
                "--linker-path=/usr/bin/ld --device-linker=d.cubin --device-compiler=--cuda-path=cu --override-image=cuda=i.fatbin a.o",
                &["/b/a.o", "/b/d.cubin", "/b/i.fatbin"],
                &[],
                "--linker-path=/usr/bin/ld --device-linker=root/b/d.cubin --device-compiler=--cuda-path=/b/cu \
                 --override-image=cuda=root/b/i.fatbin root/b/a.o",
            ),
        ] {
            assert_eq!(rewritten(program, words, packed, found).0, expected);
        }
        assert_eq!(rewritten("ld", "--dynamic-list=l a.o", &[], &[]).1, [PathBuf::from("/b/l")]);
    }
}
