//! warplink's own options, `--warplink-NAME[=V]`, each also as the environment variable `WARPLINK_NAME`; the line wins.
//! One long table, so that all of them stand together.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use super::{DeviceEvent, Env, Scanner};
use crate::diagnostics::WARNINGS;
use crate::error::Error;
use crate::kernels::KernelSetting;
use crate::options::{
    ColorChoice, CompressMode, DiagnosticsFormat, Jobs, Level, OptLevel, Partition, ProgressChoice, PtxChoice, PtxasMode, RemoteUrl,
};
use crate::response;

type Outcome = std::result::Result<(), String>;

/// One of our own options.
pub struct OwnOption {
    /// Without `--warplink-`.
    pub name: &'static str,
    /// What the value is called in the help; empty for a switch.
    pub value: &'static str,
    /// One line of help.
    pub help: &'static str,
    apply: fn(&mut Scanner, &OsStr) -> Outcome,
}

/// Which options have a value that came from the environment only.
#[derive(Debug, Default)]
pub(super) struct Weak {
    pub(super) linker: bool,
    pub(super) cuda_path: bool,
    pub(super) ptxas_path: bool,
}

/// All our own options, for help texts and completions.
pub const OWN_OPTIONS: &[OwnOption] = &[
    OwnOption {
        name: "linker",
        value: "PATH",
        help: "the host linker to run",
        apply: |s, v| {
            set(&mut s.options.linker, &mut s.weak.linker, v.to_owned());
            Ok(())
        },
    },
    OwnOption {
        name: "cuda-path",
        value: "DIR",
        help: "the CUDA toolkit",
        apply: |s, v| {
            set(&mut s.options.cuda_path, &mut s.weak.cuda_path, PathBuf::from(v));
            Ok(())
        },
    },
    OwnOption {
        name: "ptxas-path",
        value: "PATH",
        help: "the ptxas to run",
        apply: |s, v| {
            set(&mut s.options.ptxas_path, &mut s.weak.ptxas_path, PathBuf::from(v));
            Ok(())
        },
    },
    OwnOption {
        name: "ptxas",
        value: "ARG",
        help: "an argument for ptxas; may be given many times",
        apply: |s, v| {
            s.device.push(DeviceEvent::Ptxas(v.to_owned()));
            Ok(())
        },
    },
    OwnOption {
        name: "ptx",
        value: "all|none|ARCH,...",
        help: "the architectures to embed PTX for, whatever the objects ask for",
        apply: |s, v| {
            s.options.ptx = Some(ptx_choice(utf8(v)?)?);
            Ok(())
        },
    },
    OwnOption {
        name: "kernel",
        value: "PATTERN:maxnreg=N:maxntid=N:minctas=N",
        help: "launch limits for the kernels of these names, or @FILE with such lines; may be given many times",
        apply: |s, v| {
            match v.as_bytes().strip_prefix(b"@") {
                Some(file) => s.options.kernels.extend(KernelSetting::read(std::path::Path::new(OsStr::from_bytes(file)))?),
                None => s.options.kernels.push(KernelSetting::parse(utf8(v)?)?),
            }
            Ok(())
        },
    },
    OwnOption {
        name: "launch-guard",
        value: "",
        help: "the program says once on stderr why its kernels do not run if no image fits the GPU; on unless an object says no",
        apply: |s, v| {
            let mut choice = true;
            switch(&mut choice, v)?;
            s.options.launch_guard = Some(choice);
            Ok(())
        },
    },
    OwnOption {
        name: "no-launch-guard",
        value: "",
        help: "the program does not",
        apply: |s, v| {
            let mut choice = true;
            switch(&mut choice, v)?;
            s.options.launch_guard = Some(!choice);
            Ok(())
        },
    },
    OwnOption {
        name: "partition",
        value: "auto|never|always",
        help: "cut large device programs into parts that are compiled at the same time",
        apply: |s, v| {
            s.options.partition = word(v, &[("auto", Partition::Auto), ("never", Partition::Never), ("always", Partition::Always)])?;
            Ok(())
        },
    },
    OwnOption {
        name: "ptxas-mode",
        value: "auto|whole|relocatable",
        help: "whether ptxas sees the whole program or a relocatable part",
        apply: |s, v| {
            let modes = &[("auto", PtxasMode::Auto), ("whole", PtxasMode::Whole), ("relocatable", PtxasMode::Relocatable)];
            s.options.ptxas_mode = word(v, modes)?;
            Ok(())
        },
    },
    OwnOption {
        name: "opt-level",
        value: "0|1|2|3|s|z",
        help: "the optimisation level of the device link",
        apply: |s, v| {
            s.options.opt_level = Some(opt_level(utf8(v)?).ok_or_else(|| expected("0, 1, 2, 3, s or z", v))?);
            Ok(())
        },
    },
    OwnOption {
        name: "compress",
        value: "none|lz4|zstd|size",
        help: "how the fat binary is compressed",
        apply: |s, v| {
            let modes =
                &[("none", CompressMode::None), ("lz4", CompressMode::Lz4), ("zstd", CompressMode::Zstd), ("size", CompressMode::Size)];
            s.options.compress_mode = Some(word(v, modes)?);
            Ok(())
        },
    },
    OwnOption {
        name: "compression-level",
        value: "N",
        help: "the level of that compression",
        apply: |s, v| {
            s.options.compression_level = Some(number(v)?);
            Ok(())
        },
    },
    OwnOption {
        name: "jobs",
        value: "N|jobserver",
        help: "how many device jobs run at once",
        apply: |s, v| {
            s.options.jobs = jobs(v)?;
            Ok(())
        },
    },
    OwnOption {
        name: "max-memory",
        value: "SIZE",
        help: "how much memory device jobs that run at once may take (default: three quarters of what is free)",
        apply: |s, v| {
            s.options.max_memory = Some(size(v)?);
            Ok(())
        },
    },
    OwnOption {
        name: "warn",
        value: "no-NAME|error=NAME|error",
        help: "turns a warning off or into an error, or all into errors; several with commas",
        apply: |s, v| {
            for part in utf8(v)?.split(',').filter(|part| !part.is_empty()) {
                let (name, level) = match (part.strip_prefix("no-"), part.strip_prefix("error=")) {
                    (Some(name), _) => (name, Level::Off),
                    (_, Some(name)) => (name, Level::Error),
                    _ if part == "error" => ("all", Level::Error),
                    _ => return Err(expected("no-NAME, error=NAME or error", OsStr::new(part))),
                };
                s.options.warnings.push((known_warning(name)?.to_owned(), level));
            }
            Ok(())
        },
    },
    OwnOption {
        name: "time-trace",
        value: "FILE",
        help: "writes a time trace of every stage",
        apply: |s, v| {
            s.options.time_trace = Some(PathBuf::from(v));
            Ok(())
        },
    },
    OwnOption {
        name: "report",
        value: "FILE.html|FILE.json",
        help: "writes a report on the link: time, memory, kernels, sizes, what LTO removed",
        apply: |s, v| {
            let path = PathBuf::from(v);
            if !path.extension().is_some_and(|extension| extension == "html" || extension == "json") {
                return Err(expected("a file name that ends in .html or .json", v));
            }
            s.options.report = Some(path);
            Ok(())
        },
    },
    OwnOption { name: "stats", value: "", help: "prints the link's figures in five lines", apply: |s, v| switch(&mut s.options.stats, v) },
    OwnOption {
        name: "remarks",
        value: "FILE",
        help: "writes the optimiser's remarks on device code, as YAML",
        apply: |s, v| {
            let mut option = std::ffi::OsString::from("opt-remarks-filename=");
            option.push(v);
            s.options.remarks.push(option);
            Ok(())
        },
    },
    OwnOption {
        name: "record",
        value: "yes|no",
        help: "whether the link leaves a record for `warplink explain` in the cache directory",
        apply: |s, v| switch(&mut s.options.record, v),
    },
    OwnOption {
        name: "color",
        value: "auto|always|never",
        help: "colours in messages",
        apply: |s, v| {
            let choices = &[("auto", ColorChoice::Auto), ("always", ColorChoice::Always), ("never", ColorChoice::Never)];
            s.options.color = Some(word(v, choices)?);
            Ok(())
        },
    },
    OwnOption {
        name: "progress",
        value: "auto|always|never",
        help: "a line on the terminal that shows what a link of more than a second is doing",
        apply: |s, v| {
            let choices = &[("auto", ProgressChoice::Auto), ("always", ProgressChoice::Always), ("never", ProgressChoice::Never)];
            s.options.progress = word(v, choices)?;
            Ok(())
        },
    },
    OwnOption {
        name: "repro",
        value: "FILE.tar.zst",
        help: "writes everything that the link needs into one file, for warplink repro",
        apply: |s, v| {
            s.options.repro = Some(PathBuf::from(v));
            Ok(())
        },
    },
    OwnOption {
        name: "repro-on-crash",
        value: "yes|no",
        help: "whether such a file is made in the temporary directory when warplink or LLVM fails by its own mistake",
        apply: |s, v| switch(&mut s.options.repro_on_crash, v),
    },
    OwnOption {
        name: "tool-timeout",
        value: "SECONDS",
        help: "ends ptxas, nvlink or the host linker when one of them takes longer; otherwise they may take any time",
        apply: |s, v| {
            let seconds: u32 = number(v)?;
            s.options.tool_timeout = (seconds > 0).then(|| std::time::Duration::from_secs(seconds.into()));
            Ok(())
        },
    },
    OwnOption {
        name: "tool-env",
        value: "NAME,...",
        help: "environment variables that ptxas and nvlink get too, for wrappers around them; NAME* stands for all that begin so",
        apply: |s, v| {
            let text = v.to_str().ok_or_else(|| "is not text".to_owned())?;
            s.options.tool_env.extend(text.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
            Ok(())
        },
    },
    OwnOption {
        name: "diagnostics",
        value: "text|json",
        help: "messages for people, or one JSON object a line in rustc's shape",
        apply: |s, v| {
            s.options.diagnostics = word(v, &[("text", DiagnosticsFormat::Text), ("json", DiagnosticsFormat::Json)])?;
            Ok(())
        },
    },
    OwnOption {
        name: "verbose",
        value: "",
        help: "prints every command before it is run",
        apply: |s, v| switch(&mut s.options.verbose, v),
    },
    OwnOption { name: "dry-run", value: "", help: "prints the commands and runs none", apply: |s, v| switch(&mut s.options.dry_run, v) },
    OwnOption {
        name: "save-temps",
        value: "",
        help: "keeps intermediate files beside the output",
        apply: |s, v| switch(&mut s.options.save_temps, v),
    },
    OwnOption {
        name: "no-cache",
        value: "",
        help: "makes all device code anew and keeps none of it",
        apply: |s, v| switch(&mut s.options.cache.off, v),
    },
    OwnOption {
        name: "cache-dir",
        value: "DIR",
        help: "where device code is kept between links; otherwise warplink in the user's cache directory",
        apply: |s, v| {
            s.options.cache.dir = Some(PathBuf::from(v));
            Ok(())
        },
    },
    OwnOption {
        name: "cache-size",
        value: "SIZE",
        help: "how large the cache may become; otherwise 5G",
        apply: |s, v| {
            s.options.cache.size = Some(size(v)?);
            Ok(())
        },
    },
    OwnOption {
        name: "cache-remote",
        value: "URL",
        help: "a store that several machines share: http://, https://, s3://BUCKET/PREFIX or redis://",
        apply: |s, v| {
            // Looked at where it is used: a message about an option quotes its value, and this one may have a password in it.
            s.options.cache.remote = Some(RemoteUrl(v.to_string_lossy().into_owned()));
            Ok(())
        },
    },
    OwnOption {
        name: "cache-remote-mode",
        value: "read|write",
        help: "whether what is made is written to that store as well; otherwise it is only read",
        apply: |s, v| {
            s.options.cache.remote_writes = match utf8(v)? {
                "read" => false,
                "write" => true,
                _ => return Err("expected read or write".to_owned()),
            };
            Ok(())
        },
    },
    OwnOption {
        name: "cache-remote-timeout",
        value: "SECONDS",
        help: "how long one question to that store may take; otherwise 5",
        apply: |s, v| {
            let form = || "expected a number of seconds such as 2 or 0.5".to_owned();
            let seconds: f64 = utf8(v)?.parse().map_err(|_| form())?;
            let limit = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero() && limit.as_secs() <= 3600);
            s.options.cache.remote_timeout = Some(limit.ok_or_else(form)?);
            Ok(())
        },
    },
];

