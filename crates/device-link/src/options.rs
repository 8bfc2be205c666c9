//! What the user asked for, as plain data: [`Options`] for the device link and [`HostCommand`] for the host link.
//!
//! Both are made by [`crate::link_line`] from the command line and the environment and by nothing else; making them has no effect.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::kernels::KernelSetting;

/// How the program was called, which decides whose options stand on the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation {
    /// As `clang-linker-wrapper`: the line is ours, with the host linker's options among it.
    Wrapper,
    /// As a linker of this name (`ld`, `ld.warplink`, `warplink`): the line is the host linker's.
    Linker(String),
}

/// Everything that steers the device link, and those facts of the host link that matter for it.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the program was called.
    pub invoked_as: Invocation,
    /// `argv[0]` as given.
    pub program: OsString,

    /// `-o`; `a.out` if absent.
    pub output: PathBuf,
    /// `-r`, `-i`, `--relocatable`.
    pub relocatable: bool,
    /// `-shared`, `-Bshareable`, `-G` without a size.
    pub shared: bool,
    /// `-static` was the last word on the whole output (no dynamic linker); a mere `-Bstatic` before one library counts as well when
    /// nothing took it back.
    pub static_link: bool,
    /// `-pie`, `--pic-executable`.
    pub pie: bool,
    /// `--host-triple=`, when given.
    pub host_triple: Option<String>,
    /// `--sysroot`.
    pub sysroot: Option<PathBuf>,
    /// `-m`: the host linker's emulation, such as `elf_x86_64`.
    pub emulation: Option<String>,
    /// `-nostdlib`: only directories on the line are searched.
    pub nostdlib: bool,
    /// `-C`, `--directory` (mold): the directory that relative inputs are meant from.
    pub directory: Option<PathBuf>,

    /// The CUDA toolkit: `--warplink-cuda-path=`, `--cuda-path=`, or `--cuda-path` among the device arguments.
    pub cuda_path: Option<PathBuf>,
    /// `--warplink-ptxas-path=`, or `--ptxas-path=` among the device arguments.
    pub ptxas_path: Option<PathBuf>,
    /// The host linker: `--warplink-linker=`, `--linker-path=`.
    pub linker: Option<OsString>,
    /// `--should-extract=`: architectures that archives give up even if no object asks for them.
    pub should_extract: Vec<String>,

    /// `--device-compiler=` and `--device-linker=` as given, in order.
    pub device_args: Vec<DeviceArg>,
    /// `-O` of the device compiler, `--plugin-opt=O` of the device linker, `--warplink-opt-level=`; the last one counts.
    pub opt_level: Option<OptLevel>,
    /// Arguments for ptxas, in line order.
    pub ptxas_args: Vec<OsString>,
    /// `-g` and its relatives among the device arguments.
    pub device_debug: Option<DebugRequest>,
    /// `-u` given to the device linker.
    pub device_undefined: Vec<String>,
    /// `-l`, `-L` and files given to the device linker, in order.
    pub device_libs: Vec<DeviceLib>,
    /// What was given to the device linker and only nvlink can understand.
    pub nvlink_args: Vec<OsString>,
    /// Options for LLVM itself: `-mllvm`, `--offload-opt=`, `--plugin-opt=-...`.
    pub mllvm: Vec<String>,
    /// `-flto=`, `-fno-lto` of the device compiler.
    pub lto: Option<LtoMode>,
    /// `lto-partitions` of the device linker.
    pub lto_partitions: Option<u32>,
    /// `--plugin-opt=jobs=` of the device linker.
    pub lto_jobs: Option<u32>,
    /// `--cuda-feature=`, `-mattr=` given for the device, such as `+ptx88`.
    pub device_features: Vec<String>,
    /// Optimisation remarks asked for: `-Rpass...` and `opt-remarks-...` as given, in order.
    pub remarks: Vec<OsString>,
    /// `-v` among the device arguments: ptxas is to print its resource usage.
    pub device_verbose: bool,
    /// The device linker is to print its text instead of an image: `--lto-emit-asm`, `--lto-emit-llvm`.
    pub device_emit: Option<DeviceEmit>,

    /// `--dry-run`.
    pub dry_run: bool,
    /// `--wrapper-verbose`.
    pub verbose: bool,
    /// The same, and none of the commands may be left out because its result is known.
    pub all_commands: bool,
    /// `--save-temps`.
    pub save_temps: bool,
    /// `--print-wrapped-module`.
    pub print_wrapped_module: bool,
    /// `--embed-bitcode`.
    pub embed_bitcode: bool,
    /// `--emit-fatbin-only`.
    pub emit_fatbin_only: bool,
    /// `--override-image=KIND=FILE`.
    pub override_image: Vec<(String, PathBuf)>,
    /// `--compress`.
    pub compress: Option<bool>,
    /// `--compression-level=`.
    pub compression_level: Option<i32>,
    /// `--warplink-compress=`.
    pub compress_mode: Option<CompressMode>,
    /// `--wrapper-jobs=`, `--warplink-jobs=`.
    pub jobs: Jobs,
    /// `--warplink-max-memory=`: what device jobs that run at once may take together, in bytes, as far as it can be estimated.
    pub max_memory: Option<u64>,
    /// `--wrapper-time-trace=`.
    pub time_trace: Option<PathBuf>,
    /// `--wrapper-time-trace-granularity=`, microseconds.
    pub time_trace_granularity: u64,
    /// `--warplink-report=`.
    pub report: Option<PathBuf>,
    /// `--warplink-stats`.
    pub stats: bool,
    /// `--warplink-record=`: a record is kept for `warplink explain`.
    pub record: bool,
    /// `--warplink-ptx=`.
    pub ptx: Option<PtxChoice>,
    /// `--warplink-kernel=`.
    pub kernels: Vec<KernelSetting>,
    /// `--warplink-partition=`.
    pub partition: Partition,
    /// `--warplink-launch-guard`, `--warplink-no-launch-guard`.
    pub launch_guard: Option<bool>,
    /// `--warplink-ptxas-mode=`.
    pub ptxas_mode: PtxasMode,

    /// False with `--no-demangle`.
    pub demangle: bool,
    /// `--fatal-warnings`.
    pub fatal_warnings: bool,
    /// `-w`, `--no-warnings`.
    pub no_warnings: bool,
    /// `-z muldefs`, `--allow-multiple-definition`.
    pub allow_multiple_definition: bool,
    /// `--gc-sections`.
    pub gc_sections: bool,
    /// `--icf=all|safe|none`.
    pub icf: Option<String>,
    /// `--dependency-file`.
    pub dependency_file: Option<PathBuf>,
    /// `-Map`
    pub map_file: Option<PathBuf>,
    /// `-u`, `--undefined`, `--require-defined` of the host link.
    pub undefined: Vec<String>,
    /// `-e`, `--entry`.
    pub entry: Option<String>,
    /// `-init`.
    pub init: Option<String>,
    /// `-fini`.
    pub fini: Option<String>,
    /// `--wrap`.
    pub wrap_symbols: Vec<String>,
    /// `--defsym=NAME=EXPRESSION`.
    pub defsyms: Vec<(String, String)>,
    /// Where each of these stands: index in [`HostCommand::argv`]. GNU ld looks for what they name in what follows only.
    pub defsym_positions: Vec<usize>,
    /// lld's `--fortran-common`, which is off without the option, whatever lld's help says.
    pub fortran_common: bool,
    /// `--color-diagnostics[=]`.
    pub color: Option<ColorChoice>,
    /// `--warplink-progress=`.
    pub progress: ProgressChoice,
    /// `--warplink-warn=no-NAME` and `--warplink-warn=error=NAME`, in order.
    pub warnings: Vec<(String, Level)>,
    /// `--warplink-repro=`: where a reproducer of the link goes.
    pub repro: Option<PathBuf>,
    /// `--warplink-repro-on-crash=`: whether one is made when this program fails by its own mistake.
    pub repro_on_crash: bool,
    /// `--warplink-tool-timeout=`: how long ptxas, nvlink or the host linker may take.
    pub tool_timeout: Option<std::time::Duration>,
    /// `--warplink-tool-env=`: variables that ptxas and nvlink get beyond those that they always get, also as beginnings before a `*`.
    pub tool_env: Vec<String>,
    /// `--warplink-diagnostics=`: for whom messages are written.
    pub diagnostics: DiagnosticsFormat,
    /// `-v` or `-V` of a linker: print the version and go on.
    pub announce_version: bool,
    /// `--warplink-no-cache` and its relatives.
    pub cache: CacheOptions,
}

