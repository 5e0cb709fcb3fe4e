//! Writes bytes as a JSON string, copying clean runs a block at a time.
//!
//! Escaped are `"`, `\` and everything below 0x20, in the short form if JSON has one; all other bytes stay as they are
//! (also 0x7F, U+2028, U+2029). Bytes that are not UTF-8 become U+FFFD, one per maximal subpart, as in
//! `String::from_utf8_lossy`. So any input results in a valid JSON string.
//!
//! A block is loaded, stored to the output as it is, and searched; up to the first byte to escape, the store was
//! already the copy. Invariant: before each block the output has room for the rest of the input and [`SLACK`] bytes.

use request::block::{Block, WIDTH};

/// Room beyond the input: the block that sticks out, one escape, the closing quote.
const SLACK: usize = WIDTH + 8;

const REPLACEMENT: &str = "\u{FFFD}";

/// Append `bytes` to `out` as a JSON string, quotes included.
#[inline]
pub fn push_string(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() > WIDTH || !push_clean_block(out, bytes) {
        push_any_string(out, bytes);
    }
}

/// Append a string of at most one block, if nothing in it is to be escaped or checked: most are such.
#[inline(always)]
fn push_clean_block(out: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let block = Block::load(bytes);
    if block.clean_len::<true>() < bytes.len() {
        return false;
    }
    out.reserve(SLACK);
    let start = out.len();
    // SAFETY: `bytes.len() <= WIDTH`, so that the block and the closing quote lie within the WIDTH + 2 bytes behind
    // `start`, for which there is room; all bytes up to the new length are written.
    unsafe {
        let to = out.as_mut_ptr().add(start);
        to.write(b'"');
        block.store(to.add(1));
        to.add(1 + bytes.len()).write(b'"');
        out.set_len(start + bytes.len() + 2);
    }
    true
}

#[inline(never)]
fn push_any_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + SLACK);
    out.push(b'"');
    let ascii = push_run::<true>(out, bytes);
    if ascii < bytes.len() {
        push_text(out, &bytes[ascii..]);
    }
    out.push(b'"');
}

/// Append bytes that may be UTF-8. Each turn checks bytes that no other turn sees, so that noise is linear too.
#[cold]
#[inline(never)]
fn push_text(out: &mut Vec<u8>, mut bytes: &[u8]) {
    loop {
        match std::str::from_utf8(bytes) {
            Ok(_) => {
                push_run::<false>(out, bytes);
                return;
            }
            Err(error) => {
                push_run::<false>(out, &bytes[..error.valid_up_to()]);
                out.extend_from_slice(REPLACEMENT.as_bytes());
                let Some(bad) = error.error_len() else { return };
                bytes = &bytes[error.valid_up_to() + bad..];
            }
        }
    }
}

/// Append `bytes`, escaped; with `ASCII` stop before the first byte of 0x80 or more. Return how many bytes were taken.
#[inline]
fn push_run<const ASCII: bool>(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let mut at = 0;
    out.reserve(bytes.len() + SLACK);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let clean = copy_clean::<ASCII>(out, rest);
        at += clean;
        let Some(&byte) = rest.get(clean) else { break };
        if ASCII && byte >= 0x80 {
            break;
        }
        push_escape(out, byte);
        at += 1;
        out.reserve(bytes.len() - at + SLACK);
    }
    at
}

/// Copy bytes up to the first one to escape, or all; `out` has room for `bytes` and [`SLACK`]. Return their number.
#[inline(always)]
fn copy_clean<const ASCII: bool>(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    debug_assert!(out.capacity() - out.len() >= bytes.len() + WIDTH);
    let start = out.len();
    let mut at = 0;
    loop {
        let left = bytes.len() - at;
        let block = Block::load(&bytes[at..]);
        // SAFETY: `at <= bytes.len()`, and the caller reserved `bytes.len() + SLACK` behind `start`, with `SLACK >= WIDTH`.
        unsafe { block.store(out.as_mut_ptr().add(start + at)) };
        let clean = block.clean_len::<ASCII>();
        if clean < WIDTH || left <= WIDTH {
            at += clean.min(left);
            break;
        }
        at += WIDTH;
    }
    // SAFETY: the bytes up to `start + at` were stored just now, within the capacity.
    unsafe { out.set_len(start + at) };
    at
}

