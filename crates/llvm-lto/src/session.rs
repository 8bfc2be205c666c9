//! One device link: the bitcode of one architecture loaded, asked for its symbols, merged, closed, optimised and turned into PTX. A session
//! owns its LLVM context, so sessions of different architectures run on different threads; nothing is shared between them.

use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::ptr;

use llvm_sys::bit_reader::*;
use llvm_sys::bit_writer::LLVMWriteBitcodeToMemoryBuffer;
use llvm_sys::comdat::LLVMSetComdat;
use llvm_sys::core::*;
use llvm_sys::linker::LLVMLinkModules2;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMLinkage, LLVMTypeKind, LLVMVisibility};

use crate::raw::*;
use crate::references::{drop_kernel_references, used_names};
use crate::shim;
use crate::target::{TargetMachine, TargetSpec, data_layout, take_buffer};
use crate::verify::broken;

/// LLVM's number for the calling convention `ptx_kernel`.
pub(crate) const PTX_KERNEL: u32 = 71;
/// Address space of `__shared__` memory. `extern __shared__ T a[]` names memory whose size comes with the launch: a declaration, but nothing
/// that anybody defines.
pub(crate) const SHARED_SPACE: u32 = 3;

/// How a symbol takes part in linking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    /// The one definition.
    Strong,
    /// A definition that yields to a strong one and of which the first wins: templates, inline functions.
    Weak,
    /// A tentative definition.
    Common,
    /// A reference.
    Undefined,
    /// A reference that may stay unresolved.
    UndefinedWeak,
}

/// What a symbol names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SymbolKind {
    /// A function that the host launches.
    Kernel,
    /// Any other function.
    Function,
    /// A variable.
    Variable,
}

/// A symbol of one input that other inputs can see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// The mangled name.
    pub name: String,
    /// Definition or reference.
    pub binding: Binding,
    /// Kernel, function or variable.
    pub kind: SymbolKind,
}

/// What a module says of how it was compiled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleInfo {
    /// Target triple.
    pub triple: String,
    /// The first `target-cpu` among its functions.
    pub cpu: Option<String>,
    /// The highest `+ptxNN` among its functions' features, as NN.
    pub ptx_version: Option<u32>,
    /// The compile commands recorded by `-frecord-command-line`.
    pub command_lines: Vec<String>,
    /// The compilers that made it, from `llvm.ident`.
    pub producers: Vec<String>,
    /// Functions defined, and how many of them are `optnone`.
    pub functions: usize,
    /// Functions that must not be optimised.
    pub optnone_functions: usize,
    /// Has debug information.
    pub has_debug_info: bool,
}

/// An input of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InputId(pub(crate) usize);

pub(crate) struct Input<'a> {
    pub(crate) name: String,
    pub(crate) bitcode: &'a [u8],
    module: Option<Module>,
}

/// One device link. See the module's text.
pub struct Session<'a> {
    // The order matters: modules go before the context that they live in.
    pub(crate) inputs: Vec<Input<'a>>,
    pub(crate) merged: Option<Module>,
    pub(crate) recording: Option<crate::remarks::Recording>,
    pub(crate) context: Context,
    /// What the passes were run for; code generation is mostly for the same.
    pub(crate) machine: Option<(TargetSpec, TargetMachine)>,
    pub(crate) _bitcode: PhantomData<&'a [u8]>,
}

// SAFETY: a session owns its context and every module in it and hands out no pointer into either; LLVM ties nothing of a context to the
// thread that made it. It is not Sync: LLVM contexts allow one thread at a time.
unsafe impl Send for Session<'_> {}

