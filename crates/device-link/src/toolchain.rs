//! Finding the tools: which toolkit, which linker. What the environment says is read here and where options are read, nowhere else.
//!
//! NVIDIA's tools are the user's own; nothing of them comes with warplink.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::options::Options;

/// Reads one environment variable; a function, so that tests need no process environment.
pub type Env<'e> = &'e (dyn Fn(&str) -> Option<OsString> + Sync);

/// This process's own environment.
pub fn process_env(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The names of all variables in it that are text.
pub fn process_variables() -> Vec<String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
}

pub mod cuda;

/// Directories of `PATH`. Empty and relative ones are left out: a tool of the current directory, which may be anybody's, is never meant.
pub fn path_dirs(env: Env) -> Vec<PathBuf> {
    env("PATH").map(|path| std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect()).unwrap_or_default()
}

/// Whether a variable of this name holds what no message, record or reproducer may show.
pub fn is_secret(name: &str) -> bool {
    let words = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH", "KEY", "COOKIE"];
    name.to_ascii_uppercase().split('_').any(|part| words.iter().any(|word| part.trim_end_matches('S') == *word))
}

/// What ptxas and nvlink get of the environment: what programs need to start and to find their files, and NVIDIA's own variables. The
/// rest of a build's environment is none of their business; a wrapper around them may need more, which the user names.
const FOR_TOOLS: [&str; 15] =
    ["PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TMP", "TEMP", "LANG", "TZ", "TERM", "LD_*", "GLIBC_TUNABLES", "CUDA*", "NV*", "PTXAS*"];

/// The variables for ptxas and nvlink out of those with these `names`. `more` are names, or beginnings of names before a `*`.
pub fn environment_for_tools(names: &[String], more: &[String], env: Env) -> Vec<(OsString, OsString)> {
    let fits = |name: &str, pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    };
    let wanted = |name: &str| {
        more.iter().any(|pattern| fits(name, pattern)) || FOR_TOOLS.iter().any(|pattern| fits(name, pattern)) && !is_secret(name)
    };
    names.iter().filter(|name| wanted(name)).filter_map(|name| Some((OsString::from(name), env(name)?))).collect()
}

/// The first executable file of this name in the directories.
pub fn find_in(dirs: &[PathBuf], name: &OsStr) -> Option<PathBuf> {
    dirs.iter().map(|dir| dir.join(name)).find(|path| is_executable(path))
}

/// Whether a path is a file that somebody may run.
pub fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

pub use crate::inputs::LinkerFlavour as LinkerKind;

/// The host linker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLinker {
    /// The program.
    pub path: PathBuf,
    /// What kind it is.
    pub kind: LinkerKind,
}

