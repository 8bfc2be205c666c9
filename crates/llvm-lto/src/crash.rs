//! Crashes: signals that end the process because LLVM, or anything else in it, has gone wrong. See crash.cpp.

use std::ffi::{CString, OsString, c_char};
use std::os::unix::ffi::OsStrExt;

unsafe extern "C" {
    fn warplink_on_crash(words: *const *const c_char, done: *const c_char, failed: *const c_char);
}

/// From now on, a crash runs `command` (a program's path and its arguments) in a fresh process, prints `done` if that ended well and
/// `failed` if it did not, and ends this process by its signal. An empty command has failed. Words that hold a zero byte, which no command
/// line does, make it empty.
///
/// The first call counts.
pub fn on_crash(command: &[OsString], done: &str, failed: &str) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let c_string = |bytes: &[u8]| CString::new(bytes).ok();
        let words: Option<Vec<CString>> = command.iter().map(|word| c_string(word.as_bytes())).collect();
        let words = words.unwrap_or_default();
        let (Some(done), Some(failed)) = (c_string(done.as_bytes()), c_string(failed.as_bytes())) else { return };
        // Kept for ever: the handler may need them at any time.
        let words: &'static [CString] = Box::leak(words.into_boxed_slice());
        let mut pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let pointers: &'static [*const c_char] = Box::leak(pointers.into_boxed_slice());
        // SAFETY: all three live as long as the process, and the array ends with a null pointer.
        unsafe { warplink_on_crash(pointers.as_ptr(), done.into_raw(), failed.into_raw()) }
    });
}
