//! Builds small cubins without a toolkit, for the tests of this crate.
#![allow(dead_code, reason = "each test binary uses a part of it")]

/// A section to put into [`cubin`].
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) link: u32,
    /// In memory, for sections without content.
    pub(crate) size: Option<u64>,
}

impl Section {
    pub(crate) fn new(name: &str, kind: u32, data: &[u8]) -> Self {
        Section { name: name.to_owned(), kind, data: data.to_vec(), link: 0, size: None }
    }

    pub(crate) fn nobits(name: &str, kind: u32, size: u64) -> Self {
        Section { size: Some(size), ..Section::new(name, kind, &[]) }
    }
}

/// The head of the ELF file.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) os_abi: u8,
    pub(crate) abi_version: u8,
    pub(crate) elf_type: u16,
    pub(crate) flags: u32,
    /// Write the section counts as files with more than 0xff00 sections have them.
    pub(crate) extended: bool,
}

pub(crate) const V8: Head = Head { os_abi: 0x41, abi_version: 8, elf_type: 2, flags: 0x0600_0004, extended: false };

/// A head for `sm` as CUDA 13 writes it.
pub(crate) fn head(sm: u32) -> Head {
    Head { flags: V8.flags | sm << 8, ..V8 }
}

/// A head for `sm` as CUDA 12 writes it.
pub(crate) fn old_head(sm: u32) -> Head {
    Head { os_abi: 0x33, abi_version: 7, flags: sm | sm << 16 | 0x500, ..V8 }
}

/// An ELF file with the null section, these sections, and the section names last.
pub(crate) fn cubin(head: Head, sections: &[Section]) -> Vec<u8> {
    let mut names = vec![0u8];
    let mut body = Vec::new();
    let mut headers = vec![[0u8; 64]];
    let names_section = Section::new(".shstrtab", 3, &[]);
    let count = sections.len() + 2;
    for (index, section) in sections.iter().chain([&names_section]).enumerate() {
        let name = names.len() as u32;
        names.extend(section.name.as_bytes());
        names.push(0);
        let is_names = index + 2 == count;
        let data = if is_names { &names } else { &section.data };
        let size = section.size.unwrap_or(data.len() as u64);
        let mut header = [0u8; 64];
        header[0..4].copy_from_slice(&name.to_le_bytes());
        header[4..8].copy_from_slice(&section.kind.to_le_bytes());
        header[24..32].copy_from_slice(&(64 + body.len() as u64).to_le_bytes());
        header[32..40].copy_from_slice(&size.to_le_bytes());
        header[40..44].copy_from_slice(&section.link.to_le_bytes());
        body.extend(data);
        body.resize(body.len().next_multiple_of(8), 0);
        headers.push(header);
    }
    if head.extended {
        headers[0][32..40].copy_from_slice(&(count as u64).to_le_bytes());
        headers[0][40..44].copy_from_slice(&(count as u32 - 1).to_le_bytes());
    }
    let mut elf = vec![0u8; 64];
    elf[0..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    elf[7] = head.os_abi;
    elf[8] = head.abi_version;
    elf[16..18].copy_from_slice(&head.elf_type.to_le_bytes());
    elf[18..20].copy_from_slice(&190u16.to_le_bytes());
    elf[20..24].copy_from_slice(&1u32.to_le_bytes());
    elf[40..48].copy_from_slice(&(64 + body.len() as u64).to_le_bytes());
    elf[48..52].copy_from_slice(&head.flags.to_le_bytes());
    elf[52..54].copy_from_slice(&64u16.to_le_bytes());
    elf[58..60].copy_from_slice(&64u16.to_le_bytes());
    let (stated, last) = if head.extended { (0, 0xffff) } else { (count, count - 1) };
    elf[60..62].copy_from_slice(&(stated as u16).to_le_bytes());
    elf[62..64].copy_from_slice(&(last as u16).to_le_bytes());
    elf.extend(body);
    elf.extend(headers.as_flattened());
    elf
}

/// The bytes of one symbol.
pub(crate) fn symbol(name: u32, info: u8, other: u8, shndx: u16, value: u64, size: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[0..4].copy_from_slice(&name.to_le_bytes());
    bytes[4] = info;
    bytes[5] = other;
    bytes[6..8].copy_from_slice(&shndx.to_le_bytes());
    bytes[8..16].copy_from_slice(&value.to_le_bytes());
    bytes[16..24].copy_from_slice(&size.to_le_bytes());
    bytes
}