/// Finds the host linker: the one that the line or the environment names; called as a linker, the next of our own name on PATH, so that
/// a link called `ld` leads to the system's `ld`. `own` is this program's file; it is never the answer.
pub fn host_linker(options: &Options, own: Option<&Path>, env: Env) -> Result<HostLinker> {
    let named = options.linker.clone().or_else(|| env("WARPLINK_LINKER"));
    let name = match (&named, &options.invoked_as) {
        (Some(name), _) => name.clone(),
        (None, crate::options::Invocation::Linker(name)) if name.starts_with("ld") && name != "ld.warplink" => OsString::from(name),
        (None, crate::options::Invocation::Linker(_)) => OsString::from("ld"),
        (None, crate::options::Invocation::Wrapper) => {
            return Err(Error::new("linker path missing, must pass 'linker-path'"));
        }
    };
    let is_own = |path: &Path| own.is_some_and(|own| crate::command::same_file(path, own));
    let given = PathBuf::from(&name);
    if given.components().count() > 1 && !is_own(&given) {
        return Ok(HostLinker { kind: kind_of(&given), path: given });
    }
    // A bare name, or one of our own links in the directory that `-B` names: the real one is elsewhere.
    let base = given.file_name().unwrap_or(&name).to_owned();
    let mut dirs = path_dirs(env);
    dirs.extend(llvm_dirs(env));
    let mut names = vec![base.clone()];
    if !matches!(base.to_str(), Some(base) if base.starts_with("ld")) {
        // `--warplink-linker=lld`
        let mut with_ld = OsString::from("ld.");
        with_ld.push(&base);
        names.insert(0, with_ld);
    }
    // clang takes the `ld` in our own directory for the one of the target, which a cross toolchain has under a longer name.
    let prefixed: Vec<OsString> = cross_prefixes(options)
        .iter()
        .flat_map(|prefix| names.iter().map(move |name| [OsStr::new(prefix), OsStr::new("-"), name.as_os_str()].into_iter().collect()))
        .collect();
    names.splice(0..0, prefixed);
    for name in &names {
        for dir in &dirs {
            let path = dir.join(name);
            if is_executable(&path) && !is_own(&path) {
                return Ok(HostLinker { kind: kind_of(&path), path });
            }
        }
    }
    Err(Error::new(format!(
        "host linker '{}' not found on PATH; name it with --warplink-linker=PATH or WARPLINK_LINKER",
        base.to_string_lossy()
    ))
    .named("host-linker-not-found"))
}

/// What the names of tools for the target begin with, where that is not this machine's own architecture.
fn cross_prefixes(options: &Options) -> Vec<String> {
    let given = options.host_triple.as_deref();
    let arch = match (given.and_then(|triple| triple.split('-').next()), options.emulation.as_deref()) {
        (Some(arch), _) => arch,
        (None, Some("aarch64linux" | "aarch64elf")) => "aarch64",
        (None, Some("elf_x86_64")) => "x86_64",
        (None, Some("elf64lppc")) => "powerpc64le",
        (None, Some("elf64lriscv")) => "riscv64",
        (None, Some("elf64_s390")) => "s390x",
        (None, _) => return Vec::new(),
    };
    if arch == std::env::consts::ARCH {
        return Vec::new();
    }
    let mut prefixes: Vec<String> = given.map(str::to_owned).into_iter().collect();
    prefixes.extend(["linux-gnu", "redhat-linux", "suse-linux"].map(|system| format!("{arch}-{system}")));
    prefixes
}

/// Where LLVM's own linker lies when it is not on PATH: beside clang, and in the directories of distributions.
fn llvm_dirs(env: Env) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if let Some(clang) = find_in(&path_dirs(env), OsStr::new("clang"))
        && let Ok(real) = clang.canonicalize()
    {
        dirs.extend(real.parent().map(Path::to_owned));
    }
    let mut installed: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.strip_prefix("llvm-")?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    installed.sort_by(|a, b| b.cmp(a));
    dirs.extend(installed.into_iter().map(|(_, dir)| dir));
    dirs
}

