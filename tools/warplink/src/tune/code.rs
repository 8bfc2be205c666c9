//! The machine code and the PTX of a file, as they are: what `warplink inspect` only describes.

use std::path::Path;

use fatbin::{Arch, Kind, SECTION_FATBIN, SECTION_RELOCATABLE_FATBIN, ptx};
use offload_object::{Archive, FileKind, HostObject, file_kind};

/// Sections of host files that hold fat binaries; `ld` names the large twin `.lnv_fatbin`.
const FATBIN_SECTIONS: [&str; 3] = [SECTION_FATBIN, ".lnv_fatbin", SECTION_RELOCATABLE_FATBIN];

/// PTX of some program.
#[derive(Debug, Clone)]
pub(super) struct Text {
    /// What the user calls it.
    pub(super) origin: String,
    /// What it was made for.
    pub(super) target: Arch,
    pub(super) bytes: Vec<u8>,
}

/// What was found in a file.
#[derive(Debug, Default)]
pub(super) struct Code {
    /// Where, and the bytes.
    pub(super) cubins: Vec<(String, Vec<u8>)>,
    pub(super) texts: Vec<Text>,
    /// There is device code that is not generated yet.
    pub(super) bitcode: bool,
    pub(super) problems: Vec<String>,
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, or is damaged.
pub(super) fn read(path: &Path) -> Result<Code, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut code = Code::default();
    let origin = path.display().to_string();
    code.add(&origin, &bytes).map_err(|error| format!("{origin}: {error}"))?;
    Ok(code)
}

impl Code {
    fn add(&mut self, origin: &str, bytes: &[u8]) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        match file_kind(bytes) {
            FileKind::Archive | FileKind::ThinArchive => {
                for member in Archive::parse(bytes).map_err(|error| text(&error))?.members() {
                    let member = member.map_err(|error| text(&error))?;
                    let Some(data) = member.data else { continue };
                    let name = format!("{origin}({})", String::from_utf8_lossy(member.name));
                    // An archive in an archive is not looked into: linkers do not either.
                    if !matches!(file_kind(data), FileKind::Archive | FileKind::ThinArchive)
                        && let Err(error) = self.add(&name, data)
                    {
                        self.problems.push(format!("{name}: {error}"));
                    }
                }
            }
            FileKind::ElfRelocatable | FileKind::ElfExecutable | FileKind::ElfShared | FileKind::Coff => {
                let object = HostObject::parse(bytes).map_err(|error| text(&error))?;
                for section in object.offload_sections().map_err(|error| text(&error))? {
                    self.add_offload(origin, section)?;
                }
                for section in FATBIN_SECTIONS.iter().filter_map(|name| object.section_named(name)) {
                    for (_, container) in fatbin::section_containers(section) {
                        let entries = container.and_then(|container| container.entries()).map_err(|error| text(&error))?;
                        self.add_entries(origin, &entries);
                    }
                }
            }
            FileKind::Fatbin => self.add_entries(origin, &fatbin::read(bytes).map_err(|error| text(&error))?),
            FileKind::OffloadBinary => self.add_offload(origin, bytes)?,
            FileKind::Cubin => self.cubins.push((origin.to_owned(), bytes.to_vec())),
            FileKind::Bitcode => self.bitcode = true,
            FileKind::Text => self.add_text(origin, bytes),
            FileKind::Empty | FileKind::Unknown => {}
        }
        Ok(())
    }

    fn add_offload(&mut self, origin: &str, bytes: &[u8]) -> Result<(), String> {
        for image in offload_object::parse_section(bytes).map_err(|error| error.to_string())? {
            // It holds no host object.
            if !matches!(file_kind(&image.image), FileKind::OffloadBinary) {
                self.add(origin, &image.image)?;
            }
        }
        Ok(())
    }

    fn add_entries(&mut self, origin: &str, entries: &[fatbin::Entry]) {
        for entry in entries {
            let payload = match entry.payload() {
                Ok(payload) => payload,
                Err(error) => {
                    self.problems.push(format!("{origin}: {error}"));
                    continue;
                }
            };
            match entry.kind {
                Kind::Elf => self.cubins.push((origin.to_owned(), payload.into_owned())),
                Kind::Ptx | Kind::RelocatablePtx => self.add_text(origin, &payload),
                Kind::Nvvm => self.bitcode = true,
                Kind::Concat | Kind::Other(_) => {}
            }
        }
    }

    /// Takes the text if it is PTX.
    pub(super) fn add_text(&mut self, origin: &str, bytes: &[u8]) {
        if let Ok(header) = ptx::Header::parse(bytes) {
            // In a fat binary it ends with null bytes.
            let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            let bytes = bytes.get(..end).unwrap_or_default().to_vec();
            self.texts.push(Text { origin: origin.to_owned(), target: header.target, bytes });
        }
    }
}
