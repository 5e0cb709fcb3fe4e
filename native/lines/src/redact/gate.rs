//! Searches a text once, quickly, for anything that a rule could need: most lines hold nothing of it and are left
//! alone.
//!
//! It may report something that is not there, never the reverse: each finder's first condition is here too. An encoded
//! text ([`Sight::CODED`]) does not show its decoded content, and has to be searched again after decoding.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::{memchr, memchr_iter, memchr2, memmem};

use super::Refused;
use super::finders::CUT;
use super::paths::Paths;
use super::patterns::Patterns;
use super::sight::Sight;

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
    pub fn sight_of(&self, text: &[u8], patterns: &Patterns, seen: Sight) -> Sight {
        let mut sight = Sight::default();
        if seen.has(Sight::AT) && self.at {
            sight.add(Sight::AT, memchr2(b'@', 0xEF, text).is_some());
        }
        if seen.has(Sight::CODED) {
            sight.add(Sight::CODED, is_coded(text));
        }
        if seen.has(Sight::CUT) && patterns.has_built_in() {
            sight.add(Sight::CUT, memmem::find(text, CUT).is_some());
        }
        if seen.has(Sight::DIGITS) {
            sight.add(Sight::DIGITS, patterns.has_digits(text));
        }
        if seen.has(Sight::KEYS | Sight::NAMES) {
            self.search_words(text, seen, &mut sight);
        }
        if seen.has(Sight::CUSTOM) {
            sight.add(Sight::CUSTOM, patterns.may_match_custom(text));
        }
        sight
    }

    fn search_words(&self, text: &[u8], seen: Sight, sight: &mut Sight) {
        sight.add(Sight::NAMES, self.every_line && seen.has(Sight::NAMES));
        let is_in = |words: &Option<AhoCorasick>| words.as_ref().is_some_and(|words| words.is_match(text));
        let both = seen.has(Sight::KEYS) && seen.has(Sight::NAMES);
        if both && !is_in(&self.words) {
            return;
        }
        sight.add(Sight::KEYS, seen.has(Sight::KEYS) && is_in(&self.keys));
        sight.add(Sight::NAMES, seen.has(Sight::NAMES) && is_in(&self.names));
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
