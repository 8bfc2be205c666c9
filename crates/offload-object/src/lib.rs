//! LLVM offload binaries and the host objects that carry them: bytes in, structs out. Reads no files, starts nothing.
//!
//! [`file_kind`] says what a linker input is, and [`may_hold_device_code`] whether it is worth reading. [`Archive`] walks archives. [`HostObject`] finds the offload sections, symbols and offload
//! entries of one object; [`parse_section`] takes such a section apart. [`linked_entries`] reads the entries back from a finished program.
//! [`bitcode_producer`] says which release made an image. [`write_v1`], [`separate_relocatable`] and [`set_metadata`] make new bytes.
//!
//! Everything here is meant for untrusted bytes: malformed input is an [`Error`], which names what is wrong and nothing else; who called
//! adds the path, the archive member and the offset.
#![forbid(unsafe_code)]

mod archive;
mod binary;
mod bytes;
mod error;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod glance;
mod host;
mod host_coff;
mod host_elf;
mod linked;
mod metadata;
mod producer;
mod separate;
mod twins;
mod write;
mod zlib;

pub use archive::{Archive, Member, Members};
pub use binary::{ImageKind, OffloadImage, OffloadKind, parse_section};
pub use error::{Error, Result};
pub use file::{FileKind, file_kind};
pub use glance::may_hold_device_code;
pub use host::{EntryFlags, HostEntry, HostObject, HostSymbol, HostTarget, ObjectFormat, SymbolKind, VariableKind};
pub use linked::{LinkedEntry, linked_entries};
pub use metadata::set_metadata;
pub use producer::bitcode_producer;
pub use separate::separate_relocatable;
pub use twins::same_code;
pub use write::{ImageSpec, write_v1, write_v2, write_v3};

/// ELF section type of a section that holds offload binaries (`SHT_LLVM_OFFLOADING`). It is the type that counts, not the name.
pub const SHT_LLVM_OFFLOADING: u32 = 0x6fff_4c0b;

/// Name of the section that clang puts offload binaries into. In COFF, whose sections have no type, a name that starts so marks one.
pub const OFFLOAD_SECTION: &str = ".llvm.offloading";

/// Section in which modules of nvcc's name themselves.
pub(crate) const NVCC_MODULES_SECTION: &str = "__nv_module_id";

/// Section of the host's offload entries, from LLVM 21 on.
pub const ENTRIES_SECTION: &str = "llvm_offload_entries";
