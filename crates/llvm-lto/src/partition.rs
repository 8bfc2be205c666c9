//! Cuts a merged, closed module into parts that are optimised, compiled and assembled each by itself, and that nvlink joins.
//!
//! What a part holds follows from its roots, some kernels: everything that they reach. A function that several parts reach is copied into each
//! of them as an internal one, as long as optimisation could inline it; a larger one stays where it is, once, and is called across parts. One
//! whose address is taken exists once as well, or pointers to it would differ, but other parts see its body, to inline it where they call it
//! directly. The same holds for constants: whoever reads one may see its value. Variables that can change exist once. What several parts need
//! and none owns goes to parts of its own: one for variables, some for functions.
//!
//! The cut depends on nothing but the module: neither on the number of threads nor on the order of the inputs. Kernels are taken in the order
//! of their names, and where one part ends and the next begins is decided by the names around that place, so that a change of one function
//! moves no border elsewhere. A part is written in a canonical form (order of symbols by name, no names of types or local values): its bytes are
//! equal exactly where what they mean is, which is what a cache needs.

mod graph;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use std::marker::PhantomData;

use llvm_sys::LLVMLinkage;
use llvm_sys::LLVMVisibility;
use llvm_sys::bit_reader::LLVMGetBitcodeModuleInContext2;
use llvm_sys::core::*;
use llvm_sys::prelude::*;

use self::graph::{Kind, Node, graph, reach};
use crate::calls::instruction_count;
use crate::raw::*;
use crate::session::Session;
use crate::shim;
use crate::target::TargetSpec;

/// Functions of more instructions than this are not copied into several parts. Inlining gives up at half of it on NVPTX (225 times a
/// multiplier of 11, at about 5 an instruction), so that a copy would stay a function.
const LARGE: usize = 1000;

/// Instructions of a part at most: what one core should do while the others wait.
const LARGEST_PART: usize = 65_536;

/// How finely a module is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutLimits {
    /// A module of fewer instructions stays whole.
    pub smallest_module: usize,
    /// Instructions of a part at least, where there are that many.
    pub smallest_part: usize,
    /// Into how many parts a module is cut, roughly, while the size of the parts allows it.
    pub parts: usize,
    /// Bytes of the constant bank: a program that needs more stays whole, so that its constants are weighed against each other.
    pub constant_bank: u64,
}

impl CutLimits {
    /// For links that nobody has asked for anything special. A small module stays whole: starting ptxas once more costs more than a second
    /// core saves, and ptxas does better by a program that it sees as a whole.
    pub const USUAL: CutLimits = CutLimits { smallest_module: 16_000, smallest_part: 2_048, parts: 24, constant_bank: 0x1_0000 };
}

/// Between a name and the hash that makes it unique, as clang has `__static__`.
const MARK: &str = "__part__";

/// What stands in promoted names for the characters that PTX does not take in names.
const REPLACED: &str = "_$_";

/// The name that a symbol of a part had in the module that was cut.
pub fn name_before_cut(symbol: &str) -> Cow<'_, str> {
    let Some((name, hash)) = symbol.rsplit_once(MARK) else { return Cow::Borrowed(symbol) };
    if hash.len() != 8 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Cow::Borrowed(symbol);
    }
    // The hash tells whether it was a dot: a name may have had these three characters before.
    let dotted = name.replace(REPLACED, ".");
    if dotted != name && promoted_hash(&dotted) == hash { Cow::Owned(dotted) } else { Cow::Borrowed(name) }
}

fn promoted_hash(name: &str) -> String {
    format!("{:08x}", fnv(name.as_bytes()) as u32)
}

/// A module cut into parts.
#[derive(Debug)]
pub struct Cut {
    bitcode: Vec<u8>,
    parts: Vec<Part>,
    /// Everything that some part defines and others may refer to.
    exported: HashSet<String>,
}

/// A part of a module.
#[derive(Debug)]
struct Part {
    name: String,
    weight: usize,
    roles: Vec<(String, Role)>,
}

