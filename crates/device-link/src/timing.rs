//! Where the time of a link goes: one event per stage and architecture, written as a Chrome trace (`--wrapper-time-trace`), which
//! Perfetto and `chrome://tracing` show.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::error::{Context, Result};
use crate::progress::Progress;
use crate::record::Stage;

/// The clock of one link and the events seen so far.
pub struct Timing {
    start: Instant,
    enabled: bool,
    progress: Arc<Progress>,
    events: Mutex<Vec<Event>>,
}

#[derive(Debug, Clone)]
struct Event {
    name: &'static str,
    detail: String,
    row: usize,
    start: Duration,
    length: Duration,
    cpu: Duration,
    children: llvm_lto::Usage,
    cached: bool,
}

impl Timing {
    /// Starts the clock. Events are only kept when somebody will read them.
    pub fn new(enabled: bool, progress: Arc<Progress>) -> Timing {
        Timing { start: Instant::now(), enabled, progress, events: Mutex::new(Vec::new()) }
    }

    /// Times `work`. `row` 0 is the link as a whole, 1 and up are its jobs, in the order of their targets.
    pub fn stage<T>(&self, name: &'static str, row: usize, detail: &str, work: impl FnOnce() -> T) -> T {
        let _running = self.progress.begin(name, detail);
        if !self.enabled {
            return work();
        }
        // What children of an enclosing stage have used by now is added to that stage again below.
        let before = crate::command::take_usage();
        let cpu = llvm_lto::thread_time();
        let start = self.start.elapsed();
        let result = work();
        let length = self.start.elapsed().saturating_sub(start);
        let cpu = llvm_lto::thread_time().saturating_sub(cpu);
        let children = crate::command::take_usage();
        crate::command::give_back_usage(before);
        if let Ok(mut events) = self.events.lock() {
            events.push(Event { name, detail: detail.to_owned(), row, start, length, cpu, children, cached: false });
        }
        result
    }

    /// Takes down that the result of a stage came from a cache.
    pub fn cached(&self, name: &'static str, row: usize, detail: &str) {
        self.progress.skip(name);
        if self.enabled
            && let Ok(mut events) = self.events.lock()
        {
            let (start, none) = (self.start.elapsed(), Duration::ZERO);
            events.push(Event {
                name,
                detail: detail.to_owned(),
                row,
                start,
                length: none,
                cpu: none,
                children: llvm_lto::Usage::default(),
                cached: true,
            });
        }
    }

    /// The stages so far, for the record of the link.
    pub fn stages(&self) -> Vec<Stage> {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let mut events = self.events.lock().map(|events| events.clone()).unwrap_or_default();
        events.sort_by_key(|event| (event.start, event.row));
        let stages = events.into_iter().map(|event| Stage {
            name: event.name.to_owned(),
            detail: event.detail,
            row: event.row,
            start: micros(event.start),
            wall: micros(event.length),
            cpu: micros(event.cpu),
            child_user: micros(event.children.user),
            child_system: micros(event.children.system),
            child_peak_memory: event.children.peak_memory,
            cached: event.cached,
        });
        stages.collect()
    }

    /// So many more stages of this name will run.
    pub fn expect(&self, name: &'static str, count: usize) {
        self.progress.expect(name, count);
    }

    /// Writes the events that took at least `granularity` microseconds, and those that took none because their results came from the cache.
    pub fn write(&self, path: &Path, granularity: u64, rows: &[String]) -> Result<()> {
        let mut events = self.events.lock().map(|e| e.clone()).unwrap_or_default();
        events.sort_by_key(|e| (e.row, e.start));
        let mut list: Vec<_> = events
            .iter()
            .filter(|e| e.cached || e.length.as_micros() >= u128::from(granularity))
            .map(|e| {
                let args = if e.cached { json!({ "detail": e.detail, "cached": true }) } else { json!({ "detail": e.detail }) };
                json!({
                    "ph": "X", "pid": 1, "tid": e.row, "name": e.name,
                    "ts": e.start.as_micros() as u64, "dur": e.length.as_micros() as u64,
                    "args": args,
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
        let timing = Timing::new(true, Arc::default());
        assert_eq!(timing.stage("lto", 1, "sm_90", || 7), 7);
        timing.stage("bundle", 0, "", || ());
        timing.cached("ptxas", 1, "sm_90");
        let file = tempfile::NamedTempFile::new().unwrap();
        timing.write(file.path(), 0, &["sm_90".to_owned()]).unwrap();
        let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert!(events.iter().any(|e| e["name"] == "lto" && e["tid"] == 1 && e["args"]["detail"] == "sm_90"));
        assert!(events.iter().any(|e| e["ph"] == "M" && e["args"]["name"] == "sm_90"));
        // What came from the cache took no time, and is shown for all that.
        timing.write(file.path(), 1_000_000, &["sm_90".to_owned()]).unwrap();
        let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
        let events: Vec<_> = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").collect();
        assert!(matches!(events.as_slice(), [e] if e["name"] == "ptxas" && e["args"]["cached"] == true), "{events:?}");
    }

    #[test]
    fn stages_know_their_children() {
        let timing = Timing::new(true, Arc::default());
        let busy = || {
            let mut command = crate::command::CommandLine::new("sh");
            command.arg("-c").arg("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
            command.run_captured().unwrap()
        };
        timing.stage("host link", 0, "", || {
            busy();
            timing.stage("ptxas", 1, "sm_90", busy);
            timing.stage("bundle", 0, "", || ());
        });
        timing.cached("lto", 1, "sm_90");
        let stages = timing.stages();
        let of = |name: &str| stages.iter().find(|stage| stage.name == name).unwrap();
        assert!(of("ptxas").child_user > 0 && of("ptxas").child_peak_memory > 100_000, "{stages:?}");
        assert!(of("host link").child_user > 0 && of("host link").wall >= of("ptxas").wall, "{stages:?}");
        assert_eq!((of("bundle").child_user, of("bundle").child_peak_memory), (0, 0));
        assert!(of("lto").cached && !of("ptxas").cached);
    }

    #[test]
    fn nothing_is_kept_when_nobody_reads() {
        let timing = Timing::new(false, Arc::default());
        timing.stage("lto", 1, "sm_90", || ());
        assert!(timing.events.lock().unwrap().is_empty());
    }
}
