//! Redaction: secrets are replaced in the finished line, before anything else sees it (P11).
//!
//! It works on the line and not on its values: every value of a record, now and in later versions, passes here, and a
//! rule's path is the path that a reader of the line sees. Two kinds of rules:
//!
//! * *fields* name places (`paths`); everything there is replaced, of whatever type;
//! * *patterns* find texts (`patterns`): in values, keys and numbers.
//!
//! A secret does not have to look like itself. Texts are searched as they are and as later readers would see them
//! (`view`): JSON's escapes resolved, also those of JSON within a string, percent-encoding resolved. JSON within a
//! string has paths of its own; if it is broken or cut, the names of fields are searched for (`spelled`).
//!
//! Most lines hold nothing that any rule could need, which a quick check shows ([`Gate`]).
//!
//! Invariants: a valid line stays valid; a line that has to be examined and is not valid becomes one that says so,
//! since none of its structure can be trusted; time is linear in the line, whatever the line and the rules. The head of
//! a line, except the name of a user's event, and the ids of a trace are never touched: other records and the
//! listener's counts refer to them.

use crate::json::escape::{self, unescape_onto};
use crate::series::observe::InferenceRequest;
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use finders::CUT;
use memchr::{memchr, memchr_iter, memchr2, memmem};
use paths::{Paths, Spelled};
use patterns::{Hints, Patterns};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use view::Edits;
use walk::Walk;

mod finders;
mod paths;
mod patterns;
mod view;
mod walk;

/// Follows the head of a line that was not valid JSON.
const NOT_JSON: &[u8] = br#","redaction":"the record was not valid JSON"}"#;
/// The name for `{name}` in the replacement of a field rule.
const FIELD: &str = "field";
const LONGEST_REPLACEMENT: usize = 256;
/// Most rules of one parameter.
pub(crate) const MAX_RULES: usize = 256;

/// The redaction as the configuration describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedactionSettings {
    /// Paths of fields.
    pub fields: Vec<String>,
    /// Names of built-in patterns.
    pub patterns: Vec<String>,
    /// Names and regular expressions.
    pub custom: Vec<(String, String)>,
    /// The replacement of a match; `{name}` in it becomes the pattern's name.
    pub replacement: String,
}

/// A setting that cannot be used. Retrying never helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The parameter, and the value that is wrong.
    pub what: String,
    /// The reason, or what is allowed.
    pub why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Refused {}

/// The rules, compiled once for all lines.
#[derive(Debug)]
pub struct Rules {
    paths: Paths,
    patterns: Patterns,
    spelled: Spelled,
    gate: Gate,
    replacement: String,
}

impl Rules {
    /// Compile `settings`; None if they redact nothing.
    ///
    /// # Errors
    /// The parameter and value at fault.
    pub fn compile(settings: &RedactionSettings) -> Result<Option<Arc<Self>>, Refused> {
        let replacement = settings.replacement.clone();
        if replacement.len() > LONGEST_REPLACEMENT || replacement.chars().any(char::is_control) {
            return Err(Refused {
                what: format!("redact_replacement={replacement:?}"),
                why: format!("must be at most {LONGEST_REPLACEMENT} bytes without control characters"),
            });
        }
        let patterns = Patterns::compile(&settings.patterns, &settings.custom)?;
        let paths = Paths::compile(&settings.fields, &patterns)?;
        let nothing = paths.is_empty() && patterns.is_empty();
        let spelled = Spelled::compile(&paths)?;
        let gate = Gate::compile(&patterns, &paths)?;
        Ok((!nothing).then(|| Arc::new(Self { paths, patterns, spelled, gate, replacement })))
    }

    /// Whether texts are searched for what looks like a secret.
    #[must_use]
    pub(crate) fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    fn hints_in(&self, text: &[u8], seen: Hints) -> Hints {
        self.gate.hints_in(text, &self.patterns, seen)
    }

    /// The name under which the value of a field is replaced, if only the field's name is known.
    fn named(&self, name: &[u8]) -> Option<&'static str> {
        let is_it = |known: &str, is_all: bool| is_all && known.as_bytes().eq_ignore_ascii_case(name);
        let rule = self.paths.last_names().find(|(known, _, is_all)| is_it(known, *is_all));
        rule.map(|(_, replaced_as, _)| replaced_as).or_else(|| self.patterns.credential(name))
    }

    /// The replacement of a match of the pattern called `name`.
    fn replacement(&self, name: &str) -> String {
        self.replacement.replace("{name}", name)
    }
}

/// The rules, and the state that is kept from one line to the next.
pub struct Redaction {
    rules: Arc<Rules>,
    edits: Edits,
    spare: Vec<u8>,
    /// The last event's name, and its redacted form.
    event: (Box<[u8]>, Option<Vec<u8>>),
    /// The last route, and its redacted form.
    route: (Box<[u8]>, Option<Vec<u8>>),
}

impl Redaction {
    /// Make one for a single thread.
    #[must_use]
    pub fn new(rules: Arc<Rules>) -> Self {
        Self { rules, edits: Edits::default(), spare: Vec::new(), event: Default::default(), route: Default::default() }
    }