/// What becomes of a definition of the module in one part. What is not named is at most referred to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Defined as in the module.
    Defined = 1,
    /// A copy: internal, under a name of its own.
    Copied = 2,
    /// Its content can be seen, but it is defined elsewhere.
    Visible = 3,
}

impl Cut {
    /// How many parts there are: at least two.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Never: a module that stays whole is no cut.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// What a part is called: by the first of its kernels or functions, in the order of names.
    pub fn name(&self, part: usize) -> &str {
        self.parts.get(part).map_or("", |part| &part.name)
    }

    /// IR instructions in a part: what work it makes, roughly.
    pub fn weight(&self, part: usize) -> usize {
        self.parts.get(part).map_or(0, |part| part.weight)
    }

    /// Whether some part defines a symbol that others can refer to.
    pub fn defines(&self, symbol: &str) -> bool {
        self.exported.contains(symbol)
    }

    /// One part as a session of its own whose merged module it is, in canonical form.
    pub fn part(&self, index: usize) -> Result<Session<'_>> {
        let part = self.parts.get(index).ok_or_else(|| Error("there is no such part".to_owned()))?;
        let mut session = Session::new();
        let buffer_name = c_string(&part.name);
        let names: Vec<_> = part.roles.iter().map(|(name, _)| c_string(name)).collect();
        let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let roles: Vec<u8> = part.roles.iter().map(|(_, role)| *role as u8).collect();
        let suffix = c_string(&format!("{MARK}{:08x}", fnv(part.name.as_bytes()) as u32));
        let mut module = std::ptr::null_mut();
        // SAFETY: the buffer borrows the bitcode, which outlives the session by its lifetime, and belongs to the lazy module; names and roles
        // are arrays of one length that outlive the call.
        unsafe {
            LLVMContextSetDiscardValueNames(session.context().raw(), 1);
            let buffer = LLVMCreateMemoryBufferWithMemoryRange(self.bitcode.as_ptr().cast(), self.bitcode.len(), buffer_name.as_ptr(), 0);
            if LLVMGetBitcodeModuleInContext2(session.context().raw(), buffer, &mut module) != 0 || module.is_null() {
                return Err(session.context().error("the module cannot be read back"));
            }
            let module = Module(module);
            if shim::warplink_trim(module.0, pointers.as_ptr(), roles.as_ptr(), pointers.len(), suffix.as_ptr()) != 0 {
                return Err(session.context().error("the module cannot be cut"));
            }
            session.set_merged(module);
        }
        Ok(session)
    }
}

impl Session<'static> {
    /// Reads bitcode that is the whole program already, such as a part of one. `name` is how messages call it.
    pub fn whole(name: &str, bitcode: &[u8]) -> Result<Session<'static>> {
        let session = Session::new();
        let module = session.parse(name, bitcode, false)?;
        let Session { context, recording, .. } = session;
        Ok(Session { inputs: Vec::new(), merged: Some(module), context, recording, machine: None, _bitcode: PhantomData })
    }
}

impl Session<'_> {
    /// Cuts the merged module, which must be closed. None where it stays whole: because it is small, or because it holds something that binds
    /// its parts together. Where it is cut, the session's own module is spent.
    pub fn cut(&mut self, spec: &TargetSpec, limits: &CutLimits) -> Result<Option<Cut>> {
        if self.instructions()? < limits.smallest_module {
            return Ok(None);
        }
        // What is dead is not distributed, and a variable that nothing writes becomes a constant while everything can still be seen.
        self.run_passes(spec, "globaldce,globalopt,globaldce")?;
        self.merge_constants()?;
        if self.constant_bytes()? > limits.constant_bank {
            return Ok(None);
        }
        let module = self.merged()?;
        // SAFETY: the module is live and fully read; nodes are used while it is unchanged, but for names and linkages of its globals.
        let parts = unsafe {
            if !is_divisible(module) {
                return Ok(None);
            }
            name_the_nameless(module);
            let Some(mut nodes) = graph(module) else { return Ok(None) };
            let Some(plan) = plan(&nodes, limits) else { return Ok(None) };
            promote(&mut nodes, &plan);
            roles(&nodes, &plan)
        };
        let exported = parts.1;
        let bitcode = self.bitcode()?;
        self.drop_merged();
        Ok(Some(Cut { bitcode, parts: parts.0, exported }))
    }

    /// IR instructions of the merged module.
    pub fn instructions(&self) -> Result<usize> {
        let module = self.merged()?;
        let mut count = 0;
        // SAFETY: LLVM's own iteration protocol.
        unsafe {
            let mut function = LLVMGetFirstFunction(module);
            while !function.is_null() {
                count += instruction_count(function);
                function = LLVMGetNextFunction(function);
            }
        }
        Ok(count)
    }
}

