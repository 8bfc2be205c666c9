//! Device code out of host objects: which units hold offload binaries, what is in them, and which entries the host registers.

pub mod nvcc;

use std::borrow::Cow;
use std::sync::OnceLock;

use fatbin::Arch;
use offload_object::{FileKind, HostObject, OffloadKind, SymbolKind};

use crate::error::{Context, Error, Result, bail};
use crate::launch_guard;
use crate::resolve::Unit;

/// What the bytes of an image are, by their own magic: the kind that a packager recorded is a guess from a file name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageClass {
    /// LLVM bitcode.
    Bitcode,
    /// An NVIDIA device object or program.
    Cubin,
    /// PTX text.
    Ptx,
    /// An NVIDIA fat binary.
    Fatbin,
    /// NVIDIA's own bitcode (`nvcc -dlto`), in a fat binary of its own. Only nvlink can read it.
    LtoIr,
    /// None of these.
    Unknown,
}

/// One device image of the link.
#[derive(Debug, Clone)]
pub struct DeviceInput<'a> {
    /// Index of the unit that holds it.
    pub unit: usize,
    /// Images of one part of a unit are the same code for several architectures. Part 0 is what clang put there: all its images for
    /// one architecture count. Every other part is a fat binary, of which one image counts.
    pub part: usize,
    /// The identifier of the nvcc module, where it is one.
    pub module: Option<&'a str>,
    /// The user's name for where it is: `a.o`, `libk.a(reduce.o)`.
    pub origin: String,
    /// Target triple.
    pub triple: String,
    /// Architecture.
    pub arch: Arch,
    /// What it is.
    pub class: ImageClass,
    /// The choice about PTX recorded in the metadata.
    pub ptx: Option<String>,
    /// The choice about the launch guard recorded there.
    pub launch_guard: Option<bool>,
    /// The image.
    pub image: Image<'a>,
}

/// The bytes of an image.
#[derive(Debug, Clone)]
pub enum Image<'a> {
    /// As they are.
    Plain(Cow<'a, [u8]>),
    /// In an entry of a fat binary, unpacked when somebody asks: most architectures of a library are of no interest to a link.
    Packed(Box<fatbin::Entry<'a>>, OnceLock<fatbin::Result<Vec<u8>>>),
}

impl<'a> Image<'a> {
    fn packed(entry: fatbin::Entry<'a>) -> Image<'a> {
        if entry.compression == fatbin::Compression::None
            && let Ok(bytes) = entry.payload()
        {
            return Image::Plain(bytes);
        }
        Image::Packed(Box::new(entry), OnceLock::new())
    }

    /// Its size in bytes when unpacked.
    pub fn size(&self) -> u64 {
        let size = match self {
            Image::Plain(bytes) => bytes.len(),
            Image::Packed(entry, _) => return entry.uncompressed_size,
        };
        size as u64
    }

    /// The bytes.
    ///
    /// # Errors
    /// A packed image is damaged.
    pub fn bytes(&self) -> fatbin::Result<&[u8]> {
        match self {
            Image::Plain(bytes) => Ok(bytes),
            Image::Packed(entry, unpacked) => match unpacked.get_or_init(|| entry.payload().map(Cow::into_owned)) {
                Ok(bytes) => Ok(bytes),
                Err(error) => Err(error.clone()),
            },
        }
    }
}

/// An entry of the host's table: something that it launches, copies to or copies from by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of the device symbol.
    pub name: String,
    /// Kernel or variable.
    pub is_kernel: bool,
    /// The host symbol that launches a kernel; none where it is local to its object, or may become so in the LTO of the host.
    pub stub: Option<String>,
    /// The symbol of the entry itself.
    pub symbol: String,
    /// Index of the unit that has it.
    pub unit: usize,
}

/// What one unit has to say to the device link.
#[derive(Debug, Default)]
pub struct Found<'a> {
    /// Its device images.
    pub inputs: Vec<DeviceInput<'a>>,
    /// Its host entries.
    pub entries: Vec<Entry>,
    /// Identifiers of the nvcc modules that it holds.
    pub modules: Vec<&'a str>,
    /// Identifiers of nvcc modules, of any object, whose device code it has linked: it is what `nvcc -dlink` made, or a link like ours.
    pub linked_modules: Vec<&'a str>,
    /// The host side of its nvcc modules registers managed variables.
    pub manages: bool,
    /// Device variables that its host code refers to by nvcc's registration and that another object defines.
    pub host_references: Vec<String>,
    /// The host's triple, where the unit says it.
    pub host_triple: Option<String>,
    /// Functions of the runtime that its host code calls and the launch guard looks at.
    pub calls: Vec<launch_guard::Call>,
}

