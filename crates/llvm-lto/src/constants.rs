//! Constants of the merged module: equal ones become one, and what the constant bank cannot hold moves to global memory.

use std::collections::{HashMap, HashSet};

use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout, LLVMPreferredAlignmentOfGlobal, LLVMTargetDataRef};
use llvm_sys::{LLVMOpcode, LLVMUnnamedAddr};

use crate::raw::*;
use crate::session::{Session, is_local};
use crate::shim;

/// Address space of `__constant__` memory and of what the compiler puts there by itself.
const CONSTANT_SPACE: u32 = 4;

/// Address space of `__device__` memory.
const GLOBAL_SPACE: u32 = 1;

/// A constant that left the 64 KB constant bank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demoted {
    /// The mangled name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
}

impl Session<'_> {
    /// Merges internal constants of equal content whose address nobody compares: headers give each unit its own copy of a table, and the
    /// constant bank holds 64 KB for the whole program. Returns how many went.
    pub fn merge_constants(&mut self) -> Result<usize> {
        let module = self.merged()?;
        let mut merged = 0;
        // SAFETY: the module is live. Constants are unique within a context, so equal content is the same initializer pointer.
        unsafe {
            let mut first: HashMap<(usize, u32), LLVMValueRef> = HashMap::new();
            for value in globals(module) {
                if !mergeable(value) {
                    continue;
                }
                let space = LLVMGetPointerAddressSpace(LLVMTypeOf(value));
                let initializer = LLVMGetInitializer(value) as usize;
                match first.get(&(initializer, space)) {
                    None => {
                        first.insert((initializer, space), value);
                    }
                    Some(&keeper) => {
                        // Where none is stated, it is what the data layout prefers, and users rely on it.
                        let layout = LLVMGetModuleDataLayout(module);
                        let alignment = LLVMPreferredAlignmentOfGlobal(layout, keeper).max(LLVMPreferredAlignmentOfGlobal(layout, value));
                        LLVMSetAlignment(keeper, alignment);
                        LLVMReplaceAllUsesWith(value, keeper);
                        LLVMDeleteGlobal(value);
                        merged += 1;
                    }
                }
            }
        }
        Ok(merged)
    }

    /// Bytes of the constant bank that the merged module takes.
    pub fn constant_bytes(&self) -> Result<u64> {
        let module = self.merged()?;
        // SAFETY: the module is live.
        unsafe {
            let layout = LLVMGetModuleDataLayout(module);
            let constants = globals(module).into_iter().filter(|&value| in_constant_bank(value));
            Ok(constants.fold(0, |total, value| place(layout, total, value)))
        }
    }

    /// Moves constants that the compiler put into the constant bank by itself to global memory, the largest first, until what is left fits
    /// `limit` bytes. `keep` are names that the host knows: they stay.
    pub fn demote_constants(&mut self, limit: u64, keep: &HashSet<String>) -> Result<Vec<Demoted>> {
        let module = self.merged()?;
        let mut demoted = Vec::new();
        // SAFETY: the module is live; a global is only replaced where every user is a cast to the generic address space.
        unsafe {
            let layout = LLVMGetModuleDataLayout(module);
            let mut total = 0;
            let mut candidates = Vec::new();
            for value in globals(module) {
                if !in_constant_bank(value) {
                    continue;
                }
                let size = LLVMABISizeOfType(layout, LLVMGlobalGetValueType(value));
                total = place(layout, total, value);
                let name = name_of(value);
                if LLVMIsExternallyInitialized(value) == 0 && is_local(value) && !keep.contains(&name) {
                    candidates.push((size, name, value));
                }
            }
            if total <= limit {
                return Ok(demoted);
            }
            candidates.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            for (size, name, value) in candidates {
                if total <= limit {
                    break;
                }
                if demote(module, value) {
                    total = total.saturating_sub(size);
                    demoted.push(Demoted { name, size });
                }
            }
        }
        Ok(demoted)
    }
}

/// # Safety
/// `value` is a live global.
unsafe fn in_constant_bank(value: LLVMValueRef) -> bool {
    // SAFETY: by the caller's promise; the type of a variable is a pointer.
    unsafe { is_variable(value) && LLVMIsDeclaration(value) == 0 && LLVMGetPointerAddressSpace(LLVMTypeOf(value)) == CONSTANT_SPACE }
}

/// Where a variable ends that is placed behind `total` bytes of others.
///
/// # Safety
/// `value` is a live variable, `layout` its module's.
unsafe fn place(layout: LLVMTargetDataRef, total: u64, value: LLVMValueRef) -> u64 {
    // SAFETY: by the caller's promise.
    unsafe {
        let size = LLVMABISizeOfType(layout, LLVMGlobalGetValueType(value));
        u64::next_multiple_of(total, u64::from(LLVMGetAlignment(value).max(1))) + size
    }
}

/// # Safety
/// `value` is a live global.
unsafe fn mergeable(value: LLVMValueRef) -> bool {
    // SAFETY: by the caller's promise.
    unsafe {
        is_variable(value)
            && LLVMIsDeclaration(value) == 0
            && is_local(value)
            && LLVMIsGlobalConstant(value) != 0
            && LLVMIsExternallyInitialized(value) == 0
            && LLVMGetUnnamedAddress(value) == LLVMUnnamedAddr::LLVMGlobalUnnamedAddr
            && section_of(value).is_empty()
            && !LLVMGetInitializer(value).is_null()
    }
}

/// Replaces a variable in the constant bank by one in global memory. False, and nothing changed, where a user relies on the address space.
///
/// # Safety
/// `value` is a live global variable of `module`.
unsafe fn demote(module: LLVMModuleRef, value: LLVMValueRef) -> bool {
    // SAFETY: each user checked below is a cast whose only operand is `value`; its uses get a cast of the replacement to the same type.
    unsafe {
        let casts = users(value);
        let all_casts = casts.iter().all(|&user| {
            (!LLVMIsAConstantExpr(user).is_null() && LLVMGetConstOpcode(user) == LLVMOpcode::LLVMAddrSpaceCast)
                || !LLVMIsAAddrSpaceCastInst(user).is_null()
        });
        if !all_casts {
            return false;
        }
        let name = name_of(value);
        let replacement = LLVMAddGlobalInAddressSpace(module, LLVMGlobalGetValueType(value), c"".as_ptr(), GLOBAL_SPACE);
        LLVMSetInitializer(replacement, LLVMGetInitializer(value));
        LLVMSetGlobalConstant(replacement, 1);
        LLVMSetLinkage(replacement, LLVMGetLinkage(value));
        LLVMSetAlignment(replacement, LLVMGetAlignment(value));
        LLVMSetUnnamedAddress(replacement, LLVMGetUnnamedAddress(value));
        for user in casts {
            let cast = LLVMConstAddrSpaceCast(replacement, LLVMTypeOf(user));
            LLVMReplaceAllUsesWith(user, cast);
            if !LLVMIsAAddrSpaceCastInst(user).is_null() {
                LLVMInstructionEraseFromParent(user);
            }
        }
        shim::warplink_remove_dead_users(value);
        if !LLVMGetFirstUse(value).is_null() {
            return false;
        }
        LLVMDeleteGlobal(value);
        let c_name = c_string(&name);
        LLVMSetValueName2(replacement, c_name.as_ptr(), name.len());
        true
    }
}
