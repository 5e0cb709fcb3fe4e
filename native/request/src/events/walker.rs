//! A walk over the JSON of one event, as its bytes come, in parts of any length.
//!
//! One pass without recursion; the state has one size whatever the document. A string is searched a
//! block at a time. Broken JSON is read in some way, and the next event begins anew.

use super::held::Held;
use super::notes::{self, Notes};
use super::place::Place;
use super::seen::Seen;
use crate::block::plain_length;
use std::ops::Range;

/// Levels on which something is looked for.
const LEVELS: usize = 10;
/// Most bytes of a key, or of a value that is compared, if it is escaped or comes in parts.
const HELD: usize = 64;

/// The token that is open at the end of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Open {
    #[default]
    None,
    Text,
    /// A text, behind a backslash.
    Escape,
    Word,
}

/// The walk, and what it has seen of the event.
#[derive(Debug, Default)]
pub struct Walker {
    open: Open,
    /// The next string is a key.
    expects_key: bool,
    is_in_object: bool,
    /// The document has ended.
    pub is_done: bool,
    pub depth: u32,
    /// The place of the value that is read next, and of the object around it.
    value: Place,
    container: Place,
    /// For each level the place of its object, or of its array's elements; nothing is looked for at the last one, which
    /// all deeper ones share.
    places: [Place; LEVELS + 2],
    /// For each level whether it is an object.
    objects: [bool; LEVELS + 2],
    held: Held<HELD>,
    pub seen: Seen,
    pub notes: Notes,
    /// Where in the message the part begins that is read, and where the text stands that adds to the answer.
    origin: usize,
    pub text_at: Option<Range<usize>>,
}

impl Walker {
    /// Begins another document.
    pub fn clear(&mut self) {
        self.seen.clear();
        (self.open, self.expects_key, self.is_done, self.depth) = (Open::None, false, false, 0);
        (self.value, self.text_at) = (Place::Event, None);
    }

    /// Takes the next bytes, which begin at `origin` in the message; stops behind the root's end. Returns how many it
    /// took.
    pub fn feed(&mut self, bytes: &[u8], origin: usize) -> usize {
        if self.is_done {
            return 0;
        }
        self.origin = origin;
        let mut rest = bytes;
        if self.open == Open::None {
            self.keep_from(0);
        } else {
            rest = self.rest(bytes, rest);
        }
        while let [byte, behind @ ..] = rest {
            rest = match byte {
                b'"' => self.text(bytes, behind),
                b'{' | b'[' => {
                    self.enter(*byte == b'{');
                    if self.depth == notes::LEVELS + 1 {
                        self.notes.keep_until(bytes, bytes.len() - behind.len());
                    }
                    behind
                }
                b'}' | b']' => {
                    if self.depth == notes::LEVELS + 1 {
                        self.notes.keep_from(bytes.len() - rest.len());
                    }
                    self.leave();
                    if self.is_done {
                        rest = behind;
                        break;
                    }
                    behind
                }
                b',' => self.comma(rest),
                b':' => {
                    self.expects_key = false;
                    behind
                }
                b' ' | b'\t' => behind,
                b'\r' | b'\n' => {
                    let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
                    let at = bytes.len() - rest.len();
                    self.notes.leave_out(bytes, at..at + blanks);
                    &rest[blanks..]
                }
                _ => self.word(rest),
            };
        }
        let taken = bytes.len() - rest.len();
        self.notes.keep_until(bytes, taken);
        taken
    }

