//! What nvcc's relocatable objects (`nvcc -rdc=true`) and those of clang's old driver (`-fgpu-rdc --no-offload-new-driver`) hold: for
//! every module an identifier in `__nv_module_id` and a fat binary in `__nv_relfatbin`, in one order. The host side of a module calls
//! `__cudaRegisterLinkedBinary<id>`, which whoever links the device code has to define.

use std::borrow::Cow;

use fatbin::{Entry, Kind};
use offload_object::HostObject;

use super::{DeviceInput, Found, Image, ImageClass};
use crate::error::{Context, Error, Result, bail};
use crate::resolve::Unit;

/// The device triple of NVIDIA's code, as clang's objects have it.
const TRIPLE: &str = "nvptx64-nvidia-cuda";

/// Names of variables that host code refers to and other objects define, which registration must find in the image.
const HOST_REFERENCES: [&str; 2] = [".nvHRDE", ".nvHRCE"];

/// What the host side of a module calls for each of its managed variables.
const REGISTER_MANAGED: &[u8] = b"__cudaRegisterManagedVar";

/// The host symbol of a module's fat binary wrapper.
pub fn wrapper_symbol(module: &str) -> String {
    format!("__fatbinwrap{module}")
}

/// The function that the host side of a module calls to be registered.
pub fn register_symbol(module: &str) -> String {
    format!("__cudaRegisterLinkedBinary{module}")
}

/// Reads the modules of one object that its own `nvcc -dlink` has not linked.
pub(super) fn read<'a>(index: usize, unit: &'a Unit<'a>, object: &HostObject<'a>, found: &mut Found<'a>) -> Result<()> {
    let named = || unit.name.to_string();
    found.linked_modules = object.linked_nvcc_module_ids().context(named)?;
    let Some(section) = object.section_named(fatbin::SECTION_RELOCATABLE_FATBIN) else { return Ok(()) };
    let modules = object.nvcc_module_ids().context(named)?;
    let damaged =
        |error: fatbin::Error| Error::new(format!("{}: device code made by nvcc is damaged: {error}; compile it again", unit.name));
    let containers: Vec<_> =
        fatbin::section_containers(section).map(|(_, container)| container).collect::<fatbin::Result<_>>().map_err(damaged)?;
    if containers.len() != modules.len() {
        bail!(
            "{}: device code made by nvcc is damaged: {} fat binaries for {} modules; compile it again",
            unit.name,
            containers.len(),
            modules.len()
        );
    }
    for (part, (container, module)) in (1..).zip(containers.iter().zip(modules)) {
        found.modules.push(module);
        for entry in container.entries().map_err(damaged)? {
            add(index, &unit.name.to_string(), part, Some(module), entry, &mut found.inputs).map_err(damaged)?;
        }
    }
    found.manages = object.symbols().iter().any(|symbol| symbol.name == REGISTER_MANAGED);
    for section in HOST_REFERENCES.iter().filter_map(|name| object.section_named(name)) {
        let names = section.split(|&b| b == 0).filter(|name| !name.is_empty() && !name.contains(&b'*'));
        found.host_references.extend(names.map(|name| String::from_utf8_lossy(name).into_owned()));
    }
    Ok(())
}

/// The images of a fat binary that stands for itself: a file given to the device linker, or an image of an offload section.
pub(super) fn read_container<'a>(
    index: usize,
    origin: &str,
    part: usize,
    bytes: &'a [u8],
    inputs: &mut Vec<DeviceInput<'a>>,
) -> Result<()> {
    let damaged = |error: fatbin::Error| Error::new(format!("{origin}: fat binary is damaged: {error}"));
    for entry in fatbin::read(bytes).map_err(damaged)? {
        add(index, origin, part, None, entry, inputs).map_err(damaged)?;
    }
    Ok(())
}

fn add<'a>(
    index: usize,
    origin: &str,
    part: usize,
    module: Option<&'a str>,
    entry: Entry<'a>,
    inputs: &mut Vec<DeviceInput<'a>>,
) -> fatbin::Result<()> {
    let mut push = |arch, class, image| {
        inputs.push(DeviceInput {
            unit: index,
            part,
            module,
            origin: origin.to_owned(),
            triple: TRIPLE.to_owned(),
            arch,
            class,
            ptx: None,
            launch_guard: None,
            image,
        });
    };
    match entry.kind {
        Kind::Elf => push(entry.arch, ImageClass::Cubin, Image::packed(entry)),
        Kind::Ptx | Kind::RelocatablePtx => push(entry.arch, ImageClass::Ptx, Image::packed(entry)),
        // Its bitcode is NVIDIA's own and may be scrambled: it goes to nvlink as it is.
        Kind::Nvvm => push(entry.arch, ImageClass::LtoIr, Image::Plain(Cow::Owned(fatbin::container_of(&entry)))),
        Kind::Concat => {
            let payload = entry.payload()?;
            for piece in entry.parts()? {
                let class = match piece.kind {
                    Kind::Elf => ImageClass::Cubin,
                    Kind::Ptx | Kind::RelocatablePtx => ImageClass::Ptx,
                    _ => continue,
                };
                let end = piece.offset.saturating_add(piece.size);
                let bytes = payload.get(piece.offset as usize..end as usize).unwrap_or_default();
                let bytes = if class == ImageClass::Ptx { bytes.split(|&b| b == 0).next().unwrap_or_default() } else { bytes };
                push(piece.arch, class, Image::Plain(Cow::Owned(bytes.to_vec())));
            }
        }
        // Indices and whatever else a later toolkit adds stand beside code, not in its place.
        Kind::Other(_) => {}
    }
    Ok(())
}
