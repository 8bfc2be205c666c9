//! What a linker input is, from its first bytes.

use crate::bytes;

/// The kinds of file that turn up on a link line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// No bytes at all.
    Empty,
    /// ELF relocatable object for a host.
    ElfRelocatable,
    /// ELF executable with a fixed address. A position-independent one is an [`FileKind::ElfShared`], ELF does not tell them apart.
    ElfExecutable,
    /// ELF shared object or position-independent executable.
    ElfShared,
    /// ELF file for an NVIDIA GPU, relocatable or linked.
    Cubin,
    /// COFF object, also in its `/bigobj` form.
    Coff,
    /// LLVM bitcode, bare or with the wrapper header.
    Bitcode,
    /// `ar` archive that holds its members.
    Archive,
    /// `ar` archive that only names its members.
    ThinArchive,
    /// One or more LLVM offload binaries and nothing around them.
    OffloadBinary,
    /// Container of an NVIDIA fat binary.
    Fatbin,
    /// Text: a linker script, PTX, assembler.
    Text,
    /// None of these.
    Unknown,
}

const ET_REL: u16 = 1;
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const EM_CUDA: u16 = 190;

/// How many bytes must be free of NULs for a file to count as text.
const TEXT_PROBE: usize = 512;

/// Machines of COFF objects that a CUDA, HIP or OpenMP host can have: i386, ARMv7, x86-64, ARM64EC, ARM64X, ARM64.
const COFF_MACHINES: [u16; 6] = [0x014c, 0x01c4, 0x8664, 0xa641, 0xa64e, 0xaa64];

/// Class identifier of a `/bigobj` COFF object, {D1BAA1C7-BAEE-4ba9-AF20-FAF66AA4DCB8}.
pub(crate) const BIGOBJ_CLASS_ID: [u8; 16] =
    [0xc7, 0xa1, 0xba, 0xd1, 0xee, 0xba, 0xa9, 0x4b, 0xaf, 0x20, 0xfa, 0xf6, 0x6a, 0xa4, 0xdc, 0xb8];

/// Says what `bytes` hold. Looks at the first bytes only, so the rest may still be malformed.
pub fn file_kind(bytes: &[u8]) -> FileKind {
    if bytes.is_empty() {
        return FileKind::Empty;
    }
    match bytes {
        [0x7f, b'E', b'L', b'F', ..] => elf_kind(bytes),
        [b'B', b'C', 0xc0, 0xde, ..] | [0xde, 0xc0, 0x17, 0x0b, ..] => FileKind::Bitcode,
        [0x10, 0xff, 0x10, 0xad, ..] => FileKind::OffloadBinary,
        [0x50, 0xed, 0x55, 0xba, ..] => FileKind::Fatbin,
        _ if bytes.starts_with(b"!<arch>\n") => FileKind::Archive,
        _ if bytes.starts_with(b"!<thin>\n") => FileKind::ThinArchive,
        _ if is_coff(bytes) => FileKind::Coff,
        _ if !bytes.iter().take(TEXT_PROBE).any(|&byte| byte == 0) => FileKind::Text,
        _ => FileKind::Unknown,
    }
}

fn elf_kind(bytes: &[u8]) -> FileKind {
    let (Some(e_type), Some(e_machine)) = (bytes::array::<2>(bytes, 16), bytes::array::<2>(bytes, 18)) else {
        return FileKind::Unknown;
    };
    let half = match bytes.get(5) {
        Some(1) => u16::from_le_bytes,
        Some(2) => u16::from_be_bytes,
        _ => return FileKind::Unknown,
    };
    if half(e_machine) == EM_CUDA {
        return FileKind::Cubin;
    }
    match half(e_type) {
        ET_REL => FileKind::ElfRelocatable,
        ET_EXEC => FileKind::ElfExecutable,
        ET_DYN => FileKind::ElfShared,
        _ => FileKind::Unknown,
    }
}

