//! The 24-byte wrapper that registration code hands to the CUDA runtime.
//!
//! It lies in section `.nvFatBinSegment`, writable, aligned to 8, one wrapper behind the other:
//! u32 magic, u32 version, pointer to the container, pointer to the containers of the parts.
//! In relocatable objects the pointers are relocations and the fields themselves zero.

use crate::bytes::{u32_at, u64_at};
use crate::{Error, Result};

/// The first field.
pub const MAGIC: u32 = 0x4662_43B1;
/// The size of a wrapper in bytes.
pub const SIZE: usize = 24;
/// The alignment of a wrapper in bytes.
pub const ALIGN: usize = 8;
/// Where the pointer to the container lies.
pub const CONTAINER_OFFSET: usize = 8;
/// Where the pointer to the array of the parts' containers lies.
pub const PARTS_OFFSET: usize = 16;
/// The version of a container that stands for itself; the last field is null.
pub const VERSION_PLAIN: u32 = 1;
/// The version of a container linked from relocatable parts. The last field points to a
/// null-terminated array of their containers, which the driver needs to link their PTX.
pub const VERSION_LINKED: u32 = 2;

/// A wrapper as it lies in a linked file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrapper {
    /// [`VERSION_PLAIN`] or [`VERSION_LINKED`].
    pub version: u32,
    /// The address of the container.
    pub container: u64,
    /// The address of the array of the parts' containers, or 0.
    pub parts: u64,
}

impl Wrapper {
    /// Reads the wrapper at the start of `bytes`.
    ///
    /// # Errors
    /// If there are fewer than [`SIZE`] bytes, or the magic or the version is another.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let short = || Error::new("fat binary wrapper is cut off");
        let magic = u32_at(bytes, 0).ok_or_else(short)?;
        let version = u32_at(bytes, 4).ok_or_else(short)?;
        let container = u64_at(bytes, CONTAINER_OFFSET).ok_or_else(short)?;
        let parts = u64_at(bytes, PARTS_OFFSET).ok_or_else(short)?;
        if magic != MAGIC {
            return Err(Error::new(format!("fat binary wrapper has magic {magic:#010x}")));
        }
        if version != VERSION_PLAIN && version != VERSION_LINKED {
            return Err(Error::new(format!("fat binary wrapper has version {version}")));
        }
        Ok(Wrapper { version, container, parts })
    }

    /// The bytes of the wrapper.
    pub fn to_bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let fields = MAGIC
            .to_le_bytes()
            .into_iter()
            .chain(self.version.to_le_bytes())
            .chain(self.container.to_le_bytes())
            .chain(self.parts.to_le_bytes());
        for (byte, field) in bytes.iter_mut().zip(fields) {
            *byte = field;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_there_and_back() {
        let wrapper = Wrapper { version: VERSION_LINKED, container: 0x1234, parts: u64::MAX };
        let bytes = wrapper.to_bytes();
        assert_eq!(bytes[..8], [0xB1, 0x43, 0x62, 0x46, 2, 0, 0, 0]);
        assert_eq!(Wrapper::parse(&bytes), Ok(wrapper));
    }

    #[test]
    fn refuses_wrong_fields() {
        let good = Wrapper { version: VERSION_PLAIN, container: 8, parts: 0 }.to_bytes();
        for end in 0..SIZE {
            assert!(Wrapper::parse(&good[..end]).is_err());
        }
        for at in 0..8 {
            let mut bad = good;
            bad[at] ^= 0x80;
            assert!(Wrapper::parse(&bad).is_err(), "byte {at}");
        }
    }
}
