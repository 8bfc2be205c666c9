//! Files between the stages. They live in one private directory under TMPDIR that is gone after success, failure and signals; with
//! `--save-temps` they are written beside the output instead, named after it, and stay.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::diagnostics::Diagnostics;
use crate::error::{Context, Error, Result};

/// What to remove, and an output to check, when a signal ends the program.
static CLEANUP: Mutex<Cleanup> = Mutex::new(Cleanup { dirs: Vec::new(), files: BTreeSet::new(), output: None, ended: false });

/// Bits of a mode: a directory in which only the owner of a file may remove it.
const STICKY: u32 = 0o1000;

/// Whom the system shows as the owner where the real one has no number here, as in containers.
const NOBODY: u32 = 65534;

struct Cleanup {
    /// Each is open: where no more files can be opened, it can be removed all the same once this one is closed.
    dirs: Vec<(PathBuf, File)>,
    files: BTreeSet<PathBuf>,
    output: Option<(PathBuf, Option<Stamp>)>,
    /// The program is about to end: nothing is made any more.
    ended: bool,
}

/// The list, for one who is about to make something. What is made while it is held is on it, or is not made at all.
fn cleanup() -> MutexGuard<'static, Cleanup> {
    let cleanup = CLEANUP.lock().unwrap_or_else(PoisonError::into_inner);
    if cleanup.ended {
        drop(cleanup);
        loop {
            std::thread::park();
        }
    }
    cleanup
}

/// What tells a file that a host linker has begun to write from the one that was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        metadata.is_file().then(|| Stamp {
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// Where one link keeps its intermediate files.
#[derive(Debug)]
pub struct Temps {
    dir: OnceLock<tempfile::TempDir>,
    creating: Mutex<()>,
    /// With `--save-temps`: the output's path, which the files are named after.
    beside: Option<PathBuf>,
    dry: bool,
}

impl Temps {
    /// `beside` is the output where files are to be kept; `dry` makes up names and writes nothing.
    pub fn new(beside: Option<&Path>, dry: bool) -> Temps {
        Temps { dir: OnceLock::new(), creating: Mutex::new(()), beside: beside.map(Path::to_owned), dry }
    }

    /// The path of an intermediate file with this suffix, `sm_90.ptx` for instance. Suffixes are unique within a link.
    pub fn path(&self, suffix: &str) -> Result<PathBuf> {
        if let Some(output) = &self.beside {
            let mut name = OsString::from(output);
            name.push(".");
            name.push(suffix);
            let path = PathBuf::from(name);
            // Output directories may be everyone's, and these names can be foreseen.
            if std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink() && !is_ours(&metadata)) {
                return Err(Error::new(format!(
                    "{}: is a symbolic link of another user, which --save-temps does not follow",
                    path.display()
                )));
            }
            return Ok(path);
        }
        if self.dry {
            return Ok(std::env::temp_dir().join(format!("warplink.{suffix}")));
        }
        Ok(self.directory()?.join(suffix))
    }

    /// Writes an intermediate file and returns its path.
    pub fn write(&self, suffix: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.path(suffix)?;
        if !self.dry {
            let mode = if self.beside.is_some() { 0o666 } else { 0o600 };
            let open = || OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&path);
            open().and_then(|mut file| file.write_all(bytes)).context(|| format!("{}: cannot be written", path.display()))?;
        }
        Ok(path)
    }

    /// Keeps a copy of something that no other program reads, where the user wants to see intermediate files.
    pub fn keep(&self, suffix: &str, bytes: impl FnOnce() -> Result<Vec<u8>>) -> Result<()> {
        if self.beside.is_some() {
            self.write(suffix, &bytes()?)?;
        }
        Ok(())
    }

    /// A directory in which a file is found under another name than its own. Several jobs may ask for the same one.
    pub fn directory_with_link(&self, suffix: &str, name: &str, file: &Path) -> Result<PathBuf> {
        let directory = self.path(suffix)?;
        if self.dry {
            return Ok(directory);
        }
        let link = directory.join(name);
        let failed = || format!("{}: cannot be made", link.display());
        std::fs::create_dir_all(link.parent().unwrap_or(&directory)).context(failed)?;
        match std::os::unix::fs::symlink(file, &link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error).context(failed),
            _ => Ok(directory),
        }
    }

    /// Whether intermediate files are kept.
    pub fn keeps(&self) -> bool {
        self.beside.is_some()
    }

    /// Says where temporary files go if that is not where the user wants them.
    pub fn warn_of_place(&self, diagnostics: &Diagnostics) {
        if self.beside.is_none()
            && !self.dry
            && let Ok((_, Some(warning))) = place()
        {
            diagnostics.warn("foreign-directory", &warning);
        }
    }

    fn directory(&self) -> Result<&Path> {
        let _guard = self.creating.lock();
        if let Some(dir) = self.dir.get() {
            return Ok(dir.path());
        }
        let (parent, _) = place()?;
        let failed = || format!("{}: cannot make a directory for temporary files (TMPDIR chooses the place)", parent.display());
        let mut cleanup = cleanup();
        let private = std::fs::Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new().prefix("warplink-").permissions(private.clone()).tempdir_in(&parent).context(failed)?;
        // The umask may have taken rights that we need ourselves.
        std::fs::set_permissions(dir.path(), private).context(failed)?;
        let open = match File::open(dir.path()) {
            Ok(open) => open,
            Err(error) => {
                // `TempDir` would open it to remove it, but it is still empty.
                let _ = std::fs::remove_dir(dir.path());
                return Err(error).context(failed);
            }
        };
        cleanup.dirs.push((dir.path().to_owned(), open));
        drop(cleanup);
        llvm_lto::remove_on_crash(dir.path());
        Ok(self.dir.get_or_init(|| dir).path())
    }
}

