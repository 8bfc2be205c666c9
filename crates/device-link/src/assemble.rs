//! From PTX to the images of one architecture: ptxas, and nvlink where it is needed.

mod nvlink;

use std::path::Path;

use fatbin::Arch;
use fatbin::ptx::Version;

use crate::command::{CommandLine, describe};
use crate::diagnostics::Diagnostics;
use crate::error::{Context, Error, Result};
use crate::lto::{Ptx, set_version, stem};
use crate::options::{DebugRequest, DeviceEmit, DeviceLib, OptLevel, Options};
use crate::select::LinkJob;
use crate::temps::Temps;
use crate::timing::Timing;
use crate::toolchain::cuda::Toolkit;
use crate::undefined::Explainer;

/// What goes into the fat binary for one architecture.
pub struct DeviceImage {
    /// Architecture.
    pub arch: Arch,
    /// Machine code.
    pub cubin: Option<Vec<u8>>,
    /// Text for the driver's compiler.
    pub ptx: Option<Vec<u8>>,
    /// Compiled for debugging.
    pub debug: bool,
    /// ptxas's options beyond our own, which the driver applies when it compiles the PTX.
    pub ptxas_options: String,
}

/// Everything that a stage needs beside its input.
pub struct Stage<'a> {
    /// The user's options.
    pub options: &'a Options,
    /// The user's toolkit.
    pub toolkit: &'a Toolkit,
    /// Intermediate files.
    pub temps: &'a Temps,
    /// The clock.
    pub timing: &'a Timing,
    /// Row of the job in the time trace.
    pub row: usize,
    /// Messages.
    pub diagnostics: &'a Diagnostics,
    /// What the device linker was given that only nvlink can read.
    pub device_libs: &'a [DeviceLib],
    /// Knows what could have defined an undefined symbol.
    pub explainer: &'a Explainer<'a>,
}

/// Makes the images of one job.
pub fn run(job: &LinkJob, ptx: Option<Ptx>, stage: &Stage) -> Result<DeviceImage> {
    let arch = job.arch;
    let args = ptxas_args(job, stage.options);
    let mut image = DeviceImage { arch, cubin: None, ptx: None, debug: false, ptxas_options: args.join(" ") };
    let mut own = None;
    let mut finished = false;
    if let Some(mut ptx) = ptx {
        image.debug = ptx.debug;
        if stage.toolkit.ptxas.is_none() {
            // Without ptxas there is nobody to say which instructions an older ISA lacks: the version that the code was made for stays.
            let lowest = fatbin::ptx::lowest_version(arch);
            let made_for = job.ptx_version.map(|v| Version { major: (v / 10) as u16, minor: (v % 10) as u16 });
            if let Some(version) = made_for.into_iter().chain(lowest).max() {
                set_version(&mut ptx.text, version);
            }
            if !job.ptx || !job.objects.is_empty() {
                return Err(stage.toolkit.missing(&format!("device code for {arch}")));
            }
            stage.diagnostics.warn(
                "ptx-only",
                &format!("ptxas not found: the program gets PTX for {arch} only, which the driver compiles when it is loaded"),
            );
            stage.temps.keep(&format!("{}.ptx", stem(job)), || Ok(ptx.text.clone()))?;
            image.ptx = Some(ptx.text);
            return Ok(image);
        }
        finished = ptx.whole && job.objects.is_empty();
        let cubin = assemble(job, &mut ptx, finished, &args, stage)?;
        match job.objects.first() {
            None if job.ptx => image.ptx = Some(ptx.text),
            Some(object) if job.ptx => stage.diagnostics.warn(
                "ptx-incomplete",
                &format!("{}: is no bitcode, so there is no PTX of the whole program; none is embedded for {arch}", object.origin),
            ),
            _ => {}
        }
        own = Some(cubin);
    }
    image.cubin = if finished {
        own
    } else {
        let own = match own {
            Some(cubin) => Some((stage.temps.path(&format!("{}.relocatable.cubin", stem(job)))?, cubin)),
            None => None,
        };
        Some(nvlink::link(job, own, stage)?)
    };
    if stage.options.device_emit == Some(DeviceEmit::Assembly) {
        image.cubin = None;
    }
    Ok(image)
}

/// What users gave to ptxas: at compile time first, then at the link, so that the link wins.
fn ptxas_args(job: &LinkJob, options: &Options) -> Vec<String> {
    let mut args = job.recorded_ptxas_args.clone();
    args.extend(options.ptxas_args.iter().map(|arg| arg.to_string_lossy().into_owned()));
    args
}

