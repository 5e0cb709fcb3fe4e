//! What a stream says before its content, kept for the listener: id, model and the tokens of the input stand there in
//! some APIs, and the end of a long stream has lost them.
//!
//! Each event is kept as a line `data: {…}`: long strings are cut, and what stands deeper than facts do is left out.

use std::ops::Range;

/// Deepest level that is kept: `response.usage.input_tokens_details.cached_tokens`.
pub const LEVELS: u32 = 4;
/// Most bytes of one string.
pub const TEXT: usize = 160;
/// Bytes that the beginning of most streams needs.
const USUAL: usize = 512;
/// The last choice whose reason is noted: the listener reads no more.
const MAX_CHOICE: u8 = 15;

/// The notes of one stream.
#[derive(Debug, Default)]
pub struct Notes {
    bytes: Vec<u8>,
    limit: usize,
    is_on: bool,
    /// Where in the part that is read what is kept begins, if not later.
    from: usize,
    /// Bytes of the string that is kept piece by piece.
    text: usize,
}

impl Notes {
    /// Takes up to `limit` bytes; 0: none.
    pub fn new(limit: usize) -> Self {
        Self { limit, is_on: limit > 0, ..Self::default() }
    }

    /// The content begins: nothing is noted any more.
    #[inline]
    pub fn stop(&mut self) {
        self.is_on = false;
    }

    /// What was noted.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn begin_event(&mut self) {
        if self.is_on && self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(self.limit.min(USUAL));
        }
        self.push(b"data: ");
    }

    pub fn end_event(&mut self) {
        self.push(b"\n");
    }

    /// A choice has ended, behind the beginning: the end of a stream of many choices may have lost that.
    pub fn reason(&mut self, choice: u8, reason: &[u8]) {
        let is_word = reason.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        if self.is_on || choice > MAX_CHOICE || !is_word || reason.is_empty() {
            return;
        }
        let number = [b'0' + choice / 10, b'0' + choice % 10];
        let number = &number[usize::from(choice < 10)..];
        let line = [&br#"data: {"choices":[{"index":"#[..], number, br#","finish_reason":""#, reason, b"\"}]}\n"];
        let length: usize = line.iter().map(|part| part.len()).sum();
        if self.bytes.len() + length <= self.limit {
            line.iter().for_each(|part| self.bytes.extend_from_slice(part));
        }
    }

    /// What follows in this part is kept, from `at` on.
    #[inline]
    pub fn keep_from(&mut self, at: usize) {
        self.from = at;
    }

    /// What follows is not kept.
    #[inline]
    pub fn keep_until(&mut self, bytes: &[u8], at: usize) {
        if self.is_on
            && let Some(kept) = bytes.get(self.from..at)
        {
            self.push(kept);
        }
        self.from = usize::MAX;
    }

    /// This is not kept.
    #[inline]
    pub fn leave_out(&mut self, bytes: &[u8], part: Range<usize>) {
        if self.from <= part.start {
            self.keep_until(bytes, part.start);
            self.from = part.end;
        }
    }

    /// A string begins at `at` that is kept piece by piece.
    pub fn begin_text(&mut self, bytes: &[u8], at: usize) {
        self.keep_until(bytes, at);
        self.text = 0;
    }

    /// The next piece of it: an escape, which is not cut, or what stands between them.
    pub fn text(&mut self, depth: u32, bytes: &[u8]) {
        if depth <= LEVELS && self.text <= TEXT {
            self.push(&bytes[..bytes.len().min(TEXT + 2 - self.text)]);
            self.text += bytes.len();
        }
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        if self.is_on {
            let kept = bytes.len().min(self.limit - self.bytes.len());
            self.is_on = kept == bytes.len();
            self.bytes.extend_from_slice(&bytes[..kept]);
        }
    }
}
