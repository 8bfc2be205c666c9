//! Response files: `@FILE` on a command line stands for the words in the file.
//!
//! Reading follows libiberty (GNU ld, gold) and LLVM's GNU tokenizer (lld, clang), which agree: white space separates words, either quote
//! keeps it, and a backslash takes the next character as it is, inside quotes too. Files may name files; names are relative to the
//! current directory. A file that cannot be read leaves its word as it was, and the linker takes it for an input.
//!
//! [`to_response_file`] writes what all of GNU ld, gold, lld and mold read back as the same words.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::error::{Context, Result, bail};

/// More than any build system nests, and less than a loop takes to fill the memory.
const MAX_FILES: usize = 2000;

/// More text than any link line has; files that name others many times over get there soon.
const MAX_BYTES: usize = 256 << 20;

/// Replaces every `@FILE` in `args` by the words in that file. The second part says whether there was one.
///
/// # Errors
/// When files include each other without end, or are together larger than [`MAX_BYTES`].
pub fn expand(args: Vec<OsString>) -> Result<(Vec<OsString>, bool)> {
    if !args.iter().any(|arg| arg.as_bytes().starts_with(b"@")) {
        return Ok((args, false));
    }
    let mut expanded = Vec::with_capacity(args.len());
    // What is still to be looked at, last word first.
    let mut pending: Vec<OsString> = args.into_iter().rev().collect();
    let (mut files, mut left) = (0, MAX_BYTES);
    while let Some(arg) = pending.pop() {
        let Some(bytes) = read(&arg) else {
            expanded.push(arg);
            continue;
        };
        files += 1;
        left = left.checked_sub(bytes.len()).context(|| format!("{}: response files are too large together", arg.display()))?;
        let words = split(&bytes);
        if files > MAX_FILES {
            bail!("{}: too many response files, or one that includes itself", arg.display());
        }
        pending.extend(words.into_iter().rev());
    }
    Ok((expanded, files > 0))
}

fn read(arg: &OsStr) -> Option<Vec<u8>> {
    let name = arg.as_bytes().strip_prefix(b"@").filter(|name| !name.is_empty())?;
    std::fs::read(Path::new(OsStr::from_bytes(name))).ok()
}

/// The words of a response file.
pub fn split(bytes: &[u8]) -> Vec<OsString> {
    // Editors on Windows put a byte order mark before UTF-8; LLVM skips it.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = bytes.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', _) => word.get_or_insert_default().extend(bytes.next()),
            (byte, Some(open)) if byte == open => quote = None,
            (byte, Some(_)) => word.get_or_insert_default().push(byte),
            (b'\'' | b'"', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, None) => words.extend(word.take().map(OsString::from_vec)),
            (byte, None) => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word.map(OsString::from_vec));
    words
}

/// The text of a response file that all four linkers read back as `args`, one word per line.
///
/// An empty word is written as `""`; lld drops it, as it drops every empty word of a response file.
pub fn to_response_file(args: &[OsString]) -> Vec<u8> {
    let mut text = Vec::new();
    for arg in args {
        let bytes = arg.as_bytes();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+=./:,@%^~".contains(byte) || *byte >= 0x80;
        if !bytes.is_empty() && bytes.iter().all(plain) {
            text.extend_from_slice(bytes);
        } else {
            // Double quotes with a backslash before quotes and backslashes: mold knows no backslash outside of quotes.
            text.push(b'"');
            for &byte in bytes {
                if matches!(byte, b'"' | b'\\') {
                    text.push(b'\\');
                }
                text.push(byte);
            }
            text.push(b'"');
        }
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        split(text.as_bytes()).into_iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn words_are_split_as_gnu_tools_split_them() {
        for (text, expected) in [
            ("", &[][..]),
            ("  \n\t ", &[]),
            ("a b\nc\r\nd", &["a", "b", "c", "d"]),
            (r#"'a b' "c d""#, &["a b", "c d"]),
            (r#"a'b c'd"e f"g"#, &["ab cde fg"]),
            (r"a\ b \'c\'", &["a b", "'c'"]),
            (r#""a\"b" 'a\'b'"#, &["a\"b", "a'b"]),
            (r#""a'b" 'a"b'"#, &["a'b", "a\"b"]),
            (r"C:\\dir\\file", &[r"C:\dir\file"]),
            ("'' \"\" x", &["", "", "x"]),
            ("'open end", &["open end"]),
            ("a\\", &["a"]),
            ("\u{feff}a b", &["a", "b"]),
            ("a#b # c", &["a#b", "#", "c"]),
        ] {
            assert_eq!(words(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let args: Vec<OsString> = ["a", "b c", "d\"e", "f'g", r"h\i", r"\\", "new\nline", "tab\t", "", "@x", "$y", "ü", "-z", "a*?[b]"]
            .iter()
            .map(OsString::from)
            .collect();
        assert_eq!(split(&to_response_file(&args)), args);
    }

    #[test]
    fn files_nest_and_missing_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (outer, inner) = (dir.path().join("outer"), dir.path().join("inner"));
        std::fs::write(&inner, "b 'c d'").unwrap();
        std::fs::write(&outer, format!("a @{} @no-such-file e", inner.display())).unwrap();
        let line = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let outer = format!("@{}", outer.display());
        let (expanded, any) = expand(line(&["x", &outer, "@", "y"])).unwrap();
        assert_eq!(expanded, line(&["x", "a", "b", "c d", "@no-such-file", "e", "@", "y"]));
        assert!(any);
        assert_eq!(expand(line(&["x", "@no-such-file"])).unwrap(), (line(&["x", "@no-such-file"]), false));
    }

    #[test]
    fn files_that_multiply_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (outer, inner) = (dir.path().join("outer"), dir.path().join("inner"));
        std::fs::write(&inner, " ".repeat(MAX_BYTES / 16)).unwrap();
        std::fs::write(&outer, format!("@{} ", inner.display()).repeat(17)).unwrap();
        let error = expand(vec![format!("@{}", outer.display()).into()]).unwrap_err();
        assert!(error.to_string().contains("too large together"), "{error}");
    }

    #[test]
    fn a_file_that_includes_itself_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("loop");
        std::fs::write(&file, format!("a @{}", file.display())).unwrap();
        let error = expand(vec![format!("@{}", file.display()).into()]).unwrap_err();
        assert!(error.to_string().contains("includes itself"), "{error}");
    }
}
