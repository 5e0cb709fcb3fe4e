//! Fields that are spelled out in a text: `request failed: {"password": "…`, `password=…&`, `{'password': …}`.
//!
//! A text that is whole JSON has paths; this is for all others. Their structure is not known, so the last name of a
//! rule counts wherever something follows it that looks like its value; better too much than too little.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use super::Refused;
use super::paths::Paths;

/// Blanks between a name, its sign and its value.
const MOST_BLANKS: usize = 16;

/// Names of fields, searched for all at once.
#[derive(Debug, Default)]
pub struct Spelled {
    search: Option<AhoCorasick>,
    /// The name under which each is replaced, and whether it is all of its rule.
    rules: Vec<(&'static str, bool)>,
}

impl Spelled {
    pub fn compile(paths: &Paths) -> Result<Self, Refused> {
        let names: Vec<&str> = paths.last_names().map(|(name, ..)| name).collect();
        if names.is_empty() {
            return Ok(Self::default());
        }
        let search = AhoCorasick::builder().ascii_case_insensitive(true).match_kind(MatchKind::Standard).build(names);
        let search = search.map_err(|error| Refused { what: "redact_fields".to_owned(), why: error.to_string() })?;
        let rules = paths.last_names().map(|(_, name, is_all)| (name, is_all)).collect();
        Ok(Self { search: Some(search), rules })
    }

    /// Show the values of fields in `text` to `hit`.
    pub fn find(&self, text: &[u8], mut hit: impl FnMut(Range<usize>, &'static str)) {
        let Some(search) = &self.search else { return };
        let mut done = 0;
        for found in search.find_overlapping_iter(text) {
            let (name, is_all) = self.rules[found.pattern().as_usize()];
            // A replaced text is not searched again: an attacker could cause very many searches of it.
            if found.start() < done || text[..found.start()].last().is_some_and(is_of_word) {
                continue;
            }
            if let Some(value) = value_after(text, found.end(), is_all) {
                done = value.end;
                hit(value, name);
            }
        }
    }
}

fn is_of_word(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// The value that belongs to the name that ends at `at`. Without quotes around the name only if `plain`.
fn value_after(text: &[u8], at: usize, plain: bool) -> Option<Range<usize>> {
    let (quote, at) = quote_at(text, at);
    if quote.is_none() && !plain {
        return None;
    }
    let at = blanks(text, at);
    let (is_assigned, is_pair) = match text.get(at)? {
        b':' => (false, false),
        b'=' => (true, false),
        // A header as a pair: ('cookie', 'a=b').
        b',' if quote.is_some() => (false, true),
        _ => return None,
    };
    let at = at + 1 + usize::from(text.get(at + 1) == Some(&b'>'));
    let at = blanks(text, at);
    // Bytes as Python writes them: b'…'.
    let at = at + usize::from(text.get(at) == Some(&b'b') && quote_at(text, at + 1).0.is_some());
    let (quote, start) = quote_at(text, at);
    let end = match (quote, text.get(at)?) {
        (None, b'[' | b'(') if is_pair && holds_text(text, at + 1) => text.len(),
        (None, _) if is_pair => return None,
        (Some(quote), _) => closing(text, start, quote, start - at - 1),
        // Its end is not certain.
        (None, b'{' | b'[' | b'(') => text.len(),
        (None, _) => {
            let ends = |byte: &u8| match byte {
                b',' | b';' | b'&' | b'}' | b']' | b'"' | b'\'' | b'\n' | b'\r' => true,
                _ => is_assigned && byte.is_ascii_whitespace(),
            };
            at + text[at..].iter().position(ends).unwrap_or(text.len() - at)
        }
    };
    (start < end).then_some(start..end)
}

/// Whether a list that begins before `at` begins with a text.
fn holds_text(text: &[u8], at: usize) -> bool {
    let at = blanks(text, at);
    quote_at(text, at + usize::from(text.get(at) == Some(&b'b'))).0.is_some()
}

/// The quote at `at`, after backslashes, and where it ends.
fn quote_at(text: &[u8], at: usize) -> (Option<u8>, usize) {
    let escapes = text[at..].iter().take(MOST_BLANKS).take_while(|byte| **byte == b'\\').count();
    match text.get(at + escapes) {
        Some(quote @ (b'"' | b'\'' | b'`')) => (Some(*quote), at + escapes + 1),
        _ => (None, at),
    }
}

fn blanks(text: &[u8], at: usize) -> usize {
    at + text[at.min(text.len())..].iter().take(MOST_BLANKS).take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// The end of a text in quotes: the next quote that is escaped no deeper than the first one.
fn closing(text: &[u8], start: usize, quote: u8, escapes: usize) -> usize {
    let mut backslashes = 0;
    for (at, byte) in text.iter().enumerate().skip(start) {
        match *byte {
            b'\\' => backslashes += 1,
            byte if byte == quote && backslashes <= escapes => return at - backslashes,
            _ => backslashes = 0,
        }
    }
    text.len()
}
