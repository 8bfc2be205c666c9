//! A first look at the files of a link, for lines without device code: as few bytes of each file are read as it takes to see that it holds
//! none. To map 300 objects of the usual size takes longer than all else that such a line needs of us.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use llvm_lto::MappedFile;
use offload_object::{Archive, FileKind, file_kind};

use super::{LinkerFlavour, Loader, Reading, read};
use crate::extract;
use crate::options::{HostCommand, ItemKind, Options};

/// What is read of every file at once: the whole of a small object. More would cost more than a second read of the few that need it.
const FIRST: usize = 4096;

/// What is kept of ELF files: enough to see what they are and what they were made for.
const HEAD: usize = 64;

/// Several threads look at the objects of a line where each gets so many: less is not worth starting one.
const OBJECTS_PER_THREAD: usize = 32;

/// More than these wait for each other in the kernel.
const MOST_THREADS: usize = 8;

/// Whether no input of a line can hold device code, that is, whether the link is the host linker's alone. False also where that takes more
/// than a glance, or where something is wrong with the inputs.
pub fn none_holds_device_code(options: &Options, host: &HostCommand, flavour: LinkerFlavour) -> bool {
    let mut loader = Loader::new(options, host, flavour, Reading::Glance);
    if loader.coff {
        return false;
    }
    let named = |item: &crate::options::HostItem| match &item.kind {
        ItemKind::Input(path) => Some(loader.input_path(path).into_owned()),
        _ => None,
    };
    let objects: Vec<PathBuf> = host.items.iter().filter_map(named).collect();
    let Some(ahead) = at_all(&objects, options.directory.as_deref()) else { return false };
    loader.ahead = ahead;
    loader.run(host).is_ok()
}

/// A glance at every object; none where one may hold device code or cannot be read.
fn at_all(objects: &[PathBuf], directory: Option<&Path>) -> Option<VecDeque<Option<MappedFile>>> {
    let ended = AtomicBool::new(false);
    let look = |objects: &[PathBuf]| {
        let one = |path: &PathBuf| {
            let seen = if ended.load(Ordering::Relaxed) { None } else { read(path, directory, Reading::Glance).ok() };
            if seen.is_none() {
                ended.store(true, Ordering::Relaxed);
            }
            seen
        };
        objects.iter().map(one).collect::<Option<Vec<_>>>()
    };
    let wanted = (objects.len() / OBJECTS_PER_THREAD).min(MOST_THREADS);
    let threads = if wanted < 2 { 1 } else { wanted.min(std::thread::available_parallelism().map_or(1, usize::from)) };
    if threads < 2 {
        return look(objects).map(VecDeque::from);
    }
    let (first, others) = objects.split_at_checked(objects.len().div_ceil(threads))?;
    std::thread::scope(|scope| {
        let started: Vec<_> = others
            .chunks(objects.len().div_ceil(threads))
            .map(|chunk| std::thread::Builder::new().spawn_scoped(scope, || look(chunk)))
            .collect();
        let mut seen = look(first).map(VecDeque::from);
        for thread in started {
            match (thread.ok().and_then(|thread| thread.join().ok().flatten()), &mut seen) {
                (Some(more), Some(seen)) => seen.extend(more),
                _ => seen = None,
            }
        }
        seen
    })
}

/// Reads of a file what shows that it holds no device code; the whole of it where that is not an ELF file.
///
/// # Errors
/// The file cannot be read, or may hold device code.
pub(super) fn at(path: &Path) -> io::Result<MappedFile> {
    let file = File::open(path)?;
    // Of a pipe, which can be read only once, this reads nothing.
    let mut buffer = [MaybeUninit::uninit(); FIRST];
    let (head, _) = rustix::io::pread(&file, &mut buffer, 0)?;
    let holds = match file_kind(head) {
        FileKind::ElfRelocatable => offload_object::may_hold_device_code(head, |offset, bytes| file.read_exact_at(bytes, offset).is_ok()),
        FileKind::ElfExecutable | FileKind::ElfShared | FileKind::Cubin => Some(false),
        _ => None,
    };
    match holds {
        Some(true) => return Err(holder()),
        Some(false) => return Ok(MappedFile::from_vec(head.get(..HEAD).unwrap_or(head).to_vec())),
        None => {}
    }
    let metadata = file.metadata()?;
    let data = MappedFile::of(path, file, &metadata)?;
    if may_hold_device_code(&data) { Err(holder()) } else { Ok(data) }
}

fn holder() -> io::Error {
    io::Error::other("may hold device code")
}

/// Whether a whole file may. The members of a thin archive are files of their own.
fn may_hold_device_code(data: &[u8]) -> bool {
    match file_kind(data) {
        FileKind::Archive => Archive::parse(data).map_or(true, |archive| {
            archive.members().any(|member| {
                let Ok(member) = member else { return true };
                member.data.is_some_and(|data| extract::kind_may_hold_device_code(file_kind(data), data))
            })
        }),
        kind => extract::kind_may_hold_device_code(kind, data),
    }
}
