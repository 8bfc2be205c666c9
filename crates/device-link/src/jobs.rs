//! How many device jobs run at once: the machine's cores, a number, or as many as make's jobserver grants; and of these as many as the
//! memory that a link may take has room for. What is made of the program does not depend on any of it.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::error::{Error, Result, no_thread};
use crate::memory::Memory;
use crate::options::{Jobs, Options};
use crate::toolchain::Env;

/// Stack of a worker: LLVM's passes recurse over the program, deeper than a thread's usual 2 MB in generated code.
const STACK: usize = 256 << 20;

/// How long a worker waits for a token before it looks whether there is still work to do, in milliseconds.
const WAIT: i64 = 20;

/// A connection to the jobserver of the make or ninja that runs us.
struct Jobserver {
    tokens: File,
    back: File,
}

/// What we hold of the jobserver's: tokens that have to go back however the process ends, and the way back.
static HELD: Mutex<Option<(File, Vec<u8>)>> = Mutex::new(None);

impl Jobserver {
    /// From `MAKEFLAGS`; none where there is no jobserver, or make did not pass it on to this recipe.
    fn connect(env: Env) -> Option<Jobserver> {
        let flags = env("MAKEFLAGS")?.into_string().ok()?;
        let auth = flags
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("--jobserver-auth=").or_else(|| word.strip_prefix("--jobserver-fds=")))
            .next_back()?
            .to_owned();
        let (read, write) = match auth.strip_prefix("fifo:") {
            Some(fifo) => (PathBuf::from(fifo), PathBuf::from(fifo)),
            None => {
                let (read, write) = auth.split_once(',')?;
                let path = |fd: &str| fd.parse::<u32>().ok().map(|fd| PathBuf::from(format!("/proc/self/fd/{fd}")));
                (path(read)?, path(write)?)
            }
        };
        // Where a recipe lacks the `+`, make keeps the pipe to itself, and the numbers may be those of any files: what is not one and the
        // same pipe at both numbers is not the jobserver's.
        let (a, b) = (std::fs::metadata(&read).ok()?, std::fs::metadata(&write).ok()?);
        if !a.file_type().is_fifo() || (a.dev(), a.ino()) != (b.dev(), b.ino()) {
            return None;
        }
        // Opened anew, so that not to block is a matter of our descriptor and not of make's. A fifo is opened for both, which never waits
        // for a partner.
        let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).ok()?;
        let tokens = OpenOptions::new().read(true).write(read == write).custom_flags(nonblocking).open(&read).ok()?;
        let back = OpenOptions::new().read(read == write).write(true).open(&write).ok()?;
        let mut held = HELD.lock().ok()?;
        if held.is_none() {
            *held = Some((back.try_clone().ok()?, Vec::new()));
        }
        drop(held);
        Some(Jobserver { tokens, back })
    }

    /// A token, waited for as long as `wanted`: others may hold all of them for longer than our work takes.
    fn acquire(&self, wanted: impl Fn() -> bool) -> Option<Token<'_>> {
        let mut token = [0];
        while wanted() {
            match (&self.tokens).read(&mut token) {
                Ok(1) => {
                    let [token] = token;
                    held(|tokens| tokens.push(token));
                    return Some(Token { server: self, token });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let wait = Timespec { tv_sec: 0, tv_nsec: WAIT * 1_000_000 };
                    // What went wrong here shows in the next read.
                    let _ = poll(&mut [PollFd::new(&self.tokens, PollFlags::IN)], Some(&wait));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The server is gone.
                Ok(_) | Err(_) => return None,
            }
        }
        None
    }
}

/// A token of the jobserver, which goes back when this is dropped.
struct Token<'a> {
    server: &'a Jobserver,
    token: u8,
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        let mut is_ours = false;
        held(|tokens| {
            if let Some(at) = tokens.iter().position(|held| *held == self.token) {
                tokens.swap_remove(at);
                is_ours = true;
            }
        });
        // Otherwise it has gone back already: the process is about to end.
        if is_ours {
            // The server is gone if this fails, and nobody waits for the token.
            let _ = (&self.server.back).write_all(&[self.token]);
        }
    }
}

fn held(change: impl FnOnce(&mut Vec<u8>)) {
    if let Ok(mut held) = HELD.lock()
        && let Some((_, tokens)) = held.as_mut()
    {
        change(tokens);
    }
}

/// Gives back every token that is held, for a process that is about to end in the middle of its work: make would run fewer jobs from then on.
pub fn give_back_tokens() {
    if let Ok(mut held) = HELD.lock()
        && let Some((mut back, tokens)) = held.take()
    {
        // As when a token is dropped.
        let _ = back.write_all(&tokens);
    }
}

/// Runs `work` for every item, several at once, and returns the results in the order of the items. The first worker needs no token: the
/// one that make started us with is ours.
pub fn run_all<T: Send, R: Send>(items: Vec<T>, options: &Options, env: Env, work: impl Fn(usize, T) -> R + Sync) -> Result<Vec<R>> {
    run_within_memory(items, options, env, |_| 0, work)
}

