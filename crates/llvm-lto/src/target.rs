//! Targets and code generation: which processor, which level.

use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::{Mutex, Once, PoisonError};

use llvm_sys::core::*;
use llvm_sys::error::{LLVMDisposeErrorMessage, LLVMGetErrorMessage};
use llvm_sys::prelude::*;
use llvm_sys::target::*;
use llvm_sys::target_machine::*;
use llvm_sys::transforms::pass_builder::*;

use crate::raw::{Error, Result, c_string, take_message};

/// Optimisation level of the LTO pipeline and of code generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OptLevel {
    /// Only what correctness needs.
    O0,
    /// Quick optimisations.
    O1,
    /// The default.
    O2,
    /// Everything.
    O3,
}

impl OptLevel {
    /// The digit of `-O<n>`.
    pub fn digit(self) -> char {
        match self {
            OptLevel::O0 => '0',
            OptLevel::O1 => '1',
            OptLevel::O2 => '2',
            OptLevel::O3 => '3',
        }
    }

    fn codegen(self) -> LLVMCodeGenOptLevel {
        match self {
            OptLevel::O0 => LLVMCodeGenOptLevel::LLVMCodeGenLevelNone,
            OptLevel::O1 => LLVMCodeGenOptLevel::LLVMCodeGenLevelLess,
            OptLevel::O2 => LLVMCodeGenOptLevel::LLVMCodeGenLevelDefault,
            OptLevel::O3 => LLVMCodeGenOptLevel::LLVMCodeGenLevelAggressive,
        }
    }
}

/// What code is generated for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetSpec {
    /// Target triple, `nvptx64-nvidia-cuda`.
    pub triple: String,
    /// Processor as LLVM names it, `sm_90`.
    pub cpu: String,
    /// Comma-separated features, `+ptx78`.
    pub features: String,
    /// Level of code generation.
    pub level: OptLevel,
}

/// An owned LLVM target machine. Not `Clone` (LLVM has no copy of it) and not `Sync`.
pub(crate) struct TargetMachine(LLVMTargetMachineRef);

impl TargetMachine {
    pub(crate) fn new(spec: &TargetSpec) -> Result<TargetMachine> {
        initialize();
        let triple = c_string(&spec.triple);
        let (cpu, features) = (c_string(&spec.cpu), c_string(&spec.features));
        let mut target = ptr::null_mut();
        let mut message = ptr::null_mut();
        // SAFETY: all strings are NUL-terminated and outlive the calls; options are disposed of after the machine has copied them.
        unsafe {
            if LLVMGetTargetFromTriple(triple.as_ptr(), &mut target, &mut message) != 0 {
                return Err(Error(take_message(message)));
            }
            let options = LLVMCreateTargetMachineOptions();
            LLVMTargetMachineOptionsSetCPU(options, cpu.as_ptr());
            LLVMTargetMachineOptionsSetFeatures(options, features.as_ptr());
            LLVMTargetMachineOptionsSetCodeGenOptLevel(options, spec.level.codegen());
            LLVMTargetMachineOptionsSetRelocMode(options, LLVMRelocMode::LLVMRelocPIC);
            let machine = LLVMCreateTargetMachineWithOptions(target, triple.as_ptr(), options);
            LLVMDisposeTargetMachineOptions(options);
            if machine.is_null() {
                return Err(Error(format!("no code generator for {} {}", spec.triple, spec.cpu)));
            }
            Ok(TargetMachine(machine))
        }
    }

    /// Runs a pass pipeline given in `opt -passes=` syntax.
    pub(crate) fn run_passes(&self, module: LLVMModuleRef, pipeline: &str) -> Result<()> {
        let pipeline = c_string(pipeline);
        // SAFETY: module and machine are live; the error, if there is one, is consumed by LLVMGetErrorMessage.
        unsafe {
            let options = LLVMCreatePassBuilderOptions();
            let error = LLVMRunPasses(module, pipeline.as_ptr(), self.0, options);
            LLVMDisposePassBuilderOptions(options);
            if error.is_null() {
                return Ok(());
            }
            let message = LLVMGetErrorMessage(error);
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            LLVMDisposeErrorMessage(message);
            Err(Error(text))
        }
    }

    /// Generates assembly text. The module is spent afterwards: code generation changes it.
    pub(crate) fn emit(&self, module: LLVMModuleRef) -> Result<Vec<u8>> {
        let kind = LLVMCodeGenFileType::LLVMAssemblyFile;
        let mut message = ptr::null_mut();
        let mut buffer = ptr::null_mut();
        // SAFETY: module and machine are live; the buffer is copied before it is disposed of.
        unsafe {
            if LLVMTargetMachineEmitToMemoryBuffer(self.0, module, kind, &mut message, &mut buffer) != 0 {
                return Err(Error(take_message(message)));
            }
            Ok(take_buffer(buffer))
        }
    }
}

impl Drop for TargetMachine {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { LLVMDisposeTargetMachine(self.0) }
    }
}

/// The data layout of a target, as LLVM writes it today. A target machine takes a millisecond to make, so one answer is remembered: links
/// have one device triple.
pub(crate) fn data_layout(triple: &str) -> Result<CString> {
    static KNOWN: Mutex<Option<(String, CString)>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some((of, layout)) if of == triple => Ok(layout.clone()),
        _ => {
            let layout = make_data_layout(triple)?;
            *known = Some((triple.to_owned(), layout.clone()));
            Ok(layout)
        }
    }
}

fn make_data_layout(triple: &str) -> Result<CString> {
    let spec = TargetSpec { triple: triple.to_owned(), cpu: String::new(), features: String::new(), level: OptLevel::O0 };
    let machine = TargetMachine::new(&spec)?;
    // SAFETY: the machine is live; layout and string are ours, and the string is copied before it is freed.
    unsafe {
        let layout = LLVMCreateTargetDataLayout(machine.0);
        let text = take_message(LLVMCopyStringRepOfTargetData(layout));
        LLVMDisposeTargetData(layout);
        Ok(c_string(&text))
    }
}

/// Copies and frees a memory buffer.
///
/// # Safety
/// `buffer` is a live buffer that nobody else owns.
pub(crate) unsafe fn take_buffer(buffer: LLVMMemoryBufferRef) -> Vec<u8> {
    // SAFETY: by the caller's promise.
    unsafe {
        let bytes = std::slice::from_raw_parts(LLVMGetBufferStart(buffer).cast::<u8>(), LLVMGetBufferSize(buffer)).to_vec();
        LLVMDisposeMemoryBuffer(buffer);
        bytes
    }
}

/// Registers the one back end that there is.
fn initialize() {
    static NVPTX: Once = Once::new();
    // SAFETY: LLVM's registration functions, guarded against running twice at once.
    NVPTX.call_once(|| unsafe {
        LLVMInitializeNVPTXTargetInfo();
        LLVMInitializeNVPTXTarget();
        LLVMInitializeNVPTXTargetMC();
        LLVMInitializeNVPTXAsmPrinter();
    });
}

/// Version of the LLVM that is linked in: major, minor, patch.
pub fn llvm_version() -> (u32, u32, u32) {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: LLVM writes three numbers.
    unsafe { llvm_sys::core::LLVMGetVersion(&mut major, &mut minor, &mut patch) }
    (major, minor, patch)
}