impl Drop for Temps {
    fn drop(&mut self) {
        let Some(dir) = self.dir.take() else { return };
        let path = dir.keep();
        // Held while it is being removed: a signal that comes now finds it gone.
        let mut cleanup = CLEANUP.lock().unwrap_or_else(PoisonError::into_inner);
        cleanup.dirs.retain(|(known, _)| *known != path);
        remove_tree(&path);
    }
}

/// Removes a directory with everything in it, also one into which a thread is writing a file at this moment. Where that is not possible, its
/// place is one for files that may go.
fn remove_tree(path: &Path) {
    for pause in [0, 1, 2, 5, 10, 20, 50, 100] {
        std::thread::sleep(Duration::from_millis(pause));
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {}
            _ => return,
        }
    }
}

/// Where temporary files go, and what to say of it: another user's directory is not used, since its owner could put other files in the
/// place of ours.
fn place() -> Result<(PathBuf, Option<String>)> {
    let wanted = std::env::temp_dir();
    if !is_foreign(&wanted) {
        return Ok((wanted, None));
    }
    let usual = Path::new("/tmp");
    if !usual.is_dir() || is_foreign(usual) {
        return Err(Error::new(format!("{}: belongs to another user; name a directory for temporary files by TMPDIR", wanted.display())));
    }
    let warning =
        format!("{}: belongs to another user and is not used for temporary files; they go to {}", wanted.display(), usual.display());
    Ok((usual.to_owned(), Some(warning)))
}

/// Whether a directory is neither ours nor the system's.
fn is_foreign(directory: &Path) -> bool {
    std::fs::metadata(directory).is_ok_and(|metadata| {
        let mapped_root = metadata.uid() == NOBODY && metadata.mode() & STICKY != 0;
        metadata.uid() != 0 && !is_ours(&metadata) && !mapped_root
    })
}

/// Whether a file belongs to the user for whom we run.
pub(crate) fn is_ours(metadata: &std::fs::Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw()
}

/// A file that gets its name when it is complete. It is gone if it does not get one, after a signal as well.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: File,
    path: Option<PathBuf>,
}

impl NewFile {
    /// An empty one in `directory`, with a name that begins with `prefix`. `mode` is that of a new file: less the umask.
    pub(crate) fn new(directory: &Path, prefix: &str, mode: u32) -> std::io::Result<NewFile> {
        let mut cleanup = cleanup();
        let mut builder = tempfile::Builder::new();
        let permissions = std::fs::Permissions::from_mode(mode);
        let (file, path) = builder.prefix(prefix).permissions(permissions).tempfile_in(directory)?.keep().map_err(|error| error.error)?;
        cleanup.files.insert(path.clone());
        Ok(NewFile { file, path: Some(path) })
    }

