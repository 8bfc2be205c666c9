//! After the link: does every image hold everything that the host will ask for? A kernel that is missing shows at its launch only, and by
//! then nobody knows why.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use fatbin::Arch;
use offload_object::OffloadKind;

use crate::assemble::DeviceImage;
use crate::diagnostics::Diagnostics;
use crate::extract::Entry;

/// The names that a host can look up in the image of an architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// Architecture.
    pub arch: Arch,
    /// There is a cubin.
    pub has_cubin: bool,
    /// There is PTX, of this ISA version as far as it says so.
    pub ptx: Option<String>,
    /// Global kernels and variables.
    pub names: HashSet<String>,
}

/// What is in each image.
pub fn present(images: &[DeviceImage]) -> Vec<Present> {
    let version = |ptx: &Vec<u8>| fatbin::ptx::Header::parse(ptx).map_or_else(|_| String::new(), |header| header.version.to_string());
    let look = |image: &DeviceImage| Present {
        arch: image.arch,
        has_cubin: image.cubin.is_some(),
        ptx: image.ptx.as_ref().map(version),
        names: names(image),
    };
    images.iter().map(look).collect()
}

/// Warns about entries of the linked output that an image lacks. `entries` are those of the objects that went in: an output may hold
/// others that belong to device code linked before.
pub fn verify(output: &Path, images: &[Present], entries: &[Entry], diagnostics: &Diagnostics) {
    let known: BTreeMap<&str, &Entry> = entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    // What the output holds is what will be registered; where it cannot be read (an odd format, `-o /dev/null`), the objects say it.
    let registered: Vec<&Entry> =
        match llvm_lto::MappedFile::open(output).ok().and_then(|bytes| offload_object::linked_entries(&bytes).ok()) {
            Some(linked) => linked
                .iter()
                .filter(|entry| entry.kind.contains(OffloadKind::CUDA))
                .filter_map(|entry| known.get(std::str::from_utf8(&entry.name).ok()?).copied())
                .collect(),
            None => known.values().copied().collect(),
        };
    for image in images {
        let missing: Vec<&&Entry> = registered.iter().filter(|entry| !image.names.contains(&entry.name)).collect();
        for entry in missing.iter().take(5) {
            diagnostics.warn(
                "missing-entry",
                &format!(
                    "{}: the image for {} has no {} {}, which the host registers; using it will fail on that GPU",
                    output.display(),
                    image.arch,
                    if entry.is_kernel { "kernel" } else { "variable" },
                    diagnostics.name(&entry.name)
                ),
            );
        }
        if missing.len() > 5 {
            diagnostics.warn(
                "missing-entry",
                &format!("{}: the image for {} lacks {} more entries", output.display(), image.arch, missing.len() - 5),
            );
        }
    }
}

/// The names that a host can look up in an image: global kernels and variables.
fn names(image: &DeviceImage) -> HashSet<String> {
    let from_cubin = image.cubin.as_deref().and_then(|bytes| {
        let cubin = fatbin::cubin::Cubin::parse(bytes).ok()?;
        Some(
            cubin
                .symbols()
                .iter()
                .filter(|symbol| symbol.binding != fatbin::cubin::Binding::Local)
                .map(|symbol| symbol.name.to_owned())
                .collect(),
        )
    });
    from_cubin
        .or_else(|| {
            let ptx = image.ptx.as_deref()?;
            Some(
                fatbin::ptx::symbols(ptx)
                    .into_iter()
                    .filter(|symbol| symbol.defined && symbol.linkage != fatbin::ptx::Linkage::Local)
                    .map(|symbol| symbol.name.to_owned())
                    .collect(),
            )
        })
        .unwrap_or_default()
}