/// Whether nothing in the module stands in the way of cutting it: assembly and aliases name symbols behind our back, and lists that the linker
/// concatenates belong to all parts at once.
///
/// # Safety
/// `module` is a live module.
unsafe fn is_divisible(module: LLVMModuleRef) -> bool {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut length = 0;
        LLVMGetModuleInlineAsm(module, &mut length);
        if length > 0 || !LLVMGetFirstGlobalAlias(module).is_null() || !LLVMGetFirstGlobalIFunc(module).is_null() {
            return false;
        }
        globals(module).into_iter().all(|value| {
            let listed = LLVMGetLinkage(value) == LLVMLinkage::LLVMAppendingLinkage;
            let name = name_of(value);
            (!listed || name == "llvm.used" || name == "llvm.compiler.used") && (!is_variable(value) || LLVMIsThreadLocal(value) == 0)
        })
    }
}

/// Parts refer to globals by name.
///
/// # Safety
/// `module` is a live module.
unsafe fn name_the_nameless(module: LLVMModuleRef) {
    // SAFETY: by the caller's promise; LLVM makes the name unique.
    unsafe {
        for (index, value) in globals(module).into_iter().filter(|&value| name_of(value).is_empty()).enumerate() {
            let name = format!("__unnamed_{index}");
            LLVMSetValueName2(value, name.as_ptr().cast(), name.len());
        }
    }
}

/// A mangled name in an order in which people would sort it: the identifiers, without their lengths, before the rest. What belongs together is
/// named alike, and shares what it calls.
fn identifiers(name: &str) -> String {
    let Some(mut rest) = name.strip_prefix("_Z") else { return name.to_owned() };
    rest = rest.strip_prefix('N').unwrap_or(rest);
    let mut key = String::with_capacity(name.len());
    loop {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let length = rest.get(..digits).and_then(|digits| digits.parse::<usize>().ok());
        let Some(identifier) = length.and_then(|length| rest.get(digits..digits.checked_add(length)?)) else { break };
        key.push_str(identifier);
        key.push(' ');
        rest = rest.get(digits + identifier.len()..).unwrap_or_default();
    }
    key.push_str(rest);
    key
}

/// Which part holds what.
struct Plan {
    /// The roots of each part: kernels, or functions that several parts need.
    parts: Vec<Vec<usize>>,
    /// What each part reaches.
    reached: Vec<BTreeSet<usize>>,
    /// Variables that no single part owns.
    data: BTreeSet<usize>,
    /// These and what they refer to.
    with_data: BTreeSet<usize>,
    /// How many parts reach a node, the one of the variables included.
    users: HashMap<usize, usize>,
    /// The part that defines what exists once.
    home: HashMap<usize, usize>,
}