impl Scanner {
    /// Applies every `WARPLINK_NAME` that is set and not empty.
    pub(super) fn read_environment(&mut self, env: Env<'_>) {
        // A terminal that cannot go back in its line, one that a machine reads, and one that several links of one make share.
        let is_set = |name: &str| env(name).is_some_and(|value| !value.is_empty());
        if env("TERM").is_none_or(|term| term.is_empty() || term == "dumb") || is_set("CI") || is_set("MAKELEVEL") {
            self.options.progress = ProgressChoice::Never;
        }
        for option in OWN_OPTIONS {
            let name = variable(option.name);
            let Some(value) = env(&name).filter(|value| !value.is_empty()) else { continue };
            // What may be given many times on a line is one text here, split like a response file.
            let values = if option.name == "ptxas" { response::split(value.as_bytes()) } else { vec![value] };
            for value in values {
                if let Err(text) = (option.apply)(self, &value) {
                    self.errors.push(Error::new(format!("{name}={}: {text}", value.display())));
                }
            }
        }
        self.weak.linker = self.options.linker.is_some();
        self.weak.cuda_path = self.options.cuda_path.is_some();
        self.weak.ptxas_path = self.options.ptxas_path.is_some();
    }

    /// An option that starts with `--warplink-`, with one dash or two.
    pub(super) fn own_option(&mut self, arg: &OsStr) {
        let bytes = arg.as_bytes();
        let split = bytes.iter().position(|&byte| byte == b'=');
        let (name, value) = match split {
            Some(at) => (&bytes[..at], Some(OsStr::from_bytes(&bytes[at + 1..]))),
            None => (bytes, None),
        };
        let name = String::from_utf8_lossy(name).into_owned();
        let name = name.trim_start_matches('-').trim_start_matches("warplink-");
        let Some(option) = OWN_OPTIONS.iter().find(|option| option.name == name) else {
            let hint = near(name).map(|near| format!("; did you mean --warplink-{near}?")).unwrap_or_default();
            self.errors.push(Error::new(format!("--warplink-{name}: unknown option{hint}")));
            return;
        };
        let value = match (value, option.value) {
            (Some(value), _) => value,
            (None, "") => OsStr::new("1"),
            (None, expected) => {
                self.errors.push(Error::new(format!("--warplink-{name}: expected =VALUE ({expected})")));
                return;
            }
        };
        if let Err(text) = (option.apply)(self, value) {
            self.errors.push(Error::new(format!("--warplink-{name}={}: {text}", value.display())));
        } else if name == "opt-level" {
            self.explicit_opt_level = true;
        }
    }
}

