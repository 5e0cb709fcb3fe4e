//! What a stream says before its content, kept for the listener: id, model and the tokens of the input stand there in
//! some APIs, and the end of a long stream has lost them.
//!
//! Each event is kept as a line `data: {…}`: long strings are cut, and what stands deeper than facts do is left out.

/// Deepest level that is kept: `response.usage.input_tokens_details.cached_tokens`.
const LEVELS: u32 = 4;
/// Most bytes of one string.
const TEXT: usize = 160;
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
        let number = choice.to_string();
        let line =
            [&br#"data: {"choices":[{"index":"#[..], number.as_bytes(), br#","finish_reason":""#, reason, b"\"}]}\n"]
                .concat();
        if self.bytes.len() + line.len() <= self.limit {
            self.bytes.extend_from_slice(&line);
        }
    }

    #[inline]
    pub fn structure(&mut self, depth: u32, byte: u8) {
        if !self.is_on {
            return;
        }
        let is_edge = depth == LEVELS + 1 && matches!(byte, b'{' | b'[' | b'}' | b']');
        if depth <= LEVELS || is_edge {
            self.push(&[byte]);
        }
    }

    #[inline]
    pub fn begin_text(&mut self, depth: u32) {
        self.text = 0;
        self.word(depth, b"\"");
    }

    #[inline]
    pub fn text(&mut self, depth: u32, bytes: &[u8]) {
        // Room for what follows a backslash, so that no escape is cut.
        if !self.is_on || self.text > TEXT {
            return;
        }
        let kept = &bytes[..bytes.len().min(TEXT + 1 - self.text)];
        self.text += bytes.len();
        self.word(depth, kept);
    }

    #[inline]
    pub fn end_text(&mut self, depth: u32) {
        self.word(depth, b"\"");
    }

    #[inline]
    pub fn word(&mut self, depth: u32, bytes: &[u8]) {
        if self.is_on && depth <= LEVELS {
            self.push(bytes);
        }
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        self.is_on &= self.bytes.len() + bytes.len() <= self.limit;
        if self.is_on {
            self.bytes.extend_from_slice(bytes);
        }
    }
}
