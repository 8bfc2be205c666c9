//! NVIDIA's toolkit: where it is, which version it has, and where we looked when it is nowhere.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{Env, environment_for_tools, find_in, is_executable, path_dirs, process_variables};
use crate::command::CommandLine;
use crate::error::{Error, Result};
use crate::options::{Invocation, Options};

/// Variables that name a toolkit, in the order in which they are asked.
const VARIABLES: [&str; 5] = ["CUDA_PATH", "CUDA_HOME", "CUDA_ROOT", "CUDAToolkit_ROOT", "CUDA_TOOLKIT_PATH"];

/// The places where distributions and NVIDIA's installer put a toolkit.
const USUAL: [&str; 5] = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr/lib/nvidia-cuda-toolkit", "/usr"];

/// What is known of the user's toolkit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toolkit {
    /// Its root directory.
    pub root: Option<PathBuf>,
    /// The assembler.
    pub ptxas: Option<PathBuf>,
    /// The device linker.
    pub nvlink: Option<PathBuf>,
    /// Every place that was asked, in words, in order.
    pub searched: Vec<String>,
    /// The option by which this line can name it: a plain linker line has `--warplink-cuda-path` only.
    option: &'static str,
    /// What its tools get of our environment.
    pub environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
}

impl Toolkit {
    /// Looks for a toolkit: the line's own choice first, then the environment, PATH and the usual places. A place that the user named and
    /// that holds no toolkit is an error: to take another one in silence would build something else than was asked for.
    pub fn find(options: &Options, env: Env) -> Result<Toolkit> {
        let option = if options.invoked_as == Invocation::Wrapper { "--cuda-path" } else { "--warplink-cuda-path" };
        let environment = environment_for_tools(&process_variables(), &options.tool_env, env);
        let mut toolkit = Toolkit { option, environment, ..Toolkit::default() };
        toolkit.search(options, env)?;
        if let Some(ptxas) = &options.ptxas_path {
            if !is_executable(ptxas) {
                return Err(Error::new(format!("{}: no ptxas here, though the option --ptxas-path names it", ptxas.display())));
            }
            toolkit.ptxas = Some(ptxas.clone());
        }
        Ok(toolkit)
    }

