//! Walks a line, and the JSON in its strings, and notes the replacements.
//!
//! Invariants: no recursion except into the JSON of a string, [`MAX_NESTED`] deep; invalid JSON is never taken for a
//! document. Each byte is read a fixed number of times.

use super::paths::{Found, State};
use super::patterns::Hints;
use super::view::View;
use super::{Edits, FIELD, Rules};
use crate::json::lex::{is_string, string_end};
use std::ops::Range;

/// How deep a line may nest; the encoder's own limits are below.
const MAX_DEPTH: usize = 512;
/// How deep JSON in strings of JSON is followed.
const MAX_NESTED: usize = 4;
/// How often a text is decoded and searched again.
const MAX_ROUNDS: usize = 3;

/// Members of the line that are never touched.
const IDS: [&[u8]; 4] = [b"trace_id", b"span_id", b"parent_span_id", b"trace_flags"];
/// As these, if it has the form that this package gives: it joins records.
const REQUEST_ID: &[u8] = b"request_id";
const ID_DIGITS: [usize; 3] = [2, 16, 32];

#[derive(Clone, Copy, PartialEq)]
enum Expect {
    Member,
    MemberOrEnd,
    Value,
    ValueOrEnd,
    CommaOrEnd,
}

struct Frame {
    is_object: bool,
    /// Where the rules are, in `states`.
    states: Range<usize>,
    index: usize,
    /// For an array whose first element is the name of a header or field: the name under which its second one is
    /// replaced.
    named: Option<&'static str>,
    /// For an array that a name leads to, as a header with several values: what its elements are by that name.
    each: Found,
}

/// The next value: the rules for it, and the states in which they continue in it.
struct Next {
    found: Found,
    states: Range<usize>,
    /// An id that is skipped.
    is_id: bool,
}

/// One pass over one line.
pub struct Walk<'r, 'e> {
    rules: &'r Rules,
    edits: &'e mut Edits,
    states: Vec<State>,
    /// What the texts may contain.
    seen: Hints,
    /// Whether the name of a field may occur.
    follows: bool,
    /// Whether JSON in texts has to be read.
    enters: bool,
    nested: usize,
}

impl<'r, 'e> Walk<'r, 'e> {
    /// Begin with the things that were seen in the line.
    pub fn new(rules: &'r Rules, edits: &'e mut Edits, seen: Hints) -> Self {
        let follows = seen.has(Hints::NAMES | Hints::CODED);
        let enters = follows || seen.has(Hints::DIGITS | Hints::CUSTOM);
        // Encoded text can become anything.
        let seen = if seen.has(Hints::CODED) { Hints::ALL } else { seen };
        Self { rules, edits, states: Vec::new(), seen, follows, enters, nested: 0 }
    }

    /// Walk the part of a line after its head: members and the brace that ends it. Returns whether that is valid.
    pub fn line(mut self, fields: &[u8]) -> bool {
        if self.follows {
            self.rules.paths.start(&mut self.states);
        }
        let root = Frame { is_object: true, states: 0..self.states.len(), index: 0, named: None, each: Found::Nothing };
        self.document(&View::of_line(fields), vec![root], Expect::CommaOrEnd).is_some()
    }

    /// Walk a document to its end; None if it is not valid.
    fn document(&mut self, view: &View<'_>, mut frames: Vec<Frame>, mut expect: Expect) -> Option<()> {
        let bytes = &*view.bytes;
        let outermost = frames.first().map(|frame| frame.states.clone()).unwrap_or_default();
        let mut next = Next { found: Found::Nothing, states: outermost, is_id: false };
        let mut at = blanks(bytes, 0);
        while let Some(&byte) = bytes.get(at) {
            match (expect, byte) {
                (Expect::CommaOrEnd, b',') => {
                    let frame = frames.last_mut()?;
                    frame.index += 1;
                    expect = if frame.is_object { Expect::Member } else { Expect::Value };
                    at += 1;
                }
                (Expect::CommaOrEnd | Expect::MemberOrEnd, b'}') | (Expect::CommaOrEnd | Expect::ValueOrEnd, b']') => {
                    let frame = frames.pop().filter(|frame| frame.is_object == (byte == b'}'))?;
                    self.states.truncate(frame.states.end);
                    expect = Expect::CommaOrEnd;
                    at += 1;
                    if frames.is_empty() {
                        return (blanks(bytes, at) == bytes.len()).then_some(());
                    }
                }
                (Expect::Member | Expect::MemberOrEnd, b'"') => {
                    let end = self.string_end(bytes, at + 1)?;
                    let frame = frames.last()?;
                    let is_top = self.nested == 0 && frames.len() == 1;
                    next = self.member(view, at + 1..end, frame.states.clone(), is_top);
                    at = blanks(bytes, end + 1);
                    if bytes.get(at) != Some(&b':') {
                        return None;
                    }
                    at += 1;
                    expect = Expect::Value;
                }
                (Expect::Value | Expect::ValueOrEnd, _) => {
                    if let Some(frame) = frames.last_mut().filter(|frame| !frame.is_object) {
                        next = self.element(frame);
                        self.pair(view, at, frame, &mut next);
                    }
                    (at, expect) = self.value(view, at, &next, &mut frames)?;
                    if frames.is_empty() {
                        // A root that is neither an object nor an array does not count as a document.
                        return None;
                    }
                }
                _ => return None,
            }
            at = blanks(bytes, at);
        }
        None
    }

