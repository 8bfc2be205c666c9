//! A store that several machines share, behind the cache on disk: HTTP, S3 or Redis.
//!
//! | file | what |
//! |---|---|
//! | `place` | what a URL means, without what is secret in it |
//! | `http` | GET and PUT, as Bazel's remote cache speaks it, and S3 |
//! | `s3` | signatures |
//! | `redis` | the four commands of Redis that it takes |
//!
//! An answer is believed like a file of the cache: if it carries the key that was asked for and its checksum is right. A store that does not
//! answer, answers too slowly or answers with something else is not asked again in this link: all of its slowness together costs a link
//! no more than [`LATENCY`] for each question, and twice the time limit.

mod http;
mod place;
mod redis;
mod s3;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Key, Kind};
use crate::options::CacheOptions;
use crate::toolchain::Env;
use place::Place;

/// How long a store may take for each question without any blame.
const LATENCY: Duration = Duration::from_millis(100);
/// The time limit of one question where the user sets none.
const TIMEOUT: Duration = Duration::from_secs(5);
/// No entry is larger.
const LARGEST: u64 = 1 << 30;

/// How a store is spoken to. Names are made of what URLs and keys may hold everywhere.
trait Speaks: Send + Sync {
    /// The value of a name, if there is one.
    fn get(&self, kind: Kind, key: &Key, until: Instant) -> Result<Option<Vec<u8>>, String>;
    /// Gives a name a value.
    fn put(&self, kind: Kind, key: &Key, value: &[u8], until: Instant) -> Result<(), String>;
}

/// A store.
pub(super) struct Remote {
    speaks: Box<dyn Speaks>,
    writes: bool,
    timeout: Duration,
    /// What messages call it.
    shown: String,
    /// It is asked nothing any more.
    off: AtomicBool,
    /// Microseconds beyond [`LATENCY`] so far.
    excess: AtomicU64,
}

impl Remote {
    /// The store that the options name, if any. Talks to nobody yet.
    ///
    /// # Errors
    /// The URL means nothing: why, without the URL.
    pub(super) fn open(options: &CacheOptions, env: Env) -> Result<Option<Remote>, String> {
        let Some(url) = options.remote.as_ref().map(|url| url.0.as_str()).filter(|url| !url.is_empty()) else { return Ok(None) };
        let place = Place::parse(url, env)?;
        let shown = place.shown();
        let timeout = options.remote_timeout.unwrap_or(TIMEOUT);
        let speaks: Box<dyn Speaks> = match place {
            Place::Redis(place) => Box::new(redis::Redis::new(place)),
            Place::Http(place) => Box::new(http::Http::new(place, timeout, env)?),
        };
        let writes = options.remote_writes;
        Ok(Some(Remote { speaks, writes, timeout, shown, off: AtomicBool::new(false), excess: AtomicU64::new(0) }))
    }

    /// What messages call it: the URL without anything secret.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// The bytes that it has under a key.
    ///
    /// # Errors
    /// Why it is not asked any more; said once.
    pub(super) fn get(&self, kind: Kind, key: &Key) -> Result<Option<Vec<u8>>, String> {
        self.timed(|until| self.speaks.get(kind, key, until)).map(Option::flatten)
    }

    /// Writes an entry, where this link may.
    ///
    /// # Errors
    /// As for [`Remote::get`].
    pub(super) fn put(&self, kind: Kind, key: &Key, bytes: &[u8]) -> Result<(), String> {
        if !self.writes {
            return Ok(());
        }
        self.timed(|until| self.speaks.put(kind, key, bytes, until)).map(|_| ())
    }

    /// Whether this link writes to it.
    pub(super) fn is_written(&self) -> bool {
        self.writes && !self.off.load(Ordering::Relaxed)
    }

    /// It is not asked again. True for the one who turns it off.
    pub(super) fn give_up(&self) -> bool {
        !self.off.swap(true, Ordering::Relaxed)
    }

    fn timed<T>(&self, ask: impl FnOnce(Instant) -> Result<T, String>) -> Result<Option<T>, String> {
        if self.off.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let started = Instant::now();
        let answer = ask(started + self.timeout);
        let beyond = u64::try_from(started.elapsed().saturating_sub(LATENCY).as_micros()).unwrap_or(u64::MAX);
        let excess = self.excess.fetch_add(beyond, Ordering::Relaxed).saturating_add(beyond);
        match answer {
            Err(why) => {
                if self.give_up() {
                    Err(why)
                } else {
                    Ok(None)
                }
            }
            Ok(answer) => {
                // It is of use once more; whoever asks next does not wait for it.
                if u128::from(excess) > self.timeout.as_micros() && self.give_up() {
                    return Err(format!("it is slow: {:.1} s of waiting so far", Duration::from_micros(excess).as_secs_f64()));
                }
                Ok(Some(answer))
            }
        }
    }
}
