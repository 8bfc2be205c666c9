//! Read-only memory maps of input files. Here because mapping a file is `unsafe` in Rust, and this is the one crate that may say so.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// Up to this size reading a file costs less than mapping it, with the page fault and the unmapping that come with a map.
const SMALL: u64 = 32 << 10;

/// The bytes of an input file, mapped where the system can map it, read into memory where it cannot (pipes, empty files).
#[derive(Debug)]
pub struct MappedFile(Bytes);

#[derive(Debug)]
enum Bytes {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl MappedFile {
    /// Opens and maps `path`.
    pub fn open(path: &Path) -> io::Result<MappedFile> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let length = usize::try_from(metadata.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        if metadata.is_file() && metadata.len() > SMALL {
            // SAFETY: the map is private and read-only. A file that another process truncates while we read it raises SIGBUS, as it
            // does for every linker that maps its inputs; nothing in this process writes to inputs.
            if let Ok(map) = unsafe { memmap2::MmapOptions::new().len(length).map(&file) } {
                return Ok(MappedFile(Bytes::Mapped(map)));
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
        Ok(MappedFile(Bytes::Owned(bytes)))
    }

    /// Wraps bytes that never were a file of their own (a member that had to be copied, a test's input).
    pub fn from_vec(bytes: Vec<u8>) -> MappedFile {
        MappedFile(Bytes::Owned(bytes))
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}
