//! Finds a text in lines.

use lines::json::text::unescape_onto;

/// Whether the text of a line, its escapes resolved, contains another; ASCII letters match in both cases.
#[must_use]
pub fn contains(line: &[u8], text: &[u8]) -> bool {
    if memchr::memchr(b'\\', line).is_none() {
        return contains_bytes(line, text);
    }
    let mut plain = Vec::with_capacity(line.len());
    unescape_onto(&mut plain, line);
    contains_bytes(&plain, text)
}

fn contains_bytes(line: &[u8], text: &[u8]) -> bool {
    // A byte that is rare in lines: digits, signs and capitals before small letters.
    let rank = |byte: u8| match byte {
        b'"' | b':' | b',' | b'_' | b'.' | b'0'..=b'9' => 2,
        b'e' | b't' | b's' | b'a' | b'n' | b'o' | b'i' | b'r' | b'p' | b'u' | b'q' => 3,
        b'a'..=b'z' | b'A'..=b'Z' => 1,
        _ => 0,
    };
    let Some((at, rare)) = text.iter().enumerate().min_by_key(|(_, byte)| rank(byte.to_ascii_lowercase())) else {
        return true;
    };
    let (lower, upper) = (rare.to_ascii_lowercase(), rare.to_ascii_uppercase());
    memchr::memchr2_iter(lower, upper, line).any(|found| {
        let begin = found.checked_sub(at);
        let here = begin.and_then(|begin| line.get(begin..begin + text.len()));
        here.is_some_and(|here| here.eq_ignore_ascii_case(text))
    })
}
