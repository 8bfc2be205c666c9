//! `warplink repro FILE`: unpacks a reproducer and runs its link again.

use std::ffi::OsString;
use std::path::PathBuf;

use device_link::error::{Context as _, Error, Result};
use device_link::toolchain::process_env;
use device_link::{repro, temps};

/// The options of `warplink repro`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The file that --warplink-repro=FILE or a crash has made
    file: PathBuf,
    /// Unpack into this new or empty directory, which stays; otherwise a temporary one is used and removed
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep the temporary directory
    #[arg(long)]
    keep: bool,
    /// Unpack and say how to run it, but do not: for files from strangers
    #[arg(long)]
    no_run: bool,
    /// Further words for the link line, such as --warplink-verbose
    #[arg(last = true, value_name = "ARG")]
    more: Vec<OsString>,
}

/// Variables of ours that are the user's here, whatever they were there.
const LIVE: [&str; 7] = [
    "WARPLINK_DIAGNOSTICS",
    "WARPLINK_COLOR",
    "WARPLINK_CACHE",
    "WARPLINK_CACHE_DIR",
    "WARPLINK_NO_CACHE",
    "WARPLINK_CACHE_SIZE",
    "WARPLINK_REPRO_ON_CRASH",
];

/// Unpacks, says what is different here, and gives the link's exit code.
pub(crate) fn run(args: &Args) -> Result<i32> {
    let temporary = temps::Temps::new(None, false);
    let dir = match &args.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir).context(|| dir.display().to_string())?;
            if std::fs::read_dir(dir).context(|| format!("{}: cannot be read", dir.display()))?.next().is_some() {
                return Err(Error::new(format!("{}: is not empty", dir.display())));
            }
            dir.canonicalize().context(|| dir.display().to_string())?
        }
        None if args.keep || args.no_run => {
            let kept =
                tempfile::Builder::new().prefix("warplink-repro-").tempdir().context(|| std::env::temp_dir().display().to_string())?;
            kept.keep()
        }
        None => {
            let dir = temporary.path("repro")?;
            std::fs::create_dir_all(&dir).context(|| dir.display().to_string())?;
            dir
        }
    };
    let unpacked = repro::unpack(&args.file, &dir, &process_env)?;
    for difference in &unpacked.differences {
        eprintln!("warplink: note: {difference}");
    }
    if args.dir.is_some() || args.keep || args.no_run {
        let line: Vec<String> = unpacked.args.iter().map(|word| device_link::command::quote(word)).collect();
        println!("unpacked into {}; the link there is: {}", unpacked.dir.display(), line.join(" "));
    }
    if args.no_run {
        return Ok(0);
    }
    std::env::set_current_dir(&unpacked.dir).context(|| unpacked.dir.display().to_string())?;
    let mut line = unpacked.args.clone();
    line.extend(args.more.iter().cloned());
    let environment = unpacked.environment;
    let env = move |name: &str| match environment.get(name) {
        Some(value) => Some(value.clone()),
        // What was not set there is not set here.
        None if name.starts_with("WARPLINK_") && !LIVE.contains(&name) => None,
        None => process_env(name),
    };
    Ok(crate::run_line(line, &env, crate::HostOnly::Waits))
}
