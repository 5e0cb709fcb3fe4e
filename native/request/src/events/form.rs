//! How a body is divided, by its headers and by its first bytes; and the array of Gemini's streams, whose elements are the
//! events.

use super::walker::Walker;
use super::{EventReader, Kinds, MARK, Passed};
use crate::capture::Content;

/// How a body is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Not known before its first bytes.
    #[default]
    Unknown,
    /// Events of one of the forms below.
    Stream,
    /// Server-Sent Events.
    Events,
    /// A JSON document on each line.
    Lines,
    /// An array: its elements are events if the first one is, else its messages are parts.
    Array { is_known: bool },
    /// One document: its messages are its parts.
    Document,
    /// Anything else: each message is a part.
    Parts,
    /// The same, and what is in the parts cannot be seen.
    Compressed,
}

impl Form {
    /// The form that a body of this content has, as far as its headers say.
    #[must_use]
    pub const fn of(content: Content<'_>) -> Self {
        match content {
            Content::Stream => Self::Stream,
            Content::Encoded(..) => Self::Compressed,
            Content::Form | Content::Media([_, ..]) => Self::Parts,
            Content::Json | Content::Text | Content::Media([]) => Self::Unknown,
        }
    }

    /// The same by the body's first message, which has bytes.
    pub(super) fn of_first(self, bytes: &[u8]) -> Self {
        let text = bytes.trim_ascii_start();
        match (self, text.first()) {
            (Self::Stream, Some(b'{')) => return Self::Lines,
            (Self::Stream, Some(b'[')) => return Self::Array { is_known: false },
            (Self::Stream, Some(_)) => return Self::Events,
            (Self::Stream, None) => return Self::Stream,
            _ if are_events(bytes) => return Self::Events,
            _ => {}
        }
        match text.first() {
            Some(b'{') if ends_document_with_line(text) => Self::Lines,
            Some(b'{') => Self::Document,
            Some(b'[') => Self::Array { is_known: false },
            _ => Self::Parts,
        }
    }
}

/// Whether the bytes look like the beginning of Server-Sent Events.
#[inline]
#[must_use]
pub fn are_events(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
    match bytes.first() {
        Some(b'd') => bytes.starts_with(b"data:"),
        Some(b'e') => bytes.starts_with(b"event:") || bytes.starts_with(b"error:"),
        Some(b'i') => bytes.starts_with(b"id:"),
        Some(b'r') => bytes.starts_with(b"retry:"),
        Some(b':') => matches!(bytes.get(1), None | Some(b' ' | b'\n' | b'\r')),
        _ => false,
    }
}

/// Whether the bytes are documents of which each has a line: the first one, and another behind it.
#[must_use]
pub fn are_lines(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    let second = memchr::memchr(b'\n', text).map_or(&[][..], |end| text[end..].trim_ascii_start());
    text.starts_with(b"{") && second.starts_with(b"{") && ends_document_with_line(text)
}

/// Whether the first document of these bytes ends with its line.
fn ends_document_with_line(bytes: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b'\n', bytes) else { return false };
    let mut walker = Walker::default();
    walker.feed(&bytes[..end], 0);
    walker.is_done
}

impl EventReader {
    /// Reads a part of a body that is an array, or may be one until its first element has ended.
    pub(super) fn read_array(&mut self, bytes: &[u8], is_last: bool, mut is_known: bool, passed: &mut Passed) {
        let mut at = 0;
        while at < bytes.len() {
            if self.walker.depth == 0 {
                // Between two elements, or before the first one.
                let Some(next) = memchr::memchr(b'{', &bytes[at..]) else { break };
                at += next;
                self.walker.notes.begin_event();
            }
            at += self.walker.feed(&bytes[at..], at);
            if !self.walker.is_done {
                break;
            }
            if !is_known && !self.walker.seen.has_candidates() && !self.walker.seen.has_failed() {
                self.form = Form::Parts;
                break;
            }
            (is_known, self.form, self.waiting) = (true, Form::Array { is_known: true }, 0);
            self.count(self.walker.seen.event(), passed);
            self.walker.notes.end_event();
            self.begin_event();
        }
        if !is_known {
            // What cannot be known before the first element has ended is counted then.
            self.waiting += u32::from(!bytes.is_empty());
            if is_last || self.form == Form::Parts {
                passed.chunks += std::mem::take(&mut self.waiting);
                (passed.kinds, passed.first) = (Kinds::CONTENT, Kinds::CONTENT);
            }
        }
    }
}
