//! The link map (`-Map`): the host linker writes it, and names our temporary objects in it, which differ from link to link and are gone
//! when somebody reads it. They get a name that stays and says what they are.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Context, Result};

/// What stands before a temporary's own name.
const PREFIX: &[u8] = b"warplink:";

/// Gives temporaries readable names in the map of a link. `map` is the option's value, `output` the link's output.
///
/// # Errors
/// The map cannot be written again.
pub fn rename_temporaries(map: &Path, output: &Path, temporaries: &[PathBuf]) -> Result<()> {
    let path = file_of(map, output);
    // Standard output (`-` of lld's), a pipe, or no map at all, of which the linker has said why.
    if !std::fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
        return Ok(());
    }
    let Ok(bytes) = std::fs::read(&path) else { return Ok(()) };
    let renamed = renamed(&bytes, temporaries);
    if renamed != bytes {
        std::fs::write(&path, renamed).context(|| format!("{}: cannot be rewritten", path.display()))?;
    }
    Ok(())
}

/// The file that GNU ld means: a directory gets one named after the output, a percent sign stands for the output's name.
fn file_of(map: &Path, output: &Path) -> PathBuf {
    let beside = |name: &Path| {
        let mut name = name.as_os_str().to_owned();
        name.push(".map");
        PathBuf::from(name)
    };
    if map.is_dir() {
        return map.join(beside(Path::new(output.file_name().unwrap_or_default())));
    }
    if map == Path::new("%") {
        return beside(output);
    }
    match map.to_str().zip(output.to_str()) {
        Some((map, output)) if map.contains('%') && !Path::new(map).exists() => PathBuf::from(map.replace('%', output)),
        _ => map.to_owned(),
    }
}

fn renamed(map: &[u8], temporaries: &[PathBuf]) -> Vec<u8> {
    let names: Vec<(&[u8], &[u8])> = temporaries
        .iter()
        .filter_map(|path| Some((path.as_os_str().as_bytes(), path.file_name()?.as_bytes())))
        .filter(|(path, _)| !path.is_empty())
        .collect();
    let mut result = Vec::with_capacity(map.len());
    let mut rest = map;
    while let Some(&byte) = rest.first() {
        match names.iter().find(|(path, _)| byte == b'/' && rest.starts_with(path) && ends_there(&rest[path.len()..])) {
            Some((path, name)) => {
                result.extend_from_slice(PREFIX);
                result.extend_from_slice(name);
                rest = &rest[path.len()..];
            }
            None => {
                result.push(byte);
                rest = &rest[1..];
            }
        }
    }
    result
}

/// A longer name is another file's.
fn ends_there(rest: &[u8]) -> bool {
    !rest.first().is_some_and(|&byte| byte.is_ascii_alphanumeric() || b"._-/+".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporaries_get_their_own_names() {
        let temporaries = [PathBuf::from("/tmp/w-1/registration.o")];
        for (before, after) in [
            ("LOAD /tmp/w-1/registration.o\nLOAD k.o\n", "LOAD warplink:registration.o\nLOAD k.o\n"),
            (" .text 0x0 0x1 /tmp/w-1/registration.o\n", " .text 0x0 0x1 warplink:registration.o\n"),
            ("  400 10 /tmp/w-1/registration.o:(.text)", "  400 10 warplink:registration.o:(.text)"),
            (
                "/tmp/w-1/registration.o2 /tmp/w-1/registration.o.d /tmp/w-12/x",
                "/tmp/w-1/registration.o2 /tmp/w-1/registration.o.d /tmp/w-12/x",
            ),
            ("", ""),
        ] {
            assert_eq!(String::from_utf8(renamed(before.as_bytes(), &temporaries)).unwrap(), after);
        }
    }

    #[test]
    fn where_gnu_ld_writes_it() {
        let dir = tempfile::tempdir().unwrap();
        let check = |map: &Path, expected: &Path| assert_eq!(file_of(map, Path::new("out/prog")), expected);
        check(Path::new("x.map"), Path::new("x.map"));
        check(Path::new("%"), Path::new("out/prog.map"));
        check(Path::new("%.txt"), Path::new("out/prog.txt"));
        check(dir.path(), &dir.path().join("prog.map"));
    }
}