/// Whether a unit can hold device code at all, from its headers only.
pub fn may_hold_device_code(unit: &Unit) -> bool {
    kind_may_hold_device_code(unit.kind, unit.data)
}

/// The same for an object or a bare image of this kind.
pub(crate) fn kind_may_hold_device_code(kind: FileKind, data: &[u8]) -> bool {
    match kind {
        FileKind::ElfRelocatable | FileKind::Coff => {
            HostObject::parse(data).is_ok_and(|object| object.has_offload_section() || object.has_nvcc_modules())
        }
        FileKind::OffloadBinary | FileKind::Bitcode => true,
        _ => false,
    }
}

/// Reads everything about device code from a unit. `index` is the unit's own index.
pub fn extract<'a>(index: usize, unit: &'a Unit<'a>) -> Result<Found<'a>> {
    let mut found = Found::default();
    match unit.kind {
        FileKind::ElfRelocatable | FileKind::Coff => {
            // A broken host object is the host linker's to complain about.
            let Ok(object) = HostObject::parse(unit.data) else { return Ok(found) };
            for section in object.offload_sections().context(|| unit.name.to_string())? {
                read_section(index, unit, Cow::Borrowed(section), &mut found)?;
            }
            if object.section_named("__nv_module_id").is_some() {
                nvcc::read(index, unit, &object, &mut found)?;
            }
            if let Some(arch) = object.target().arch_name() {
                found.host_triple = Some(match object.target().format {
                    offload_object::ObjectFormat::Elf => format!("{arch}-unknown-linux-gnu"),
                    offload_object::ObjectFormat::Coff => format!("{arch}-pc-windows-msvc"),
                });
            }
            let symbols = object.symbols();
            found.calls =
                launch_guard::calls(symbols.iter().filter(|symbol| symbol.kind == SymbolKind::Undefined).map(|symbol| symbol.name));
            let is_fat = object.fat_lto_bitcode().is_some();
            let entries = object.entries().map_err(|error| {
                let is_defined = |kind| !matches!(kind, SymbolKind::Undefined | SymbolKind::UndefinedWeak);
                if symbols.iter().any(|symbol| is_defined(symbol.kind)) {
                    return Error::new(error.to_string()).wrap(format!("{}: offload entries", unit.name));
                }
                Error::new(format!(
                    "{}: its symbols have been stripped (strip -s, objcopy --strip-all), and without them its kernels can neither be \
                     registered nor linked; strip objects with --strip-debug or --strip-unneeded, or the linked program with -Wl,-s",
                    unit.name
                ))
            })?;
            for entry in entries {
                if OffloadKind(entry.kind.0).contains(OffloadKind::CUDA) {
                    let name = String::from_utf8_lossy(entry.name).into_owned();
                    // COFF entries are registered by where they lie.
                    let by_place = (object.target().format == offload_object::ObjectFormat::Coff).then_some(entry.name);
                    let Some(symbol) = entry.entry_symbol.or(by_place) else {
                        bail!(
                            "{}: the symbol of the offload entry of {name}, by which it is registered, is not there any more; do not strip objects of \
                             more than --strip-debug or --strip-unneeded takes",
                            unit.name
                        )
                    };
                    found.entries.push(Entry {
                        symbol: String::from_utf8_lossy(symbol).into_owned(),
                        name,
                        is_kernel: entry.is_kernel(),
                        stub: entry
                            .address_symbol
                            .filter(|_| !entry.address_is_local && !is_fat)
                            .map(|name| String::from_utf8_lossy(name).into_owned()),
                        unit: index,
                    });
                }
            }
        }
        FileKind::Bitcode => {
            let host = llvm_lto::working_on(&unit.name.to_string(), || llvm_lto::read_host_bitcode(unit.data))
                .map_err(|error| Error::new(format!("{}: {}", unit.name, unreadable(unit.data, &error.to_string()))))?;
            for section in host.offload_sections {
                read_section(index, unit, Cow::Owned(section), &mut found)?;
            }
            let undefined = host.symbols.iter().filter(|symbol| symbol.binding == llvm_lto::Binding::Undefined);
            found.calls = launch_guard::calls(undefined.map(|symbol| symbol.name.as_bytes()));
            found.host_triple = Some(host.triple).filter(|triple| !triple.is_empty());
            found.entries.extend(
                host.entries.into_iter().filter(|entry| OffloadKind(entry.kind).contains(OffloadKind::CUDA)).map(|entry| Entry {
                    name: entry.name,
                    is_kernel: entry.size == 0,
                    symbol: entry.symbol,
                    stub: None,
                    unit: index,
                }),
            );
        }
        FileKind::OffloadBinary => read_section(index, unit, Cow::Borrowed(unit.data), &mut found)?,
        FileKind::Cubin | FileKind::Fatbin | FileKind::Text => read_device_file(index, unit, &mut found)?,
        _ => {}
    }
    Ok(found)
}

