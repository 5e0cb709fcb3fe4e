//! Resolves the escapes of a JSON string into a buffer of fixed size.

const REPLACEMENT: char = '\u{FFFD}';

/// Write the text of `raw`, the bytes between the quotes, to `out`; cut between characters if it does not fit.
///
/// Return the bytes written and whether that is all. Broken escapes and lone surrogates become U+FFFD; bytes that are
/// not UTF-8 stay as they are.
pub fn unescape(raw: &[u8], out: &mut [u8]) -> (usize, bool) {
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
pub fn unescape_onto(out: &mut Vec<u8>, raw: &[u8]) {
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
pub fn without_cut_end(raw: &[u8]) -> &[u8] {
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
pub fn without_cut_last_character(kept: &[u8]) -> &[u8] {
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
pub fn without_cut_start(raw: &[u8]) -> &[u8] {
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
pub fn without_cut_character(bytes: &[u8]) -> &[u8] {
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
        _ => return (REPLACEMENT, 1),
    };
    (character, 2)
}

fn unicode(rest: &[u8]) -> (char, usize) {
    let Some(first) = unit(rest) else { return (REPLACEMENT, 1) };
    if let Some(character) = char::from_u32(first) {
        return (character, 6);
    }
    let second = unit(&rest[6..]).filter(|second| first < 0xDC00 && (0xDC00..0xE000).contains(second));
    match second.and_then(|second| char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00))) {
        Some(character) => (character, 12),
        None => (REPLACEMENT, 6),
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
