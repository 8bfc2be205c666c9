//! The few things that LLVM's C API lacks, declared as `shim.cpp` defines them.

use llvm_sys::prelude::*;

unsafe extern "C" {
    /// Makes module flags equal that differ between objects for reasons which do not concern a link; see shim.cpp.
    pub(crate) fn warplink_normalize_module(module: LLVMModuleRef);
    /// Marks the kernels of older compilers as today's are marked; see shim.cpp.
    pub(crate) fn warplink_upgrade_kernels(module: LLVMModuleRef);
    /// Reduces debug information to source lines; see shim.cpp.
    pub(crate) fn warplink_keep_line_tables(module: LLVMModuleRef);
    /// Destroys constant expressions that use a global and are used by nothing.
    pub(crate) fn warplink_remove_dead_users(value: LLVMValueRef);
    /// Turns a definition into a declaration; false for an alias and what one stands for.
    pub(crate) fn warplink_make_declaration(value: LLVMValueRef) -> std::ffi::c_int;
    /// LLVM's complaint about options of its own, or null; LLVMDisposeMessage's to free.
    pub(crate) fn warplink_parse_options(count: std::ffi::c_int, arguments: *const *const std::ffi::c_char) -> *mut std::ffi::c_char;
    /// Cuts a lazily read module down to the definitions that have a role; see shim.cpp. Not 0 where its bitcode cannot be read.
    pub(crate) fn warplink_trim(
        module: LLVMModuleRef,
        names: *const *const std::ffi::c_char,
        roles: *const u8,
        count: usize,
        suffix: *const std::ffi::c_char,
    ) -> std::ffi::c_int;
    /// Calls `handler` with a reason when LLVM asks for memory that it does not get, which damaged bitcode makes it do.
    pub(crate) fn warplink_on_bad_allocation(handler: extern "C" fn(*const std::ffi::c_char));
    /// Demangles a name; the result is LLVMDisposeMessage's to free.
    pub(crate) fn warplink_demangle(name: *const std::ffi::c_char, length: usize) -> *mut std::ffi::c_char;
}
