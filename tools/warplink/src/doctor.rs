//! `warplink doctor`: what a link would use here, whether it fits together, and what to do where it does not.

mod driver;
mod fits;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use device_link::link_line;
use device_link::options::Invocation;
use device_link::repro::tool_version;
use device_link::toolchain::cuda::Toolkit;
use device_link::toolchain::{Env, find_in, host_linker, path_dirs};
use serde::Serialize;

use driver::Driver;

/// The options of `warplink doctor`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Write JSON, as docs/doctor.md describes it
    #[arg(long)]
    json: bool,
    /// Where the kernel shows what it knows of NVIDIA's driver
    #[arg(long, hide = true, default_value = "/proc/driver/nvidia")]
    proc: PathBuf,
}

/// All that was found. Its serialized form is the `--json` output: fields may be added, not renamed or removed.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: u32,
    pub(crate) warplink: String,
    /// The LLVM that is built in.
    pub(crate) llvm: String,
    pub(crate) bin_dir: Option<String>,
    pub(crate) toolkit: ToolkitReport,
    /// By name: ptxas, nvlink, the host linkers, clang++.
    pub(crate) tools: Vec<Tool>,
    pub(crate) driver: Option<Driver>,
    pub(crate) gpus: Vec<driver::Gpu>,
    pub(crate) fits: fits::Fits,
    pub(crate) problems: Vec<Problem>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct ToolkitReport {
    pub(crate) root: Option<String>,
    /// The release: "13.0".
    pub(crate) cuda: Option<String>,
    /// Where it was looked for, if it was not found.
    pub(crate) searched: Vec<String>,
    /// By name, and where they are: what programs are linked with.
    pub(crate) libraries: BTreeMap<&'static str, Option<String>>,
    #[serde(skip)]
    pub(crate) release: Option<(u32, u32)>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) path: Option<String>,
    pub(crate) version: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Severity {
    /// No link of device code can work.
    Error,
    /// Some links or the programs that come of them do not work.
    Warning,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    pub(crate) text: String,
    /// What to do.
    pub(crate) fix: String,
}

impl Problem {
    fn new(severity: Severity, text: impl Into<String>, fix: impl Into<String>) -> Problem {
        Problem { severity, text: text.into(), fix: fix.into() }
    }
}

/// Prints the report and gives the exit code: 1 if a link could not work.
pub(crate) fn run(args: &Args) -> Result<i32, String> {
    let env = |name: &str| std::env::var_os(name);
    let own = std::env::current_exe().ok();
    let mut report = examine(own.as_deref(), &env, &args.proc);
    match crate::bin_dir::bin_dir() {
        Ok(dir) => report.bin_dir = Some(dir.display().to_string()),
        Err(error) => {
            let fix = "install warplink with its libexec directory, or name it with --ld-path= instead of -B";
            report.problems.push(Problem::new(Severity::Warning, error, fix));
        }
    }
    let text = if args.json { serde_json::to_string_pretty(&report).map_err(|error| error.to_string())? + "\n" } else { render(&report) };
    // Whoever reads may stop; the exit code tells all the same.
    let _ = std::io::Write::write_all(&mut anstream::stdout(), text.as_bytes());
    Ok(i32::from(report.problems.iter().any(|problem| problem.severity == Severity::Error)))
}

const LINKERS: [&str; 5] = ["ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold"];
const LIBRARIES: [&str; 3] = ["libcudart_static.a", "libcudart.so", "libcudadevrt.a"];

/// Looks at everything. `own` is this program's file, `proc` the directory that the driver's kernel module fills.
pub(crate) fn examine(own: Option<&Path>, env: Env, proc: &Path) -> Report {
    let (major, minor, patch) = device_link::llvm_version();
    let mut report =
        Report { schema: 1, warplink: env!("CARGO_PKG_VERSION").to_owned(), llvm: format!("{major}.{minor}.{patch}"), ..Report::default() };
    let mut options = match link_line::parse(vec![OsString::from("ld")], &|name| env(name)) {
        Ok(line) => line.options,
        Err(error) => {
            for error in error.each() {
                report.problems.push(Problem::new(Severity::Error, error.text(), "correct or unset the variable"));
            }
            match link_line::parse(vec![OsString::from("ld")], &|_| None) {
                Ok(line) => line.options,
                Err(_) => return report,
            }
        }
    };
    match Toolkit::find(&options, env) {
        Ok(toolkit) => examine_toolkit(&toolkit, &mut report),
        Err(error) => {
            let fix = "let it name the directory that holds bin/ptxas, or unset it to have the toolkit searched for";
            report.problems.push(Problem::new(Severity::Error, error.text(), fix));
        }
    }
    for name in LINKERS {
        options.invoked_as = Invocation::Linker(name.to_owned());
        let path = host_linker(&options, own, env).ok().map(|linker| linker.path);
        if path.is_none() && name == "ld" {
            let fix = "install binutils, lld or mold, or name a linker with WARPLINK_LINKER or --warplink-linker=PATH";
            report.problems.push(Problem::new(Severity::Error, "host linker 'ld' not found on PATH", fix));
        }
        report.tools.push(tool(name, path.as_deref()));
    }
    let clang = ["clang++", "clang"].iter().find_map(|name| find_in(&path_dirs(env), OsStr::new(name)));
    report.tools.push(tool("clang++", clang.as_deref()));
    if let Err(error) = tempfile::tempdir() {
        let text = format!("{}: no temporary directory can be made: {error}", std::env::temp_dir().display());
        report.problems.push(Problem::new(Severity::Error, text, "let TMPDIR name a directory that can be written to"));
    }
    let (driver, gpus, problem) = driver::find(env, proc);
    (report.driver, report.gpus) = (driver, gpus);
    report.problems.extend(problem);
    report.fits = fits::fits(&report);
    report.problems.extend(fits::problems(&report));
    report.problems.sort_by_key(|problem| problem.severity == Severity::Warning);
    report
}

