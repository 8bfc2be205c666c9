//! What refers to what in a module, and how many times each definition may exist once the module is cut.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use llvm_sys::LLVMUnnamedAddr;
use llvm_sys::core::*;
use llvm_sys::prelude::*;

use super::LARGE;
use crate::calls::{caller, instruction_count};
use crate::raw::*;
use crate::session::{FUNCTION_INDEX, PTX_KERNEL, SHARED_SPACE, is_local};
use crate::shim;

/// Address space of the constant bank.
const CONSTANT_SPACE: u32 = 4;

/// What a node of the reference graph is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The host launches it.
    Kernel,
    /// Copied where it is needed.
    Function,
    /// Exists once, because its address is taken.
    Taken,
    /// Exists once, because it is large and several kernels need it.
    Large,
    /// A variable of which each part may have its own: block-shared memory, constants whose address means nothing.
    Copyable,
    /// A constant that exists once.
    Constant,
    /// A variable that exists once and can change.
    Mutable,
    /// Declared only.
    Declaration,
}

impl Kind {
    pub(super) fn is_once(self) -> bool {
        matches!(self, Kind::Taken | Kind::Large | Kind::Constant | Kind::Mutable)
    }

    pub(super) fn is_variable(self) -> bool {
        matches!(self, Kind::Copyable | Kind::Constant | Kind::Mutable)
    }
}

pub(super) struct Node {
    pub(super) value: LLVMValueRef,
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) weight: usize,
    pub(super) external: bool,
    pub(super) shared_memory: bool,
    /// What its body or initializer refers to.
    pub(super) refers_to: Vec<usize>,
}

/// All globals and what they refer to. None where kernels refer to each other: a launch from the device needs more than a symbol.
///
/// # Safety
/// `module` is a live module that is fully read.
pub(super) unsafe fn graph(module: LLVMModuleRef) -> Option<Vec<Node>> {
    let mut nodes = Vec::new();
    let mut indices = HashMap::new();
    // SAFETY: by the caller's promise.
    unsafe {
        for value in globals(module) {
            let name = name_of(value);
            if name.starts_with("llvm.") {
                continue;
            }
            indices.insert(value, nodes.len());
            let function = is_function(value);
            let space = LLVMGetPointerAddressSpace(LLVMTypeOf(value));
            let kind = if LLVMIsDeclaration(value) != 0 {
                Kind::Declaration
            } else if function {
                if LLVMGetFunctionCallConv(value) == PTX_KERNEL { Kind::Kernel } else { Kind::Function }
            } else {
                kind_of_variable(value, space)
            };
            let weight = if function { instruction_count(value) } else { 0 };
            let shared_memory = !function && space == SHARED_SPACE && kind != Kind::Declaration;
            nodes.push(Node { value, name, kind, weight, external: !is_local(value), shared_memory, refers_to: Vec::new() });
        }
        for index in 0..nodes.len() {
            let value = nodes.get(index)?.value;
            shim::warplink_remove_dead_users(value);
            let (from, taken) = referring(value);
            for user in from {
                let Some(&user) = indices.get(&user) else { continue };
                nodes.get_mut(user)?.refers_to.push(index);
            }
            let node = nodes.get_mut(index)?;
            match node.kind {
                Kind::Kernel if taken => return None,
                Kind::Function if taken => node.kind = Kind::Taken,
                // Others than kernels and variables: linked machine code refers to it.
                Kind::Function if node.external => node.kind = Kind::Taken,
                _ => {}
            }
        }
    }
    for node in &mut nodes {
        node.refers_to.sort_unstable();
        node.refers_to.dedup();
    }
    let order: BTreeMap<&str, usize> = nodes.iter().enumerate().map(|(index, node)| (node.name.as_str(), index)).collect();
    if order.len() != nodes.len() {
        return None;
    }
    // What uses block-shared memory must be where the kernel is: a copy of the one cannot know the other's memory.
    let mut reached_by: HashMap<usize, usize> = HashMap::new();
    for (kernel, _) in nodes.iter().enumerate().filter(|(_, node)| node.kind == Kind::Kernel) {
        for index in reach(&nodes, &[kernel], |_| true) {
            *reached_by.entry(index).or_default() += 1;
        }
    }
    let candidates: Vec<usize> =
        (0..nodes.len()).filter(|&index| matches!(nodes.get(index), Some(n) if matches!(n.kind, Kind::Function | Kind::Taken))).collect();
    for index in candidates {
        let node = nodes.get(index)?;
        let shared_kernels = reached_by.get(&index).is_some_and(|&count| count > 1);
        let large = node.kind == Kind::Function && node.weight > LARGE && shared_kernels;
        if !large && node.kind != Kind::Taken {
            continue;
        }
        // SAFETY: the value is a live function.
        let always_inlined = unsafe { has_attribute(node.value, c"alwaysinline") };
        let uses_shared_memory = reach(&nodes, &[index], |_| true).into_iter().any(|i| nodes.get(i).is_some_and(|n| n.shared_memory));
        if node.kind == Kind::Taken {
            if uses_shared_memory {
                return None;
            }
        } else if !uses_shared_memory && !always_inlined {
            nodes.get_mut(index)?.kind = Kind::Large;
        }
    }
    Some(nodes)
}

