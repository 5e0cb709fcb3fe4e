//! Field rules: the places that they lead to, step by step, while a line is walked.
//!
//! ```text
//! password                     a member of this name, wherever it stands
//! user.email                   the member email of a member user, wherever that stands
//! $.user.email                 from the beginning of the line
//! gen_ai.input.messages[*].parts[*].content      names with dots are one key, or members of members, as it comes
//! attributes['a.b'][0].*       one key with a dot; an element; any member
//! ```
//!
//! Names are compared without regard to the case of ASCII letters: headers come in any.

use super::Refused;
use super::patterns::Patterns;
use aho_corasick::{AhoCorasick, MatchKind};
use std::ops::Range;

const LONGEST_PATH: usize = 512;
const MAX_STEPS: usize = 32;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    /// A part of a name: together with the following parts it may be one key with dots.
    Name(String),
    /// All of a key.
    Key(String),
    Index(usize),
    /// Any member or element.
    Any,
}

#[derive(Clone, Debug)]
struct PathRule {
    steps: Vec<PathStep>,
    /// From the beginning of the line on; else it may begin anywhere.
    anchored: bool,
    /// The name under which its matches are replaced.
    name: &'static str,
    /// Objects are not replaced, and of arrays only the scalars in them.
    scalars: bool,
}

