//! The end of a link, well or not: what it leaves behind beside the output, for people and for later.

use crate::diagnostics::Diagnostics;
use crate::error::Result;
use crate::options::Options;
use crate::record::{self, Recorder, html, remarks, stats, store};
use crate::timing::Timing;
use crate::toolchain::Env;
use crate::{Outcome, verify};

/// What is left to do when the link is over, well or not.
pub(crate) struct Ending<'a> {
    pub(crate) options: &'a Options,
    pub(crate) timing: &'a Timing,
    pub(crate) recorder: &'a Recorder,
    pub(crate) images: &'a [verify::Present],
    pub(crate) env: Env<'a>,
    pub(crate) diagnostics: &'a Diagnostics,
}

impl Ending<'_> {
    pub(crate) fn finish(&self, code: i32) -> Result<Outcome> {
        let Ending { options, timing, recorder, images, env, diagnostics } = *self;
        if let Some(path) = &options.time_trace {
            let rows: Vec<String> = images.iter().map(|image| image.arch.to_string()).collect();
            timing.write(path, options.time_trace_granularity, &rows)?;
        }
        remarks::write(options, recorder)?;
        if recorder.is_on() && !options.dry_run {
            let warnings = diagnostics.warned().into_iter().map(|(name, text)| record::Warning { name, text }).collect();
            let record = recorder.finish(&options.output, if recorder.is_full() { timing.stages() } else { Vec::new() }, warnings);
            if code == 0
                && !diagnostics.failed()
                && options.record
                && let Some(directory) = store::directory(env)
            {
                store::keep(&directory, &options.output, &record);
            }
            if let Some(path) = &options.report {
                html::write(path, &record)?;
            }
            if options.stats {
                stats::lines(&record).iter().for_each(|line| diagnostics.note(line));
            }
        }
        Ok(Outcome::Done(if code == 0 && diagnostics.failed() { 1 } else { code }))
    }
}

/// How much of a link with these options is written down.
pub(crate) fn wanted_record(options: &Options, env: Env) -> record::Wanted {
    if options.report.is_some() {
        record::Wanted::All
    } else if options.stats {
        record::Wanted::Sizes
    } else if options.record && !options.dry_run && store::directory(env).is_some() {
        record::Wanted::Brief
    } else {
        record::Wanted::Nothing
    }
}