impl Default for Session<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Session<'a> {
    /// An empty session.
    pub fn new() -> Session<'a> {
        Session { inputs: Vec::new(), merged: None, recording: None, context: Context::new(), machine: None, _bitcode: PhantomData }
    }

    /// Loads bitcode lazily: symbols are known, bodies are read when they are linked. `name` is how messages call it.
    pub fn load(&mut self, name: &str, bitcode: &'a [u8]) -> Result<InputId> {
        // LLVM's reader trusts numbers in bitcode; what it makes of damage is to have a name.
        let module = crate::fatal::working_on(name, || self.parse(name, bitcode, true))?;
        self.inputs.push(Input { name: name.to_owned(), bitcode, module: Some(module) });
        Ok(InputId(self.inputs.len() - 1))
    }

    pub(crate) fn parse(&self, name: &str, bitcode: &'a [u8], lazy: bool) -> Result<Module> {
        let c_name = c_string(name);
        let mut module = ptr::null_mut();
        // SAFETY: the buffer borrows `bitcode`, which lives as long as the session; a lazy module owns the buffer, for the other kind it
        // is disposed of here.
        let failed = unsafe {
            let buffer = LLVMCreateMemoryBufferWithMemoryRange(bitcode.as_ptr().cast(), bitcode.len(), c_name.as_ptr(), 0);
            if lazy {
                LLVMGetBitcodeModuleInContext2(self.context.raw(), buffer, &mut module) != 0
            } else {
                let failed = LLVMParseBitcodeInContext2(self.context.raw(), buffer, &mut module) != 0;
                LLVMDisposeMemoryBuffer(buffer);
                failed
            }
        };
        if failed || module.is_null() {
            return Err(self.context.error("not valid LLVM bitcode"));
        }
        let module = Module(module);
        // SAFETY: the module is live.
        unsafe { shim::warplink_upgrade_kernels(module.0) }
        Ok(module)
    }

    fn input(&self, id: InputId) -> Option<LLVMModuleRef> {
        self.inputs.get(id.0).and_then(|input| input.module.as_ref()).map(|module| module.0)
    }

    /// The name under which an input was loaded.
    pub fn name(&self, id: InputId) -> &str {
        self.inputs.get(id.0).map_or("", |input| &input.name)
    }

    /// Warnings and remarks since the last call.
    pub fn take_diagnostics(&self) -> Vec<Diagnostic> {
        self.context.take_diagnostics()
    }

    /// The symbols of an input that take part in linking, in module order. Empty once the input has been merged.
    pub fn symbols(&self, id: InputId) -> Vec<Symbol> {
        let Some(module) = self.input(id) else { return Vec::new() };
        // SAFETY: the module is live.
        unsafe { symbols_of(module) }
    }

    /// What an input says of itself.
    pub fn info(&self, id: InputId) -> ModuleInfo {
        let Some(module) = self.input(id) else { return ModuleInfo::default() };
        let mut info = ModuleInfo::default();
        let optnone = enum_attribute(c"optnone");
        // SAFETY: the module is live; attribute strings belong to the context.
        unsafe {
            info.triple = std::ffi::CStr::from_ptr(LLVMGetTarget(module)).to_string_lossy().into_owned();
            info.command_lines = metadata_strings(module, c"llvm.commandline");
            info.producers = metadata_strings(module, c"llvm.ident");
            info.has_debug_info = LLVMGetNamedMetadataNumOperands(module, c"llvm.dbg.cu".as_ptr()) > 0;
            let mut function = LLVMGetFirstFunction(module);
            while !function.is_null() {
                if LLVMIsDeclaration(function) == 0 {
                    info.functions += 1;
                    if !LLVMGetEnumAttributeAtIndex(function, FUNCTION_INDEX, optnone).is_null() {
                        info.optnone_functions += 1;
                    }
                }
                if let Some(features) = string_attribute(function, "target-features") {
                    let highest = features.split(',').filter_map(|f| f.strip_prefix("+ptx")).filter_map(|n| n.parse().ok()).max();
                    info.ptx_version = info.ptx_version.max(highest);
                }
                if info.cpu.is_none() {
                    info.cpu = string_attribute(function, "target-cpu");
                }
                function = LLVMGetNextFunction(function);
            }
        }
        info
    }

    /// The numbers of the compute pipelines' inputs' module flags that differ for reasons which do not concern a link (SDK version, whether
    /// the object was made for full or thin LTO) are made equal, so that they cannot stop it; called by `link` for each input.
    fn normalize(&self, module: LLVMModuleRef) {
        // SAFETY: the module is live.
        unsafe { shim::warplink_normalize_module(module) }
    }

    /// Binds references to a static variable that clang renamed half-way: where a module refers to `_ZL1v`, defines no such name, but
    /// defines `_ZL1v__static__<hash>`, the reference means the definition (clang names the variable late when a kernel uses it before host
    /// code does). Returns the pairs that were bound.
    pub fn bind_renamed_statics(&mut self, id: InputId) -> Result<Vec<(String, String)>> {
        let symbols = self.symbols(id);
        let mut renamed: HashMap<&str, &str> = HashMap::new();
        for symbol in &symbols {
            if matches!(symbol.binding, Binding::Strong | Binding::Weak)
                && let Some((stem, _)) = symbol.name.rsplit_once("__static__").or_else(|| symbol.name.rsplit_once("__intern__"))
            {
                renamed.insert(stem, &symbol.name);
            }
        }
        let pairs: Vec<(String, String)> = symbols
            .iter()
            .filter(|s| s.binding == Binding::Undefined)
            .filter_map(|s| renamed.get(s.name.as_str()).map(|to| (s.name.clone(), (*to).to_owned())))
            .collect();
        if pairs.is_empty() {
            return Ok(pairs);
        }
        let Some(input) = self.inputs.get(id.0) else { return Ok(Vec::new()) };
        // Uses in bodies that have not been read yet cannot be replaced, so the whole module is read.
        let module = self.parse(&input.name, input.bitcode, false)?;
        // SAFETY: the module is live and fully read; both values belong to it, and the reference has no use left when it is deleted.
        unsafe {
            let by_name: HashMap<String, LLVMValueRef> = globals(module.0).into_iter().map(|v| (name_of(v), v)).collect();
            for (from, to) in &pairs {
                if let (Some(&old), Some(&new)) = (by_name.get(from), by_name.get(to)) {
                    let wanted = LLVMTypeOf(old);
                    let value = if LLVMTypeOf(new) == wanted { new } else { LLVMConstAddrSpaceCast(new, wanted) };
                    LLVMReplaceAllUsesWith(old, value);
                    if is_function(old) { LLVMDeleteFunction(old) } else { LLVMDeleteGlobal(old) }
                }
            }
        }
        if let Some(input) = self.inputs.get_mut(id.0) {
            input.module = Some(module);
        }
        Ok(pairs)
    }

    /// Makes definitions of an input give way to another input's (`--allow-multiple-definition`).
    pub fn yield_definitions(&mut self, id: InputId, names: &HashSet<&str>) {
        let Some(module) = self.input(id) else { return };
        // SAFETY: the module is live.
        unsafe { definitions(module, names).for_each(|value| give_way(value)) }
    }

    /// Makes declarations of an input's definitions, because an object that is no input has the one that counts.
    pub fn drop_definitions(&mut self, id: InputId, names: &HashSet<&str>) {
        let Some(module) = self.input(id) else { return };
        // SAFETY: the module is live.
        unsafe {
            for value in definitions(module, names) {
                if shim::warplink_make_declaration(value) == 0 {
                    give_way(value);
                }
            }
        }
    }

    /// Merges inputs, in the order given, into one module. They are spent afterwards.
    pub fn link(&mut self, ids: &[InputId]) -> std::result::Result<(), (String, Error)> {
        let c_name = c_string("device");
        // SAFETY: a fresh module of our context.
        let merged = Module(unsafe { LLVMModuleCreateWithNameInContext(c_name.as_ptr(), self.context.raw()) });
        for (index, id) in ids.iter().enumerate() {
            let Some(input) = self.inputs.get_mut(id.0) else { continue };
            let Some(module) = input.module.take() else { continue };
            let name = input.name.clone();
            self.normalize(module.0);
            // SAFETY: both modules are live and of one context; the linker takes the source whether or not it succeeds.
            let failed = unsafe {
                keep_unreferenced_kernels(module.0);
                if index == 0 {
                    LLVMSetTarget(merged.0, LLVMGetTarget(module.0));
                    let triple = std::ffi::CStr::from_ptr(LLVMGetTarget(module.0)).to_string_lossy();
                    // Older compilers describe the same target in fewer words; code generation will use its own in any case.
                    match data_layout(&triple) {
                        Ok(layout) => LLVMSetDataLayout(merged.0, layout.as_ptr()),
                        Err(_) => LLVMSetDataLayout(merged.0, LLVMGetDataLayoutStr(module.0)),
                    }
                }
                LLVMSetDataLayout(module.0, LLVMGetDataLayoutStr(merged.0));
                LLVMLinkModules2(merged.0, module.into_raw()) != 0
            };
            if failed {
                return Err((name, self.context.error("cannot be linked with the objects before it")));
            }
        }
        // Bitcode may be damaged and still be read. What the optimiser would make of that is anything: no end, or a wrong program.
        if broken(&merged).is_some() {
            self.find_broken(ids)?;
        }
        self.merged = Some(merged);
        Ok(())
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn set_merged(&mut self, module: Module) {
        self.merged = Some(module);
    }

    pub(crate) fn drop_merged(&mut self) {
        self.merged = None;
    }

    pub(crate) fn merged(&self) -> Result<LLVMModuleRef> {
        self.merged.as_ref().map(|m| m.0).ok_or_else(|| Error("nothing has been linked".to_owned()))
    }

    /// Closes the program: every definition that is neither a kernel nor in `keep` becomes internal; those that stay become findable,
    /// whatever their visibility. References that only exist to keep kernels of other objects alive are dropped.
    pub fn internalize(&mut self, keep: &HashSet<String>) -> Result<()> {
        let module = self.merged()?;
        // SAFETY: the module is live; only values that are definitions get another linkage.
        unsafe {
            drop_kernel_references(module);
            let used = used_names(module);
            for value in globals(module) {
                let name = name_of(value);
                if LLVMIsDeclaration(value) != 0 || name.starts_with("llvm.") {
                    continue;
                }
                let linkage = LLVMGetLinkage(value);
                if matches!(
                    linkage,
                    LLVMLinkage::LLVMInternalLinkage
                        | LLVMLinkage::LLVMPrivateLinkage
                        | LLVMLinkage::LLVMAppendingLinkage
                        | LLVMLinkage::LLVMAvailableExternallyLinkage
                ) {
                    continue;
                }
                leave_comdat(value);
                let kernel = is_function(value) && LLVMGetFunctionCallConv(value) == PTX_KERNEL;
                if kernel || keep.contains(&name) || used.contains(&name) {
                    LLVMSetVisibility(value, LLVMVisibility::LLVMDefaultVisibility);
                    // Nothing can replace a definition any more: the choice among weak ones has been made, so this is the definition.
                    LLVMSetLinkage(value, LLVMLinkage::LLVMExternalLinkage);
                } else {
                    LLVMSetLinkage(value, LLVMLinkage::LLVMInternalLinkage);
                    LLVMSetVisibility(value, LLVMVisibility::LLVMDefaultVisibility);
                }
            }
        }
        Ok(())
    }

    /// Gives every function one processor and feature set, so that code from objects compiled for an older architecture or another toolkit
    /// is inlined and selected like the rest.
    pub fn retarget(&mut self, cpu: &str, features: &str) -> Result<()> {
        let module = self.merged()?;
        // SAFETY: the module is live; attributes belong to its context.
        unsafe {
            let mut function = LLVMGetFirstFunction(module);
            while !function.is_null() {
                if !name_of(function).starts_with("llvm.") {
                    for (key, value) in [("target-cpu", cpu), ("target-features", features)] {
                        let attribute = LLVMCreateStringAttribute(
                            self.context.raw(),
                            key.as_ptr().cast(),
                            key.len() as u32,
                            value.as_ptr().cast(),
                            value.len() as u32,
                        );
                        LLVMAddAttributeAtIndex(function, FUNCTION_INDEX, attribute);
                    }
                }
                function = LLVMGetNextFunction(function);
            }
        }
        Ok(())
    }

    /// Reduces debug information to source lines, which survive optimisation here and in ptxas; variables and types do not.
    pub fn keep_line_tables(&mut self) -> Result<()> {
        let module = self.merged()?;
        // SAFETY: the module is live and fully read.
        unsafe { shim::warplink_keep_line_tables(module) }
        Ok(())
    }

    /// Runs a pass pipeline in `opt -passes=` syntax, `lto<O3>` for instance.
    pub fn run_passes(&mut self, spec: &TargetSpec, pipeline: &str) -> Result<()> {
        let module = self.merged()?;
        let machine = TargetMachine::new(spec)?;
        machine.run_passes(module, pipeline)?;
        self.machine = Some((spec.clone(), machine));
        Ok(())
    }

    /// Gives names that the language runtime leaves undefined a body that traps: `__cxa_pure_virtual` stands in the tables of abstract
    /// classes, is never called by a correct program, and no device library defines it. Returns the names that got one.
    pub fn define_traps(&mut self, names: &[&str]) -> Result<Vec<String>> {
        let module = self.merged()?;
        let mut defined = Vec::new();
        for name in names {
            let c_name = c_string(name);
            // SAFETY: the module is live; the function is a declaration, so a first block makes it a definition.
            unsafe {
                let function = LLVMGetNamedFunction(module, c_name.as_ptr());
                if function.is_null() || LLVMIsDeclaration(function) == 0 || LLVMGetFirstUse(function).is_null() {
                    continue;
                }
                let block = LLVMAppendBasicBlockInContext(self.context.raw(), function, c"".as_ptr());
                let builder = LLVMCreateBuilderInContext(self.context.raw());
                LLVMPositionBuilderAtEnd(builder, block);
                let trap = LLVMGetIntrinsicDeclaration(module, LLVMLookupIntrinsicID(c"llvm.trap".as_ptr(), 9), ptr::null_mut(), 0);
                LLVMBuildCall2(builder, LLVMGlobalGetValueType(trap), trap, ptr::null_mut(), 0, c"".as_ptr());
                LLVMBuildUnreachable(builder);
                LLVMDisposeBuilder(builder);
                LLVMSetLinkage(function, LLVMLinkage::LLVMInternalLinkage);
                LLVMSetVisibility(function, LLVMVisibility::LLVMDefaultVisibility);
                defined.push((*name).to_owned());
            }
        }
        Ok(defined)
    }

    /// The merged module as bitcode.
    pub fn bitcode(&self) -> Result<Vec<u8>> {
        let module = self.merged()?;
        // SAFETY: the module is live; the buffer is ours.
        Ok(unsafe { take_buffer(LLVMWriteBitcodeToMemoryBuffer(module)) })
    }

    /// Generates assembly text, for NVPTX that is PTX. The session is spent: code generation changes the module.
    pub fn emit(mut self, spec: &TargetSpec) -> Result<(Vec<u8>, Vec<Diagnostic>)> {
        self.emit_and_keep(spec)
    }

    /// The same, for who wants to ask the session something afterwards: its inputs and remarks are still there, the merged module is not.
    pub fn emit_and_keep(&mut self, spec: &TargetSpec) -> Result<(Vec<u8>, Vec<Diagnostic>)> {
        let module = self.merged.take().ok_or_else(|| Error("nothing has been linked".to_owned()))?;
        let machine = match self.machine.take() {
            Some((known, machine)) if known == *spec => machine,
            _ => TargetMachine::new(spec)?,
        };
        let text = machine.emit(module.0)?;
        drop(module);
        if self.context.has_errors() {
            return Err(self.context.error("code generation failed"));
        }
        Ok((text, self.context.take_diagnostics()))
    }
}

