//! The one error of this crate: what is wrong with the bytes. The caller knows the file, the member and the offset, and adds them.

use std::fmt;

/// What is wrong with the input, in lower case, without the name of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Error(pub &'static str);

/// `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Error {}

/// Gives a failed lookup or a foreign error our words.
pub(crate) trait OrError<T> {
    fn or_error(self, text: &'static str) -> Result<T>;
}

impl<T> OrError<T> for Option<T> {
    fn or_error(self, text: &'static str) -> Result<T> {
        self.ok_or(Error(text))
    }
}

impl<T, E> OrError<T> for std::result::Result<T, E> {
    fn or_error(self, text: &'static str) -> Result<T> {
        self.map_err(|_| Error(text))
    }
}
