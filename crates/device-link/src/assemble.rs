//! From PTX to the images of one architecture: ptxas, and nvlink where it is needed.

mod nvlink;
mod words;

pub(crate) use nvlink::for_linking;

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::Path;

use fatbin::Arch;
use fatbin::ptx::Version;

use crate::cache::Cache;
use crate::cache::assembly::Assembly;
use crate::command::{CommandLine, describe};
use crate::diagnostics::Diagnostics;
use crate::error::{Error, Result, io_text};
use crate::lto::{Ptx, set_version, stem};
use crate::options::{DebugRequest, DeviceEmit, DeviceLib, OptLevel, Options};
use crate::record::Recorder;
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
    /// What is written down of the link.
    pub recorder: &'a Recorder,
    /// Messages.
    pub diagnostics: &'a Diagnostics,
    /// What the device linker was given that only nvlink can read.
    pub device_libs: &'a [DeviceLib],
    /// Knows what could have defined an undefined symbol.
    pub explainer: &'a Explainer<'a>,
    /// What was made before.
    pub cache: &'a Cache<'a>,
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
        if !finished {
            declare_kernels(job, &mut ptx);
        }
        let cubin = assemble(job, &stem(job), &mut ptx, finished, &args, stage)?;
        image.ptx = embedded(job, stage).then_some(ptx.text);
        own = Some(cubin);
    }
    image.cubin = if finished {
        own
    } else {
        let own = match own {
            Some(_) => vec![stage.temps.path(&format!("{}.relocatable.cubin", stem(job)))?],
            None => Vec::new(),
        };
        Some(nvlink::link(job, own, stage)?)
    };
    if stage.options.device_emit == Some(DeviceEmit::Assembly) {
        image.cubin = None;
    }
    Ok(image)
}

/// Whether the PTX of the program's bitcode is embedded: where it is wanted and is the whole program.
fn embedded(job: &LinkJob, stage: &Stage) -> bool {
    let Some(object) = job.objects.first().filter(|_| job.ptx) else { return job.ptx };
    let more = match job.objects.len() - 1 {
        0 => String::new(),
        1 => " (and 1 other object)".to_owned(),
        more => format!(" (and {more} other objects)"),
    };
    let way_out = if object.origin.contains(crate::nvcc::LIBRARY) {
        "device code that launches kernels needs it; with --warplink-ptx=none no PTX is asked for"
    } else if object.by_nvcc {
        "compile it with clang++ -fgpu-rdc -foffload-lto, which keeps the bitcode"
    } else {
        "compile it with -foffload-lto"
    };
    stage.diagnostics.warn(
        "ptx-incomplete",
        &format!(
            "{}: is no bitcode{more}, so there is no PTX of the whole program; none is embedded for {}\n>>> {way_out}",
            object.origin, job.arch
        ),
    );
    false
}

/// Assembles one part of a job, `name`d as its files are. Its PTX gets the ISA version that it needs.
pub fn part(job: &LinkJob, name: &str, ptx: &mut Ptx, stage: &Stage) -> Result<()> {
    declare_kernels(job, ptx);
    assemble(job, name, ptx, false, &ptxas_args(job, stage.options), stage)?;
    Ok(())
}

/// Kernels of other objects that device code launches must be known to be kernels where ptxas sees their names.
pub(crate) fn declare_kernels(job: &LinkJob, ptx: &mut Ptx) {
    if let Some(text) = fatbin::ptx::with_kernels_declared(&ptx.text, |name| job.kernels.contains(name)) {
        ptx.text = text;
    }
}

/// Joins the parts of a job, in the order given: their names and PTX. Their cubins lie where [`part`] has left them.
pub fn join(job: &LinkJob, parts: &[(String, Ptx)], stage: &Stage) -> Result<DeviceImage> {
    let mut image =
        DeviceImage { arch: job.arch, cubin: None, ptx: None, debug: false, ptxas_options: ptxas_args(job, stage.options).join(" ") };
    if embedded(job, stage) {
        let texts: Vec<&[u8]> = parts.iter().map(|(_, ptx)| ptx.text.as_slice()).collect();
        let text = fatbin::ptx_join::join(&texts).map_err(|error| Error::new(format!("{}: {error}", job.arch)))?;
        stage.temps.keep(&format!("{}.ptx", stem(job)), || Ok(text.clone()))?;
        image.ptx = Some(text);
    }
    stage.recorder.ptx(job.arch, parts.iter().map(|(_, ptx)| ptx.text.len()).sum());
    let mut own = Vec::with_capacity(parts.len());
    for (name, _) in parts {
        own.push(stage.temps.path(&format!("{name}.relocatable.cubin"))?);
    }
    if stage.options.device_emit != Some(DeviceEmit::Assembly) {
        image.cubin = Some(nvlink::link(job, own, stage)?);
    }
    Ok(image)
}