/// # Safety
/// The module is live.
unsafe fn definitions(module: LLVMModuleRef, names: &HashSet<&str>) -> impl Iterator<Item = LLVMValueRef> {
    // SAFETY: the module is live, and so are its values.
    unsafe { globals(module).into_iter().filter(|&value| LLVMIsDeclaration(value) == 0 && names.contains(name_of(value).as_str())) }
}

/// # Safety
/// The value is a live global one.
unsafe fn give_way(value: LLVMValueRef) {
    // SAFETY: as above.
    unsafe {
        leave_comdat(value);
        LLVMSetLinkage(value, LLVMLinkage::LLVMAvailableExternallyLinkage);
    }
}

/// The attribute index of the function itself.
pub(crate) const FUNCTION_INDEX: u32 = u32::MAX;

fn enum_attribute(name: &std::ffi::CStr) -> u32 {
    // SAFETY: the name and its length describe a live string.
    unsafe { LLVMGetEnumAttributeKindForName(name.as_ptr(), name.count_bytes()) }
}

/// # Safety
/// `function` is a live function.
unsafe fn string_attribute(function: LLVMValueRef, key: &str) -> Option<String> {
    // SAFETY: the attribute's string belongs to the context.
    unsafe {
        let attribute = LLVMGetStringAttributeAtIndex(function, FUNCTION_INDEX, key.as_ptr().cast(), key.len() as u32);
        if attribute.is_null() {
            return None;
        }
        let mut len = 0;
        let data = LLVMGetStringAttributeValue(attribute, &mut len);
        Some(copy_string(data, len as usize))
    }
}