fn plan(nodes: &[Node], limits: &CutLimits) -> Option<Plan> {
    let node = |index: usize| nodes.get(index);
    let by_name = |mut list: Vec<usize>| {
        list.sort_by_cached_key(|&index| node(index).map(|n| (identifiers(&n.name), n.name.clone())));
        list
    };
    let all = |kind: Kind| by_name((0..nodes.len()).filter(|&i| node(i).is_some_and(|n| n.kind == kind)).collect());
    let total: usize = nodes.iter().map(|node| node.weight).sum();
    // A power of two, so that it stays the same while the program grows a little.
    let size = (total / limits.parts.max(1)).next_power_of_two().min(LARGEST_PART).max(limits.smallest_part);

    let mut data: BTreeSet<usize> = BTreeSet::new();
    let mut common: BTreeSet<usize> = BTreeSet::new();
    loop {
        // What is only referred to brings nothing with it.
        let closure = |roots: &[usize]| {
            reach(nodes, roots, |index| match node(index) {
                None => false,
                Some(found) => match found.kind {
                    Kind::Declaration => false,
                    Kind::Mutable => !data.contains(&index),
                    Kind::Large => !common.contains(&index),
                    Kind::Taken => found.weight <= LARGE || !common.contains(&index),
                    Kind::Kernel | Kind::Function | Kind::Copyable | Kind::Constant => true,
                },
            })
        };
        let kernels = chunks(nodes, &all(Kind::Kernel), size, &closure);
        let functions = chunks(nodes, &by_name(common.iter().copied().collect()), size, &closure);
        let parts: Vec<Vec<usize>> = kernels.into_iter().chain(functions).collect();
        let reached: Vec<BTreeSet<usize>> = parts.iter().map(|roots| closure(roots)).collect();
        let mut users: HashMap<usize, usize> = HashMap::new();
        let mut home = HashMap::new();
        for (part, set) in reached.iter().enumerate() {
            for &index in set {
                *users.entry(index).or_default() += 1;
                home.insert(index, part);
            }
        }
        let with_data =
            reach(nodes, &data.iter().copied().collect::<Vec<_>>(), |index| node(index).is_some_and(|n| n.kind == Kind::Copyable));
        for &index in with_data.difference(&data) {
            *users.entry(index).or_default() += 1;
            home.remove(&index);
        }
        let mut changed = false;
        for (index, found) in nodes.iter().enumerate().filter(|(_, found)| found.kind.is_once()) {
            if users.get(&index) == Some(&1) && home.contains_key(&index) {
                continue;
            }
            changed |= if found.kind.is_variable() { data.insert(index) } else { common.insert(index) };
        }
        if !changed {
            if parts.len() < 2 {
                return None;
            }
            for (part, roots) in parts.iter().enumerate() {
                home.extend(roots.iter().map(|&root| (root, part)));
            }
            home.extend(data.iter().map(|&index| (index, parts.len())));
            return Some(Plan { parts, reached, data, with_data, users, home });
        }
    }
}

/// Splits roots, which are in the order of their names, where one part has enough. The border is where the hash of a name says so, as soon as
/// half the size is there: when a function grows, the next border is most likely where it was.
fn chunks(nodes: &[Node], roots: &[usize], size: usize, closure: &dyn Fn(&[usize]) -> BTreeSet<usize>) -> Vec<Vec<usize>> {
    let weight = |index: &usize| nodes.get(*index).map_or(0, |node| node.weight);
    let mut all = Vec::new();
    let mut part: Vec<usize> = Vec::new();
    let mut held: HashSet<usize> = HashSet::new();
    let mut sum = 0;
    for &root in roots {
        let fresh: Vec<usize> = closure(&[root]).into_iter().filter(|index| !held.contains(index)).collect();
        let added: usize = fresh.iter().map(weight).sum();
        // A large one does not join what is nearly full.
        if sum + added > 2 * size && !part.is_empty() {
            all.push(std::mem::take(&mut part));
            held.clear();
            sum = 0;
            held.extend(closure(&[root]));
            sum += held.iter().map(weight).sum::<usize>();
        } else {
            sum += added;
            held.extend(fresh);
        }
        part.push(root);
        let ends = nodes.get(root).is_some_and(|node| fnv(node.name.as_bytes()).is_multiple_of(4));
        if sum >= size || (sum >= size / 2 && ends) {
            all.push(std::mem::take(&mut part));
            held.clear();
            sum = 0;
        }
    }
    if !part.is_empty() {
        all.push(part);
    }
    all
}

