//! From a file's bytes to the report: finds device code wherever it lies, and reads it.

use super::report::{Container, ContainerKind, Entry, EntryImage, File, Image, ImageKind, Kernel, Offload, Part, Ptx, Resources, Variable};
use device_link::error::io_text;
use fatbin::cubin::{Cubin, Space, SymbolKind};
use fatbin::{Kind, SECTION_FATBIN, SECTION_RELOCATABLE_FATBIN, ptx};
use offload_object::{Archive, EntryFlags, FileKind, HostObject, OffloadImage, VariableKind, file_kind};
use std::collections::BTreeSet;
use std::path::Path;

/// Where fat binaries lie in host files, and what kind is in which; `ld` names the large twin `.lnv_fatbin`.
const FATBIN_SECTIONS: [(&str, ContainerKind); 3] = [
    (SECTION_FATBIN, ContainerKind::Fatbin),
    (".lnv_fatbin", ContainerKind::Fatbin),
    (SECTION_RELOCATABLE_FATBIN, ContainerKind::RelocatableFatbin),
];

/// Reads the file at `path`, and the members that it only names if it is a thin archive.
///
/// # Errors
/// If the file cannot be read, or is a damaged archive, cubin, fat binary or offload binary.
pub(crate) fn gather(path: &Path, demangle: bool) -> Result<File, String> {
    let bytes = std::fs::read(path).map_err(|error| io_text(&error))?;
    let mut gatherer = Gatherer { demangle, file: File::default(), member: None };
    gatherer.file.path = path.display().to_string();
    gatherer.file.size = bytes.len() as u64;
    gatherer.file.format = gatherer.add_file(&bytes, path)?;
    match_entries(&mut gatherer.file);
    Ok(gatherer.file)
}

/// Looks up every host entry in the images.
///
/// Which of several containers an entry belongs to is only in the host's code. It is taken to be the first that has it in any image; an
/// entry that no container has is missing in all of them.
pub(crate) fn match_entries(file: &mut File) {
    for entry in &mut file.entries {
        // In an archive, an entry belongs to the containers of its member.
        let numbered = file.containers.iter().enumerate();
        let candidates: Vec<_> = numbered.filter(|(_, container)| container.member == entry.member).collect();
        let has = |image: &Image| image.defined.as_ref().is_some_and(|names| names.contains(&entry.name));
        let home = candidates.iter().find(|(_, container)| container.images.iter().any(has));
        let looked_at = match home {
            Some(home) => std::slice::from_ref(home),
            None => &candidates[..],
        };
        for (container, content) in looked_at {
            for (image, content) in content.images.iter().enumerate().filter(|(_, image)| image.defined.is_some()) {
                entry.images.push(EntryImage { container: *container, image, found: has(content) });
            }
        }
    }
}

struct Gatherer {
    demangle: bool,
    file: File,
    /// The archive member at hand.
    member: Option<String>,
}

impl Gatherer {
    /// Adds what is in `bytes` and says what they are.
    fn add_file(&mut self, bytes: &[u8], path: &Path) -> Result<String, String> {
        let kind = file_kind(bytes);
        Ok(match kind {
            FileKind::Archive | FileKind::ThinArchive => {
                let members = self.add_archive(bytes, path)?;
                let thin = if kind == FileKind::ThinArchive { "thin " } else { "" };
                format!("{thin}archive, {}", count(members, "member"))
            }
            FileKind::ElfRelocatable | FileKind::ElfExecutable | FileKind::ElfShared | FileKind::Coff => self.add_host(bytes, kind)?,
            FileKind::Cubin => {
                let image = self.cubin_image(bytes);
                if let Some(problem) = image.problem {
                    return Err(problem);
                }
                let format = if image.relocatable { "relocatable cubin" } else { "cubin" };
                self.add_container(ContainerKind::Image, None, 0, vec![image]);
                format.to_owned()
            }
            FileKind::Fatbin => {
                self.add_fatbins(ContainerKind::Fatbin, None, bytes)?;
                "fat binary".to_owned()
            }
            FileKind::OffloadBinary => {
                self.add_offload(None, bytes)?;
                "offload binary".to_owned()
            }
            FileKind::Text if ptx::Header::parse(bytes).is_ok() => {
                let image = self.ptx_image(bytes);
                self.add_container(ContainerKind::Image, None, 0, vec![image]);
                "ptx".to_owned()
            }
            FileKind::Bitcode => self.add_bitcode(bytes)?,
            FileKind::Empty => "empty file".to_owned(),
            FileKind::Text => "text".to_owned(),
            FileKind::Unknown => {
                // A format of another system, such as a Windows program: look for the magic.
                let found: Vec<_> =
                    fatbin::containers(bytes).filter_map(|(offset, container)| Some((offset, container.ok()?.entries().ok()?))).collect();
                for (offset, entries) in found {
                    let images = entries.iter().flat_map(|entry| self.entry_images(entry)).collect();
                    self.add_container(ContainerKind::Fatbin, None, offset, images);
                }
                "file of an unknown format".to_owned()
            }
        })
    }

