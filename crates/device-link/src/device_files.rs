//! Files and libraries given to the device linker by hand (`--device-linker=FILE`, `-Xoffload-linker -lNAME`): cubins, PTX, fat binaries,
//! objects, and archives of any of these. They take part in the device link only.

use std::path::{Path, PathBuf};

use llvm_lto::MappedFile;
use offload_object::{FileKind, file_kind};

use crate::error::{Context, Result, bail};
use crate::extract::{self, DeviceInput, ImageClass, classify};
use crate::inputs::{InputFile, thin_members};
use crate::options::{DeviceLib, ItemState};
use crate::resolve::Unit;
use crate::select::UnitState;
use crate::toolchain::cuda::Toolkit;

/// What the device linker was given: files that we read, and what only nvlink can make something of.
#[derive(Debug, Default)]
pub struct DeviceFiles {
    /// In line order.
    pub files: Vec<InputFile>,
    /// For nvlink as they are.
    pub others: Vec<DeviceLib>,
}

/// Opens what can be opened.
///
/// # Errors
/// A file is not there or cannot be read, or a library is nowhere.
pub fn load(libs: &[DeviceLib], toolkit: &Toolkit) -> Result<DeviceFiles> {
    let mut loaded = DeviceFiles::default();
    let dirs: Vec<&Path> = libs
        .iter()
        .filter_map(|lib| match lib {
            DeviceLib::SearchDir(dir) => Some(dir.as_path()),
            DeviceLib::Library(_) | DeviceLib::File(_) => None,
        })
        .collect();
    for lib in libs {
        let file = match lib {
            DeviceLib::SearchDir(_) => continue,
            DeviceLib::File(path) => open(path.clone())?,
            DeviceLib::Library(name) => {
                let mut file_name = std::ffi::OsString::from("lib");
                file_name.push(name);
                file_name.push(".a");
                let found = dirs.iter().map(|dir| dir.join(&file_name)).find(|path| path.is_file());
                let found = found.or_else(|| toolkit.library(file_name.to_str()?).ok());
                match found {
                    Some(path) => open(path)?,
                    None => bail!(
                        "{}: not found, though the device linker was given -l{}{}",
                        file_name.display(),
                        name.display(),
                        dirs.iter().map(|dir| format!("\n>>> looked in {}", dir.display())).collect::<String>()
                    ),
                }
            }
        };
        let readable = match file.kind {
            FileKind::ElfRelocatable
            | FileKind::Cubin
            | FileKind::Coff
            | FileKind::Archive
            | FileKind::ThinArchive
            | FileKind::OffloadBinary
            | FileKind::Fatbin => true,
            FileKind::Text => classify(&file.data) == ImageClass::Ptx,
            _ => false,
        };
        if readable {
            loaded.files.push(file);
        } else {
            loaded.others.push(lib.clone());
        }
    }
    if !loaded.others.is_empty() {
        loaded.others.extend(libs.iter().filter(|lib| matches!(lib, DeviceLib::SearchDir(_))).cloned());
    }
    Ok(loaded)
}

/// The device images of units beyond those of the host link, which are counted on from `first`.
///
/// # Errors
/// A unit is damaged.
pub fn inputs<'a>(units: &'a [Unit<'a>], first: usize) -> Result<Vec<DeviceInput<'a>>> {
    let mut inputs = Vec::new();
    for (index, unit) in (first..).zip(units) {
        inputs.extend(extract::extract(index, unit)?.inputs);
    }
    Ok(inputs)
}

/// Files take part, members of archives if a device symbol needs them. No architecture is linked for their sake.
pub fn state(unit: &Unit) -> UnitState {
    UnitState { taken: unit.member.is_none(), lazy: true }
}

/// One file as an input, archive members as the archive has them.
///
/// # Errors
/// It is not there, cannot be read, or is a malformed archive.
pub fn open(path: PathBuf) -> Result<InputFile> {
    let named = || path.display().to_string();
    let data = MappedFile::open(&path).context(named)?;
    let kind = file_kind(&data);
    let thin_members = match kind {
        FileKind::ThinArchive => {
            thin_members(|path| MappedFile::open(path).map(Some).context(|| path.display().to_string()), &path, &data)?
        }
        _ => Vec::new(),
    };
    Ok(InputFile { path, position: usize::MAX, kind, data, state: ItemState::default(), via: None, thin_members })
}