/// Where the cache of device code lies and how large it may become.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheOptions {
    /// `--warplink-no-cache`.
    pub off: bool,
    /// `--warplink-cache-dir=`.
    pub dir: Option<PathBuf>,
    /// `--warplink-cache-size=`, bytes.
    pub size: Option<u64>,
    /// `--warplink-cache-remote=`.
    pub remote: Option<RemoteUrl>,
    /// `--warplink-cache-remote-mode=write`.
    pub remote_writes: bool,
    /// `--warplink-cache-remote-timeout=`.
    pub remote_timeout: Option<Duration>,
}

/// The URL of a cache that several machines share, which may have a password in it: it is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteUrl(pub String);

impl std::fmt::Debug for RemoteUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(a URL)")
    }
}

/// Which of the two device tools an argument was given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// `--device-compiler=`
    Compiler,
    /// `--device-linker=`
    Linker,
}

/// One argument for the device side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceArg {
    /// Which option it came with.
    pub origin: Origin,
    /// The triple it was limited to.
    pub triple: Option<String>,
    /// The argument itself.
    pub value: OsString,
}

/// A library, directory or file that was given to the device linker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceLib {
    /// `-lNAME`
    Library(OsString),
    /// `-LDIR`
    SearchDir(PathBuf),
    /// A file by name.
    File(PathBuf),
}

