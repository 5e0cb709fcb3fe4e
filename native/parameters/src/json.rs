//! The one form of JSON in ASCII.

use std::fmt::Write as _;

/// JSON of ASCII characters alone, with a space behind commas and colons. None: a text in it has half a character.
#[must_use]
pub fn ascii(json: &str) -> Option<String> {
    let (mut rest, mut written) = (json, String::new());
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let (text, behind) = unquoted(rest)?;
            written += &quoted(&text);
            rest = behind;
            continue;
        }
        rest = &rest[first.len_utf8()..];
        match first {
            ' ' | '\t' | '\n' | '\r' => {}
            ',' | ':' => written.extend([first, ' ']),
            _ => written.push(first),
        }
    }
    Some(written)
}

/// A text as JSON of ASCII characters alone.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_owned();
    for unit in text.encode_utf16() {
        let _ = match u8::try_from(unit) {
            Ok(byte @ (b'"' | b'\\')) => write!(quoted, "\\{}", char::from(byte)),
            Ok(byte @ b' '..=b'~') => write!(quoted, "{}", char::from(byte)),
            Ok(b'\n') => write!(quoted, "\\n"),
            Ok(b'\r') => write!(quoted, "\\r"),
            Ok(b'\t') => write!(quoted, "\\t"),
            Ok(0x08) => write!(quoted, "\\b"),
            Ok(0x0c) => write!(quoted, "\\f"),
            _ => write!(quoted, "\\u{unit:04x}"),
        };
    }
    quoted + "\""
}

/// Reads a text of valid JSON at the beginning of `json`; also returns what is behind it. None: it has half a character.
pub(crate) fn unquoted(json: &str) -> Option<(String, &str)> {
    let mut rest = json.strip_prefix('"')?;
    let mut units = Vec::new();
    loop {
        let end = rest.find(['"', '\\'])?;
        units.extend(rest[..end].encode_utf16());
        let is_end = rest[end..].starts_with('"');
        rest = &rest[end + 1..];
        if is_end {
            return Some((String::from_utf16(&units).ok()?, rest));
        }
        let letter = rest.chars().next()?;
        rest = &rest[letter.len_utf8()..];
        units.push(match letter {
            'b' => 0x08,
            'f' => 0x0c,
            'n' => 0x0a,
            'r' => 0x0d,
            't' => 0x09,
            'u' => {
                let (digits, behind) = rest.split_at_checked(4)?;
                rest = behind;
                u16::from_str_radix(digits, 16).ok()?
            }
            letter => u16::try_from(u32::from(letter)).ok()?,
        });
    }
}
