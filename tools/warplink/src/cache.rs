//! `warplink cache stats|clear|why`: what the cache of device code holds, and why a link was no hit.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args as ClapArgs, Subcommand};
use device_link::cache::{Inspection, Kind, KindStats, Record, Stats};
use device_link::link_line;
use device_link::options::CacheOptions;
use serde_json::{Value, json};

/// What `warplink cache` is asked.
#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(subcommand)]
    question: Question,
    /// The cache to look at; otherwise that of links here (WARPLINK_CACHE_DIR, $XDG_CACHE_HOME/warplink, ~/.cache/warplink)
    #[arg(long, value_name = "DIR", global = true)]
    dir: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Question {
    /// Show what is in the cache and how often it was of use
    Stats {
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Remove everything from the cache
    Clear,
    /// Show what the last device links were not taken from the cache for
    Why {
        /// The output of the link that is meant; otherwise the last links that were no hit are shown
        output: Option<PathBuf>,
        /// For programs
        #[arg(long)]
        json: bool,
    },
}

/// The most links that `why` shows by itself.
const SHOWN: usize = 5;

/// Answers on standard output.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let env = |name: &str| std::env::var_os(name);
    let mut options = link_line::parse(vec![OsString::from("ld")], &env).map_err(|error| error.to_string())?.options.cache;
    if let Some(dir) = &args.dir {
        options.dir = Some(dir.clone());
    }
    let place = device_link::cache::directory(&options, &env);
    let Some(place) = place else { return Err("there is no place for a cache: neither XDG_CACHE_HOME nor HOME is set".to_owned()) };
    let inspection = Inspection::open(&options, &env).map_err(|why| format!("{why}; the cache is not used"))?;
    match &args.question {
        Question::Stats { json } => {
            let stats = inspection.as_ref().map_or_else(|| Stats::empty(place, &options), Inspection::stats);
            let text = if *json { format!("{:#}\n", stats_json(&stats, &options)) } else { stats_text(&stats, &options) };
            print!("{text}");
        }
        Question::Clear => {
            let Some(inspection) = inspection else {
                println!("{}: there is no cache", place.display());
                return Ok(());
            };
            let stats = inspection.stats();
            inspection.clear().map_err(|error| format!("{}: cannot be cleared: {error}", place.display()))?;
            let (entries, bytes) = total(&stats);
            println!("{}: {entries} {} removed, {}", place.display(), if entries == 1 { "entry" } else { "entries" }, size(bytes));
        }
        Question::Why { output, json } => {
            let records = inspection.map(|inspection| inspection.records()).unwrap_or_default();
            let shown: Vec<&Record> = match output {
                Some(output) => {
                    let path = std::path::absolute(output).map_err(|error| format!("{}: {error}", output.display()))?;
                    let path = path.to_string_lossy();
                    let found = records.iter().find(|record| record.output == path);
                    vec![found.ok_or_else(|| {
                        let (output, place) = (output.display(), place.display());
                        format!("{output}: no device link of this output is known to the cache in {place} (--dir names another)")
                    })?]
                }
                None => records.iter().filter(|record| record.outcome != "hit").take(SHOWN).collect(),
            };
            if *json {
                println!("{:#}", Value::Array(shown.iter().map(|record| record.to_json()).collect()));
            } else if shown.is_empty() {
                println!("no device link is known to this cache that was not taken from it");
            } else {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                print!("{}", shown.iter().map(|record| why_text(record, now)).collect::<String>());
            }
        }
    }
    Ok(())
}

fn total(stats: &Stats) -> (u64, u64) {
    stats.kinds.values().fold((0, 0), |(entries, bytes), kind| (entries + kind.entries, bytes + kind.bytes))
}

/// What people call the entries of a kind.
fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Link => "device links",
        Kind::Code => "generated code",
        Kind::Assembly => "ptxas",
        Kind::Image => "images of JITs",
        Kind::Tool => "known tools",
        Kind::Record => "records of links",
    }
}

