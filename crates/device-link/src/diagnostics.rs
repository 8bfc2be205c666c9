//! What a person reads: errors, warnings and notes on stderr, each in one piece, named warnings that can be turned off or made errors.

pub mod catalogue;
pub mod json;

use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::cache::Warning;
use crate::error::Error;
use crate::options::{ColorChoice, DiagnosticsFormat, Level, Options};
use crate::progress::Progress;

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
    ("compile-choice", "a choice recorded at compile time was overruled or contradicts another one"),
    ("optimizer", "LLVM warned about the device code"),
    ("ptxas", "ptxas or nvlink warned about the device code"),
    ("debug-optimized", "an object compiled for device debugging makes all device code of the link unoptimised"),
    ("unused-option", "an option has no effect here"),
    ("foreign-directory", "the directory for temporary files or for the cache belongs to another user and is not used"),
    ("cache-damaged", "an entry of the cache is not what it should be; its code is made anew"),
    ("cache-remote", "the cache that several machines share does not answer, or not with what it should; the link goes on without it"),
];

/// Prints messages and remembers whether one of them must fail the link.
pub struct Diagnostics {
    levels: Vec<(String, Level)>,
    fatal_warnings: bool,
    quiet: bool,
    color: ColorChoice,
    format: DiagnosticsFormat,
    demangle: bool,
    failed: AtomicBool,
    printed: Mutex<Vec<(String, String)>>,
    remarks: Mutex<HashSet<String>>,
    recorded: Mutex<Option<Vec<Warning>>>,
    progress: Arc<Progress>,
}

impl Diagnostics {
    /// For a link with these options.
    pub fn new(options: &Options) -> Diagnostics {
        Diagnostics {
            levels: options.warnings.clone(),
            fatal_warnings: options.fatal_warnings,
            quiet: options.no_warnings,
            color: options.color.unwrap_or(ColorChoice::Auto),
            format: options.diagnostics,
            demangle: options.demangle,
            failed: AtomicBool::new(false),
            printed: Mutex::new(Vec::new()),
            remarks: Mutex::default(),
            recorded: Mutex::new(None),
            progress: Arc::new(Progress::new(options)),
        }
    }

    /// From here on, warnings are also kept as they were given, whether or not they are shown: another link, which takes the result from
    /// the cache, may show them.
    pub fn record(&self) {
        if let Ok(mut recorded) = self.recorded.lock() {
            *recorded = Some(Vec::new());
        }
    }

    /// The warnings since [`Diagnostics::record`]; none are kept from here on.
    pub fn recorded(&self) -> Vec<Warning> {
        self.recorded.lock().ok().and_then(|mut recorded| recorded.take()).unwrap_or_default()
    }

    /// A warning of the given name (one of [`WARNINGS`]). The same text is printed once.
    pub fn warn(&self, name: &str, text: &str) {
        // What is wrong with this machine's directories or with a cache is over once it has been said.
        if !is_of_place(name)
            && let Ok(mut recorded) = self.recorded.lock()
            && let Some(recorded) = recorded.as_mut()
        {
            let warning = Warning { name: name.to_owned(), text: text.to_owned() };
            if !recorded.contains(&warning) {
                recorded.push(warning);
            }
        }
        // What is said of one warning counts for more than what is said of all, in whatever order, as `-Werror -Wno-x` does for compilers.
        let said_of = |name: &str| self.levels.iter().rev().find(|(n, _)| n == name).map(|(_, level)| *level);
        let level = said_of(name).or_else(|| said_of("all"));
        if level == Some(Level::Off) || (self.quiet && level.is_none()) {
            return;
        }
        if let Ok(mut printed) = self.printed.lock() {
            if printed.iter().any(|(_, p)| p == text) {
                return;
            }
            printed.push((name.to_owned(), text.to_owned()));
        }
        // It is nothing wrong with the link: only who asks for an error by name gets one.
        if level == Some(Level::Error) || self.fatal_warnings && !is_of_place(name) {
            self.failed.store(true, Ordering::Relaxed);
            self.say("error", anstyle::AnsiColor::Red, Some(name), text);
        } else {
            self.say("warning", anstyle::AnsiColor::Magenta, Some(name), text);
        }
    }

    /// The warnings so far: name and text.
    pub fn warned(&self) -> Vec<(String, String)> {
        self.printed.lock().map(|printed| printed.clone()).unwrap_or_default()
    }

    /// A remark of the optimiser that somebody asked for. The same text is printed once.
    pub fn remark(&self, text: &str) {
        if let Ok(mut printed) = self.remarks.lock()
            && printed.insert(text.to_owned())
        {
            self.print("remark", anstyle::AnsiColor::Blue, text);
        }
    }