    /// Redact the line in `out` from `fields` on: `,"key":value…}\n`, the part after the head.
    #[inline(never)]
    pub fn line(&mut self, out: &mut Vec<u8>, fields: usize) {
        let line = &out[fields..];
        let hints = self.rules.hints_in(line, Hints::ALL);
        if hints.is_empty() {
            return;
        }
        let walk = Walk::new(&self.rules, &mut self.edits, hints);
        let whole = std::str::from_utf8(line).is_ok() && walk.line(line.strip_suffix(b"\n").unwrap_or(line));
        if !whole {
            self.edits.clear();
            out.truncate(fields);
            out.extend_from_slice(NOT_JSON);
            out.push(b'\n');
        } else if !self.edits.is_empty() {
            self.spare.clear();
            self.edits.apply(&out[fields..], &mut self.spare);
            out.truncate(fields);
            out.extend_from_slice(&self.spare);
        }
    }

    /// Append the name of a user's event, a JSON string. No rule for a field names it.
    #[inline(never)]
    pub(crate) fn push_event_name(&mut self, out: &mut Vec<u8>, name: &[u8]) {
        if *self.event.0 != *name {
            let kept = self.label("", &name[1..name.len() - 1]);
            self.event = (name.into(), kept.map(|kept| [b"\"", &kept[..], b"\""].concat()));
        }
        out.extend_from_slice(self.event.1.as_deref().unwrap_or(name));
    }

    /// Return the rest of a request's route, which is a label outside of lines.
    #[inline(never)]
    pub fn route<'a>(&'a mut self, route: &'a [u8]) -> &'a [u8] {
        if *self.route.0 != *route {
            let mut quoted = Vec::new();
            escape::push_string(&mut quoted, route);
            let kept = self.label("http.route", &quoted[1..quoted.len() - 1]);
            let kept = kept.map(|kept| {
                let mut text = Vec::new();
                unescape_onto(&mut text, &kept);
                text
            });
            self.route = (route.into(), kept);
        }
        self.route.1.as_deref().unwrap_or(route)
    }

    /// Pass `seen` without its redacted parts to `observe`: its labels leave the listener outside of lines.
    #[inline(never)]
    pub fn labels(&mut self, seen: &InferenceRequest<'_>, observe: impl FnOnce(&InferenceRequest<'_>)) {
        // It is not known any more which of the two it is.
        let mut model = Cow::Borrowed(seen.model);
        for key in ["gen_ai.request.model", "gen_ai.response.model"] {
            if let Some(kept) = self.label(key, &model) {
                model = kept.into();
            }
        }
        let mut error_type = Vec::new();
        escape::push_string(&mut error_type, seen.error_type);
        let error_type = self.label("error.type", &error_type[1..error_type.len() - 1]);
        observe(&seen.relabelled(&model, error_type.as_deref().unwrap_or(seen.error_type)));
    }

    /// Return the rest of a text that is in the line as `key`; `raw` is between its quotes. None: all of it.
    fn label(&mut self, key: &str, raw: &[u8]) -> Option<Vec<u8>> {
        if raw.is_empty() {
            return None;
        }
        let quoted = [b",\"", key.as_bytes(), b"\":\"", raw, b"\"}"].concat();
        let hints = self.rules.hints_in(&quoted, Hints::ALL);
        if hints.is_empty() {
            return None;
        }
        if !Walk::new(&self.rules, &mut self.edits, hints).line(&quoted) {
            self.edits.clear();
            return Some(b"_OTHER".to_vec());
        }
        if self.edits.is_empty() {
            return None;
        }
        let mut redacted = Vec::new();
        self.edits.apply(&quoted, &mut redacted);
        // An expression can match the key too; no escaped text holds the bytes between them.
        let before = memmem::find(&redacted, b"\":\"").map_or(0, |at| at + b"\":\"".len());
        Some(redacted[before..redacted.len() - b"\"}".len()].to_vec())
    }
}

/// The searches of all rules: searches a text once, quickly, for anything that a rule could need.
///
/// It may report something that is not there, never the reverse: each finder's first condition is here too. An encoded
/// text ([`Hints::CODED`]) does not show its decoded content, and has to be searched again after decoding.
#[derive(Debug)]
struct Gate {
    at: bool,
    /// All words; the other two show which of them it was.
    words: Option<AhoCorasick>,
    keys: Option<AhoCorasick>,
    names: Option<AhoCorasick>,
    /// A rule has no name that could be searched for.
    every_line: bool,
}

impl Gate {
    fn compile(patterns: &Patterns, paths: &Paths) -> Result<Self, Refused> {
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
    fn hints_in(&self, text: &[u8], patterns: &Patterns, seen: Hints) -> Hints {
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

#[cfg(test)]
mod tests {
    use super::{Redaction, RedactionSettings, Rules};

    #[test]
    fn a_label_is_what_remains_of_it_also_where_an_expression_matches_its_key() {
        for (replacement, kept) in [("", "M-7"), ("<{name}>", "M-7<own>")] {
            let custom = vec![("own".to_owned(), "[a-z_.]+".to_owned())];
            let settings = RedactionSettings { custom, replacement: replacement.to_owned(), ..Default::default() };
            let mut redaction = Redaction::new(Rules::compile(&settings).unwrap().unwrap());
            assert_eq!(redaction.label("gen_ai.request.model", b"M-7secret").unwrap(), kept.as_bytes());
        }
    }
}
