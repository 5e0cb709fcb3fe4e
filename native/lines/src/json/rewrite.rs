//! Writes JSON of others anew, so that it can stand in a line whatever it is: without blanks, each text escaped again,
//! and nothing at all of what is no JSON by RFC 8259.

use super::{escape, lex, text};

/// Deepest nesting that is written.
const MAX_DEPTH: usize = 64;

/// Append the one value that `bytes` hold; return whether they are JSON of at most 64 levels, else `out` is as before.
pub fn push(out: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let start = out.len();
    let mut rewriting = Rewriting { bytes, at: 0, plain: Vec::new() };
    let is_whole = rewriting.value(out, 0).is_some() && rewriting.next().is_none();
    if !is_whole {
        out.truncate(start);
    }
    is_whole
}

struct Rewriting<'a> {
    bytes: &'a [u8],
    at: usize,
    /// A text without its escapes.
    plain: Vec<u8>,
}

impl Rewriting<'_> {
    /// The next byte that is no blank, which stays.
    fn next(&mut self) -> Option<u8> {
        let rest = self.bytes.get(self.at..)?;
        self.at += rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))?;
        self.bytes.get(self.at).copied()
    }

    /// Takes this byte, if it is the next one.
    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.next() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self, out: &mut Vec<u8>, depth: usize) -> Option<()> {
        match self.next()? {
            b'"' => self.string(out),
            b'{' => self.container(out, (b'{', b'}'), depth),
            b'[' => self.container(out, (b'[', b']'), depth),
            _ => self.word(out),
        }
    }

    fn container(&mut self, out: &mut Vec<u8>, (open, close): (u8, u8), depth: usize) -> Option<()> {
        self.at += 1;
        out.push(open);
        if depth == MAX_DEPTH {
            return None;
        }
        if !self.takes(close) {
            loop {
                if open == b'{' {
                    (self.next()? == b'"').then(|| self.string(out)).flatten()?;
                    self.takes(b':').then(|| out.push(b':'))?;
                }
                self.value(out, depth + 1)?;
                if self.takes(close) {
                    break;
                }
                self.takes(b',').then(|| out.push(b','))?;
            }
        }
        out.push(close);
        Some(())
    }

    fn string(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let end = lex::string_end(self.bytes, self.at + 1)?;
        self.plain.clear();
        text::unescape_onto(&mut self.plain, &self.bytes[self.at + 1..end]);
        escape::push_string(out, &self.plain);
        self.at = end + 1;
        Some(())
    }

    fn word(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let end = lex::word_end(self.bytes, self.at).unwrap_or(self.bytes.len());
        let word = &self.bytes[self.at..end];
        if !matches!(word, b"true" | b"false" | b"null") && !is_number(word) {
            return None;
        }
        out.extend_from_slice(word);
        self.at = end;
        Some(())
    }
}

/// Whether these bytes are a number as JSON has them.
fn is_number(word: &[u8]) -> bool {
    let digits = |from: &[u8]| from.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut rest = word.strip_prefix(b"-").unwrap_or(word);
    let whole = digits(rest);
    if whole == 0 || (whole > 1 && rest[0] == b'0') {
        return false;
    }
    rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = &fraction[count..];
    }
    if let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) {
        let exponent = exponent.strip_prefix(b"+").or_else(|| exponent.strip_prefix(b"-")).unwrap_or(exponent);
        let count = digits(exponent);
        if count == 0 {
            return false;
        }
        rest = &exponent[count..];
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::push;

    fn rewritten(text: &str) -> Option<String> {
        let mut out = b"before".to_vec();
        let is_json = push(&mut out, text.as_bytes());
        assert!(is_json || out == b"before", "{text}");
        is_json.then(|| String::from_utf8(out).unwrap()["before".len()..].to_owned())
    }

    #[test]
    fn json_is_written_without_blanks_and_each_text_is_escaped_again() {
        let text = " { \"a\" : [ 1 , -0.5e+3 , true , null , { } , [ ] ] ,\n\"\\u0062\" : \"\\u00e9 \\\"x\\\"\\n\" } ";
        assert_eq!(rewritten(text).unwrap(), "{\"a\":[1,-0.5e+3,true,null,{},[]],\"b\":\"\u{e9} \\\"x\\\"\\n\"}");
        for word in ["0", "-0", "10", "1.5", "1E9", "1e-9", "false", "\"\""] {
            assert_eq!(rewritten(word).as_deref(), Some(word));
        }
    }

    #[test]
    fn nothing_is_written_of_what_is_no_json() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "[1",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{1:2}",
            "\"a",
            "nul",
            "NaN",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "1 2",
            "[1]]",
            "]",
            "tru e",
        ] {
            assert_eq!(rewritten(text), None, "{text}");
        }
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(rewritten(&nested(64)).is_some());
        assert_eq!(rewritten(&nested(65)), None);
    }
}
