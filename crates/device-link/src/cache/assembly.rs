//! ptxas's answers: the same text assembled by the same ptxas with the same arguments is the same cubin.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fatbin::ptx::Version;

use super::{Cache, Fields, Hash, Key, Kind};

/// Everything that a cubin depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssemblyKey<'k> {
    /// The identity of ptxas.
    pub ptxas: Hash,
    /// Its arguments, the names of input and output left out.
    pub arguments: &'k [OsString],
    /// The PTX, with the version that is tried first.
    pub text: &'k [u8],
}

impl AssemblyKey<'_> {
    /// The key.
    pub fn key(&self) -> Key {
        let AssemblyKey { ptxas, arguments, text } = self;
        let mut fields = Fields::new(Kind::Assembly);
        fields.hash("ptxas", "ptxas", *ptxas).value("arguments", arguments).bytes("PTX", text);
        fields.key()
    }
}

/// What ptxas made of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembled {
    /// The cubin.
    pub cubin: Vec<u8>,
    /// The version that the text had to be raised to.
    pub raised: Option<Version>,
    /// What ptxas printed.
    pub output: String,
}

/// One text for ptxas.
pub struct Assembly<'c> {
    cache: &'c Cache<'c>,
    key: Key,
}

impl<'c> Assembly<'c> {
    /// None where the cache is off, or does not know what the arguments depend on or do.
    pub fn new(cache: &'c Cache<'c>, ptxas: &Path, arguments: &[OsString], text: &[u8]) -> Option<Assembly<'c>> {
        if arguments.iter().any(|argument| is_about_files(argument)) {
            cache.spoil();
            return None;
        }
        let key = AssemblyKey { ptxas: cache.tool(ptxas)?, arguments, text }.key();
        Some(Assembly { cache, key })
    }

    /// What was made before.
    pub fn known(&self) -> Option<Assembled> {
        let mut entry = self.cache.get(Kind::Assembly, &self.key)?;
        let text = |section: &[u8]| String::from_utf8(section.to_vec()).ok();
        let raised = match text(entry.section(1))?.as_str() {
            "" => None,
            version => Some(version.parse().ok()?),
        };
        Some(Assembled { raised, output: text(entry.section(2))?, cubin: entry.take(0) })
            .filter(|assembled| fatbin::cubin::Cubin::is_cubin(&assembled.cubin))
    }

    /// Keeps what has been made.
    pub fn keep(&self, cubin: &[u8], raised: Option<Version>, output: &str) {
        let raised = raised.map(|version| version.to_string()).unwrap_or_default();
        self.cache.put(Kind::Assembly, &self.key, &[cubin, raised.as_bytes(), output.as_bytes()], &[]);
    }
}

/// Whether an argument of ptxas names a file that it reads or writes beside its input and output, or makes it do something else than
/// assemble.
pub(super) fn is_about_files(argument: &OsStr) -> bool {
    let bytes = argument.as_bytes();
    let name = bytes.split(|&byte| byte == b'=').next().unwrap_or_default();
    let Some(dashes) = name.iter().position(|&byte| byte != b'-') else { return false };
    let name = name.get(dashes..).unwrap_or_default();
    let about_files: [&[u8]; 10] =
        [b"optf", b"options-file", b"o", b"output-file", b"h", b"help", b"V", b"version", b"version-ls", b"list-version"];
    // Time traces and dumps have no stable names.
    let writes = [b"time-trace".as_slice(), b"dump"].iter().any(|word| name.windows(word.len()).any(|window| window == *word));
    bytes.starts_with(b"@") || dashes > 0 && (about_files.contains(&name) || writes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::{line, open};
    use crate::diagnostics::Diagnostics;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn every_field_counts() {
        let arguments = words(&["-m64", "-arch", "sm_90"]);
        let key = AssemblyKey { ptxas: Hash::of(b"13.0"), arguments: &arguments, text: b".version 7.8\n" };
        let others = [
            AssemblyKey { ptxas: Hash::of(b"13.1"), ..key.clone() },
            AssemblyKey { text: b".version 8.0\n", ..key.clone() },
            AssemblyKey { arguments: &words(&["-m64", "-arch", "sm_80"]), ..key.clone() },
            AssemblyKey { arguments: &words(&["-m64", "-arch", "sm_90", "-c"]), ..key.clone() },
            AssemblyKey { arguments: &words(&["-m64", "-archsm_90"]), ..key.clone() },
            AssemblyKey { arguments: &words(&["-arch", "sm_90", "-m64"]), ..key.clone() },
            AssemblyKey { arguments: &[], ..key.clone() },
        ]
        .map(|other| other.key());
        let different: std::collections::BTreeSet<_> = others.into_iter().chain([key.key()]).collect();
        assert_eq!(different.len(), 8);
        assert_eq!(key.key(), key.clone().key());
    }

    #[test]
    fn arguments_that_name_files_are_left_to_ptxas() {
        for (argument, expected) in [
            ("-optf", true),
            ("--options-file=more", true),
            ("-o", true),
            ("-o=x", true),
            ("@args", true),
            ("--version", true),
            ("-V", true),
            ("--fdevice-time-trace", true),
            ("-O3", false),
            ("-v", false),
            ("--maxrregcount=32", false),
            ("-opt-fp-atomics", false),
            ("32", false),
            ("o", false),
            ("--", false),
            ("", false),
        ] {
            assert_eq!(is_about_files(OsStr::new(argument)), expected, "{argument}");
        }
    }

    #[test]
    fn what_was_kept_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = line(&[], &[]);
        options.cache.dir = Some(dir.path().join("c"));
        let diagnostics = Diagnostics::new(&options);
        let cache = open(&options, &diagnostics);
        let tool = std::env::current_exe().unwrap();
        let make = |text: &[u8]| Assembly::new(&cache, &tool, &words(&["-m64"]), text).unwrap();
        assert_eq!(make(b"text").known(), None);
        let mut cubin = vec![0x7f, b'E', b'L', b'F'];
        cubin.resize(64, 0);
        cubin[4] = 2;
        cubin[18] = 190;
        for (text, raised) in [(b"one", None), (b"two", Some(Version { major: 8, minor: 7 }))] {
            make(text).keep(&cubin, raised, "ptxas warning");
            assert_eq!(make(text).known(), Some(Assembled { cubin: cubin.clone(), raised, output: "ptxas warning".to_owned() }));
        }
        // What is no cubin does not become one by lying in the cache.
        make(b"text").keep(b"no cubin", None, "");
        assert_eq!(make(b"text").known(), None);
        assert!(Assembly::new(&cache, &tool, &words(&["-optf", "file"]), b"text").is_none());
        assert!(Assembly::new(&Cache::off(&diagnostics), &tool, &[], b"text").is_none());
    }
}
