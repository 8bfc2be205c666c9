//! The person's side: `warplink WORD ...`.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;

use clap::{Parser, Subcommand};

/// Device LTO for CUDA programs built by clang with relocatable device code.
#[derive(Parser)]
#[command(
    name = "warplink",
    version,
    after_help = "As a linker: clang++ -B$(warplink bin-dir) --offload-link ..., or clang++ --ld-path=$(which warplink) ...\n\
                  Options for a link are listed by: $(warplink bin-dir)/clang-linker-wrapper --help"
)]
struct Cli {
    #[command(subcommand)]
    command: Word,
}

#[derive(Subcommand)]
enum Word {
    /// Print the directory to name with -B: it holds clang-linker-wrapper, ld and llvm-offload-binary
    BinDir,
    /// Show the device code in files: images, kernels, and on which GPUs it runs
    Inspect(crate::inspect::Args),
    /// Record in objects and archives whether PTX is wanted
    Annotate(crate::annotate::Args),
    /// Show which toolkit and which host linkers a link would use here
    Doctor,
}

/// The words that select the person's side; anything else as first argument is a link line.
const WORDS: [&str; 8] = ["bin-dir", "inspect", "annotate", "doctor", "help", "--help", "-h", "--version"];

/// Whether the first argument is one of the words.
pub(crate) fn is_subcommand(word: &OsStr) -> bool {
    WORDS.iter().any(|known| word == *known)
}

/// Runs the word that the line begins with.
pub(crate) fn run(args: Vec<OsString>) -> i32 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Printing can only fail when nobody listens.
            let _ = error.print();
            return error.exit_code();
        }
    };
    let result = match cli.command {
        Word::BinDir => crate::bin_dir::bin_dir().map(|dir| {
            println!("{}", dir.display());
            0
        }),
        Word::Inspect(args) => crate::inspect::run(&args, &mut anstream::stdout()).map(|outcome| match outcome {
            crate::inspect::Outcome::Good => 0,
            crate::inspect::Outcome::DoesNotRun => 1,
        }),
        Word::Annotate(args) => crate::annotate::run(&args).map(|()| 0).map_err(|error| error.to_string()),
        Word::Doctor => crate::doctor::run().map(|()| 0),
    };
    finish(result)
}

/// Called as LLVM's packager. `ptx` is the choice about PTX that the environment makes for every image, `container` the version to write.
pub(crate) fn packager(args: Vec<OsString>, ptx: Option<OsString>, container: Option<OsString>) -> i32 {
    let ptx = match ptx.map(OsString::into_string).transpose() {
        Ok(ptx) => ptx,
        Err(value) => return finish(Err(format!("WARPLINK_PTX: '{}' is no text", value.display()))),
    };
    let container = container.map(|name| name.to_string_lossy().into_owned());
    finish(crate::offload_binary::run(args, ptx.as_deref(), container.as_deref()).map(|()| 0).map_err(|error| error.to_string()))
}

/// Prints an error, one message for each of its lines, and gives the exit code.
fn finish(result: Result<i32, String>) -> i32 {
    result.unwrap_or_else(|error| {
        for line in error.lines() {
            // Nobody is left to tell when stderr is closed.
            let _ = writeln!(std::io::stderr(), "{}{line}", if line.starts_with(">>>") { "" } else { "warplink: error: " });
        }
        1
    })
}
