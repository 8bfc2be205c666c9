//! `warplink inspect`: what device code is in a file, and on which GPUs it runs.

mod gather;
mod gpus;
mod render;
mod report;
mod verdict;

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
    /// Write JSON; fields of it may be added, but keep their names
    #[arg(long)]
    json: bool,
    /// Say which image runs on this GPU, such as sm_90, 9.0 or H200; exit with 1 if there is none
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,
    /// Show symbols as the object files have them
    #[arg(long)]
    no_demangle: bool,
}

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
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, String> {
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
    match write(&report, args.json, gpu, out) {
        // Whoever reads may stop: `warplink inspect ... | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => errors.push(format!("cannot write the report: {error}")),
        Ok(()) => {}
    }
    if errors.is_empty() { Ok(outcome) } else { Err(errors.join("\n")) }
}

fn write(report: &Report, json: bool, gpu: Option<Gpu>, out: &mut dyn Write) -> io::Result<()> {
    if json {
        serde_json::to_writer_pretty(&mut *out, report)?;
        writeln!(out)?;
    } else if let Some(gpu) = gpu {
        for file in &report.files {
            render::verdict(file, gpu, file.gpus.first(), out)?;
        }
    } else {
        for (index, file) in report.files.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            render::file(file, out)?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests;
