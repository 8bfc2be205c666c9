//! Where the time of a link goes: one event per stage and architecture, written as a Chrome trace (`--wrapper-time-trace`), which
//! Perfetto and `chrome://tracing` show.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::error::{Context, Result};

/// The clock of one link and the events seen so far.
pub struct Timing {
    start: Instant,
    enabled: bool,
    events: Mutex<Vec<Event>>,
}

#[derive(Debug, Clone)]
struct Event {
    name: &'static str,
    detail: String,
    row: usize,
    start: Duration,
    length: Duration,
}

impl Timing {
    /// Starts the clock. Events are only kept when somebody will read them.
    pub fn new(enabled: bool) -> Timing {
        Timing { start: Instant::now(), enabled, events: Mutex::new(Vec::new()) }
    }

    /// Times `work`. `row` 0 is the link as a whole, 1 and up are its jobs, in the order of their targets.
    pub fn stage<T>(&self, name: &'static str, row: usize, detail: &str, work: impl FnOnce() -> T) -> T {
        if !self.enabled {
            return work();
        }
        let start = self.start.elapsed();
        let result = work();
        let length = self.start.elapsed().saturating_sub(start);
        if let Ok(mut events) = self.events.lock() {
            events.push(Event { name, detail: detail.to_owned(), row, start, length });
        }
        result
    }

    /// Writes the events that took at least `granularity` microseconds.
    pub fn write(&self, path: &Path, granularity: u64, rows: &[String]) -> Result<()> {
        let mut events = self.events.lock().map(|e| e.clone()).unwrap_or_default();
        events.sort_by_key(|e| (e.row, e.start));
        let mut list: Vec<_> = events
            .iter()
            .filter(|e| e.length.as_micros() >= u128::from(granularity))
            .map(|e| {
                json!({
                    "ph": "X", "pid": 1, "tid": e.row, "name": e.name,
                    "ts": e.start.as_micros() as u64, "dur": e.length.as_micros() as u64,
                    "args": { "detail": e.detail },
                })
            })
            .collect();
        list.push(json!({ "ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": { "name": "warplink" } }));
        for (row, name) in std::iter::once("link").chain(rows.iter().map(String::as_str)).enumerate() {
            list.push(json!({ "ph": "M", "pid": 1, "tid": row, "name": "thread_name", "args": { "name": name } }));
        }
        let text = json!({ "traceEvents": list, "displayTimeUnit": "ms" }).to_string();
        std::fs::write(path, text).context(|| format!("{}: cannot write the time trace", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_become_events_of_their_row() {
        let timing = Timing::new(true);
        assert_eq!(timing.stage("lto", 1, "sm_90", || 7), 7);
        timing.stage("bundle", 0, "", || ());
        let file = tempfile::NamedTempFile::new().unwrap();
        timing.write(file.path(), 0, &["sm_90".to_owned()]).unwrap();
        let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert!(events.iter().any(|e| e["name"] == "lto" && e["tid"] == 1 && e["args"]["detail"] == "sm_90"));
        assert!(events.iter().any(|e| e["ph"] == "M" && e["args"]["name"] == "sm_90"));
    }

    #[test]
    fn nothing_is_kept_when_nobody_reads() {
        let timing = Timing::new(false);
        timing.stage("lto", 1, "sm_90", || ());
        assert!(timing.events.lock().unwrap().is_empty());
    }
}
