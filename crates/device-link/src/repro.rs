//! Reproducers: everything that is needed to see a link again somewhere else, in one file. The model is lld's `--reproduce`.
//!
//! | in the archive | is |
//! |---|---|
//! | `repro/response.txt` | the line, with names that lead into the archive |
//! | `repro/repro.json` | what the line was for: program name, versions, environment that matters, files that are left out |
//! | `repro/root/...` | inputs by their full names |
//!
//! Packed is what the user made: objects, archives, libraries and scripts. What belongs to the system or to the CUDA toolkit is named and
//! left out, since it is there on other machines too and not ours to copy, unless it is a system's library that holds device code.

pub mod archive;
mod rewrite;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::command::CommandLine;
use crate::error::{Context, Error, Result, bail};
use crate::link_line::LinkLine;
use crate::options::{DeviceLib, Options};
use crate::response;
use crate::toolchain::cuda::Toolkit;
use crate::toolchain::{Env, is_executable, is_secret};
use crate::{Opened, Scan};
use archive::Content;

/// What a reproducer made after a crash may hold: more is for the user to ask for.
pub const CRASH_LIMIT: u64 = 256 << 20;

/// Variables that matter for a link, beside all of our own.
const VARIABLES: [&str; 10] = [
    "CUDA_PATH",
    "CUDA_HOME",
    "CUDA_ROOT",
    "CUDAToolkit_ROOT",
    "CUDA_TOOLKIT_PATH",
    "LIB",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "LD_RUN_PATH",
    "SOURCE_DATE_EPOCH",
];

/// Variables of ours that are about the machine and its user, not about the link.
const PERSONAL: [&str; 13] = [
    "WARPLINK_REPRO",
    "WARPLINK_REPRO_ON_CRASH",
    "WARPLINK_DIAGNOSTICS",
    "WARPLINK_COLOR",
    "WARPLINK_CACHE",
    "WARPLINK_CACHE_DIR",
    "WARPLINK_NO_CACHE",
    "WARPLINK_CACHE_SIZE",
    "WARPLINK_CACHE_REMOTE",
    "WARPLINK_CACHE_REMOTE_MODE",
    "WARPLINK_CACHE_REMOTE_TIMEOUT",
    "WARPLINK_CACHE_REMOTE_TOKEN",
    "WARPLINK_TIME_TRACE",
];

/// Directories whose files come with the system.
const SYSTEM: [&str; 5] = ["/usr", "/lib", "/lib64", "/lib32", "/libx32"];

/// A link, as it was asked for and as its files were found.
pub struct Link<'a> {
    /// The command line, the program's name included.
    pub args: &'a [OsString],
    /// The same, understood.
    pub line: &'a LinkLine,
    /// Its files.
    pub opened: &'a Opened,
    /// What is in them.
    pub scan: &'a Scan<'a>,
    /// The environment.
    pub env: Env<'a>,
    /// The names of all variables in it.
    pub variables: Vec<String>,
}

