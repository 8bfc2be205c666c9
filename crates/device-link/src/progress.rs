//! What a person sees of a link that takes longer than a second: one line on the terminal, written over again and again, with what runs now
//! for which architectures and how much of it is done. It is gone before anything else is printed, and nothing of it gets into a log.
//!
//! The stages tell (`timing`), a thread of its own draws. That thread is only there where somebody can see the line.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::options::{Options, ProgressChoice};

/// Links that are done by then show nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two drawings.
const PERIOD: Duration = Duration::from_millis(100);

/// To the start of the line, and what is on it away.
const ERASE: &str = "\r\x1b[K";

/// Whether a line stands on the terminal: for those who have no time to ask.
static VISIBLE: AtomicBool = AtomicBool::new(false);

/// The line of one link, if it has one.
#[derive(Debug, Default)]
pub struct Progress {
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    start: Instant,
}

#[derive(Debug, Default)]
struct State {
    /// Stages that run now, the oldest first: number, name, architecture.
    running: Vec<(u64, &'static str, String)>,
    next: u64,
    done: BTreeMap<&'static str, usize>,
    expected: BTreeMap<&'static str, usize>,
    ended: bool,
}

impl Progress {
    /// Starts the clock, where the options and the terminal allow.
    pub fn new(options: &Options) -> Progress {
        let is_wanted = match options.progress {
            ProgressChoice::Always => true,
            ProgressChoice::Never => false,
            // Who reads along has better than this.
            ProgressChoice::Auto => !options.verbose && !options.dry_run && std::io::stderr().is_terminal(),
        };
        if !is_wanted {
            return Progress::default();
        }
        let shared = Arc::new(Shared { state: Mutex::default(), wake: Condvar::new(), start: Instant::now() });
        let drawer = Arc::clone(&shared);
        let started = std::thread::Builder::new().name("progress".to_owned()).spawn(move || drawer.draw_until_the_end());
        Progress { shared: started.is_ok().then_some(shared) }
    }

    /// A stage begins; it ends when what is returned goes.
    pub fn begin(&self, name: &'static str, detail: &str) -> Option<Running<'_>> {
        let shared = self.shared.as_deref()?;
        let mut state = shared.lock();
        let number = state.next;
        state.next += 1;
        state.running.push((number, name, detail.to_owned()));
        Some(Running { shared, number })
    }

    /// So many more stages of this name will run.
    pub fn expect(&self, name: &'static str, count: usize) {
        if let Some(shared) = self.shared.as_deref() {
            *shared.lock().expected.entry(name).or_default() += count;
        }
    }

    /// A stage that was expected need not run.
    pub fn skip(&self, name: &'static str) {
        if let Some(shared) = self.shared.as_deref() {
            *shared.lock().done.entry(name).or_default() += 1;
        }
    }

    /// Runs `print` with no line on the terminal; none is drawn meanwhile.
    pub fn hidden<T>(&self, print: impl FnOnce() -> T) -> T {
        let state = self.shared.as_deref().map(Shared::lock);
        if state.is_some() {
            erase();
        }
        print()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.as_deref() {
            shared.lock().ended = true;
            erase();
            shared.wake.notify_all();
        }
    }
}

/// A stage that runs.
pub struct Running<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if let Some(at) = state.running.iter().position(|(number, ..)| *number == self.number) {
            let (_, name, _) = state.running.remove(at);
            *state.done.entry(name).or_default() += 1;
        }
    }
}