/// Tells linkers apart by name, through links: `/usr/bin/ld` is one of them under a common name.
fn kind_of(path: &Path) -> LinkerKind {
    let by_name = |path: &Path| {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        if name.contains("lld") {
            Some(LinkerKind::Lld)
        } else if name.contains("mold") {
            Some(LinkerKind::Mold)
        } else if name.contains("gold") {
            Some(LinkerKind::Gold)
        } else if name.contains("bfd") {
            Some(LinkerKind::Gnu)
        } else {
            None
        }
    };
    by_name(path).or_else(|| path.canonicalize().ok().and_then(|real| by_name(&real))).unwrap_or(LinkerKind::Gnu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linkers_are_told_apart_by_name() {
        for (path, kind) in [
            ("/usr/bin/ld.bfd", LinkerKind::Gnu),
            ("/no/such/ld", LinkerKind::Gnu),
            ("/usr/bin/gold", LinkerKind::Gold),
            ("ld.gold", LinkerKind::Gold),
            ("/usr/lib/llvm-22/bin/ld.lld", LinkerKind::Lld),
            ("x/lld-link", LinkerKind::Lld),
            ("/usr/libexec/mold/ld.mold", LinkerKind::Mold),
            ("x86_64-linux-gnu-ld.gold", LinkerKind::Gold),
        ] {
            assert_eq!(kind_of(Path::new(path)), kind, "{path}");
        }
    }

    #[test]
    fn the_target_of_a_cross_link_names_its_linker() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        for name in ["ld", "ld.lld", "riscv64-linux-gnu-ld", "riscv64-unknown-linux-gnu-ld.bfd"] {
            use std::os::unix::fs::PermissionsExt;
            std::fs::write(bin.join(name), "").unwrap();
            std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let own = dir.path().join("ld");
        let env = |name: &str| (name == "PATH").then(|| bin.clone().into_os_string());
        let native = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        for (triple, emulation, linker, expected) in [
            (Some("riscv64-unknown-linux-gnu"), None, "ld", "riscv64-linux-gnu-ld"),
            (None, Some("elf64lriscv"), "ld", "riscv64-linux-gnu-ld"),
            (Some("riscv64-unknown-linux-gnu"), None, "ld.bfd", "riscv64-unknown-linux-gnu-ld.bfd"),
            (Some("riscv64-unknown-linux-gnu"), None, "ld.lld", "ld.lld"),
            (Some(native.as_str()), None, "ld", "ld"),
            (None, None, "ld", "ld"),
        ] {
            let mut line = crate::link_line::parse(vec!["ld".into()], &env).unwrap();
            line.options.host_triple = triple.map(str::to_owned);
            line.options.emulation = emulation.map(str::to_owned);
            line.options.linker = Some(linker.into());
            let found = host_linker(&line.options, Some(&own), &env).unwrap();
            assert_eq!(found.path, bin.join(expected), "{triple:?} {emulation:?} {linker}");
        }
    }

    #[test]
    fn no_tool_is_taken_from_the_current_directory() {
        let dirs = |path: &str| path_dirs(&|name| (name == "PATH").then(|| OsString::from(path)));
        assert_eq!(dirs(":/usr/bin:.:bin:./bin::/bin:"), [Path::new("/usr/bin"), Path::new("/bin")]);
        assert_eq!(dirs(""), Vec::<PathBuf>::new());
    }

    #[test]
    fn tools_get_what_they_need() {
        let names =
            ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_PATH", "CUDA_API_KEY", "AWS_SECRET_ACCESS_KEY", "CC", "FAKE_LOG", "FAKER", "NVCC"];
        let names = names.map(str::to_owned);
        let got = |more: &[&str]| -> Vec<String> {
            let more: Vec<String> = more.iter().map(|&word| word.to_owned()).collect();
            let given = environment_for_tools(&names, &more, &|name| Some(name.to_lowercase().into()));
            assert!(given.iter().all(|(name, value)| value.to_str().map(str::to_uppercase).as_deref() == name.to_str()));
            given.into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
        };
        assert_eq!(got(&[]), ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_PATH", "NVCC"]);
        assert_eq!(got(&["FAKE_*", "CC"]), ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_PATH", "CC", "FAKE_LOG", "NVCC"]);
        assert_eq!(got(&["*"]).len(), names.len());
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in ["WARPLINK_REMOTE_TOKEN", "WARPLINK_REMOTE_CACHE_KEYS", "X_PASSWORD", "SCCACHE_AUTH", "aws_secret_access_key"] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["WARPLINK_PTX", "WARPLINK_CACHE", "KEYBOARD", "WARPLINK_KEYED_X", "AUTHOR", "PATH"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn a_link_leads_to_the_kind() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ld.gold"), "").unwrap();
        std::os::unix::fs::symlink("ld.gold", dir.path().join("ld")).unwrap();
        assert_eq!(kind_of(&dir.path().join("ld")), LinkerKind::Gold);
    }
}