#[inline(always)]
fn push_escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0C => b'f',
        _ => {
            let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

// Resolves the escapes of a JSON string into a buffer of fixed size.

/// Write the text of `raw`, the bytes between the quotes, to `out`; cut between characters if it does not fit.
///
/// Return the bytes written and whether that is all. Broken escapes and lone surrogates become U+FFFD; bytes that are
/// not UTF-8 stay as they are.
pub(crate) fn unescape(raw: &[u8], out: &mut [u8]) -> (usize, bool) {
    let mut rest = raw;
    let mut len = 0;
    while !rest.is_empty() {
        let run = rest.iter().position(|byte| *byte == b'\\').unwrap_or(rest.len());
        let kept = cut(&rest[..run], out.len() - len);
        out[len..len + kept].copy_from_slice(&rest[..kept]);
        len += kept;
        rest = &rest[run..];
        if kept < run {
            return (len, false);
        }
        if rest.is_empty() {
            break;
        }
        let (character, taken) = escape(rest);
        if len + character.len_utf8() > out.len() {
            return (len, false);
        }
        len += character.encode_utf8(&mut out[len..]).len();
        rest = &rest[taken..];
    }
    (len, true)
}

/// Append the text of `raw`, the bytes between the quotes, as [`unescape`] reads it.
pub(crate) fn unescape_onto(out: &mut Vec<u8>, raw: &[u8]) {
    let mut rest = raw;
    while let Some(run) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..run]);
        let (character, taken) = escape(&rest[run..]);
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &rest[run + taken..];
    }
    out.extend_from_slice(rest);
}

/// Return `raw`, whose end is missing, without a cut escape or character.
pub(crate) fn without_cut_end(raw: &[u8]) -> &[u8] {
    let mut end = raw.len();
    loop {
        let run = raw[..end].iter().rposition(|byte| *byte == b'\\').map_or(0, |last| last + 1);
        let first = raw[..run].iter().rposition(|byte| *byte != b'\\').map_or(0, |other| other + 1);
        if run - first != (run - first) & !1 && ends_within_escape(&raw[run - 1..end]) {
            end = run - 1;
        } else {
            break;
        }
    }
    without_cut_last_character(&raw[..end])
}

/// Return `kept`, whose end is missing, without a cut character.
pub(crate) fn without_cut_last_character(kept: &[u8]) -> &[u8] {
    let start = kept.len() - kept.iter().rev().take(4).take_while(|byte| **byte & 0xC0 == 0x80).count().min(3);
    match start.checked_sub(1).map(|first| (first, kept[first])) {
        Some((first, byte)) if byte >= 0xC0 && kept.len() - first < width(byte) => &kept[..first],
        _ => kept,
    }
}

/// Whether an escape reaches the end of `from`, which begins with one, and may lack something.
fn ends_within_escape(from: &[u8]) -> bool {
    match from.get(1) {
        None => true,
        Some(b'u') if from.len() < 6 => true,
        // The first half of a pair.
        Some(b'u') => from.len() == 6 && unit(from).is_some_and(|unit| (0xD800..0xDC00).contains(&unit)),
        Some(_) => false,
    }
}

const fn width(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        _ => 2,
    }
}

