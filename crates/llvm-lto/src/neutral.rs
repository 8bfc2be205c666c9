//! Whether one architecture's code serves another: what of a module LLVM's NVPTX code generator treats alike for all of them.

use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::*;

use crate::raw::*;
use crate::session::Session;

/// Intrinsics that do not depend on the architecture, by the beginning of their name.
const NEUTRAL_INTRINSICS: &[&str] = &[
    "llvm.nvvm.read.ptx.sreg.tid.",
    "llvm.nvvm.read.ptx.sreg.ntid.",
    "llvm.nvvm.read.ptx.sreg.ctaid.",
    "llvm.nvvm.read.ptx.sreg.nctaid.",
    "llvm.nvvm.read.ptx.sreg.laneid",
    "llvm.nvvm.read.ptx.sreg.warpsize",
    "llvm.nvvm.barrier",
    "llvm.nvvm.shfl.sync.",
    "llvm.nvvm.vote.",
    "llvm.nvvm.activemask",
    "llvm.nvvm.sqrt.",
    "llvm.nvvm.fma.rm.f",
    "llvm.nvvm.fma.rm.d",
    "llvm.nvvm.fma.rn.f",
    "llvm.nvvm.fma.rn.d",
    "llvm.nvvm.fma.rp.f",
    "llvm.nvvm.fma.rp.d",
    "llvm.nvvm.fma.rz.f",
    "llvm.nvvm.fma.rz.d",
    "llvm.nvvm.ex2.approx.f",
    "llvm.nvvm.ex2.approx.ftz.f",
    "llvm.nvvm.lg2.approx.f",
    "llvm.nvvm.lg2.approx.ftz.f",
    "llvm.nvvm.rsqrt.approx",
    "llvm.nvvm.rcp.",
    "llvm.nvvm.div.",
    "llvm.nvvm.add.r",
    "llvm.nvvm.mul.r",
    "llvm.nvvm.mulhi.",
    "llvm.nvvm.f2",
    "llvm.nvvm.d2",
    "llvm.nvvm.i2",
    "llvm.nvvm.ui2",
    "llvm.nvvm.ll2",
    "llvm.nvvm.ull2",
    "llvm.nvvm.bitcast.",
    "llvm.nvvm.fabs.",
    "llvm.nvvm.fmin.f",
    "llvm.nvvm.fmin.d",
    "llvm.nvvm.fmax.f",
    "llvm.nvvm.fmax.d",
    "llvm.nvvm.ceil.",
    "llvm.nvvm.floor.",
    "llvm.nvvm.trunc.",
    "llvm.nvvm.round.",
    "llvm.nvvm.saturate.",
    "llvm.nvvm.sin.approx.",
    "llvm.nvvm.cos.approx.",
    "llvm.nvvm.prmt",
    "llvm.nvvm.lohi.",
    "llvm.lifetime.",
    "llvm.assume",
    "llvm.dbg.",
    "llvm.memcpy.",
    "llvm.memset.",
    "llvm.memmove.",
    "llvm.fabs.f",
    "llvm.fma.f",
    "llvm.fmuladd.f",
    "llvm.sqrt.f",
    "llvm.copysign.f",
    "llvm.floor.f",
    "llvm.ceil.f",
    "llvm.trunc.f",
    "llvm.smin.",
    "llvm.smax.",
    "llvm.umin.",
    "llvm.umax.",
    "llvm.abs.",
    "llvm.ctpop.",
    "llvm.ctlz.",
    "llvm.cttz.",
    "llvm.fshl.",
    "llvm.fshr.",
    "llvm.bswap.",
    "llvm.bitreverse.",
    "llvm.umul.with.overflow.",
    "llvm.uadd.with.overflow.",
    "llvm.usub.sat.",
    "llvm.trap",
    "llvm.experimental.noalias.scope.decl",
];

