//! The members of a line, as they stand in it. Reading takes what is there: a broken line has fewer members.

use crate::json::escape::unescape_onto;
use crate::json::lex::{string_end, word_end};
use std::fmt::Write as _;
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

/// Longest text of a stranger, in bytes.
const MOST_TEXT: usize = 8 << 10;

/// Return `text` on one line without control characters: each is escaped as in JSON, `\u001b`.
#[must_use]
pub fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|character| push_safe_character(&mut out, character));
    out
}

/// Return a text that may have halves of surrogate pairs, which are escaped too.
pub fn safe_utf16(units: impl Iterator<Item = u16>) -> String {
    let mut out = String::new();
    for decoded in char::decode_utf16(units) {
        match decoded {
            Ok(character) => push_safe_character(&mut out, character),
            Err(half) => push_escaped(&mut out, &[half.unpaired_surrogate()]),
        }
    }
    out
}

fn push_safe_character(out: &mut String, character: char) {
    if is_unsafe(character) {
        push_escaped(out, character.encode_utf16(&mut [0; 2]));
    } else {
        out.push(character);
    }
}

/// Append the escapes of a character's units in UTF-16.
pub fn push_escaped(out: &mut String, units: &[u16]) {
    for unit in units {
        let _ = write!(out, "\\u{unit:04x}");
    }
}

/// C0, DEL, C1; line and paragraph separators; marks, embeddings, overrides and isolates that reorder text (as in
/// "Trojan Source"), invisible characters, and tags.
pub(super) fn is_unsafe(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Whether a text stands without quotes as one word of `key=value`.
pub fn is_plain_word(text: &str) -> bool {
    let may_stay =
        |character: char| !character.is_whitespace() && !matches!(character, '"' | '=' | '\\') && !is_unsafe(character);
    !text.is_empty() && text.chars().all(may_stay)
}

/// The beginning of a text that is too long for a terminal.
pub(super) fn limited(text: &str) -> &str {
    let end = (0..=MOST_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}
