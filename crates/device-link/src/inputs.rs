//! Finds the files of a host link as the host linker finds them, and maps them.
//!
//! Where linkers differ it is said. What is not found is left out: the host linker will complain about it in its own words.

mod default_libraries;
mod glance;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use llvm_lto::MappedFile;
use offload_object::{Archive, FileKind, file_kind};

use crate::error::{Context, Error, Result, bail};
use crate::options::{HostCommand, HostItem, ItemKind, ItemState, Options};
use crate::script::{self, Command, Named};

pub use glance::none_holds_device_code;

/// The host linkers that we know, by how they look for things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkerFlavour {
    /// GNU ld.
    Gnu,
    /// gold.
    Gold,
    /// LLVM's.
    Lld,
    /// mold, and wild, which does as mold does.
    Mold,
}

/// One file of the host link.
#[derive(Debug)]
pub struct InputFile {
    /// As the user would name it.
    pub path: PathBuf,
    /// Index in the host's `argv` of the word that brought it in.
    pub position: usize,
    /// What it is.
    pub kind: FileKind,
    /// Its bytes.
    pub data: MappedFile,
    /// What the options before it say about it.
    pub state: ItemState,
    /// The linker script that named it, or the object whose directive did.
    pub via: Option<PathBuf>,
    /// The members of a thin archive, in order.
    pub thin_members: Vec<ThinMember>,
}

impl InputFile {
    /// What has become of the file and of the members of a thin archive since they were opened, in words.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&Path, &'static str)> {
        self.data.change().into_iter().chain(self.thin_members.iter().filter_map(|member| member.file.change()))
    }
}

/// A member of a thin archive, which is a file of its own or a member of another archive.
#[derive(Debug)]
pub struct ThinMember {
    /// The name in the archive, relative to the archive's directory.
    pub name: Vec<u8>,
    /// Offset of its header in the archive.
    pub header_offset: u64,
    /// The file that holds its bytes.
    file: MappedFile,
    /// Where they are in it.
    range: Range<usize>,
}

impl ThinMember {
    /// Its bytes.
    pub fn data(&self) -> &[u8] {
        self.file.get(self.range.clone()).unwrap_or_default()
    }
}

/// Scripts that name scripts: GNU ld allows ten levels.
const MAX_SCRIPT_DEPTH: usize = 10;

/// Scripts of one link. Two that name each other a hundred times would be read a hundred times to the power of the depth.
const MAX_SCRIPTS: u32 = 1000;

/// Finds and maps every input, in line order.
///
/// # Errors
/// When a file that is there cannot be read, or an archive is malformed.
pub fn load(options: &Options, host: &HostCommand, flavour: LinkerFlavour) -> Result<Vec<InputFile>> {
    let mut loader = Loader::new(options, host, flavour, Reading::Whole);
    loader.run(host)?;
    Ok(loader.files)
}

/// How much of the files is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// All of it.
    Whole,
    /// As much as shows that there is no device code; that there may be some is an error.
    Glance,
}

/// Opens a file, `None` if it is not there or is a directory.
fn read(path: &Path, directory: Option<&Path>, reading: Reading) -> Result<Option<MappedFile>> {
    let full = directory.map_or(Cow::Borrowed(path), |directory| Cow::Owned(directory.join(path)));
    let opened = match reading {
        Reading::Whole => MappedFile::open(&full),
        Reading::Glance => glance::at(&full),
    };
    match opened {
        Ok(data) => Ok(Some(data)),
        Err(error) => match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory | std::io::ErrorKind::IsADirectory => Ok(None),
            _ => Err(error).context(|| format!("{}: cannot be read", path.display())),
        },
    }
}

/// The members of the thin archive at `path`, each opened by `open`; those that are not there are left out.
///
/// # Errors
/// The archive is malformed, or `open` fails.
pub(crate) fn thin_members(open: impl Fn(&Path) -> Result<Option<MappedFile>>, path: &Path, data: &[u8]) -> Result<Vec<ThinMember>> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut members = Vec::new();
    for member in Archive::parse(data).map_err(|error| damaged_archive(path, error))?.members() {
        let member = member.map_err(|error| damaged_archive(path, error))?;
        let Some(file) = open(&directory.join(OsStr::from_bytes(member.name)))? else { continue };
        let (mut name, mut range) = (member.name.to_vec(), 0..file.len());
        if let Some(offset) = member.nested {
            let inner = Archive::parse(&file).and_then(|archive| archive.member_at(offset)).map_err(|error| {
                damaged_archive(&directory.join(OsStr::from_bytes(member.name)), error).wrap(path.display().to_string())
            })?;
            let data = inner.data.unwrap_or_default();
            let start = data.as_ptr().addr().saturating_sub(file.as_ptr().addr());
            (name, range) = (inner.name.to_vec(), start..start + data.len());
        }
        members.push(ThinMember { name, header_offset: member.header_offset, file, range });
    }
    Ok(members)
}

