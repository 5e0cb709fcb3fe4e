//! Reads the members of a line without allocation, and refuses what is no JSON.
//!
//! What is refused is what `orjson` refuses, by which the command line reads records: lone surrogates, numbers that are
//! infinite, more than [`DEEPEST`] levels. Text must have been found to be UTF-8 before.

use lines::json::block::{Block, WIDTH};

/// Most containers within each other, the line's own among them.
pub const DEEPEST: usize = 1024;
const WORDS: usize = DEEPEST / 64;

/// The line is not a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotJson;

/// A value, as it stands in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// The bytes between the quotes; with escapes if `escaped`.
    Text {
        raw: &'a [u8],
        escaped: bool,
    },
    /// The digits; a whole number if it has neither point nor exponent.
    Number {
        digits: &'a [u8],
        whole: bool,
    },
    True,
    False,
    Null,
    /// From bracket to bracket.
    Object(&'a [u8]),
    List(&'a [u8]),
}

/// Passes each member of the object that is the whole `line`: its key, whether that has escapes, and its value.
///
/// # Errors
/// The line is no JSON object. Members before the fault have been passed.
#[inline]
pub fn members<'a>(line: &'a [u8], mut take: impl FnMut(&'a [u8], bool, Token<'a>)) -> Result<(), NotJson> {
    let mut at = after(line, blank(line, 0), b'{')?;
    at = blank(line, at);
    if line.get(at) == Some(&b'}') {
        return only_blank(line, at + 1);
    }
    loop {
        let begin = after(line, at, b'"')?;
        let (end, escaped) = string(line, begin)?;
        let colon = after(line, blank(line, end + 1), b':')?;
        let (token, next) = value(line, blank(line, colon), 1)?;
        take(&line[begin..end], escaped, token);
        at = blank(line, next);
        match line.get(at) {
            Some(b',') => at = blank(line, at + 1),
            Some(b'}') => return only_blank(line, at + 1),
            _ => return Err(NotJson),
        }
    }
}

/// Passes each element of a list, which [`members`] has found.
pub fn elements<'a>(list: &'a [u8], mut take: impl FnMut(Token<'a>)) {
    let mut at = blank(list, 1);
    while list.get(at).is_some_and(|byte| *byte != b']') {
        let Ok((token, next)) = value(list, at, 0) else { return };
        take(token);
        at = blank(list, next);
        at = if list.get(at) == Some(&b',') { blank(list, at + 1) } else { at };
    }
}

fn only_blank(line: &[u8], at: usize) -> Result<(), NotJson> {
    if blank(line, at) == line.len() { Ok(()) } else { Err(NotJson) }
}

#[inline]
fn blank(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\r' | b'\n') = bytes.get(at) {
        at += 1;
    }
    at
}

#[inline]
fn after(bytes: &[u8], at: usize, expected: u8) -> Result<usize, NotJson> {
    if bytes.get(at) == Some(&expected) { Ok(at + 1) } else { Err(NotJson) }
}

/// The index of the quote that ends a string, and whether there are escapes before it.
#[inline]
fn string(bytes: &[u8], mut at: usize) -> Result<(usize, bool), NotJson> {
    let mut escaped = false;
    loop {
        let rest = bytes.get(at..).ok_or(NotJson)?;
        let clean = Block::load(rest).clean_len::<false>();
        if clean == WIDTH {
            at += WIDTH;
            continue;
        }
        match rest.get(clean) {
            Some(b'"') => return Ok((at + clean, escaped)),
            Some(b'\\') => {
                escaped = true;
                at += clean + escape(&rest[clean..])?;
            }
            _ => return Err(NotJson),
        }
    }
}

/// The length of the escape that `rest` begins with.
fn escape(rest: &[u8]) -> Result<usize, NotJson> {
    match rest.get(1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(2),
        Some(b'u') => match unit(rest)? {
            0xD800..0xDC00 => match unit(&rest[6..])? {
                0xDC00..0xE000 => Ok(12),
                _ => Err(NotJson),
            },
            0xDC00..0xE000 => Err(NotJson),
            _ => Ok(6),
        },
        _ => Err(NotJson),
    }
}

fn unit(bytes: &[u8]) -> Result<u32, NotJson> {
    let digits = bytes.strip_prefix(b"\\u").and_then(|rest| rest.first_chunk::<4>()).ok_or(NotJson)?;
    digits.iter().try_fold(0, |unit, digit| Ok(unit << 4 | char::from(*digit).to_digit(16).ok_or(NotJson)?))
}