/// Optimisation level of the device link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OptLevel {
    /// `-O0`
    O0,
    /// `-O1`
    O1,
    /// `-O2`
    O2,
    /// `-O3`
    O3,
    /// `-Os`
    Os,
    /// `-Oz`
    Oz,
}

/// How much debug information the device link shall make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebugRequest {
    /// `-g` with no optimisation: device code can be stepped through.
    Full,
    /// Line tables only.
    LineTables,
}

/// What the line says about device LTO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LtoMode {
    /// `-fno-lto`
    Off,
    /// `-flto`, `-flto=full`
    Full,
    /// `-flto=thin`
    Thin,
}

/// What the device linker is to emit instead of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceEmit {
    /// `--lto-emit-asm`: PTX.
    Assembly,
    /// `--lto-emit-llvm`: bitcode.
    Bitcode,
}

/// How the fat binary is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressMode {
    /// Stored.
    None,
    /// LZ4, readable by every toolkit.
    Lz4,
    /// Zstandard.
    Zstd,
    /// The smallest.
    Size,
}

/// How many device jobs may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// As many as the machine has cores.
    Default,
    /// At most so many.
    Count(usize),
    /// As many as the jobserver of `MAKEFLAGS` gives tokens for.
    Jobserver,
}

/// For which architectures PTX is embedded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PtxChoice {
    /// All of them.
    All,
    /// None.
    None,
    /// These, spelled `sm_NN`.
    Archs(Vec<String>),
}

/// Whether a device program is cut into parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Partition {
    /// Where it is large.
    #[default]
    Auto,
    /// Never.
    Never,
    /// Wherever it can be.
    Always,
}

/// Whether ptxas sees a whole program or a relocatable part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PtxasMode {
    /// Decided by looking at the module.
    Auto,
    /// Whole program, no nvlink.
    Whole,
    /// `-c`, then nvlink.
    Relocatable,
}

/// `--color-diagnostics=`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorChoice {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// `--warplink-progress=`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressChoice {
    /// On a terminal.
    Auto,
    /// Wherever stderr goes.
    Always,
    /// Never.
    Never,
}

/// For whom messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiagnosticsFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: a JSON object a line.
    Json,
}

/// What becomes of a named warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Not shown.
    Off,
    /// An error.
    Error,
}

/// The host linker's command line and what we know about the words in it.
#[derive(Debug, Clone, Default)]
pub struct HostCommand {
    /// What the host linker gets, without its program name: verbatim and in order, our own and the wrapper's options taken out,
    /// response files expanded.
    pub argv: Vec<OsString>,
    /// Inputs in order.
    pub items: Vec<HostItem>,
    /// `-L` in order; all of them apply to every `-l`.
    pub search_dirs: Vec<SearchDir>,
    /// Index in `argv` of the word that holds the value of `-o` (for `-ofile` and `--output=file` the whole word). What is inserted
    /// right after it stands before every input that follows.
    pub output_index: Option<usize>,
    /// True when a response file was expanded: the line may be too long to be passed on as it is.
    pub had_response_file: bool,
}

/// One input of the host link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostItem {
    /// Index in [`HostCommand::argv`] of the word that holds the name; for `-l foo` in two words that of the second.
    pub position: usize,
    /// How it was named.
    pub kind: ItemKind,
    /// What the options before it say about it.
    pub state: ItemState,
}

/// How an input was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemKind {
    /// By path.
    Input(PathBuf),
    /// `-lNAME`: `libNAME.so` or `libNAME.a`.
    Library(OsString),
    /// `-l:FILE`: a file of exactly this name.
    LibraryFile(OsString),
    /// `-T FILE` and the like.
    Script(PathBuf),
}

/// What the options before an input say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemState {
    /// Between `--whole-archive` and `--no-whole-archive`.
    pub whole_archive: bool,
    /// After `-Bstatic`.
    pub static_only: bool,
    /// Between `--start-lib` and `--end-lib`: an object that is treated as an archive member. The number tells one such list from the next.
    pub start_lib: Option<u32>,
    /// Between `--start-group` and `--end-group`: searched again until nothing new is found. The number tells groups apart.
    pub group: Option<u32>,
    /// After `--as-needed`.
    pub as_needed: bool,
}

/// One `-L`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchDir {
    /// As given; a leading `=` or `$SYSROOT` stands for the sysroot.
    pub path: PathBuf,
}