/// What is wrong with the archive at `path`, and the way out.
pub(crate) fn damaged_archive(path: &Path, error: offload_object::Error) -> Error {
    Error::new(format!("{}: archive is damaged: {error}; build it again", path.display())).named("damaged-input")
}

struct Loader {
    flavour: LinkerFlavour,
    directory: Option<PathBuf>,
    sysroot: Option<PathBuf>,
    /// `-L`, then what scripts add.
    search_dirs: Vec<PathBuf>,
    default_dirs: Vec<PathBuf>,
    target: Option<Target>,
    files: Vec<InputFile>,
    script_groups: u32,
    scripts: u32,
    /// The host linker is link.exe or lld-link.
    coff: bool,
    reading: Reading,
    /// What was found where libraries are: a compiler names its own several times on each line.
    known: RefCell<HashMap<PathBuf, Option<MappedFile>>>,
    /// The next inputs that are named by path, where they have been read before.
    ahead: VecDeque<Option<MappedFile>>,
}

impl Loader {
    fn new(options: &Options, host: &HostCommand, flavour: LinkerFlavour, reading: Reading) -> Loader {
        let mut loader = Loader {
            flavour,
            directory: options.directory.clone(),
            sysroot: options.sysroot.clone(),
            search_dirs: Vec::new(),
            default_dirs: Vec::new(),
            target: Target::new(options.emulation.as_deref()),
            files: Vec::new(),
            script_groups: 0,
            scripts: 0,
            coff: options.host_triple.as_deref().is_some_and(crate::wrap::is_coff),
            reading,
            known: RefCell::default(),
            ahead: VecDeque::new(),
        };
        loader.search_dirs = host.search_dirs.iter().map(|dir| loader.rooted(&dir.path)).collect();
        if !options.nostdlib {
            loader.default_dirs = loader.default_dirs();
        }
        loader
    }

    fn run(&mut self, host: &HostCommand) -> Result<()> {
        self.scripts_first(&host.items)?;
        for item in &host.items {
            self.item(item)?;
        }
        if self.coff {
            self.default_libraries(host)?;
        }
        Ok(())
    }

