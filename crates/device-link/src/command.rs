//! Child processes as values: printed so that a shell can run them again, run with their output captured, killed when we are. The only
//! place of the pipeline that starts a process.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use llvm_lto::Usage;

use crate::error::{Error, Result};

/// Set when a signal has come: what children do from then on is of no interest, the program is about to end.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Children that run now; a signal handler ends them before the program ends itself.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A program with its arguments, to be printed, compared or run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// The program: a path, or a name that is looked up on PATH.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// What a child left behind.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed, both streams, in the order in which it came.
    pub output: String,
}

impl CommandLine {
    /// A command without arguments yet.
    pub fn new(program: impl Into<PathBuf>) -> CommandLine {
        CommandLine { program: program.into(), args: Vec::new() }
    }

    /// Adds one argument.
    pub fn arg(&mut self, arg: impl Into<OsString>) -> &mut CommandLine {
        self.args.push(arg.into());
        self
    }

    /// The program's name without its directory, as messages call it.
    pub fn name(&self) -> String {
        self.program.file_name().unwrap_or(self.program.as_os_str()).to_string_lossy().into_owned()
    }

    /// Runs it with nothing on stdin and both output streams captured. Messages of children are English whatever the user's locale, since
    /// they are read by us.
    pub fn run_captured(&self) -> Result<Finished> {
        let (mut reader, writer) = std::io::pipe().map_err(|error| self.cannot_run(&error))?;
        let writer_too = writer.try_clone().map_err(|error| self.cannot_run(&error))?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).env("LC_ALL", "C").stdin(Stdio::null()).stdout(writer).stderr(writer_too);
        let child = command.spawn().map_err(|error| self.cannot_run(&error))?;
        // The command holds our ends of the pipe; they must be closed, or the read below would never end.
        drop(command);
        let id = child.id();
        register(id);
        let mut bytes = Vec::new();
        let read = reader.read_to_end(&mut bytes);
        let status = wait(&child);
        unregister(id);
        read.map_err(|error| self.cannot_run(&error))?;
        let status = status.map_err(|error| self.cannot_run(&error))?;
        Ok(Finished { status, output: String::from_utf8_lossy(&bytes).into_owned() })
    }

    /// Runs it with our own standard streams: the host linker talks to the user directly.
    pub fn run_inherited(&self) -> Result<ExitStatus> {
        let child = Command::new(&self.program).args(&self.args).spawn().map_err(|error| self.cannot_run(&error))?;
        let id = child.id();
        register(id);
        let status = wait(&child);
        unregister(id);
        status.map_err(|error| self.cannot_run(&error))
    }

    /// Replaces this process by the command: nothing of ours is left to do, and a process that only waits costs start-up time. Returns
    /// only when that fails.
    pub fn exec(&self) -> Error {
        use std::os::unix::process::CommandExt;
        let error = Command::new(&self.program).args(&self.args).exec();
        self.cannot_run(&error)
    }

    fn cannot_run(&self, error: &std::io::Error) -> Error {
        let text = match error.raw_os_error() {
            Some(7) => "the command line is too long for the system".to_owned(),
            _ => match error.kind() {
                std::io::ErrorKind::NotFound => "no such program".to_owned(),
                std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
                _ => error.to_string(),
            },
        };
        Error::new(format!("{}: cannot be run: {text}", self.program.display()))
    }
}

/// The line as a POSIX shell reads it.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", quote(self.program.as_os_str()))?;
        for arg in &self.args {
            write!(f, " {}", quote(arg))?;
        }
        Ok(())
    }
}

/// One word in a shell's spelling: as it is where that is safe, in single quotes otherwise, bytes that are no text as `$'\xNN'`.
pub fn quote(word: &OsStr) -> String {
    let bytes = word.as_bytes();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(b);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    match word.to_str() {
        Some(text) if !text.contains(['\n', '\r', '\t']) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => {
            let mut quoted = String::from("$'");
            for &b in bytes {
                match b {
                    b'\'' | b'\\' => quoted.extend(['\\', char::from(b)]),
                    0x20..=0x7e => quoted.push(char::from(b)),
                    _ => quoted.push_str(&format!("\\x{b:02x}")),
                }
            }
            quoted.push('\'');
            quoted
        }
    }
}

