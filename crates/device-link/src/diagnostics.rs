//! What a person reads: errors, warnings and notes on stderr, each in one piece, named warnings that can be turned off or made errors.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;
use crate::options::{ColorChoice, Level, Options};

/// The warnings that `--warplink-warn=` knows, with what each says.
pub const WARNINGS: &[(&str, &str)] = &[
    ("older-arch", "an object has no code for an architecture of the link; its code for an older one is linked"),
    ("ptx-conflict", "objects record different choices about PTX; none is embedded"),
    ("ptx-arch-specific", "PTX of an architecture-specific target was asked for; it could run nowhere else and is left out"),
    ("ptx-incomplete", "PTX was asked for, but device objects that are no bitcode take part; none is embedded"),
    ("ptx-only", "no ptxas was found; the program gets PTX only"),
    ("constant-bank", "constants exceed the 64 KB bank; the compiler's own are moved to global memory"),
    ("missing-entry", "the host launches or copies something that an image does not hold"),
    ("icf", "identical code folding was restricted, because it would have folded kernels' launch stubs"),
    ("already-wrapped", "another linker wrapper has already linked the device code"),
    ("unused-option", "an option has no effect here"),
    ("compile-choice", "a choice recorded at compile time was overruled or contradicts another one"),
    ("optimizer", "LLVM warned about the device code"),
    ("ptxas", "ptxas or nvlink warned about the device code"),
    ("debug-optimized", "an object compiled for device debugging makes all device code of the link unoptimised"),
    ("whole-archive", "device code of members that the host link leaves out"),
];

/// Prints messages and remembers whether one of them must fail the link.
pub struct Diagnostics {
    levels: Vec<(String, Level)>,
    fatal_warnings: bool,
    quiet: bool,
    color: ColorChoice,
    demangle: bool,
    failed: AtomicBool,
    printed: Mutex<Vec<String>>,
}

impl Diagnostics {
    /// For a link with these options.
    pub fn new(options: &Options) -> Diagnostics {
        Diagnostics {
            levels: options.warnings.clone(),
            fatal_warnings: options.fatal_warnings,
            quiet: options.no_warnings,
            color: options.color.unwrap_or(ColorChoice::Auto),
            demangle: options.demangle,
            failed: AtomicBool::new(false),
            printed: Mutex::new(Vec::new()),
        }
    }

    /// A warning of the given name (one of [`WARNINGS`]). The same text is printed once.
    pub fn warn(&self, name: &str, text: &str) {
        let level = self.levels.iter().rev().find(|(n, _)| n == name || n == "all").map(|(_, level)| *level);
        if level == Some(Level::Off) || (self.quiet && level.is_none()) {
            return;
        }
        if let Ok(mut printed) = self.printed.lock() {
            if printed.iter().any(|p| p == text) {
                return;
            }
            printed.push(text.to_owned());
        }
        if level == Some(Level::Error) || self.fatal_warnings {
            self.failed.store(true, Ordering::Relaxed);
            self.print("error", anstyle::AnsiColor::Red, &format!("{text} [{name}]"));
        } else {
            self.print("warning", anstyle::AnsiColor::Magenta, &format!("{text} [{name}]"));
        }
    }

    /// An error: every one that travels in `error` is a message of its own.
    pub fn error(&self, error: &Error) {
        self.failed.store(true, Ordering::Relaxed);
        for error in error.each() {
            self.print("error", anstyle::AnsiColor::Red, &error.text());
        }
    }

    /// A symbol as messages show it: as its author wrote it, or with `--no-demangle` as the object files have it.
    pub fn name(&self, symbol: &str) -> String {
        if self.demangle { llvm_lto::demangle(symbol) } else { symbol.to_owned() }
    }

    /// A tool's text with its mangled names shown as [`Diagnostics::name`] does.
    pub fn names(&self, text: &str) -> String {
        if self.demangle { demangle_names(text) } else { text.to_owned() }
    }

    /// Whether an error, or a warning that counts as one, has been printed.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// A line for those who asked to see what happens.
    pub fn verbose(&self, text: &str) {
        let mut stderr = std::io::stderr().lock();
        // Nobody is left to tell when stderr is closed.
        let _ = writeln!(stderr, "{text}");
    }

    fn print(&self, grade: &str, color: anstyle::AnsiColor, text: &str) {
        let choice = match self.color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        };
        let style = color.on_default().bold();
        let bold = anstyle::Style::new().bold();
        let mut stderr = anstream::AutoStream::new(std::io::stderr().lock(), choice);
        // One write, so that messages of parallel links do not mix within a line.
        let message = format!("{bold}warplink:{bold:#} {style}{grade}:{style:#} {text}\n");
        let _ = stderr.write_all(message.as_bytes());
    }
}

/// Replaces mangled names in a tool's text by what their author wrote.
fn demangle_names(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut word = String::new();
    let flush = |word: &mut String, result: &mut String| {
        if word.starts_with("_Z") || word.starts_with("_R") {
            result.push_str(&llvm_lto::demangle(word));
        } else {
            result.push_str(word);
        }
        word.clear();
    };
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || c == '_' || c == '$' || c == '.' {
            word.push(c);
        } else {
            flush(&mut word, &mut result);
            result.push(c);
        }
    }
    flush(&mut word, &mut result);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_text_are_demangled() {
        assert_eq!(demangle_names("Entry function '_Z1kPi' uses 7 bytes"), "Entry function 'k(int*)' uses 7 bytes");
        assert_eq!(demangle_names("plain text, no names."), "plain text, no names.");
    }
}
