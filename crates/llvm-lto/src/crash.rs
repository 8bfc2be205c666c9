//! Crashes: signals that end the process because LLVM, or anything else in it, has gone wrong. See crash.cpp.

use std::ffi::{CString, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

unsafe extern "C" {
    fn warplink_on_crash(words: *const *const c_char, done: *const c_char, failed: *const c_char, cut_off: *const c_char);
    fn warplink_is_ignored(signal: i32) -> i32;
    fn warplink_crash_job(name: *const c_char) -> *const c_char;
    fn warplink_crash_removes(path: *const c_char);
    fn warplink_crash_map(begin: *const u8, length: usize, path: *const c_char) -> i32;
    fn warplink_crash_unmap(slot: i32);
}

/// From now on, a crash runs `command` (a program's path and its arguments) in a fresh process, prints `done` if that ended well and
/// `failed` if it did not, and ends this process by its signal. An empty command has failed. Words that hold a zero byte, which no command
/// line does, make it empty. In both texts the first `{job}` becomes what the thread was working on, followed by a colon, or nothing.
///
/// An input that was cut off while it was being read is no crash: that prints `cut_off`, with the file in place of `{job}`, and ends with 1.
///
/// The first call counts.
pub fn on_crash(command: &[OsString], done: &str, failed: &str, cut_off: &str) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let c_string = |bytes: &[u8]| CString::new(bytes).ok();
        let words: Option<Vec<CString>> = command.iter().map(|word| c_string(word.as_bytes())).collect();
        let words = words.unwrap_or_default();
        let texts = [done, failed, cut_off].map(|text| c_string(text.as_bytes()));
        let [Some(done), Some(failed), Some(cut_off)] = texts else { return };
        // Kept for ever: the handler may need them at any time.
        let words: &'static [CString] = Box::leak(words.into_boxed_slice());
        let mut pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let pointers: &'static [*const c_char] = Box::leak(pointers.into_boxed_slice());
        // SAFETY: all four live as long as the process, and the array ends with a null pointer.
        unsafe { warplink_on_crash(pointers.as_ptr(), done.into_raw(), failed.into_raw(), cut_off.into_raw()) }
    });
}

/// Names what this thread is working on while `work` runs, for the message of a crash. What a JSON string or a line cannot hold is replaced.
pub(crate) fn named<T>(job: &str, work: impl FnOnce() -> T) -> T {
    let text: String = job.chars().map(|c| if c.is_control() || c == '"' || c == '\\' { '?' } else { c }).collect();
    let Ok(name) = CString::new(text) else { return work() };
    /// Puts the former name back, after a panic as well: the text of this one is about to end.
    struct Back(*const c_char);
    impl Drop for Back {
        fn drop(&mut self) {
            // SAFETY: the former name belongs to a call that is still running.
            unsafe { warplink_crash_job(self.0) };
        }
    }
    // SAFETY: the name lives until `Back` has replaced it.
    let _back = Back(unsafe { warplink_crash_job(name.as_ptr()) });
    work()
}

/// Whether this process was started with a signal ignored, as `nohup` does.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: it only asks the system.
    unsafe { warplink_is_ignored(signal) != 0 }
}

/// A crash removes this directory from now on, with everything in it. One at a time.
pub fn remove_on_crash(directory: &Path) {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    if let Ok(path) = CString::new(absolute.as_os_str().as_bytes()) {
        // SAFETY: the text is copied.
        unsafe { warplink_crash_removes(path.as_ptr()) }
    }
}

/// A map of an input, known to the handler by its file's name.
#[derive(Debug)]
pub(crate) struct NamedMap {
    slot: i32,
    _path: CString,
}

impl NamedMap {
    pub(crate) fn new(bytes: &[u8], path: &Path) -> Option<NamedMap> {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: the path lives as long as the slot names it; the bytes are only compared with addresses.
        let slot = unsafe { warplink_crash_map(bytes.as_ptr(), bytes.len(), path.as_ptr()) };
        Some(NamedMap { slot, _path: path })
    }
}

impl Drop for NamedMap {
    fn drop(&mut self) {
        // SAFETY: the slot is this map's own.
        unsafe { warplink_crash_unmap(self.slot) }
    }
}
