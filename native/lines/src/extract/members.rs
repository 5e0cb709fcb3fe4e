//! What the configuration adds to a request's record (`request::added`): headers, members of the body, the body itself.
//!
//! Invariants: the value of a member that is to be hashed is never written, also where there is no key; every text is
//! escaped; nothing is read of a body that was not captured.

use super::facts::MAX_TEXT_BYTES;
use super::messages::{digest, push_hash};
use super::{Resume, lex, without_mark};
use crate::catalogue::derived;
use crate::json::{bounded, escape};
use queue::record::{Body, BodyKind};
use request::added::{Kind, Member, members};

/// Longest JSON value of a body that is written; the rest is cut.
const MAX_JSON_BYTES: usize = 1024;
/// Longest name of a member that is compared with its escapes resolved.
const LONGEST_NAME: usize = 32;
const CUT: &[u8] = "…".as_bytes();

/// Append the members in `bytes`, each as `,"name":"value"`; `body` is the request's. `seen` gets name and value of
/// each text. Returns whether the tools are among them, so that their names alone need not be in the line.
pub fn push_members<'a>(
    out: &mut Vec<u8>,
    bytes: &'a [u8],
    body: Option<&Body<'a>>,
    hash_key: Option<&[u8; 32]>,
    mut seen: impl FnMut(&'a [u8], &'a [u8]),
) -> bool {
    let mut has_tools = false;
    for Member { kind, name, value } in members(bytes) {
        let start = out.len();
        escape_key(out, name);
        let is_written = match kind {
            Kind::Text => push_text(out, value),
            Kind::Hash => push_hashed(out, value, hash_key),
            Kind::OfBody => find(body, value).is_some_and(|found| push_found(out, &found)),
            Kind::HashOfBody => find(body, value).is_some_and(|found| push_hashed(out, &found.plain(), hash_key)),
            Kind::Body => body.is_some_and(|body| push_body(out, body)),
            Kind::Tools => find(body, value).is_some_and(|found| push_tools(out, &found)),
        };
        match kind {
            _ if !is_written => out.truncate(start),
            Kind::Text => seen(name, value),
            Kind::Tools => has_tools = true,
            _ => {}
        }
    }
    has_tools
}

fn escape_key(out: &mut Vec<u8>, name: &[u8]) {
    out.push(b',');
    escape::push_string(out, name);
    out.push(b':');
}

fn push_text(out: &mut Vec<u8>, value: &[u8]) -> bool {
    escape::push_string(out, value);
    true
}

fn push_hashed(out: &mut Vec<u8>, value: &[u8], key: Option<&[u8; 32]>) -> bool {
    // Without a key, likely values could be found by trying.
    let Some(key) = key else { return false };
    out.push(b'"');
    push_hash(out, &digest(value, Some(key)).hash, true);
    out.push(b'"');
    true
}

/// The body's text as far as it was captured from its beginning.
fn push_body(out: &mut Vec<u8>, body: &Body<'_>) -> bool {
    let kept = if body.complete { body.head } else { escape::without_cut_last_character(body.head) };
    escape::push_string(out, kept);
    if !body.complete {
        derived::BODY_TRUNCATED.push(out, "true");
    }
    true
}

/// A value of a body: a string between its quotes, or other JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found<'a> {
    Text(&'a [u8]),
    Json(&'a [u8]),
}

impl Found<'_> {
    fn plain(&self) -> Vec<u8> {
        match *self {
            Self::Text(raw) => {
                let mut plain = Vec::with_capacity(raw.len());
                escape::unescape_onto(&mut plain, raw);
                plain
            }
            Self::Json(json) => json.to_vec(),
        }
    }
}

/// JSON stands in the line as a text: a body can hold what only looks like JSON.
fn push_found(out: &mut Vec<u8>, found: &Found<'_>) -> bool {
    let plain = found.plain();
    let limit = if matches!(found, Found::Text(_)) { MAX_TEXT_BYTES } else { MAX_JSON_BYTES };
    match plain.get(..limit) {
        Some(begin) if plain.len() > limit => {
            let begin = escape::without_cut_last_character(&begin[..limit - CUT.len()]);
            escape::push_string(out, &[begin, CUT].concat());
        }
        _ => escape::push_string(out, &plain),
    }
    true
}

/// A list stands in the line as JSON, so it must be JSON, and as every reader takes it.
fn push_tools(out: &mut Vec<u8>, found: &Found<'_>) -> bool {
    let start = out.len();
    let is_list = matches!(found, Found::Json(list) if list.starts_with(b"[") && bounded::push(out, list));
    bounded::keep(out, start, 1);
    is_list
}

