//! The cache of finished device code, on by default: what was linked, generated or assembled before is taken from disk.
//!
//! | file | what |
//! |---|---|
//! | `key` | what an answer depends on: named fields, hashed |
//! | `entry` | the file format of an answer |
//! | `store` | the directory, shared by many processes without locks |
//! | `tools` | which ptxas, nvlink and warplink take part |
//! | `code` | bitcode of a part to PTX |
//! | `assembly` | PTX to cubin |
//! | `link` | the whole device link |
//! | `remote` | a store that several machines share, behind the directory |
//! | `record` | why the last link of an output was no hit |
//!
//! An answer is used only if its key is that of the question and its checksum is right; everything else is a miss. Nothing that goes wrong
//! with the cache is an error of the link.

pub mod assembly;
pub mod code;
mod entry;
#[doc(hidden)]
pub mod fuzzing;
mod key;
pub mod link;
mod record;
#[cfg(feature = "remote-cache")]
mod remote;
#[cfg(not(feature = "remote-cache"))]
#[path = "cache/no_remote.rs"]
mod remote;
mod store;
mod tools;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub use entry::{Entry, Warning};
pub use key::{Field, Fields, Hash, Key, Kind};
pub use record::Record;

use crate::diagnostics::Diagnostics;
use crate::inputs::InputFile;
use crate::options::{CacheOptions, Options};
use crate::toolchain::Env;
use crate::toolchain::cuda::Toolkit;
use remote::Remote;
use store::{Store, Unread, Unusable};

/// The limit where the user sets none.
pub const DEFAULT_LIMIT: u64 = 5 << 30;

/// The cache as one link sees it. One that is off answers no question and keeps nothing.
pub struct Cache<'a> {
    store: Option<Store>,
    remote: Option<Remote>,
    limit: u64,
    diagnostics: &'a Diagnostics,
    tools: tools::Tools,
    hits: [AtomicUsize; Kind::ALL.len()],
    misses: [AtomicUsize; Kind::ALL.len()],
    /// The disk took no entry: it will take no other.
    full: AtomicBool,
    /// See [`Cache::spoil`].
    spoiled: AtomicBool,
    /// See [`Cache::over`].
    inputs: &'a [InputFile],
    /// See [`Cache::with_tools_of`].
    environment: Option<Vec<(OsString, OsString)>>,
}

