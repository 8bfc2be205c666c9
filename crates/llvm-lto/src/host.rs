//! Host objects that are bitcode (`-flto`), asked for what a link needs to know of them.

use std::ptr;

use llvm_sys::bit_reader::LLVMGetBitcodeModuleInContext2;
use llvm_sys::core::*;
use llvm_sys::ir_reader::LLVMParseIRInContext2;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMLinkage, LLVMValueKind};

use crate::raw::*;

/// A symbol of a host object in bitcode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSymbol {
    /// The name as the linker sees it.
    pub name: String,
    /// Definition or reference.
    pub binding: crate::Binding,
}

/// An offload entry of a host object in bitcode; the fields are those of LLVM's `struct __tgt_offload_entry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostBitcodeEntry {
    /// Bits of LLVM's OffloadKind; CUDA is 2.
    pub kind: u16,
    /// Kind of variable in the low three bits, extern and constant above.
    pub flags: u32,
    /// The device symbol's name.
    pub name: String,
    /// Size of a variable in bytes, 0 for a kernel.
    pub size: u64,
    /// The symbol of the entry itself.
    pub symbol: String,
    /// The host symbol that stands for it: a kernel's stub, a variable's shadow.
    pub address: String,
}

/// What a link needs to know of a host object in bitcode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostBitcode {
    /// Target triple of the host.
    pub triple: String,
    /// Symbols that other objects can see.
    pub symbols: Vec<HostSymbol>,
    /// Contents of the `.llvm.offloading` sections that it will have.
    pub offload_sections: Vec<Vec<u8>>,
    /// Offload entries.
    pub entries: Vec<HostBitcodeEntry>,
}

/// Reads a host object in bitcode. Bodies of functions are not read.
pub fn read_host_bitcode(bitcode: &[u8]) -> Result<HostBitcode> {
    let context = Context::new();
    let mut module = ptr::null_mut();
    // SAFETY: the module owns the buffer, which borrows `bitcode`; both end before this function does.
    let module = unsafe {
        let buffer = LLVMCreateMemoryBufferWithMemoryRange(bitcode.as_ptr().cast(), bitcode.len(), c"host".as_ptr(), 0);
        if LLVMGetBitcodeModuleInContext2(context.raw(), buffer, &mut module) != 0 || module.is_null() {
            return Err(context.error("not valid LLVM bitcode"));
        }
        Module(module)
    };
    let mut host = HostBitcode::default();
    // SAFETY: the module is live until the end of the function (it is declared after the context, so it goes first).
    unsafe {
        host.triple = std::ffi::CStr::from_ptr(LLVMGetTarget(module.0)).to_string_lossy().into_owned();
        for value in globals(module.0) {
            let name = name_of(value);
            if is_variable(value) {
                let section = section_of(value);
                match section.strip_suffix("$OE").unwrap_or(&section) {
                    ".llvm.offloading" => host.offload_sections.extend(raw_bytes(LLVMGetInitializer(value))),
                    "llvm_offload_entries" => host.entries.extend(entry(value, None)),
                    // Up to LLVM 20 each language had a section.
                    "cuda_offloading_entries" => host.entries.extend(entry(value, Some(2))),
                    "hip_offloading_entries" => host.entries.extend(entry(value, Some(4))),
                    "omp_offloading_entries" => host.entries.extend(entry(value, Some(1))),
                    _ => {}
                }
            }
            if name.is_empty() || name.starts_with("llvm.") {
                continue;
            }
            let declaration = LLVMIsDeclaration(value) != 0;
            let binding = match (LLVMGetLinkage(value), declaration) {
                (LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage | LLVMLinkage::LLVMAppendingLinkage, _) => continue,
                (LLVMLinkage::LLVMExternalWeakLinkage, _) => crate::Binding::UndefinedWeak,
                (LLVMLinkage::LLVMAvailableExternallyLinkage, _) | (_, true) => crate::Binding::Undefined,
                (LLVMLinkage::LLVMCommonLinkage, _) => crate::Binding::Common,
                (LLVMLinkage::LLVMExternalLinkage, _) => crate::Binding::Strong,
                _ => crate::Binding::Weak,
            };
            // LLVM marks names that must not get the target's prefix with a byte 1.
            host.symbols.push(HostSymbol { name: name.trim_start_matches('\u{1}').to_owned(), binding });
        }
    }
    drop(module);
    Ok(host)
}