fn tool(name: &'static str, path: Option<&Path>) -> Tool {
    Tool { name, path: path.map(|path| path.display().to_string()), version: path.and_then(tool_version) }
}

fn examine_toolkit(toolkit: &Toolkit, report: &mut Report) {
    report.toolkit.root = toolkit.root.as_ref().map(|root| root.display().to_string());
    report.toolkit.release = toolkit.version();
    report.toolkit.cuda = toolkit.version().map(|(major, minor)| format!("{major}.{minor}"));
    if toolkit.root.is_none() {
        report.toolkit.searched = toolkit.searched.clone();
    }
    // Variables that name a toolkit and lead to none.
    for (variable, place) in toolkit.searched.iter().filter_map(|place| place.strip_prefix('$')?.split_once(": ")) {
        if variable.starts_with("CUDA") {
            let text = format!("{variable} names no toolkit: {place} is not there");
            report.problems.push(Problem::new(Severity::Warning, text, "let it name the directory that holds bin/ptxas, or unset it"));
        }
    }
    report.tools.push(tool("ptxas", toolkit.ptxas.as_deref()));
    report.tools.push(tool("nvlink", toolkit.nvlink.as_deref()));
    if toolkit.ptxas.is_none() {
        let fix = "install the CUDA toolkit (nvcc's package is enough) and name it with CUDA_PATH or --cuda-path=DIR";
        report.problems.push(Problem::new(Severity::Error, "ptxas not found, so only PTX can be embedded, where it is allowed", fix));
        return;
    }
    if toolkit.nvlink.is_none() {
        let text = "nvlink not found beside ptxas: objects of nvcc or without -foffload-lto cannot be linked";
        report.problems.push(Problem::new(Severity::Warning, text, "install the toolkit's nvcc package, which holds it"));
    }
    for name in LIBRARIES {
        report.toolkit.libraries.insert(name, toolkit.library(name).ok().map(|path| path.display().to_string()));
    }
    let missing = |name: &str| report.toolkit.libraries.get(name).is_some_and(Option::is_none);
    if missing("libcudart_static.a") && missing("libcudart.so") {
        let text = "the toolkit has no CUDA runtime (libcudart_static.a, libcudart.so) to link programs with";
        report.problems.push(Problem::new(Severity::Warning, text, "install its cudart package, or name another directory with -L"));
    }
}

/// The report for people.
fn render(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let mut line = |name: &str, what: &str| _ = writeln!(text, "{name:<12} {what}");
    line("warplink", &format!("{} (LLVM {})", report.warplink, report.llvm));
    line("bin-dir", report.bin_dir.as_deref().unwrap_or("none"));
    match &report.toolkit.root {
        Some(root) => {
            let release = report.toolkit.cuda.as_ref().map_or_else(String::new, |cuda| format!(" (CUDA {cuda})"));
            line("toolkit", &format!("{root}{release}"));
        }
        None => line("toolkit", "not found"),
    }
    for place in &report.toolkit.searched {
        line("", &format!("looked in {place}"));
    }
    for (name, path) in &report.toolkit.libraries {
        line("", &format!("{name}: {}", path.as_deref().unwrap_or("not there")));
    }
    for tool in &report.tools {
        let path = tool.path.as_deref().unwrap_or("not found");
        let version = tool.version.as_ref().map_or_else(String::new, |version| format!(" ({version})"));
        line(tool.name, &format!("{path}{version}"));
    }
    match &report.driver {
        Some(driver) => line("driver", &format!("{} (from {})", driver.version, driver.source)),
        None => line("driver", "none found: programs can be linked here, not run"),
    }
    for gpu in &report.gpus {
        let arch = gpu.arch.as_ref().map_or_else(String::new, |arch| format!(" ({arch})"));
        line("gpu", &format!("{}{arch}", gpu.name));
    }
    for fact in fits::sentences(report) {
        line("fits", &fact);
    }
    for problem in &report.problems {
        let severity = if problem.severity == Severity::Error { "error" } else { "warning" };
        let _ = writeln!(text, "{severity}: {}; {}", problem.text, problem.fix);
    }
    if report.problems.is_empty() {
        text.push_str("no problems\n");
    }
    text
}
