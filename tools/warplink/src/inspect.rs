//! `warplink inspect`: what device code is in a file, and on which GPUs it runs.

mod diff;
pub(crate) mod gather;
pub(crate) mod gpus;
mod names;
pub(crate) mod render;
pub(crate) mod report;
pub(crate) mod table;
pub(crate) mod verdict;

use gpus::Gpu;
use report::{Report, Runs};
use std::io::{self, Write};
use std::path::PathBuf;

/// The options of `warplink inspect`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Programs, shared objects, objects, archives, fat binaries, cubins, PTX or offload binaries
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show what grew from the first to the second of two files: by architecture, section, kernel and variable
    #[arg(long, conflicts_with = "gpu")]
    diff: bool,
    /// Write JSON, as docs/inspect.md describes it: fields may be added, but keep their names
    #[arg(long)]
    json: bool,
    /// Say which image runs on this GPU, such as sm_90, 9.0 or H200; exit with 1 if there is none
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,
    /// Show symbols as the object files have them
    #[arg(long)]
    no_demangle: bool,
    /// Show names in full and every row, however wide and long that gets
    #[arg(long)]
    wide: bool,
}

/// The characters that a line may have; no limit with `--wide`.
pub(crate) type Columns = Option<usize>;

/// The width of lines where no terminal says how wide it is.
const COLUMNS: usize = 100;

/// Narrower than this, tables are not readable anyway; wider, lines are not.
const READABLE: std::ops::RangeInclusive<usize> = 80..=160;

/// Whether the files run on the GPU that `--gpu` names; without it they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit with 0.
    Good,
    /// Exit with 1.
    DoesNotRun,
}

/// Writes the report on all files to `out`, with colours: `out` should drop them where they are not wanted, as anstream does.
///
/// # Errors
/// The files that cannot be read, one a line; the report on the others is written all the same. A failure to write.
///
/// `terminal` is the width of the terminal that `out` is, if it is one.
pub(crate) fn run(args: &Args, terminal: Option<usize>, out: &mut dyn Write) -> Result<Outcome, String> {
    let columns = (!args.wide).then(|| terminal.unwrap_or(COLUMNS).clamp(*READABLE.start(), *READABLE.end()));
    if args.diff {
        return run_diff(args, columns, out);
    }
    let gpu = args.gpu.as_deref().map(Gpu::parse).transpose()?;
    let mut errors = Vec::new();
    let mut files = Vec::new();
    for path in &args.files {
        match gather::gather(path, !args.no_demangle) {
            Ok(mut file) => {
                let known = gpu.map_or_else(|| Gpu::known().collect(), |gpu| vec![gpu]);
                file.gpus = known.into_iter().filter_map(|gpu| verdict::judge(&file, gpu)).collect();
                files.push(file);
            }
            Err(error) => errors.push(format!("{}: {error}", path.display())),
        }
    }
    let runs = |file: &report::File| file.gpus.iter().any(|gpu| matches!(gpu.runs, Runs::Native | Runs::Jit));
    let outcome = if gpu.is_some() && !files.iter().all(runs) { Outcome::DoesNotRun } else { Outcome::Good };

    let report = Report { schema: 1, files };
    errors.extend(written(write(&report, args.json, gpu, columns, out)).err());
    if errors.is_empty() { Ok(outcome) } else { Err(errors.join("\n")) }
}

fn run_diff(args: &Args, columns: Columns, out: &mut dyn Write) -> Result<Outcome, String> {
    let [old, new] = &args.files[..] else {
        return Err(format!("--diff compares two files, got {}", gather::count(args.files.len(), "file")));
    };
    let read = |path: &PathBuf| gather::gather(path, !args.no_demangle).map_err(|error| format!("{}: {error}", path.display()));
    let (old, new) = match (read(old), read(new)) {
        (Ok(old), Ok(new)) => (old, new),
        (old, new) => return Err([old.err(), new.err()].into_iter().flatten().collect::<Vec<_>>().join("\n")),
    };
    let diff = diff::compare(&old, &new);
    written(if args.json { write_json(&diff, out) } else { diff::render(&diff, columns, out).and_then(|()| out.flush()) })?;
    Ok(Outcome::Good)
}

/// Whoever reads may stop: `warplink inspect ... | head`.
fn written(result: io::Result<()>) -> Result<(), String> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| format!("cannot write the report: {error}")),
    }
}

fn write_json(report: &impl serde::Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)?;
    out.flush()
}

fn write(report: &Report, json: bool, gpu: Option<Gpu>, columns: Columns, out: &mut dyn Write) -> io::Result<()> {
    if json {
        return write_json(report, out);
    }
    if let Some(gpu) = gpu {
        for file in &report.files {
            render::verdict(file, gpu, file.gpus.first(), out)?;
        }
    } else {
        for (index, file) in report.files.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            render::file(file, columns, out)?;
        }
    }
    out.flush()
}

#[cfg(test)]
pub(crate) use schema_tests::fields as json_fields;
#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod tests;
