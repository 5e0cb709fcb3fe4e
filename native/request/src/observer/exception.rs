//! The exception that ended a request, as its record shows it.

use super::Observer;
use crate::fields::{Exception, Rest};

/// Type, message and stack of an exception.
#[derive(Debug)]
pub struct ExceptionTexts {
    pub kind: String,
    /// Empty: not recorded; the same for the stack.
    pub message: String,
    pub stacktrace: String,
}

impl ExceptionTexts {
    /// Removes the texts that can quote the request.
    pub fn withhold(&mut self) {
        self.message.clear();
        self.stacktrace.clear();
    }

    /// The fields, cut to the room of a record of at most so many bytes.
    #[must_use]
    pub fn within(&self, record_bytes: usize) -> Exception<'_> {
        let [kind, message, stacktrace] =
            [&self.kind, &self.message, &self.stacktrace].map(|text| Rest { text, record_bytes });
        Exception { kind, message, stacktrace }
    }
}

impl Observer {
    /// The request is about to end with an exception.
    pub fn raise(&mut self, exception: ExceptionTexts) {
        self.unusual = true;
        self.exception = Some(Box::new(exception));
    }
}