    /// To write to.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts it in the place of what has that name; a link is replaced and not followed. On an error it can be tried again.
    pub(crate) fn rename(&mut self, to: &Path) -> std::io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut cleanup = cleanup();
        std::fs::rename(path, to)?;
        cleanup.files.remove(path);
        self.path = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let mut cleanup = CLEANUP.lock().unwrap_or_else(PoisonError::into_inner);
            // One that cannot be removed is left; whoever looks for files to remove finds it by its name.
            let _ = std::fs::remove_file(path);
            cleanup.files.remove(path);
        }
    }
}

/// Writes a file of the user's so that it is the old one or the whole new one at any time. Without `permissions` it gets those of a new file.
pub fn replace_file(path: &Path, bytes: &[u8], permissions: Option<std::fs::Permissions>) -> Result<()> {
    let written = || format!("{}: cannot be written", path.display());
    // A device or a pipe, `/dev/null` or `/dev/stdout` for instance, is written to and not replaced.
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return std::fs::write(path, bytes).context(written);
    }
    // Through a symbolic link to the file that it names.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let directory = real.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NewFile::new(directory, ".warplink-", 0o666).context(written)?;
    file.file().write_all(bytes).context(written)?;
    if let Some(permissions) = permissions {
        file.file().set_permissions(permissions).context(written)?;
    }
    file.rename(&real).context(written)
}

/// Writes a file for the user alone into a directory that may be everyone's, in the place of whatever has its name, and follows no link.
pub fn private_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = || format!("{}: cannot be written", path.display());
    let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NewFile::new(directory, ".warplink-", 0o600).context(written)?;
    file.file().write_all(bytes).context(written)?;
    file.rename(path).context(written)
}

/// Removes an output that must not be used. One that is no file of its own stays.
pub fn remove_output(path: &Path) {
    if std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        // It was written a moment ago; if it cannot be removed, the exit status still tells.
        let _ = std::fs::remove_file(path);
    }
}

/// Notes that `output` is about to be written, so that a signal does not leave half of it behind.
pub fn guard_output(output: &Path) {
    cleanup().output = Some((output.to_owned(), Stamp::of(output)));
}