    /// An error: every one that travels in `error` is a message of its own.
    pub fn error(&self, error: &Error) {
        self.failed.store(true, Ordering::Relaxed);
        for error in error.each() {
            self.say("error", anstyle::AnsiColor::Red, error.code(), &error.text());
        }
    }

    /// A symbol as messages show it: as its author wrote it, or with `--no-demangle` as the object files have it.
    pub fn name(&self, symbol: &str) -> String {
        if self.demangle { crate::names::demangle(symbol) } else { symbol.to_owned() }
    }

    /// A tool's text with its mangled names shown as [`Diagnostics::name`] does.
    pub fn names(&self, text: &str) -> String {
        if self.demangle { demangle_names(text) } else { text.to_owned() }
    }

    /// Whether an error, or a warning that counts as one, has been printed.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// A line of ours that somebody asked for.
    pub fn note(&self, text: &str) {
        if self.format == DiagnosticsFormat::Json {
            return self.line(&json::line("note", None, text));
        }
        // One write: see `print`. Nobody is left to tell when stderr is closed.
        self.progress.hidden(|| {
            let _ = std::io::stderr().lock().write_all(format!("warplink: {text}\n").as_bytes());
        });
    }

    /// The line on the terminal, which must be away where something else is printed.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// A line for those who asked to see what happens.
    pub fn verbose(&self, text: &str) {
        self.progress.hidden(|| {
            let mut stderr = std::io::stderr().lock();
            // Nobody is left to tell when stderr is closed.
            let _ = writeln!(stderr, "{text}");
        });
    }

    /// A message whose kind has a name. People are shown the name of a warning, with which it can be turned off.
    fn say(&self, grade: &str, color: anstyle::AnsiColor, name: Option<&str>, text: &str) {
        match (self.format, name.filter(|name| catalogue::is_warning(name))) {
            (DiagnosticsFormat::Json, _) => self.line(&json::line(grade, name, text)),
            (DiagnosticsFormat::Text, Some(name)) => self.print(grade, color, &format!("{text} [{name}]")),
            (DiagnosticsFormat::Text, None) => self.print(grade, color, text),
        }
    }

    /// One write, so that lines of parallel links do not mix.
    fn line(&self, line: &str) {
        self.progress.hidden(|| {
            // Nobody is left to tell when stderr is closed.
            let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
        });
    }

    fn print(&self, grade: &str, color: anstyle::AnsiColor, text: &str) {
        if self.format == DiagnosticsFormat::Json {
            return self.line(&json::line(grade, None, text));
        }
        let choice = match self.color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        };
        let style = color.on_default().bold();
        let bold = anstyle::Style::new().bold();
        // One write, so that messages of parallel links do not mix within a line.
        let message = format!("{bold}warplink:{bold:#} {style}{grade}:{style:#} {text}\n");
        self.progress.hidden(|| {
            let mut stderr = anstream::AutoStream::new(std::io::stderr().lock(), choice);
            let _ = stderr.write_all(message.as_bytes());
        });
    }
}

/// Whether a warning is about a cache or a directory: nothing is wrong with the link, and the next one need not be told.
fn is_of_place(name: &str) -> bool {
    matches!(name, "cache-damaged" | "cache-remote" | "foreign-directory")
}

/// Replaces mangled names in a tool's text by what their author wrote.
fn demangle_names(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut word = String::new();
    let flush = |word: &mut String, result: &mut String| {
        result.push_str(&crate::names::demangle(word));
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
    fn recorded_warnings_are_those_that_were_given() {
        let mut options = crate::cache::tests::line(&["--warplink-warn=no-icf"], &[]);
        options.no_warnings = true;
        let diagnostics = Diagnostics::new(&options);
        diagnostics.warn("ptxas", "before");
        diagnostics.record();
        for (name, text) in [("icf", "off"), ("ptxas", "quiet"), ("icf", "off"), ("cache-damaged", "not of the code")] {
            diagnostics.warn(name, text);
        }
        let recorded: Vec<(String, String)> = diagnostics.recorded().into_iter().map(|warning| (warning.name, warning.text)).collect();
        assert_eq!(recorded, [("icf", "off"), ("ptxas", "quiet")].map(|(name, text)| (name.to_owned(), text.to_owned())));
        diagnostics.warn("ptxas", "after");
        assert!(diagnostics.recorded().is_empty());
    }

    #[test]
    fn names_in_text_are_demangled() {
        assert_eq!(demangle_names("Entry function '_Z1kPi' uses 7 bytes"), "Entry function 'k(int*)' uses 7 bytes");
        assert_eq!(demangle_names("Function properties for sqr__part__0a46aeb6"), "Function properties for sqr");
        assert_eq!(demangle_names("plain text, no names."), "plain text, no names.");
    }
}
