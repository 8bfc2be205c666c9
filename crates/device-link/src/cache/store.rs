//! The directory that entries lie in, and how many processes use it at once without a lock.
//!
//! ```text
//! warplink/            named by the user or made by us; only its owner's is used
//!   CACHEDIR.TAG       tells backup programs to leave it out
//!   v1/                0700
//!     link/3f/9c...    an entry: kind, first byte of its key, the rest of it
//!     ptxas/...        (and so on)
//!     tmp/             entries that are being written
//!     counts/          one file per kind and outcome, as long as its count
//!   removed-...        what `clear` has taken away and is removing
//! ```
//!
//! An entry is written under a temporary name and renamed, so that it is there whole or not at all; who reads one that is being removed has
//! it open already. Nothing is ever locked, so a killed process leaves at most a file in `tmp/`, which the next tidying removes. What is
//! wrong with the disk (full, read-only, gone) is no error of the link: an entry that cannot be read is a miss, one that cannot be written is
//! not kept.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::key::{Key, Kind};
use crate::error::io_text;
use crate::temps::{NewFile, is_ours};

/// Directory of this layout; another layout would get another name beside it.
const LAYOUT: &str = "v1";
/// What `clear` renames [`LAYOUT`] to.
const REMOVED: &str = "removed-";
/// By <https://bford.info/cachedir/>.
const TAG: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n# This directory is warplink's cache. It may be removed at any time.\n";
/// An entry that was used within this time need not be marked as used again.
const RECENTLY: Duration = Duration::from_secs(60);
/// A temporary file that old belongs to a process that was killed.
const STALE: Duration = Duration::from_secs(3600);
/// Tidying happens once in so many parts of the limit written.
const PARTS: u64 = 64;
/// Tidying leaves this much of the limit, in percent, so that it is not needed again at once.
const KEPT: u64 = 90;

/// A directory that can be used.
#[derive(Debug)]
pub(super) struct Store {
    root: PathBuf,
}

/// A file of the store, as tidying and statistics see it.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) kind: Kind,
    pub(super) size: u64,
    used: SystemTime,
    path: PathBuf,
}

/// Why an entry could not be had.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// There is none.
    Missing,
    /// Something else lies in its place.
    Foreign(&'static str),
}

/// Why a directory is no store.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// Another user could change what is in it.
    Foreign(String),
    /// It cannot be read or written.
    Broken(String),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unusable::Foreign(why) | Unusable::Broken(why) => f.write_str(why),
        }
    }
}