/// Whether the guarded output is there and is not the one from before. What is no file of its own, a device for instance, always is.
pub fn is_output_written() -> bool {
    let cleanup = cleanup();
    let Some((output, before)) = &cleanup.output else { return true };
    match std::fs::metadata(output) {
        Ok(metadata) if !metadata.is_file() => true,
        Ok(_) if std::fs::symlink_metadata(output).is_ok_and(|metadata| metadata.is_symlink()) => true,
        Ok(_) => Stamp::of(output).is_none_or(|now| Some(now) != *before),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// The output is complete, or its writer has said what became of it.
pub fn release_output() {
    cleanup().output = None;
}

/// The output's writer was killed: what it has begun is no output.
pub fn discard_output() {
    cleanup().discard_output();
}

impl Cleanup {
    fn discard_output(&mut self) {
        if let Some((output, before)) = self.output.take() {
            let now = Stamp::of(&output);
            if now.is_some() && now != before {
                // If it cannot be removed, the exit status still tells.
                let _ = std::fs::remove_file(output);
            }
        }
    }
}

/// Removes what an interrupted link would leave behind. For the program's signal handler and for LLVM's fatal errors; from here on no
/// thread makes a temporary file any more.
pub fn emergency_cleanup() {
    let mut cleanup = CLEANUP.lock().unwrap_or_else(PoisonError::into_inner);
    cleanup.ended = true;
    for (dir, open) in std::mem::take(&mut cleanup.dirs) {
        drop(open);
        remove_tree(&dir);
    }
    for file in std::mem::take(&mut cleanup.files) {
        let _ = std::fs::remove_file(file);
    }
    cleanup.discard_output();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_behind() {
        let temps = Temps::new(None, false);
        let path = temps.write("sm_90.ptx", b"text").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let dir = path.parent().unwrap().to_owned();
        assert_eq!((mode(&dir), mode(&path)), (0o700, 0o600));
        drop(temps);
        assert!(!dir.exists());
    }

    #[test]
    fn no_directory_is_made_for_nothing() {
        let temps = Temps::new(None, false);
        temps.keep("sm_90.lto.bc", || Ok(Vec::new())).unwrap();
        assert!(temps.dir.get().is_none());
    }

    #[test]
    fn kept_files_lie_beside_the_output() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("prog");
        let temps = Temps::new(Some(&output), false);
        temps.write("sm_90.ptx", b"text").unwrap();
        drop(temps);
        assert_eq!(std::fs::read(dir.path().join("prog.sm_90.ptx")).unwrap(), b"text");
    }

    #[test]
    fn a_link_to_the_output_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (output, link) = (dir.path().join("prog"), dir.path().join("link"));
        std::fs::write(&output, "old").unwrap();
        std::os::unix::fs::symlink("prog", &link).unwrap();
        replace_file(&link, b"new", None).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(&output).unwrap(), b"new");
    }

    #[test]
    fn only_a_changed_output_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("prog");
        std::fs::write(&output, "old").unwrap();
        let before = Stamp::of(&output);
        assert_eq!(before, Stamp::of(&output));
        std::fs::write(&output, "new and longer").unwrap();
        assert_ne!(before, Stamp::of(&output));
    }

    /// As root, files can be given to others.
    fn give_away(path: &Path) -> bool {
        std::os::unix::fs::lchown(path, Some(12345), None).is_ok()
    }

    #[test]
    fn kept_files_follow_no_link_of_another_user() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, link) = (dir.path().join("victim"), dir.path().join("prog.sm_90.ptx"));
        std::fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        let temps = Temps::new(Some(&dir.path().join("prog")), false);
        assert!(temps.path("sm_90.ptx").is_ok(), "a link of the user's own");
        if give_away(&link) {
            let error = temps.write("sm_90.ptx", b"text").unwrap_err().to_string();
            assert!(error.ends_with("prog.sm_90.ptx: is a symbolic link of another user, which --save-temps does not follow"), "{error}");
            assert_eq!(std::fs::read(&victim).unwrap(), b"mine");
        }
    }

    #[test]
    fn whose_directories_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let of = |owner: u32, mode: u32| {
            let path = dir.path().join(format!("{owner}-{mode:o}"));
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            (std::os::unix::fs::chown(&path, Some(owner), None).is_ok()).then(|| is_foreign(&path))
        };
        assert!(!is_foreign(dir.path()) && !is_foreign(Path::new("/tmp")) && !is_foreign(&dir.path().join("missing")));
        if let Some(foreign) = of(12345, 0o755) {
            assert!(foreign);
            assert_eq!((of(12345, 0o1777), of(NOBODY, 0o755), of(NOBODY, 0o1777)), (Some(true), Some(true), Some(false)));
        }
    }

    #[test]
    fn a_new_file_has_its_name_or_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("file");
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        let mut file = NewFile::new(dir.path(), "new-", 0o600).unwrap();
        file.file().write_all(b"text").unwrap();
        assert!(file.rename(&dir.path().join("missing/file")).is_err());
        file.rename(&target).unwrap();
        drop(file);
        drop(NewFile::new(dir.path(), "new-", 0o600).unwrap());
        assert_eq!((std::fs::read(&target).unwrap(), names()), (b"text".to_vec(), 1));
    }

    #[test]
    fn a_private_file_replaces_a_planted_link() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, link) = (dir.path().join("victim"), dir.path().join("crash.tar.zst"));
        std::fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        private_file(&link, b"reproducer").unwrap();
        let metadata = std::fs::symlink_metadata(&link).unwrap();
        assert_eq!((metadata.is_file(), metadata.permissions().mode() & 0o777), (true, 0o600));
        assert_eq!((std::fs::read(&victim).unwrap(), std::fs::read(&link).unwrap()), (b"mine".to_vec(), b"reproducer".to_vec()));
    }
}