/// Whether an object asks for device code. That of a bare offload binary is for such objects, which hold none themselves.
pub fn has_entries(unit: &Unit) -> bool {
    object_with_entries(unit).is_some()
}

fn object_with_entries<'a>(unit: &Unit<'a>) -> Option<HostObject<'a>> {
    if unit.kind != FileKind::ElfRelocatable {
        return None;
    }
    let object = HostObject::parse(unit.data).ok()?;
    (object.section_named(offload_object::ENTRIES_SECTION).is_some() && !object.is_registration_object()).then_some(object)
}

/// The entries of an object without device code: compiled for the host only, or stripped of it. They are registered only if another object
/// has the same ones, so nothing is linked for them; but the host will ask for them.
pub fn stray_entries(index: usize, unit: &Unit) -> Vec<Entry> {
    let Some(object) = object_with_entries(unit) else { return Vec::new() };
    let entries = object.entries().unwrap_or_default();
    let cuda = entries.iter().filter(|entry| OffloadKind(entry.kind.0).contains(OffloadKind::CUDA));
    cuda.map(|entry| Entry {
        symbol: String::new(),
        name: String::from_utf8_lossy(entry.name).into_owned(),
        is_kernel: entry.is_kernel(),
        stub: None,
        unit: index,
    })
    .collect()
}

/// A file of device code without a host object around it.
fn read_device_file<'a>(index: usize, unit: &'a Unit<'a>, found: &mut Found<'a>) -> Result<()> {
    let origin = unit.name.to_string();
    let named = |error: fatbin::Error| Error::new(format!("{origin}: {error}"));
    let class = classify(unit.data);
    let arch = match class {
        ImageClass::Cubin => fatbin::cubin::Cubin::parse(unit.data).map_err(named)?.arch(),
        ImageClass::Ptx => fatbin::ptx::Header::parse(unit.data).map_err(named)?.target,
        ImageClass::Fatbin => return nvcc::read_container(index, &origin, 1, unit.data, &mut found.inputs),
        _ => return Ok(()),
    };
    found.inputs.push(DeviceInput {
        unit: index,
        part: 1,
        module: None,
        origin,
        triple: "nvptx64-nvidia-cuda".to_owned(),
        arch,
        class,
        ptx: None,
        launch_guard: None,
        image: Image::Plain(Cow::Borrowed(unit.data)),
    });
    Ok(())
}

