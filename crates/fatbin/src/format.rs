//! The numbers of the container format, each as `fatbinary` 13.0 writes it.

use std::fmt;

/// The section of host objects and programs that holds containers of linked device code.
pub const SECTION_FATBIN: &str = ".nv_fatbin";
/// The section of host objects that holds containers of relocatable device code (nvcc's `-rdc`,
/// clang's `--no-offload-new-driver`).
pub const SECTION_RELOCATABLE_FATBIN: &str = "__nv_relfatbin";
/// The section that holds the wrappers of [`crate::wrapper`].
pub const SECTION_WRAPPER: &str = ".nvFatBinSegment";

pub(crate) const MAGIC: u32 = 0xBA55_ED50;
pub(crate) const VERSION: u16 = 1;
pub(crate) const HEADER_SIZE: usize = 16;

pub(crate) const ENTRY_VERSION: u16 = 0x0101;
pub(crate) const ENTRY_HEADER_SIZE: usize = 64;

/// What an entry of a container holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// PTX text of a whole or linked program.
    Ptx,
    /// A cubin: machine code for one architecture in an ELF file.
    Elf,
    /// NVVM bitcode for device link-time optimization.
    Nvvm,
    /// PTX text that still has to be linked.
    RelocatablePtx,
    /// Images of several architectures compressed together (`fatbinary --concat`, CUDA 13.4).
    Concat,
    /// A number that has no name here.
    Other(u16),
}

impl Kind {
    /// The kind with this number in the entry header.
    pub fn from_u16(number: u16) -> Self {
        match number {
            1 => Kind::Ptx,
            2 => Kind::Elf,
            8 => Kind::Nvvm,
            0x40 => Kind::RelocatablePtx,
            0x100 => Kind::Concat,
            other => Kind::Other(other),
        }
    }

    /// The number in the entry header.
    pub fn to_u16(self) -> u16 {
        match self {
            Kind::Ptx => 1,
            Kind::Elf => 2,
            Kind::Nvvm => 8,
            Kind::RelocatablePtx => 0x40,
            Kind::Concat => 0x100,
            Kind::Other(number) => number,
        }
    }

    /// Whether the payload is PTX text.
    pub fn is_ptx(self) -> bool {
        matches!(self, Kind::Ptx | Kind::RelocatablePtx)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Ptx => f.write_str("ptx"),
            Kind::Elf => f.write_str("cubin"),
            Kind::Nvvm => f.write_str("nvvm"),
            Kind::RelocatablePtx => f.write_str("relocatable ptx"),
            Kind::Concat => f.write_str("concatenated"),
            Kind::Other(number) => write!(f, "kind {number:#x}"),
        }
    }
}

/// The flag bits of an entry header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u64);

impl Flags {
    /// 64-bit device code.
    pub const BITS_64: Flags = Flags(0x1);
    /// Compiled with `-g`.
    pub const DEBUG: Flags = Flags(0x2);
    /// Made on a Linux host.
    pub const LINUX: Flags = Flags(0x10);
    /// Made on a Windows host.
    pub const WINDOWS: Flags = Flags(0x40);
    /// The payload is one LZ4 block.
    pub const LZ4: Flags = Flags(0x2000);
    /// The payload is zstd.
    pub const ZSTD: Flags = Flags(0x8000);
    /// The payload is scrambled besides; compressed NVVM entries are.
    pub const OBFUSCATED: Flags = Flags(0x1_0000);
    /// Arch-specific code, the `a` of `sm_90a`.
    pub const ARCH_SPECIFIC: Flags = Flags(0x10_0000);
    /// Family-specific code, the `f` of `sm_100f`.
    pub const FAMILY: Flags = Flags(0x20_0000);
    /// A cubin that also holds the code in the form that the driver can finish (sm_100 and up).
    pub const MERCURY: Flags = Flags(0x100_0000);

    /// Whether every bit of `other` is set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_go_there_and_back() {
        for number in 0..=0x200 {
            assert_eq!(Kind::from_u16(number).to_u16(), number);
        }
        assert_eq!(Kind::from_u16(2), Kind::Elf);
        assert_eq!(Kind::Other(0x80).to_string(), "kind 0x80");
        assert!(Kind::RelocatablePtx.is_ptx() && !Kind::Nvvm.is_ptx());
    }

    #[test]
    fn contains_wants_all_bits() {
        let both = Flags::BITS_64 | Flags::LINUX;
        assert!(both.contains(Flags::LINUX));
        assert!(!Flags::LINUX.contains(both));
    }
}
