//! The record of a link: one structure that the link fills as it goes, from which `warplink explain`, the report and the statistics speak.
//!
//! Links keep a small record beside the cache ([`store`]); what only the report shows ([`Wanted::All`]) is not looked at unless somebody asked.
//! Its JSON form is described in docs/report.md: fields may be added; a change of meaning changes [`SCHEMA`].

pub mod fill;
pub mod html;
pub mod later;
pub mod look;
pub mod remarks;
pub mod stats;
pub mod store;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, OnceLock};

use llvm_lto::{Binding, Definition, SymbolKind};
use serde::{Deserialize, Serialize};

/// Changes when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// How much of a link is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// Nothing.
    Nothing,
    /// What the link knows anyway: enough for `warplink explain`.
    Brief,
    /// Sizes, times and kernels as well, at the price of measuring them: enough for the statistics.
    Sizes,
    /// Everything, the optimiser's remarks among it.
    All,
}

/// What one link did. Sizes are in bytes, times in microseconds, inputs are indices into [`Record::inputs`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// The version of that program.
    pub warplink: String,
    /// The program that was linked, with all directories.
    pub output: String,
    /// The directory that relative names of inputs are meant from.
    pub directory: String,
    /// What it was when the link was done, to tell whether the record is still about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Stamp>,
    /// The host linker.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host_linker: String,
    /// The CUDA toolkit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub toolkit: String,
    /// Ascending.
    pub architectures: Vec<Architecture>,
    /// The objects with device code, in line order.
    pub inputs: Vec<Input>,
    /// Device symbols that objects share with each other.
    pub symbols: Vec<Symbol>,
    /// What LTO took out of the program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<Removed>,
    /// In the order in which they began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// This process and its children.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<ProcessUsage>,
    /// The fat binary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fat_binary: Option<FatBinary>,
    /// What the optimiser says, the same of several architectures once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
    /// Warnings that were printed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Tells a file from what it became later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Bytes.
    pub size: u64,
    /// Seconds and nanoseconds since 1970 of the last change.
    pub modified: (i64, i64),
}

/// One architecture of the link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Architecture {
    /// `sm_90`.
    pub arch: String,
    /// The inputs whose code is in the image, in merge order.
    pub inputs: Vec<usize>,
    /// Inputs that lack code for the architecture, with the older one whose code stands in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub older: Vec<(usize, String)>,
    /// The architecture whose LTO served this one as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares_lto_with: Option<String>,
    /// The parts that a large program is cut into, in their order; none where it stays whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// PTX is embedded.
    pub ptx_embedded: bool,
    /// The merged module before and after LTO; with sizes only in a report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lto: Option<Lto>,
    /// Bytes of the PTX that LTO made.
    pub ptx_size: u64,
    /// Bytes of the cubin.
    pub cubin_size: u64,
    /// The kernels of the cubin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<Kernel>,
}

/// A part of a program, which is optimised and assembled by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// What its stages are of: `sm_90.part3`.
    pub name: String,
    /// The first of its kernels or functions by name, mangled; `data` for the variables that several parts use.
    pub first: String,
    /// As its author wrote it, where that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demangled: Option<String>,
    /// Instructions of LLVM's before optimisation, copies of what other parts hold as well included.
    pub instructions: u64,
}

/// A module before and after LTO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lto {
    /// As merged.
    pub before: Module,
    /// As compiled.
    pub after: Module,
}

/// What is in a module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Functions defined, kernels among them.
    pub functions: u64,
    /// Variables defined.
    pub variables: u64,
    /// Instructions of LLVM's. 0 in a brief record.
    pub instructions: u64,
    /// Bytes of variables. 0 in a brief record.
    pub variable_bytes: u64,
}

/// What a kernel is and needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kernel {
    /// Mangled.
    pub name: String,
    /// As its author wrote it, where that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demangled: Option<String>,
    /// The input that defines it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<usize>,
    /// Instructions of LLVM's in its body before LTO; none where it came as machine code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_before: Option<u64>,
    /// The same after LTO: what was inlined into it is counted here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_after: Option<u64>,
    /// Bytes of machine code.
    pub code: u64,
    /// Registers per thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Bytes that ptxas spilled, stores and loads; none where the cubin's ptxas did not note it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spills: Option<(u64, u64)>,
    /// Bytes of stack per thread.
    pub stack: u32,
    /// Bytes of static shared memory per block.
    pub shared: u64,
    /// Bytes of constant banks, parameters included.
    pub constant: u64,
}