fn assemble(job: &LinkJob, ptx: &mut Ptx, whole: bool, args: &[String], stage: &Stage) -> Result<Vec<u8>> {
    let arch = job.arch;
    let ptxas = stage.toolkit.ptxas.clone().ok_or_else(|| stage.toolkit.missing(&format!("device code for {arch}")))?;
    let stem = stem(job);
    let output = stage.temps.path(&format!("{stem}.{}", if whole { "cubin" } else { "relocatable.cubin" }))?;
    let mut tried = None;
    loop {
        let input = stage.temps.write(&format!("{stem}.ptx"), &ptx.text)?;
        let mut command = CommandLine::new(&ptxas);
        command.arg("-m64").arg("-arch").arg(arch.to_string());
        if !whole {
            command.arg("-c");
        }
        if ptx.debug {
            command.arg("-g").arg("-O0");
        } else {
            command.arg(match ptx.level {
                OptLevel::O0 => "-O0",
                OptLevel::O1 => "-O1",
                OptLevel::O2 | OptLevel::Os | OptLevel::Oz => "-O2",
                OptLevel::O3 => "-O3",
            });
            if ptx.line_tables || stage.options.device_debug == Some(DebugRequest::LineTables) {
                command.arg("-lineinfo");
            }
        }
        if stage.options.device_verbose {
            command.arg("-v");
        }
        command.args.extend(args.iter().map(Into::into));
        command.arg(&input).arg("-o").arg(&output);
        show(&command, stage);
        if stage.options.dry_run {
            return Ok(Vec::new());
        }
        let finished = stage.timing.stage("ptxas", stage.row, &stem, || command.run_captured())?;
        if finished.status.success() {
            let asked = args.iter().any(|arg| matches!(arg.as_str(), "-v" | "--verbose" | "-verbose"));
            report_warnings("ptxas", arch, &finished.output, asked, stage);
            return read_output(&output, "ptxas", arch);
        }
        // ptxas knows which instruction came with which ISA: it is asked with the lowest version first, and raised to what it names.
        if let Some(version) = required_version(&finished.output)
            && Some(version) > tried
        {
            tried = Some(version);
            set_version(&mut ptx.text, version);
            continue;
        }
        return Err(failed("ptxas", job, &command, &finished.output, &describe(finished.status), &input, stage));
    }
}

/// The highest ISA version that ptxas misses.
fn required_version(output: &str) -> Option<Version> {
    output
        .lines()
        .filter_map(|line| line.split_once("requires PTX ISA .version ")?.1.split_whitespace().next()?.parse::<Version>().ok())
        .max()
}

fn show(command: &CommandLine, stage: &Stage) {
    if stage.options.verbose || stage.options.dry_run {
        stage.diagnostics.verbose(&format!(" {command}"));
    }
}

fn read_output(path: &Path, tool: &str, arch: Arch) -> Result<Vec<u8>> {
    let bytes = std::fs::read(path).context(|| format!("{tool} made no output for {arch}: {}", path.display()))?;
    if !fatbin::cubin::Cubin::is_cubin(&bytes) {
        return Err(Error::new(format!("{tool} made something that is no cubin for {arch}, and said that all went well")));
    }
    Ok(bytes)
}

/// What a tool printed although it succeeded: resource usage where the user asked for it (`asked`: by an option for this tool), warnings
/// otherwise.
fn report_warnings(tool: &str, arch: Arch, output: &str, asked: bool, stage: &Stage) {
    if asked || stage.options.device_verbose {
        for line in output.lines() {
            stage.diagnostics.verbose(&stage.diagnostics.names(line));
        }
        return;
    }
    for line in output.lines().filter(|line| line.to_ascii_lowercase().contains("warning")) {
        stage.diagnostics.warn("ptxas", &format!("{tool}, {arch}: {}", stage.diagnostics.names(line.trim())));
    }
}

/// A child's failure in the user's terms: the object that the first named symbol comes from, the tool's words, the line to run again.
fn failed(tool: &str, job: &LinkJob, command: &CommandLine, output: &str, how: &str, input: &Path, stage: &Stage) -> Error {
    let words = output.replace(&input.display().to_string(), &format!("{}.ptx", stem(job)));
    let object = owner(&words, job).unwrap_or_else(|| crate::lto::describe(job));
    let words = words.trim();
    let words = if words.is_empty() { "(it printed nothing)".to_owned() } else { stage.diagnostics.names(words) };
    let again = if stage.temps.keeps() {
        format!("\n>>> run it again: {command}")
    } else {
        "\n>>> --save-temps keeps its input, -v shows its command".to_owned()
    };
    let framed: String = words.lines().map(|line| format!("\n>>> {line}")).collect();
    Error::new(format!("{object}: {tool} {how}{framed}{again}"))
}

/// The object that defines the first symbol which a tool's message names.
fn owner(text: &str, job: &LinkJob) -> Option<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$' || c == '.'));
    words.filter(|word| word.len() > 1).find_map(|word| job.definers.get(word)).map(|origin| format!("{origin} ({})", job.arch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_missing_version_is_found() {
        let output = "ptxas v.ptx, line 7; error   : Feature 'barrier.cluster.arrive' requires PTX ISA .version 7.8 or later\n\
                      ptxas v.ptx, line 9; error   : Modifier '.evict_last' on 'ld' requires PTX ISA .version 7.4 or later\n\
                      ptxas fatal   : Ptx assembly aborted due to errors\n";
        assert_eq!(required_version(output), Some(Version { major: 7, minor: 8 }));
        assert_eq!(required_version("ptxas fatal   : Unsupported .version 9.5; current version is '9.0'"), None);
    }
}