    fn add_archive(&mut self, bytes: &[u8], path: &Path) -> Result<usize, String> {
        let archive = Archive::parse(bytes).map_err(|error| error.to_string())?;
        let mut members = 0;
        for member in archive.members() {
            let member = member.map_err(|error| error.to_string())?;
            let mut name = String::from_utf8_lossy(member.name).into_owned();
            members += 1;
            let outside;
            let data = match member.data {
                Some(data) => data,
                None => match std::fs::read(path.parent().unwrap_or(Path::new("")).join(&name)) {
                    Ok(data) => {
                        outside = data;
                        &outside
                    }
                    Err(error) => {
                        self.file.problems.push(format!("{name}: {error}"));
                        continue;
                    }
                },
            };
            let mut data = data;
            if let Some(offset) = member.nested {
                match Archive::parse(data).and_then(|archive| archive.member_at(offset)) {
                    Ok(inner) => {
                        name = format!("{name}({})", String::from_utf8_lossy(inner.name));
                        data = inner.data.unwrap_or_default();
                    }
                    Err(error) => {
                        self.file.problems.push(format!("{name}: {error}"));
                        continue;
                    }
                }
            }
            self.file.parts.push(Part { name: name.clone(), size: data.len() as u64 });
            self.member = Some(name.clone());
            // An archive in an archive is not looked into: linkers do not either.
            let is_archive = matches!(file_kind(data), FileKind::Archive | FileKind::ThinArchive);
            if !is_archive && let Err(error) = self.add_file(data, path) {
                self.file.problems.push(format!("{name}: {error}"));
            }
            self.member = None;
        }
        Ok(members)
    }

    fn add_host(&mut self, bytes: &[u8], kind: FileKind) -> Result<String, String> {
        let object = HostObject::parse(bytes).map_err(|error| error.to_string())?;
        if self.member.is_none() {
            self.file.parts = object.section_sizes().into_iter().map(|(name, size)| Part { name, size }).collect();
        }
        for section in object.offload_sections().map_err(|error| error.to_string())? {
            self.add_offload(Some(offload_object::OFFLOAD_SECTION), section)?;
        }
        for (name, container) in FATBIN_SECTIONS {
            if let Some(section) = object.section_named(name) {
                self.add_fatbins(container, Some(name), section)?;
            }
        }
        let relocatable = matches!(kind, FileKind::ElfRelocatable | FileKind::Coff);
        let mut entries = Vec::new();
        let found = if relocatable {
            object.entries().map(|found| entries.extend(found.iter().map(|e| (e.name.to_vec(), e.flags, e.size, e.is_kernel()))))
        } else {
            offload_object::linked_entries(bytes)
                .map(|found| entries.extend(found.into_iter().map(|e| (e.name.clone(), e.flags, e.size, e.is_kernel()))))
        };
        if let Err(error) = found {
            self.file.problems.push(error.to_string());
        }
        self.add_entries(entries);
        let machine = object.target().arch_name().unwrap_or("unknown machine");
        Ok(match kind {
            FileKind::ElfRelocatable => format!("{machine} elf object"),
            FileKind::ElfExecutable => format!("{machine} elf program"),
            // Only programs name the dynamic linker that starts them; a static one that can be moved does not.
            FileKind::ElfShared if object.section_named(".interp").is_some() => format!("{machine} elf program"),
            FileKind::ElfShared => format!("{machine} elf shared object"),
            _ => format!("{machine} coff object"),
        })
    }

