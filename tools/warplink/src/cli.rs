//! The person's side: `warplink WORD ...`.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use device_link::diagnostics::{WARNINGS, catalogue, json};
use device_link::link_line;
use device_link::options::{DiagnosticsFormat, Invocation};
use device_link::toolchain::process_env;

/// Device LTO for CUDA programs built by clang with relocatable device code.
#[derive(Parser)]
#[command(name = "warplink", version)]
struct Cli {
    /// Messages for people, or one JSON object a line (docs/diagnostics.md); also WARPLINK_DIAGNOSTICS
    #[arg(long = "warplink-diagnostics", value_name = "text|json", global = true, value_parser = ["text", "json"])]
    #[allow(dead_code)] // Looked up before the line is understood.
    diagnostics: Option<String>,
    #[command(subcommand)]
    command: Word,
}

#[derive(Subcommand)]
enum Word {
    /// Print the directory to name with -B: it holds clang-linker-wrapper, ld and llvm-offload-binary
    BinDir,
    /// Show the device code in files: images, kernels, and on which GPUs it runs
    Inspect(crate::inspect::Args),
    /// Show for each kernel how many blocks fit, the registers at which one more would, and what ptxas says of spills there
    Tune(crate::tune::Args),
    /// Say why: why a GPU runs a program or does not, where a symbol comes from, why a member of an archive is in the link
    Explain(crate::explain::Args),
    /// Record in objects and archives whether PTX and the launch guard are wanted
    Annotate(crate::annotate::Args),
    /// Show what the cache of device code holds, clear it, or tell why a link was no hit
    Cache(crate::cache::Args),
    /// Say what a warning or error means, by the name that it comes with; without one, list all names
    ExplainWarning {
        /// The name in brackets behind a warning
        name: Option<String>,
    },
    /// Unpack what --warplink-repro=FILE has made, and run that link again
    Repro(crate::repro::Args),
    /// Show what a link would use here (toolkit, linkers, driver), whether it fits together, and how to mend it
    Doctor(crate::doctor::Args),
    /// List the options that a link line may have
    Options,
    /// Print the completions for a shell, to be sourced by it
    Completions(crate::completions::Args),
    /// Print the manual page, in the format of man
    Man,
}

/// The commands as clap knows them, with the help that a person sees.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    let help = crate::help::text(&command);
    command.override_help(help)
}

/// The words that select the person's side; anything else as first argument is a link line.
const WORDS: &[&str] = &[
    "bin-dir",
    "inspect",
    "tune",
    "explain",
    "annotate",
    "cache",
    "explain-warning",
    "repro",
    "doctor",
    "options",
    "completions",
    "man",
    "help",
    "--help",
    "-h",
    "--version",
];

/// Whether the first argument is one of the words.
pub(crate) fn is_subcommand(word: &OsStr) -> bool {
    WORDS.iter().any(|known| word == *known)
}

/// The word that a first argument is likely to mean, which is none: it is not that of a file, and no option.
pub(crate) fn slip(word: &OsStr) -> Option<&'static str> {
    let text = word.to_str().filter(|text| {
        text.len() > 3
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    })?;
    let found = device_link::link_line::near_word(text, WORDS.iter().copied())?;
    (!is_subcommand(word) && !std::path::Path::new(word).exists()).then_some(found)
}

