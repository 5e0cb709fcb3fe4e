//! The type and the code of a failure that a stream reports.

use super::held::Held;

/// A failure within a stream, in the words of the server that reports it.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    kind: Held<64>,
    code: Held<32>,
}

impl Failure {
    /// Its type; `stream_error` if it has none.
    #[must_use]
    pub fn kind(&self) -> &str {
        word(&self.kind).unwrap_or("stream_error")
    }

    /// Its code.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        word(&self.code)
    }

    pub(super) fn set_kind(&mut self, text: &[u8]) {
        set(&mut self.kind, text);
    }

    pub(super) fn set_code(&mut self, text: &[u8]) {
        set(&mut self.code, text);
    }

    pub(super) fn clear(&mut self) {
        self.kind.clear();
        self.code.clear();
    }
}

/// Takes a word of printable ASCII over; any other text, or a longer one, is none.
fn set<const MAX: usize>(held: &mut Held<MAX>, text: &[u8]) {
    held.clear();
    let is_word = text.iter().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(byte));
    if !is_word || !held.push(text) {
        held.clear();
    }
}

fn word<const MAX: usize>(held: &Held<MAX>) -> Option<&str> {
    // LiteLLM writes `None` where it knows nothing.
    std::str::from_utf8(held.get()).ok().filter(|word| !matches!(*word, "" | "None"))
}