fn is_coff(bytes: &[u8]) -> bool {
    if is_bigobj(bytes) {
        return true;
    }
    // A plain COFF object has no magic but its machine. What keeps text that happens to start with these two bytes out is that an object
    // has no optional header, and its symbol table inside the file.
    let (Some(machine), Some(symbols), Some(optional_header)) =
        (bytes::u16_le(bytes, 0), bytes::u32_le(bytes, 8), bytes::u16_le(bytes, 16))
    else {
        return false;
    };
    COFF_MACHINES.contains(&machine) && optional_header == 0 && symbols as usize <= bytes.len()
}

pub(crate) fn is_bigobj(bytes: &[u8]) -> bool {
    // u16 0, u16 0xffff, u16 version >= 2, u16 machine, u32 time, the class identifier.
    bytes.starts_with(&[0, 0, 0xff, 0xff])
        && bytes::u16_le(bytes, 4).is_some_and(|version| version >= 2)
        && bytes::array::<16>(bytes, 12) == Some(BIGOBJ_CLASS_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(start: &[u8], expected: FileKind) {
        assert_eq!(file_kind(start), expected, "{start:02x?}");
    }

    fn elf(data: u8, e_type: u16, machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes[4] = 2;
        bytes[5] = data;
        let half = |value: u16| if data == 2 { value.to_be_bytes() } else { value.to_le_bytes() };
        bytes[16..18].copy_from_slice(&half(e_type));
        bytes[18..20].copy_from_slice(&half(machine));
        bytes
    }

    #[test]
    fn kinds_by_first_bytes() {
        check(b"", FileKind::Empty);
        check(b"BC\xc0\xde", FileKind::Bitcode);
        check(&[0xde, 0xc0, 0x17, 0x0b, 0, 0], FileKind::Bitcode);
        check(&[0x10, 0xff, 0x10, 0xad, 1, 0, 0, 0], FileKind::OffloadBinary);
        check(&[0x50, 0xed, 0x55, 0xba, 1, 0], FileKind::Fatbin);
        check(b"!<arch>\n", FileKind::Archive);
        check(b"!<thin>\n", FileKind::ThinArchive);
        check(b"INPUT(a.o b.o)\n", FileKind::Text);
        check(b"//\n.version 8.8\n.target sm_90\n", FileKind::Text);
        check(b"\0\0\0\0", FileKind::Unknown);
        check(b"\x7fELF", FileKind::Unknown);
    }

    #[test]
    fn elf_by_type_and_machine() {
        check(&elf(1, ET_REL, 62), FileKind::ElfRelocatable);
        check(&elf(2, ET_REL, 21), FileKind::ElfRelocatable);
        check(&elf(1, ET_EXEC, 62), FileKind::ElfExecutable);
        check(&elf(1, ET_DYN, 183), FileKind::ElfShared);
        check(&elf(1, ET_REL, EM_CUDA), FileKind::Cubin);
        check(&elf(1, ET_EXEC, EM_CUDA), FileKind::Cubin);
        check(&elf(1, 4, 62), FileKind::Unknown);
        check(&elf(3, ET_REL, 62), FileKind::Unknown);
    }

    #[test]
    fn coff_needs_more_than_a_machine() {
        let mut coff = vec![0; 64];
        coff[..2].copy_from_slice(&0x8664u16.to_le_bytes());
        check(&coff, FileKind::Coff);
        coff[16] = 1;
        check(&coff, FileKind::Unknown);
        coff[16] = 0;
        coff[8..12].copy_from_slice(&1000u32.to_le_bytes());
        check(&coff, FileKind::Unknown);
        // 0x8664 is "d\x86" in a Latin-1 text.
        check(b"d\x86tzlich text, long enough for a header", FileKind::Text);
        check(b"d\x86", FileKind::Text);

        let mut big = vec![0; 64];
        big[2..4].fill(0xff);
        big[4] = 2;
        big[12..28].copy_from_slice(&BIGOBJ_CLASS_ID);
        check(&big, FileKind::Coff);
        big[12] = 0;
        check(&big, FileKind::Unknown);
    }
}
