//! Reads and writes NVIDIA fat binaries, and reads what they hold: cubins and PTX.
//!
//! A fat binary ("container") carries the same device program for several GPU architectures, as
//! machine code (cubin, an ELF file), as PTX for the driver's just-in-time compiler, or as NVVM
//! bitcode for device link-time optimization. The CUDA runtime gets it through a 24-byte wrapper
//! ([`wrapper`]), and the driver picks one image by the entry headers alone.
//!
//! NVIDIA documents none of this. The layout here comes from watching what `fatbinary` and
//! `cuobjdump` of CUDA 11.8 to 13.5 write and read, and [`write()`] gives the same bytes as
//! `fatbinary` 13.0 for stored and zstd-compressed images.
//!
//! Bytes in, structs out: nothing here opens a file, and malformed input is an [`Error`].
#![forbid(unsafe_code)]

mod arch;
mod bytes;
mod compress;
pub mod cubin;
mod format;
pub mod occupancy;
pub mod ptx;
pub mod ptx_join;
mod read;
mod spills;
pub mod wrapper;
mod write;

pub use arch::{Arch, Suffix};
pub use compress::Compression;
pub use format::{Flags, Kind, SECTION_FATBIN, SECTION_RELOCATABLE_FATBIN, SECTION_WRAPPER};
pub use read::{Container, Containers, Entry, Part, SectionContainers, containers, read, section_containers};
pub use spills::Spills;
pub use write::{Image, container_of, write};

use std::borrow::Cow;
use std::fmt;

/// What is wrong with the bytes or the request.
///
/// The text is lower case and says what was expected and found; the caller adds the file's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(Cow<'static, str>);

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Error(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
