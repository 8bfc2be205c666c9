//! NVIDIA's driver and the GPUs, as `nvidia-smi` or the kernel module's files tell. The driver's library is not loaded: that can hang on a
//! machine whose GPU has fallen off the bus, which is when people call a doctor.

use std::ffi::OsStr;
use std::path::Path;

use device_link::command::{CommandLine, describe};
use device_link::toolchain::{Env, find_in, path_dirs};
use serde::Serialize;

use super::{Problem, Severity};

/// The installed driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Driver {
    /// "580.65.06"
    pub(crate) version: String,
    /// 580
    pub(crate) branch: u32,
    /// Who said so.
    pub(crate) source: &'static str,
}

/// A GPU of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Gpu {
    pub(crate) name: String,
    /// "sm_90"; the kernel module does not tell it.
    pub(crate) arch: Option<String>,
}

/// Asks `nvidia-smi` on PATH, then the files in `proc`.
pub(super) fn find(env: Env, proc: &Path) -> (Option<Driver>, Vec<Gpu>, Option<Problem>) {
    let mut problem = None;
    if let Some(program) = find_in(&path_dirs(env), OsStr::new("nvidia-smi")) {
        let mut command = CommandLine::new(program);
        command.arg("--query-gpu=name,compute_cap,driver_version").arg("--format=csv,noheader");
        match command.run_captured() {
            Ok(finished) if finished.status.success() => {
                let (driver, gpus) = from_smi(&finished.output);
                if driver.is_some() {
                    return (driver, gpus, None);
                }
            }
            Ok(finished) => {
                let said = finished.output.trim().lines().next().unwrap_or_default().trim_end_matches('.').to_owned();
                let text = format!("nvidia-smi {}: {said}", describe(finished.status));
                let fix = "if the driver was updated, load its new kernel module or start the machine again";
                problem = Some(Problem::new(Severity::Warning, text, fix));
            }
            Err(error) => problem = Some(Problem::new(Severity::Warning, error.text(), "install the driver's utilities again")),
        }
    }
    let driver = std::fs::read_to_string(proc.join("version")).ok().and_then(|text| from_module(&text));
    let mut gpus: Vec<Gpu> = std::fs::read_dir(proc.join("gpus"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let text = std::fs::read_to_string(entry.path().join("information")).ok()?;
            let name = text.lines().find_map(|line| line.strip_prefix("Model:"))?.trim().to_owned();
            Some(Gpu { name, arch: None })
        })
        .collect();
    gpus.sort_by(|a, b| a.name.cmp(&b.name));
    (driver, gpus, problem)
}

/// Lines such as `NVIDIA H200, 9.0, 580.65.06`.
fn from_smi(text: &str) -> (Option<Driver>, Vec<Gpu>) {
    let mut driver = None;
    let mut gpus = Vec::new();
    for line in text.lines() {
        let mut fields = line.rsplit(", ");
        let (Some(version), Some(capability), Some(name)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let Some(branch) = branch(version) else { continue };
        driver = Some(Driver { version: version.trim().to_owned(), branch, source: "nvidia-smi" });
        let arch = capability.trim().split_once('.').filter(|(major, minor)| [major, minor].iter().all(|part| is_number(part)));
        gpus.push(Gpu { name: name.trim().to_owned(), arch: arch.map(|(major, minor)| format!("sm_{major}{minor}")) });
    }
    (driver, gpus)
}

/// `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build ...`
fn from_module(text: &str) -> Option<Driver> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let version = line.split_whitespace().find(|word| word.contains('.') && branch(word).is_some())?;
    Some(Driver { version: version.to_owned(), branch: branch(version)?, source: "the kernel module" })
}

fn branch(version: &str) -> Option<u32> {
    let mut numbers = version.trim().split('.');
    let branch = numbers.next()?.parse().ok()?;
    (numbers.clone().count() > 0 && numbers.all(is_number)).then_some(branch)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidia_smi_is_understood() {
        let (driver, gpus) =
            from_smi("NVIDIA H200, 9.0, 580.65.06\nGPU, with a comma, 8.6, 580.65.06\nOld thing, [N/A], 580.65.06\nnonsense\n");
        assert_eq!(driver, Some(Driver { version: "580.65.06".to_owned(), branch: 580, source: "nvidia-smi" }));
        let gpus: Vec<_> = gpus.iter().map(|gpu| (gpu.name.as_str(), gpu.arch.as_deref())).collect();
        assert_eq!(gpus, [("NVIDIA H200", Some("sm_90")), ("with a comma", Some("sm_86")), ("Old thing", None)]);
        assert_eq!(from_smi("No devices were found\n"), (None, Vec::new()));
    }

    #[test]
    fn the_kernel_module_is_understood() {
        for (text, version) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc 12.2.0\n",
                "535.104.05",
            ),
            ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)\n", "580.65.06"),
            ("NVRM version: NVIDIA UNIX aarch64 Kernel Module  550.54  x\n", "550.54"),
        ] {
            assert_eq!(from_module(text).expect("driver").version, version);
        }
        for text in ["", "NVRM version:", "NVRM version: NVIDIA 5x.1", "GCC version: 12.2.0"] {
            assert_eq!(from_module(text), None, "{text}");
        }
    }
}
