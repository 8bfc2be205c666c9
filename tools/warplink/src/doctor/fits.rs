//! What goes together: the PTX that ptxas and the driver know, the GPUs that ptxas makes code for, the CUDA that a driver runs.

use fatbin::Arch;
use fatbin::ptx::{RELEASES, Version, lowest_version};
use serde::Serialize;

use super::{Problem, Report, Severity};

/// What follows from the versions found.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Fits {
    /// The newest PTX that ptxas reads.
    pub(crate) ptxas_ptx: Option<String>,
    /// The newest PTX that the driver compiles.
    pub(crate) driver_ptx: Option<String>,
    /// The oldest GPU that ptxas makes machine code for.
    pub(crate) oldest_arch: Option<String>,
    /// The newest CUDA whose programs the driver runs.
    pub(crate) driver_cuda: Option<String>,
}

/// The first driver branch that runs programs of a CUDA major release, whatever their minor release. From the table of minor version
/// compatibility in NVIDIA's CUDA compatibility document.
const FIRST_DRIVER: [(u32, u32); 3] = [(11, 450), (12, 525), (13, 580)];

/// The oldest architecture of a CUDA major release's ptxas, from the release notes.
const OLDEST_ARCH: [(u32, u32); 3] = [(11, 35), (12, 50), (13, 75)];

/// The releases of clang whose bitcode is read.
const CLANG: std::ops::RangeInclusive<u32> = 16..=22;

pub(super) fn fits(report: &Report) -> Fits {
    let release = report.toolkit.release;
    let branch = report.driver.as_ref().map(|driver| driver.branch);
    let major = branch.and_then(|branch| FIRST_DRIVER.iter().rev().find(|(_, first)| *first <= branch));
    Fits {
        ptxas_ptx: release.and_then(ptx_of_cuda).map(|version| version.to_string()),
        driver_ptx: branch.and_then(ptx_of_driver).map(|version| version.to_string()),
        oldest_arch: release.and_then(|(major, _)| oldest_arch(major)).map(|arch| arch.to_string()),
        driver_cuda: major.map(|(major, _)| format!("{major}.x")),
    }
}

/// The newest PTX of a CUDA release.
fn ptx_of_cuda(release: (u32, u32)) -> Option<Version> {
    RELEASES.iter().rev().find(|known| number(known.cuda).is_some_and(|known| known <= release)).map(|known| known.version)
}

/// The newest PTX that drivers of a branch compile.
fn ptx_of_driver(branch: u32) -> Option<Version> {
    RELEASES.iter().rev().find(|known| known.driver.is_some_and(|driver| driver <= branch)).map(|known| known.version)
}

fn number(release: &str) -> Option<(u32, u32)> {
    let (major, minor) = release.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn oldest_arch(cuda_major: u32) -> Option<Arch> {
    OLDEST_ARCH.iter().find(|(major, _)| *major == cuda_major).map(|(_, sm)| Arch::new(*sm))
}

/// What fits, for people.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let fits = &report.fits;
    let mut sentences = Vec::new();
    if let (Some(oldest), Some(ptx)) = (&fits.oldest_arch, &fits.ptxas_ptx) {
        sentences.push(format!("ptxas makes code for {oldest} and newer and reads PTX up to ISA {ptx}"));
    }
    if let (Some(driver), Some(ptx)) = (&report.driver, &fits.driver_ptx) {
        let cuda = fits.driver_cuda.as_ref().map_or_else(String::new, |cuda| format!("runs programs of CUDA {cuda} and older and "));
        sentences.push(format!("driver r{} {cuda}compiles PTX up to ISA {ptx}", driver.branch));
    }
    sentences
}

/// What does not fit.
pub(super) fn problems(report: &Report) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut warn = |text: String, fix: String| problems.push(Problem::new(Severity::Warning, text, fix));
    if let (Some((major, minor)), Some(driver)) = (report.toolkit.release, &report.driver) {
        let first = FIRST_DRIVER.iter().find(|(known, _)| *known == major).map(|(_, first)| *first);
        if let Some(first) = first.filter(|first| driver.branch < *first) {
            let older = report.fits.driver_cuda.clone().unwrap_or_else(|| "10.x".to_owned());
            warn(
                format!(
                    "programs linked with CUDA {major}.{minor} need a driver of branch r{first} or newer; this one is {}",
                    driver.version
                ),
                format!("update the driver, or link with CUDA {older}"),
            );
        }
        if let (Some(ptxas), Some(by_driver)) = (ptx_of_cuda((major, minor)), ptx_of_driver(driver.branch))
            && ptxas > by_driver
        {
            warn(
                format!("this driver compiles PTX up to ISA {by_driver}, and code may need up to ISA {ptxas} of CUDA {major}.{minor}"),
                "embed machine code for this GPU, not PTX alone; warplink writes the lowest ISA that the code needs".to_owned(),
            );
        }
    }
    for gpu in &report.gpus {
        let (Some((major, minor)), Some(arch)) = (report.toolkit.release, gpu.arch.as_ref().and_then(|arch| arch.parse::<Arch>().ok()))
        else {
            continue;
        };
        if oldest_arch(major).is_some_and(|oldest| arch.sm < oldest.sm) {
            let older = OLDEST_ARCH.iter().rev().find(|(_, sm)| *sm <= arch.sm).map_or(10, |(major, _)| *major);
            warn(
                format!("CUDA {major}.{minor} makes no code for this machine's {} ({arch})", gpu.name),
                format!("use CUDA {older}.x for it"),
            );
        } else if let (Some(needs), Some(has)) = (lowest_version(arch), ptx_of_cuda((major, minor)))
            && needs > has
        {
            let release = needs.release().map_or("a newer one".to_owned(), |release| format!("CUDA {} or newer", release.cuda));
            warn(
                format!("CUDA {major}.{minor} does not know this machine's {} ({arch}), which only PTX for older GPUs runs on", gpu.name),
                format!("install {release}, or embed PTX with --warplink-ptx=all"),
            );
        }
    }
    let clang = report.tools.iter().find(|tool| tool.name == "clang++").and_then(|tool| tool.version.as_deref());
    if let Some(major) = clang.and_then(clang_major).filter(|major| !CLANG.contains(major)) {
        let fix = format!("compile with clang {} to {}", CLANG.start(), CLANG.end());
        warn(format!("objects of clang {major} may not be readable: the LLVM in warplink is {}", report.llvm), fix);
    }
    problems
}

/// The release in `Debian clang version 22.1.8 (...)`.
fn clang_major(version: &str) -> Option<u32> {
    version.split_once("version ")?.1.split('.').next()?.parse().ok()
}