/// # Safety
/// `value` is a live global.
pub(crate) unsafe fn is_local(value: LLVMValueRef) -> bool {
    // SAFETY: by the caller's promise.
    matches!(unsafe { LLVMGetLinkage(value) }, LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage)
}

/// # Safety
/// `value` is a live global.
pub(crate) unsafe fn is_dynamic_shared(value: LLVMValueRef) -> bool {
    // SAFETY: by the caller's promise; the type of a variable is a pointer.
    unsafe { is_variable(value) && LLVMIsDeclaration(value) != 0 && LLVMGetPointerAddressSpace(LLVMTypeOf(value)) == SHARED_SPACE }
}

/// Takes a definition out of its comdat. Aliases are in their function's, and have no field for one of their own.
///
/// # Safety
/// `value` is a live global.
unsafe fn leave_comdat(value: LLVMValueRef) {
    // SAFETY: functions and variables are what may be in a comdat.
    unsafe {
        if is_function(value) || is_variable(value) {
            LLVMSetComdat(value, ptr::null_mut());
        }
    }
}

/// Makes kernels that a merge would only take where something calls them (`linkonce`) such that it takes in any case: the host calls them.
///
/// # Safety
/// `module` is a live module.
unsafe fn keep_unreferenced_kernels(module: LLVMModuleRef) {
    // SAFETY: LLVM's own iteration protocol; only linkages of definitions change.
    unsafe {
        let mut function = LLVMGetFirstFunction(module);
        while !function.is_null() {
            if LLVMGetFunctionCallConv(function) == PTX_KERNEL {
                match LLVMGetLinkage(function) {
                    LLVMLinkage::LLVMLinkOnceAnyLinkage => LLVMSetLinkage(function, LLVMLinkage::LLVMWeakAnyLinkage),
                    LLVMLinkage::LLVMLinkOnceODRLinkage => LLVMSetLinkage(function, LLVMLinkage::LLVMWeakODRLinkage),
                    _ => {}
                }
            }
            function = LLVMGetNextFunction(function);
        }
    }
}

