//! Reading JSON from its end: the same values, met in the opposite order, in text whose beginning is missing.
//!
//! From the end of a whole document this is unambiguous. Outside of a string there is no `\`, so the last `"` before a
//! position ends a string; and inside it the next `"` to the left that has an even number of `\` before it is its
//! beginning. So text that a client chose can never be taken for a key. Every function returns None where the text
//! begins too late.

use super::forward::{self, Value, is_scalar};

/// Visits the members of the object that `bytes` end with, from the last to the first, as far as they reach back.
/// `cut` is called with what ends where a value began too early to be seen whole.
pub fn members<'a>(
    bytes: &'a [u8],
    mut visit: impl FnMut(&'a [u8], Value<'a>),
    mut cut: impl FnMut(&'a [u8]),
) -> Option<()> {
    let mut rest = trim(bytes).strip_suffix(b"}")?;
    loop {
        rest = trim(rest);
        if rest.is_empty() || rest.ends_with(b"{") {
            return Some(());
        }
        let Some((before, value)) = last_value(rest) else {
            cut(rest);
            return None;
        };
        rest = trim(trim(before).strip_suffix(b":")?);
        let (before, Value::Text(key)) = last_value(rest)? else { return None };
        visit(key, value);
        rest = trim(before);
        rest = rest.strip_suffix(b",").unwrap_or(rest);
    }
}

/// Visits the text of each element of the array that `bytes` end with, from the last to the first; that of the first
/// one that is seen may begin too late.
pub fn elements<'a>(bytes: &'a [u8], mut visit: impl FnMut(&'a [u8])) -> Option<()> {
    let mut rest = trim(bytes).strip_suffix(b"]")?;
    loop {
        rest = trim(rest);
        if rest.is_empty() || rest.ends_with(b"[") {
            return Some(());
        }
        let start = value_start(rest);
        visit(&rest[start.unwrap_or(0)..]);
        rest = trim(&rest[..start?]);
        rest = rest.strip_suffix(b",").unwrap_or(rest);
    }
}

fn last_value(bytes: &[u8]) -> Option<(&[u8], Value<'_>)> {
    let (before, text) = bytes.split_at(value_start(bytes)?);
    let value = match text.first()? {
        b'"' => Value::Text(&text[1..text.len() - 1]),
        b'{' => Value::Object(text),
        b'[' => Value::Array(text),
        _ => forward::scalar(text)?,
    };
    Some((before, value))
}

/// Where the value begins that `bytes` (without white space behind it) end with.
fn value_start(bytes: &[u8]) -> Option<usize> {
    match bytes.last()? {
        b'"' => text_start(bytes),
        b'}' | b']' => nested_start(bytes),
        _ => {
            let start = bytes.iter().rposition(|byte| !is_scalar(*byte))? + 1;
            (start < bytes.len()).then_some(start)
        }
    }
}

fn text_start(bytes: &[u8]) -> Option<usize> {
    let mut end = bytes.len() - 1;
    loop {
        end = bytes[..end].iter().rposition(|byte| *byte == b'"')?;
        let slashes = bytes[..end].iter().rev().take_while(|byte| **byte == b'\\').count();
        // A text that begins with `\`s at the cut could have one more before it.
        if slashes % 2 == 0 && (slashes == 0 || slashes < end) {
            return Some(end);
        }
    }
}

fn nested_start(bytes: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut end = bytes.len();
    loop {
        let at = end.checked_sub(1)?;
        match bytes[at] {
            b'"' => {
                end = text_start(&bytes[..end])?;
                continue;
            }
            b'}' | b']' => depth += 1,
            b'{' | b'[' => depth -= 1,
            _ => (),
        }
        if depth == 0 {
            return Some(at);
        }
        end = at;
    }
}

fn trim(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii_end()
}