/// As [`run_all`]; `need` says how many bytes of memory an item's work takes. Items wait while what runs leaves no room for them.
pub fn run_within_memory<T: Send, R: Send>(
    items: Vec<T>,
    options: &Options,
    env: Env,
    need: impl Fn(&T) -> u64 + Sync,
    work: impl Fn(usize, T) -> R + Sync,
) -> Result<Vec<R>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let server = match options.jobs {
        Jobs::Jobserver => Jobserver::connect(env),
        _ => None,
    };
    let limit = match options.jobs {
        Jobs::Count(count) => count,
        _ => cores,
    };
    let count = items.len();
    let workers = limit.clamp(1, count.max(1));
    let slots: Vec<std::sync::Mutex<(Option<T>, Option<R>)>> =
        items.into_iter().map(|item| std::sync::Mutex::new((Some(item), None))).collect();
    let next = AtomicUsize::new(0);
    let memory = Memory::new(options.max_memory.filter(|_| workers > 1));
    let one = || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let slot = slots.get(index)?;
        let item = slot.lock().ok().and_then(|mut slot| slot.0.take())?;
        let reserved = memory.reserve(need(&item));
        let result = work(index, item);
        drop(reserved);
        if let Ok(mut slot) = slot.lock() {
            slot.1 = Some(result);
        }
        Some(())
    };
    let started = std::thread::scope(|scope| -> std::io::Result<()> {
        for worker in 0..workers {
            let (one, server, next) = (&one, &server, &next);
            std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || {
                loop {
                    if next.load(Ordering::Relaxed) >= count {
                        return;
                    }
                    let token = match server {
                        Some(server) if worker > 0 => match server.acquire(|| next.load(Ordering::Relaxed) < count) {
                            Some(token) => Some(token),
                            // No work is left, or nobody gives tokens any more; the first worker does what there is.
                            None => return,
                        },
                        _ => None,
                    };
                    let done = one();
                    drop(token);
                    if done.is_none() {
                        return;
                    }
                }
            })?;
        }
        Ok(())
    });
    started.map_err(|error| no_thread(&error))?;
    slots
        .into_iter()
        .map(|slot| slot.into_inner().ok().and_then(|(_, result)| result).ok_or_else(|| Error::new("a device job ended early")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    /// A jobserver with so many tokens, and what `MAKEFLAGS` says of it.
    struct Make {
        _dir: tempfile::TempDir,
        fifo: File,
        flags: OsString,
    }

    impl Make {
        fn new(tokens: &[u8]) -> Make {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("jobs");
            mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
            let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
            let fifo = OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open(&path).unwrap();
            (&fifo).write_all(tokens).unwrap();
            let flags = format!(" -j9 --jobserver-auth=1,2 --jobserver-auth=fifo:{}", path.display()).into();
            Make { _dir: dir, fifo, flags }
        }

        fn env(&self) -> impl Fn(&str) -> Option<OsString> {
            let flags = self.flags.clone();
            move |name| (name == "MAKEFLAGS").then(|| flags.clone())
        }

        /// What can be taken now, in order.
        fn tokens(&self) -> Vec<u8> {
            let mut bytes = [0; 16];
            let read = (&self.fifo).read(&mut bytes).unwrap_or(0);
            let mut tokens = bytes[..read].to_vec();
            tokens.sort_unstable();
            tokens
        }
    }

    // One test, because what is held is the process's.
    #[test]
    fn tokens_come_and_go_back() {
        let options = crate::link_line::parse(vec!["ld".into(), "--warplink-jobs=jobserver".into()], &|_| None).unwrap().options;
        let items = || (0..40).collect::<Vec<i32>>();
        // Each token is a byte of its own that has to come back.
        for tokens in [&b""[..], b"a", b"abc"] {
            let make = Make::new(tokens);
            *HELD.lock().unwrap() = None;
            let done = run_all(items(), &options, &make.env(), |index, item| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                (index, item * 2)
            })
            .unwrap();
            assert!(done.iter().enumerate().all(|(at, (index, item))| at == *index && *item as usize == 2 * at));
            assert_eq!(make.tokens(), tokens);
        }

        let make = Make::new(b"xy");
        *HELD.lock().unwrap() = None;
        let server = Jobserver::connect(&make.env()).unwrap();
        let first = server.acquire(|| true).unwrap();
        let second = server.acquire(|| true).unwrap();
        assert!(server.acquire(|| false).is_none());
        drop(first);
        give_back_tokens();
        // What went back already does not go back twice.
        drop(second);
        assert_eq!(make.tokens(), b"xy");

        // A file, two different pipes, and numbers of nothing are no jobserver.
        for auth in ["fifo:/dev/null", "fifo:/nowhere", "0,999999", "x,y", "3"] {
            assert!(Jobserver::connect(&|_| Some(format!("--jobserver-auth={auth}").into())).is_none(), "{auth}");
        }
        assert!(Jobserver::connect(&|_| None).is_none());
    }
}
