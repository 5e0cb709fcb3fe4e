//! What went wrong, in words.

use std::fmt::{Display, Formatter, Result};

/// What went wrong: a sentence that names the parameter and its value, one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl Display for Error {
    fn fmt(&self, to: &mut Formatter<'_>) -> Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<String> for Error {
    fn from(sentence: String) -> Self {
        Self(sentence)
    }
}

impl From<Error> for String {
    fn from(error: Error) -> Self {
        error.0
    }
}
