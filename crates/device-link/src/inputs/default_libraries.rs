//! Libraries that nobody puts on the line of link.exe or lld-link: objects name them in their section `.drectve`
//! (`#pragma comment(lib, "name")`), and `/defaultlib:` on the line. They are searched after everything else.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use offload_object::{Archive, FileKind, HostObject};

use super::{Loader, Place};
use crate::error::Result;
use crate::options::{HostCommand, ItemState};

/// The section with an object's own options.
const DIRECTIVES: &str = ".drectve";

impl Loader {
    /// Adds the default libraries that are found; those that they name in turn come after them.
    pub(super) fn default_libraries(&mut self, host: &HostCommand) -> Result<()> {
        let words: Vec<String> = host.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let of_line = |name: &str| words.iter().filter_map(|word| option(word, name)).collect::<Vec<_>>();
        let excluded: HashSet<String> = of_line("nodefaultlib").into_iter().map(library_key).collect();
        if excluded.contains("") {
            return Ok(());
        }
        let mut seen = excluded;
        let mut names: Vec<(String, Option<PathBuf>)> = of_line("defaultlib").into_iter().map(|name| (name.to_owned(), None)).collect();
        let mut read = 0;
        loop {
            for file in self.files.iter().skip(read) {
                names.extend(named_by(file.kind, &file.data).into_iter().map(|name| (name, Some(file.path.clone()))));
            }
            read = self.files.len();
            for (name, via) in std::mem::take(&mut names) {
                if !seen.insert(library_key(&name)) {
                    continue;
                }
                let place = Place { position: host.argv.len(), state: ItemState::default(), via, depth: 0 };
                let path = with_extension(&name);
                match self.open(&path)? {
                    Some(data) => self.add(path, data, &place)?,
                    None => self.coff_library(&path, &place)?,
                }
            }
            if read == self.files.len() {
                return Ok(());
            }
        }
    }
}

/// The value of `/name:value` in any case and with either dash, empty where there is none.
fn option<'w>(word: &'w str, name: &str) -> Option<&'w str> {
    let body = word.strip_prefix(['/', '-'])?;
    let (head, value) = body.split_once(':').unwrap_or((body, ""));
    head.eq_ignore_ascii_case(name).then_some(value)
}

/// Libraries that an object, or the objects of an archive, name. What cannot be read names none: the host linker will say so.
fn named_by(kind: FileKind, data: &[u8]) -> Vec<String> {
    let of_object = |data: &[u8]| -> Vec<String> {
        let directives = HostObject::parse(data).ok().and_then(|object| object.section_named(DIRECTIVES)).unwrap_or_default();
        words(&String::from_utf8_lossy(directives)).iter().filter_map(|word| option(word, "defaultlib")).map(str::to_owned).collect()
    };
    match kind {
        FileKind::Coff => of_object(data),
        FileKind::Archive => {
            let Ok(archive) = Archive::parse(data) else { return Vec::new() };
            archive.members().flatten().filter_map(|member| member.data).flat_map(of_object).collect()
        }
        _ => Vec::new(),
    }
}

/// The words of a directive section: blanks separate them, except between quotes, which are no part of a word.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' | '\t' | '\r' | '\n' | '\0' if !quoted => words.push(String::new()),
            _ => words.iter_mut().next_back().into_iter().for_each(|word| word.push(c)),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn with_extension(name: &str) -> PathBuf {
    let path = Path::new(name);
    if path.extension().is_none() && !name.is_empty() { path.with_extension("lib") } else { path.to_owned() }
}

/// One library is one, whatever the case and with or without its extension.
fn library_key(name: &str) -> String {
    with_extension(name).to_string_lossy().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_words_and_options() {
        let text = " /DEFAULTLIB:\"my libs/part\" -defaultlib:uuid.lib\0/EXPORT:f /FAILIFMISMATCH:\"a=b\"";
        let words = words(text);
        assert_eq!(words, ["/DEFAULTLIB:my libs/part", "-defaultlib:uuid.lib", "/EXPORT:f", "/FAILIFMISMATCH:a=b"]);
        let libraries: Vec<&str> = words.iter().filter_map(|word| option(word, "defaultlib")).collect();
        assert_eq!(libraries, ["my libs/part", "uuid.lib"]);
        assert_eq!(option("/NoDefaultLib", "nodefaultlib"), Some(""));
        assert_eq!(option("nodefaultlib", "nodefaultlib"), None);
        assert_eq!(library_key("LIBCMT"), library_key("libcmt.lib"));
    }
}
