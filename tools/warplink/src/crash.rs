//! When warplink or LLVM fails by its own mistake: the message, and a reproducer of the link.
//!
//! The reproducer is made by a fresh process from the same line: nothing in this one can be relied on any more. It goes into the temporary
//! directory, as clang's crash files do, is limited in size, and stays on this machine: who has the failure can then report it without
//! having to bring it about again. `--warplink-repro-on-crash=no` turns that off.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use device_link::command::CommandLine;
use device_link::diagnostics::json;
use device_link::error::{Context as _, Error, Result};
use device_link::link_line::{self, LinkLine};
use device_link::options::Invocation;
use device_link::repro;
use device_link::toolchain::{process_env, process_variables};

use crate::early::{Scanned, scanned};

/// The link at hand, if reproducers of it are wanted.
static LINE: OnceLock<Vec<OsString>> = OnceLock::new();

/// What a panic had to say, for the one who catches it.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// The word by which the fresh process is called. It is nobody's to type, so it stands in no list.
pub(crate) const WORD: &str = "make-crash-repro";

const AGAIN: &str = "add -Wl,--warplink-repro=FILE.tar.zst to the link line to have a file for a bug report";

/// Notes the line, for a failure to come, and prepares for the worst kind: a signal.
pub(crate) fn remember(args: &[OsString], line: &LinkLine) {
    let wanted = line.options.repro_on_crash && line.options.repro.is_none();
    let mut command: Vec<OsString> = Vec::new();
    let mut path = PathBuf::new();
    if wanted {
        LINE.get_or_init(|| args.to_vec());
        // Nobody can make up a name later on, so it is made up now, and the file only then.
        path = std::env::temp_dir().join(format!("warplink-crash-{}.tar.zst", std::process::id()));
        if let Ok(own) = std::env::current_exe() {
            command.extend([own.into_os_string(), OsString::from(WORD), path.clone().into_os_string()]);
            command.extend(args.iter().cloned());
        }
    }
    let text = "{job}internal error: warplink crashed, most likely in LLVM";
    let message = |note: &str| {
        let text = format!("{text}\n>>> {note}");
        format!("{}\n", json::as_line(line.options.diagnostics, "error", Some("internal-error"), &text))
    };
    let cut_off =
        json::as_line(line.options.diagnostics, "error", Some("input-changed"), "{job}the file was cut off while it was being read");
    device_link::on_crash(&command, &message(&found_in(&path)), &message(AGAIN), &format!("{cut_off}\n"));
}

/// Where everything is.
fn found_in(path: &std::path::Path) -> String {
    let path = path.display();
    format!(
        "everything that is needed to see this again is in {path}; please attach it to a bug report, or look at it with: warplink repro {path}"
    )
}

/// Runs `work`; a panic in it, or in a thread that it waits for, becomes a text.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> std::result::Result<T, String> {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let place = info.location().map(|place| format!(" ({}:{})", place.file(), place.line())).unwrap_or_default();
        let payload = info.payload();
        let payload = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let payload = payload.unwrap_or("panic");
        // The first one counts: others follow from it.
        if let Ok(mut text) = PANIC.lock() {
            text.get_or_insert_with(|| format!("{payload}{place}"));
        }
        if process_env("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            before(info);
        }
    }));
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    // Back to Rust's own hook.
    let _ = std::panic::take_hook();
    result.map_err(|_| PANIC.lock().ok().and_then(|mut text| text.take()).unwrap_or_else(|| "panic".to_owned()))
}

/// The lines to put below the message of such a failure: where the reproducer is, or how to make one.
pub(crate) fn notes() -> String {
    let Some(args) = LINE.get() else { return String::new() };
    match make(args) {
        Ok(path) => format!("\n>>> {}", found_in(&path)),
        Err(error) => format!("\n>>> {AGAIN} (none was made: {})", error.text().replace('\n', " ")),
    }
}

fn make(args: &[OsString]) -> Result<PathBuf> {
    let own = std::env::current_exe().context(|| "my own file")?;
    let file = tempfile::Builder::new()
        .prefix("warplink-crash-")
        .suffix(".tar.zst")
        .tempfile()
        .context(|| std::env::temp_dir().display().to_string())?;
    let mut command = CommandLine::new(own);
    command.arg(WORD).arg(file.path());
    command.args.extend(args.iter().cloned());
    let finished = command.run_captured()?;
    if !finished.status.success() {
        return Err(Error::new(finished.output.trim().trim_start_matches("warplink: error: ").to_owned()));
    }
    let (_, path) = file.keep().map_err(|error| error.error).context(|| "the reproducer")?;
    Ok(path)
}

/// In the fresh process: `warplink make-crash-repro FILE PROGRAM ARGS...`.
pub(crate) fn run_word(args: &[OsString]) -> Result<()> {
    let (file, line_args) = args.get(2).zip(args.get(3..)).context(|| "nothing to reproduce")?;
    let line = link_line::parse(line_args.to_vec(), &process_env)?;
    let own = std::env::current_exe().ok();
    let scanned = scanned(&line, own.as_deref(), &process_env)?;
    write(std::path::Path::new(file), line_args, &line, &scanned, &process_env, Some(repro::CRASH_LIMIT))
}

/// Writes the reproducer of a link.
pub(crate) fn write(
    path: &std::path::Path,
    args: &[OsString],
    line: &LinkLine,
    scanned: &Scanned,
    env: device_link::toolchain::Env,
    limit: Option<u64>,
) -> Result<()> {
    let variables = process_variables();
    let mut args = args.to_vec();
    // A bare `warplink` has words of its own.
    if let (Invocation::Linker(name), Some(first)) = (&line.options.invoked_as, args.first_mut())
        && name == "warplink"
    {
        *first = OsString::from("ld.warplink");
    }
    let link = repro::Link { args: &args, line, opened: scanned.opened, scan: &scanned.scan, env, variables };
    repro::write(path, &link, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_texts() {
        assert_eq!(caught(|| 7), Ok(7));
        let text = caught(|| -> i32 { panic!("slot {} is empty", 3) }).expect_err("panic");
        assert!(text.starts_with("slot 3 is empty (") && text.contains("crash.rs:"), "{text}");
    }
}
