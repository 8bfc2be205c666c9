//! Read-only memory maps of input files. Here because mapping a file is `unsafe` in Rust, and this is the one crate that may say so.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::crash::NamedMap;

/// Up to this size reading a file costs less than mapping it, with the page fault and the unmapping that come with a map.
const SMALL: u64 = 32 << 10;

/// The bytes of an input file, mapped where the system can map it, read into memory where it cannot (pipes, empty files). Clones share them.
#[derive(Debug, Clone)]
pub struct MappedFile(Arc<Contents>);

#[derive(Debug)]
struct Contents {
    bytes: Bytes,
    /// Where the bytes came from, if that was a regular file.
    origin: Option<(PathBuf, Stamp)>,
}

/// What tells whether a file is still the one that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    place: (u64, u64),
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp { place: (metadata.dev(), metadata.ino()), size: metadata.size(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

#[derive(Debug)]
enum Bytes {
    Mapped {
        /// First, so that it is forgotten before the map ends.
        _name: Option<NamedMap>,
        map: memmap2::Mmap,
    },
    Owned(Vec<u8>),
}

impl MappedFile {
    /// Opens and maps `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is a directory.
    pub fn open(path: &Path) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        MappedFile::of(path, file, &metadata)
    }

    /// Maps a file that has just been opened at `path`.
    ///
    /// # Errors
    /// As [`MappedFile::open`].
    pub fn of(path: &Path, mut file: File, metadata: &Metadata) -> io::Result<MappedFile> {
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let origin = metadata.is_file().then(|| (path.to_owned(), Stamp::of(metadata)));
        let length = usize::try_from(metadata.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        if metadata.is_file() && metadata.len() > SMALL {
            // SAFETY: the map is private and read-only. A file that another process truncates while we read it raises SIGBUS, as it
            // does for every linker that maps its inputs; the crash handler knows the map by name. Nothing in this process writes to
            // inputs.
            if let Ok(map) = unsafe { memmap2::MmapOptions::new().len(length).map(&file) } {
                return Ok(MappedFile::new(Bytes::Mapped { _name: NamedMap::new(&map, path), map }, origin));
            }
        }
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match io::Read::read(&mut file, &mut bytes[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        bytes.truncate(filled);
        if !metadata.is_file() {
            io::Read::read_to_end(&mut file, &mut bytes)?;
        }
        Ok(MappedFile::new(Bytes::Owned(bytes), origin))
    }

    /// Wraps bytes that never were a file of their own (a member that had to be copied, a test's input).
    pub fn from_vec(bytes: Vec<u8>) -> MappedFile {
        MappedFile::new(Bytes::Owned(bytes), None)
    }

    fn new(bytes: Bytes, origin: Option<(PathBuf, Stamp)>) -> MappedFile {
        MappedFile(Arc::new(Contents { bytes, origin }))
    }

    /// The file's path, and in words what has become of it since it was opened; `None` if it is the same as it was then.
    pub fn change(&self) -> Option<(&Path, &'static str)> {
        let (path, before) = self.0.origin.as_ref()?;
        let what = match std::fs::metadata(path).map(|metadata| Stamp::of(&metadata)) {
            Err(_) => "has vanished",
            Ok(now) if now == *before => return None,
            Ok(now) if now.place != before.place => "was replaced by another file",
            Ok(_) => "was changed",
        };
        Some((path, what))
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0.bytes {
            Bytes::Mapped { map, .. } => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}