fn stats_text(stats: &Stats, options: &CacheOptions) -> String {
    let mut text =
        format!("{:<17} {}{}\n\n", "place", stats.directory.display(), if options.off { " (off: WARPLINK_NO_CACHE)" } else { "" });
    let _ = writeln!(text, "{:<17} {:>8} {:>10} {:>8} {:>8}", "", "entries", "size", "hits", "misses");
    // Who runs no JIT is not told of its images.
    for (kind, part) in stats.kinds.iter().filter(|(kind, part)| **kind != Kind::Image || **part != KindStats::default()) {
        let (hits, misses) = match kind {
            Kind::Tool | Kind::Record => (String::new(), String::new()),
            _ => (part.hits.to_string(), part.misses.to_string()),
        };
        let line = format!("{:<17} {:>8} {:>10} {hits:>8} {misses:>8}", title(*kind), part.entries, size(part.bytes));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let (entries, bytes) = total(stats);
    let _ = writeln!(text, "{:<17} {entries:>8} {:>10}   of at most {}", "together", size(bytes), size(stats.limit));
    text
}

fn stats_json(stats: &Stats, options: &CacheOptions) -> Value {
    let (entries, bytes) = total(stats);
    let kinds: serde_json::Map<String, Value> = stats
        .kinds
        .iter()
        .map(|(kind, part)| {
            let mut value = json!({ "entries": part.entries, "bytes": part.bytes });
            if !matches!(kind, Kind::Tool | Kind::Record) {
                value["hits"] = part.hits.into();
                value["misses"] = part.misses.into();
            }
            (kind.name().to_owned(), value)
        })
        .collect();
    json!({
        "directory": stats.directory.to_string_lossy(),
        "off": options.off,
        "limit": stats.limit,
        "entries": entries,
        "bytes": bytes,
        "kinds": kinds,
    })
}

fn why_text(record: &Record, now: u64) -> String {
    let mut text = format!("{}: {}, {}\n", record.output, outcome(record), ago(now.saturating_sub(record.time)));
    for reason in &record.reasons {
        let _ = writeln!(text, "  {reason}");
    }
    text
}

fn outcome(record: &Record) -> &str {
    match record.outcome.as_str() {
        "hit" => "taken from the cache",
        "miss" => "linked anew",
        _ => "linked without asking the cache for the whole link",
    }
}

fn ago(seconds: u64) -> String {
    let (number, unit) = match seconds {
        0..60 => (seconds, "second"),
        60..3600 => (seconds / 60, "minute"),
        3600..86400 => (seconds / 3600, "hour"),
        _ => (seconds / 86400, "day"),
    };
    format!("{number} {unit}{} ago", if number == 1 { "" } else { "s" })
}

/// Bytes with one digit behind the point, in powers of 1024.
fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in units {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_short() {
        for (bytes, expected) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB"), (1_500_000, "1.4 MiB"), (3 << 50, "3072.0 TiB")]
        {
            assert_eq!(size(bytes), expected);
        }
        for (seconds, expected) in
            [(0, "0 seconds ago"), (1, "1 second ago"), (61, "1 minute ago"), (7300, "2 hours ago"), (9_000_000, "104 days ago")]
        {
            assert_eq!(ago(seconds), expected);
        }
    }

    #[test]
    fn a_table_and_the_same_for_programs() {
        let options = CacheOptions { size: Some(2 << 20), ..CacheOptions::default() };
        let mut stats = Stats::empty(PathBuf::from("/c"), &options);
        if let Some(part) = stats.kinds.get_mut(&Kind::Assembly) {
            (part.entries, part.bytes, part.hits, part.misses) = (3, 2048, 7, 3);
        }
        let text = stats_text(&stats, &options);
        assert!(text.contains("ptxas                    3    2.0 KiB        7        3\n"), "{text}");
        assert!(text.contains("together                 3    2.0 KiB   of at most 2.0 MiB\n"), "{text}");
        let value = stats_json(&stats, &options);
        assert_eq!((&value["bytes"], &value["kinds"]["ptxas"]["hits"], &value["limit"]), (&json!(2048), &json!(7), &json!(2 << 20)));
        assert!(value["kinds"]["tool"].get("hits").is_none());
    }
}