impl Session<'_> {
    /// Whether LLVM generates the same code for the merged module whatever the architecture from sm_75 to sm_90 is: integers of up to 64 bits but 16,
    /// `float`, `double` and pointers, and of the intrinsics only those that every such architecture has. (Atomics of these widths have one form from
    /// sm_70 on.) Half precision, tensor cores and the like are selected by architecture.
    pub fn is_architecture_neutral(&self) -> Result<bool> {
        let module = self.merged()?;
        // SAFETY: the module is live and fully read.
        unsafe {
            let mut function = LLVMGetFirstFunction(module);
            while !function.is_null() {
                let name = name_of(function);
                // A library's question for the architecture, which optimisation answers.
                if name == "__nvvm_reflect" {
                    return Ok(false);
                }
                if name.starts_with("llvm.") && !NEUTRAL_INTRINSICS.iter().any(|known| name.starts_with(known)) {
                    return Ok(false);
                }
                if LLVMIsDeclaration(function) == 0 && !is_neutral(function) {
                    return Ok(false);
                }
                function = LLVMGetNextFunction(function);
            }
        }
        Ok(true)
    }
}

/// # Safety
/// `function` is a live definition.
unsafe fn is_neutral(function: LLVMValueRef) -> bool {
    // SAFETY: LLVM's own iteration protocol; operands of live instructions are live.
    unsafe {
        let mut block = LLVMGetFirstBasicBlock(function);
        while !block.is_null() {
            let mut instruction = LLVMGetFirstInstruction(block);
            while !instruction.is_null() {
                // sm_90 has fences of one direction; LLVM also puts them around exchanges that are narrower than a register.
                let selected = match LLVMGetInstructionOpcode(instruction) {
                    LLVMOpcode::LLVMFence => {
                        matches!(
                            LLVMGetOrdering(instruction),
                            LLVMAtomicOrdering::LLVMAtomicOrderingAcquire | LLVMAtomicOrdering::LLVMAtomicOrderingRelease
                        )
                    }
                    LLVMOpcode::LLVMAtomicCmpXchg => {
                        let kind = LLVMTypeOf(LLVMGetOperand(instruction, 1));
                        LLVMGetTypeKind(kind) == LLVMTypeKind::LLVMIntegerTypeKind && LLVMGetIntTypeWidth(kind) < 32
                    }
                    _ => false,
                };
                let operands = LLVMGetNumOperands(instruction).max(0) as u32;
                if selected
                    || !is_neutral_type(LLVMTypeOf(instruction))
                    || (0..operands).any(|i| !is_neutral_type(LLVMTypeOf(LLVMGetOperand(instruction, i))))
                {
                    return false;
                }
                instruction = LLVMGetNextInstruction(instruction);
            }
            block = LLVMGetNextBasicBlock(block);
        }
    }
    true
}

/// # Safety
/// `kind` is a live type.
unsafe fn is_neutral_type(kind: LLVMTypeRef) -> bool {
    use llvm_sys::LLVMTypeKind::*;
    // SAFETY: element types of live types are live.
    unsafe {
        match LLVMGetTypeKind(kind) {
            LLVMVoidTypeKind | LLVMFloatTypeKind | LLVMDoubleTypeKind | LLVMPointerTypeKind | LLVMLabelTypeKind | LLVMFunctionTypeKind
            | LLVMMetadataTypeKind => true,
            // sm_90 computes with pairs of 16 bits, to which optimisation packs scalars and selection widens pairs of 8.
            LLVMIntegerTypeKind => LLVMGetIntTypeWidth(kind) <= 64 && LLVMGetIntTypeWidth(kind) != 16,
            LLVMVectorTypeKind => {
                let element = LLVMGetElementType(kind);
                let narrow = LLVMGetTypeKind(element) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(element) == 8;
                is_neutral_type(element) && !(narrow && LLVMGetVectorSize(kind) == 2)
            }
            LLVMArrayTypeKind => is_neutral_type(LLVMGetElementType(kind)),
            LLVMStructTypeKind => {
                let count = LLVMCountStructElementTypes(kind);
                (0..count).all(|i| is_neutral_type(LLVMStructGetTypeAtIndex(kind, i)))
            }
            _ => false,
        }
    }
}
