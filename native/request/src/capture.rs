//! Capped capture of a body: its first and last bytes, whatever its length (P12).
//!
//! It only copies; the listener interprets the bytes (see `extract`).

pub use media::{Encoded, Encoding, Media, MediaFacts, encoded};
use packed::PackedStream;
use queue::record::{Body, BodyKind, BodyText, Scratch};
pub use settings::{Content, Plain, TextCapture, TextLimit};

mod media;
pub mod packed;
mod settings;

/// The captured part of one body, filled as the body passes.
#[derive(Debug)]
pub enum Captured {
    Ends(Capture),
    Stream(PackedStream),
    Media(Box<Media>),
}

impl Captured {
    /// Takes note of the next bytes of the body.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Ends(capture) => capture.push(bytes),
            Self::Stream(stream) => stream.push(bytes),
            Self::Media(media) => media.push(bytes),
        }
    }

    /// Whether it keeps parts of a stream that are like an earlier one but for their text.
    #[must_use]
    pub fn keeps_usual_parts(&self) -> bool {
        !matches!(self, Self::Ends(capture) if capture.kind == BodyKind::Stream && capture.text == BodyText::Withheld)
    }

    /// Takes note of an event of a stream that the kept end may lose: it stands for the beginning then.
    pub fn note(&mut self, event: &[u8]) {
        if let Self::Ends(capture) = self {
            capture.noted.extend_from_slice(event);
        }
    }

    /// Appends what was kept as one value; absent if no byte came.
    pub fn push_value(&mut self, scratch: &mut Scratch) {
        match self {
            Self::Ends(capture) => capture.push_value(scratch),
            Self::Stream(stream) => stream.push_value(scratch),
            Self::Media(media) => media.push_value(scratch),
        }
    }
}

/// Head and tail of one body, filled as the body passes.
#[derive(Debug)]
pub struct Capture {
    kind: BodyKind,
    text: BodyText,
    head_limit: usize,
    tail_limit: usize,
    head: Vec<u8>,
    /// Circular once it is full: `tail_at` is where the next byte goes, which is also the oldest one.
    tail: Vec<u8>,
    tail_at: usize,
    /// Bytes that were pushed out of the tail.
    missing: u64,
    /// What stands for the missing head of a stream.
    noted: Vec<u8>,
    /// What stands before the head of a compressed body.
    mark: Option<[u8; 6]>,
}

impl Capture {
    /// Makes a capture; a limit of 0 leaves that end out. Allocates nothing until bytes come.
    #[must_use]
    pub fn new(kind: BodyKind, head_limit: usize, tail_limit: usize) -> Self {
        let text = BodyText::Withheld;
        let (head, tail, noted) = (Vec::new(), Vec::new(), Vec::new());
        Self { kind, text, head_limit, tail_limit, head, tail, tail_at: 0, missing: 0, noted, mark: None }
    }

    /// Makes a capture of a compressed body, by its first bytes; as many of its text may be written.
    #[must_use]
    pub fn encoded(within: BodyKind, encoding: Encoding, limit: usize) -> Self {
        let kind = if within.is_request() { BodyKind::RequestEncoded } else { BodyKind::ResponseEncoded };
        Self { mark: Some(media::mark(within, encoding, limit)), ..Self::new(kind, limit, 0) }
    }

    /// Sets what may be written of its text; without this, nothing may.
    #[must_use]
    pub(crate) fn with_text(self, text: BodyText) -> Self {
        Self { text, ..self }
    }

    /// Takes note of the next bytes of the body.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        let room = self.head_limit - self.head.len();
        if room == 0 {
            return self.push_tail(bytes);
        }
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        if self.head.is_empty() {
            // Most bodies come in one piece: exactly its room is allocated, at once.
            self.head = head.to_vec();
        } else {
            self.head.extend_from_slice(head);
        }
        if !rest.is_empty() {
            self.fill_tail(rest);
        }
    }

    #[inline]
    fn push_tail(&mut self, bytes: &[u8]) {
        if self.tail.len() == self.tail_limit && bytes.len() <= self.tail_limit {
            self.replace_oldest(bytes);
        } else {
            self.fill_tail(bytes);
        }
    }

    #[inline]
    fn replace_oldest(&mut self, bytes: &[u8]) {
        let (until_end, rest) = bytes.split_at(bytes.len().min(self.tail_limit - self.tail_at));
        self.tail[self.tail_at..][..until_end.len()].copy_from_slice(until_end);
        self.tail_at += until_end.len();
        if self.tail_at == self.tail_limit {
            self.tail[..rest.len()].copy_from_slice(rest);
            self.tail_at = rest.len();
        }
        self.missing += bytes.len() as u64;
    }

    #[inline(never)]
    fn fill_tail(&mut self, bytes: &[u8]) {
        let skipped = bytes.len().saturating_sub(self.tail_limit);
        self.missing += skipped as u64;
        let bytes = &bytes[skipped..];
        let room = self.tail_limit - self.tail.len();
        let (fresh, over) = bytes.split_at(room.min(bytes.len()));
        if !self.tail.is_empty() {
            // A body in several pieces, such as a stream, grows once.
            self.tail.reserve_exact(room);
        }
        self.tail.extend_from_slice(fresh);
        if !over.is_empty() {
            self.replace_oldest(over);
        }
    }

    /// Appends the capture as one value; absent if no byte came.
    pub fn push_value(&mut self, scratch: &mut Scratch) {
        if self.head.is_empty() && self.tail.is_empty() {
            return scratch.push_absent();
        }
        let complete = self.missing == 0;
        if !self.tail.is_empty() {
            self.tail.rotate_left(self.tail_at);
            self.tail_at = 0;
            if complete {
                self.head.append(&mut self.tail);
            }
        }
        if !complete && self.head.is_empty() {
            self.head = std::mem::take(&mut self.noted);
        }
        if let Some(mark) = self.mark {
            self.head.splice(..0, mark);
        }
        scratch.push_body(&Body { kind: self.kind, head: &self.head, tail: &self.tail, complete, text: self.text });
    }
}
