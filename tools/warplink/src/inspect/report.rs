//! What `warplink inspect` found in a file. Its serialized form is the `--json` output: fields may be added, not renamed or removed.

use fatbin::Arch;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// All of the JSON output.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Changes when a field changes its meaning or goes away.
    pub(crate) schema: u32,
    pub(crate) files: Vec<File>,
}

/// One file of the command line.
#[derive(Debug, Default, Serialize)]
pub(crate) struct File {
    pub(crate) path: String,
    /// What the file is: "x86_64 elf program or shared object".
    pub(crate) format: String,
    /// Bytes of the file.
    pub(crate) size: u64,
    /// What the file is made of: the sections of a host object or program, the members of an archive.
    pub(crate) parts: Vec<Part>,
    pub(crate) containers: Vec<Container>,
    pub(crate) entries: Vec<Entry>,
    /// What could not be read in an otherwise readable file.
    pub(crate) problems: Vec<String>,
    pub(crate) gpus: Vec<GpuVerdict>,
}

/// A part of a file or of an image, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Part {
    pub(crate) name: String,
    /// Bytes in the file.
    pub(crate) size: u64,
}

/// What holds images and from which the driver picks one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ContainerKind {
    /// An NVIDIA fat binary of linked code.
    #[default]
    Fatbin,
    /// An NVIDIA fat binary of relocatable code, which nvcc's or clang's device link takes.
    RelocatableFatbin,
    /// Images that a linker wrapper will link.
    Offload,
    /// A file that is one image.
    Image,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Container {
    pub(crate) kind: ContainerKind,
    /// The archive member that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
    /// The section that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) section: Option<String>,
    /// Where it starts: in the section, or in the file (or member) if there is none. In bytes.
    pub(crate) offset: usize,
    pub(crate) images: Vec<Image>,
}

impl Container {
    /// Whether the driver gets this container as it is.
    pub(crate) fn is_final(&self) -> bool {
        match self.kind {
            ContainerKind::Fatbin => !self.images.is_empty(),
            ContainerKind::Image => self.images.iter().any(|image| image.is_loadable_cubin() || image.is_loadable_ptx()),
            ContainerKind::RelocatableFatbin | ContainerKind::Offload => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ImageKind {
    Cubin,
    Ptx,
    Bitcode,
    Nvvm,
    #[default]
    Other,
}

impl fmt::Display for ImageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ImageKind::Cubin => "cubin",
            ImageKind::Ptx => "ptx",
            ImageKind::Bitcode => "bitcode",
            ImageKind::Nvvm => "nvvm",
            ImageKind::Other => "other",
        })
    }
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Image {
    pub(crate) kind: ImageKind,
    /// `sm_90a`, or what the producer wrote.
    pub(crate) arch: String,
    /// How it is stored: "stored", "lz4", "zstd", "concatenated".
    pub(crate) compression: &'static str,
    /// Bytes in the file.
    pub(crate) stored_size: u64,
    /// Bytes when decompressed.
    pub(crate) size: u64,
    pub(crate) debug: bool,
    /// Still has to be linked.
    pub(crate) relocatable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ident: Option<String>,
    /// The ptxas or cicc command line recorded with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) options: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ptx: Option<Ptx>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offload: Option<Offload>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) variables: Vec<Variable>,
    /// Sections of a cubin, those of the kernels added up: `.text` is the code of all.
    pub(crate) sections: Vec<Part>,
    /// Why the image could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,

    #[serde(skip)]
    pub(crate) target: Option<Arch>,
    #[serde(skip)]
    pub(crate) mercury: bool,
    /// The names that host entries can refer to; `None` if that cannot be told.
    #[serde(skip)]
    pub(crate) defined: Option<BTreeSet<String>>,
}

impl Image {
    pub(crate) fn is_loadable_cubin(&self) -> bool {
        self.kind == ImageKind::Cubin && !self.relocatable
    }

