//! How many device jobs run at once: the machine's cores, a number, or as many as make's jobserver grants.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Result};
use crate::options::{Jobs, Options};
use crate::toolchain::Env;

/// Stack of a worker: LLVM's passes recurse over the program, deeper than a thread's usual 2 MB in generated code.
const STACK: usize = 256 << 20;

/// A connection to the jobserver of the make or ninja that runs us. Opening pipes by their number in `/proc` needs no trust in what
/// the descriptors are: a wrong one simply cannot be opened.
struct Jobserver {
    tokens: File,
    back: File,
}

impl Jobserver {
    /// From `MAKEFLAGS`; none where there is no jobserver, or make did not pass it on to this recipe.
    fn connect(env: Env) -> Option<Jobserver> {
        let flags = env("MAKEFLAGS")?.into_string().ok()?;
        let auth = flags
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("--jobserver-auth=").or_else(|| word.strip_prefix("--jobserver-fds=")))
            .next_back()?
            .to_owned();
        if let Some(fifo) = auth.strip_prefix("fifo:") {
            let file = OpenOptions::new().read(true).write(true).open(fifo).ok()?;
            return Some(Jobserver { back: file.try_clone().ok()?, tokens: file });
        }
        let (read, write) = auth.split_once(',')?;
        let open = |fd: &str, writing: bool| {
            let fd: u32 = fd.parse().ok()?;
            OpenOptions::new().read(!writing).write(writing).open(PathBuf::from(format!("/proc/self/fd/{fd}"))).ok()
        };
        Some(Jobserver { tokens: open(read, false)?, back: open(write, true)? })
    }

    fn acquire(&self) -> Option<u8> {
        let mut token = [0];
        (&self.tokens).read_exact(&mut token).ok()?;
        let [token] = token;
        Some(token)
    }

    fn release(&self, token: u8) {
        // The server is gone if this fails, and nobody waits for the token.
        let _ = (&self.back).write_all(&[token]);
    }
}

/// Runs `work` for every item, several at once, and returns the results in the order of the items. The first worker needs no token: the
/// one that make started us with is ours.
pub fn run_all<T: Send, R: Send>(items: Vec<T>, options: &Options, env: Env, work: impl Fn(usize, T) -> R + Sync) -> Result<Vec<R>> {
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
    let one = || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let slot = slots.get(index)?;
        let item = slot.lock().ok().and_then(|mut slot| slot.0.take())?;
        let result = work(index, item);
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
                        Some(server) if worker > 0 => server.acquire(),
                        _ => None,
                    };
                    let done = one();
                    if let (Some(server), Some(token)) = (server, token) {
                        server.release(token);
                    }
                    if done.is_none() {
                        return;
                    }
                }
            })?;
        }
        Ok(())
    });
    started.map_err(|error| Error::new(format!("cannot start a thread: {error}")))?;
    slots
        .into_iter()
        .map(|slot| slot.into_inner().ok().and_then(|(_, result)| result).ok_or_else(|| Error::new("a device job ended early")))
        .collect()
}