/// Whether `next` is more of the list that `option` gives: a compiler driver makes two words of `-Wl,--warplink-ptx=sm_80,sm_90`. Only what
/// nobody calls a file is taken for one.
pub(super) fn goes_on(option: &OsStr, next: &OsStr) -> bool {
    let (Some(option), Some(next)) = (option.to_str(), next.to_str()) else { return false };
    let Some((name, value)) = option.trim_start_matches('-').strip_prefix("warplink-").and_then(|option| option.split_once('=')) else {
        return false;
    };
    match name {
        "ptx" => {
            let is_list = !matches!(value, "" | "all" | "none");
            is_list && (next.starts_with("sm_") || next.starts_with("compute_")) && arch(next).is_some()
        }
        "warn" => {
            let named = next.strip_prefix("no-").or_else(|| next.strip_prefix("error="));
            !value.is_empty() && named.is_some_and(|name| known_warning(name).is_ok())
        }
        _ => false,
    }
}

/// The environment variable of an option.
pub fn variable(option: &str) -> String {
    format!("WARPLINK_{}", option.replace('-', "_").to_uppercase())
}

/// The option whose name is at most two edits away.
fn near(name: &str) -> Option<&'static str> {
    near_word(name, OWN_OPTIONS.iter().map(|option| option.name))
}

