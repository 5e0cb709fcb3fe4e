//! Text that is safe on a terminal: a client's text can't move the cursor, set the title or turn the line around.

use std::fmt::Write as _;

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