    /// The end of a string. JSON in a text may hold control characters and any escape, as the reader of that text may
    /// have taken it; the line itself may not.
    fn string_end(&self, bytes: &[u8], from: usize) -> Option<usize> {
        string_end(bytes, from).filter(|end| self.nested > 0 || is_string(&bytes[from..*end]))
    }

    fn member(&mut self, view: &View<'_>, range: Range<usize>, from: Range<usize>, is_top: bool) -> Next {
        let raw = &view.bytes[range.clone()];
        if is_top && IDS.contains(&raw) {
            return Next { found: Found::Nothing, states: from, is_id: true };
        }
        let is_id = is_top && raw == REQUEST_ID;
        let key = view.string(range);
        self.states.truncate(from.end);
        let mut found = Found::Nothing;
        if self.follows {
            found = self.rules.paths.member(&mut self.states, from.start, from.end, &key.bytes);
            if found == Found::Nothing {
                found = self.rules.patterns.credential(&key.bytes).map_or(found, Found::Text);
            }
        }
        if self.seen != Hints::NAMES {
            self.search_rounds(&key, true);
        }
        Next { found, states: from.end..self.states.len(), is_id }
    }

    fn element(&mut self, frame: &Frame) -> Next {
        let from = frame.states.clone();
        self.states.truncate(from.end);
        let mut found = Found::Nothing;
        if self.follows {
            found = self.rules.paths.element(&mut self.states, from.start, from.end, frame.index);
        }
        if found == Found::Nothing {
            found = frame.each;
        }
        Next { found, states: from.end..self.states.len(), is_id: false }
    }

    /// A header in ASGI and elsewhere is an array of name and value, or of name and values.
    fn pair(&self, view: &View<'_>, at: usize, frame: &mut Frame, next: &mut Next) {
        if let (1, Found::Nothing, Some(name)) = (frame.index, next.found, frame.named) {
            next.found = Found::Text(name);
        }
        if self.follows && frame.index == 0 && view.bytes[at] == b'"' {
            let end = string_end(&view.bytes, at + 1);
            frame.named = end.and_then(|end| self.rules.named(&view.string(at + 1..end).bytes));
        }
    }

    /// Examine the value that begins at `at`; return where to continue, and what is expected there.
    fn value(&mut self, view: &View<'_>, at: usize, next: &Next, frames: &mut Vec<Frame>) -> Option<(usize, Expect)> {
        let bytes = &*view.bytes;
        let is_container = matches!(bytes[at], b'{' | b'[');
        let name = match next.found {
            Found::Whole(name) => Some(name),
            Found::Scalar(name) if !is_container => Some(name),
            Found::Text(name) if bytes[at] == b'"' => Some(name),
            _ => None,
        };
        if let Some(name) = name {
            let end = value_end(bytes, at)?;
            if &bytes[at..end] != b"null" {
                let replacement = self.rules.replacement(name);
                self.edits.value(view.spelled(at..end), &replacement, view.quoting);
            }
            return Some((end, Expect::CommaOrEnd));
        }
        match bytes[at] {
            open @ (b'{' | b'[') => {
                if frames.len() >= MAX_DEPTH {
                    return None;
                }
                let is_object = open == b'{';
                let each = if is_object { Found::Nothing } else { next.found };
                frames.push(Frame { is_object, states: next.states.clone(), index: 0, named: None, each });
                Some((at + 1, if is_object { Expect::MemberOrEnd } else { Expect::ValueOrEnd }))
            }
            b'"' => {
                let end = self.string_end(bytes, at + 1)?;
                if !(next.is_id && is_id(&bytes[at + 1..end])) {
                    self.string(&view.string(at + 1..end), next.states.clone());
                }
                Some((end + 1, Expect::CommaOrEnd))
            }
            _ => {
                let end = value_end(bytes, at)?;
                let word = &bytes[at..end];
                if let Some(name) = is_number(word)?.then(|| self.rules.patterns.number(word)).flatten() {
                    let replacement = self.rules.replacement(name);
                    self.edits.value(view.spelled(at..end), &replacement, view.quoting);
                }
                Some((end, Expect::CommaOrEnd))
            }
        }
    }