/// How a child ended, in words: `exited with code 3`, `was killed by signal 9 (SIGKILL; ...)`.
pub fn describe(status: ExitStatus) -> String {
    if let Some(signal) = status.signal() {
        let name = match signal {
            2 => " (SIGINT)",
            6 => " (SIGABRT)",
            9 => " (SIGKILL; the system may have run out of memory)",
            11 => " (SIGSEGV)",
            15 => " (SIGTERM)",
            _ => "",
        };
        return format!("was killed by signal {signal}{name}");
    }
    format!("exited with code {}", status.code().unwrap_or(-1))
}

/// Whether two paths name the same file.
pub fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

thread_local! {
    static CHILDREN: Cell<Usage> = const { Cell::new(Usage { user: Duration::ZERO, system: Duration::ZERO, peak_memory: 0 }) };
}

/// Waits for a child and adds what it used to the account of this thread.
fn wait(child: &Child) -> std::io::Result<ExitStatus> {
    let (status, usage) = llvm_lto::wait_for_child(child.id())?;
    CHILDREN.set(CHILDREN.get().and(usage));
    Ok(status)
}

/// What the children that this thread has waited for have used since the last call.
pub fn take_usage() -> Usage {
    CHILDREN.take()
}

/// Adds to that account what was taken from it.
pub fn give_back_usage(usage: Usage) {
    CHILDREN.set(CHILDREN.get().and(usage));
}

fn register(id: u32) {
    if let Ok(mut running) = RUNNING.lock() {
        running.insert(id);
    }
}

/// Takes a child off the list. One that has ended because we ended it is no failure to be reported: the signal handler is about to end
/// the program, so its thread waits for that.
fn unregister(id: u32) {
    while INTERRUPTED.load(Ordering::SeqCst) {
        std::thread::park();
    }
    if let Ok(mut running) = RUNNING.lock() {
        running.remove(&id);
    }
}

/// Asks every running child to end. For the program's signal handler.
pub fn terminate_children() {
    INTERRUPTED.store(true, Ordering::SeqCst);
    let Ok(running) = RUNNING.lock() else { return };
    for &id in running.iter() {
        if let Some(pid) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) {
            // A child that has just ended needs no signal.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        let check = |word: &str, expected: &str| assert_eq!(quote(OsStr::new(word)), expected);
        check("-O3", "-O3");
        check("/usr/bin/ld", "/usr/bin/ld");
        check("", "''");
        check("a b", "'a b'");
        check("it's", r"'it'\''s'");
        check("$ORIGIN", "'$ORIGIN'");
        check("a\nb", "$'a\\x0ab'");
        assert_eq!(quote(OsStr::from_bytes(b"a\xff'")), r"$'a\xff\''");
    }

    #[test]
    fn quoted_words_come_back_from_a_shell() {
        for word in ["plain", "a b", "it's", "$HOME", "a\"b", "a\\b", "*?[", "~", "#x", "é", "a\nb", "tab\there"] {
            let line = format!("printf %s {}", quote(OsStr::new(word)));
            let output = Command::new("bash").arg("-c").arg(line).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }

    #[test]
    fn both_streams_are_captured() {
        let mut command = CommandLine::new("sh");
        command.arg("-c").arg("echo out; echo err >&2; exit 3");
        let finished = command.run_captured().unwrap();
        assert_eq!(finished.output, "out\nerr\n");
        assert_eq!(describe(finished.status), "exited with code 3");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = CommandLine::new("/no/such/ptxas").run_captured().unwrap_err();
        assert_eq!(error.to_string(), "/no/such/ptxas: cannot be run: no such program");
    }

    #[test]
    fn a_killed_child_is_said_to_be_killed() {
        let mut command = CommandLine::new("sh");
        command.arg("-c").arg("kill -9 $$");
        let finished = command.run_captured().unwrap();
        assert!(describe(finished.status).starts_with("was killed by signal 9 (SIGKILL; "));
    }
}