    /// Where an input is that is named by its path.
    fn input_path<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
        match self.flavour {
            LinkerFlavour::Gnu => Cow::Owned(self.rooted(path)),
            _ => Cow::Borrowed(path),
        }
    }

    /// In GNU ld the default directories stand in the default script, which `-T` replaces unless the new script only inserts into it.
    fn scripts_first(&mut self, items: &[HostItem]) -> Result<()> {
        if self.flavour != LinkerFlavour::Gnu {
            return Ok(());
        }
        for item in items {
            let ItemKind::Script(path) = &item.kind else { continue };
            let Some((_, data)) = self.find_script(path)? else { continue };
            if !script::parse(&data).contains(&Command::Insert) {
                self.default_dirs.clear();
            }
        }
        Ok(())
    }

    fn item(&mut self, item: &HostItem) -> Result<()> {
        let place = Place { position: item.position, state: item.state, via: None, depth: 0 };
        match &item.kind {
            ItemKind::Input(path) => {
                let path = self.input_path(path).into_owned();
                let found = match self.ahead.pop_front() {
                    Some(found) => found,
                    None => read(&path, self.directory.as_deref(), self.reading)?,
                };
                match found {
                    Some(data) => self.add(path, data, &place)?,
                    None if self.coff => self.coff_library(&path, &place)?,
                    None => {}
                }
            }
            ItemKind::Library(name) => self.library(name, &place)?,
            ItemKind::LibraryFile(name) => self.library_file(name, &place)?,
            ItemKind::Script(path) => {
                if let Some((path, data)) = self.find_script(path)? {
                    self.script(path, data, &place)?;
                }
            }
        }
        Ok(())
    }

    /// Opens a file that may be wanted more than once, `None` if it is not there or is a directory.
    fn open(&self, path: &Path) -> Result<Option<MappedFile>> {
        if let Some(known) = self.known.borrow().get(path) {
            return Ok(known.clone());
        }
        let found = read(path, self.directory.as_deref(), self.reading)?;
        self.known.borrow_mut().insert(path.to_owned(), found.clone());
        Ok(found)
    }

    /// `-T` files are looked for in the current directory and then where libraries are.
    fn find_script(&self, path: &Path) -> Result<Option<(PathBuf, MappedFile)>> {
        if let Some(data) = self.open(path)? {
            return Ok(Some((path.to_owned(), data)));
        }
        if path.is_absolute() {
            return Ok(None);
        }
        for dir in self.search_dirs.iter().chain(&self.default_dirs) {
            let path = dir.join(path);
            if let Some(data) = self.open(&path)? {
                return Ok(Some((path, data)));
            }
        }
        Ok(None)
    }

    /// `-lNAME`: in each directory the shared object, then the archive.
    fn library(&mut self, name: &OsStr, place: &Place) -> Result<()> {
        let file = |suffix: &str| {
            let mut file = OsStr::new("lib").to_owned();
            file.push(name);
            file.push(suffix);
            file
        };
        let (shared, archive) = (file(".so"), file(".a"));
        let names = if place.state.static_only { vec![archive] } else { vec![shared, archive] };
        self.search(&names, place)
    }

    /// An input of link.exe without a directory is looked for in the library directories, with `.obj` where it has no extension.
    fn coff_library(&mut self, path: &Path, place: &Place) -> Result<()> {
        if path.components().count() != 1 || path.is_absolute() {
            return Ok(());
        }
        let name = if path.extension().is_none() { path.with_extension("obj") } else { path.to_owned() };
        self.search(&[name.into_os_string()], place)
    }

    /// `-l:FILE`: a file of exactly this name in any of the directories.
    fn library_file(&mut self, name: &OsStr, place: &Place) -> Result<()> {
        self.search(&[name.to_owned()], place)
    }

    fn search(&mut self, names: &[std::ffi::OsString], place: &Place) -> Result<()> {
        let dirs: Vec<PathBuf> = self.search_dirs.iter().chain(&self.default_dirs).cloned().collect();
        for dir in dirs {
            for name in names {
                let path = dir.join(name);
                let Some(data) = self.open(&path)? else { continue };
                // "skipping incompatible libfoo.so when searching for -lfoo": all but lld go on looking.
                if self.flavour == LinkerFlavour::Lld || self.is_compatible(&data) {
                    return self.add(path, data, place);
                }
            }
        }
        Ok(())
    }

    fn is_compatible(&self, data: &[u8]) -> bool {
        let Some(wanted) = self.target else { return true };
        match file_kind(data) {
            FileKind::Archive => {
                let Ok(archive) = Archive::parse(data) else { return true };
                let mut found = archive.members().filter_map(|member| Target::of_elf(member.ok()?.data?));
                found.next().is_none_or(|target| target == wanted)
            }
            _ => Target::of_elf(data).is_none_or(|target| target == wanted),
        }
    }

    /// A file that was found: taken down, or followed if it is a script.
    fn add(&mut self, path: PathBuf, data: MappedFile, place: &Place) -> Result<()> {
        let kind = file_kind(&data);
        if kind == FileKind::Text {
            return self.script(path, data, place);
        }
        let thin_members = if kind == FileKind::ThinArchive { thin_members(|path| self.open(path), &path, &data)? } else { Vec::new() };
        self.push(path, kind, data, place, thin_members);
        Ok(())
    }

    /// Takes a file down. After a glance nobody asks for them.
    fn push(&mut self, path: PathBuf, kind: FileKind, data: MappedFile, place: &Place, thin_members: Vec<ThinMember>) {
        if self.reading == Reading::Whole {
            let (position, state, via) = (place.position, place.state, place.via.clone());
            self.files.push(InputFile { path, position, kind, data, state, via, thin_members });
        }
    }

    /// Follows a script. It stands in the list itself, before what it names, because it can make symbols undefined.
    fn script(&mut self, path: PathBuf, data: MappedFile, place: &Place) -> Result<()> {
        if place.depth >= MAX_SCRIPT_DEPTH {
            return Ok(());
        }
        self.scripts += 1;
        if self.scripts > MAX_SCRIPTS {
            bail!("{}: there are too many linker scripts, or some that name each other", path.display());
        }
        let commands = script::parse(&data);
        let script = path.clone();
        self.push(path, FileKind::Text, data, place, Vec::new());
        let place = Place { position: place.position, state: place.state, via: Some(script.clone()), depth: place.depth + 1 };
        for command in commands {
            match command {
                Command::Input(names) => self.named(&names, &script, &place)?,
                Command::Group(names) => {
                    let mut place = place.clone();
                    if place.state.group.is_none() {
                        // Numbers from the other end than those of the line.
                        place.state.group = Some(u32::MAX - self.script_groups);
                        self.script_groups += 1;
                    }
                    self.named(&names, &script, &place)?;
                }
                Command::SearchDir(dir) => {
                    let dir = self.rooted(Path::new(&dir));
                    self.search_dirs.push(dir);
                }
                Command::Include(file) => {
                    if let Some((path, data)) = self.find_script(Path::new(&file))? {
                        self.script(path, data, &place)?;
                    }
                }
                Command::Extern(_) | Command::Entry(_) | Command::Insert => {}
            }
        }
        Ok(())
    }

    fn named(&mut self, names: &[Named], script: &Path, place: &Place) -> Result<()> {
        for named in names {
            let mut place = place.clone();
            place.state.as_needed |= named.as_needed;
            let bytes = named.name.as_bytes();
            if let Some(file) = bytes.strip_prefix(b"-l:") {
                self.library_file(OsStr::from_bytes(file), &place)?;
            } else if let Some(name) = bytes.strip_prefix(b"-l") {
                self.library(OsStr::from_bytes(name), &place)?;
            } else if let Some((path, data)) = self.find_named(Path::new(&named.name), script)? {
                self.add(path, data, &place)?;
            }
        }
        Ok(())
    }

    /// A file named in a script: under the sysroot if it is forced (`=`) or if the name is absolute and the script lies there; otherwise
    /// beside the script, in the current directory, in the library directories.
    fn find_named(&self, name: &Path, script: &Path) -> Result<Option<(PathBuf, MappedFile)>> {
        let mut candidates = Vec::new();
        if is_rooted(name) {
            candidates.push(self.rooted(name));
        } else if name.is_absolute() {
            if let Some(sysroot) = self.sysroot.as_ref().filter(|sysroot| lies_in(script, sysroot)) {
                candidates.push(join_root(sysroot, name));
            }
            candidates.push(name.to_owned());
        } else {
            candidates.extend(script.parent().map(|dir| dir.join(name)));
            candidates.push(name.to_owned());
            candidates.extend(self.search_dirs.iter().chain(&self.default_dirs).map(|dir| dir.join(name)));
        }
        for path in candidates {
            if let Some(data) = self.open(&path)? {
                return Ok(Some((path, data)));
            }
        }
        Ok(None)
    }

    /// Puts the sysroot in the place of a leading `=` or `$SYSROOT`.
    fn rooted(&self, path: &Path) -> PathBuf {
        let bytes = path.as_os_str().as_bytes();
        let rest = bytes.strip_prefix(b"=").or_else(|| bytes.strip_prefix(b"$SYSROOT"));
        match (rest, &self.sysroot) {
            (Some(rest), Some(sysroot)) => join_root(sysroot, Path::new(OsStr::from_bytes(rest))),
            (Some(rest), None) => PathBuf::from(OsStr::from_bytes(rest)),
            (None, _) => path.to_owned(),
        }
    }

    /// Where GNU ld and gold look without being told. lld and mold look nowhere else than on the line.
    ///
    /// The lists are compiled into the linkers and differ between distributions; these are Debian's and Ubuntu's, then what Fedora, SUSE
    /// and Arch add. A directory that does not exist costs one failed look-up per library.
    fn default_dirs(&self) -> Vec<PathBuf> {
        let (multiarch, bits64) = match self.target {
            Some(Target { machine: EM_X86_64, is_64: true, .. }) => ("x86_64-linux-gnu", true),
            Some(Target { machine: EM_X86_64, .. }) => ("x86_64-linux-gnux32", false),
            Some(Target { machine: EM_386, .. }) => ("i386-linux-gnu", false),
            Some(Target { machine: EM_AARCH64, .. }) => ("aarch64-linux-gnu", true),
            Some(Target { machine: EM_PPC64, little_endian: true, .. }) => ("powerpc64le-linux-gnu", true),
            Some(Target { machine: EM_RISCV, is_64: true, .. }) => ("riscv64-linux-gnu", true),
            Some(Target { machine: EM_S390, is_64: true, .. }) => ("s390x-linux-gnu", true),
            _ => ("", true),
        };
        let mut dirs: Vec<String> = Vec::new();
        match self.flavour {
            LinkerFlavour::Lld | LinkerFlavour::Mold => return Vec::new(),
            LinkerFlavour::Gnu => {
                if !multiarch.is_empty() {
                    dirs.extend(["/usr/local/lib", "/lib", "/usr/lib"].map(|dir| format!("{dir}/{multiarch}")));
                }
                if bits64 {
                    dirs.extend(["/usr/local/lib64", "/lib64", "/usr/lib64"].map(String::from));
                }
                dirs.extend(["/usr/local/lib", "/lib", "/usr/lib"].map(String::from));
                let cpu = multiarch.split('-').next().unwrap_or_default();
                for vendor in
                    [multiarch.to_owned(), format!("{cpu}-redhat-linux"), format!("{cpu}-suse-linux"), format!("{cpu}-pc-linux-gnu")]
                {
                    dirs.extend(["lib64", "lib"].map(|lib| format!("/usr/{vendor}/{lib}")));
                }
            }
            LinkerFlavour::Gold => {
                if !multiarch.is_empty() {
                    dirs.extend(["/lib", "/usr/lib"].map(|dir| format!("{dir}/{multiarch}")));
                }
                dirs.extend(["/lib", "/usr/lib"].map(String::from));
                if bits64 {
                    dirs.extend(["/lib64", "/usr/lib64"].map(String::from));
                }
            }
        }
        let root = |dir: String| self.sysroot.as_ref().map_or_else(|| PathBuf::from(&dir), |sysroot| join_root(sysroot, Path::new(&dir)));
        dirs.into_iter().map(root).collect()
    }
}

