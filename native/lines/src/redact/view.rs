//! A text as a reader sees it, and the place of each of its bytes in the line.
//!
//! Escapes can hide a secret from a search: later readers see an at sign for `\u0040` and `%40`. So a text is decoded
//! and searched again, round by round, and the matches are mapped back to the line.

use crate::json::escape::{self, escape as escape_at};
use std::borrow::Cow;
use std::ops::Range;

/// Bytes, and their places in the line.
pub struct View<'a> {
    pub bytes: Cow<'a, [u8]>,
    places: Places,
    /// How many JSON strings are around it: how often a replacement must be escaped.
    pub quoting: usize,
}

enum Places {
    /// The byte at `i` is at `i` plus this.
    Shifted(usize),
    /// For each byte the beginning of its spelling, and the end of the last one's.
    Each(Vec<u32>),
}

impl<'a> View<'a> {
    /// The line itself.
    pub fn of_line(line: &'a [u8]) -> Self {
        Self { bytes: Cow::Borrowed(line), places: Places::Shifted(0), quoting: 0 }
    }

    /// A part of it, in the spelling of this view.
    pub fn part(&self, range: Range<usize>) -> View<'_> {
        let places = match &self.places {
            Places::Shifted(by) => Places::Shifted(by + range.start),
            Places::Each(places) => Places::Each(places[range.start..=range.end].to_vec()),
        };
        View { bytes: Cow::Borrowed(&self.bytes[range]), places, quoting: self.quoting }
    }

    /// The text of a JSON string; `range` is between the quotes.
    pub fn string(&self, range: Range<usize>) -> View<'_> {
        let mut raw = self.part(range);
        raw.quoting += 1;
        match raw.resolved(false) {
            Some((bytes, places)) => View { bytes: bytes.into(), places, quoting: raw.quoting },
            None => raw,
        }
    }

    /// The text with one more layer of JSON's escapes and of percent-encoding resolved; None where it has neither.
    pub fn decoded(&self) -> Option<View<'static>> {
        let (bytes, places) = self.resolved(true)?;
        let quoting = self.quoting + usize::from(self.bytes.contains(&b'\\'));
        Some(View { bytes: bytes.into(), places, quoting })
    }

    /// The place in the line of the text at `range`, in whole escapes and whole characters.
    pub fn spelled(&self, range: Range<usize>) -> Range<usize> {
        let is_inside = |at: usize| self.bytes.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
        let (mut start, mut end) = (range.start, range.end);
        while start > 0 && is_inside(start) {
            start -= 1;
        }
        while is_inside(end) {
            end += 1;
        }
        match &self.places {
            Places::Shifted(by) => start + by..end + by,
            Places::Each(places) => {
                let last = places[end.max(1) - 1];
                // One escape can give several bytes.
                let after = places[end..].iter().find(|place| **place > last);
                places[start] as usize..after.map_or(last as usize, |place| *place as usize)
            }
        }
    }

    fn place(&self, at: usize) -> u32 {
        match &self.places {
            Places::Shifted(by) => (at + by) as u32,
            Places::Each(places) => places[at],
        }
    }

    fn resolved(&self, percent: bool) -> Option<(Vec<u8>, Places)> {
        let bytes = &*self.bytes;
        let is_coded = |byte: &u8| *byte == b'\\' || (percent && *byte == b'%');
        let mut at = bytes.iter().position(is_coded)?;
        let mut decoded = bytes[..at].to_vec();
        let mut places: Vec<u32> = (0..at).map(|at| self.place(at)).collect();
        let mut buffer = [0; 4];
        while let Some(&byte) = bytes.get(at) {
            let (text, taken) = match byte {
                b'\\' => escaped(&bytes[at..], &mut buffer),
                b'%' if percent => percent_encoded(&bytes[at..], &mut buffer),
                _ => (&bytes[at..=at], 1),
            };
            decoded.extend_from_slice(text);
            places.extend(std::iter::repeat_n(self.place(at), text.len()));
            at += taken;
        }
        places.push(self.place(bytes.len()));
        (*decoded != *bytes).then_some((decoded, Places::Each(places)))
    }
}

/// The character of the escape at the beginning of `bytes`, and its length; the backslash itself if it is none.
fn escaped<'a>(bytes: &'a [u8], buffer: &'a mut [u8; 4]) -> (&'a [u8], usize) {
    match escape_at(bytes) {
        (_, 1) => (&bytes[..1], 1),
        (character, taken) => (character.encode_utf8(buffer).as_bytes(), taken),
    }
}

fn percent_encoded<'a>(bytes: &'a [u8], buffer: &'a mut [u8; 4]) -> (&'a [u8], usize) {
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (Some(high), Some(low)) = (digit(1), digit(2)) else { return (&bytes[..1], 1) };
    buffer[0] = (high << 4 | low) as u8;
    (&buffer[..1], 3)
}

// The replacements in a line: collected in any order, applied in one pass.

struct Edit {
    range: Range<usize>,
    text: Vec<u8>,
    /// Replaces a whole value, quotes included.
    is_value: bool,
}

/// Replacements in one line.
#[derive(Default)]
pub struct Edits {
    all: Vec<Edit>,
    /// Keys that were changed, so that no two become alike.
    keys: usize,
}

impl Edits {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn truncate(&mut self, len: usize) {
        self.all.truncate(len);
    }

    pub fn clear(&mut self) {
        self.all.clear();
        self.keys = 0;
    }

    /// Replace a whole value, within `quoting` strings, by a string.
    pub fn value(&mut self, range: Range<usize>, text: &str, quoting: usize) {
        let mut quoted = Vec::with_capacity(text.len() + 2);
        escape::push_string(&mut quoted, text.as_bytes());
        self.all.push(Edit { range, text: escaped_times(quoted, quoting), is_value: true });
    }

    /// Replace a part of a text, within `quoting` strings.
    pub fn text(&mut self, range: Range<usize>, text: &str, quoting: usize) {
        self.all.push(Edit { range, text: escaped_times(text.as_bytes().to_vec(), quoting), is_value: false });
    }

    /// As `text`, in a key: the second one and those after it get numbers.
    pub fn key(&mut self, range: Range<usize>, text: &str, quoting: usize) {
        self.keys += 1;
        if self.keys == 1 {
            return self.text(range, text, quoting);
        }
        self.text(range, &format!("{text}#{}", self.keys), quoting);
    }

    /// Append `line` with all replacements to `out`, and forget them. If several overlap, the first one replaces all of
    /// them, and a value takes precedence over a text in it.
    pub fn apply(&mut self, line: &[u8], out: &mut Vec<u8>) {
        self.all.sort_by(|a, b| {
            let order = (a.range.start, !a.is_value, b.range.end);
            order.cmp(&(b.range.start, !b.is_value, a.range.end))
        });
        let mut end = 0;
        for edit in &self.all {
            if edit.range.start >= end {
                out.extend_from_slice(&line[end..edit.range.start]);
                out.extend_from_slice(&edit.text);
            }
            end = end.max(edit.range.end);
        }
        out.extend_from_slice(&line[end..]);
        self.clear();
    }
}

/// Escapes a text that is in a string of a string, and so on.
fn escaped_times(text: Vec<u8>, times: usize) -> Vec<u8> {
    (0..times).fold(text, |text, _| {
        let mut quoted = Vec::with_capacity(text.len() + 2);
        escape::push_string(&mut quoted, &text);
        quoted[1..quoted.len() - 1].to_vec()
    })
}