/// Takes the images of one offload section.
fn read_section<'a>(index: usize, unit: &'a Unit<'a>, section: Cow<'a, [u8]>, found: &mut Found<'a>) -> Result<()> {
    // Modules of nvcc, should the object have any as well, have the low numbers.
    let mut fatbins = 1 << 16;
    let mut add = |image: offload_object::OffloadImage<'_>, bytes: Cow<'a, [u8]>| -> Result<()> {
        if image.flags & 1 != 0 && image.image.is_empty() {
            return Ok(());
        }
        if !image.offload_kind.contains(OffloadKind::CUDA) {
            let kinds: Vec<_> = image.offload_kind.names().collect();
            let kind = if kinds.is_empty() { "unknown".to_owned() } else { kinds.join("+") };
            bail!("{}: holds a device image of kind {kind} for {} {}; warplink links CUDA images", unit.name, image.triple(), image.arch());
        }
        let arch = image
            .arch()
            .parse()
            .map_err(|error: fatbin::Error| Error::new(format!("{}: device image for {}: {error}", unit.name, image.triple())))?;
        let class = classify(&bytes);
        if class == ImageClass::Unknown {
            bail!(
                "{}: device image for {arch} is neither bitcode nor a cubin, PTX or a fat binary; the object is damaged or was cut off",
                unit.name
            );
        }
        if let (ImageClass::Fatbin, Cow::Borrowed(bytes)) = (class, &bytes) {
            fatbins += 1;
            return nvcc::read_container(index, &unit.name.to_string(), fatbins, bytes, &mut found.inputs);
        }
        found.inputs.push(DeviceInput {
            unit: index,
            part: 0,
            module: None,
            origin: unit.name.to_string(),
            triple: image.triple().to_owned(),
            arch,
            class,
            ptx: image.get("ptx").map(str::to_owned),
            launch_guard: image.get(launch_guard::KEY).and_then(launch_guard::metadata_wants),
            image: Image::Plain(bytes),
        });
        Ok(())
    };
    let named = || format!("{}: offload section is damaged", unit.name);
    match section {
        Cow::Borrowed(bytes) => {
            for mut image in offload_object::parse_section(bytes).context(named)? {
                let bytes = std::mem::take(&mut image.image);
                add(image, bytes)?;
            }
        }
        Cow::Owned(bytes) => {
            for mut image in offload_object::parse_section(&bytes).context(named)? {
                let bytes = std::mem::take(&mut image.image).into_owned();
                add(image, Cow::Owned(bytes))?;
            }
        }
    }
    Ok(())
}

/// What to say of bitcode that LLVM could not read: made by a later release it is no damage, and there is a way out. LLVM itself names the
/// release where it has read as far as that.
pub fn unreadable(bitcode: &[u8], said: &str) -> String {
    let (major, minor, patch) = llvm_lto::llvm_version();
    let by_llvm = said.split_once("(Producer: '").and_then(|(_, rest)| rest.split('\'').next()).map(str::to_owned);
    let Some(producer) = by_llvm.or_else(|| offload_object::bitcode_producer(bitcode)) else { return said.to_owned() };
    let release = producer.trim_start_matches(|c: char| !c.is_ascii_digit());
    let newer = release.split('.').next().and_then(|number| number.parse::<u32>().ok()).is_some_and(|made_by| made_by > major);
    if !newer || !producer.starts_with("LLVM") {
        return said.to_owned();
    }
    // LLVM's reader ends with its own note on the two releases.
    let said = said.split(" (Producer:").next().unwrap_or(said);
    format!(
        "it was made by LLVM {release}, and this warplink reads bitcode up to LLVM {major} (it has {major}.{minor}.{patch}); compile the object \
         with clang {major} or older, or link with a warplink that is built with LLVM {} ({said})",
        release.split('.').next().unwrap_or_default()
    )
}

/// Tells images apart by their first bytes.
pub fn classify(bytes: &[u8]) -> ImageClass {
    match bytes {
        [b'B', b'C', 0xc0, 0xde, ..] | [0xde, 0xc0, 0x17, 0x0b, ..] => ImageClass::Bitcode,
        [0x7f, b'E', b'L', b'F', ..] => ImageClass::Cubin,
        [0x50, 0xed, 0x55, 0xba, ..] => ImageClass::Fatbin,
        _ if fatbin::ptx::Header::parse(bytes).is_ok() => ImageClass::Ptx,
        _ => ImageClass::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitcode_of_a_later_release_says_so() {
        let said = "Unknown attribute kind (120) (Producer: 'LLVM99.1.0git' Reader: 'LLVM 22.1.8')";
        let text = unreadable(&[], said);
        for part in ["made by LLVM 99.1.0git", "clang 22 or older", "built with LLVM 99", "(Unknown attribute kind (120))"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for said in
            ["Invalid record (Producer: 'LLVM19.1.7' Reader: 'LLVM 22.1.8')", "Invalid record", "x (Producer: 'Other99' Reader: 'LLVM 22')"]
        {
            assert_eq!(unreadable(b"BC\xc0\xde", said), said);
        }
    }
}
