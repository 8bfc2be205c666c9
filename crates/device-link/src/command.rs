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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use llvm_lto::Usage;

use crate::error::{Error, Result, io_text, no_thread};
use crate::toolchain::process_env;

/// Asks glibc to have the heap in huge pages, where the system gives them to those who ask (`madvise`, Linux's default). The tools of a link
/// allocate their memory once, and up to a third of their time goes into the page faults that it comes with: GNU ld then takes 17 % less, gold
/// 12 %, ptxas 8 % for a small program and 3 % for a large one, for at most 3 MB of memory each.
const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

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
    /// The variables that it gets; all of ours where that is `None`, as is right for what the user runs by us.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// It has no use for a heap in huge pages.
    pub small_pages: bool,
}

/// What a child left behind.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed, both streams, in the order in which it came. Of very much the middle is left out, which is said there.
    pub output: String,
}

/// Of what a child prints so many bytes are kept from the start and from the end, each. ptxas has a few hundred for each kernel.
const KEPT: usize = 16 << 20;

impl CommandLine {
    /// A command without arguments yet.
    pub fn new(program: impl Into<PathBuf>) -> CommandLine {
        CommandLine { program: program.into(), args: Vec::new(), environment: None, small_pages: false }
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

    /// As [`CommandLine::run_captured_within`], however long it takes.
    pub fn run_captured(&self) -> Result<Finished> {
        self.run_captured_within(None)
    }

    /// Runs it with nothing on stdin and both output streams captured. Messages of children are English whatever the user's locale, since
    /// they are read by us.
    ///
    /// # Errors
    /// It cannot be run, or has not ended within `limit` and was killed, with what it had started.
    pub fn run_captured_within(&self, limit: Option<Duration>) -> Result<Finished> {
        let (mut reader, writer) = std::io::pipe().map_err(|error| self.cannot_run(&error))?;
        let writer_too = writer.try_clone().map_err(|error| self.cannot_run(&error))?;
        let mut command = self.child();
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(writer).stderr(writer_too);
        own_group(&mut command, limit);
        let child = start(&mut command).map_err(|error| self.cannot_run(&error))?;
        // The command holds our ends of the pipe; they must be closed, or the read below would never end.
        drop(command);
        let id = child.id();
        let watch = Watch::start(&child, limit);
        let mut printed = Printed::default();
        let read = printed.read(&mut reader, KEPT);
        let status = wait(&child);
        unregister(id);
        self.in_time(watch?)?;
        read.map_err(|error| self.cannot_run(&error))?;
        let status = status.map_err(|error| self.cannot_run(&error))?;
        Ok(Finished { status, output: printed.text() })
    }

    /// As [`CommandLine::run_inherited_within`], however long it takes.
    pub fn run_inherited(&self) -> Result<ExitStatus> {
        self.run_inherited_within(None)
    }

    /// Runs it with our own standard streams: the host linker talks to the user directly.
    ///
    /// # Errors
    /// It cannot be run, or has not ended within `limit` and was killed, with what it had started.
    pub fn run_inherited_within(&self, limit: Option<Duration>) -> Result<ExitStatus> {
        let mut command = self.child();
        own_group(&mut command, limit);
        let child = start(&mut command).map_err(|error| self.cannot_run(&error))?;
        let id = child.id();
        let watch = Watch::start(&child, limit);
        let status = wait(&child);
        unregister(id);
        self.in_time(watch?)?;
        status.map_err(|error| self.cannot_run(&error))
    }

    /// The command as a child of ours. What the user says to glibc stands.
    fn child(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        let (name, value) = HUGE_PAGES;
        let given = match &self.environment {
            Some(environment) => {
                command.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
                environment.iter().any(|(known, _)| known == name)
            }
            None => process_env(name).is_some(),
        };
        if !self.small_pages && !given {
            command.env(name, value);
        }
        command
    }

    /// Replaces this process by the command: nothing of ours is left to do, and a process that only waits costs start-up time. Returns
    /// only when that fails.
    pub fn exec(&self) -> Error {
        use std::os::unix::process::CommandExt;
        let error = self.child().exec();
        self.cannot_run(&error)
    }

    fn in_time(&self, watch: Option<Watch>) -> Result<()> {
        match watch.and_then(Watch::expired) {
            Some(limit) => Err(Error::new(format!(
                "{}: has not ended within {} s (--warplink-tool-timeout) and was killed",
                self.program.display(),
                limit.as_secs()
            ))),
            None => Ok(()),
        }
    }

    fn cannot_run(&self, error: &std::io::Error) -> Error {
        let text = match error.raw_os_error() {
            Some(7) => "the command line is too long for the system".to_owned(),
            _ => match error.kind() {
                std::io::ErrorKind::NotFound => "no such program".to_owned(),
                std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
                // fork's word for two things, of which this is the one that happens.
                std::io::ErrorKind::WouldBlock => "the system starts no more processes for this user (ulimit -u)".to_owned(),
                _ => io_text(error),
            },
        };
        Error::new(format!("{}: cannot be run: {text}", self.program.display()))
    }
}

/// What a child prints, with a bound.
#[derive(Default)]
struct Printed {
    head: Vec<u8>,
    tail: Vec<u8>,
    left_out: usize,
}

impl Printed {
    /// Reads to the end. The child is never made to wait: what is not kept is read all the same.
    fn read(&mut self, reader: &mut impl Read, kept: usize) -> std::io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let new = buffer.get(..count).unwrap_or_default();
            let (first, rest) = new.split_at(new.len().min(kept.saturating_sub(self.head.len())));
            self.head.extend_from_slice(first);
            self.tail.extend_from_slice(rest);
            if self.tail.len() > 2 * kept {
                let surplus = self.tail.len() - kept;
                self.tail.drain(..surplus);
                self.left_out += surplus;
            }
        }
    }

    fn text(&self) -> String {
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&self.tail));
        match self.left_out {
            0 => String::from_utf8_lossy(&[self.head.as_slice(), &self.tail].concat()).into_owned(),
            count => format!("{head}\n({count} bytes are left out here)\n{tail}"),
        }
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

