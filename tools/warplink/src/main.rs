//! The program: decides by its own name and the first word what it is asked for, and is the only place that ends the process.
//!
//! | called as | is |
//! |---|---|
//! | `clang-linker-wrapper` | LLVM's wrapper, option for option |
//! | `ld`, `ld.lld`, `ld.warplink` ... | a linker: the line is the host linker's |
//! | `llvm-offload-binary`, `clang-offload-packager` | LLVM's packager, which also records the choice about PTX |
//! | `warplink WORD` with a word of [`cli`] | the person's side |
//! | `warplink` with anything else | a linker |
#![deny(unsafe_code)]

mod annotate;
mod bin_dir;
mod cache;
mod cli;
mod completions;
mod crash;
mod doctor;
mod early;
mod explain;
mod help;
mod inspect;
mod manual;
mod offload_binary;
mod repro;
mod tune;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::OnceLock;

use device_link::diagnostics::{Diagnostics, json};
use device_link::error::{Result, no_thread};
use device_link::link_line::{self, Special};
use device_link::options::DiagnosticsFormat;
use device_link::{Outcome, command, host_link, jobs, link, progress, temps, toolchain};

use early::scanned;

/// For whom messages are written, for those places that know nothing of the line.
static FORMAT: OnceLock<DiagnosticsFormat> = OnceLock::new();

fn main() {
    let args: Vec<OsString> = std::env::args_os().collect();
    let code = crash::caught(|| run(args)).unwrap_or_else(|text| {
        let text = format!("internal error: {text}{}", crash::notes());
        eprintln!("{}", json::as_line(format(), "error", Some("internal-error"), &text));
        temps::emergency_cleanup();
        1
    });
    std::process::exit(code);
}

fn run(args: Vec<OsString>) -> i32 {
    let env = |name: &str| std::env::var_os(name);
    match tool_name(&args).as_str() {
        "llvm-offload-binary" | "clang-offload-packager" => {
            return cli::packager(args, env("WARPLINK_PTX"), env("WARPLINK_LAUNCH_GUARD"), env("WARPLINK_CONTAINER"));
        }
        "warplink" if args.get(1).is_some_and(|word| word == crash::WORD) => {
            return crash::run_word(&args).map_or_else(|error| fail(&error), |()| 0);
        }
        _ if !is_link_line(&args) => {
            FORMAT.get_or_init(|| json::wanted(&args, &env));
            if let Some((word, meant)) = args.get(1).and_then(|word| Some((word, cli::slip(word)?))) {
                let text = format!("'{}' is neither a command nor a file; did you mean {meant}?", word.display());
                return fail(&device_link::error::Error::new(text));
            }
            return cli::run(args, &env);
        }
        _ => {}
    }
    run_line(args, &env, HostOnly::TakesOver)
}

/// What becomes of this process where only the host link is left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostOnly {
    /// It becomes the host linker.
    TakesOver,
    /// It has something to do afterwards.
    Waits,
}

/// A link line in an environment.
pub(crate) fn run_line(args: Vec<OsString>, env: toolchain::Env, host_only_link: HostOnly) -> i32 {
    FORMAT.get_or_init(|| json::wanted(&args, env));
    let line = match link_line::parse(args.clone(), env) {
        Ok(line) => line,
        Err(error) => return fail(&error),
    };
    let own = std::env::current_exe().ok();
    match line.special {
        Some(Special::WrapperHelp { hidden }) => {
            print!("{}", link_line::help_text(&line.options.invoked_as, hidden));
            return 0;
        }
        Some(Special::WrapperVersion) => {
            println!("{}", link_line::version_line());
            return 0;
        }
        Some(special @ (Special::LinkerHelp | Special::LinkerVersion)) => {
            match special {
                Special::LinkerHelp => print!("{}", link_line::help_text(&line.options.invoked_as, false)),
                _ => println!("{}", link_line::version_line()),
            }
            let linker = match toolchain::host_linker(&line.options, own.as_deref(), env) {
                Ok(linker) => linker,
                Err(error) => return fail(&error),
            };
            let temps = temps::Temps::new(None, false);
            return match host_link::plain_command(&linker, &line.host, &temps).map(|command| command.exec()) {
                Ok(error) | Err(error) => fail(&error),
            };
        }
        None => {}
    }
    if let Err(error) = end_cleanly_on_signals() {
        return fail(&error);
    }
    let diagnostics = Diagnostics::new(&line.options);
    crash::remember(&args, &line);
    let result = scanned(&line, own.as_deref(), env).and_then(|scanned| {
        if let Some(path) = &line.options.repro {
            crash::write(path, &args, &line, &scanned, env, None)?;
        }
        device_link::on_fatal_error(on_llvm_fatal_error);
        device_link::keep_freed_memory();
        link(&line, scanned.opened, &scanned.scan, env, &diagnostics)
    });
    match result {
        Ok(Outcome::Done(code)) => code,
        Ok(Outcome::HostOnly(command, temps)) => {
            // The terminal is the linker's from here on.
            drop(diagnostics);
            host_only(&command, temps, host_only_link)
        }
        Err(error) => {
            diagnostics.error(&error);
            error.exit_code().unwrap_or(1)
        }
    }
}