/// Writes the reproducer of a link to `path`. With a `limit`, one of larger inputs is not made.
///
/// # Errors
/// A file cannot be read or written; the inputs exceed the limit.
pub fn write(path: &Path, link: &Link, limit: Option<u64>) -> Result<()> {
    let options = &link.line.options;
    let current = std::env::current_dir().context(|| "the current directory")?;
    // mold's -C: names of inputs are meant from there.
    let base = options.directory.as_ref().map_or_else(|| current.clone(), |directory| current.join(directory));
    let toolkit = Toolkit::find(options, link.env).unwrap_or_default();
    let mut packer = Packer { files: BTreeMap::new(), by_reference: BTreeMap::new(), packed: HashSet::new() };

    let mut found: HashMap<usize, PathBuf> = HashMap::new();
    for (index, file) in link.opened.files.iter().enumerate() {
        if file.via.is_none() {
            found.entry(file.position).or_insert_with(|| file.path.clone());
        }
        let full = base.join(&file.path);
        let units = link.scan.units.iter().zip(&link.scan.holding);
        let holds_device_code = units.into_iter().any(|(unit, &holding)| holding && unit.input == index);
        if is_left_out(&full, options, &toolkit, holds_device_code) {
            packer.by_reference.insert(full, ());
            continue;
        }
        packer.add(&full, Content::Bytes(&file.data));
        if file.kind == offload_object::FileKind::ThinArchive {
            packer.add_thin_members(&full, &file.data)?;
        }
    }
    for (_, file) in &options.override_image {
        packer.add_file(&current.join(file))?;
    }
    for lib in &options.device_libs {
        if let DeviceLib::File(file) = lib {
            // One that is not there is an error of the link, which the reproducer shall show.
            let full = current.join(file);
            if full.is_file() && !is_left_out(&full, options, &toolkit, true) {
                packer.add_file(&full)?;
            }
        }
    }

    let (words, _) = response::expand(link.args.iter().skip(1).cloned().collect())?;
    // The host linker's own files first, so that they are known as packed.
    let packed = packer.packed.clone();
    let rewritten = rewrite::rewrite(&words, link.line, &|full| packed.contains(full), &found, &base);
    for file in &rewritten.host_files {
        if file.is_file() {
            packer.add_file(file)?;
        }
    }
    if let Some(limit) = limit {
        let total: u64 = packer.files.values().map(|content| content.bytes().len() as u64).sum();
        if total > limit {
            bail!("its inputs are {} MB, and more than {} MB are not copied unasked", total >> 20, limit >> 20);
        }
    }
    let facts = facts(link, &toolkit, &packer.by_reference);
    packer.files.insert(PathBuf::from("response.txt"), Content::Owned(response::to_response_file(&rewritten.words)));
    let text = serde_json::to_string_pretty(&facts).map_err(|error| error.to_string()).context(|| "repro.json")?;
    packer.files.insert(PathBuf::from("repro.json"), Content::Owned(format!("{text}\n").into_bytes()));
    archive::write(path, &packer.files, limit.is_some())
}

struct Packer<'a> {
    files: BTreeMap<PathBuf, Content<'a>>,
    by_reference: BTreeMap<PathBuf, ()>,
    /// Full names, as the line or the search leads to them.
    packed: HashSet<PathBuf>,
}

impl<'a> Packer<'a> {
    fn add(&mut self, full: &Path, content: Content<'a>) {
        self.files.entry(rewrite::in_tree(full)).or_insert(content);
        self.packed.insert(full.to_owned());
    }

    fn add_file(&mut self, full: &Path) -> Result<()> {
        if !self.packed.contains(full) {
            let bytes = std::fs::read(full).context(|| full.display().to_string())?;
            self.add(full, Content::Owned(bytes));
        }
        Ok(())
    }

    /// The files that a thin archive names. Those with a full name are outside of every tree.
    fn add_thin_members(&mut self, archive: &Path, data: &[u8]) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let named = || archive.display().to_string();
        let directory = archive.parent().unwrap_or(Path::new(""));
        for member in offload_object::Archive::parse(data).context(named)?.members() {
            let member = member.context(named)?;
            let path = directory.join(OsStr::from_bytes(member.name));
            if member.data.is_none() && path.is_file() {
                self.add_file(&path)?;
            }
        }
        Ok(())
    }
}

/// Whether a file is named and not copied.
fn is_left_out(full: &Path, options: &Options, toolkit: &Toolkit, holds_device_code: bool) -> bool {
    let real = full.canonicalize().unwrap_or_else(|_| full.to_owned());
    let below = |dir: &Path| dir.canonicalize().is_ok_and(|dir| dir != Path::new("/") && real.starts_with(dir));
    if toolkit.root.as_deref().is_some_and(|root| root != Path::new("/usr") && below(root)) {
        return true;
    }
    let is_system = SYSTEM.iter().any(|dir| below(Path::new(dir))) && !below(Path::new("/usr/local"));
    (is_system || options.sysroot.as_deref().is_some_and(below)) && !holds_device_code
}

/// What `repro.json` says.
fn facts(link: &Link, toolkit: &Toolkit, by_reference: &BTreeMap<PathBuf, ()>) -> Value {
    let own = link.variables.iter().filter(|name| name.starts_with("WARPLINK_") && !PERSONAL.contains(&name.as_str()) && !is_secret(name));
    let names = own.map(String::as_str).chain(VARIABLES);
    let environment: BTreeMap<&str, String> =
        names.filter_map(|name| Some((name, (link.env)(name)?.to_string_lossy().into_owned()))).collect();
    let tool = |path: Option<&Path>| path.map(|path| json!({ "path": path.to_string_lossy(), "version": tool_version(path) }));
    let (major, minor, patch) = llvm_lto::llvm_version();
    let program = link.args.first().map(Path::new).and_then(Path::file_name).unwrap_or(OsStr::new("ld"));
    json!({
        "schema": 1,
        "program": program.to_string_lossy(),
        "warplink": env!("CARGO_PKG_VERSION"),
        "llvm": format!("{major}.{minor}.{patch}"),
        "host": std::env::consts::ARCH,
        "cuda": toolkit.version().map(|(major, minor)| format!("{major}.{minor}")),
        "ptxas": tool(toolkit.ptxas.as_deref()),
        "nvlink": tool(toolkit.nvlink.as_deref()),
        "linker": tool(link.opened.linker.as_ref().map(|linker| linker.path.as_path())),
        "environment": environment,
        "by_reference": by_reference.keys().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
    })
}

