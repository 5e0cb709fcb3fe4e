//! The ends of JSON strings and scalars, forwards and backwards. Nothing here allocates, recurses or reads a byte more
//! than a fixed number of times.
//!
//! Backwards is well defined too: inside a string every `"` is escaped, that is preceded by an odd number of
//! backslashes; a `"` that begins or ends a string never is. So the strings of a document can be separated from its
//! structure from the end, without its beginning, and text in a string cannot pass for structure.

use request::block::{Block, WIDTH};

/// A token that has a value, as it stands in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar<'a> {
    /// The bytes between the quotes, still escaped.
    Text(&'a [u8]),
    /// A number, `true`, `false`, `null`, or noise.
    Word(&'a [u8]),
}

/// A point from which the end of a document can be read forwards, and its containers, of `LEVELS` from the root on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume<const LEVELS: usize> {
    /// Index of the first byte that is known to be outside of strings.
    pub at: usize,
    /// Number of open containers; 0 if the root itself begins here.
    pub depth: usize,
    /// Whether each of the outermost containers is an object.
    pub objects: [bool; LEVELS],
}

impl<const LEVELS: usize> Default for Resume<LEVELS> {
    fn default() -> Self {
        Self { at: 0, depth: 0, objects: [false; LEVELS] }
    }
}

/// Return the index of the quote that ends the string whose content begins at `from`, if it is there.
#[inline]
pub fn string_end(bytes: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let rest = bytes.get(from..)?;
        let clean = Block::load(rest).clean_len::<false>();
        if clean == WIDTH {
            from += WIDTH;
            continue;
        }
        match *rest.get(clean)? {
            b'"' => return Some(from + clean),
            b'\\' => from += clean + 2,
            _ => from += clean + 1,
        }
    }
}

/// Whether this, between quotes, is a string: no control character, and only JSON's escapes.
pub fn is_string(content: &[u8]) -> bool {
    let mut rest = content;
    loop {
        let clean = Block::load(rest).clean_len::<false>();
        let stop = rest.get(clean..).unwrap_or_default();
        rest = match *stop {
            [] => return true,
            [b'\\', b'u', a, b, c, d, ref behind @ ..] if [a, b, c, d].iter().all(u8::is_ascii_hexdigit) => behind,
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ref behind @ ..] => behind,
            [b'\\' | b'"' | ..b' ', ..] => return false,
            _ => stop,
        };
    }
}

/// Return the index after the word that begins at `from`, or `None` if it touches the end and so may be cut.
#[inline]
pub fn word_end(bytes: &[u8], from: usize) -> Option<usize> {
    let len = bytes[from..].iter().position(|byte| ends_word(*byte))?;
    Some(from + len)
}

fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' | b'"' | b'{' | b'}' | b'[' | b']')
}

/// Read the end of a document backwards from its last `}`, as far as its strings are certain.
///
/// `None` if it does not end in `}`, or if an escaped quote turns up where a string would have to end: then `bytes` do
/// not end where the document does.
pub fn resume_point<const LEVELS: usize>(bytes: &[u8]) -> Option<Resume<LEVELS>> {
    let bytes = bytes.trim_ascii_end();
    if bytes.last() != Some(&b'}') {
        return None;
    }
    let mut point = Resume { at: bytes.len(), ..Resume::default() };
    while point.at > 0 {
        let before = point.at - 1;
        match bytes[before] {
            open @ (b'}' | b']') => {
                if let Some(object) = point.objects.get_mut(point.depth) {
                    *object = open == b'}';
                }
                point.depth += 1;
            }
            b'{' | b'[' => {
                point.depth -= 1;
                if point.depth == 0 {
                    return Some(Resume { at: before, ..Resume::default() });
                }
            }
            b'"' => match string_start(bytes, before) {
                Start::At(start) => {
                    point.at = start;
                    continue;
                }
                Start::Lost => return Some(point),
                Start::Escaped => return None,
            },
            _ => {}
        }
        point.at = before;
    }
    Some(point)
}

