//! The digest of `--device-compiler=` and `--device-linker=`: what the inner clang and clang-nvlink-wrapper of LLVM's tool would have made
//! of these arguments, as facts for a device link that runs neither.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::DeviceEvent;
use super::own;
use crate::error::Error;
use crate::options::{DebugRequest, DeviceEmit, DeviceLib, LtoMode, OptLevel, Options, Origin};

/// The only device triple that we link for.
const CUDA_TRIPLE: &str = "nvptx64-nvidia-cuda";

/// What must be weighed against other sources before it becomes an option.
#[derive(Debug, Default)]
pub(super) struct Digest {
    pub(super) opt_level: Option<OptLevel>,
    pub(super) cuda_path: Option<PathBuf>,
    pub(super) ptxas_path: Option<PathBuf>,
    debug: Debug,
    pub(super) errors: Vec<Error>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Debug {
    #[default]
    None,
    LineTables,
    /// Full where nothing is optimised.
    Info,
}

impl Digest {
    /// As clang decides for CUDA: a device debug build is `-g` without optimisation, otherwise `-g` means line tables.
    pub(super) fn debug(&self, level: Option<OptLevel>) -> Option<DebugRequest> {
        match self.debug {
            Debug::None => None,
            Debug::LineTables => Some(DebugRequest::LineTables),
            Debug::Info if matches!(level, None | Some(OptLevel::O0)) => Some(DebugRequest::Full),
            Debug::Info => Some(DebugRequest::LineTables),
        }
    }
}

/// Options of clang that take the next argument, other than those handled by name.
const COMPILER_SEPARATE: &[&str] = &[
    "-Xclang",
    "-Xassembler",
    "-Xpreprocessor",
    "-Xarch_device",
    "-Xarch_host",
    "-Xcuda-fatbinary",
    "-Xopenmp-target",
    "-include",
    "-isystem",
    "-idirafter",
    "-I",
    "-D",
    "-U",
    "-x",
    "-o",
    "-T",
    "-z",
    "-e",
    "-target",
    "-arch",
    "-resource-dir",
    "-dumpdir",
];

/// Options of nvlink that take the next argument and mean nothing to us.
const LINKER_SEPARATE: &[&str] = &[
    "-register-link-binaries",
    "--register-link-binaries",
    "-kernels-used",
    "--kernels-used",
    "-variables-used",
    "--variables-used",
    "-cpu-arch",
    "--cpu-arch",
    "-host-ccbin",
    "--host-ccbin",
    "-nvvmpath",
    "--nvvmpath",
    "-uidcmd",
];

/// Reads the events in order into `options`, and what is left to weigh into the result.
pub(super) fn digest(events: &[DeviceEvent], options: &mut Options) -> Digest {
    let mut reader = Reader { options, digest: Digest::default(), compiler: Pending::None, linker: Pending::None };
    for event in events {
        match event {
            DeviceEvent::Ptxas(arg) => reader.options.ptxas_args.push(arg.clone()),
            DeviceEvent::Arg(arg) if arg.triple.as_deref().is_some_and(|triple| triple != CUDA_TRIPLE) => {}
            DeviceEvent::Arg(arg) => match arg.origin {
                Origin::Compiler => reader.compiler_arg(&arg.value),
                Origin::Linker => reader.linker_arg(&arg.value),
            },
        }
    }
    for (pending, option) in [(reader.compiler, "device-compiler"), (reader.linker, "device-linker")] {
        if let Some(name) = pending.name() {
            reader.digest.errors.push(Error::new(format!("--{option}={name}: a value must follow as another --{option}=")));
        }
    }
    reader.digest
}

/// An option that waits for its value, which comes as an argument of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pending {
    None,
    Skip,
    Ptxas,
    Linker,
    Mllvm,
    Library,
    SearchDir,
    Undefined,
    Keyword,
    CudaPath,
    MaxRegisters,
    Nvlink,
    Plugin,
}

impl Pending {
    /// The option's name, where its value missing changes the link.
    fn name(self) -> Option<&'static str> {
        match self {
            Pending::None | Pending::Skip | Pending::Nvlink | Pending::Plugin => None,
            Pending::Ptxas => Some("-Xcuda-ptxas"),
            Pending::Linker => Some("-Xlinker"),
            Pending::Mllvm => Some("-mllvm"),
            Pending::Library => Some("-l"),
            Pending::SearchDir => Some("-L"),
            Pending::Undefined => Some("-u"),
            Pending::Keyword => Some("-z"),
            Pending::CudaPath => Some("--cuda-path"),
            Pending::MaxRegisters => Some("-maxrregcount"),
        }
    }
}

struct Reader<'a> {
    options: &'a mut Options,
    digest: Digest,
    compiler: Pending,
    linker: Pending,
}