/// # Safety
/// `module` is a live module.
pub(crate) unsafe fn symbols_of(module: LLVMModuleRef) -> Vec<Symbol> {
    let mut symbols = Vec::new();
    // SAFETY: by the caller's promise.
    unsafe {
        for value in globals(module) {
            let name = name_of(value);
            if name.is_empty() || name.starts_with("llvm.") || is_dynamic_shared(value) {
                continue;
            }
            let declaration = LLVMIsDeclaration(value) != 0;
            let binding = match (LLVMGetLinkage(value), declaration) {
                (LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage | LLVMLinkage::LLVMAppendingLinkage, _) => continue,
                (LLVMLinkage::LLVMExternalWeakLinkage, _) => Binding::UndefinedWeak,
                (LLVMLinkage::LLVMAvailableExternallyLinkage, _) | (_, true) => Binding::Undefined,
                (LLVMLinkage::LLVMCommonLinkage, _) => Binding::Common,
                (
                    LLVMLinkage::LLVMLinkOnceAnyLinkage
                    | LLVMLinkage::LLVMLinkOnceODRLinkage
                    | LLVMLinkage::LLVMWeakAnyLinkage
                    | LLVMLinkage::LLVMWeakODRLinkage,
                    _,
                ) => Binding::Weak,
                _ => Binding::Strong,
            };
            let kind = if is_function(value) {
                if LLVMGetFunctionCallConv(value) == PTX_KERNEL { SymbolKind::Kernel } else { SymbolKind::Function }
            } else if LLVMGetTypeKind(LLVMGlobalGetValueType(value)) == LLVMTypeKind::LLVMFunctionTypeKind {
                // An alias.
                SymbolKind::Function
            } else {
                SymbolKind::Variable
            };
            symbols.push(Symbol { name, binding, kind });
        }
    }
    symbols
}
