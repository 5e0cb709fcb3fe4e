//! Searches a text once, quickly, for anything that a rule could need: most lines hold nothing of it and are left
//! alone.
//!
//! It may report something that is not there, never the reverse: each finder's first condition is here too. An encoded
//! text ([`Hints::CODED`]) does not show its decoded content, and has to be searched again after decoding.

use super::Refused;
use super::finders::CUT;
use super::paths::Paths;
use super::patterns::{Hints, Patterns};
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::{memchr, memchr_iter, memchr2, memmem};

/// The searches of all rules.
#[derive(Debug)]
pub struct Gate {
    at: bool,
    /// All words; the other two show which of them it was.
    words: Option<AhoCorasick>,
    keys: Option<AhoCorasick>,
    names: Option<AhoCorasick>,
    /// A rule has no name that could be searched for.
    every_line: bool,
}

impl Gate {
    pub fn compile(patterns: &Patterns, paths: &Paths) -> Result<Self, Refused> {
        let keys = patterns.words();
        let names = paths.needed_names().flatten().map(str::to_owned);
        let names: Vec<String> = names.chain(patterns.name_parts().map(str::to_owned)).collect();
        let words: Vec<String> = keys.iter().chain(&names).cloned().collect();
        Ok(Self {
            at: patterns.needs_at(),
            words: search(&words)?,
            keys: search(&keys)?,
            names: search(&names)?,
            every_line: paths.needed_names().any(|name| name.is_none()),
        })
    }

    /// Search a text, or a part of a line with its escapes; only for the things in `seen`.
    pub fn hints_in(&self, text: &[u8], patterns: &Patterns, seen: Hints) -> Hints {
        let mut hints = Hints::default();
        if seen.has(Hints::AT) && self.at {
            hints.add(Hints::AT, memchr2(b'@', 0xEF, text).is_some());
        }
        if seen.has(Hints::CODED) {
            hints.add(Hints::CODED, is_coded(text));
        }
        if seen.has(Hints::CUT) && patterns.has_built_in() {
            hints.add(Hints::CUT, memmem::find(text, CUT).is_some());
        }
        if seen.has(Hints::DIGITS) {
            hints.add(Hints::DIGITS, patterns.has_digits(text));
        }
        if seen.has(Hints::KEYS | Hints::NAMES) {
            self.search_words(text, seen, &mut hints);
        }
        if seen.has(Hints::CUSTOM) {
            hints.add(Hints::CUSTOM, patterns.may_match_custom(text));
        }
        hints
    }

    fn search_words(&self, text: &[u8], seen: Hints, hints: &mut Hints) {
        hints.add(Hints::NAMES, self.every_line && seen.has(Hints::NAMES));
        let is_in = |words: &Option<AhoCorasick>| words.as_ref().is_some_and(|words| words.is_match(text));
        let both = seen.has(Hints::KEYS) && seen.has(Hints::NAMES);
        if both && !is_in(&self.words) {
            return;
        }
        hints.add(Hints::KEYS, seen.has(Hints::KEYS) && is_in(&self.keys));
        hints.add(Hints::NAMES, seen.has(Hints::NAMES) && is_in(&self.names));
    }
}

fn search(words: &[String]) -> Result<Option<AhoCorasick>, Refused> {
    if words.is_empty() {
        return Ok(None);
    }
    let search = AhoCorasick::builder().ascii_case_insensitive(true).kind(Some(AhoCorasickKind::DFA)).build(words);
    search.map(Some).map_err(|error| Refused { what: "redact_fields".to_owned(), why: error.to_string() })
}

/// Whether there are escapes or percent-encoding; those of a quote, a line's end and a slash hide nothing.
fn is_coded(text: &[u8]) -> bool {
    let mut after = 0;
    while let Some(found) = memchr(b'\\', &text[after..]) {
        if !matches!(text.get(after + found + 1), Some(b'"' | b'n' | b'/')) {
            return true;
        }
        after += found + 2;
    }
    let is_hex = |at: usize| text.get(at).is_some_and(u8::is_ascii_hexdigit);
    memchr_iter(b'%', text).any(|at| is_hex(at + 1) && is_hex(at + 2))
}