impl Reader<'_> {
    /// One argument of the inner clang.
    fn compiler_arg(&mut self, arg: &OsStr) {
        match std::mem::replace(&mut self.compiler, Pending::None) {
            Pending::None => {}
            Pending::Linker => return self.linker_arg(arg),
            pending => return self.value(pending, arg),
        }
        let text = arg.to_string_lossy();
        let text = text.as_ref();
        if let Some(path) = text.strip_prefix("--cuda-path=") {
            self.digest.cuda_path = Some(PathBuf::from(path));
        } else if let Some(path) = text.strip_prefix("--ptxas-path=") {
            self.digest.ptxas_path = Some(PathBuf::from(path));
        } else if let Some(args) = text.strip_prefix("-Wl,") {
            args.split(',').for_each(|arg| self.linker_arg(OsStr::new(arg)));
        } else if let Some(feature) = text.strip_prefix("--cuda-feature=") {
            self.options.device_features.push(feature.to_owned());
        } else if let Some(count) = text.strip_prefix("-flto-partitions=") {
            self.partitions(count);
        } else if let Some(level) = text.strip_prefix("-O") {
            self.level(level);
        } else if let Some(args) = text.strip_prefix("-Xcuda-ptxas=").or_else(|| text.strip_prefix("-Xptxas=")) {
            self.options.ptxas_args.extend(args.split(',').map(OsString::from));
        } else {
            match text {
                "-v" => self.options.device_verbose = true,
                "-Xcuda-ptxas" | "-Xptxas" => self.compiler = Pending::Ptxas,
                "-Xlinker" | "-Xoffload-linker" => self.compiler = Pending::Linker,
                "-mllvm" => self.compiler = Pending::Mllvm,
                "--cuda-path" => self.compiler = Pending::CudaPath,
                "-l" => self.compiler = Pending::Library,
                "-L" => self.compiler = Pending::SearchDir,
                "-u" => self.compiler = Pending::Undefined,
                "-fno-lto" | "-fno-offload-lto" => self.options.lto = Some(LtoMode::Off),
                "-flto" | "-flto=full" | "-foffload-lto" | "-foffload-lto=full" => self.options.lto = Some(LtoMode::Full),
                "-flto=thin" | "-foffload-lto=thin" => self.options.lto = Some(LtoMode::Thin),
                "-save-temps" | "--save-temps" | "-save-temps=cwd" | "-save-temps=obj" => self.options.save_temps = true,
                "-gline-tables-only" | "-gline-directives-only" | "-g1" | "-gmlt" => self.digest.debug = Debug::LineTables,
                "-g0" | "-ggdb0" => self.digest.debug = Debug::None,
                _ if is_debug_flag(text) => self.digest.debug = Debug::Info,
                _ if text.starts_with("-R") || is_remark_flag(text) => self.options.remarks.push(arg.to_owned()),
                _ if COMPILER_SEPARATE.contains(&text) => self.compiler = Pending::Skip,
                _ if text.starts_with("-l") || text.starts_with("-L") || !text.starts_with('-') => self.library(arg),
                _ if text.starts_with("-u") => self.options.device_undefined.push(text[2..].to_owned()),
                // The rest steers the front end, which has done its work.
                _ => {}
            }
        }
    }

    /// One argument of clang-nvlink-wrapper.
    fn linker_arg(&mut self, arg: &OsStr) {
        match std::mem::replace(&mut self.linker, Pending::None) {
            Pending::None => {}
            pending => return self.value(pending, arg),
        }
        let text = arg.to_string_lossy();
        let text = text.as_ref();
        if !text.starts_with('-') {
            return self.library(arg);
        }
        let long = text.trim_start_matches('-');
        if let Some(option) = long.strip_prefix("plugin-opt=") {
            return self.plugin_option(option);
        }
        if let Some(value) = long.strip_prefix("lto-").filter(|_| text.starts_with("--")) {
            return self.lto_option(value, arg);
        }
        if long.starts_with("opt-remarks-") {
            return self.options.remarks.push(arg.to_owned());
        }
        match long.split_once('=') {
            Some(("cuda-path", path)) => self.digest.cuda_path = Some(PathBuf::from(path)),
            Some(("ptxas-path", path)) => self.digest.ptxas_path = Some(PathBuf::from(path)),
            Some(("undefined" | "u", name)) => self.options.device_undefined.push(name.to_owned()),
            Some(("library", name)) => self.options.device_libs.push(DeviceLib::Library(name.into())),
            Some(("library-path", dir)) => self.options.device_libs.push(DeviceLib::SearchDir(dir.into())),
            Some(("mllvm", value)) => self.options.mllvm.push(value.to_owned()),
            Some(("Xptxas" | "Xcuda-ptxas", args)) => self.options.ptxas_args.extend(args.split(',').map(OsString::from)),
            Some(("maxrregcount", count)) => self.options.ptxas_args.push(format!("--maxrregcount={count}").into()),
            Some(("arch" | "gpu-name" | "plugin" | "sysroot", _)) => {}
            Some(_) if text.starts_with("-L") || text.starts_with("-l") => self.library(arg),
            Some(_) => self.options.nvlink_args.push(arg.to_owned()),
            None => self.linker_flag(text, long, arg),
        }
    }

    fn linker_flag(&mut self, text: &str, long: &str, arg: &OsStr) {
        match long {
            "undefined" | "u" => self.linker = Pending::Undefined,
            "library" | "l" => self.linker = Pending::Library,
            "library-path" | "L" => self.linker = Pending::SearchDir,
            "Xptxas" | "Xcuda-ptxas" => self.linker = Pending::Ptxas,
            "mllvm" => self.linker = Pending::Mllvm,
            "z" => self.linker = Pending::Keyword,
            "cuda-path" => self.linker = Pending::CudaPath,
            "maxrregcount" => self.linker = Pending::MaxRegisters,
            "plugin-opt" => self.linker = Pending::Plugin,
            "arch" | "plugin" | "o" | "output-file" | "m" | "sysroot" => self.linker = Pending::Skip,
            "g" | "debug" => self.digest.debug = Debug::Info,
            "lineinfo" | "generate-line-info" => self.digest.debug = Debug::LineTables,
            "v" | "verbose" => self.options.device_verbose = true,
            "save-temps" => self.options.save_temps = true,
            "dry-run" => self.options.dry_run = true,
            "allow-multiple-definition" => self.options.allow_multiple_definition = true,
            // All members that are linked are linked whole, and every undefined symbol is reported anyway.
            "r"
            | "relocatable"
            | "whole-archive"
            | "no-whole-archive"
            | "no-undefined"
            | "start-group"
            | "end-group"
            | "gc-sections"
            | "help"
            | "help-hidden"
            | "version"
            | "assume-device-object"
            | "shared" => {}
            _ if text.starts_with("-O") => self.level(&text[2..]),
            _ if text.starts_with("-u") && !text.starts_with("-use") && !text.starts_with("-uid") => {
                self.options.device_undefined.push(text[2..].to_owned());
            }
            _ if text.starts_with("-z") => self.value(Pending::Keyword, OsStr::new(&text[2..])),
            _ if text.starts_with("-l") || text.starts_with("-L") => self.library(arg),
            _ => {
                self.options.nvlink_args.push(arg.to_owned());
                if LINKER_SEPARATE.contains(&text) {
                    self.linker = Pending::Nvlink;
                }
            }
        }
    }

    fn plugin_option(&mut self, option: &str) {
        if let Some(level) = option.strip_prefix('O') {
            self.level(level);
        } else if let Some(count) = option.strip_prefix("lto-partitions=") {
            self.partitions(count);
        } else if let Some(count) = option.strip_prefix("jobs=") {
            match count.parse() {
                Ok(count) => self.options.lto_jobs = Some(count),
                // `all` is what LLVMgold calls 0.
                Err(_) if count == "all" => self.options.lto_jobs = Some(0),
                Err(_) => self.digest.errors.push(Error::new(format!("--plugin-opt=jobs={count}: expected a number"))),
            }
        } else if option.starts_with("opt-remarks-") {
            self.options.remarks.push(option.into());
        } else if let Some(features) = option.strip_prefix("-mattr=") {
            self.options.device_features.extend(features.split(',').map(str::to_owned));
        } else {
            match option {
                "thinlto" => self.options.lto = Some(LtoMode::Thin),
                "emit-llvm" => self.options.device_emit = Some(DeviceEmit::Bitcode),
                "emit-asm" => self.options.device_emit = Some(DeviceEmit::Assembly),
                "save-temps" => self.options.save_temps = true,
                _ if option.starts_with("mcpu=") => {}
                _ => self.options.mllvm.push(option.to_owned()),
            }
        }
    }

    /// `--lto-...`, spelled as lld spells it.
    fn lto_option(&mut self, option: &str, arg: &OsStr) {
        if let Some(level) = option.strip_prefix('O') {
            self.level(level);
        } else if let Some(count) = option.strip_prefix("partitions=") {
            self.partitions(count);
        } else if let Some(passes) = option.strip_prefix("newpm-passes=") {
            self.options.mllvm.push(format!("-passes={passes}"));
        } else {
            match option {
                "emit-llvm" => self.options.device_emit = Some(DeviceEmit::Bitcode),
                "emit-asm" => self.options.device_emit = Some(DeviceEmit::Assembly),
                "debug-pass-manager" => self.options.mllvm.push("-debug-pass-manager".to_owned()),
                _ => self.options.nvlink_args.push(arg.to_owned()),
            }
        }
    }

    fn value(&mut self, pending: Pending, arg: &OsStr) {
        let text = || arg.to_string_lossy().into_owned();
        match pending {
            Pending::None | Pending::Skip | Pending::Linker => {}
            Pending::Ptxas => self.options.ptxas_args.push(arg.to_owned()),
            Pending::Mllvm => self.options.mllvm.push(text()),
            Pending::Library => self.options.device_libs.push(DeviceLib::Library(arg.to_owned())),
            Pending::SearchDir => self.options.device_libs.push(DeviceLib::SearchDir(arg.into())),
            Pending::Undefined => self.options.device_undefined.push(text()),
            Pending::Keyword if arg == "muldefs" => self.options.allow_multiple_definition = true,
            Pending::Keyword => self.options.nvlink_args.extend(["-z".into(), arg.to_owned()]),
            Pending::CudaPath => self.digest.cuda_path = Some(arg.into()),
            Pending::MaxRegisters => self.options.ptxas_args.push(format!("--maxrregcount={}", text()).into()),
            Pending::Nvlink => self.options.nvlink_args.push(arg.to_owned()),
            Pending::Plugin => self.plugin_option(&text()),
        }
    }

    /// `-lNAME`, `-LDIR` or a file.
    fn library(&mut self, arg: &OsStr) {
        let bytes = arg.as_bytes();
        self.options.device_libs.push(match (bytes.strip_prefix(b"-l"), bytes.strip_prefix(b"-L")) {
            (Some(name), _) => DeviceLib::Library(OsStr::from_bytes(name).to_owned()),
            (_, Some(dir)) => DeviceLib::SearchDir(PathBuf::from(OsStr::from_bytes(dir))),
            _ => DeviceLib::File(PathBuf::from(arg)),
        });
    }

    fn level(&mut self, text: &str) {
        match own::opt_level(text) {
            Some(level) => self.digest.opt_level = Some(level),
            None => self.digest.errors.push(Error::new(format!("-O{text}: unknown optimisation level for the device"))),
        }
    }

    fn partitions(&mut self, text: &str) {
        match text.parse() {
            Ok(count) => self.options.lto_partitions = Some(count),
            Err(_) => self.digest.errors.push(Error::new(format!("lto-partitions={text}: expected a number"))),
        }
    }
}

