//! `warplink explain`: why a GPU runs a program or does not, where a device symbol comes from and where it went, why a member of an archive
//! is in the link. Answers come from the record that the link left, from the file alone where that suffices, and say which.

mod gpu;
mod member;
mod symbol;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::PathBuf;

use device_link::error::io_text;
use device_link::record::{Record, store};
use device_link::toolchain::Env;
use serde::Serialize;

use crate::inspect::gather;
use crate::inspect::report::File;

/// The options of `warplink explain`.
#[derive(Debug, Clone, clap::Args)]
#[command(group(clap::ArgGroup::new("question").required(true)))]
pub(crate) struct Args {
    /// Which image runs on this GPU, such as sm_86, 8.6 or A10, or why none does and what to do; exit with 1 if none does
    #[arg(long, value_name = "GPU", group = "question")]
    gpu: Option<String>,
    /// Where a device symbol comes from, who refers to it, and what became of it: mangled, demangled, or a part of its name
    #[arg(long, value_name = "NAME", group = "question")]
    symbol: Option<String>,
    /// Why an object or a member of an archive, such as 'libk.a(reduce.o)', is or is not in the link
    #[arg(long, value_name = "ARCHIVE(MEMBER)", group = "question")]
    member: Option<String>,
    /// Take the link's record from this file, a report written by --warplink-report=FILE.json
    #[arg(long, value_name = "FILE.json")]
    record: Option<PathBuf>,
    /// Write JSON; fields of it may be added, but keep their names
    #[arg(long)]
    json: bool,
    /// The program, shared object or fat binary
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// How the question was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit with 0.
    Good,
    /// It does not run there, or nothing of that name is known: exit with 1.
    Nothing,
}

/// What an answer is drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Source {
    /// The record of the link that made the file as it is.
    Record,
    /// The record of a link that made a file of this name, which has been changed since.
    OutdatedRecord,
    /// The file alone.
    File,
}

/// What is known of the file that a question is about.
pub(crate) struct Known {
    pub(crate) file: File,
    pub(crate) record: Option<Record>,
    pub(crate) source: Source,
}

impl Known {
    /// What the answer was drawn from, as its last line.
    fn source_line(&self) -> String {
        let path = &self.file.path;
        match self.source {
            Source::Record => format!("from {path} and the record of its link"),
            Source::OutdatedRecord => {
                format!("from {path} and the record of a link of that name; the file has been changed since, by strip for instance")
            }
            Source::File => format!("from {path} alone: there is no record of its link here"),
        }
    }
}

/// Answers the question of `args` on `out`.
///
/// # Errors
/// The file or the record that was named cannot be read, or there is no record and the question needs one; a failure to write.
pub(crate) fn run(args: &Args, env: Env, out: &mut dyn Write) -> Result<Outcome, String> {
    let file = gather::gather(&args.file, true).map_err(|error| format!("{}: {error}", args.file.display()))?;
    let kept = match &args.record {
        Some(path) => Some((read(path)?, true)),
        None => store::directory(env).and_then(|directory| store::find(&directory, &args.file)),
    };
    let source = match &kept {
        Some((_, true)) => Source::Record,
        Some((_, false)) => Source::OutdatedRecord,
        None => Source::File,
    };
    let known = Known { file, record: kept.map(|(record, _)| record), source };
    let mut text = Vec::new();
    let (outcome, json) = match (&args.gpu, &args.symbol, &args.member) {
        (Some(gpu), _, _) => gpu::explain(&known, gpu, &mut text)?,
        (_, Some(symbol), _) => symbol::explain(&known, symbol, &mut text)?,
        (_, _, Some(member)) => member::explain(&known, member, &mut text)?,
        _ => return Err("one of --gpu, --symbol and --member must be given".to_owned()),
    };
    let written = if args.json {
        let answer = Answer { schema: 1, file: &known.file.path, source: known.source, answer: json };
        serde_json::to_writer_pretty(&mut *out, &answer).map_err(std::io::Error::from).and_then(|()| writeln!(out))
    } else {
        writeln!(text, "({})", known.source_line()).and_then(|()| out.write_all(&text))
    };
    match written.and_then(|()| out.flush()) {
        // Whoever reads may stop.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("cannot write the answer: {error}")),
        _ => Ok(outcome),
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    schema: u32,
    file: &'a str,
    source: Source,
    #[serde(flatten)]
    answer: serde_json::Value,
}

fn read(path: &std::path::Path) -> Result<Record, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {}", path.display(), io_text(&error)))?;
    let record: Record = serde_json::from_slice(&bytes).map_err(|error| format!("{}: is no record of a link: {error}", path.display()))?;
    if record.schema != device_link::record::SCHEMA {
        return Err(format!(
            "{}: is a record of schema {}; this warplink reads {}",
            path.display(),
            record.schema,
            device_link::record::SCHEMA
        ));
    }
    Ok(record)
}

/// Text goes to memory first: writing it cannot fail.
fn line(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}");
}