impl<'a> Cache<'a> {
    /// The cache that these options ask for. It is off where intermediate results are what the user wants to see (`--save-temps`,
    /// `--dry-run`) or all commands (clang's `-v`), and where there is no place for it.
    pub fn open(options: &Options, env: Env, diagnostics: &'a Diagnostics) -> Cache<'a> {
        let limit = options.cache.size.unwrap_or(DEFAULT_LIMIT);
        if options.cache.off || limit == 0 || options.dry_run || options.save_temps || options.all_commands {
            return Cache::off(diagnostics);
        }
        let Some(directory) = directory(&options.cache, env) else { return Cache::off(diagnostics) };
        match Store::open(&directory) {
            Ok(store) => {
                let mut cache = Cache::new(Some(store), limit, diagnostics);
                cache.remote = Remote::open(&options.cache, env).unwrap_or_else(|why| {
                    diagnostics.warn("cache-remote", &format!("the remote cache is not used: {why}"));
                    None
                });
                cache
            }
            Err(Unusable::Foreign(why)) => {
                diagnostics.warn("foreign-directory", &format!("{why}; the link goes on without a cache"));
                Cache::off(diagnostics)
            }
            Err(Unusable::Broken(why)) => {
                if options.verbose {
                    diagnostics.verbose(&format!("cache: not used: {why}"));
                }
                Cache::off(diagnostics)
            }
        }
    }

    /// The same for a link of these files. What was made of one that has changed since it was opened is not kept: its name in the cache was
    /// made of other bytes.
    pub fn over(mut self, inputs: &'a [InputFile]) -> Cache<'a> {
        self.inputs = inputs;
        self
    }

    /// The same where this toolkit's tools take part: one that is a script is asked for its version as it is run.
    pub fn with_tools_of(mut self, toolkit: &Toolkit) -> Cache<'a> {
        self.environment = Some(toolkit.environment.clone());
        self
    }

    /// One that is off.
    pub fn off(diagnostics: &'a Diagnostics) -> Cache<'a> {
        Cache::new(None, 0, diagnostics)
    }

    fn new(store: Option<Store>, limit: u64, diagnostics: &'a Diagnostics) -> Cache<'a> {
        Cache {
            store,
            remote: None,
            limit,
            diagnostics,
            tools: tools::Tools::default(),
            hits: Default::default(),
            misses: Default::default(),
            full: AtomicBool::new(false),
            spoiled: AtomicBool::new(false),
            inputs: &[],
            environment: None,
        }
    }

    /// Whether it is worth to make a key.
    pub fn is_on(&self) -> bool {
        self.store.is_some()
    }

    /// The entry of this key. A damaged one is removed, with a warning, and is as good as none.
    pub fn get(&self, kind: Kind, key: &Key) -> Option<Entry> {
        let store = self.store.as_ref()?;
        let entry = match store.read(kind, key) {
            Ok(bytes) => entry::decode(&bytes, kind, key),
            Err(Unread::Foreign(why)) => Err(why),
            Err(Unread::Missing) => {
                let found = self.taken_from_afar(store, kind, key);
                self.count(kind, found.is_some());
                return found;
            }
        };
        self.count(kind, entry.is_ok());
        entry
            .map_err(|why| {
                let done = if store.remove(kind, key) { "removed" } else { "ignored" };
                let path = store.path(kind, key);
                self.diagnostics.warn("cache-damaged", &format!("{}: {why}; this entry of the cache is {done}", path.display()));
            })
            .ok()
    }

    /// The entry that a store of several machines has; from here on it is on disk.
    fn taken_from_afar(&self, store: &Store, kind: Kind, key: &Key) -> Option<Entry> {
        let remote = self.remote.as_ref().filter(|_| kind.is_counted())?;
        let bytes = match remote.get(kind, key) {
            Ok(bytes) => bytes?,
            Err(why) => {
                self.without_remote(remote, &why);
                return None;
            }
        };
        match entry::decode(&bytes, kind, key) {
            Ok(entry) => {
                if bytes.len() as u64 <= self.limit / 2 {
                    self.keep(store, kind, key, &bytes);
                }
                Some(entry)
            }
            Err(why) => {
                // Who lies once is not asked again.
                if remote.give_up() {
                    self.without_remote(remote, &format!("what it has for an entry is none: {why}"));
                }
                None
            }
        }
    }

    fn without_remote(&self, remote: &Remote, why: &str) {
        self.diagnostics.warn("cache-remote", &format!("{}: {why}; this link goes on without it", remote.shown()));
    }

    /// Keeps an entry, where the disk takes it.
    pub fn put(&self, kind: Kind, key: &Key, sections: &[&[u8]], warnings: &[Warning]) {
        let Some(store) = self.store.as_ref() else { return };
        let size: usize = sections.iter().map(|section| section.len()).sum();
        // A full disk is no reason to keep it from others.
        let wanted = self.remote.as_ref().is_some_and(Remote::is_written);
        if size as u64 > self.limit / 2 || self.full.load(Ordering::Relaxed) && !wanted {
            return;
        }
        if kind.is_of_inputs() && self.inputs.iter().any(|input| input.changes().next().is_some()) {
            return;
        }
        let bytes = entry::encode(kind, key, sections, warnings);
        self.keep(store, kind, key, &bytes);
        if let Some(remote) = self.remote.as_ref().filter(|_| kind.is_counted())
            && let Err(why) = remote.put(kind, key, &bytes)
        {
            self.without_remote(remote, &why);
        }
    }

    /// Puts an encoded entry on disk.
    fn keep(&self, store: &Store, kind: Kind, key: &Key, bytes: &[u8]) {
        if self.full.load(Ordering::Relaxed) {
            return;
        }
        if !store.write(kind, key, bytes) {
            self.full.store(true, Ordering::Relaxed);
            return;
        }
        // Keys are as good as random; the process makes it differ from run to run.
        let number = key.bytes().iter().take(8).fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
        store.tidy_sometimes(bytes.len() as u64, self.limit, number ^ u64::from(std::process::id()) << 20);
    }

    /// This link has done something that an entry for the whole of it could not do again, such as to read a file that no key covers or to
    /// print what the user asked for.
    pub fn spoil(&self) {
        self.spoiled.store(true, Ordering::Relaxed);
    }

    fn is_spoiled(&self) -> bool {
        self.spoiled.load(Ordering::Relaxed)
    }

    fn count(&self, kind: Kind, hit: bool) {
        let counts = if hit { &self.hits } else { &self.misses };
        if let Some(count) = Kind::ALL.iter().position(|&known| known == kind).and_then(|index| counts.get(index)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Cache<'_> {
    fn drop(&mut self) {
        let Some(store) = &self.store else { return };
        for ((kind, hits), misses) in Kind::ALL.iter().zip(&self.hits).zip(&self.misses).filter(|((kind, _), _)| kind.is_counted()) {
            for (outcome, count) in [("hits", hits), ("misses", misses)] {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    store.count(&format!("{}.{outcome}", kind.name()), count);
                }
            }
        }
    }
}

/// Where the cache lies: where the user says, or below the directory that the system has for caches. None without a home.
pub fn directory(options: &CacheOptions, env: Env) -> Option<PathBuf> {
    if let Some(directory) = &options.dir {
        // The process may change its directory, and a message shall say which one is meant.
        return std::path::absolute(directory).ok();
    }
    let absolute = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // Builds that shall find no home are given one that does not exist; it is not ours to make.
    let home = || absolute("HOME").filter(|home| home.is_dir()).map(|home| home.join(".cache"));
    let caches = absolute("XDG_CACHE_HOME").or_else(home)?;
    Some(caches.join("warplink"))
}

/// What the cache holds and how it was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Its directory.
    pub directory: PathBuf,
    /// The most bytes that it may hold.
    pub limit: u64,
    /// By kind, in the order of [`Kind::ALL`].
    pub kinds: BTreeMap<Kind, KindStats>,
}

impl Stats {
    /// Of a cache that no link has made yet.
    pub fn empty(directory: PathBuf, options: &CacheOptions) -> Stats {
        let kinds = Kind::ALL.into_iter().map(|kind| (kind, KindStats::default())).collect();
        Stats { directory, limit: options.size.unwrap_or(DEFAULT_LIMIT), kinds }
    }
}

/// The part of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KindStats {
    /// Number of entries.
    pub entries: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Questions that it answered, since it was last cleared.
    pub hits: u64,
    /// Questions that it could not answer.
    pub misses: u64,
}

/// The cache as the person's side sees it. It exists whether or not links use it.
#[derive(Debug)]
pub struct Inspection {
    store: Store,
    limit: u64,
}

impl Inspection {
    /// Of the cache that links here would use; None where there is no place for one or no link has made it.
    ///
    /// # Errors
    /// Why it cannot be used, in words.
    pub fn open(options: &CacheOptions, env: Env) -> Result<Option<Inspection>, String> {
        let Some(directory) = directory(options, env).filter(|directory| std::fs::symlink_metadata(directory).is_ok()) else {
            return Ok(None);
        };
        let store = Store::open(&directory).map_err(|why| why.to_string())?;
        Ok(Some(Inspection { store, limit: options.size.unwrap_or(DEFAULT_LIMIT) }))
    }

    /// Counts entries and bytes.
    pub fn stats(&self) -> Stats {
        let mut all = Stats { limit: self.limit, ..Stats::empty(self.store.root().to_owned(), &CacheOptions::default()) };
        for entry in self.store.entries() {
            let stats = all.kinds.entry(entry.kind).or_default();
            stats.entries += 1;
            stats.bytes += entry.size;
        }
        for (kind, stats) in all.kinds.iter_mut().filter(|(kind, _)| kind.is_counted()) {
            stats.hits = self.store.counted(&format!("{}.hits", kind.name()));
            stats.misses = self.store.counted(&format!("{}.misses", kind.name()));
        }
        all
    }

    /// The last device link of every output, the latest first.
    pub fn records(&self) -> Vec<Record> {
        let read = |key: &Key| {
            let entry = entry::decode(&self.store.read(Kind::Record, key).ok()?, Kind::Record, key).ok()?;
            Record::read(entry.section(0))
        };
        let mut records: Vec<Record> = self.store.keys(Kind::Record).iter().filter_map(read).collect();
        records.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.output.cmp(&b.output)));
        records
    }

    /// Removes all entries and counts.
    ///
    /// # Errors
    /// They cannot be removed.
    pub fn clear(&self) -> std::io::Result<()> {
        self.store.clear()
    }
}

#[cfg(test)]
pub(crate) mod tests;