/// Whether clang makes debug information for this flag of its `-g` group.
fn is_debug_flag(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("-g") else { return false };
    let level = rest.strip_prefix("gdb").unwrap_or(rest);
    matches!(level, "" | "2" | "3") || ["dwarf", "lldb", "sce", "dbx", "full"].iter().any(|kind| rest.starts_with(kind))
}

fn is_remark_flag(text: &str) -> bool {
    text.starts_with("-fsave-optimization-record")
        || text.starts_with("-foptimization-record-")
        || text.starts_with("-fdiagnostics-show-hotness")
        || text.starts_with("-fdiagnostics-hotness-threshold")
}

/// Whether `text` starts with an architecture that LLVM knows, which is how the peer tells `TRIPLE=ARG` from an argument with a `=` in it.
pub(super) fn is_triple(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let arch = text.split('-').next().unwrap_or_default();
    const EXACT: &[&str] = &[
        "amdgcn",
        "amdil",
        "amdil64",
        "arc",
        "avr",
        "bpf",
        "bpfeb",
        "bpfel",
        "csky",
        "dxil",
        "hexagon",
        "hsail",
        "hsail64",
        "lanai",
        "m68k",
        "msp430",
        "nvptx",
        "nvptx64",
        "nvsass",
        "r600",
        "renderscript32",
        "renderscript64",
        "riscv32",
        "riscv32be",
        "riscv64",
        "riscv64be",
        "s390x",
        "sparc",
        "sparc64",
        "sparcel",
        "sparcv9",
        "spir",
        "spir64",
        "spirv",
        "spirv32",
        "spirv64",
        "systemz",
        "tce",
        "tcele",
        "ve",
        "wasm32",
        "wasm64",
        "x86",
        "x86_64",
        "x86_64h",
        "amd64",
        "xcore",
        "xtensa",
        "kalimba",
        "shave",
        "arm64",
        "arm64_32",
        "arm64e",
        "loongarch32",
        "loongarch64",
        "le32",
        "le64",
    ];
    const PREFIXES: &[&str] = &["aarch64", "arm", "thumb", "mips", "powerpc", "ppc", "spirv32v", "spirv64v", "spirv1"];
    let i386 = arch.len() == 4 && arch.starts_with('i') && arch.ends_with("86") && matches!(arch.as_bytes().get(1), Some(b'3'..=b'9'));
    i386 || EXACT.contains(&arch) || PREFIXES.iter().any(|prefix| arch.starts_with(prefix))
}