/// The value of a member of the document; the last one, if it is there twice. None: it is null, or not in what was captured.
fn find<'a>(body: Option<&Body<'a>>, name: &[u8]) -> Option<Found<'a>> {
    let body = body.filter(|body| body.kind == BodyKind::Request)?;
    let of_head = find_in(without_mark(body.head), Resume::default(), name);
    let of_tail = || find_in(body.tail, lex::resume_point(body.tail)?, name);
    let found = if body.tail.is_empty() { of_head } else { of_tail().or(of_head) };
    found.filter(|found| *found != Found::Json(b"null"))
}

fn find_in<'a>(bytes: &'a [u8], start: Resume, name: &[u8]) -> Option<Found<'a>> {
    let (mut at, mut depth) = (start.at, start.depth);
    let (mut expects_key, mut is_wanted, mut begin, mut found) = (false, false, None, None);
    while let Some(&byte) = bytes.get(at) {
        let mut next = at + 1;
        match byte {
            b'"' => {
                let Some(end) = lex::string_end(bytes, at + 1) else { return found };
                let raw = &bytes[at + 1..end];
                next = end + 1;
                if depth == 1 && std::mem::take(&mut expects_key) {
                    is_wanted = is_name(raw, name);
                } else if depth == 1 && is_wanted {
                    found = Some(Found::Text(raw));
                }
            }
            b'{' | b'[' => {
                if depth == 1 && is_wanted {
                    begin = Some(at);
                }
                depth += 1;
                expects_key = depth == 1 && byte == b'{';
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 1 {
                    found = begin.take().map(|begin| Found::Json(&bytes[begin..=at])).or(found);
                } else if depth == 0 {
                    return found;
                }
            }
            b',' if depth == 1 => (expects_key, is_wanted) = (true, false),
            b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => {
                let Some(end) = lex::word_end(bytes, at) else { return found };
                if depth == 1 && is_wanted {
                    found = Some(Found::Json(&bytes[at..end]));
                }
                next = end;
            }
        }
        at = next;
    }
    found
}

fn is_name(raw: &[u8], name: &[u8]) -> bool {
    if !raw.contains(&b'\\') {
        return raw == name;
    }
    let mut plain = [0; LONGEST_NAME];
    matches!(escape::unescape(raw, &mut plain), (len, true) if plain[..len] == *name)
}

#[cfg(test)]
mod tests {
    use super::{Found, find_in};
    use crate::json::lex::{Resume, resume_point};

    fn found<'a>(bytes: &'a str, name: &str) -> Option<Found<'a>> {
        find_in(bytes.as_bytes(), Resume::default(), name.as_bytes())
    }

    #[test]
    fn only_a_member_of_the_document_itself_is_found_whatever_the_texts_say() {
        let body = r#"{"messages":[{"user":"no","content":"\"user\":\"no\""}],"\u0075ser":"yes \"x\"","n":1}"#;
        assert_eq!(found(body, "user"), Some(Found::Text(br#"yes \"x\""#)));
        assert_eq!(found(r#"{"a":{"user":"no"}}"#, "user"), None);
        assert_eq!(found(r#"["user","no"]"#, "user"), None);
        assert_eq!(found(r#"{"x":"user","y":1}"#, "user"), None);
    }

    #[test]
    fn an_object_a_list_and_a_word_are_found_whole_and_the_last_of_two_counts() {
        assert_eq!(
            found(r#"{"metadata": {"a":[1,{"b":2}]} ,"x":1}"#, "metadata"),
            Some(Found::Json(br#"{"a":[1,{"b":2}]}"#))
        );
        assert_eq!(found(r#"{"user":"a","user":12}"#, "user"), Some(Found::Json(b"12")));
        assert_eq!(found(r#"{"metadata":{"a":1"#, "metadata"), None, "its end is missing");
        assert_eq!(found(r#"{"user":"a"#, "user"), None);
    }

    #[test]
    fn the_end_of_a_body_is_read_without_its_beginning() {
        let end = br#"lost","x":{"user":"no"}}],"user":"yes","metadata":{"k":"v"}}"#;
        let start = resume_point(end).unwrap();
        assert_eq!(find_in(end, start, b"user"), Some(Found::Text(b"yes")));
        assert_eq!(find_in(end, start, b"metadata"), Some(Found::Json(br#"{"k":"v"}"#)));
    }
}