/// An object with device code: a file or a member of an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Input {
    /// As messages call it: `libk.a(reduce.o)`.
    pub name: String,
    /// The archive that it is a member of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
    /// Bytes of the object.
    pub size: u64,
    /// Its device code takes part in the link.
    pub taken: bool,
    /// Why it does or does not.
    pub reason: Reason,
    /// Its device code.
    pub images: Vec<InputImage>,
}

/// Why the device code of an object is or is not in the link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "why")]
pub enum Reason {
    /// It stands on the line, or `--whole-archive` takes it.
    #[default]
    OnTheLine,
    /// The host link takes the archive member: `symbol` was undefined in `from`, or on the line.
    HostSymbol {
        /// Mangled.
        symbol: String,
        /// As its author wrote it, where that differs.
        #[serde(skip_serializing_if = "Option::is_none")]
        demangled: Option<String>,
        /// As messages call it; none for `-u` and the like.
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<String>,
    },
    /// The host link takes it for a reason that was not looked into.
    HostLink,
    /// Device code needs it: `symbol` was undefined.
    DeviceSymbol {
        /// Mangled.
        symbol: String,
        /// As its author wrote it, where that differs.
        #[serde(skip_serializing_if = "Option::is_none")]
        demangled: Option<String>,
    },
    /// Neither host nor device code refers to anything in it.
    NotNeeded,
}

/// One image of an input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputImage {
    /// `sm_90`.
    pub arch: String,
    /// `bitcode`, `cubin`, `ptx`, `nvvm`.
    pub kind: String,
    /// Bytes, unpacked.
    pub size: u64,
}

/// A device symbol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Symbol {
    /// Mangled.
    pub name: String,
    /// As its author wrote it, where that differs. In a report only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demangled: Option<String>,
    /// `kernel`, `function` or `variable`.
    pub kind: String,
    /// The architectures of which the rest is true: indices into [`Record::architectures`].
    pub archs: Vec<usize>,
    /// The input whose definition was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<usize>,
    /// `strong`, `weak` (templates, inline functions) or `common`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub binding: String,
    /// Other inputs that define it, with the binding of theirs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<(usize, String)>,
    /// Inputs that refer to it without defining it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<usize>,
    /// What LTO made of it; none where it is machine code that LTO did not see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fate: Option<Fate>,
}

/// What LTO made of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It is in the image.
    Kept,
    /// It was used, and is no more: inlined into its users, or their use of it was optimised away.
    Inlined,
    /// Nothing that is kept led to it.
    Unused,
}

/// A definition that LTO took out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Mangled.
    pub name: String,
    /// As its author wrote it, where that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demangled: Option<String>,
    /// `function` or `variable`.
    pub kind: String,
    /// Instructions of a function, bytes of a variable.
    pub size: u64,
    /// [`Fate::Inlined`] or [`Fate::Unused`].
    pub fate: Fate,
    /// Indices into [`Record::architectures`].
    pub archs: Vec<usize>,
}

/// One stage of the link, or of one job of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stage {
    /// `merge`, `optimize`, `ptxas`...
    pub name: String,
    /// The job: `sm_90`; empty for stages of the link as a whole.
    pub detail: String,
    /// 0 for the link, 1 and up for its jobs.
    pub row: usize,
    /// Since the link began.
    pub start: u64,
    /// Wall clock.
    pub wall: u64,
    /// Processor time of our own, on the stage's thread.
    pub cpu: u64,
    /// Processor time of the children that it ran, user's and system's.
    pub child_user: u64,
    /// See there.
    pub child_system: u64,
    /// The most memory that one of these children had.
    pub child_peak_memory: u64,
    /// The result came from the cache.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
}