/// What users gave to ptxas: at compile time first, then at the link, so that the link wins.
pub(crate) fn ptxas_args(job: &LinkJob, options: &Options) -> Vec<String> {
    let mut args = job.recorded_ptxas_args.clone();
    args.extend(options.ptxas_args.iter().map(|arg| arg.to_string_lossy().into_owned()));
    args
}

fn assemble(job: &LinkJob, stem: &str, ptx: &mut Ptx, whole: bool, args: &[String], stage: &Stage) -> Result<Vec<u8>> {
    let arch = job.arch;
    let ptxas = stage.toolkit.ptxas.clone().ok_or_else(|| stage.toolkit.missing(&format!("device code for {arch}")))?;
    let output = format!("{stem}.{}", if whole { "cubin" } else { "relocatable.cubin" });
    let arguments = ptxas_arguments(arch, ptx, whole, args, stage.options);
    let asked = args.iter().any(|arg| matches!(arg.as_str(), "-v" | "--verbose" | "-verbose"));
    let cached = Assembly::new(stage.cache, &ptxas, &arguments, &ptx.text);
    if let Some(known) = cached.as_ref().and_then(Assembly::known) {
        if stage.options.verbose {
            stage.diagnostics.verbose(&format!("cache: hit: ptxas, {stem}"));
        }
        stage.timing.cached("ptxas", stage.row, stem);
        if let Some(version) = known.raised {
            set_version(&mut ptx.text, version);
        }
        report_warnings("ptxas", arch, &known.output, asked, stage);
        if !whole {
            // nvlink reads it.
            stage.temps.write(&output, &known.cubin)?;
        }
        return Ok(known.cubin);
    }
    let output = stage.temps.path(&output)?;
    let mut tried = None;
    loop {
        let input = stage.temps.write(&format!("{stem}.ptx"), &ptx.text)?;
        let mut command = stage.toolkit.command(&ptxas);
        command.args.extend(arguments.iter().cloned());
        command.arg(&input).arg("-o").arg(&output);
        show(&command, stage);
        if stage.options.dry_run {
            return Ok(Vec::new());
        }
        let finished = stage.timing.stage("ptxas", stage.row, stem, || command.run_captured_within(stage.options.tool_timeout))?;
        if finished.status.success() {
            let words = finished.output.replace(&input.display().to_string(), &format!("{stem}.ptx"));
            report_warnings("ptxas", arch, &words, asked, stage);
            let cubin = read_output(&output, "ptxas", job, &command, &finished.output, stage)?;
            if let Some(cached) = cached {
                cached.keep(&cubin, tried, &words);
            }
            return Ok(cubin);
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

/// Everything that ptxas is told, but for the names of its input and output.
fn ptxas_arguments(arch: Arch, ptx: &Ptx, whole: bool, args: &[String], options: &Options) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["-m64".into(), "-arch".into(), arch.to_string().into()];
    if !whole {
        arguments.push("-c".into());
    }
    if ptx.debug {
        arguments.extend(["-g".into(), "-O0".into()]);
    } else {
        let level = match ptx.level {
            OptLevel::O0 => "-O0",
            OptLevel::O1 => "-O1",
            OptLevel::O2 | OptLevel::Os | OptLevel::Oz => "-O2",
            OptLevel::O3 => "-O3",
        };
        arguments.push(level.into());
        if ptx.line_tables || options.device_debug == Some(DebugRequest::LineTables) {
            arguments.push("-lineinfo".into());
        }
    }
    if options.device_verbose {
        arguments.push("-v".into());
    }
    arguments.extend(args.iter().map(Into::into));
    arguments
}

/// The highest ISA version that ptxas misses.
pub(crate) fn required_version(output: &str) -> Option<Version> {
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

/// What a tool has made, which it says is complete. That is looked at here, where it is known whose it is.
fn read_output(path: &Path, tool: &str, job: &LinkJob, command: &CommandLine, words: &str, stage: &Stage) -> Result<Vec<u8>> {
    let what = match std::fs::read(path) {
        Ok(bytes) if bytes.is_empty() => "has made an empty file".to_owned(),
        Ok(bytes) => match fatbin::cubin::Cubin::parse(&bytes) {
            Ok(_) => return Ok(bytes),
            Err(error) => format!("has made no whole cubin ({error})"),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "has made no output".to_owned(),
        Err(error) => format!("has made an output that cannot be read ({})", io_text(&error)),
    };
    let how = format!("({}) {what}, although it exited with code 0", command.program.display());
    Err(failed(tool, job, command, words, &how, path, stage))
}

/// Lines that are shown of what a tool prints: so many first and last ones.
const SHOWN: (usize, usize) = (60, 20);

/// Bytes that are shown of a line.
const LINE: usize = 2000;

/// What is shown of very many words, with a note of what is left out.
fn bounded(words: &str) -> Cow<'_, str> {
    let count = words.lines().count();
    if count <= SHOWN.0 + SHOWN.1 && words.lines().all(|line| line.len() <= LINE) {
        return Cow::Borrowed(words);
    }
    let left_out = SHOWN.0..count.saturating_sub(SHOWN.1);
    let mut text = String::new();
    for (index, line) in words.lines().enumerate() {
        if index == left_out.start && !left_out.is_empty() {
            text.push_str(&format!("... ({} lines are left out)\n", left_out.len()));
        }
        if left_out.contains(&index) {
            continue;
        }
        let end = (0..=LINE.min(line.len())).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
        text.push_str(line.get(..end).unwrap_or_default());
        if end < line.len() {
            text.push_str(&format!("... ({} bytes are left out)", line.len() - end));
        }
        text.push('\n');
    }
    Cow::Owned(text)
}

/// Warnings of one run of a tool that are shown.
const WARNINGS: usize = 500;

/// What a tool printed although it succeeded: resource usage where the user asked for it (`asked`: by an option for this tool), warnings
/// otherwise.
fn report_warnings(tool: &str, arch: Arch, output: &str, asked: bool, stage: &Stage) {
    if asked || stage.options.device_verbose {
        stage.cache.spoil();
        for line in output.lines() {
            stage.diagnostics.verbose(&stage.diagnostics.names(line));
        }
        return;
    }
    let warnings: Vec<&str> = output.lines().filter(|line| line.to_ascii_lowercase().contains("warning")).collect();
    for line in warnings.iter().take(WARNINGS) {
        stage.diagnostics.warn("ptxas", &format!("{tool}, {arch}: {}", stage.diagnostics.names(bounded(line.trim()).trim_end())));
    }
    if let Some(more) = warnings.len().checked_sub(WARNINGS).filter(|&more| more > 0) {
        stage.diagnostics.warn("ptxas", &format!("{tool}, {arch}: {more} more warnings, which are left out"));
    }
}

/// A child's failure in the user's terms: the object that the first named symbol comes from, the tool's words, the line to run again.
fn failed(tool: &str, job: &LinkJob, command: &CommandLine, output: &str, how: &str, input: &Path, stage: &Stage) -> Error {
    // nvlink's words have the user's names already. A file that cannot be read is only not quoted.
    let text = if tool == "ptxas" { std::fs::read(input).unwrap_or_default() } else { Vec::new() };
    let words = words::in_users_terms(&bounded(output), input, &text, &job.arch.to_string(), stage.temps.keeps());
    let named = owner(&words.text, job).or_else(|| owner(words.function.as_deref()?, job));
    let object = named.unwrap_or_else(|| crate::lto::describe(job));
    let words = words.text.trim();
    let words = if words.is_empty() { "(it printed nothing)".to_owned() } else { stage.diagnostics.names(words) };
    let again = if stage.temps.keeps() {
        format!("\n>>> run it again: {command}")
    } else {
        "\n>>> --save-temps keeps its input, -v shows its command".to_owned()
    };
    let framed: String = words.lines().map(|line| format!("\n>>> {line}")).collect();
    Error::new(format!("{object}: {tool} {how}{framed}{again}")).named(if tool == "ptxas" { "ptxas-failed" } else { "nvlink-failed" })
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
    fn of_very_many_words_some_are_shown() {
        let text = "a\nb\n";
        assert!(matches!(bounded(text), Cow::Borrowed(same) if same == text));
        let many: String = (0..1000).map(|number| format!("line {number}\n")).collect();
        let shown = bounded(&many);
        assert_eq!(shown.lines().count(), SHOWN.0 + 1 + SHOWN.1);
        assert!(shown.contains("line 59\n... (920 lines are left out)\nline 980\n") && shown.ends_with("line 999\n"), "{shown}");
        let long = bounded(&"ü".repeat(5000)).into_owned();
        assert!(long.starts_with('ü') && long.ends_with("ü... (8000 bytes are left out)\n"), "{long}");
    }

    #[test]
    fn the_highest_missing_version_is_found() {
        let output = "ptxas v.ptx, line 7; error   : Feature 'barrier.cluster.arrive' requires PTX ISA .version 7.8 or later\n\
                      ptxas v.ptx, line 9; error   : Modifier '.evict_last' on 'ld' requires PTX ISA .version 7.4 or later\n\
                      ptxas fatal   : Ptx assembly aborted due to errors\n";
        assert_eq!(required_version(output), Some(Version { major: 7, minor: 8 }));
        assert_eq!(required_version("ptxas fatal   : Unsupported .version 9.5; current version is '9.0'"), None);
    }
}