    fn search(&mut self, options: &Options, env: Env) -> Result<()> {
        if let Some(path) = &options.cuda_path {
            if self.take(path, self.option) {
                return Ok(());
            }
            if options.ptxas_path.is_some() {
                return Ok(());
            }
            return Err(Error::new(format!(
                "{}: no ptxas in this toolkit, though the option {} names it (looked for {})",
                path.display(),
                self.option,
                layouts(path).iter().map(|p| p.join("bin/ptxas").display().to_string()).collect::<Vec<_>>().join(", ")
            )));
        }
        for variable in VARIABLES {
            match env(variable).filter(|value| !value.is_empty()) {
                Some(value) => {
                    if self.take(Path::new(&value), variable) {
                        return Ok(());
                    }
                }
                None => self.searched.push(format!("${variable} (not set)")),
            }
        }
        if let Some(ptxas) = find_in(&path_dirs(env), OsStr::new("ptxas")) {
            // Distributions link /usr/bin/ptxas to the toolkit; its other tools lie beside the real one.
            let real = ptxas.canonicalize().unwrap_or_else(|_| ptxas.clone());
            let root = real.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
            if self.take(root, "PATH") {
                return Ok(());
            }
            self.ptxas = Some(ptxas);
            return Ok(());
        }
        self.searched.push("ptxas on $PATH".to_owned());
        for variable in ["CONDA_PREFIX", "VIRTUAL_ENV"] {
            if let Some(prefix) = env(variable).filter(|value| !value.is_empty()) {
                for place in python_places(Path::new(&prefix)) {
                    if self.take(&place, variable) {
                        return Ok(());
                    }
                }
            }
        }
        for place in USUAL.iter().map(PathBuf::from).chain(versioned("/usr/local")) {
            if self.take(&place, "") {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes the toolkit at `path` if there is one in any of the layouts that toolkits have.
    fn take(&mut self, path: &Path, source: &str) -> bool {
        for root in layouts(path) {
            let ptxas = root.join("bin/ptxas");
            if is_executable(&ptxas) {
                self.nvlink = Some(root.join("bin/nvlink")).filter(|p| is_executable(p));
                self.ptxas = Some(ptxas);
                self.root = Some(root);
                return true;
            }
        }
        let source = if source.is_empty() || source.starts_with('-') { source.to_owned() } else { format!("${source}: ") };
        self.searched.push(format!("{source}{}", path.join("bin/ptxas").display()));
        false
    }

    /// A command that runs one of its tools.
    pub fn command(&self, tool: &Path) -> CommandLine {
        CommandLine { environment: Some(self.environment.clone()), ..CommandLine::new(tool) }
    }

    /// The release as (major, minor), read from the files that come with it.
    pub fn version(&self) -> Option<(u32, u32)> {
        let root = self.root.as_ref()?;
        for header in ["include/cuda.h", "include/cuda_runtime_api.h"] {
            let Ok(text) = std::fs::read_to_string(root.join(header)) else { continue };
            for line in text.lines() {
                let mut words = line.split_whitespace();
                if words.next() == Some("#define")
                    && matches!(words.next(), Some("CUDA_VERSION" | "CUDART_VERSION"))
                    && let Some(number) = words.next().and_then(|w| w.parse::<u32>().ok())
                {
                    return Some((number / 1000, number % 1000 / 10));
                }
            }
        }
        let text = std::fs::read_to_string(root.join("version.json")).ok()?;
        let json: serde_json::Value = serde_json::from_str(&text).ok()?;
        let version = json.get("cuda")?.get("version")?.as_str()?;
        let mut numbers = version.split('.').map(|n| n.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    }

    /// A library that comes with the toolkit. In the layouts of NVIDIA's installer, of its Python packages and of distributions the
    /// libraries lie in different places.
    ///
    /// # Errors
    /// It is nowhere: the places where it was looked for.
    pub fn library(&self, name: &str) -> std::result::Result<PathBuf, Vec<PathBuf>> {
        let mut places = Vec::new();
        if let Some(root) = &self.root {
            places.extend(["lib64", "lib"].map(|dir| root.join(dir)));
            let mut targets: Vec<PathBuf> =
                std::fs::read_dir(root.join("targets")).into_iter().flatten().flatten().map(|entry| entry.path().join("lib")).collect();
            targets.sort();
            places.extend(targets);
            // Debian has its toolkit below /usr, split by kind of file.
            places.push(root.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH)));
        }
        places.iter().map(|place| place.join(name)).find(|path| path.is_file()).ok_or(places)
    }

    /// Why there is no ptxas, and what to do.
    pub fn missing(&self, needed_for: &str) -> Error {
        Error::new(format!(
            "ptxas not found, which {needed_for} needs; name the CUDA toolkit with {}=DIR or CUDA_PATH{}",
            self.option,
            self.searched.iter().map(|place| format!("\n>>> looked in {place}")).collect::<String>()
        ))
        .named("ptxas-not-found")
    }
}

/// The directories under a named path that may be the toolkit's root: itself, or NVIDIA's Python wheels unpacked there.
fn layouts(path: &Path) -> Vec<PathBuf> {
    let mut roots = vec![path.to_owned()];
    for sub in ["cu13", "cu12", "cuda_nvcc", "nvidia/cu13", "nvidia/cuda_nvcc", "targets/x86_64-linux", "nvvm-cuda"] {
        roots.push(path.join(sub));
    }
    roots
}

/// Where conda and pip put the toolkit below an environment's prefix.
fn python_places(prefix: &Path) -> Vec<PathBuf> {
    let mut places = vec![prefix.to_owned()];
    let mut versions: Vec<PathBuf> = std::fs::read_dir(prefix.join("lib"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("python3")))
        .collect();
    versions.sort();
    places.extend(versions.into_iter().rev().map(|path| path.join("site-packages/nvidia")));
    places
}

/// `/usr/local/cuda-13.0` and its like, the newest first.
fn versioned(parent: &str) -> Vec<PathBuf> {
    let mut found: Vec<(Vec<u32>, PathBuf)> = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let version = name.to_str()?.strip_prefix("cuda-")?;
            Some((version.split('.').map(|n| n.parse().unwrap_or(0)).collect(), entry.path()))
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}
