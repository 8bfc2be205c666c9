//! The border to LLVM's C API: owned handles, strings in both directions, diagnostics unpacked before anyone looks at them. Nothing here
//! knows about device code.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::fmt;
use std::ptr;

use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMDiagnosticSeverity, LLVMValueKind};

/// What LLVM said when it refused: its own words, one message a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The result of an operation that LLVM may refuse.
pub type Result<T> = std::result::Result<T, Error>;

/// A value that can only be reached by whoever may change it. A shared reference to this gives no access at all, so that it can be shared
/// between threads, whatever the value is.
#[derive(Default)]
pub struct Exclusive<T>(T);

// SAFETY: `&Exclusive<T>` offers nothing that touches the value.
unsafe impl<T> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    /// Around a value.
    pub fn new(value: T) -> Exclusive<T> {
        Exclusive(value)
    }

    /// The value.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// A remark, warning or error that LLVM reported through its context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// LLVM's text; behind that of a remark, in brackets, the option that switches it on.
    pub text: String,
}

/// LLVM's four grades.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The operation fails.
    Error,
    /// Worth a person's attention.
    Warning,
    /// Says what an optimisation did or did not do.
    Remark,
    /// Belongs to the message before it.
    Note,
}

/// An LLVM context together with the diagnostics that it has reported.
pub(crate) struct Context {
    raw: LLVMContextRef,
    /// Boxed, so that the address which LLVM holds stays the same when the context moves.
    diagnostics: Box<RefCell<Vec<Diagnostic>>>,
}

impl Context {
    pub(crate) fn new() -> Context {
        let diagnostics = Box::new(RefCell::new(Vec::new()));
        // SAFETY: the handler gets a pointer into a box that lives as long as the context (Drop below disposes of the context first).
        let raw = unsafe {
            let raw = LLVMContextCreate();
            LLVMContextSetDiagnosticHandler(raw, Some(on_diagnostic), ptr::from_ref(&*diagnostics).cast_mut().cast());
            raw
        };
        Context { raw, diagnostics }
    }

    pub(crate) fn raw(&self) -> LLVMContextRef {
        self.raw
    }

    /// Takes what has been reported since the last call.
    pub(crate) fn take_diagnostics(&self) -> Vec<Diagnostic> {
        std::mem::take(&mut self.diagnostics.borrow_mut())
    }

    /// Whether an error has been reported and not taken.
    pub(crate) fn has_errors(&self) -> bool {
        self.diagnostics.borrow().iter().any(|d| d.severity == Severity::Error)
    }

    /// The errors among the diagnostics as one error; `otherwise` where LLVM failed without a word. Other diagnostics stay.
    pub(crate) fn error(&self, otherwise: &str) -> Error {
        let mut errors = Vec::new();
        self.diagnostics.borrow_mut().retain(|d| {
            let is_error = d.severity == Severity::Error;
            if is_error {
                errors.push(d.text.clone());
            }
            !is_error
        });
        if errors.is_empty() { Error(otherwise.to_owned()) } else { Error(errors.join("\n")) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: owned, and every module of the context is disposed of before (Session drops its modules first).
        unsafe { LLVMContextDispose(self.raw) }
    }
}

extern "C" fn on_diagnostic(info: LLVMDiagnosticInfoRef, user: *mut c_void) {
    if user.is_null() {
        return;
    }
    // SAFETY: `user` is the RefCell that Context::new handed over; LLVM calls back on the thread that runs the operation.
    let diagnostics = unsafe { &*user.cast::<RefCell<Vec<Diagnostic>>>() };
    // SAFETY: `info` is valid during the call; the description is a message that we own.
    let (severity, mut text) = unsafe { (LLVMGetDiagInfoSeverity(info), take_message(LLVMGetDiagInfoDescription(info))) };
    let severity = match severity {
        LLVMDiagnosticSeverity::LLVMDSError => Severity::Error,
        LLVMDiagnosticSeverity::LLVMDSWarning => Severity::Warning,
        LLVMDiagnosticSeverity::LLVMDSRemark => {
            // SAFETY: as above.
            if let Some(option) = unsafe { crate::remarks::remark_option(info) } {
                text = format!("{text} [{option}]");
            }
            Severity::Remark
        }
        LLVMDiagnosticSeverity::LLVMDSNote => Severity::Note,
    };
    // A panic must not cross into C++; a borrow can only fail if a diagnostic is reported while one is taken, which no caller does.
    if let Ok(mut list) = diagnostics.try_borrow_mut() {
        list.push(Diagnostic { severity, text });
    }
}

/// An LLVM module that is disposed of with its owner.
pub(crate) struct Module(pub(crate) LLVMModuleRef);

impl Module {
    /// Gives up ownership: LLVM took the module.
    pub(crate) fn into_raw(self) -> LLVMModuleRef {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: owned; `into_raw` forgets the owner.
        unsafe { LLVMDisposeModule(self.0) }
    }
}

/// Copies and frees a message of LLVM's.
///
/// # Safety
/// `message` is null or a string that LLVMDisposeMessage may free.
pub(crate) unsafe fn take_message(message: *mut c_char) -> String {
    if message.is_null() {
        return String::new();
    }
    // SAFETY: by the caller's promise.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeMessage(message);
        text
    }
}