/// Return `raw`, whose beginning is missing, from the first byte on that is certainly not in an escape or a character.
pub(crate) fn without_cut_start(raw: &[u8]) -> &[u8] {
    // A missing backslash may have escaped the first bytes: a letter, four digits, or a backslash.
    let slashes = raw.iter().take_while(|byte| **byte == b'\\').count();
    let rest = &raw[slashes..];
    let first = usize::from(!rest.is_empty());
    let digits = rest.iter().skip(first).take(4).take_while(|byte| byte.is_ascii_hexdigit()).count();
    let mut rest = &rest[first + digits..];
    if unit(rest).is_some_and(|unit| (0xDC00..0xE000).contains(&unit)) {
        rest = &rest[6..];
    }
    without_cut_character(rest)
}

/// Return `bytes`, whose beginning is missing, without the rest of a character.
pub(crate) fn without_cut_character(bytes: &[u8]) -> &[u8] {
    let inside = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    &bytes[inside..]
}

/// Return how many bytes of `text` fit into `room` without cutting a character.
pub fn cut(text: &[u8], room: usize) -> usize {
    if text.len() <= room {
        return text.len();
    }
    // A character has at most three bytes after its first; more of them in a row are noise and may be cut anywhere.
    let inside = |at: &usize| text[*at] & 0xC0 == 0x80;
    (room.saturating_sub(3)..=room).rev().find(|at| !inside(at)).unwrap_or(room)
}

/// Read the escape that `rest` begins with; return its character and length.
pub fn escape(rest: &[u8]) -> (char, usize) {
    let character = match rest.get(1) {
        Some(b'u') => return unicode(rest),
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(&plain @ (b'"' | b'\\' | b'/')) => char::from(plain),
        // Not an escape: only the backslash is replaced, so that no byte of a character is lost.
        _ => return (char::REPLACEMENT_CHARACTER, 1),
    };
    (character, 2)
}

fn unicode(rest: &[u8]) -> (char, usize) {
    let Some(first) = unit(rest) else { return (char::REPLACEMENT_CHARACTER, 1) };
    if let Some(character) = char::from_u32(first) {
        return (character, 6);
    }
    let second = unit(&rest[6..]).filter(|second| first < 0xDC00 && (0xDC00..0xE000).contains(second));
    match second.and_then(|second| char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00))) {
        Some(character) => (character, 12),
        None => (char::REPLACEMENT_CHARACTER, 6),
    }
}

/// Read `\uXXXX`.
fn unit(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(b"\\u")?.first_chunk::<4>()?;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::unescape;

    fn text(raw: &str, room: usize) -> (String, bool) {
        let mut out = vec![0; room];
        let (len, complete) = unescape(raw.as_bytes(), &mut out);
        (String::from_utf8(out[..len].to_vec()).unwrap(), complete)
    }

    #[test]
    fn escapes_are_resolved() {
        assert_eq!(text(r#"a\"\\\/\b\f\n\r\tz"#, 50), ("a\"\\/\u{8}\u{c}\n\r\tz".into(), true));
        assert_eq!(text(r"\u0041\u00e9\u20AC\ud83d\ude00", 50), ("Aé€😀".into(), true));
        assert_eq!(text("", 0), (String::new(), true));
    }

    #[test]
    fn broken_escapes_become_the_replacement_character() {
        for lone in [r"\ud83d", r"\ude00"] {
            assert_eq!(text(lone, 50), ("\u{FFFD}".into(), true));
        }
        assert_eq!(text(r"\ud83d\u0041", 50), ("\u{FFFD}A".into(), true));
        assert_eq!(text(r"\x\u12", 50), ("\u{FFFD}x\u{FFFD}u12".into(), true));
        assert_eq!(text("\\é\\", 50), ("\u{FFFD}é\u{FFFD}".into(), true));
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(text("aé€😀", 9), ("aé€".into(), false));
        assert_eq!(text("aé€😀", 10), ("aé€😀".into(), true));
        assert_eq!(text("aé€", 5), ("aé".into(), false));
        assert_eq!(text("aé", 0), (String::new(), false));
        assert_eq!(text(r"ab\u20ac", 4), ("ab".into(), false));
    }
}
