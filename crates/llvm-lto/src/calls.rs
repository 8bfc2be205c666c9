//! How kernels and functions of the merged module call each other.

use std::collections::{BTreeSet, HashMap, HashSet};

use llvm_sys::core::*;
use llvm_sys::prelude::*;

use crate::raw::*;
use crate::session::{PTX_KERNEL, Session};

/// What decides between whole-program and relocatable ptxas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallFacts {
    /// Kernels defined.
    pub kernels: usize,
    /// Other functions defined.
    pub functions: usize,
    /// Functions that more than one kernel reaches by direct calls.
    pub shared_functions: usize,
    /// Functions whose address is taken: targets of indirect calls.
    pub address_taken: usize,
    /// IR instructions in functions that are not kernels.
    pub function_instructions: usize,
}

impl Session<'_> {
    /// How kernels call functions in the merged module.
    pub fn call_facts(&self) -> Result<CallFacts> {
        let module = self.merged()?;
        let mut facts = CallFacts::default();
        // SAFETY: the module is live and fully read.
        unsafe {
            let mut callees: HashMap<LLVMValueRef, BTreeSet<LLVMValueRef>> = HashMap::new();
            let mut kernels = Vec::new();
            let mut function = LLVMGetFirstFunction(module);
            while !function.is_null() {
                if LLVMIsDeclaration(function) == 0 {
                    if LLVMGetFunctionCallConv(function) == PTX_KERNEL {
                        kernels.push(function);
                        facts.kernels += 1;
                    } else {
                        facts.functions += 1;
                        facts.function_instructions += instruction_count(function);
                        let mut taken = false;
                        for user in users(function) {
                            match caller(user, function) {
                                Some(from) => {
                                    callees.entry(from).or_default().insert(function);
                                }
                                None => taken = true,
                            }
                        }
                        facts.address_taken += usize::from(taken);
                    }
                }
                function = LLVMGetNextFunction(function);
            }
            let mut reached_by: HashMap<LLVMValueRef, usize> = HashMap::new();
            for kernel in kernels {
                let mut seen = HashSet::new();
                let mut stack = vec![kernel];
                while let Some(from) = stack.pop() {
                    for &to in callees.get(&from).into_iter().flatten() {
                        if seen.insert(to) {
                            *reached_by.entry(to).or_default() += 1;
                            stack.push(to);
                        }
                    }
                }
            }
            facts.shared_functions = reached_by.values().filter(|&&n| n > 1).count();
        }
        Ok(facts)
    }

    /// Undefined functions that device code launches, by name: kernels, although nothing in their declarations says so.
    pub fn launched(&self) -> Result<Vec<String>> {
        let module = self.merged()?;
        let mut names = Vec::new();
        // SAFETY: the module is live and fully read.
        unsafe {
            let mut function = LLVMGetFirstFunction(module);
            while !function.is_null() {
                if LLVMIsDeclaration(function) != 0 && users(function).into_iter().any(|user| is_launch(user, function)) {
                    names.push(name_of(function));
                }
                function = LLVMGetNextFunction(function);
            }
        }
        Ok(names)
    }
}

/// Whether `user` is a call that launches `kernel` from device code: of libcudadevrt's function, or of the inline function of CUDA's headers
/// before it, which unoptimised code still calls. Both take the kernel first.
///
/// # Safety
/// Both values are live.
unsafe fn is_launch(user: LLVMValueRef, kernel: LLVMValueRef) -> bool {
    // SAFETY: checked to be a call with an argument before its operands are read.
    unsafe {
        if LLVMIsACallInst(user).is_null() || LLVMGetNumArgOperands(user) == 0 || LLVMGetOperand(user, 0) != kernel {
            return false;
        }
        let callee = name_of(LLVMGetCalledValue(user));
        callee.starts_with("__cudaCDP2LaunchDevice") || callee.contains("cudaLaunchDevice")
    }
}

/// The function that calls `callee` directly by `user`; none where the use is anything but the callee of a call.
///
/// # Safety
/// Both values are live.
pub(crate) unsafe fn caller(user: LLVMValueRef, callee: LLVMValueRef) -> Option<LLVMValueRef> {
    // SAFETY: checked to be a call before its operands are read.
    unsafe {
        if LLVMIsACallInst(user).is_null() || LLVMGetCalledValue(user) != callee {
            return None;
        }
        let arguments = LLVMGetNumArgOperands(user);
        if (0..arguments).any(|i| LLVMGetOperand(user, i) == callee) {
            return None;
        }
        Some(LLVMGetBasicBlockParent(LLVMGetInstructionParent(user)))
    }
}

/// # Safety
/// `function` is a live definition.
pub(crate) unsafe fn instruction_count(function: LLVMValueRef) -> usize {
    let mut count = 0;
    // SAFETY: LLVM's own iteration protocol.
    unsafe {
        let mut block = LLVMGetFirstBasicBlock(function);
        while !block.is_null() {
            let mut instruction = LLVMGetFirstInstruction(block);
            while !instruction.is_null() {
                count += 1;
                instruction = LLVMGetNextInstruction(instruction);
            }
            block = LLVMGetNextBasicBlock(block);
        }
    }
    count
}
