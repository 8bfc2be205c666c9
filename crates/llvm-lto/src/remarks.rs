//! Optimisation remarks: what LLVM's passes did, did not do, and what they found out. They are reported as messages, for passes that match
//! a pattern, or written down in LLVM's YAML, which all tools for remarks read.

use std::ffi::{CString, c_char, c_void};
use std::ptr;

use llvm_sys::prelude::*;

use crate::raw::{Error, Result, c_string, take_message};
use crate::session::Session;

unsafe extern "C" {
    fn warplink_report_remarks(
        context: LLVMContextRef,
        passed: *const c_char,
        missed: *const c_char,
        analysis: *const c_char,
    ) -> *mut c_char;
    fn warplink_record_remarks(context: LLVMContextRef, passes: *const c_char, complaint: *mut *mut c_char) -> *mut c_void;
    fn warplink_finish_recording(context: LLVMContextRef, recording: *mut c_void) -> *mut c_char;
    fn warplink_remark_option(info: LLVMDiagnosticInfoRef) -> *mut c_char;
}

/// Regular expressions over the names of passes, as clang's options of these names take them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemarkPatterns {
    /// `-Rpass=`: what was done.
    pub passed: Option<String>,
    /// `-Rpass-missed=`: what was not.
    pub missed: Option<String>,
    /// `-Rpass-analysis=`: why.
    pub analysis: Option<String>,
}

/// A recording in LLVM's hands. It is part of a session and ends before the session's context.
pub(crate) struct Recording {
    handle: *mut c_void,
    context: LLVMContextRef,
}

impl Recording {
    fn finish(&mut self) -> String {
        let handle = std::mem::replace(&mut self.handle, ptr::null_mut());
        if handle.is_null() {
            return String::new();
        }
        // SAFETY: the handle is a recording of this context, which is live, and has not been finished before.
        unsafe { take_message(warplink_finish_recording(self.context, handle)) }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Session<'_> {
    /// Reports remarks that match as diagnostics.
    ///
    /// # Errors
    /// A pattern is no regular expression.
    pub fn report_remarks(&mut self, patterns: &RemarkPatterns) -> Result<()> {
        let texts: Vec<Option<CString>> =
            [&patterns.passed, &patterns.missed, &patterns.analysis].map(|pattern| pattern.as_deref().map(c_string)).into();
        let mut pointers = texts.iter().map(|text| text.as_ref().map_or(ptr::null(), |text| text.as_ptr()));
        let mut next = || pointers.next().unwrap_or(ptr::null());
        let (passed, missed, analysis) = (next(), next(), next());
        // SAFETY: the context is live; the strings outlive the call, which copies what it keeps.
        let complaint = unsafe { warplink_report_remarks(self.context.raw(), passed, missed, analysis) };
        if complaint.is_null() {
            return Ok(());
        }
        // SAFETY: the complaint is ours.
        Err(Error(unsafe { take_message(complaint) }))
    }

    /// Writes down all remarks from here on, those of passes that match `passes` where it is given.
    ///
    /// # Errors
    /// The pattern is no regular expression.
    pub fn record_remarks(&mut self, passes: Option<&str>) -> Result<()> {
        let passes = passes.map(c_string);
        let mut complaint = ptr::null_mut();
        // SAFETY: as above; what comes back is handed to LLVM once, by `take_remarks`.
        let recording = unsafe {
            warplink_record_remarks(self.context.raw(), passes.as_ref().map_or(ptr::null(), |text| text.as_ptr()), &mut complaint)
        };
        if recording.is_null() {
            // SAFETY: the complaint is ours.
            return Err(Error(unsafe { take_message(complaint) }));
        }
        self.recording = Some(Recording { handle: recording, context: self.context.raw() });
        Ok(())
    }

    /// What has been written down, as YAML documents; the recording is over.
    pub fn take_remarks(&mut self) -> String {
        self.recording.take().map_or_else(String::new, |mut recording| recording.finish())
    }
}

/// The option that switches on the remark behind `info`; none where it is another diagnostic.
///
/// # Safety
/// `info` is valid during the call.
pub(crate) unsafe fn remark_option(info: LLVMDiagnosticInfoRef) -> Option<String> {
    // SAFETY: by the caller's promise; the string is ours.
    unsafe {
        let option = warplink_remark_option(info);
        (!option.is_null()).then(|| take_message(option))
    }
}
