//! Resolves the escapes of a JSON string into a buffer of fixed size.

const REPLACEMENT: char = '\u{FFFD}';

/// Write the text of `raw`, what stands between the quotes, to `out`; cut between characters if it does not fit.
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
