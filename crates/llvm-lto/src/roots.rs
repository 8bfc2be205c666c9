//! The kernels of a program, and programs of which only some are wanted.

use std::collections::HashSet;

use llvm_sys::LLVMLinkage;
use llvm_sys::core::*;

use crate::raw::*;
use crate::session::{Binding, PTX_KERNEL, Session, SymbolKind, symbols_of};

impl Session<'_> {
    /// Names of the kernels defined in the merged module.
    pub fn kernels(&self) -> Result<Vec<String>> {
        let module = self.merged()?;
        // SAFETY: the module is live.
        let symbols = unsafe { symbols_of(module) };
        Ok(symbols
            .into_iter()
            .filter(|s| s.kind == SymbolKind::Kernel && !matches!(s.binding, Binding::Undefined | Binding::UndefinedWeak))
            .map(|s| s.name)
            .collect())
    }

    /// Makes every kernel internal that is not in `keep`, after [`Session::internalize`]: it goes, unless something that stays launches it.
    pub fn hide_kernels(&mut self, keep: &HashSet<String>) -> Result<()> {
        let module = self.merged()?;
        // SAFETY: the module is live; only definitions of functions get another linkage.
        unsafe {
            for value in globals(module) {
                if is_function(value)
                    && LLVMIsDeclaration(value) == 0
                    && LLVMGetFunctionCallConv(value) == PTX_KERNEL
                    && !keep.contains(&name_of(value))
                {
                    LLVMSetLinkage(value, LLVMLinkage::LLVMInternalLinkage);
                }
            }
        }
        Ok(())
    }
}
