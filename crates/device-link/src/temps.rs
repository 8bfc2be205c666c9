//! Files between the stages. They live in one private directory under TMPDIR that is gone after success, failure and signals; with
//! `--save-temps` they are written beside the output instead, named after it, and stay.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use crate::error::{Context, Result};

/// Directories to remove, and an output to check, when a signal ends the program.
static CLEANUP: Mutex<Cleanup> = Mutex::new(Cleanup { dirs: Vec::new(), output: None });

struct Cleanup {
    dirs: Vec<PathBuf>,
    output: Option<(PathBuf, Option<Stamp>)>,
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
        use std::os::unix::fs::MetadataExt;
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
            return Ok(PathBuf::from(name));
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
            std::fs::write(&path, bytes).context(|| format!("{}: cannot be written", path.display()))?;
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

    fn directory(&self) -> Result<&Path> {
        let _guard = self.creating.lock();
        if let Some(dir) = self.dir.get() {
            return Ok(dir.path());
        }
        let parent = std::env::temp_dir();
        let dir = tempfile::Builder::new()
            .prefix("warplink-")
            .tempdir_in(&parent)
            .context(|| format!("{}: cannot make a directory for temporary files (TMPDIR chooses the place)", parent.display()))?;
        if let Ok(mut cleanup) = CLEANUP.lock() {
            cleanup.dirs.push(dir.path().to_owned());
        }
        Ok(self.dir.get_or_init(|| dir).path())
    }
}

impl Drop for Temps {
    fn drop(&mut self) {
        if let (Some(dir), Ok(mut cleanup)) = (self.dir.get(), CLEANUP.lock()) {
            cleanup.dirs.retain(|d| d != dir.path());
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
    let mut builder = tempfile::Builder::new();
    let new_file = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    let mut file = builder.prefix(".warplink-").permissions(new_file).tempfile_in(directory).context(written)?;
    std::io::Write::write_all(&mut file, bytes).context(written)?;
    if let Some(permissions) = permissions {
        std::fs::set_permissions(file.path(), permissions).context(written)?;
    }
    file.persist(&real).map_err(|error| error.error).context(written)?;
    Ok(())
}

/// Removes an output that must not be used. One that is no file of its own stays.
pub fn remove_output(path: &Path) {
    if std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        // It was written a moment ago; if it cannot be removed, the exit status still tells.
        let _ = std::fs::remove_file(path);
    }
}

/// Notes that a child is about to write `output`, so that a signal does not leave half of it behind.
pub fn guard_output(output: &Path) {
    if let Ok(mut cleanup) = CLEANUP.lock() {
        cleanup.output = Some((output.to_owned(), Stamp::of(output)));
    }
}

/// The output is complete, or its writer has said what became of it.
pub fn release_output() {
    if let Ok(mut cleanup) = CLEANUP.lock() {
        cleanup.output = None;
    }
}

/// Removes what an interrupted link would leave behind. For the program's signal handler and for LLVM's fatal errors.
pub fn emergency_cleanup() {
    // A thread that holds the lock is about to register or remove one entry; there is no time to wait for more than that.
    let Ok(mut cleanup) = CLEANUP.lock() else { return };
    for dir in cleanup.dirs.drain(..) {
        let _ = std::fs::remove_dir_all(dir);
    }
    if let Some((output, before)) = cleanup.output.take() {
        let now = Stamp::of(&output);
        if now.is_some() && now != before {
            let _ = std::fs::remove_file(output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_behind() {
        let temps = Temps::new(None, false);
        let path = temps.write("sm_90.ptx", b"text").unwrap();
        assert!(path.exists());
        let dir = path.parent().unwrap().to_owned();
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
}
