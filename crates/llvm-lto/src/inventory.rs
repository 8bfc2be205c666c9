//! What is in the merged module: taken before and after optimisation, it shows what optimisation removed.

use std::collections::{HashMap, HashSet};

use llvm_sys::LLVMLinkage;
use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::target::{LLVMABISizeOfType, LLVMGetModuleDataLayout};

use crate::calls::instruction_count;
use crate::raw::*;
use crate::session::{PTX_KERNEL, Session, SymbolKind, is_local};

/// A definition of the merged module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The mangled name.
    pub name: String,
    /// Kernel, function or variable.
    pub kind: SymbolKind,
    /// Nothing outside of the module can refer to it.
    pub internal: bool,
    /// Instructions of a function, bytes of a variable; 0 where sizes were not asked for.
    pub size: u64,
}

impl Session<'_> {
    /// Everything that the merged module defines, in its order; with `sizes`, which takes a walk over all code, how large each is.
    pub fn inventory(&self, sizes: bool) -> Result<Vec<Definition>> {
        let module = self.merged()?;
        let mut definitions = Vec::new();
        // SAFETY: the module is live and fully read.
        unsafe {
            for value in globals(module) {
                if !is_definition(value) {
                    continue;
                }
                let function = is_function(value);
                let kind = match (function, function && LLVMGetFunctionCallConv(value) == PTX_KERNEL) {
                    (_, true) => SymbolKind::Kernel,
                    (true, _) => SymbolKind::Function,
                    _ => SymbolKind::Variable,
                };
                let size = match (sizes, function) {
                    (false, _) => 0,
                    (_, true) => instruction_count(value) as u64,
                    _ => LLVMABISizeOfType(LLVMGetModuleDataLayout(module), LLVMGlobalGetValueType(value)),
                };
                definitions.push(Definition { name: name_of(value), kind, internal: is_local(value), size });
            }
        }
        Ok(definitions)
    }

    /// The definitions that nothing which stays findable leads to: what optimisation drops without having looked at it.
    pub fn unreachable(&self) -> Result<HashSet<String>> {
        let module = self.merged()?;
        // SAFETY: the module is live and fully read; users of live values are live.
        unsafe {
            // A use leads from the definition that uses to the one that is used.
            let defined: Vec<LLVMValueRef> = globals(module).into_iter().filter(|&value| is_definition(value)).collect();
            let mut uses: HashMap<LLVMValueRef, Vec<LLVMValueRef>> = HashMap::new();
            for &value in &defined {
                let (mut seen, mut stack) = (HashSet::new(), vec![value]);
                while let Some(at) = stack.pop() {
                    for user in users(at) {
                        if !LLVMIsAInstruction(user).is_null() {
                            let function = LLVMGetBasicBlockParent(LLVMGetInstructionParent(user));
                            if seen.insert(function) {
                                uses.entry(function).or_default().push(value);
                            }
                        } else if seen.insert(user) {
                            if !LLVMIsAGlobalValue(user).is_null() {
                                uses.entry(user).or_default().push(value);
                            } else {
                                stack.push(user);
                            }
                        }
                    }
                }
            }
            let mut reached: HashSet<LLVMValueRef> = HashSet::new();
            // Aliases and the compiler's own lists count as roots: what they name stays.
            let mut stack: Vec<LLVMValueRef> =
                globals(module).into_iter().filter(|&value| !is_definition(value) || !is_local(value)).collect();
            while let Some(value) = stack.pop() {
                if reached.insert(value) {
                    stack.extend(uses.get(&value).into_iter().flatten());
                }
            }
            Ok(defined.into_iter().filter(|value| !reached.contains(value)).map(|value| name_of(value)).collect())
        }
    }
}

/// # Safety
/// `value` is a live global.
unsafe fn is_definition(value: LLVMValueRef) -> bool {
    // SAFETY: by the caller's promise.
    unsafe {
        (is_function(value) || is_variable(value))
            && LLVMIsDeclaration(value) == 0
            && !matches!(LLVMGetLinkage(value), LLVMLinkage::LLVMAvailableExternallyLinkage | LLVMLinkage::LLVMAppendingLinkage)
            && !name_of(value).starts_with("llvm.")
    }
}
