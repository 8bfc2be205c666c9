//! Safe LLVM for exactly what a device link needs: load the bitcode of one architecture, merge, close, optimise, print PTX; read
//! host objects that are bitcode. With `nvjitlink` the only crate of warplink that may use `unsafe`.
//!
//! Three layers: `llvm_sys` declares the C API; `raw` and `target` own its handles; `session` and `host` say what a link does, in terms
//! that the callers know. No pointer of LLVM's leaves the crate.
#![allow(unsafe_code)]

mod calls;
mod constants;
mod crash;
mod fatal;
mod file;
mod host;
mod inventory;
mod limits;
mod neutral;
mod partition;
mod raw;
mod references;
mod remarks;
mod roots;
mod session;
mod shim;
mod target;
mod usage;
mod verify;

pub use calls::CallFacts;
pub use constants::Demoted;
pub use crash::{is_ignored, on_crash, remove_on_crash};
pub use fatal::{keep_freed_memory, on_fatal_error, parse_llvm_options, working_on};
pub use file::MappedFile;
pub use host::{HostBitcode, HostBitcodeEntry, HostSymbol, assemble, read_host_bitcode};
pub use inventory::Definition;
pub use limits::KernelLimits;
pub use partition::{Cut, CutLimits, name_before_cut};
pub use raw::{Diagnostic, Error, Exclusive, Result, Severity, demangle};
pub use references::Undefined;
pub use remarks::RemarkPatterns;
pub use session::{Binding, InputId, ModuleInfo, Session, Symbol, SymbolKind};
pub use target::llvm_version;
pub use target::{OptLevel, TargetSpec};
pub use usage::{Usage, own_usage, thread_time, wait_for_child};

/// Makes the program run a function before LLVM's static constructors, in the program's own crate: `before_llvm!(function);`. They register
/// some thousand options and passes, which takes longer than a program needs that then has no use for LLVM. The function must not call into
/// LLVM; Rust's own start-up code, command line arguments included, has run (std registers its own at `.init_array.00099`).
#[macro_export]
macro_rules! before_llvm {
    ($function:path) => {
        extern "C" fn early() {
            $function();
        }
        #[used]
        #[unsafe(link_section = ".init_array.00100")]
        static EARLY: extern "C" fn() = early;
    };
}
