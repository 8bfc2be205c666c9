//! The static part: what does not change from one link to the next.

use std::path::PathBuf;

use fatbin::Arch;

pub use crate::kernels::KernelSetting;
pub use crate::options::OptLevel;

/// What all links of a [`super::DeviceLinker`] have in common.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// The GPU that the code is for.
    pub arch: Arch,
    /// Optimisation, as a link line's `-O` has it. Without one, LLVM's level is 2 and that of the assembler its own best.
    pub level: Option<OptLevel>,
    /// The root of the CUDA toolkit. Without one it is looked for as links do: `CUDA_PATH` and its like, `PATH`, the usual places. With
    /// [`Assembler::InProcess`] there need be none.
    pub toolkit: Option<PathBuf>,
    /// Who makes machine code of PTX.
    pub assembler: Assembler,
    /// Arguments for ptxas, one a word, such as `--maxrregcount=64`.
    pub ptxas_arguments: Vec<String>,
    /// Launch limits of kernels.
    pub kernels: Vec<KernelSetting>,
    /// Options for LLVM itself, as `-mllvm` has them. They hold for the whole process.
    pub llvm_options: Vec<String>,
    /// The image keeps the PTX of the program, where all of it was bitcode.
    pub keep_ptx: bool,
    /// Whether finished images, and what they are made of, are kept on disk from one process to the next.
    pub cache: DiskCache,
}

impl LinkConfig {
    /// For this architecture: the usual level, the toolkit that is found, no cache on disk.
    pub fn new(arch: Arch) -> LinkConfig {
        LinkConfig {
            arch,
            level: None,
            toolkit: None,
            assembler: Assembler::Process,
            ptxas_arguments: Vec::new(),
            kernels: Vec::new(),
            llvm_options: Vec::new(),
            keep_ptx: false,
            cache: DiskCache::Off,
        }
    }
}

/// Who makes machine code of PTX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assembler {
    /// The toolkit's ptxas and nvlink, as processes. Large programs are cut into parts and assembled several at once.
    Process,
    /// The user's libnvJitLink, in this process: the file, or a name that the system finds, such as `libnvJitLink.so.13`. Saves the time that
    /// starting ptxas takes, which is most of the time of a small kernel. A crash of the library is one of the process.
    InProcess(PathBuf),
}

/// The cache on disk, which is the one that links on the command line use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskCache {
    /// Nothing is kept.
    Off,
    /// In `$XDG_CACHE_HOME/warplink` or `~/.cache/warplink`.
    Usual,
    /// In this directory.
    At(PathBuf),
}
