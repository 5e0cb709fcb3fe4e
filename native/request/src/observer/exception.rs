//! What a record says of the exception that ended its request.

use super::Observer;
use super::texts::push_text_within;
use queue::record::Scratch;

/// Tag and length before each text.
const TEXT_OVERHEAD_BYTES: usize = 5;

/// Type, message and stack of an exception.
#[derive(Debug)]
pub struct ExceptionTexts {
    pub kind: String,
    /// Empty: it is not recorded; so the stack.
    pub message: String,
    pub stacktrace: String,
}

impl ExceptionTexts {
    /// Gives up what can quote the request.
    pub fn withhold(&mut self) {
        self.message.clear();
        self.stacktrace.clear();
    }
}

impl Observer {
    /// The request is about to end with an exception.
    pub fn raise(&mut self, exception: ExceptionTexts) {
        self.exception = Some(Box::new(exception));
    }
}

/// Appends the texts, cut to the `room` that the other values have left, so that the record always fits (P5).
#[cold]
pub fn push_exception(scratch: &mut Scratch, exception: &ExceptionTexts, room: usize) {
    let mut room = room;
    for text in [&exception.kind, &exception.message, &exception.stacktrace] {
        let before = scratch.as_slice().len();
        push_text_within(scratch, text.as_bytes(), room.saturating_sub(TEXT_OVERHEAD_BYTES));
        room = room.saturating_sub(scratch.as_slice().len() - before);
    }
}
