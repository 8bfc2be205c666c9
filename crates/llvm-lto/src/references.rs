//! References: what is undefined and who refers to it, and what is kept for the sake of being referred to from outside.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMLinkage, LLVMOpcode};

use crate::raw::*;
use crate::session::{InputId, Session, is_dynamic_shared};
use crate::shim;

/// An undefined symbol of the merged module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undefined {
    /// The mangled name.
    pub name: String,
    /// Functions and variables that refer to it.
    pub referenced_by: Vec<String>,
}

impl Session<'_> {
    /// Undefined symbols that something in the merged module still refers to, by name.
    pub fn undefined(&self) -> Result<Vec<Undefined>> {
        let module = self.merged()?;
        let mut undefined = BTreeMap::new();
        // SAFETY: the module is live.
        unsafe {
            for value in globals(module) {
                let name = name_of(value);
                if LLVMIsDeclaration(value) == 0 || name.starts_with("llvm.") || is_dynamic_shared(value) {
                    continue;
                }
                shim::warplink_remove_dead_users(value);
                if LLVMGetFirstUse(value).is_null() {
                    continue;
                }
                if LLVMGetLinkage(value) == LLVMLinkage::LLVMExternalWeakLinkage {
                    continue;
                }
                undefined.insert(name, referring(value));
            }
        }
        Ok(undefined.into_iter().map(|(name, referenced_by)| Undefined { name, referenced_by }).collect())
    }

    /// Which functions and variables of an input refer to a name. Reads the whole input again: for messages only.
    pub fn references(&self, id: InputId, symbol: &str) -> Result<Vec<String>> {
        let Some(input) = self.inputs.get(id.0) else { return Ok(Vec::new()) };
        let module = self.parse(&input.name, input.bitcode, false)?;
        // SAFETY: the module is live and fully read.
        unsafe {
            drop_kernel_references(module.0);
            Ok(globals(module.0).into_iter().filter(|&v| name_of(v) == symbol).flat_map(|v| referring(v)).collect())
        }
    }
}

/// The functions and variables that refer to a value, by name, through constant expressions as well.
///
/// # Safety
/// `value` is a live value.
unsafe fn referring(value: LLVMValueRef) -> Vec<String> {
    let mut names = BTreeSet::new();
    let mut seen = HashSet::new();
    let mut stack = vec![value];
    // SAFETY: users of live values are live.
    unsafe {
        while let Some(value) = stack.pop() {
            for user in users(value) {
                if !seen.insert(user) {
                    continue;
                }
                if !LLVMIsAInstruction(user).is_null() {
                    names.insert(name_of(LLVMGetBasicBlockParent(LLVMGetInstructionParent(user))));
                } else if is_variable(user) {
                    names.insert(name_of(user));
                } else {
                    stack.push(user);
                }
            }
        }
    }
    names.into_iter().filter(|name| !name.starts_with("llvm.")).collect()
}

/// Removes clang's `__clang_gpu_used_external` arrays, which name kernels and variables of other objects that host code refers to: the
/// roots of a link come from the host's offload entries, and such a name may well live in another program part.
///
/// # Safety
/// `module` is a live module.
pub(crate) unsafe fn drop_kernel_references(module: LLVMModuleRef) {
    // SAFETY: operands come from the array's own initializer; an array is deleted only when nothing uses it any more.
    unsafe {
        for list in [c"llvm.compiler.used", c"llvm.used"] {
            let used = LLVMGetNamedGlobal(module, list.as_ptr());
            if used.is_null() || LLVMGetInitializer(used).is_null() {
                continue;
            }
            let initializer = LLVMGetInitializer(used);
            let count = LLVMGetNumOperands(initializer).max(0) as u32;
            let operands: Vec<LLVMValueRef> = (0..count).map(|i| LLVMGetOperand(initializer, i)).collect();
            let mut kept: Vec<LLVMValueRef> =
                operands.iter().copied().filter(|&o| !name_of(strip_casts(o)).starts_with("__clang_gpu_used_external")).collect();
            if kept.len() == operands.len() {
                continue;
            }
            if kept.is_empty() {
                LLVMDeleteGlobal(used);
                continue;
            }
            let element = LLVMTypeOf(kept[0]);
            let array = LLVMConstArray2(element, kept.as_mut_ptr(), kept.len() as u64);
            let replacement = LLVMAddGlobal(module, LLVMTypeOf(array), c"".as_ptr());
            LLVMSetInitializer(replacement, array);
            LLVMSetLinkage(replacement, LLVMLinkage::LLVMAppendingLinkage);
            LLVMSetSection(replacement, c"llvm.metadata".as_ptr());
            LLVMDeleteGlobal(used);
            LLVMSetValueName2(replacement, list.as_ptr(), list.count_bytes());
        }
        for value in globals(module) {
            if is_variable(value) && name_of(value).starts_with("__clang_gpu_used_external") {
                shim::warplink_remove_dead_users(value);
                if LLVMGetFirstUse(value).is_null() {
                    LLVMDeleteGlobal(value);
                }
            }
        }
    }
}

/// # Safety
/// `value` is a live constant.
unsafe fn strip_casts(mut value: LLVMValueRef) -> LLVMValueRef {
    // SAFETY: a constant expression that casts has one operand.
    unsafe {
        while !LLVMIsAConstantExpr(value).is_null()
            && matches!(LLVMGetConstOpcode(value), LLVMOpcode::LLVMAddrSpaceCast | LLVMOpcode::LLVMBitCast)
        {
            value = LLVMGetOperand(value, 0);
        }
    }
    value
}

/// The names in `llvm.used`: what the user marked as retained. (`llvm.compiler.used` only says that the compiler must not drop it, which
/// keeps it alive while it is internal, too.)
///
/// # Safety
/// `module` is a live module.
pub(crate) unsafe fn used_names(module: LLVMModuleRef) -> HashSet<String> {
    let mut names = HashSet::new();
    // SAFETY: operands come from the array's own initializer.
    unsafe {
        let used = LLVMGetNamedGlobal(module, c"llvm.used".as_ptr());
        if !used.is_null() && !LLVMGetInitializer(used).is_null() {
            let initializer = LLVMGetInitializer(used);
            for i in 0..LLVMGetNumOperands(initializer).max(0) as u32 {
                names.insert(name_of(strip_casts(LLVMGetOperand(initializer, i))));
            }
        }
    }
    names
}