/// The bytes of a constant array of integers.
///
/// # Safety
/// `initializer` is null or a live constant.
unsafe fn raw_bytes(initializer: LLVMValueRef) -> Option<Vec<u8>> {
    // SAFETY: only ConstantDataArray has raw data, and LLVM gives its length. (LLVMGetRawDataValues would say it as well, but llvm-sys
    // declares its length by value.)
    unsafe {
        if initializer.is_null() || LLVMGetValueKind(initializer) != LLVMValueKind::LLVMConstantDataArrayValueKind {
            return None;
        }
        let mut len = 0;
        let data = LLVMGetAsString(initializer, &mut len);
        if data.is_null() { None } else { Some(std::slice::from_raw_parts(data.cast::<u8>(), len).to_vec()) }
    }
}

/// Reads `{ i64, i16 version, i16 kind, i32 flags, ptr address, ptr name, i64 size, i64 data, ptr }`, or, where the section says the language,
/// what LLVM 19 and older wrote: `{ ptr address, ptr name, i64 size, i32 flags, i32 data }`.
///
/// # Safety
/// `global` is a live global variable.
unsafe fn entry(global: LLVMValueRef, language: Option<u16>) -> Option<HostBitcodeEntry> {
    // SAFETY: the operand count is checked before operands are read, and each operand's kind before its value is.
    unsafe {
        let initializer = LLVMGetInitializer(global);
        if initializer.is_null() || LLVMIsAConstantStruct(initializer).is_null() {
            return None;
        }
        // Places of address, name, size and flags.
        let (old, [address, name, size, flags]) = match (language, LLVMGetNumOperands(initializer)) {
            (Some(language), 5) => (Some(language), [0, 1, 2, 3]),
            (_, 8..) => (None, [4, 5, 6, 3]),
            _ => return None,
        };
        let integer = |index: u32| {
            let operand = LLVMGetOperand(initializer, index);
            if LLVMIsAConstantInt(operand).is_null() { 0 } else { LLVMConstIntGetZExtValue(operand) }
        };
        let name = LLVMGetOperand(initializer, name);
        let name = if is_variable(name) { raw_bytes(LLVMGetInitializer(name))? } else { return None };
        let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        Some(HostBitcodeEntry {
            kind: old.unwrap_or_else(|| integer(2) as u16),
            flags: integer(flags) as u32,
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
            size: integer(size),
            symbol: name_of(global),
            address: name_of(LLVMGetOperand(initializer, address)),
        })
    }
}

/// Assembles IR text to bitcode: for tests and tools, which keep their inputs readable.
pub fn assemble(ir: &str) -> Result<Vec<u8>> {
    let context = Context::new();
    let text = c_string(ir);
    let mut module = ptr::null_mut();
    let mut message = ptr::null_mut();
    // SAFETY: the text outlives the parse, which leaves the buffer to us; the bitcode buffer is ours.
    unsafe {
        let buffer = LLVMCreateMemoryBufferWithMemoryRange(text.as_ptr(), text.as_bytes().len(), c"text".as_ptr(), 1);
        let failed = LLVMParseIRInContext2(context.raw(), buffer, &mut module, &mut message) != 0;
        LLVMDisposeMemoryBuffer(buffer);
        if failed {
            return Err(Error(take_message(message)));
        }
        let module = Module(module);
        Ok(crate::target::take_buffer(llvm_sys::bit_writer::LLVMWriteBitcodeToMemoryBuffer(module.0)))
    }
}