/// The value that begins at `at`, within `depth` containers, and the index behind it.
#[inline]
fn value(bytes: &[u8], at: usize, depth: usize) -> Result<(Token<'_>, usize), NotJson> {
    match bytes.get(at) {
        Some(b'"') => {
            let (end, escaped) = string(bytes, at + 1)?;
            Ok((Token::Text { raw: &bytes[at + 1..end], escaped }, end + 1))
        }
        Some(b'-' | b'0'..=b'9') => {
            let (end, whole) = number(bytes, at)?;
            Ok((Token::Number { digits: &bytes[at..end], whole }, end))
        }
        Some(b'{') => container(bytes, at, depth).map(|end| (Token::Object(&bytes[at..end]), end)),
        Some(b'[') => container(bytes, at, depth).map(|end| (Token::List(&bytes[at..end]), end)),
        Some(b't') => word(bytes, at, b"true").map(|end| (Token::True, end)),
        Some(b'f') => word(bytes, at, b"false").map(|end| (Token::False, end)),
        Some(b'n') => word(bytes, at, b"null").map(|end| (Token::Null, end)),
        _ => Err(NotJson),
    }
}

fn word(bytes: &[u8], at: usize, expected: &[u8]) -> Result<usize, NotJson> {
    if bytes[at..].starts_with(expected) { Ok(at + expected.len()) } else { Err(NotJson) }
}

/// The index behind a number, and whether it is whole.
#[inline]
fn number(bytes: &[u8], begin: usize) -> Result<(usize, bool), NotJson> {
    let mut at = begin + usize::from(bytes[begin] == b'-');
    let first = at;
    at = digits(bytes, at)?;
    if bytes[first] == b'0' && at > first + 1 {
        return Err(NotJson);
    }
    let mut whole = true;
    if bytes.get(at) == Some(&b'.') {
        whole = false;
        at = digits(bytes, at + 1)?;
    }
    let mut can_be_infinite = at - begin > 300;
    if let Some(b'e' | b'E') = bytes.get(at) {
        whole = false;
        can_be_infinite = true;
        at += 1;
        at = digits(bytes, at + usize::from(matches!(bytes.get(at), Some(b'+' | b'-'))))?;
    }
    if can_be_infinite && !float(&bytes[begin..at]).is_finite() {
        return Err(NotJson);
    }
    Ok((at, whole))
}

#[inline]
fn digits(bytes: &[u8], begin: usize) -> Result<usize, NotJson> {
    let mut at = begin;
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    if at == begin { Err(NotJson) } else { Ok(at) }
}

/// The number that digits of a line are, as 64-bit float.
#[must_use]
pub fn float(digits: &[u8]) -> f64 {
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

/// The open containers, innermost last: one bit each, set for objects.
struct Open {
    bits: [u64; WORDS],
    depth: usize,
    outer: usize,
}

impl Open {
    fn push(&mut self, is_object: bool) -> Result<(), NotJson> {
        if self.outer + self.depth == DEEPEST {
            return Err(NotJson);
        }
        let (word, bit) = (self.depth / 64, self.depth % 64);
        self.bits[word] = self.bits[word] & !(1 << bit) | u64::from(is_object) << bit;
        self.depth += 1;
        Ok(())
    }

    fn is_object(&self) -> bool {
        let last = self.depth - 1;
        self.bits[last / 64] >> (last % 64) & 1 == 1
    }
}

/// The index behind an object or a list, without recursion.
fn container(bytes: &[u8], begin: usize, outer: usize) -> Result<usize, NotJson> {
    let mut open = Open { bits: [0; WORDS], depth: 0, outer };
    let mut at = begin;
    loop {
        // A value begins here; a key of an object was read before.
        match bytes.get(at) {
            Some(bracket @ (b'{' | b'[')) => {
                open.push(*bracket == b'{')?;
                at = blank(bytes, at + 1);
                if bytes.get(at) != Some(&(bracket + 2)) {
                    at = if *bracket == b'{' { key(bytes, at)? } else { at };
                    continue;
                }
                at += 1;
                open.depth -= 1;
            }
            _ => at = value(bytes, at, 0)?.1,
        }
        loop {
            if open.depth == 0 {
                return Ok(at);
            }
            at = blank(bytes, at);
            match (bytes.get(at), open.is_object()) {
                (Some(b','), true) => at = key(bytes, blank(bytes, at + 1))?,
                (Some(b','), false) => at = blank(bytes, at + 1),
                (Some(b'}'), true) | (Some(b']'), false) => {
                    open.depth -= 1;
                    at += 1;
                    continue;
                }
                _ => return Err(NotJson),
            }
            break;
        }
    }
}

/// The index of the value behind the key that begins at `at`.
fn key(bytes: &[u8], at: usize) -> Result<usize, NotJson> {
    let (end, _) = string(bytes, after(bytes, at, b'"')?)?;
    Ok(blank(bytes, after(bytes, blank(bytes, end + 1), b':')?))
}