    /// Host code in bitcode (`-flto`) carries device code as an object does; device bitcode is code for itself.
    fn add_bitcode(&mut self, bytes: &[u8]) -> Result<String, String> {
        let host = device_link::read_host_bitcode(bytes).map_err(|error| error.to_string())?;
        for section in &host.offload_sections {
            self.add_offload(Some(offload_object::OFFLOAD_SECTION), section)?;
        }
        let entries = host.entries.into_iter();
        self.add_entries(entries.map(|e| (e.name.into_bytes(), EntryFlags(e.flags), e.size, e.size == 0)).collect());
        let target = if host.triple.is_empty() { String::new() } else { format!(" for {}", host.triple) };
        Ok(format!("llvm bitcode{target}"))
    }

    fn add_entries(&mut self, mut entries: Vec<(Vec<u8>, EntryFlags, u64, bool)>) {
        // Each unit that instantiates a template brings an entry of its own for it.
        let mut seen = BTreeSet::new();
        entries.retain(|(name, ..)| seen.insert(name.clone()));
        for (name, flags, size, is_kernel) in entries {
            let name = String::from_utf8_lossy(&name).into_owned();
            self.file.entries.push(Entry {
                member: self.member.clone(),
                demangled: self.demangled(&name),
                name,
                kind: if is_kernel { "kernel" } else { variable_kind(flags) },
                size,
                images: Vec::new(),
            });
        }
    }

    /// The containers of a section or of a whole file.
    fn add_fatbins(&mut self, kind: ContainerKind, section: Option<&str>, bytes: &[u8]) -> Result<(), String> {
        for (offset, container) in fatbin::section_containers(bytes) {
            let place = || section.map_or(format!("at {offset:#x}"), |section| format!("section {section} at {offset:#x}"));
            let entries = container.and_then(|container| container.entries()).map_err(|error| format!("{}: {error}", place()))?;
            let mut images: Vec<_> = entries.iter().flat_map(|entry| self.entry_images(entry)).collect();
            if kind == ContainerKind::RelocatableFatbin {
                images.iter_mut().for_each(|image| image.relocatable = true);
            }
            self.add_container(kind, section, offset, images);
        }
        Ok(())
    }

    fn add_offload(&mut self, section: Option<&str>, bytes: &[u8]) -> Result<(), String> {
        let images = offload_object::parse_section(bytes)
            .map_err(|error| section.map_or(error.to_string(), |section| format!("section {section}: {error}")))?;
        let images: Vec<_> = images.iter().flat_map(|image| self.offload_images(image)).collect();
        self.add_container(ContainerKind::Offload, section, 0, images);
        Ok(())
    }

    fn add_container(&mut self, kind: ContainerKind, section: Option<&str>, offset: usize, images: Vec<Image>) {
        let section = section.map(str::to_owned);
        self.file.containers.push(Container { kind, member: self.member.clone(), section, offset, images });
    }

    /// The images of an entry: one, but for concatenated ones.
    fn entry_images(&self, entry: &fatbin::Entry<'_>) -> Vec<Image> {
        let payload = entry.payload();
        let from_header = |image: &mut Image, kind: Kind, arch: fatbin::Arch, flags: fatbin::Flags, version: (u16, u16)| {
            image.kind = image_kind(kind);
            image.arch = arch.to_string();
            image.target = Some(arch);
            image.debug = flags.contains(fatbin::Flags::DEBUG);
            image.mercury = flags.contains(fatbin::Flags::MERCURY);
            image.relocatable |= kind == Kind::RelocatablePtx;
            if kind.is_ptx() {
                image.ptx = Some(ptx_needs(ptx::Version::new(version.0, version.1)));
            }
        };
        if entry.kind != Kind::Concat {
            let mut image = match &payload {
                Ok(payload) => self.payload_image(entry.kind, payload),
                Err(error) => Image { problem: Some(error.to_string()), ..Image::default() },
            };
            from_header(&mut image, entry.kind, entry.arch, entry.flags, entry.version);
            image.compression = entry.compression.name();
            image.stored_size = entry.stored.len() as u64;
            image.size = entry.uncompressed_size;
            image.ident = entry.ident.as_deref().map(str::to_owned);
            image.options = entry.options.as_deref().filter(|text| !text.is_empty()).map(str::to_owned);
            return vec![image];
        }
        let (parts, payload) = match entry.parts().and_then(|parts| Ok((parts, payload?))) {
            Ok(both) => both,
            Err(error) => {
                return vec![Image { compression: "concatenated", problem: Some(error.to_string()), ..Image::default() }];
            }
        };
        parts
            .iter()
            .map(|part| {
                let range = part.offset as usize..part.offset.saturating_add(part.size) as usize;
                let mut image = self.payload_image(part.kind, payload.get(range).unwrap_or_default());
                from_header(&mut image, part.kind, part.arch, part.flags, part.version);
                image.compression = "concatenated";
                image.size = part.size;
                image.ident = part.ident.as_deref().map(str::to_owned);
                image.options = part.options.as_deref().filter(|text| !text.is_empty()).map(str::to_owned);
                image
            })
            .collect()
    }

