//! Which programs and files take part: the hash of their contents, remembered for a file that has not changed since, so that tens of
//! megabytes are not hashed for every link.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use super::key::{Fields, Hash, Kind};
use super::{Cache, Key};
use crate::command::CommandLine;

/// A file that was changed so recently may be changed again without a sign of it in its times.
const SETTLED: Duration = Duration::from_secs(2);

/// What one link has found out.
#[derive(Debug, Default)]
pub(super) struct Tools(Mutex<HashMap<PathBuf, Option<Hash>>>);

impl Cache<'_> {
    /// The identity of a program; None where it cannot be read, or where the cache is off.
    ///
    /// A script may start anything: its identity is also what it answers to `--version`.
    pub fn tool(&self, path: &Path) -> Option<Hash> {
        if self.is_on() { self.identity(path, true) } else { None }
    }

    /// The identity of a file that is only read.
    pub fn contents(&self, path: &Path) -> Option<Hash> {
        if self.is_on() { self.identity(path, false) } else { None }
    }

    /// The identity of a program or file, with or without a cache.
    pub(crate) fn identity(&self, path: &Path, runs: bool) -> Option<Hash> {
        if let Some(known) = self.tools.0.lock().ok()?.get(path) {
            return *known;
        }
        let contents = self.hash_of_file(path);
        let identity = if runs && is_script(path) {
            contents.and_then(|contents| identity_of_script(path, contents, self.environment.clone()))
        } else {
            contents
        };
        self.tools.0.lock().ok()?.insert(path.to_owned(), identity);
        identity
    }

    /// The identity of what makes device code in this process: the program that runs, and the sources and LLVM that this library was built
    /// from, which the program may have loaded.
    pub fn own_identity(&self) -> Option<Hash> {
        if self.is_on() { self.identity_of_process() } else { None }
    }

    /// The same, with or without a cache.
    pub(crate) fn identity_of_process(&self) -> Option<Hash> {
        let program = self.identity(&std::env::current_exe().ok()?, true)?;
        let mut fields = Fields::new(Kind::Tool);
        fields.hash("program", "warplink", program);
        fields.value("sources", (env!("CARGO_PKG_VERSION"), env!("WARPLINK_SOURCES"), llvm_lto::llvm_version()));
        Some(fields.key())
    }

    fn hash_of_file(&self, path: &Path) -> Option<Hash> {
        let metadata = std::fs::metadata(path).ok()?;
        let key = stamp(path, &metadata);
        if let Some(entry) = self.get(Kind::Tool, &key)
            && let Ok(hash) = entry.section(0).try_into()
        {
            return Some(Hash::from_bytes(hash));
        }
        let hash = Hash::of(&llvm_lto::MappedFile::open(path).ok()?);
        let now = SystemTime::now();
        let settled = |time: Option<SystemTime>| time.is_some_and(|time| now.duration_since(time).is_ok_and(|age| age > SETTLED));
        let changed =
            u64::try_from(metadata.ctime()).ok().and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        if settled(metadata.modified().ok()) && settled(changed) {
            self.put(Kind::Tool, &key, &[hash.bytes()], &[]);
        }
        Some(hash)
    }
}

fn is_script(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_err() || magic != *b"\x7fELF"
}

fn identity_of_script(path: &Path, contents: Hash, environment: Option<Vec<(OsString, OsString)>>) -> Option<Hash> {
    let mut command = CommandLine::new(path);
    command.environment = environment;
    let answer = command.arg("--version").run_captured().ok()?;
    let mut fields = Fields::new(Kind::Tool);
    fields.hash("script", "script", contents).bytes("version", answer.output.as_bytes());
    Some(fields.key())
}

/// What changes whenever a file does.
fn stamp(path: &Path, metadata: &std::fs::Metadata) -> Key {
    let mut fields = Fields::new(Kind::Tool);
    fields.bytes("path", path.as_os_str().as_encoded_bytes());
    fields.value("file", (metadata.dev(), metadata.ino(), metadata.size()));
    fields.value("times", (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()));
    fields.key()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::cache::tests::{line, open};
    use crate::diagnostics::Diagnostics;

    /// The identity, as a link of its own finds it.
    fn identity(cache: &Path, tool: &Path) -> Option<Hash> {
        let mut options = line(&[], &[]);
        options.cache.dir = Some(cache.to_owned());
        let diagnostics = Diagnostics::new(&options);
        open(&options, &diagnostics).tool(tool)
    }

    fn elf(contents: &str) -> Vec<u8> {
        [b"\x7fELF", contents.as_bytes()].concat()
    }

    #[test]
    fn a_tool_is_known_by_its_contents() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, a, b) = (dir.path().join("c"), dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, elf("1")).unwrap();
        std::fs::write(&b, elf("1")).unwrap();
        let first = identity(&cache, &a).unwrap();
        assert_eq!(identity(&cache, &b), Some(first));
        std::fs::write(&b, elf("2")).unwrap();
        assert_ne!(identity(&cache, &b), Some(first));
        assert_eq!(identity(&cache, &dir.path().join("none")), None);
    }

    #[test]
    fn every_part_of_the_stamp_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let of = |path: &Path| stamp(path, &std::fs::metadata(path).unwrap());
        std::fs::write(&a, elf("1")).unwrap();
        let first = of(&a);
        assert_eq!(of(&a), first);
        // Another file of the same contents and times, another time, another size.
        let times = std::fs::FileTimes::new().set_modified(std::fs::metadata(&a).unwrap().modified().unwrap());
        std::fs::write(&b, elf("1")).unwrap();
        std::fs::File::open(&b).unwrap().set_times(times).unwrap();
        assert_ne!(stamp(&a, &std::fs::metadata(&b).unwrap()), first);
        assert_ne!(stamp(&b, &std::fs::metadata(&a).unwrap()), first);
        std::fs::File::open(&a).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let second = of(&a);
        assert_ne!(second, first);
        std::fs::write(&a, elf("1 and more")).unwrap();
        std::fs::File::open(&a).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_ne!(of(&a), second);
    }

    #[test]
    fn it_is_remembered_only_when_settled() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, tool) = (dir.path().join("c"), dir.path().join("tool"));
        std::fs::write(&tool, elf("1")).unwrap();
        identity(&cache, &tool).unwrap();
        assert!(!cache.join("v1/tool").exists());
        std::thread::sleep(SETTLED + Duration::from_millis(1100));
        identity(&cache, &tool).unwrap();
        assert!(cache.join("v1/tool").is_dir());
        let known = identity(&cache, &tool).unwrap();
        assert_eq!(known, Hash::of(&elf("1")));
    }

    #[test]
    fn a_script_is_what_it_says_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, tool, version) = (dir.path().join("c"), dir.path().join("tool"), dir.path().join("version"));
        std::fs::write(&tool, format!("#!/bin/sh\ncat {}\n", version.display())).unwrap();
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(&version, "13.0").unwrap();
        let first = identity(&cache, &tool).unwrap();
        assert_eq!(identity(&cache, &tool), Some(first));
        std::fs::write(&version, "13.1").unwrap();
        assert_ne!(identity(&cache, &tool), Some(first));
    }

    #[test]
    fn this_program_has_an_identity() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = line(&[], &[]);
        options.cache.dir = Some(dir.path().join("c"));
        let diagnostics = Diagnostics::new(&options);
        let cache = open(&options, &diagnostics);
        assert!(cache.own_identity().is_some());
        assert_eq!(cache.own_identity(), cache.own_identity());
        assert_eq!(Cache::off(&diagnostics).own_identity(), None);
    }
}
