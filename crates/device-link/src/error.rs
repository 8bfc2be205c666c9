//! The one error type of the link: a stack of messages, outermost first, plus the exit code of a child where that is what must be passed on.
//!
//! Nobody matches on kinds of errors here; what counts is the text. Several errors found in one go travel together ([`Error::all`]), so
//! that one run shows all of them.

use std::fmt;

/// Why a link cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Outermost context first, cause last.
    messages: Vec<String>,
    exit_code: Option<i32>,
    /// One of [`crate::diagnostics::catalogue::ERRORS`].
    code: Option<&'static str>,
    others: Vec<Error>,
}

/// What everything in this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with one message: lower case, no full stop, the object first.
    pub fn new(message: impl Into<String>) -> Error {
        Error { messages: vec![message.into()], exit_code: None, code: None, others: Vec::new() }
    }

    /// Many errors as one, or `Ok` when there are none. The first one gives the exit code.
    pub fn all(errors: impl IntoIterator<Item = Error>) -> Result<()> {
        let mut errors = errors.into_iter();
        let Some(mut first) = errors.next() else { return Ok(()) };
        first.others.extend(errors);
        Err(first)
    }

    /// The same error with the exit code that the program must end with (the host linker's own).
    pub fn with_exit_code(mut self, code: i32) -> Error {
        self.exit_code = Some(code);
        self
    }

    /// The same error with the name under which docs/diagnostics.md explains its kind.
    pub fn named(mut self, code: &'static str) -> Error {
        self.code = Some(code);
        self
    }

    /// The name of its kind, where it has one.
    pub fn code(&self) -> Option<&'static str> {
        self.code
    }

    /// The exit code to end with, if not the usual 1.
    pub fn exit_code(&self) -> Option<i32> {
        self.exit_code
    }

    /// The same error, seen from further out.
    pub fn wrap(mut self, message: impl Into<String>) -> Error {
        self.messages.insert(0, message.into());
        self
    }

    /// Every error that travels in this one, each to be printed as a message of its own.
    pub fn each(&self) -> Vec<&Error> {
        let mut all = vec![self];
        for other in &self.others {
            all.extend(other.each());
        }
        all
    }

    /// This error's own text, without the others that travel with it.
    pub fn text(&self) -> String {
        self.messages.join(": ")
    }
}

/// The text of every error, one per line.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.each().into_iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&error.text())?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<offload_object::Error> for Error {
    fn from(error: offload_object::Error) -> Error {
        Error::new(error.0)
    }
}

/// Adds what was being done to an error, or to the absence of a value.
pub trait Context<T> {
    /// `message` is only built when there is an error.
    fn context<M: Into<String>>(self, message: impl FnOnce() -> M) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context<M: Into<String>>(self, message: impl FnOnce() -> M) -> Result<T> {
        self.map_err(|error| error.wrap(message()))
    }
}

impl<T> Context<T> for std::io::Result<T> {
    fn context<M: Into<String>>(self, message: impl FnOnce() -> M) -> Result<T> {
        self.map_err(|error| Error::new(io_text(&error)).wrap(message()))
    }
}

impl<T> Context<T> for offload_object::Result<T> {
    fn context<M: Into<String>>(self, message: impl FnOnce() -> M) -> Result<T> {
        self.map_err(|error| Error::from(error).wrap(message()))
    }
}

impl<T> Context<T> for std::result::Result<T, String> {
    fn context<M: Into<String>>(self, message: impl FnOnce() -> M) -> Result<T> {
        self.map_err(|text| Error::new(text).wrap(message()))
    }
}

impl<T> Context<T> for Option<T> {
    fn context<M: Into<String>>(self, message: impl FnOnce() -> M) -> Result<T> {
        self.ok_or_else(|| Error::new(message()))
    }
}

/// Rust prints `No such file or directory (os error 2)`; users know the text without the number and in lower case.
pub fn io_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// The system gives no thread: it has no word of its own for that.
pub fn no_thread(error: &std::io::Error) -> Error {
    Error::new(format!("cannot start a thread: {} (ulimit -u, and ulimit -v for its stack)", io_text(error)))
}

/// Returns an [`Error`] made with `format!`.
macro_rules! bail {
    ($($arg:tt)*) => {
        return Err($crate::error::Error::new(format!($($arg)*)))
    };
}
pub(crate) use bail;

#[cfg(test)]
mod tests {
    use super::*;

    fn fails() -> Result<()> {
        bail!("unknown magic {:#x}", 7)
    }

    #[test]
    fn messages_print_outermost_first() {
        let error = fails().context(|| "libk.a(reduce.o)").context(|| "a.out");
        assert_eq!(error.unwrap_err().to_string(), "a.out: libk.a(reduce.o): unknown magic 0x7");
    }

    #[test]
    fn io_errors_lose_number_and_capital() {
        let error = std::fs::read("no/such/file").context(|| "no/such/file").unwrap_err();
        assert_eq!(error.to_string(), "no/such/file: no such file or directory");
    }

    #[test]
    fn options_and_text_errors_take_context() {
        assert_eq!(None::<u8>.context(|| "no output").unwrap_err().to_string(), "no output");
        let text: std::result::Result<(), String> = Err("expected 'define'".into());
        assert_eq!(text.context(|| "k.ll").unwrap_err().to_string(), "k.ll: expected 'define'");
    }

    #[test]
    fn many_errors_travel_as_one() {
        assert_eq!(Error::all([]), Ok(()));
        let nested = Error::all([Error::new("b"), Error::new("c")]).unwrap_err();
        let all = Error::all([Error::new("a").with_exit_code(3), nested]).unwrap_err();
        assert_eq!(all.to_string(), "a\nb\nc");
        assert_eq!(all.each().len(), 3);
        assert_eq!(all.exit_code(), Some(3));
    }
}
