//! JSON that every reader takes: no deeper than [`DEEPEST`], and no number beyond what readers keep.
//!
//! A reader that meets more ends there, or takes the line for none: OTLP has room for 31 objects within each other,
//! Fluent Bit for 32 containers, and `orjson` refuses a number that is infinite as a float. What goes beyond is text,
//! which loses nothing: a deeper container is its JSON, and a number its digits.

use super::{escape, lex};
use queue::json::is_json;

/// Most containers within each other in a line, the line's own among them.
pub const DEEPEST: usize = 30;
/// A whole number of so many bytes has 64 bits at most.
const SHORT_WORD_BYTES: usize = 18;

/// Keep the JSON in `out` from `start` on within the bounds; it stands within so many containers.
pub fn keep(out: &mut Vec<u8>, start: usize, within: usize) {
    let json = &out[start..];
    let (mut kept, mut copied, mut at, mut depth) = (Vec::new(), 0, 0, within);
    while let Some(&byte) = json.get(at) {
        let end = match byte {
            b'"' => string_end(json, at),
            b'{' | b'[' if depth >= DEEPEST => container_end(json, at),
            b'-' | b'0'..=b'9' => lex::word_end(json, at).unwrap_or(json.len()),
            _ => at + 1,
        };
        match byte {
            b'{' | b'[' if depth < DEEPEST => depth += 1,
            b'}' | b']' => depth -= 1.min(depth),
            b'{' | b'[' | b'-' | b'0'..=b'9' if byte > b'9' || !is_kept(&json[at..end]) => {
                kept.extend_from_slice(&json[copied..at]);
                escape::push_string(&mut kept, &json[at..end]);
                copied = end;
            }
            _ => {}
        }
        at = end;
    }
    if copied > 0 {
        kept.extend_from_slice(&json[copied..]);
        out.truncate(start);
        out.append(&mut kept);
    }
}

/// The index behind the string that begins at `at`.
fn string_end(json: &[u8], at: usize) -> usize {
    lex::string_end(json, at + 1).map_or(json.len(), |quote| quote + 1)
}

/// The index behind the container that begins at `at`.
fn container_end(json: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(&byte) = json.get(at) {
        match byte {
            b'"' => {
                at = string_end(json, at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Whether readers keep a number: it is whole and has 64 bits, or is finite as a float. What is none stays too.
fn is_kept(number: &[u8]) -> bool {
    let is_whole = number.iter().all(|byte| matches!(byte, b'-' | b'0'..=b'9'));
    if is_whole && number.len() <= SHORT_WORD_BYTES {
        return true;
    }
    let text = std::str::from_utf8(number).unwrap_or_default();
    let is_of_64_bits = is_whole && (text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok());
    is_of_64_bits || text.parse::<f64>().map_or(true, |float| !is_whole && float.is_finite())
}

// Writes JSON of others anew, so that it can stand in a line whatever it is: without blanks, each text escaped again,
// and nothing at all of what is no JSON by RFC 8259.

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
                escape::unescape_onto(&mut plain, &bytes[at..end]);
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
    use super::{DEEPEST, keep, push};

    fn kept(json: &str, within: usize) -> String {
        let mut out = b"[[{".to_vec();
        out.extend_from_slice(json.as_bytes());
        keep(&mut out, 3, within);
        String::from_utf8(out).unwrap()[3..].to_owned()
    }

    #[test]
    fn what_is_within_the_bounds_stays_byte_for_byte() {
        let deepest = "[".repeat(DEEPEST - 1) + &"]".repeat(DEEPEST - 1);
        let numbers = "[-9223372036854775808,18446744073709551615,1e308,-1.5E-400,0.12345678901234567890123]";
        let brackets = r#"{"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[":"\"{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{"}"#;
        let flat = format!("[{}]", vec!["{}"; 100].join(","));
        for json in [&deepest, numbers, brackets, &flat, "null", "", r#""1e999""#, r#"{"18446744073709551616":1}"#] {
            assert_eq!(kept(json, 1), json);
        }
    }

    #[test]
    fn a_number_beyond_64_bits_or_308_digits_is_its_digits_as_text() {
        let digits = "9".repeat(400);
        let kept =
            kept(&format!("[18446744073709551616,{{\"a\":-9223372036854775809}},1e309,{digits},-{digits}.5 ,7]"), 1);
        let wanted =
            format!(r#"["18446744073709551616",{{"a":"-9223372036854775809"}},"1e309","{digits}","-{digits}.5" ,7]"#);
        assert_eq!(kept, wanted);
    }

    #[test]
    fn a_deeper_container_is_its_json_as_text_and_its_neighbours_stay() {
        assert_eq!(kept(r#"{"a":[1,"]"],"b":{},"c":2}"#, DEEPEST - 1), r#"{"a":"[1,\"]\"]","b":"{}","c":2}"#);
        assert_eq!(kept(r#"[1,2]"#, DEEPEST), r#""[1,2]""#);
        let inner = r#"{\"a\":{\"b\":[]}}"#;
        let outer = |inside: &str| "[".repeat(DEEPEST - 1) + inside + &"]".repeat(DEEPEST - 1);
        assert_eq!(kept(&outer(r#"{"a":{"b":[]}}"#), 1), outer(&format!("\"{inner}\"")));
    }

    #[test]
    fn broken_json_ends_it() {
        for broken in ["[[[", "]]]", "{\"a", "\"\\", "}[{", "-", "1e", "[1,\"a]"] {
            for within in [0, 1, DEEPEST - 1, DEEPEST] {
                kept(broken, within);
            }
        }
    }

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