    pub(crate) fn is_loadable_ptx(&self) -> bool {
        self.kind == ImageKind::Ptx && !self.relocatable
    }

    /// `sm_90 cubin`, as the reader is told of it.
    pub(crate) fn title(&self) -> String {
        if self.arch.is_empty() { self.kind.to_string() } else { format!("{} {}", self.arch, self.kind) }
    }
}

/// What PTX needs.
#[derive(Debug, Serialize)]
pub(crate) struct Ptx {
    /// The version of the instruction set.
    pub(crate) version: String,
    /// The oldest CUDA release that understands it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cuda: Option<&'static str>,
    /// The oldest driver branch that understands it: 575 is r575.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<u32>,
}

/// What an LLVM offload binary says of its image.
#[derive(Debug, Serialize)]
pub(crate) struct Offload {
    /// The version of the offload binary.
    pub(crate) version: u32,
    pub(crate) triple: String,
    /// The languages: "cuda", "hip", "openmp", "sycl".
    pub(crate) producers: Vec<&'static str>,
    /// All other strings: "feature", "ptx", ...
    pub(crate) metadata: Vec<(String, String)>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    /// As written in the source, if `--no-demangle` is not given and it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) demangled: Option<String>,
    /// The rest is known of cubins only; sizes are in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resources: Option<Resources>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Resources {
    pub(crate) registers: Option<u32>,
    /// The most registers that ptxas was allowed.
    pub(crate) max_registers: Option<u32>,
    /// Bytes that spilled registers are stored and loaded with, as `ptxas -v` counts them; none if the cubin's ptxas did not note it.
    pub(crate) spill_stores: Option<u64>,
    pub(crate) spill_loads: Option<u64>,
    pub(crate) stack: u32,
    pub(crate) shared: u64,
    /// By bank.
    pub(crate) constants: Vec<(u32, u64)>,
    pub(crate) parameters: Option<u32>,
    pub(crate) code: u64,
    pub(crate) barriers: u32,
    pub(crate) max_threads: Option<[u32; 3]>,
    pub(crate) required_threads: Option<[u32; 3]>,
    /// The blocks of a cluster, where the code fixes them.
    pub(crate) cluster: Option<[u32; 3]>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Variable {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) demangled: Option<String>,
    /// "global" or "constant".
    pub(crate) memory: &'static str,
    /// In bytes; of PTX not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
}

/// A kernel or variable that the host refers to by name.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) demangled: Option<String>,
    /// "kernel", "variable", "constant", "managed", "surface" or "texture".
    pub(crate) kind: &'static str,
    /// Of variables, in bytes.
    pub(crate) size: u64,
    /// Whether the images define it: those of the container that has it, or of all if none has.
    pub(crate) images: Vec<EntryImage>,
}

impl Entry {
    pub(crate) fn is_missing(&self) -> bool {
        self.images.iter().any(|image| !image.found)
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct EntryImage {
    /// Index among the file's containers.
    pub(crate) container: usize,
    /// Index among the container's images.
    pub(crate) image: usize,
    pub(crate) found: bool,
}

/// What happens on one GPU.
#[derive(Debug, Serialize)]
pub(crate) struct GpuVerdict {
    pub(crate) arch: String,
    pub(crate) names: &'static [&'static str],
    pub(crate) runs: Runs,
    /// Of all containers, in their order; those that still have to be linked are left out.
    pub(crate) choices: Vec<ChoiceReport>,
    /// The oldest driver branch that compiles the PTX chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Runs {
    /// From cubins only.
    Native,
    /// At least some of it is compiled from PTX by the driver.
    Jit,
    /// Some fat binaries of the program run and some do not.
    Partly,
    No,
}

#[derive(Debug, Serialize)]
pub(crate) struct ChoiceReport {
    /// Index among the file's containers.
    pub(crate) container: usize,
    /// Index among the container's images; none if none runs.
    pub(crate) image: Option<usize>,
}
