//! Where links keep their records for `warplink explain`: one small file for each output, in the user's cache directory. A record is a help;
//! where it cannot be written, nothing is lost and nothing is said.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{Record, SCHEMA, Stamp};
use crate::temps::{NewFile, is_ours};
use crate::toolchain::Env;

/// Records that are kept; when there are more, the oldest quarter goes.
const MOST: usize = 256;

/// A record larger than this is not kept: a program of that size is linked rarely, and a report of it can be asked for.
const LARGEST: usize = 32 << 20;

/// The directory of records, in the cache directory of XDG's rules. None where there is no cache directory, or the cache is turned off.
pub fn directory(env: Env) -> Option<PathBuf> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    if set("WARPLINK_NO_CACHE").is_some() {
        return None;
    }
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")))?;
    cache.is_absolute().then(|| cache.join("warplink/records"))
}

/// What a file is now.
pub fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some(Stamp { size: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) })
}

fn file(directory: &Path, output: &Path) -> Option<PathBuf> {
    let output = output.canonicalize().ok()?;
    Some(directory.join(format!("{:016x}.json", crate::content_hash(output.as_os_str().as_encoded_bytes()))))
}

/// Keeps the record of a link whose output is there.
pub fn keep(directory: &Path, output: &Path, record: &Record) -> Option<()> {
    let path = file(directory, output)?;
    let bytes = serde_json::to_vec(record).ok().filter(|bytes| bytes.len() <= LARGEST)?;
    let create = || NewFile::new(directory, ".record-", 0o600);
    // The directory is there but for the first time. Another user's is not used.
    let mut new = match create() {
        Err(_) => {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).ok()?;
            create().ok()?
        }
        Ok(new) => new,
    };
    std::fs::symlink_metadata(directory).ok().filter(is_ours)?;
    new.file().write_all(&bytes).ok()?;
    let known = path.exists();
    new.rename(&path).ok()?;
    if !known {
        thin_out(directory);
    }
    Some(())
}

/// Removes the oldest records when there are too many.
fn thin_out(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    if paths.len() <= MOST {
        return;
    }
    let mut aged: Vec<_> = paths.into_iter().map(|path| (std::fs::metadata(&path).and_then(|data| data.modified()).ok(), path)).collect();
    aged.sort();
    for (_, path) in aged.iter().take(aged.len().saturating_sub(MOST - MOST / 4)) {
        // Another link may be removing it as well.
        let _ = std::fs::remove_file(path);
    }
}

/// The record of the link that made `output`, and whether the file is still what that link made. None where there is no record, or one that
/// this program cannot read.
pub fn find(directory: &Path, output: &Path) -> Option<(Record, bool)> {
    std::fs::symlink_metadata(directory).ok().filter(is_ours)?;
    let record = read(&std::fs::read(file(directory, output)?).ok()?)?;
    let same = record.stamp.is_some() && record.stamp == stamp(output);
    Some((record, same))
}

/// A record from its file.
pub(crate) fn read(bytes: &[u8]) -> Option<Record> {
    let record: Record = serde_json::from_slice(bytes).ok()?;
    (record.schema == SCHEMA).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn records_come_back_and_know_their_file() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("a/records");
        let output = home.path().join("app");
        std::fs::write(&output, "1").unwrap();
        assert_eq!(find(&directory, &output), None);
        let record = Record { schema: SCHEMA, output: "app".to_owned(), stamp: stamp(&output), ..Record::default() };
        keep(&directory, &output, &record).unwrap();
        assert_eq!(find(&directory, &output), Some((record.clone(), true)));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&file(&directory, &output).unwrap())), (0o700, 0o600));
        std::fs::write(&output, "22").unwrap();
        assert_eq!(find(&directory, &output), Some((record.clone(), false)));
        // Of another version, or damaged.
        keep(&directory, &output, &Record { schema: SCHEMA + 1, ..record }).unwrap();
        assert_eq!(find(&directory, &output), None);
        std::fs::write(file(&directory, &output).unwrap(), "{\"schema\":").unwrap();
        assert_eq!(find(&directory, &output), None);
    }

    #[test]
    fn there_are_only_so_many() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..MOST + 1 {
            let output = home.path().join(number.to_string());
            std::fs::write(&output, "").unwrap();
            keep(&home.path().join("records"), &output, &Record::default()).unwrap();
        }
        assert_eq!(std::fs::read_dir(home.path().join("records")).unwrap().count(), MOST - MOST / 4);
    }

    #[test]
    fn where_nothing_can_be_written_nothing_happens() {
        let home = tempfile::tempdir().unwrap();
        let output = home.path().join("app");
        std::fs::write(&output, "").unwrap();
        assert_eq!(keep(&output.join("records"), &output, &Record::default()), None);
        assert_eq!(keep(home.path(), &home.path().join("missing"), &Record::default()), None);
        // As root, a directory can be given away.
        if std::os::unix::fs::chown(home.path(), Some(12345), None).is_ok() {
            assert_eq!(keep(home.path(), &output, &Record::default()), None);
            assert_eq!(find(home.path(), &output), None);
            assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn the_directory_follows_the_environment() {
        let with = |set: &'static [(&str, &str)]| {
            directory(&move |name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)))
        };
        assert_eq!(with(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), Some(PathBuf::from("/c/warplink/records")));
        assert_eq!(with(&[("XDG_CACHE_HOME", ""), ("HOME", "/h")]), Some(PathBuf::from("/h/.cache/warplink/records")));
        assert_eq!(with(&[("XDG_CACHE_HOME", "relative")]), None);
        assert_eq!(with(&[("HOME", "/h"), ("WARPLINK_NO_CACHE", "1")]), None);
        assert_eq!(with(&[]), None);
    }
}