impl Store {
    /// The store in `root`, made if it is not there.
    ///
    /// # Errors
    /// Why it cannot be used, in words.
    pub(super) fn open(root: &Path) -> Result<Store, Unusable> {
        let store = Store { root: root.to_owned() };
        let named = |error: std::io::Error| Unusable::Broken(format!("{}: {}", root.display(), io_text(&error)));
        match std::fs::symlink_metadata(root) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(named)?;
                // A cache without the tag is as good.
                let _ = std::fs::write(root.join("CACHEDIR.TAG"), TAG);
            }
            Err(error) => return Err(named(error)),
            // A link that the user made leads to where the user wants the cache; nobody else's does.
            Ok(metadata) if metadata.is_symlink() && !is_ours(&metadata) => {
                return Err(Unusable::Foreign(format!("{}: is a symbolic link of another user", root.display())));
            }
            Ok(_) => {}
        }
        usable(root, &std::fs::metadata(root).map_err(named)?)?;
        let layout = store.layout();
        match std::fs::symlink_metadata(&layout) {
            Err(error) if error.kind() == ErrorKind::NotFound => make_directory(&layout).map_err(named)?,
            Err(error) => return Err(named(error)),
            Ok(metadata) => {
                usable(&layout, &metadata)?;
                // Unpacked from an archive, for instance. Entries are checked for their owner all the same.
                if metadata.mode() & 0o077 != 0 {
                    let _ = std::fs::set_permissions(&layout, std::fs::Permissions::from_mode(0o700));
                }
            }
        }
        Ok(store)
    }

    /// The directory that the user knows.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn layout(&self) -> PathBuf {
        self.root.join(LAYOUT)
    }

    /// Where an entry lies.
    pub(super) fn path(&self, kind: Kind, key: &Key) -> PathBuf {
        let name = key.to_string();
        let (shard, rest) = name.split_at_checked(2).unwrap_or_default();
        self.layout().join(kind.name()).join(shard).join(rest)
    }

    /// The bytes of an entry, which is marked as used.
    pub(super) fn read(&self, kind: Kind, key: &Key) -> Result<Vec<u8>, Unread> {
        let path = self.path(kind, key);
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
        let mut file = match OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(&path) {
            Ok(file) => file,
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Err(Unread::Foreign("it is a symbolic link"));
            }
            Err(_) => return Err(Unread::Missing),
        };
        let metadata = file.metadata().map_err(|_| Unread::Missing)?;
        if !metadata.is_file() {
            return Err(Unread::Foreign("it is no file"));
        }
        if !is_ours(&metadata) {
            return Err(Unread::Foreign("it belongs to another user"));
        }
        let mut bytes = Vec::with_capacity(metadata.len().try_into().unwrap_or_default());
        file.read_to_end(&mut bytes).map_err(|_| Unread::Missing)?;
        let now = SystemTime::now();
        if metadata.modified().is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age > RECENTLY)) {
            // On a read-only disk nothing is removed either, so that the mark is not missed.
            let _ = file.set_modified(now);
        }
        Ok(bytes)
    }

    /// Stores an entry. False where that was not possible.
    pub(super) fn write(&self, kind: Kind, key: &Key, bytes: &[u8]) -> bool {
        let path = self.path(kind, key);
        self.try_write(&path, bytes).is_ok()
    }

    fn try_write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        let temporary = self.layout().join("tmp");
        let new = || NewFile::new(&temporary, "entry-", 0o600);
        let mut file = match new() {
            // First use, or `clear` was here a moment ago.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make_directory(&temporary)?;
                new()?
            }
            file => file?,
        };
        file.file().write_all(bytes)?;
        match file.rename(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make_directory(path.parent().unwrap_or(path))?;
                file.rename(path)
            }
            written => written,
        }
    }

    /// Removes an entry. False where it is still there.
    pub(super) fn remove(&self, kind: Kind, key: &Key) -> bool {
        let path = self.path(kind, key);
        match std::fs::remove_file(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            // Somebody's directory in an entry's place stays in nobody's way once it is empty.
            Err(_) => std::fs::remove_dir(&path).is_ok(),
        }
    }

    /// All entries.
    pub(super) fn entries(&self) -> Vec<Stored> {
        let mut entries = Vec::new();
        for kind in Kind::ALL {
            for shard in files_in(&self.layout().join(kind.name())) {
                for path in files_in(&shard) {
                    // Gone is gone: another process tidies as well.
                    let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
                    let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    entries.push(Stored { kind, size: metadata.len(), used, path });
                }
            }
        }
        entries
    }

    /// The keys of all entries of a kind.
    pub(super) fn keys(&self, kind: Kind) -> Vec<Key> {
        let name = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        let mut keys = Vec::new();
        for shard in files_in(&self.layout().join(kind.name())) {
            for entry in files_in(&shard) {
                let digits = name(shard.clone()).zip(name(entry)).map(|(shard, rest)| shard + &rest);
                keys.extend(digits.and_then(|digits| blake3::Hash::from_hex(digits).ok()).map(|hash| Key::from_bytes(*hash.as_bytes())));
            }
        }
        keys
    }

    /// Tidies now and then, on the whole once for every [`PARTS`]th of the limit that is written: no state is needed for that, and what
    /// it costs is in proportion to what was made. `chance` is any number that is as good as random.
    pub(super) fn tidy_sometimes(&self, written: u64, limit: u64, chance: u64) {
        let part = (limit / PARTS).max(1);
        if chance % part < written {
            self.tidy(limit);
        }
    }

    /// Removes the entries that were not used for the longest time until the others are well below the limit.
    pub(super) fn tidy(&self, limit: u64) {
        let mut entries = self.entries();
        let mut total: u64 = entries.iter().map(|entry| entry.size).sum();
        if total > limit {
            entries.sort_by_key(|entry| entry.used);
            let target = limit / 100 * KEPT;
            for entry in entries {
                if total <= target {
                    break;
                }
                // What somebody else has removed is gone as well; what cannot be removed is none of the total that can shrink.
                let _ = std::fs::remove_file(&entry.path);
                total = total.saturating_sub(entry.size);
            }
        }
        let old = SystemTime::now().checked_sub(STALE);
        for path in files_in(&self.layout().join("tmp")) {
            let used = std::fs::symlink_metadata(&path).and_then(|metadata| metadata.modified()).ok();
            if used < old {
                let _ = std::fs::remove_file(&path);
            }
        }
        self.remove_leftovers();
    }

    /// Removes everything. Processes that are at work make what they need anew.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(super) fn clear(&self) -> std::io::Result<()> {
        let unique = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let removed = self.root.join(format!("{REMOVED}{}-{unique}", std::process::id()));
        match std::fs::rename(self.layout(), &removed) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Who has just looked up a directory may still put a file into it.
        let mut result = Ok(());
        for _ in 0..10 {
            result = std::fs::remove_dir_all(&removed);
            match &result {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                _ => break,
            }
        }
        self.remove_leftovers();
        result
    }

    /// What a `clear` that was killed has left.
    fn remove_leftovers(&self) {
        for path in files_in(&self.root) {
            let is_leftover = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(REMOVED.as_bytes()));
            if is_leftover && std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir() && is_ours(&metadata)) {
                let _ = std::fs::remove_dir_all(&path);
            }
        }
    }

    /// Adds to a count. It is the length of a file, so that processes need not agree on a number.
    pub(super) fn count(&self, name: &str, more: usize) {
        let path = self.layout().join("counts").join(name);
        let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let file = open().or_else(|error| match error.kind() {
            ErrorKind::NotFound => make_directory(path.parent().unwrap_or(&path)).and_then(|()| open()),
            _ => Err(error),
        });
        // A count that is one short hurts nobody.
        let _ = file.and_then(|mut file: File| file.write_all(&vec![b'.'; more]));
    }

    /// What has been counted.
    pub(super) fn counted(&self, name: &str) -> u64 {
        std::fs::metadata(self.layout().join("counts").join(name)).map_or(0, |metadata| metadata.len())
    }
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    names.into_iter().map(|name| directory.join(name)).collect()
}

