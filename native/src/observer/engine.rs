//! What an inference engine says of a request, beside what was seen of its answer.

use super::Observer;

/// What the engine behind the server told at a request's end.
#[derive(Debug)]
pub struct EngineFacts {
    /// The engine gave the request up.
    pub aborted: bool,
    /// The values of the last fields of a `request` record, as [`crate::record::Scratch`] collects them.
    pub values: Vec<u8>,
}

impl Observer {
    /// The engine has told this of the request, which ends now.
    pub fn told_by_engine(&mut self, facts: EngineFacts) {
        self.engine = Some(Box::new(facts));
    }
}

/// Whether a chunk is an event with which OpenAI-compatible servers end a stream that fails, since its status is sent.
#[inline]
pub fn is_error_event(chunk: &[u8]) -> bool {
    match chunk.first() {
        Some(b'd') => chunk.strip_prefix(b"data:").is_some_and(is_error_object),
        Some(b'e') => chunk.strip_prefix(b"event:").is_some_and(|name| {
            let name = name.split(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default().trim_ascii();
            matches!(name, b"error" | b"response.failed")
        }),
        _ => false,
    }
}

/// Whether the first key of an object is `error`, and it has one.
#[inline]
fn is_error_object(data: &[u8]) -> bool {
    let Some(rest) = data.trim_ascii_start().strip_prefix(b"{") else { return false };
    let Some(rest) = rest.trim_ascii_start().strip_prefix(b"\"error\"") else { return false };
    let Some(value) = rest.trim_ascii_start().strip_prefix(b":") else { return false };
    !value.trim_ascii_start().starts_with(b"null")
}