/// What precedes a quote that ends a string.
enum Start {
    /// The string begins at this index.
    At(usize),
    /// Its beginning is not in the bytes, or not certainly.
    Lost,
    /// The quote is escaped: it does not end a string.
    Escaped,
}

fn string_start(bytes: &[u8], end: usize) -> Start {
    match escaped(bytes, end) {
        Some(true) => return Start::Escaped,
        Some(false) => {}
        None => return Start::Lost,
    }
    let mut until = end;
    while let Some(quote) = bytes[..until].iter().rposition(|byte| *byte == b'"') {
        match escaped(bytes, quote) {
            Some(true) => until = quote,
            Some(false) => return Start::At(quote),
            None => return Start::Lost,
        }
    }
    Start::Lost
}

/// Return whether an odd number of backslashes precedes `at`, or `None` if the bytes before them are missing.
fn escaped(bytes: &[u8], at: usize) -> Option<bool> {
    let other = bytes[..at].iter().rposition(|byte| *byte != b'\\')?;
    Some((at - other).is_multiple_of(2))
}

#[cfg(test)]
mod tests {
    use super::{Resume, is_string, resume_point, string_end, word_end};

    #[test]
    fn a_string_ends_at_the_first_quote_that_is_not_escaped() {
        for prefix in 0..40 {
            let text = format!("{}\\\"\u{1}\\\\\" \"", "x".repeat(prefix));
            assert_eq!(string_end(text.as_bytes(), 0), Some(prefix + 5));
            assert_eq!(string_end(&text.as_bytes()[..prefix + 5], 0), None);
        }
        assert_eq!(string_end(b"\\", 0), None);
        assert_eq!(string_end(b"", 0), None);
    }

    #[test]
    fn a_string_has_no_control_character_and_only_the_escapes_of_json() {
        for prefix in 0..40 {
            let before = "x".repeat(prefix);
            for good in ["", "é", "\u{7f}", r"\n", r"\\", r#"\""#, r"\/", r"\u00e9", r"\ud800", "behind, some more"] {
                assert!(is_string(format!("{before}{good}").as_bytes()), "{prefix} {good}");
                assert!(is_string(format!("{before}{good}y").as_bytes()), "{prefix} {good}");
            }
            for bad in ["\0", "\n", "\u{1f}", "\"", r"\q", r"\", r"\u12", r"\u12g4", r"\x00"] {
                assert!(!is_string(format!("{before}{bad}").as_bytes()), "{prefix} {bad}");
                assert!(!is_string(format!("{before}{bad} y").as_bytes()) || bad == r"\", "{prefix} {bad}");
            }
        }
    }

    #[test]
    fn a_word_that_touches_the_end_may_be_cut() {
        assert_eq!(word_end(b"12,", 0), Some(2));
        assert_eq!(word_end(b"12", 0), None);
    }

    #[test]
    fn the_end_of_a_document_is_read_from_the_first_certain_byte() {
        let at = |text: &str| resume_point::<4>(text.as_bytes()).map(|point| (point.at, point.depth));
        assert_eq!(at(r#"xx {"a":[1]} "#), Some((3, 0)));
        assert_eq!(at(r#"lost","a":[{"b":"\\"}]}"#), Some((5, 1)));
        assert_eq!(at(r#"\\","a":1}"#), Some((3, 1)), "the backslashes may be the end of an odd number");
        assert_eq!(at(r#"","a":1}"#), Some((1, 1)));
        assert_eq!(at(r#""a":1}"#), Some((3, 1)), "the first quote may be escaped by what is missing");
        assert_eq!(at(r#"12}]}"#), Some((0, 3)));
        assert_eq!(resume_point::<4>(b"1}]}").unwrap().objects, [true, false, true, false]);
        assert_eq!(at(r#"\"a\":\"b\"}"#), None, "this is the inside of a string");
        assert_eq!(at(r#"{"a":1"#), None);
        assert_eq!(resume_point(b""), None::<Resume<4>>);
    }
}