/// # Safety
/// `function` is a live function.
unsafe fn has_attribute(function: LLVMValueRef, name: &std::ffi::CStr) -> bool {
    // SAFETY: by the caller's promise; the name and its length describe a live string.
    unsafe {
        let kind = LLVMGetEnumAttributeKindForName(name.as_ptr(), name.count_bytes());
        !LLVMGetEnumAttributeAtIndex(function, FUNCTION_INDEX, kind).is_null()
    }
}

/// # Safety
/// `value` is a live definition of a variable.
unsafe fn kind_of_variable(value: LLVMValueRef, space: u32) -> Kind {
    // SAFETY: by the caller's promise.
    unsafe {
        let local = is_local(value);
        if space == SHARED_SPACE {
            return if local { Kind::Copyable } else { Kind::Mutable };
        }
        if LLVMIsGlobalConstant(value) == 0 || LLVMIsExternallyInitialized(value) != 0 {
            return Kind::Mutable;
        }
        let anonymous = LLVMGetUnnamedAddress(value) == LLVMUnnamedAddr::LLVMGlobalUnnamedAddr;
        // The constant bank is small: what is in it stays there once.
        if local && anonymous && space != CONSTANT_SPACE { Kind::Copyable } else { Kind::Constant }
    }
}

/// The functions and variables that refer to a global, through constant expressions as well, and whether anything but a direct call does.
///
/// # Safety
/// `value` is a live global.
unsafe fn referring(value: LLVMValueRef) -> (HashSet<LLVMValueRef>, bool) {
    let mut from = HashSet::new();
    let mut taken = false;
    let mut seen = HashSet::new();
    let mut stack = vec![value];
    // SAFETY: users of live values are live.
    unsafe {
        while let Some(used) = stack.pop() {
            for user in users(used) {
                if !LLVMIsAInstruction(user).is_null() {
                    from.insert(LLVMGetBasicBlockParent(LLVMGetInstructionParent(user)));
                    taken |= used != value || caller(user, value).is_none();
                } else if is_function(user) || is_variable(user) {
                    // `llvm.used` and its like refer to what they keep, and mean nothing else.
                    if !name_of(user).starts_with("llvm.") {
                        from.insert(user);
                        taken = true;
                    }
                } else if seen.insert(user) {
                    stack.push(user);
                }
            }
        }
    }
    (from, taken)
}

/// Everything that roots reach, the roots included; `through` says beyond which nodes the search goes on.
pub(super) fn reach(nodes: &[Node], roots: &[usize], through: impl Fn(usize) -> bool) -> BTreeSet<usize> {
    let mut seen: BTreeSet<usize> = roots.iter().copied().collect();
    let mut stack = roots.to_vec();
    while let Some(index) = stack.pop() {
        if !roots.contains(&index) && !through(index) {
            continue;
        }
        for &next in nodes.get(index).map_or(&[][..], |node| &node.refers_to) {
            if seen.insert(next) {
                stack.push(next);
            }
        }
    }
    seen
}