/// The first of the nearest words that are at most two edits away.
pub fn near_word<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    words.map(|known| (distance(word, known), known)).filter(|(distance, _)| *distance <= 2).min().map(|(_, known)| known)
}

/// The name of a warning, if there is one of this name.
fn known_warning(name: &str) -> std::result::Result<&str, String> {
    let names = || WARNINGS.iter().map(|(known, _)| *known).chain(["all"]);
    if names().any(|known| known == name) {
        return Ok(name);
    }
    Err(format!("there is no warning '{name}'; there are {}", names().collect::<Vec<_>>().join(", ")))
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let above = *cell;
            let here = (diagonal + usize::from(x != *y)).min(above + 1).min(left + 1);
            diagonal = above;
            left = here;
            *cell = here;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

/// Sets a value from the line, which is no longer one from the environment.
pub(super) fn set<T>(slot: &mut Option<T>, weak: &mut bool, value: T) {
    *slot = Some(value);
    *weak = false;
}

pub(super) fn utf8(value: &OsStr) -> std::result::Result<&str, String> {
    value.to_str().ok_or_else(|| "not valid UTF-8".to_owned())
}

fn expected(what: &str, got: &OsStr) -> String {
    format!("expected {what}, got '{}'", got.display())
}

pub(super) fn number<T: std::str::FromStr>(value: &OsStr) -> std::result::Result<T, String> {
    utf8(value)?.trim().parse().map_err(|_| expected("a number", value))
}

/// Bytes, with a suffix that counts in powers of 1024.
fn size(value: &OsStr) -> std::result::Result<u64, String> {
    let text = utf8(value)?.trim().to_ascii_uppercase();
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text.strip_suffix(suffix).unwrap_or_default();
    let unit = suffix.strip_suffix("IB").or_else(|| suffix.strip_suffix('B')).unwrap_or(suffix);
    let shift = ["", "K", "M", "G", "T"].iter().position(|&known| known == unit);
    let bytes = shift.zip(number.parse::<u64>().ok()).and_then(|(power, number)| number.checked_mul(1 << (10 * power)));
    bytes.ok_or_else(|| expected("a size such as 500M or 5G", value))
}

pub(super) fn jobs(value: &OsStr) -> std::result::Result<Jobs, String> {
    if value == "jobserver" {
        return Ok(Jobs::Jobserver);
    }
    match utf8(value)?.parse() {
        Ok(count) if count > 0 => Ok(Jobs::Count(count)),
        _ => Err(expected("a positive integer or 'jobserver'", value)),
    }
}

fn switch(slot: &mut bool, value: &OsStr) -> Outcome {
    *slot = match value.as_bytes().to_ascii_lowercase().as_slice() {
        b"1" | b"yes" | b"true" | b"on" => true,
        b"0" | b"no" | b"false" | b"off" => false,
        _ => return Err(expected("yes or no", value)),
    };
    Ok(())
}

fn word<T: Copy>(value: &OsStr, words: &[(&str, T)]) -> std::result::Result<T, String> {
    words.iter().find(|(name, _)| value == *name).map(|(_, found)| *found).ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
        let (last, rest) = names.split_last().unwrap_or((&"", &[]));
        expected(&format!("{} or {last}", rest.join(", ")), value)
    })
}