fn make_directory(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn usable(path: &Path, metadata: &std::fs::Metadata) -> Result<(), Unusable> {
    match (metadata.is_dir(), is_ours(metadata)) {
        (_, false) => Err(Unusable::Foreign(format!("{}: belongs to another user", path.display()))),
        (false, _) => Err(Unusable::Broken(format!("{}: is no directory", path.display()))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn key(n: u64) -> Key {
        Key::of(&n.to_le_bytes())
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn it_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("a/b")).unwrap();
        assert!(store.write(Kind::Link, &key(1), b"entry"));
        store.count("link.hits", 3);
        let entry = store.path(Kind::Link, &key(1));
        assert_eq!(store.read(Kind::Link, &key(1)).unwrap(), b"entry");
        assert_eq!((store.keys(Kind::Link), store.keys(Kind::Code)), (vec![key(1)], vec![]));
        assert_eq!(store.counted("link.hits"), 3);
        assert_eq!(mode(&entry), 0o600);
        for path in
            entry.ancestors().skip(1).take(5).map(Path::to_owned).chain([dir.path().join("a/b/v1/tmp"), dir.path().join("a/b/v1/counts")])
        {
            assert_eq!(mode(&path), 0o700, "{}", path.display());
        }
        assert_eq!(mode(&dir.path().join("a/b/v1/counts/link.hits")), 0o600);
        assert!(files_in(&dir.path().join("a/b/v1/tmp")).is_empty());
        assert!(std::fs::read(dir.path().join("a/b/CACHEDIR.TAG")).unwrap().starts_with(b"Signature: 8a477f597d28d172789f06886806bc55"));
    }

    #[test]
    fn a_directory_that_others_may_enter_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("cache");
        std::fs::create_dir_all(root.join("v1")).unwrap();
        std::fs::set_permissions(root.join("v1"), std::fs::Permissions::from_mode(0o777)).unwrap();
        Store::open(&root).unwrap();
        assert_eq!(mode(&root.join("v1")), 0o700);
    }

    #[test]
    fn links_are_followed_only_where_the_user_made_them() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        let store = Store::open(&link).unwrap();
        assert!(store.write(Kind::Link, &key(1), b"entry"));
        assert!(real.join("v1/link").is_dir());
        // An entry is never a link, and neither is the directory of entries.
        let entry = store.path(Kind::Link, &key(1));
        std::fs::rename(&entry, dir.path().join("elsewhere")).unwrap();
        symlink(dir.path().join("elsewhere"), &entry).unwrap();
        assert_eq!(store.read(Kind::Link, &key(1)), Err(Unread::Foreign("it is a symbolic link")));
        assert!(store.remove(Kind::Link, &key(1)));
        assert!(dir.path().join("elsewhere").exists());
        std::fs::rename(real.join("v1"), dir.path().join("v1")).unwrap();
        symlink(dir.path().join("v1"), real.join("v1")).unwrap();
        assert!(Store::open(&link).unwrap_err().to_string().ends_with("is no directory"));
    }

    #[test]
    fn what_belongs_to_another_user_is_not_used() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give files away");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("cache");
        let store = Store::open(&root).unwrap();
        assert!(store.write(Kind::Link, &key(1), b"entry"));
        std::os::unix::fs::chown(store.path(Kind::Link, &key(1)), Some(65534), None).unwrap();
        assert_eq!(store.read(Kind::Link, &key(1)), Err(Unread::Foreign("it belongs to another user")));
        std::os::unix::fs::chown(root.join("v1"), Some(65534), None).unwrap();
        assert!(Store::open(&root).unwrap_err().to_string().ends_with("belongs to another user"));
        std::os::unix::fs::chown(root.join("v1"), Some(0), None).unwrap();
        std::os::unix::fs::chown(&root, Some(65534), None).unwrap();
        assert!(Store::open(&root).unwrap_err().to_string().ends_with("belongs to another user"));
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        assert!(Store::open(&link).unwrap_err().to_string().ends_with("is a symbolic link of another user"));
    }

    #[test]
    fn what_is_no_file_is_no_entry() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        std::fs::create_dir_all(store.path(Kind::Link, &key(1))).unwrap();
        assert_eq!(store.read(Kind::Link, &key(1)), Err(Unread::Foreign("it is no file")));
        assert!(!store.write(Kind::Link, &key(1), b"entry"));
        assert!(store.remove(Kind::Link, &key(1)));
        assert!(store.write(Kind::Link, &key(1), b"entry"));
    }

    #[test]
    fn a_place_that_cannot_be_used_says_why() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        for (root, why) in [("file", "is no directory"), ("file/below", "not a directory")] {
            let error = Store::open(&dir.path().join(root)).unwrap_err().to_string();
            assert!(error.starts_with(&dir.path().join(root).display().to_string()) && error.ends_with(why), "{error}");
        }
    }

    fn age(store: &Store, n: u64, seconds: u64) {
        let file = OpenOptions::new().write(true).open(store.path(Kind::Link, &key(n))).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        for n in 0..10 {
            assert!(store.write(Kind::Link, &key(n), &[0; 1000]));
            age(&store, n, 10_000 - n);
        }
        // Use makes it young.
        store.read(Kind::Link, &key(0)).unwrap();
        store.tidy(10_000);
        assert_eq!(store.entries().len(), 10);
        store.tidy(5_000);
        let left: Vec<u64> = (0..10).filter(|&n| store.read(Kind::Link, &key(n)).is_ok()).collect();
        assert_eq!(left, [0, 7, 8, 9]);
    }

    #[test]
    fn tidying_comes_often_enough() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let limit = 64_000;
        let mut most = 0;
        for n in 0..2_000_u64 {
            assert!(store.write(Kind::Link, &key(n), &[0; 100]));
            let chance = key(n).bytes().iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte));
            store.tidy_sometimes(100, limit, chance);
            if n % 20 == 0 {
                most = most.max(store.entries().iter().map(|entry| entry.size).sum::<u64>());
            }
        }
        assert!(most > limit / 2 && most < limit + limit / 4, "{most}");
    }

    #[test]
    fn stale_files_of_killed_processes_go() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert!(store.write(Kind::Link, &key(1), b"entry"));
        let (stale, young) = (dir.path().join("v1/tmp/entry-old"), dir.path().join("v1/tmp/entry-young"));
        std::fs::write(&young, "").unwrap();
        File::create(&stale).unwrap().set_modified(SystemTime::now() - 2 * STALE).unwrap();
        std::fs::create_dir_all(dir.path().join("removed-1-2/link")).unwrap();
        std::fs::create_dir_all(dir.path().join("mine")).unwrap();
        store.tidy(1000);
        assert!(!stale.exists() && young.exists());
        assert!(!dir.path().join("removed-1-2").exists() && dir.path().join("mine").exists());
    }

    #[test]
    fn clear_takes_only_what_is_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("notes"), "").unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert!(store.write(Kind::Link, &key(1), b"entry"));
        store.clear().unwrap();
        assert_eq!(files_in(dir.path()), [dir.path().join("notes")]);
        store.clear().unwrap();
        assert_eq!(store.read(Kind::Link, &key(1)), Err(Unread::Missing));
        assert!(store.write(Kind::Link, &key(1), b"entry"));
        assert_eq!(store.read(Kind::Link, &key(1)).unwrap(), b"entry");
    }

    #[test]
    fn many_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let contents = |n: u64| -> Vec<u8> { key(n).bytes().repeat(64) };
        std::thread::scope(|scope| {
            for thread in 0..6_u64 {
                scope.spawn(move || {
                    // Each as a process of its own would.
                    let store = Store::open(root).unwrap();
                    for round in 0..150 {
                        let n = (round * 7 + thread) % 40;
                        match (round + thread) % 50 {
                            0 => store.tidy(30_000),
                            25 if thread == 0 => store.clear().unwrap(),
                            _ => {}
                        }
                        if let Ok(bytes) = store.read(Kind::Link, &key(n)) {
                            assert!(bytes == contents(n), "{n}");
                        }
                        store.write(Kind::Link, &key(n), &contents(n));
                        store.count("link.hits", 1);
                    }
                });
            }
        });
        let store = Store::open(dir.path()).unwrap();
        assert!(store.write(Kind::Link, &key(1), &contents(1)));
        assert!(files_in(&dir.path().join("v1/tmp")).is_empty());
        store.tidy(30_000);
        assert!(store.entries().iter().map(|entry| entry.size).sum::<u64>() <= 30_000);
    }
}
