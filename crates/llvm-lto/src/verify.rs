//! Whether code is valid. Bitcode may be damaged and still be read; LLVM's optimiser then does anything: it never ends, crashes, or makes a
//! wrong program.

use std::ptr;

use llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyModule};

use crate::raw::{Error, Module, take_message};
use crate::session::{InputId, Session};

/// What LLVM's verifier says of a module that is not valid.
pub(crate) fn broken(module: &Module) -> Option<String> {
    let mut message = ptr::null_mut();
    // SAFETY: the module is live and fully read; the message is ours to free.
    unsafe {
        let failed = LLVMVerifyModule(module.0, LLVMVerifierFailureAction::LLVMReturnStatusAction, &mut message) != 0;
        let text = take_message(message);
        failed.then(|| text.lines().next().unwrap_or_default().trim_end_matches('!').to_owned())
    }
}

impl Session<'_> {
    /// Fails with the first input that is no valid code by itself. What is wrong with none of them is not theirs.
    pub(crate) fn find_broken(&self, ids: &[InputId]) -> std::result::Result<(), (String, Error)> {
        for input in ids.iter().filter_map(|id| self.inputs.get(id.0)) {
            let named = |error: Error| (input.name.clone(), error);
            let alone = Session::default();
            let module = alone.parse(&input.name, input.bitcode, false).map_err(named)?;
            if let Some(text) = broken(&module) {
                return Err(named(Error(format!("device code is not valid: {text}"))));
            }
        }
        Ok(())
    }
}