/// The host link alone. Where no file of ours is needed by it, it takes over the process; otherwise somebody must clean up afterwards.
fn host_only(command: &command::CommandLine, temps: temps::Temps, then: HostOnly) -> i32 {
    let uses_files = command.args.iter().any(|arg| arg.as_encoded_bytes().starts_with(b"@"));
    if !uses_files && then == HostOnly::TakesOver {
        drop(temps);
        return fail(&command.exec());
    }
    match command.run_inherited() {
        Ok(status) => status
            .code()
            .unwrap_or_else(|| fail(&device_link::error::Error::new(format!("{}: {}", command.name(), command::describe(status))))),
        Err(error) => fail(&error),
    }
}

fn fail(error: &device_link::error::Error) -> i32 {
    json::print_errors(error, format());
    error.exit_code().unwrap_or(1)
}

fn format() -> DiagnosticsFormat {
    FORMAT.get().copied().unwrap_or_default()
}

/// LLVM has met code that it cannot compile; its state is unknown, so nothing more can be done in this process than to say what it was
/// working on.
fn on_llvm_fatal_error(job: Option<&str>, reason: &str) -> ! {
    let job = job.map(|job| format!("{job}: ")).unwrap_or_default();
    progress::erase();
    let text = format!("{job}LLVM cannot compile this device code: {reason}{}", crash::notes());
    eprintln!("{}", json::as_line(format(), "error", Some("llvm-fatal"), &text));
    command::terminate_children();
    temps::emergency_cleanup();
    jobs::give_back_tokens();
    std::process::exit(1)
}

/// On a signal that ends the program: end the children, remove what is half done, and end as the signal would have.
///
/// # Errors
/// The system gives no thread for that, and so none for the work either.
fn end_cleanly_on_signals() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
    // A file larger than the user's limit (`ulimit -f`) is an error of that file, with a name, and no end without a word. Not inherited.
    let _ = signal_hook::flag::register(SIGXFSZ, std::sync::Arc::default());
    // `nohup` and shells without job control let jobs go on after some of them: what was ignored stays so.
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !device_link::is_ignored(*signal));
    let Ok(mut signals) = signal_hook::iterator::Signals::new(wanted) else { return Ok(()) };
    let started = std::thread::Builder::new().spawn(move || {
        if let Some(signal) = signals.forever().next() {
            progress::erase();
            command::terminate_children();
            temps::emergency_cleanup();
            jobs::give_back_tokens();
            // Comes back only if the signal could not be raised again.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            std::process::exit(128 + signal);
        }
    });
    started.map(drop).map_err(|error| no_thread(&error))
}

/// The name that we were called by, without directory and without the `.exe` of Windows.
fn tool_name(args: &[OsString]) -> String {
    let name = args.first().map(Path::new).and_then(Path::file_name).unwrap_or(OsStr::new("")).to_string_lossy().into_owned();
    name.strip_suffix(".exe").unwrap_or(&name).to_owned()
}

/// Whether the line is a link, by whatever name.
fn is_link_line(args: &[OsString]) -> bool {
    match tool_name(args).as_str() {
        "llvm-offload-binary" | "clang-offload-packager" => false,
        "warplink" => args.get(1).is_some_and(|word| !cli::is_subcommand(word) && cli::slip(word).is_none() && word != crash::WORD),
        _ => true,
    }
}