/// Gives what other parts refer to an external name that nothing else has.
///
/// # Safety
/// The nodes' values are live.
unsafe fn promote(nodes: &mut [Node], plan: &Plan) {
    for (index, node) in nodes.iter_mut().enumerate() {
        let alone = plan.users.get(&index) == Some(&1) && plan.home.get(&index).is_some_and(|&part| part < plan.parts.len());
        if !node.kind.is_once() || node.external || alone {
            continue;
        }
        // PTX has no such characters in names; the back end replaces them in internal ones only.
        let valid = node.name.replace(['.', '@'], REPLACED);
        let name = format!("{valid}{MARK}{}", promoted_hash(&node.name));
        // SAFETY: by the caller's promise.
        unsafe {
            LLVMSetValueName2(node.value, name.as_ptr().cast(), name.len());
            LLVMSetLinkage(node.value, LLVMLinkage::LLVMExternalLinkage);
            LLVMSetVisibility(node.value, LLVMVisibility::LLVMDefaultVisibility);
            node.name = name_of(node.value);
        }
        node.external = true;
    }
}

/// The parts with their roles, and the names that they define for each other.
fn roles(nodes: &[Node], plan: &Plan) -> (Vec<Part>, HashSet<String>) {
    let mut parts = Vec::new();
    for (part, (roots, reached)) in plan.parts.iter().zip(&plan.reached).enumerate() {
        let mut roles = Vec::new();
        let mut weight = 0;
        for &index in reached {
            let Some(node) = nodes.get(index) else { continue };
            let here = plan.home.get(&index) == Some(&part);
            let role = match node.kind {
                Kind::Declaration => continue,
                Kind::Kernel => Role::Defined,
                Kind::Function | Kind::Copyable if plan.users.get(&index).is_some_and(|&count| count > 1) => Role::Copied,
                Kind::Function | Kind::Copyable => Role::Defined,
                Kind::Taken | Kind::Constant | Kind::Large | Kind::Mutable if here => Role::Defined,
                Kind::Taken if node.weight > LARGE => continue,
                Kind::Taken | Kind::Constant => Role::Visible,
                Kind::Large | Kind::Mutable => continue,
            };
            weight += node.weight;
            roles.push((node.name.clone(), role));
        }
        let name =
            roots.first().and_then(|&root| nodes.get(root)).map_or("", |node| node.name.split(MARK).next().unwrap_or_default()).to_owned();
        parts.push(Part { name, weight, roles });
    }
    if !plan.data.is_empty() {
        let role = |index: &usize| {
            let node = nodes.get(*index)?;
            let role = match node.kind {
                _ if plan.data.contains(index) => Role::Defined,
                Kind::Copyable if plan.users.get(index).is_some_and(|&count| count > 1) => Role::Copied,
                Kind::Copyable => Role::Defined,
                _ => return None,
            };
            Some((node.name.clone(), role))
        };
        let roles = plan.with_data.iter().filter_map(role).collect();
        parts.push(Part { name: "data".to_owned(), weight: 0, roles });
    }
    let exported = nodes.iter().filter(|node| node.external && node.kind != Kind::Declaration).map(|node| node.name.clone()).collect();
    (parts, exported)
}

/// FNV-1a, 64 bits: an arbitrary choice that must stay what it is, or every cached part is made anew.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::identifiers;

    #[test]
    fn names_are_sorted_as_people_would() {
        let mut names =
            ["_Z6k11_10PfPKfi", "_Z5k11_2PfPKfi", "_Z5k10_3Pf", "_ZN2ns1kEPf", "_ZN2ns4longEPf", "plain", "_Z3mulIfEvPT_", "_Z3mulIdEvPT_"];
        names.sort_by_cached_key(|name| identifiers(name));
        assert_eq!(
            names,
            ["_Z5k10_3Pf", "_Z6k11_10PfPKfi", "_Z5k11_2PfPKfi", "_Z3mulIdEvPT_", "_Z3mulIfEvPT_", "_ZN2ns1kEPf", "_ZN2ns4longEPf", "plain"]
        );
        for odd in ["_Z", "_Z99k", "_ZN", "", "_Z18446744073709551616k"] {
            let _ = identifiers(odd);
        }
    }
}
