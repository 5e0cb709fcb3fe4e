//! The shape of a stream's usual event: what stands before its text and behind it.
//!
//! Nearly all events of a stream differ in one text and in some numbers. An event that agrees with the last one in all
//! the rest has the same structure, so it is the same kind of event, and its JSON need not be walked.

use super::seen::Kinds;
use crate::block::{ends_plain, plain_length};
use crate::capture::packed::common_prefix;

/// Most bytes before the text, and behind it.
const BEFORE: usize = 512;
const BEHIND: usize = 256;

/// The shape of an event that adds one text to the answer; none at first, which no event has.
#[derive(Debug)]
pub struct Template {
    /// What stands before the text, and behind it.
    bytes: Vec<u8>,
    before: usize,
    /// The last 8 bytes of what stands behind it, or all; with a mask for them.
    end: u64,
    end_mask: u64,
    pub kinds: Kinds,
}

impl Default for Template {
    fn default() -> Self {
        Self { bytes: Vec::new(), before: 0, end: 1, end_mask: 0, kinds: Kinds::default() }
    }
}

impl Template {
    /// Takes the shape of `event`, whose text stands at `text`.
    pub fn learn(&mut self, event: &[u8], text: std::ops::Range<usize>, kinds: Kinds) {
        let (Some(before), Some(behind)) = (event.get(..text.start), event.get(text.end..)) else { return };
        self.bytes.clear();
        (self.before, self.end, self.end_mask) = (0, 1, 0);
        if before.len() <= BEFORE && behind.len() <= BEHIND {
            self.bytes.reserve_exact(before.len() + behind.len());
            self.bytes.extend_from_slice(before);
            self.bytes.extend_from_slice(behind);
            (self.before, self.kinds) = (before.len(), kinds);
            self.end_mask = u64::MAX << (8 * (8 - behind.len().min(8)));
            self.end = event.last_chunk().map_or(0, |end| u64::from_le_bytes(*end)) & self.end_mask;
        }
    }

    /// Whether `bytes` are one event that differs in nothing but its text.
    #[inline(always)]
    pub fn is_like(&self, bytes: &[u8]) -> bool {
        let Some(length) = bytes.len().checked_sub(self.bytes.len()) else { return false };
        // The end first: most events of another shape differ there.
        if length == 0 || bytes.last_chunk().map(|end| u64::from_le_bytes(*end) & self.end_mask) != Some(self.end) {
            return false;
        }
        let (before, behind) = self.bytes.split_at(self.before);
        let (begin, rest) = bytes.split_at(before.len());
        (behind.len() <= 8 || rest[length..] == *behind)
            && begin == before
            && (ends_plain(&bytes[..before.len() + length], length) || is_text(rest, length))
    }

    /// The length of the event that `bytes` begin with, if it is whole, has this shape and a text.
    pub fn event(&self, bytes: &[u8]) -> Option<usize> {
        if self.bytes.is_empty() {
            return None;
        }
        let (before, behind) = self.bytes.split_at(self.before);
        let start = same_but_numbers(before, bytes)?;
        let end = start + text(&bytes[start..])?;
        Some(end + same_but_numbers(behind, &bytes[end..])?)
    }
}

/// How many of `bytes` agree with the template, in all but the numbers.
fn same_but_numbers(template: &[u8], bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(template) {
        return Some(template.len());
    }
    let (mut at, mut to) = (0, 0);
    loop {
        let common = common_prefix(&template[at..], &bytes[to..]);
        (at, to) = (at + common, to + common);
        if at == template.len() {
            return Some(to);
        }
        // A number has at least one digit on either side: before the difference, or there.
        let is_within = at > 0 && template[at - 1].is_ascii_digit();
        let digits = |bytes: &[u8]| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (here, there) = (digits(&template[at..]), digits(bytes.get(to..)?));
        if (here == 0 && there == 0) || (!is_within && (here == 0 || there == 0)) {
            return None;
        }
        (at, to) = (at + here, to + there);
    }
}

/// Whether `bytes` begin with a text of this length.
#[inline(never)]
fn is_text(bytes: &[u8], length: usize) -> bool {
    text(bytes) == Some(length)
}

/// The length of the text up to its closing quote; None if it is empty, or not whole.
fn text(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += plain_length(bytes.get(at..)?);
        match *bytes.get(at)? {
            b'"' => return (at > 0).then_some(at),
            b'\\' => at += 2,
            _ => return None,
        }
    }
}