/// What a tool says of its version, in one line: for NVIDIA's tools the one that names the release.
pub fn tool_version(program: &Path) -> Option<String> {
    let mut command = CommandLine::new(program);
    command.arg("--version");
    let finished = command.run_captured().ok().filter(|finished| finished.status.success())?;
    let line = finished.output.lines().find(|line| line.contains("release ")).or_else(|| finished.output.lines().next())?;
    Some(line.trim().to_owned())
}

/// A reproducer, unpacked.
pub struct Unpacked {
    /// The directory to run it in.
    pub dir: PathBuf,
    /// The line: the program's name, then what to give it.
    pub args: Vec<OsString>,
    /// The recorded environment.
    pub environment: BTreeMap<String, OsString>,
    /// What is different here from where it was made, a line each.
    pub differences: Vec<String>,
}

/// Unpacks the reproducer at `file` below `dir`, which must be empty.
///
/// # Errors
/// As [`archive::unpack`]; it lacks what every reproducer has, or was made by a later release.
pub fn unpack(file: &Path, dir: &Path, env: Env) -> Result<Unpacked> {
    archive::unpack(file, dir)?;
    let dir = dir.join(archive::TOP);
    let named = || file.display().to_string();
    let text = std::fs::read_to_string(dir.join("repro.json")).context(|| "repro.json").context(named)?;
    let facts: Value = serde_json::from_str(&text).map_err(|error| error.to_string()).context(|| "repro.json").context(named)?;
    if facts.get("schema").and_then(Value::as_u64) != Some(1) {
        return Err(Error::new("was made by a release of warplink with another kind of reproducers").wrap(file.display().to_string()));
    }
    if !dir.join("response.txt").is_file() {
        return Err(Error::new("has no response.txt").wrap(file.display().to_string()));
    }
    std::fs::create_dir_all(dir.join("out")).context(|| dir.join("out").display().to_string())?;
    let text = |name: &str| facts.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let program = text("program");
    let name = Path::new(&program).file_name().filter(|name| *name == program.as_str()).unwrap_or(OsStr::new("ld"));
    let mut environment: BTreeMap<String, OsString> = BTreeMap::new();
    for (variable, value) in facts.get("environment").and_then(Value::as_object).into_iter().flatten() {
        let Some(value) = value.as_str() else { continue };
        let is_ours = variable.starts_with("WARPLINK_") && !PERSONAL.contains(&variable.as_str());
        // A toolkit that is not here is looked for as ever.
        if is_ours || VARIABLES.contains(&variable.as_str()) && (!variable.starts_with("CUDA") || Path::new(value).exists()) {
            environment.insert(variable.clone(), OsString::from(value));
        }
    }
    let mut response = OsString::from("@");
    response.push(dir.join("response.txt"));
    let line = crate::link_line::parse(vec![name.to_owned(), response], &|_| None).context(named)?;
    if let Some(path) = rewrite::written_outside(&line) {
        return Err(
            Error::new(format!("its line would write {}, outside of the reproducer", path.display())).wrap(file.display().to_string())
        );
    }
    let mut args = vec![name.to_owned(), OsString::from("@response.txt")];
    let mut differences = Vec::new();
    let compare = |differences: &mut Vec<String>, what: &str, there: String, here: String| {
        if there != here {
            differences.push(format!("{what}: {there} there, {here} here"));
        }
    };
    let (major, minor, patch) = llvm_lto::llvm_version();
    compare(&mut differences, "warplink", text("warplink"), env!("CARGO_PKG_VERSION").to_owned());
    compare(&mut differences, "LLVM", text("llvm"), format!("{major}.{minor}.{patch}"));
    let tool = |name: &str, field: &str| facts.pointer(&format!("/{name}/{field}")).and_then(Value::as_str).map(str::to_owned);
    let linker = tool("linker", "path").map(PathBuf::from);
    if let Some(linker) = linker.filter(|linker| !is_executable(linker)) {
        // The one of that name on PATH, if there is one.
        let base = linker.file_name().unwrap_or(OsStr::new("ld")).to_owned();
        let mut word = OsString::from("--warplink-linker=");
        word.push(&base);
        args.push(word);
        differences.push(format!("host linker: {} is not here, '{}' on PATH is used", linker.display(), base.display()));
    }
    let lookup = |name: &str| environment.get(name).cloned().or_else(|| env(name));
    let options = crate::link_line::parse(vec![OsString::from("ld")], &lookup)?.options;
    if let Ok(toolkit) = Toolkit::find(&options, &lookup)
        && let Some(there) = tool("ptxas", "version")
    {
        let here = toolkit.ptxas.as_deref().and_then(tool_version).unwrap_or_else(|| "none".to_owned());
        compare(&mut differences, "ptxas", there, here);
    }
    let missing: Vec<&str> = facts
        .get("by_reference")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|path| !Path::new(path).exists())
        .collect();
    if let Some(first) = missing.first() {
        differences.push(format!("{} of the system's files that the link used are not here, {first} for one", missing.len()));
    }
    Ok(Unpacked { dir, args, environment, differences })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_and_the_toolkit_are_left_out() {
        let options = crate::link_line::parse(vec!["ld".into()], &|_| None).unwrap().options;
        let dir = tempfile::tempdir().unwrap();
        let mut toolkit = Toolkit::default();
        toolkit.root = Some(dir.path().join("cuda"));
        for (file, device_code, expected) in [
            ("cuda/lib64/libcudadevrt.a", true, true),
            ("cuda/lib64/libcudart_static.a", false, true),
            ("project/a.o", false, false),
            ("project/a.o", true, false),
        ] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            assert_eq!(is_left_out(&path, &options, &toolkit, device_code), expected, "{file}");
        }
        assert!(is_left_out(Path::new("/usr/lib/no/such/crt1.o"), &options, &toolkit, false));
        assert!(!is_left_out(Path::new("/usr/lib/no/such/libkernels.a"), &options, &toolkit, true));
        assert!(
            !is_left_out(Path::new("/usr/local/lib/no/such/libmine.a"), &options, &toolkit, false) || !Path::new("/usr/local").exists()
        );
    }

    #[test]
    fn what_is_no_reproducer_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let pack = |name: &str, list: &[(&str, &str)]| {
            let files = list.iter().map(|(name, text)| (PathBuf::from(name), Content::Owned(text.as_bytes().to_vec()))).collect();
            let path = dir.path().join(name);
            archive::write(&path, &files, false).unwrap();
            path
        };
        let good = "{\"schema\": 1, \"program\": \"ld\"}";
        for (name, list, expected) in [
            ("f", &[("response.txt", "-o /etc/x a.o"), ("repro.json", good)][..], "its line would write /etc/x, outside"),
            ("g", &[("response.txt", "-o out/x -Map=../m a.o"), ("repro.json", good)], "its line would write ../m, outside"),
            ("a", &[("response.txt", "")][..], "repro.json: no such file or directory"),
            ("b", &[("response.txt", ""), ("repro.json", "{")], "repro.json: EOF"),
            ("c", &[("response.txt", ""), ("repro.json", "{\"schema\": 2}")], "another kind of reproducers"),
            ("d", &[("x", ""), ("repro.json", "{\"schema\": 1}")], "has no response.txt"),
        ] {
            let target = tempfile::tempdir().unwrap();
            let error = unpack(&pack(name, list), target.path(), &|_| None).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let hostile =
            r#"{"schema": 1, "program": "../../bin/sh", "environment": {"PATH": "/evil", "WARPLINK_PTX": "all", "LD_PRELOAD": "x"}}"#;
        let target = tempfile::tempdir().unwrap();
        let unpacked = unpack(&pack("e", &[("response.txt", "a.o"), ("repro.json", hostile)]), target.path(), &|_| None).unwrap();
        assert_eq!(unpacked.args.first(), Some(&OsString::from("ld")));
        assert_eq!(unpacked.environment.keys().collect::<Vec<_>>(), ["WARPLINK_PTX"]);
    }
}