/// The level in the text after `-O`.
pub(super) fn opt_level(text: &str) -> Option<OptLevel> {
    Some(match text {
        "0" => OptLevel::O0,
        // clang's -O is -O1, and -Og is -O1 with a view to debuggers.
        "" | "1" | "g" => OptLevel::O1,
        "2" => OptLevel::O2,
        "3" | "fast" => OptLevel::O3,
        "s" => OptLevel::Os,
        "z" => OptLevel::Oz,
        _ if text.bytes().all(|byte| byte.is_ascii_digit()) => OptLevel::O3,
        _ => return None,
    })
}

/// `all`, `none`, or architectures in any of the spellings that clang, nvcc, CMake and PyTorch use.
fn ptx_choice(text: &str) -> std::result::Result<PtxChoice, String> {
    match text {
        "all" => return Ok(PtxChoice::All),
        "none" => return Ok(PtxChoice::None),
        _ => {}
    }
    let mut archs = Vec::new();
    for part in text.split([',', ';']).map(str::trim).filter(|part| !part.is_empty()) {
        archs.push(arch(part).ok_or_else(|| expected("all, none or architectures such as sm_90", OsStr::new(part)))?);
    }
    if archs.is_empty() {
        return Err(expected("all, none or architectures such as sm_90", OsStr::new(text)));
    }
    Ok(PtxChoice::Archs(archs))
}

/// One architecture as `sm_NN`, from `sm_90`, `compute_90`, `lto_90`, `90`, `9.0`, `90-virtual`, `9.0+PTX`, `sm_90a`, `sm_100f`.
fn arch(text: &str) -> Option<String> {
    let text = ["sm_", "compute_", "lto_"].iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    let text = ["-real", "-virtual", "+PTX"].iter().find_map(|suffix| text.strip_suffix(suffix)).unwrap_or(text);
    let number = text.strip_suffix(['a', 'f']).unwrap_or(text);
    let variant = &text[number.len()..];
    let number = match number.split_once('.') {
        Some((major, minor)) if minor.len() == 1 => format!("{major}{minor}"),
        Some(_) => return None,
        None => number.to_owned(),
    };
    let digits = (2..=3).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| format!("sm_{number}{variant}"))
}