impl PathRule {
    fn last_name(&self) -> Option<&str> {
        self.steps.iter().rev().find_map(|step| match step {
            PathStep::Name(name) | PathStep::Key(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

/// The progress of a rule: its number, and the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    rule: u16,
    step: u16,
}

impl State {
    /// Whether it has left its beginning.
    pub fn is_under_way(self) -> bool {
        self.step > 0
    }
}

/// The meaning of a member or element for the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// To be replaced, under this name.
    Whole(&'static str),
    /// To be replaced if it is not an object or array; of an array, each element in the same way.
    Scalar(&'static str),
    /// As `Scalar`, and only if it is a text.
    Text(&'static str),
}

/// All field rules.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    rules: Vec<PathRule>,
}

impl Paths {
    /// Compile `paths`, and the names of fields that built-in patterns add.
    pub fn compile(paths: &[String], patterns: &Patterns) -> Result<Self, Refused> {
        let refused = |what: String, why: &str| Refused { what, why: why.to_owned() };
        if paths.len() > super::MAX_RULES {
            let what = format!("redact_fields with {} paths", paths.len());
            return Err(refused(what, &format!("must be at most {}", super::MAX_RULES)));
        }
        let mut rules = Vec::new();
        for path in paths {
            let rule = parse(path).map_err(|why| refused(format!("redact_fields={path:?}"), why))?;
            rules.push(rule);
        }
        for (pattern, name) in patterns.field_names() {
            let steps = vec![PathStep::Key((*name).to_owned())];
            rules.push(PathRule { steps, anchored: false, name: pattern, scalars: true });
        }
        Ok(Self { rules })
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The states of all rules at the beginning of a line.
    pub fn start(&self, states: &mut Vec<State>) {
        states.extend((0..self.rules.len() as u16).map(|rule| State { rule, step: 0 }));
    }

    /// The states of rules that may begin anywhere.
    fn restart(&self, states: &mut Vec<State>) {
        let anywhere = self.rules.iter().enumerate().filter(|(_, rule)| !rule.anchored);
        states.extend(anywhere.map(|(rule, _)| State { rule: rule as u16, step: 0 }));
    }

    /// Follow the rules in `states[from..to]` into the member `key`; the states of rules that continue in it are
    /// appended to `states`.
    pub fn member(&self, states: &mut Vec<State>, from: usize, to: usize, key: &[u8]) -> Found {
        let mut found = Found::Nothing;
        for at in from..to {
            let State { rule, step } = states[at];
            let steps = &self.rules[usize::from(rule)].steps[usize::from(step)..];
            if let Some(taken) = taken_by(steps, key) {
                found = self.advance(states, State { rule, step: step + taken as u16 }, found);
            }
        }
        self.restart(states);
        found
    }

    /// As `member`, into an element of an array.
    pub fn element(&self, states: &mut Vec<State>, from: usize, to: usize, index: usize) -> Found {
        let mut found = Found::Nothing;
        for at in from..to {
            let State { rule, step } = states[at];
            let matches = match self.rules[usize::from(rule)].steps[usize::from(step)] {
                PathStep::Any => true,
                PathStep::Index(wanted) => wanted == index,
                _ => false,
            };
            if matches {
                found = self.advance(states, State { rule, step: step + 1 }, found);
            }
        }
        self.restart(states);
        found
    }

    fn advance(&self, states: &mut Vec<State>, next: State, found: Found) -> Found {
        let rule = &self.rules[usize::from(next.rule)];
        if usize::from(next.step) < rule.steps.len() {
            states.push(next);
            return found;
        }
        match found {
            Found::Whole(_) => found,
            _ if rule.scalars => Found::Scalar(rule.name),
            _ => Found::Whole(rule.name),
        }
    }

    /// For each rule a name without which it finds nothing, also in texts that are not JSON: if it has one.
    pub fn needed_names(&self) -> impl Iterator<Item = Option<&str>> {
        let is_spelled_once = |name: &&str| !name.contains(['"', '\\', '/']);
        self.rules.iter().map(move |rule| rule.last_name().filter(is_spelled_once))
    }

    /// The last key of each rule that may begin anywhere, the name under which it is replaced, and whether that key is
    /// all of it.
    pub fn last_names(&self) -> impl Iterator<Item = (&str, &'static str, bool)> {
        let anywhere = self.rules.iter().filter(|rule| !rule.anchored);
        anywhere.filter_map(|rule| rule.last_name().map(|last| (last, rule.name, rule.steps.len() == 1)))
    }
}

/// How many of `steps` the member `key` takes: a key with dots takes as many as it has parts.
fn taken_by(steps: &[PathStep], key: &[u8]) -> Option<usize> {
    match &steps[0] {
        PathStep::Any => return Some(1),
        PathStep::Key(name) => return name.as_bytes().eq_ignore_ascii_case(key).then_some(1),
        PathStep::Index(_) => return None,
        PathStep::Name(_) => {}
    }
    let mut rest = key;
    for (at, step) in steps.iter().enumerate() {
        let PathStep::Name(name) = step else { return None };
        let (part, after) = rest.split_at_checked(name.len())?;
        if !part.eq_ignore_ascii_case(name.as_bytes()) {
            return None;
        }
        match after.split_first() {
            None => return Some(at + 1),
            Some((b'.', after)) => rest = after,
            Some(_) => return None,
        }
    }
    None
}

fn parse(path: &str) -> Result<PathRule, &'static str> {
    if path.len() > LONGEST_PATH {
        return Err("must be at most 512 bytes");
    }
    let (anchored, mut rest) = match path.strip_prefix('$') {
        Some(rest) if rest.starts_with("..") => (false, &rest[2..]),
        Some(rest) => (true, rest.strip_prefix('.').unwrap_or(rest)),
        None => (false, path),
    };
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = if rest.starts_with('[') { bracketed(rest)? } else { named(rest)? };
        steps.push(step);
        rest = match after.strip_prefix('.') {
            Some("") => return Err("must not end with a dot"),
            Some(after) => after,
            None if after.is_empty() || after.starts_with('[') => after,
            None => return Err("must have a dot or a bracket between two steps"),
        };
    }
    if steps.is_empty() || steps.len() > MAX_STEPS {
        return Err("must have 1 to 32 steps");
    }
    if steps.iter().all(|step| matches!(step, PathStep::Any | PathStep::Index(_))) && !anchored {
        return Err("must have a name, or begin with $");
    }
    Ok(PathRule { steps, anchored, name: super::FIELD, scalars: false })
}

fn named(rest: &str) -> Result<(PathStep, &str), &'static str> {
    let end = rest.find(['.', '[']).unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    match name {
        "" => Err("must have a name between two dots; .. may stand behind $ only"),
        "*" => Ok((PathStep::Any, after)),
        _ if name.contains(|at: char| "*]'\"$".contains(at) || at.is_control()) => {
            Err("must have names such as user, user.email or messages[*].content; others go into ['…']")
        }
        _ => Ok((PathStep::Name(name.to_owned()), after)),
    }
}

fn bracketed(rest: &str) -> Result<(PathStep, &str), &'static str> {
    for quote in ["'", "\""] {
        if let Some(quoted) = rest[1..].strip_prefix(quote) {
            let (name, after) = quoted.split_once(&format!("{quote}]")).ok_or("must end a bracket that it begins")?;
            return Ok((PathStep::Key(name.to_owned()), after));
        }
    }
    let (inside, after) = rest[1..].split_once(']').ok_or("must end a bracket that it begins")?;
    match inside {
        "*" => Ok((PathStep::Any, after)),
        _ if inside.bytes().all(|byte| byte.is_ascii_digit()) => {
            let index = inside.parse().map_err(|_| "must have an index between [ and ]")?;
            Ok((PathStep::Index(index), after))
        }
        _ => Err("must have [*], an index such as [0], or a name in quotes between [ and ]"),
    }
}

// Fields that are spelled out in a text: `request failed: {"password": "…`, `password=…&`, `{'password': …}`.
//
// A text that is whole JSON has paths; this is for all others. Their structure is not known, so the last name of a
// rule counts wherever something follows it that looks like its value; better too much than too little.

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