/// Takes the line away where the program is about to end in the middle of its work.
pub fn erase() {
    if VISIBLE.swap(false, Ordering::SeqCst) {
        // Nobody is left to tell when stderr is closed.
        let _ = std::io::stderr().write_all(ERASE.as_bytes());
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // The state is whole whatever its last holder was doing when it panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw_until_the_end(&self) {
        let mut state = self.lock();
        let mut shown = String::new();
        while !state.ended {
            let left = PATIENCE.checked_sub(self.start.elapsed());
            if left.is_none() {
                let line = state.line(self.start.elapsed(), width());
                // What has not changed is only drawn again if somebody has printed since.
                if !line.is_empty() && (line != shown || !VISIBLE.load(Ordering::SeqCst)) {
                    // In one piece, the old end of the line away after it: that does not flicker.
                    let _ = std::io::stderr().write_all(format!("\r{line}\x1b[K").as_bytes());
                    VISIBLE.store(true, Ordering::SeqCst);
                    shown = line;
                }
            }
            let wait = self.wake.wait_timeout(state, left.unwrap_or(PERIOD));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// What is running, in at most `width` characters: `warplink: 12 s, optimize sm_75, ptxas sm_80 sm_90 (2 of 5 done)`.
    fn line(&self, elapsed: Duration, width: usize) -> String {
        let mut stages: Vec<(&str, Vec<&str>)> = Vec::new();
        for (_, name, detail) in &self.running {
            match stages.iter_mut().find(|(known, _)| known == name) {
                Some((_, details)) => details.push(detail),
                None => stages.push((name, vec![detail])),
            }
        }
        if stages.is_empty() {
            return String::new();
        }
        let words = stages.iter().map(|(name, details)| {
            let details: String = details.iter().filter(|detail| !detail.is_empty()).map(|detail| format!(" {detail}")).collect();
            let count = match self.expected.get(name) {
                Some(&expected) if expected > 1 => {
                    format!(" ({} of {expected} done)", self.done.get(name).copied().unwrap_or(0).min(expected))
                }
                _ => String::new(),
            };
            format!("{name}{details}{count}")
        });
        let line = format!("warplink: {} s, {}", elapsed.as_secs(), words.collect::<Vec<_>>().join(", "));
        if line.chars().count() <= width {
            return line;
        }
        let cut: String = line.chars().take(width.saturating_sub(3)).collect();
        format!("{cut}...")
    }
}

/// Columns that the line may take: one less than there are, since terminals differ in where the cursor goes after the last.
fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 79 } else { columns - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(running: &[(&'static str, &str)], done: &[(&'static str, usize)], expected: &[(&'static str, usize)]) -> State {
        State {
            running: running.iter().zip(0..).map(|((name, detail), number)| (number, *name, (*detail).to_owned())).collect(),
            done: done.iter().copied().collect(),
            expected: expected.iter().copied().collect(),
            ..State::default()
        }
    }

    #[test]
    fn lines() {
        let check = |state: State, width, expected: &str| assert_eq!(state.line(Duration::from_millis(12_700), width), expected);
        check(state(&[("bundle", "")], &[], &[]), 80, "warplink: 12 s, bundle");
        check(state(&[("ptxas", "sm_90")], &[], &[("ptxas", 1)]), 80, "warplink: 12 s, ptxas sm_90");
        let several =
            || state(&[("optimize", "sm_75"), ("ptxas", "sm_80"), ("ptxas", "sm_90")], &[("ptxas", 2)], &[("ptxas", 5), ("optimize", 3)]);
        check(several(), 80, "warplink: 12 s, optimize sm_75 (0 of 3 done), ptxas sm_80 sm_90 (2 of 5 done)");
        check(several(), 30, "warplink: 12 s, optimize sm...");
        check(state(&[], &[("ptxas", 2)], &[]), 80, "");
    }

    #[test]
    fn stages_come_and_go() {
        let shared = Arc::new(Shared { state: Mutex::default(), wake: Condvar::new(), start: Instant::now() });
        let progress = Progress { shared: Some(Arc::clone(&shared)) };
        progress.expect("ptxas", 2);
        let line = || shared.lock().line(Duration::ZERO, 80);
        let first = progress.begin("ptxas", "sm_80");
        let second = progress.begin("ptxas", "sm_90");
        assert_eq!(line(), "warplink: 0 s, ptxas sm_80 sm_90 (0 of 2 done)");
        drop(first);
        assert_eq!(line(), "warplink: 0 s, ptxas sm_90 (1 of 2 done)");
        drop(second);
        assert_eq!(line(), "");
        // Parts of a large program are expected first, then what is left whole; one of them comes from the cache.
        progress.expect("ptxas", 3);
        progress.skip("ptxas");
        let third = progress.begin("ptxas", "sm_90.part2");
        assert_eq!(line(), "warplink: 0 s, ptxas sm_90.part2 (3 of 5 done)");
        drop(third);
        drop(progress);
        assert!(shared.lock().ended);
    }

    #[test]
    fn without_a_line_nothing_is_kept() {
        let progress = Progress::default();
        assert!(progress.begin("ptxas", "sm_80").is_none());
        assert_eq!(progress.hidden(|| 7), 7);
    }
}
