//! The reproducer's file: a tar archive in zstd, whose bytes depend on the names and contents of its files only. Reading trusts nothing:
//! such archives come from strangers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};

use crate::error::{Context, Error, Result, bail};
use crate::temps;

/// All files lie in this directory of the archive.
pub const TOP: &str = "repro";

/// What an archive may hold when unpacked. A link has less; a few kilobytes of zstd can hold more than a disk.
const MOST: u64 = 64 << 30;

/// Enough for speed; object files gain little from more.
const LEVEL: i32 = 3;

/// Contents of a file to be packed.
pub enum Content<'a> {
    /// Bytes at hand.
    Bytes(&'a [u8]),
    /// Bytes made for the archive.
    Owned(Vec<u8>),
}

impl Content<'_> {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Content::Bytes(bytes) => bytes,
            Content::Owned(bytes) => bytes,
        }
    }
}

/// Packs `files` (by their path below [`TOP`]) and writes the archive to `path`; a `private` one for the user alone, whatever lies there.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, files: &BTreeMap<PathBuf, Content>, private: bool) -> Result<()> {
    let failed = || format!("{}: the reproducer cannot be written", path.display());
    let mut packed = Vec::new();
    pack(&mut packed, files).context(failed)?;
    if private { temps::private_file(path, &packed) } else { temps::replace_file(path, &packed, None) }
}

fn pack(out: &mut Vec<u8>, files: &BTreeMap<PathBuf, Content>) -> std::io::Result<()> {
    let mut encoder = zstd::Encoder::new(out, LEVEL)?;
    encoder.include_checksum(true)?;
    let mut builder = tar::Builder::new(encoder);
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.bytes().len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        builder.append_data(&mut header, Path::new(TOP).join(name), content.bytes())?;
    }
    builder.into_inner()?.finish()?.flush()
}

/// Unpacks the archive at `path` below `dir`, which must be there and empty.
///
/// # Errors
/// It cannot be read or is no such archive; it holds anything but plain files below [`TOP`], a name twice, or more than a link could.
pub fn unpack(path: &Path, dir: &Path) -> Result<()> {
    let name = || path.display().to_string();
    let file = std::fs::File::open(path).context(name)?;
    unpack_from(file, dir).context(name)
}

fn unpack_from(packed: impl Read, dir: &Path) -> Result<()> {
    let damaged = || "is no reproducer, or a damaged one";
    let mut archive = tar::Archive::new(zstd::Decoder::new(packed).context(damaged)?);
    let mut left = MOST;
    let mut files = 0;
    for entry in archive.entries().context(damaged)? {
        let mut entry = entry.context(damaged)?;
        let name = entry.path().context(damaged)?.into_owned();
        if entry.header().entry_type() != tar::EntryType::Regular {
            bail!("{}: is no plain file, as everything in a reproducer is", name.display());
        }
        let inside = name.components().all(|component| matches!(component, Component::Normal(_))) && name.starts_with(TOP);
        if !inside || name.components().count() < 2 {
            bail!("{}: lies outside of the reproducer", name.display());
        }
        let size = entry.size();
        left = left.checked_sub(size).context(|| "unpacks to more than any link has")?;
        let target = dir.join(&name);
        let failed = || format!("{}: cannot be unpacked", name.display());
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).context(failed)?;
        }
        // New files only: a name that comes twice, or as a file and as a directory, is an error.
        let mut file = std::fs::File::create_new(&target).context(failed)?;
        let copied = std::io::copy(&mut entry, &mut file).context(failed)?;
        if copied != size {
            return Err(Error::new(format!("{}: is cut off", name.display())));
        }
        files += 1;
    }
    // The end of the compressed data, with its checksum, comes after the end of the archive.
    std::io::copy(&mut archive.into_inner().take(1 << 20), &mut std::io::sink()).context(damaged)?;
    if files == 0 {
        bail!("{}", damaged());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> BTreeMap<PathBuf, Content<'static>> {
        list.iter().map(|(name, text)| (PathBuf::from(name), Content::Owned(text.as_bytes().to_vec()))).collect()
    }

    /// An archive with one entry that `tar` itself would not write so.
    fn hostile(name: &[u8], kind: tar::EntryType, times: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..times {
            let mut header = tar::Header::new_gnu();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name);
            header.set_entry_type(kind);
            header.set_size(if kind == tar::EntryType::Regular { 1 } else { 0 });
            if kind == tar::EntryType::Symlink {
                header.set_link_name("/etc/passwd").unwrap();
            }
            header.set_cksum();
            bytes.extend_from_slice(header.as_bytes());
            if kind == tar::EntryType::Regular {
                bytes.extend([b'x'; 512]);
            }
        }
        bytes.extend([0; 1024]);
        zstd::encode_all(&bytes[..], 1).unwrap()
    }

    #[test]
    fn what_is_packed_comes_back_and_the_same_bytes_each_time() {
        let long = format!("root/{}/a.o", "directory/".repeat(40));
        let list = files(&[("response.txt", "a b"), ("root/x/a.o", "object"), (&long, "")]);
        let (mut one, mut two) = (Vec::new(), Vec::new());
        pack(&mut one, &list).unwrap();
        pack(&mut two, &list).unwrap();
        assert_eq!(one, two);
        let dir = tempfile::tempdir().unwrap();
        unpack_from(&one[..], dir.path()).unwrap();
        for (name, content) in &list {
            assert_eq!(std::fs::read(dir.path().join(TOP).join(name)).unwrap(), content.bytes());
        }
    }

    #[test]
    fn nothing_escapes() {
        for (name, kind, times, expected) in [
            (&b"repro/../../evil"[..], tar::EntryType::Regular, 1, "lies outside"),
            (b"/etc/evil", tar::EntryType::Regular, 1, "lies outside"),
            (b"other/evil", tar::EntryType::Regular, 1, "lies outside"),
            (b"repro", tar::EntryType::Regular, 1, "lies outside"),
            (b"repro/link", tar::EntryType::Symlink, 1, "is no plain file"),
            (b"repro/link", tar::EntryType::Link, 1, "is no plain file"),
            (b"repro/dev", tar::EntryType::Char, 1, "is no plain file"),
            (b"repro/twice", tar::EntryType::Regular, 2, "cannot be unpacked: file exists"),
        ] {
            let outer = tempfile::tempdir().unwrap();
            let dir = outer.path().join("in");
            std::fs::create_dir(&dir).unwrap();
            let error = unpack_from(&hostile(name, kind, times)[..], &dir).unwrap_err().to_string();
            assert!(error.contains(expected), "{}: {error}", String::from_utf8_lossy(name));
            assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn damage_is_an_error() {
        let mut packed = Vec::new();
        pack(&mut packed, &files(&[("response.txt", "some words that are long enough to be cut somewhere")])).unwrap();
        for length in (0..packed.len()).step_by(3) {
            let dir = tempfile::tempdir().unwrap();
            assert!(unpack_from(&packed[..length], dir.path()).is_err(), "{length}");
        }
        let mut huge = tar::Header::new_gnu();
        huge.set_path("repro/huge").unwrap();
        huge.set_size(1 << 50);
        huge.set_cksum();
        let packed = zstd::encode_all(&huge.as_bytes()[..], 1).unwrap();
        let dir = tempfile::tempdir().unwrap();
        assert!(unpack_from(&packed[..], dir.path()).unwrap_err().to_string().contains("more than any link"));
        assert!(unpack_from(&b"no zstd"[..], dir.path()).is_err());
    }
}
