//! Writes JSON of others anew, so that it can stand in a line whatever it is: without blanks, each text escaped again,
//! and nothing at all of what is no JSON by RFC 8259.

use super::{escape, lex, text};
use queue::json::is_json;

/// Append the one value that `bytes` hold; return whether they are JSON of at most 128 levels, else `out` is as before.
pub fn push(out: &mut Vec<u8>, bytes: &[u8]) -> bool {
    if !is_json(bytes) {
        return false;
    }
    let (mut at, mut plain) = (0, Vec::new());
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let end = lex::string_end(bytes, at).unwrap_or(bytes.len());
                plain.clear();
                text::unescape_onto(&mut plain, &bytes[at..end]);
                escape::push_string(out, &plain);
                at = end + 1;
            }
            b' ' | b'\t' | b'\r' | b'\n' => {}
            other => out.push(other),
        }
    }
    true
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
            "", " ", "{", "[", "[1", "[1,]", "[,1]", "[1 2]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{1:2}",
            "\"a", "\"\n\"", "nul", "NaN", "01", "-", "1.", ".5", "1e", "+1", "1 2", "[1]]", "]", "tru e",
        ] {
            assert_eq!(rewritten(text), None, "{text}");
        }
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(rewritten(&nested(128)).is_some());
        assert_eq!(rewritten(&nested(129)), None);
    }
}