/// Runs the word that the line begins with.
pub(crate) fn run(args: Vec<OsString>, env: device_link::toolchain::Env) -> i32 {
    let format = json::wanted(&args, env);
    let parsed = command().try_get_matches_from(args).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            if format == DiagnosticsFormat::Json && error.use_stderr() {
                let text = error.render().to_string();
                let text = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ").replace('\n', " ");
                eprintln!("{}", json::as_line(format, "error", Some("usage"), text.trim()));
                return error.exit_code();
            }
            // Printing can only fail when nobody listens.
            let _ = error.print();
            return error.exit_code();
        }
    };
    let result = match cli.command {
        Word::BinDir => crate::bin_dir::bin_dir().map(|dir| {
            println!("{}", dir.display());
            0
        }),
        Word::Inspect(args) => crate::inspect::run(&args, terminal_width(), &mut anstream::stdout()).map(|outcome| match outcome {
            crate::inspect::Outcome::Good => 0,
            crate::inspect::Outcome::DoesNotRun => 1,
        }),
        Word::Tune(args) => {
            crate::tune::run(&args, Some(terminal_width().unwrap_or(100)), env, &mut anstream::stdout()).map(|found| i32::from(!found))
        }
        Word::Explain(args) => crate::explain::run(&args, env, &mut anstream::stdout()).map(|answer| match answer {
            crate::explain::Outcome::Good => 0,
            crate::explain::Outcome::Nothing => 1,
        }),
        Word::Annotate(args) => crate::annotate::run(&args).map(|()| 0).map_err(|error| error.to_string()),
        Word::Cache(args) => crate::cache::run(&args).map(|()| 0),
        Word::ExplainWarning { name } => explain_warning(name.as_deref()).map(|()| 0),
        Word::Repro(args) => crate::repro::run(&args).map_err(|error| error.to_string()),
        Word::Doctor(args) => crate::doctor::run(&args),
        Word::Options => printed(&link_line::help_text(&Invocation::Wrapper, false)),
        Word::Completions(args) => printed(&crate::completions::script(&args)),
        Word::Man => printed(&crate::manual::page(&Cli::command())),
    };
    finish(result, format)
}

/// What a name stands for, or all names.
fn explain_warning(name: Option<&str>) -> Result<(), String> {
    let mut out = anstream::stdout();
    // Whoever reads may stop.
    let _ = match name {
        Some(name) => {
            let unknown = || format!("'{name}' is no name of a warning or error; warplink explain-warning lists them");
            writeln!(out, "{}", catalogue::explanation(name).ok_or_else(unknown)?)
        }
        None => {
            let warnings = WARNINGS.iter().map(|(name, text)| format!("{name:<24}{text}\n"));
            let errors = catalogue::ERRORS.iter().map(|name| format!("{name:<24}(an error)\n"));
            write!(out, "{}", warnings.chain(errors).collect::<String>())
        }
    };
    Ok(())
}

/// Called as LLVM's packager. `ptx` and `guard` are the choices about PTX and the launch guard that the environment makes for every image,
/// `container` the version to write.
pub(crate) fn packager(args: Vec<OsString>, ptx: Option<OsString>, guard: Option<OsString>, container: Option<OsString>) -> i32 {
    let format = json::wanted(&[], &process_env);
    let ptx = match ptx.map(OsString::into_string).transpose() {
        Ok(ptx) => ptx,
        Err(value) => return finish(Err(format!("WARPLINK_PTX: '{}' is no text", value.display())), format),
    };
    let guard = guard.map(|value| value.to_string_lossy().into_owned());
    let container = container.map(|name| name.to_string_lossy().into_owned());
    finish(
        crate::offload_binary::run(args, ptx.as_deref(), guard.as_deref(), container.as_deref())
            .map(|()| 0)
            .map_err(|error| error.to_string()),
        format,
    )
}

/// The columns of the terminal on stdout, if that is one.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Writes a text to standard output, for the commands that do nothing else.
fn printed(text: &str) -> Result<i32, String> {
    std::io::stdout().write_all(text.as_bytes()).map(|()| 0).map_err(|error| format!("standard output: {error}"))
}

/// Prints an error, one message for each of its lines but those that go on with `>>>`, and gives the exit code.
fn finish(result: Result<i32, String>, format: DiagnosticsFormat) -> i32 {
    result.unwrap_or_else(|error| {
        let mut messages: Vec<String> = Vec::new();
        for line in error.lines() {
            match messages.last_mut() {
                Some(message) if line.starts_with(">>>") => {
                    message.push('\n');
                    message.push_str(line);
                }
                _ => messages.push(line.to_owned()),
            }
        }
        for message in messages {
            // Nobody is left to tell when stderr is closed.
            let _ = writeln!(std::io::stderr(), "{}", json::as_line(format, "error", None, &message));
        }
        1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_a_word_that_selects_it() {
        let command = Cli::command();
        for name in command.get_subcommands().map(clap::Command::get_name) {
            assert!(is_subcommand(OsStr::new(name)), "{name} is missing in WORDS: as first argument it would be a link line");
        }
        for word in WORDS.iter().filter(|word| !word.starts_with('-') && **word != "help") {
            assert!(command.find_subcommand(word).is_some(), "{word} is in WORDS and no command");
        }
    }

    #[test]
    fn commands_are_consistent() {
        command().debug_assert();
    }
}
