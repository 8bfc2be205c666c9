//! LLVM's fatal errors. Code that LLVM cannot compile ends in `report_fatal_error`, which by default prints a bare line and aborts; the
//! handler here first says which job was at work, then leaves the exit to the program.

use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use llvm_sys::error_handling::LLVMInstallFatalErrorHandler;

type Handler = fn(job: Option<&str>, reason: &str) -> !;

static HANDLER: OnceLock<Handler> = OnceLock::new();

thread_local! {
    static JOB: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs the program's handler. It gets the job that the failing thread had named by `working_on` and LLVM's reason, and must end the
/// process: LLVM's state is unknown from then on. Only the first call counts.
pub fn on_fatal_error(handler: Handler) {
    if HANDLER.set(handler).is_ok() {
        // SAFETY: the callback below is a plain function that lives as long as the program.
        unsafe {
            LLVMInstallFatalErrorHandler(Some(callback));
            crate::shim::warplink_on_bad_allocation(callback);
        }
    }
}

/// Names what this thread is working on while `work` runs.
pub fn working_on<T>(job: &str, work: impl FnOnce() -> T) -> T {
    let before = JOB.with(|cell| cell.replace(Some(job.to_owned())));
    let result = crate::crash::named(job, work);
    JOB.with(|cell| cell.replace(before));
    result
}

extern "C" fn callback(reason: *const c_char) {
    let reason = if reason.is_null() {
        String::new()
    } else {
        // SAFETY: LLVM passes a NUL-terminated string that lives during the call.
        unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned()
    };
    let job = JOB.with(|cell| cell.try_borrow().ok().and_then(|job| job.clone()));
    if let Some(handler) = HANDLER.get() {
        handler(job.as_deref(), &reason);
    }
}

/// Hands options to LLVM's own option parser (`-mllvm`). Process-wide, as they are in LLVM; call it before any session starts.
///
/// # Errors
/// LLVM's complaint, of an unknown option for instance.
pub fn parse_llvm_options(options: &[String]) -> crate::Result<()> {
    let strings: Vec<_> = std::iter::once("-mllvm").chain(options.iter().map(String::as_str)).map(crate::raw::c_string).collect();
    let pointers: Vec<*const c_char> = strings.iter().map(|s| s.as_ptr()).collect();
    // SAFETY: the pointers are valid for the call, which copies what it keeps; the complaint is ours to free.
    let complaint = unsafe { crate::raw::take_message(crate::shim::warplink_parse_options(pointers.len() as i32, pointers.as_ptr())) };
    // `-mllvm: Unknown command line argument '-x'.  Try: '-mllvm --help'`, and perhaps a second line that begins in the same way.
    let words =
        complaint.lines().map(|line| line.trim_start_matches("-mllvm: ").split("  Try: ").next().unwrap_or(line).trim_end_matches('.'));
    let words: Vec<_> = words.filter(|line| !line.is_empty()).collect();
    if words.is_empty() { Ok(()) } else { Err(crate::Error(format!("-mllvm: {}", words.join("; ")))) }
}

/// Tells glibc's allocator not to hand memory back between the modules of a link: LLVM frees one architecture's and asks for the next one's,
/// and every page that went back costs a fault to come again.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        // From glibc's malloc.h.
        const M_TRIM_THRESHOLD: i32 = -1;
        const M_TOP_PAD: i32 = -2;
        const M_MMAP_THRESHOLD: i32 = -3;
        unsafe extern "C" {
            fn mallopt(parameter: i32, value: i32) -> i32;
        }
        // SAFETY: mallopt only sets these numbers; a refusal leaves the defaults.
        unsafe {
            mallopt(M_TRIM_THRESHOLD, 256 << 20);
            mallopt(M_MMAP_THRESHOLD, 32 << 20);
            mallopt(M_TOP_PAD, 1 << 20);
        }
    }
}