    /// Reads a string of `bytes`, whose quote stands before `rest`. Most come in one piece, without a backslash.
    #[inline(always)]
    fn text<'a>(&mut self, bytes: &[u8], rest: &'a [u8]) -> &'a [u8] {
        let (text, [b'"', behind @ ..]) = rest.split_at(plain_length(rest)) else {
            return self.begin_held(bytes, rest);
        };
        if self.expects_key {
            self.end_key(text);
            return match behind {
                [b':', behind @ ..] => behind,
                _ => behind,
            };
        }
        if self.value != Place::Other || text.len() > notes::TEXT {
            let at = bytes.len() - rest.len();
            if text.len() > notes::TEXT {
                self.notes.leave_out(bytes, at + notes::TEXT..at + text.len());
            }
            if self.end_text(text) {
                let at = self.origin + at;
                self.text_at = Some(at..at + text.len());
            }
        }
        self.comma(behind)
    }

    #[inline(always)]
    fn end_key(&mut self, key: &[u8]) {
        self.expects_key = false;
        if self.container == Place::Event {
            self.seen.members += 1;
        }
        self.value = self.container.member(key);
    }

    /// Reads what nearly always is behind a value.
    #[inline(always)]
    fn comma<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let [b',', behind @ ..] = rest else { return rest };
        self.expects_key = self.is_in_object;
        behind
    }

    /// A string that is a value has ended. Returns whether it adds to the answer.
    fn end_text(&mut self, text: &[u8]) -> bool {
        let before = self.seen.texts;
        self.seen.text(self.value, text);
        if self.value == Place::Reason {
            self.notes.reason(self.seen.choice, text);
        }
        self.seen.texts != before
    }

    /// Reads a number or a word.
    #[inline(always)]
    fn word<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let (word, behind) = rest.split_at(word_length(rest));
        if behind.is_empty() {
            self.held.clear();
            self.held.push(word);
            self.open = Open::Word;
        } else {
            self.end_word(word);
        }
        self.comma(behind)
    }

    #[inline(always)]
    fn end_word(&mut self, word: &[u8]) {
        if self.value != Place::Other && !self.expects_key {
            self.seen.word(self.value, word);
        }
    }

    /// Begins to read a string piece by piece.
    #[cold]
    fn begin_held<'a>(&mut self, bytes: &[u8], rest: &'a [u8]) -> &'a [u8] {
        self.notes.begin_text(bytes, bytes.len() - rest.len());
        self.held.clear();
        self.open = Open::Text;
        self.rest(bytes, rest)
    }

    /// Reads the rest of a token of `bytes` that is escaped or comes in parts, as much as there is of it; returns what is
    /// behind.
    #[cold]
    #[inline(never)]
    fn rest<'a>(&mut self, bytes: &[u8], mut rest: &'a [u8]) -> &'a [u8] {
        if self.open == Open::Word {
            self.keep_from(0);
        }
        while let [first, behind @ ..] = rest {
            match self.open {
                Open::None => break,
                Open::Text => {
                    let (run, end) = rest.split_at(memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len()));
                    self.held.push(run);
                    self.notes.text(self.depth, run);
                    rest = end.get(1..).unwrap_or_default();
                    match end.first() {
                        Some(b'"') => self.end_held_text(bytes.len() - end.len()),
                        Some(_) => {
                            self.held.push(b"\\");
                            self.open = Open::Escape;
                        }
                        None => {}
                    }
                }
                Open::Escape => {
                    self.held.push(&[*first]);
                    self.notes.text(self.depth, &[b'\\', *first]);
                    (self.open, rest) = (Open::Text, behind);
                }
                Open::Word => {
                    let (run, end) = rest.split_at(word_length(rest));
                    self.held.push(run);
                    rest = end;
                    if !end.is_empty() {
                        self.open = Open::None;
                        let held = self.held.clone();
                        self.end_word(held.get());
                    }
                }
            }
        }
        rest
    }

    /// A string that is escaped or came in parts has ended: its quote stands at `at` in the part.
    fn end_held_text(&mut self, at: usize) {
        self.open = Open::None;
        self.keep_from(at);
        let held = self.held.clone();
        if self.expects_key {
            self.end_key(&plain(held.get()));
        } else if self.end_text(held.get()) {
            self.text_at = None;
        }
    }

    fn keep_from(&mut self, at: usize) {
        if self.depth <= notes::LEVELS {
            self.notes.keep_from(at);
        }
    }

    #[inline]
    fn level(&self) -> usize {
        (self.depth as usize).min(LEVELS + 1)
    }

    #[inline(always)]
    fn enter(&mut self, is_object: bool) {
        self.seen.open(self.value, is_object);
        self.depth += 1;
        let level = self.level();
        let place = if is_object { self.value } else { self.value.element() };
        self.places[level] = if level > LEVELS { Place::Other } else { place };
        self.objects[level] = is_object;
        self.enter_level(level);
        self.expects_key = is_object;
    }

    #[inline(always)]
    fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.is_done = self.depth == 0;
        self.enter_level(self.level());
    }

    #[inline(always)]
    fn enter_level(&mut self, level: usize) {
        self.is_in_object = self.objects[level];
        self.expects_key = false;
        self.container = self.places[level];
        self.value = if self.is_in_object { Place::Other } else { self.container };
    }
}

/// How many bytes there are before the end of a number, or of a word like `true`.
#[inline]
fn word_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| ENDS_WORD[usize::from(*byte)]).unwrap_or(bytes.len())
}

/// Whether a number or a word like `true` ends at a byte.
const ENDS_WORD: [bool; 256] = {
    let mut ends = [false; 256];
    let bytes = b",:{}[]\" \t\r\n";
    let mut at = 0;
    while at < bytes.len() {
        ends[bytes[at] as usize] = true;
        at += 1;
    }
    ends
};

/// A key without its escapes: all keys that are looked for are ASCII.
#[cold]
fn plain(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len());
    let mut rest = key;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let (Some(&escape), b'\\') = (rest.first(), byte) else {
            out.push(byte);
            continue;
        };
        rest = &rest[1..];
        let code = rest.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| escape == b'u') {
            Some(code) => {
                out.push(code);
                rest = &rest[4..];
            }
            None => out.push(escape),
        }
    }
    out
}