    /// Examine the text of a value, into which `states` lead.
    fn string(&mut self, text: &View<'_>, states: Range<usize>) {
        if self.enters && self.nested < MAX_NESTED && matches!(text.bytes.trim_ascii_start().first(), Some(b'{' | b'['))
        {
            let (mark, leads) =
                (self.edits.len(), self.states[states.clone()].iter().any(|state| state.is_under_way()));
            let depth = self.states.len();
            self.nested += 1;
            let whole = self.root(text, states);
            self.nested -= 1;
            self.states.truncate(depth);
            if whole.is_some() {
                let hints = self.rules.hints_in(&text.bytes, self.seen);
                return self.rules.patterns.find(&text.bytes, hints, &mut |range, name| {
                    let replacement = self.rules.replacement(name);
                    self.edits.text(text.spelled(range), &replacement, text.quoting);
                });
            }
            self.edits.truncate(mark);
            if leads {
                // A rule leads into a text that cannot be read: its end is unknown.
                let replacement = self.rules.replacement(FIELD);
                return self.edits.text(text.spelled(0..text.bytes.len()), &replacement, text.quoting);
            }
        }
        self.search_rounds(text, false);
    }

    /// Search a text, and its decoded forms.
    fn search_rounds(&mut self, text: &View<'_>, is_key: bool) {
        let mut coded = self.search(text, is_key);
        let mut decoded = None;
        for _ in 0..MAX_ROUNDS {
            if !coded {
                return;
            }
            decoded = decoded.as_ref().map_or_else(|| text.decoded(), View::decoded);
            let Some(text) = &decoded else { return };
            coded = self.search(text, is_key);
        }
    }

    /// Walk a text that begins like a document.
    fn root(&mut self, text: &View<'_>, states: Range<usize>) -> Option<()> {
        let bytes = &*text.bytes;
        let at = blanks(bytes, 0);
        let is_object = bytes[at] == b'{';
        let root = Frame { is_object, states, index: 0, named: None, each: Found::Nothing };
        let expect = if is_object { Expect::MemberOrEnd } else { Expect::ValueOrEnd };
        self.document(&text.part(at + 1..bytes.len()), vec![root], expect)
    }

    /// Search a text as it is; return whether it is encoded and has to be searched again.
    fn search(&mut self, text: &View<'_>, is_key: bool) -> bool {
        let (rules, edits) = (self.rules, &mut *self.edits);
        let hints = rules.hints_in(&text.bytes, self.seen);
        if hints.is_empty() {
            return false;
        }
        let mut hit = |range, name: &str| {
            let replacement = rules.replacement(name);
            let spelled = text.spelled(range);
            if is_key {
                edits.key(spelled, &replacement, text.quoting);
            } else {
                edits.text(spelled, &replacement, text.quoting);
            }
        };
        rules.patterns.find(&text.bytes, hints, &mut hit);
        if !is_key && hints.has(Hints::NAMES) {
            rules.spelled.find(&text.bytes, hit);
        }
        hints.has(Hints::CODED)
    }
}

fn blanks(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// The end of the value that begins at `at`, which is not examined.
fn value_end(bytes: &[u8], at: usize) -> Option<usize> {
    let (mut at, mut depth) = (at, 0_usize);
    loop {
        at = match bytes.get(at)? {
            b'"' => string_end(bytes, at + 1)? + 1,
            b'{' | b'[' => {
                depth += 1;
                at + 1
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at + 1
            }
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth > 0 => at + 1,
            _ => {
                let ends = |byte: &u8| b" \t\r\n,:\"{}[]".contains(byte);
                let len = bytes[at..].iter().position(ends)?;
                at + len.max(1)
            }
        };
        if depth == 0 {
            return Some(at);
        }
    }
}

fn is_id(text: &[u8]) -> bool {
    ID_DIGITS.contains(&text.len()) && text.iter().all(u8::is_ascii_hexdigit)
}

/// Whether a word is a number; None if it is not a word of JSON.
fn is_number(word: &[u8]) -> Option<bool> {
    match word {
        b"true" | b"false" | b"null" => Some(false),
        _ => number_end(word).filter(|rest| rest.is_empty()).map(|_| true),
    }
}

/// The rest after a number in JSON's form; None if there is no number.
fn number_end(word: &[u8]) -> Option<&[u8]> {
    let unsigned = word.strip_prefix(b"-").unwrap_or(word);
    let mut rest = if unsigned.starts_with(b"0") { &unsigned[1..] } else { behind_digits(unsigned)? };
    if let Some(fraction) = rest.strip_prefix(b".") {
        rest = behind_digits(fraction)?;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        rest = behind_digits(exponent.strip_prefix(b"+").or(exponent.strip_prefix(b"-")).unwrap_or(exponent))?;
    }
    Some(rest)
}

/// The rest after digits, of which there must be at least one.
fn behind_digits(text: &[u8]) -> Option<&[u8]> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0).then(|| &text[digits..])
}
