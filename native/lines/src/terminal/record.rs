//! The members of a line, as they stand in it. Reading takes what is there: a broken line has fewer members.

use crate::json::lex::{string_end, word_end};
use crate::json::text::unescape_onto;
use std::str;

/// The object whose members stand beside those of the record.
const GROUP: &[u8] = b"attributes";
/// The event at the end of a process.
const PROCESS_ENDED: &[u8] = br#""process.ended""#;

/// One line, read.
pub struct Record<'a> {
    members: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Record<'a> {
    /// Reads a line: one JSON object.
    #[must_use]
    pub fn read(line: &'a [u8]) -> Self {
        let mut members = Vec::with_capacity(32);
        for (key, value) in Members::of(line) {
            if key == GROUP && value.first() == Some(&b'{') {
                members.extend(Members::of(value));
            } else {
                members.push((key, value));
            }
        }
        Self { members }
    }

    /// The process whose queue had the record; None: the listener made it.
    #[must_use]
    pub fn process(&self) -> Option<&'a [u8]> {
        self.value("seq").and(self.value("boot_id"))
    }

    /// The process that has ended, if the record says so.
    #[must_use]
    pub fn ended_process(&self) -> Option<&'a [u8]> {
        let is_end = self.value("event_name") == Some(PROCESS_ENDED);
        if is_end { self.value("boot_id") } else { None }
    }

    /// Whether the line has no member.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The names, still escaped, and the values, each as JSON.
    pub(super) fn members(&self) -> &[(&'a [u8], &'a [u8])] {
        &self.members
    }

    /// A value as JSON.
    pub(super) fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.members.iter().find(|(key, _)| *key == name.as_bytes()).map(|(_, value)| *value)
    }

    /// A value that is a string.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.value(name).and_then(text)
    }

    /// A value that is a number.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        str::from_utf8(self.value(name)?).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

/// The text of a value that is a string.
pub(super) fn text(value: &[u8]) -> Option<String> {
    let raw = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut text = Vec::with_capacity(raw.len());
    unescape_onto(&mut text, raw);
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The members of an object in their order.
struct Members<'a>(&'a [u8]);

impl<'a> Members<'a> {
    fn of(object: &'a [u8]) -> Self {
        Self(object.trim_ascii_start().strip_prefix(b"{").unwrap_or_default())
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0).trim_ascii_start();
        let rest = rest.strip_prefix(b",").unwrap_or(rest).trim_ascii_start();
        let end = rest.strip_prefix(b"\"").and_then(|_| string_end(rest, 1))?;
        let (key, rest) = (&rest[1..end], rest[end + 1..].trim_ascii_start());
        let rest = rest.strip_prefix(b":")?.trim_ascii_start();
        let (value, rest) = rest.split_at(value_len(rest)?);
        self.0 = rest;
        Some((key, value))
    }
}

fn value_len(bytes: &[u8]) -> Option<usize> {
    match bytes.first()? {
        b'"' => string_end(bytes, 1).map(|end| end + 1),
        b'{' | b'[' => nested_len(bytes),
        _ => Some(word_end(bytes, 0).unwrap_or(bytes.len())),
    }
}

fn nested_len(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => at = string_end(bytes, at + 1)?,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 1 => return Some(at + 1),
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}
