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
mod cli;
mod doctor;
mod early;
mod inspect;
mod offload_binary;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use device_link::diagnostics::Diagnostics;
use device_link::link_line::{self, Special};
use device_link::{Outcome, command, host_link, link, temps, toolchain};
use early::scanned;

fn main() {
    std::process::exit(run(std::env::args_os().collect()));
}

fn run(args: Vec<OsString>) -> i32 {
    let env = |name: &str| std::env::var_os(name);
    match tool_name(&args).as_str() {
        "llvm-offload-binary" | "clang-offload-packager" => return cli::packager(args, env("WARPLINK_PTX"), env("WARPLINK_CONTAINER")),
        _ if !is_link_line(&args) => return cli::run(args),
        _ => {}
    }
    let line = match link_line::parse(args, &env) {
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
            let linker = match toolchain::host_linker(&line.options, own.as_deref(), &env) {
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
    end_cleanly_on_signals();
    let diagnostics = Diagnostics::new(&line.options);
    let result = scanned(&line, own.as_deref(), &env).and_then(|scanned| {
        device_link::on_fatal_error(on_llvm_fatal_error);
        device_link::keep_freed_memory();
        link(&line, scanned.opened, &scanned.scan, &env, &diagnostics)
    });
    match result {
        Ok(Outcome::Done(code)) => code,
        Ok(Outcome::HostOnly(command, temps)) => host_only(&command, temps),
        Err(error) => {
            diagnostics.error(&error);
            error.exit_code().unwrap_or(1)
        }
    }
}

/// The host link alone. Where no file of ours is needed by it, it takes over the process; otherwise somebody must clean up afterwards.
fn host_only(command: &command::CommandLine, temps: temps::Temps) -> i32 {
    let uses_files = command.args.iter().any(|arg| arg.as_encoded_bytes().starts_with(b"@"));
    if !uses_files {
        drop(temps);
        return fail(&command.exec());
    }
    match command.run_inherited() {
        Ok(status) => status.code().unwrap_or_else(|| {
            eprintln!("warplink: error: {}: {}", command.name(), command::describe(status));
            1
        }),
        Err(error) => fail(&error),
    }
}

fn fail(error: &device_link::error::Error) -> i32 {
    for error in error.each() {
        eprintln!("warplink: error: {}", error.text());
    }
    error.exit_code().unwrap_or(1)
}

/// LLVM has met code that it cannot compile; its state is unknown, so nothing more can be done in this process than to say what it was
/// working on.
fn on_llvm_fatal_error(job: Option<&str>, reason: &str) -> ! {
    let job = job.map(|job| format!("{job}: ")).unwrap_or_default();
    eprintln!("warplink: error: {job}LLVM cannot compile this device code: {reason}");
    command::terminate_children();
    temps::emergency_cleanup();
    std::process::exit(1)
}

/// On a signal that ends the program: end the children, remove what is half done, and end as the signal would have.
fn end_cleanly_on_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            command::terminate_children();
            temps::emergency_cleanup();
            // Comes back only if the signal could not be raised again.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            std::process::exit(128 + signal);
        }
    });
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
        "warplink" => args.get(1).is_some_and(|word| !cli::is_subcommand(word)),
        _ => true,
    }
}