/// What the whole link used of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// Wall clock from the first stage to the last.
    pub wall: u64,
    /// Our own processor time, all threads.
    pub cpu: u64,
    /// That of the children.
    pub child_cpu: u64,
    /// The most memory that this process had.
    pub peak_memory: u64,
    /// The most memory that a child had.
    pub child_peak_memory: u64,
}

/// The fat binary.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FatBinary {
    /// Bytes.
    pub size: u64,
    /// In its order.
    pub images: Vec<PackedImage>,
}

/// One image in the fat binary.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedImage {
    /// `sm_90`.
    pub arch: String,
    /// `cubin` or `ptx`.
    pub kind: String,
    /// Bytes unpacked.
    pub size: u64,
    /// Bytes in the fat binary.
    pub stored: u64,
    /// `none`, `lz4`, `zstd`.
    pub compression: String,
}

/// An optimisation remark.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remark {
    /// `Passed`, `Missed`, `Analysis` or another of LLVM's kinds.
    pub kind: String,
    /// `inline`.
    pub pass: String,
    /// `Inlined`.
    pub name: String,
    /// The function, mangled, as it is called where the program is not cut into parts.
    pub function: String,
    /// `a.cu:3:7`, where the objects have debug information.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The text.
    pub text: String,
    /// Architectures.
    pub archs: Vec<String>,
}

/// A warning that was printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Its name, as `--warplink-warn=` takes it.
    pub name: String,
    /// The text.
    pub text: String,
}

impl Record {
    /// The definition chosen for a symbol, in an architecture.
    pub fn symbol(&self, name: &str, arch: usize) -> Option<&Symbol> {
        self.symbols.iter().find(|symbol| symbol.name == name && symbol.archs.contains(&arch))
    }

    /// What messages call an input.
    pub fn input_name(&self, index: usize) -> &str {
        self.inputs.get(index).map_or("?", |input| &input.name)
    }
}

/// Takes down what a link does, from all its threads.
pub struct Recorder {
    wanted: Wanted,
    notes: Mutex<Notes>,
}

/// What has been seen so far, some of it in a form of its own until all is known.
#[derive(Default)]
struct Notes {
    record: Record,
    /// Units of the link by their index among the inputs.
    input_of_unit: HashMap<usize, usize>,
    /// Per architecture.
    lto: BTreeMap<String, LtoNotes>,
    symbols: Vec<(String, Vec<Seen>)>,
    /// Remarks, each text with the architectures that it is about.
    yaml: Vec<(Vec<String>, String)>,
    /// Architectures whose code is that of another one.
    shared: Vec<(String, String)>,
    /// All of the above, put together: by this link or, where its device code came from the cache, by the one that made it.
    settled: Option<Record>,
}

/// The module of one architecture before and after LTO.
#[derive(Default)]
struct LtoNotes {
    before: Vec<Definition>,
    after: Vec<Definition>,
    unreachable: HashSet<String>,
    names_before: OnceLock<HashSet<String>>,
    names_after: OnceLock<HashSet<String>>,
}

/// A symbol of an input as selection met it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Mangled.
    pub name: String,
    /// The unit that has it.
    pub unit: usize,
    /// Definition or reference.
    pub binding: Binding,
    /// What it names.
    pub kind: SymbolKind,
}

/// What a module was before LTO, on its way to after LTO.
#[derive(Clone, Default)]
pub struct BeforeLto {
    definitions: Vec<Definition>,
    unreachable: HashSet<String>,
}

impl Recorder {
    /// Takes down as much as is wanted.
    pub fn new(wanted: Wanted) -> Recorder {
        Recorder { wanted, notes: Mutex::default() }
    }

    /// Whether anything is taken down.
    pub fn is_on(&self) -> bool {
        self.wanted > Wanted::Nothing
    }

    /// Whether sizes and times are.
    pub fn is_full(&self) -> bool {
        self.wanted >= Wanted::Sizes
    }

    /// Whether the optimiser's remarks are, which people did not ask for by themselves.
    pub fn has_remarks(&self) -> bool {
        self.wanted == Wanted::All
    }

    /// Works on the notes, if there are any to be made.
    fn note(&self, work: impl FnOnce(&mut Notes)) {
        if self.is_on()
            && let Ok(mut notes) = self.notes.lock()
        {
            work(&mut notes);
        }
    }
}