/// Kills a child that takes too long. A driver or a script starts others, which would go on: the child leads a group of its own, which goes
/// as a whole.
struct Watch {
    limit: Duration,
    done: mpsc::Sender<()>,
    thread: JoinHandle<bool>,
}

impl Watch {
    /// Where no thread can be started for it the child is killed at once: one that may run for ever was not asked for.
    fn start(child: &Child, limit: Option<Duration>) -> Result<Option<Watch>> {
        let Some(limit) = limit else { return Ok(None) };
        let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) else { return Ok(None) };
        let (done, ended) = mpsc::channel();
        let started = std::thread::Builder::new().spawn(move || {
            let late = ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                // One that has ended this very moment needs no signal.
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            late
        });
        match started {
            Ok(thread) => Ok(Some(Watch { limit, done, thread })),
            Err(error) => {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                Err(no_thread(&error))
            }
        }
    }

    /// The limit, if the child was killed by it. To be asked once the child has been waited for.
    fn expired(self) -> Option<Duration> {
        drop(self.done);
        self.thread.join().is_ok_and(|late| late).then_some(self.limit)
    }
}

fn own_group(command: &mut Command, limit: Option<Duration>) {
    use std::os::unix::process::CommandExt;
    if limit.is_some() {
        command.process_group(0);
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

/// Starts a child and puts it on the list at once, so that no signal can come in between. Once one has come, nothing is started.
fn start(command: &mut Command) -> std::io::Result<Child> {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if INTERRUPTED.load(Ordering::SeqCst) {
        drop(running);
        wait_for_the_end();
    }
    let child = command.spawn()?;
    running.insert(child.id());
    Ok(child)
}

/// Takes a child off the list. One that has ended because we ended it is no failure to be reported: the signal handler is about to end
/// the program, so its thread waits for that.
fn unregister(id: u32) {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    if INTERRUPTED.load(Ordering::SeqCst) {
        wait_for_the_end();
    }
}

fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

/// How long children that were asked to end may take for it.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks every running child to end, waits until they have, so that they write no file any more, and kills those that do not. For the
/// program's signal handler.
pub fn terminate_children() {
    INTERRUPTED.store(true, Ordering::SeqCst);
    signal_children(rustix::process::Signal::TERM);
    if !are_gone_within(PATIENCE) {
        signal_children(rustix::process::Signal::KILL);
        are_gone_within(PATIENCE);
    }
}

fn signal_children(signal: rustix::process::Signal) {
    for &id in RUNNING.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        if let Some(pid) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) {
            // A child that has just ended needs no signal, and one that leads no group has none.
            let _ = rustix::process::kill_process(pid, signal);
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }
}

/// Whether all children have ended; those who wait for them take them off the list.
fn are_gone_within(patience: Duration) -> bool {
    let started = std::time::Instant::now();
    loop {
        if RUNNING.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return true;
        }
        if started.elapsed() > patience {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
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
    fn of_very_much_output_the_middle_is_left_out() {
        let read = |bytes: &[u8], kept: usize| {
            let mut printed = Printed::default();
            printed.read(&mut &bytes[..], kept).unwrap();
            printed
        };
        assert_eq!(read("über alles".as_bytes(), 1).text(), "\u{fffd}\n(9 bytes are left out here)\ns");
        assert_eq!(read("über alles".as_bytes(), 4).text(), "über alles");
        let much: Vec<u8> = (0..1_000_000_u32).flat_map(|n| n.to_le_bytes()).collect();
        let printed = read(&much, 100_000);
        assert_eq!((printed.head.as_slice(), much.ends_with(&printed.tail)), (&much[..100_000], true));
        assert_eq!(printed.head.len() + printed.left_out + printed.tail.len(), much.len());
        assert!(printed.tail.len() <= 200_000);
    }

    #[test]
    fn a_tool_gets_the_variables_that_it_was_given() {
        let mut command = CommandLine::new("/usr/bin/env");
        command.environment = Some(vec![("A".into(), "1".into()), ("LC_ALL".into(), "de_DE.UTF-8".into())]);
        let mut lines: Vec<String> = command.run_captured().unwrap().output.lines().map(str::to_owned).collect();
        lines.sort();
        let (name, value) = HUGE_PAGES;
        assert_eq!(lines, ["A=1".to_owned(), format!("{name}={value}"), "LC_ALL=C".to_owned()]);
    }

    #[test]
    fn children_get_huge_pages_unless_the_user_says_otherwise() {
        let mut command = CommandLine::new("sh");
        command.arg("-c").arg("printf %s \"$GLIBC_TUNABLES\"");
        let wanted = process_env("GLIBC_TUNABLES").unwrap_or("glibc.malloc.hugetlb=1".into());
        assert_eq!(command.run_captured().unwrap().output, wanted.to_str().unwrap());
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = CommandLine::new("/no/such/ptxas").run_captured().unwrap_err();
        assert_eq!(error.to_string(), "/no/such/ptxas: cannot be run: no such program");
    }

    #[test]
    fn a_child_that_takes_too_long_is_killed_with_its_own_children() {
        let mut command = CommandLine::new("sh");
        command.arg("-c").arg("echo before; sleep 100 & sleep 100; echo after");
        let started = std::time::Instant::now();
        let error = command.run_captured_within(Some(Duration::from_secs(1))).unwrap_err();
        assert_eq!(error.to_string(), "sh: has not ended within 1 s (--warplink-tool-timeout) and was killed");
        assert!(command.run_inherited_within(Some(Duration::from_secs(1))).is_err());
        assert!(started.elapsed() < Duration::from_secs(50));
        let mut quick = CommandLine::new("sh");
        quick.arg("-c").arg("exit 3");
        assert_eq!(quick.run_captured_within(Some(Duration::from_secs(50))).unwrap().status.code(), Some(3));
    }

    #[test]
    fn a_killed_child_is_said_to_be_killed() {
        let mut command = CommandLine::new("sh");
        command.arg("-c").arg("kill -9 $$");
        let finished = command.run_captured().unwrap();
        assert!(describe(finished.status).starts_with("was killed by signal 9 (SIGKILL; "));
    }
}
