//! Launch limits of kernels, as NVPTX reads them from attributes of the function.

use llvm_sys::core::*;

use crate::raw::*;
use crate::session::{FUNCTION_INDEX, Session};

/// Launch limits of a kernel: what it may use, and what it will be launched with. See "Performance-Tuning Directives" in the PTX ISA.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelLimits {
    /// Registers per thread at most, `.maxnreg`.
    pub registers: Option<u32>,
    /// Threads of a block at most, one to three dimensions, `.maxntid`.
    pub threads: Option<Vec<u32>>,
    /// Blocks that a multiprocessor shall hold at least, `.minnctapersm`.
    pub blocks: Option<u32>,
}

impl Session<'_> {
    /// Sets launch limits of a kernel of the merged module. They become directives of its PTX, in place of what the source says.
    pub fn limit_kernel(&mut self, kernel: &str, limits: &KernelLimits) -> Result<()> {
        let module = self.merged()?;
        let c_name = c_string(kernel);
        let mut settings = Vec::new();
        settings.extend(limits.registers.map(|n| ("nvvm.maxnreg", n.to_string())));
        settings.extend(limits.threads.as_ref().map(|n| ("nvvm.maxntid", n.iter().map(u32::to_string).collect::<Vec<_>>().join(","))));
        settings.extend(limits.blocks.map(|n| ("nvvm.minctasm", n.to_string())));
        // SAFETY: the module is live; attributes belong to its context.
        unsafe {
            let function = LLVMGetNamedFunction(module, c_name.as_ptr());
            if function.is_null() {
                return Err(Error(format!("no kernel {kernel}")));
            }
            for (key, value) in settings {
                let (k, v) = (key.as_bytes(), value.as_bytes());
                let attribute =
                    LLVMCreateStringAttribute(self.context().raw(), k.as_ptr().cast(), k.len() as u32, v.as_ptr().cast(), v.len() as u32);
                LLVMAddAttributeAtIndex(function, FUNCTION_INDEX, attribute);
            }
        }
        Ok(())
    }
}