/// Where an input stands.
#[derive(Debug, Clone)]
struct Place {
    position: usize,
    state: ItemState,
    via: Option<PathBuf>,
    depth: usize,
}

const EM_386: u16 = 3;
const EM_PPC64: u16 = 21;
const EM_S390: u16 = 22;
const EM_ARM: u16 = 40;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;
const EM_RISCV: u16 = 243;
const EM_LOONGARCH: u16 = 258;

/// What the link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target {
    machine: u16,
    is_64: bool,
    little_endian: bool,
}

impl Target {
    /// The target of a `-m` emulation, the machine's own without one; `None` for emulations that we do not know.
    fn new(emulation: Option<&str>) -> Option<Target> {
        let elf = |machine, is_64, little_endian| Some(Target { machine, is_64, little_endian });
        match emulation {
            Some("elf_x86_64" | "elf_x86_64_fbsd") => elf(EM_X86_64, true, true),
            Some("elf32_x86_64") => elf(EM_X86_64, false, true),
            Some("elf_i386" | "elf_i386_fbsd") => elf(EM_386, false, true),
            Some("aarch64linux" | "aarch64elf" | "aarch64fbsd") => elf(EM_AARCH64, true, true),
            Some("aarch64linuxb" | "aarch64elfb") => elf(EM_AARCH64, true, false),
            Some("armelf_linux_eabi" | "armelf") => elf(EM_ARM, false, true),
            Some("elf64lppc") => elf(EM_PPC64, true, true),
            Some("elf64ppc") => elf(EM_PPC64, true, false),
            Some("elf64lriscv") => elf(EM_RISCV, true, true),
            Some("elf64_s390") => elf(EM_S390, true, false),
            Some("elf64loongarch") => elf(EM_LOONGARCH, true, true),
            Some(_) => None,
            None if cfg!(target_arch = "x86_64") => elf(EM_X86_64, true, true),
            None if cfg!(target_arch = "aarch64") => elf(EM_AARCH64, true, true),
            None => None,
        }
    }

    /// The target of an ELF file; `None` for everything else.
    fn of_elf(data: &[u8]) -> Option<Target> {
        let header = data.get(..20).filter(|header| header.starts_with(b"\x7fELF"))?;
        let little_endian = header[5] == 1;
        let machine = [header[18], header[19]];
        let machine = if little_endian { u16::from_le_bytes(machine) } else { u16::from_be_bytes(machine) };
        Some(Target { machine, is_64: header[4] == 2, little_endian })
    }
}

fn is_rooted(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.starts_with(b"=") || bytes.starts_with(b"$SYSROOT")
}

/// `root` and `path`, which may be absolute, as one path.
fn join_root(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Whether a script lies under the sysroot, symbolic links resolved.
fn lies_in(script: &Path, sysroot: &Path) -> bool {
    match (script.canonicalize(), sysroot.canonicalize()) {
        (Ok(script), Ok(sysroot)) => script.starts_with(sysroot),
        _ => false,
    }
}