/// Copies a string that LLVM keeps.
///
/// # Safety
/// `data` is null or points to `len` readable bytes.
pub(crate) unsafe fn copy_string(data: *const c_char, len: usize) -> String {
    if data.is_null() || len == 0 {
        return String::new();
    }
    // SAFETY: by the caller's promise.
    String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }).into_owned()
}

/// A C string; NUL bytes, which no name that reaches us may hold, end it.
pub(crate) fn c_string(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// The name of a value.
///
/// # Safety
/// `value` is a live value.
pub(crate) unsafe fn name_of(value: LLVMValueRef) -> String {
    let mut len = 0;
    // SAFETY: the returned pointer and length describe the name that LLVM keeps.
    unsafe {
        let data = LLVMGetValueName2(value, &mut len);
        copy_string(data, len)
    }
}

/// All functions, variables, aliases and ifuncs of a module, in module order.
///
/// # Safety
/// `module` is a live module.
pub(crate) unsafe fn globals(module: LLVMModuleRef) -> Vec<LLVMValueRef> {
    let mut all = Vec::new();
    // SAFETY: LLVM's own iteration protocol: each next pointer is null at the end.
    unsafe {
        let mut value = LLVMGetFirstFunction(module);
        while !value.is_null() {
            all.push(value);
            value = LLVMGetNextFunction(value);
        }
        let mut value = LLVMGetFirstGlobal(module);
        while !value.is_null() {
            all.push(value);
            value = LLVMGetNextGlobal(value);
        }
        let mut value = LLVMGetFirstGlobalAlias(module);
        while !value.is_null() {
            all.push(value);
            value = LLVMGetNextGlobalAlias(value);
        }
        let mut value = LLVMGetFirstGlobalIFunc(module);
        while !value.is_null() {
            all.push(value);
            value = LLVMGetNextGlobalIFunc(value);
        }
    }
    all
}

/// The users of a value, in use-list order.
///
/// # Safety
/// `value` is a live value.
pub(crate) unsafe fn users(value: LLVMValueRef) -> Vec<LLVMValueRef> {
    let mut all = Vec::new();
    // SAFETY: as for `globals`.
    unsafe {
        let mut usage = LLVMGetFirstUse(value);
        while !usage.is_null() {
            all.push(LLVMGetUser(usage));
            usage = LLVMGetNextUse(usage);
        }
    }
    all
}

/// Whether a value is a function.
///
/// # Safety
/// `value` is a live value.
pub(crate) unsafe fn is_function(value: LLVMValueRef) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { LLVMGetValueKind(value) == LLVMValueKind::LLVMFunctionValueKind }
}

/// Whether a value is a global variable.
///
/// # Safety
/// `value` is a live value.
pub(crate) unsafe fn is_variable(value: LLVMValueRef) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { LLVMGetValueKind(value) == LLVMValueKind::LLVMGlobalVariableValueKind }
}

/// The section of a global, empty where it has none.
///
/// # Safety
/// `value` is a live global.
pub(crate) unsafe fn section_of(value: LLVMValueRef) -> String {
    // SAFETY: LLVM returns null or a NUL-terminated string that it keeps.
    unsafe {
        let section = LLVMGetSection(value);
        if section.is_null() { String::new() } else { CStr::from_ptr(section).to_string_lossy().into_owned() }
    }
}

/// The strings of a named metadata list whose operands are `!{!"text"}`.
///
/// # Safety
/// `module` is a live module of `context`.
pub(crate) unsafe fn metadata_strings(module: LLVMModuleRef, name: &CStr) -> Vec<String> {
    let mut strings = Vec::new();
    // SAFETY: operand counts come from LLVM and size the buffers that it fills.
    unsafe {
        let count = LLVMGetNamedMetadataNumOperands(module, name.as_ptr()) as usize;
        let mut nodes = vec![ptr::null_mut(); count];
        LLVMGetNamedMetadataOperands(module, name.as_ptr(), nodes.as_mut_ptr());
        for node in nodes {
            let mut operands = vec![ptr::null_mut(); LLVMGetMDNodeNumOperands(node) as usize];
            LLVMGetMDNodeOperands(node, operands.as_mut_ptr());
            for operand in operands {
                let mut len: c_uint = 0;
                if !operand.is_null() && !LLVMIsAMDString(operand).is_null() {
                    let data = LLVMGetMDString(operand, &mut len);
                    strings.push(copy_string(data, len as usize));
                }
            }
        }
    }
    strings
}

/// A mangled C++, Rust, D or Microsoft name as its author wrote it; any other name as it is.
pub fn demangle(name: &str) -> String {
    // SAFETY: pointer and length describe `name`; the result is a message that we own.
    unsafe { take_message(crate::shim::warplink_demangle(name.as_ptr().cast(), name.len())) }
}