    fn payload_image(&self, kind: Kind, payload: &[u8]) -> Image {
        match kind {
            Kind::Elf => self.cubin_image(payload),
            Kind::Ptx | Kind::RelocatablePtx => self.ptx_image(payload),
            Kind::Nvvm | Kind::Concat | Kind::Other(_) => Image::default(),
        }
    }

    /// The images of an LLVM offload binary: one, but for fat binaries.
    fn offload_images(&self, offload: &OffloadImage<'_>) -> Vec<Image> {
        let bytes = &*offload.image;
        let mut images = match file_kind(bytes) {
            FileKind::Cubin => vec![self.cubin_image(bytes)],
            FileKind::Fatbin => match fatbin::read(bytes) {
                Ok(entries) => entries.iter().flat_map(|entry| self.entry_images(entry)).collect(),
                Err(error) => vec![Image { problem: Some(error.to_string()), ..Image::default() }],
            },
            FileKind::Bitcode => vec![Image { kind: ImageKind::Bitcode, ..Image::default() }],
            FileKind::Text if ptx::Header::parse(bytes).is_ok() => vec![self.ptx_image(bytes)],
            _ => vec![Image::default()],
        };
        for image in &mut images {
            if image.size == 0 {
                image.size = bytes.len() as u64;
                image.stored_size = bytes.len() as u64;
                image.compression = "stored";
            }
            // The linker goes by what the container says.
            if !offload.arch().is_empty() {
                image.arch = offload.arch().to_owned();
                image.target = offload.arch().parse().ok();
            }
            let metadata = offload.strings.iter().filter(|(key, _)| key != "triple" && key != "arch");
            image.offload = Some(Offload {
                version: offload.version,
                triple: offload.triple().to_owned(),
                producers: offload.offload_kind.names().collect(),
                metadata: metadata.map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            });
        }
        images
    }

    fn cubin_image(&self, bytes: &[u8]) -> Image {
        let size = bytes.len() as u64;
        let mut image = Image { kind: ImageKind::Cubin, compression: "stored", size, stored_size: size, ..Image::default() };
        let read = Cubin::parse(bytes).and_then(|cubin| Ok((cubin.kernels()?, cubin)));
        let (kernels, cubin) = match read {
            Ok(both) => both,
            Err(error) => {
                image.problem = Some(error.to_string());
                return image;
            }
        };
        image.arch = cubin.arch().to_string();
        image.target = Some(cubin.arch());
        image.relocatable = cubin.is_relocatable();
        image.mercury = cubin.is_mercury();
        image.kernels = kernels
            .into_iter()
            .map(|kernel| Kernel {
                demangled: self.demangled(kernel.name),
                name: kernel.name.to_owned(),
                resources: Some(Resources {
                    registers: kernel.registers,
                    max_registers: kernel.max_registers,
                    spill_stores: kernel.spills.map(|spills| spills.stores),
                    spill_loads: kernel.spills.map(|spills| spills.loads),
                    stack: kernel.stack,
                    shared: kernel.shared,
                    constants: kernel.constants,
                    parameters: kernel.parameters,
                    code: kernel.code,
                    barriers: kernel.barriers,
                    max_threads: kernel.max_threads,
                    required_threads: kernel.required_threads,
                    cluster: kernel.cluster,
                }),
            })
            .collect();
        image.variables = cubin
            .variables()
            .map(|symbol| Variable {
                demangled: self.demangled(symbol.name),
                name: symbol.name.to_owned(),
                memory: if symbol.kind == SymbolKind::Variable(Space::Constant) { "constant" } else { "global" },
                size: Some(symbol.size),
            })
            .collect();
        image.sections = sections(&cubin, size);
        let textures = cubin.symbols().iter().filter(|symbol| symbol.kind == SymbolKind::Texture);
        image.defined = Some(defined_names(&image, textures.map(|symbol| symbol.name)));
        image
    }

    fn ptx_image(&self, bytes: &[u8]) -> Image {
        let size = bytes.len() as u64;
        let mut image = Image { kind: ImageKind::Ptx, compression: "stored", size, stored_size: size, ..Image::default() };
        match ptx::Header::parse(bytes) {
            Ok(header) => {
                image.arch = header.target.to_string();
                image.target = Some(header.target);
                image.debug = header.debug;
                image.ptx = Some(ptx_needs(header.version));
            }
            Err(error) => {
                image.problem = Some(error.to_string());
                return image;
            }
        }
        for symbol in ptx::symbols(bytes).into_iter().filter(|symbol| symbol.defined) {
            let (name, demangled) = (symbol.name.to_owned(), self.demangled(symbol.name));
            let memory = match symbol.kind {
                ptx::SymbolKind::Entry => {
                    image.kernels.push(Kernel { name, demangled, resources: None });
                    continue;
                }
                ptx::SymbolKind::Global => "global",
                ptx::SymbolKind::Constant => "constant",
                ptx::SymbolKind::Function | ptx::SymbolKind::Shared => continue,
            };
            image.variables.push(Variable { name, demangled, memory, size: None });
        }
        image.defined = Some(defined_names(&image, std::iter::empty()));
        image
    }

    fn demangled(&self, name: &str) -> Option<String> {
        if self.demangle { device_link::names::demangled(name) } else { None }
    }
}

fn defined_names<'a>(image: &'a Image, others: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let kernels = image.kernels.iter().map(|kernel| kernel.name.as_str());
    let variables = image.variables.iter().map(|variable| variable.name.as_str());
    kernels.chain(variables).chain(others).map(str::to_owned).collect()
}

/// The sections of a cubin of `size` bytes by what they hold, with a last one for headers and padding, so that the sum is the cubin.
fn sections(cubin: &Cubin, size: u64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut add = |name: &str, size: u64| match parts.iter_mut().find(|part| part.name == name) {
        Some(part) => part.size += size,
        None => parts.push(Part { name: name.to_owned(), size }),
    };
    let mut rest = size;
    for section in cubin.sections().iter().filter(|section| !section.data.is_empty()) {
        let size = section.data.len() as u64;
        rest = rest.saturating_sub(size);
        add(&section_kind(section.name), size);
    }
    add("headers and padding", rest);
    parts
}

/// A section's name without that of the function it belongs to: `.text.k` is `.text`, `.nv.constant0.k` is `.nv.constant0`.
fn section_kind(name: &str) -> String {
    for relocations in [".rela", ".rel"] {
        if let Some(section) = name.strip_prefix(relocations).filter(|section| section.starts_with('.')) {
            return format!("{relocations}{}", section_kind(section));
        }
    }
    for copy in [".nv.capmerc", ".nv.merc"] {
        if let Some(section) = name.strip_prefix(copy).filter(|section| section.starts_with('.')) {
            return format!("{copy}{}", section_kind(section));
        }
    }
    if let Some(constants) = name.strip_prefix(".nv.constant") {
        return format!(".nv.constant{}", constants.split('.').next().unwrap_or_default());
    }
    let kinds = [".text", ".nv.info", ".nv.shared", ".nv.local"];
    let kind = kinds.into_iter().find(|kind| name.strip_prefix(kind).is_some_and(|rest| rest.starts_with('.')));
    kind.unwrap_or(name).to_owned()
}

fn image_kind(kind: Kind) -> ImageKind {
    match kind {
        Kind::Ptx | Kind::RelocatablePtx => ImageKind::Ptx,
        Kind::Elf => ImageKind::Cubin,
        Kind::Nvvm => ImageKind::Nvvm,
        Kind::Concat | Kind::Other(_) => ImageKind::Other,
    }
}

fn ptx_needs(version: ptx::Version) -> Ptx {
    let release = version.release();
    Ptx { version: version.to_string(), cuda: release.map(|release| release.cuda), driver: release.and_then(|release| release.driver) }
}

fn variable_kind(flags: EntryFlags) -> &'static str {
    match flags.variable_kind() {
        VariableKind::Managed => "managed",
        VariableKind::Surface => "surface",
        VariableKind::Texture => "texture",
        VariableKind::Global if flags.is_constant() => "constant",
        VariableKind::Global | VariableKind::Other(_) => "variable",
    }
}

/// `1 member`, `2 members`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
