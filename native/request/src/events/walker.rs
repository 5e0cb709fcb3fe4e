//! A walk over the JSON of one event, as its bytes come, in parts of any length.
//!
//! One pass without recursion; the state has one size whatever the document. Strings are skipped with `memchr`. Broken
//! JSON is read in some way, and the next event begins anew.

use super::held::Held;
use super::notes::Notes;
use super::place::Place;
use super::seen::Seen;
use std::ops::Range;

/// Levels on which something is looked for.
const LEVELS: usize = 10;
/// Most bytes of a key, or of a value that is compared.
const HELD: usize = 64;
/// So many bytes of a text are searched here, and then the rest by `memchr`.
const SHORT: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lex {
    #[default]
    Between,
    Text,
    /// Behind a backslash.
    Escape,
    Word,
}

/// The state of the walk.
#[derive(Debug, Default)]
pub struct Walker {
    lex: Lex,
    expects_key: bool,
    is_escaped: bool,
    /// The string that is open has text.
    has_text: bool,
    /// The document has ended.
    pub is_done: bool,
    pub depth: u32,
    /// For each level the place of its container, and of the value that is being read: nothing is looked for at the
    /// first one, outside the document, and at the last one, which all deeper ones share.
    containers: [Place; LEVELS + 2],
    values: [Place; LEVELS + 2],
    objects: u16,
    held: Held<HELD>,
    /// Where in the message the text stands that adds to the answer.
    pub text_at: Option<Range<usize>>,
}

impl Walker {
    /// Begins another document.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes the next bytes, which begin at `origin` in the message; stops behind the root's end. Returns how many it
    /// took.
    pub fn feed(&mut self, bytes: &[u8], origin: usize, seen: &mut Seen, notes: &mut Notes) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.is_done {
            at = match self.lex {
                Lex::Between => self.between(bytes, at, origin, seen, notes),
                Lex::Text => self.text(bytes, at, origin, seen, notes),
                Lex::Escape => {
                    self.held.push(&bytes[at..=at]);
                    notes.text(self.depth, &bytes[at..=at]);
                    self.lex = Lex::Text;
                    at + 1
                }
                Lex::Word => self.word(bytes, at, seen, notes),
            };
        }
        at
    }

    #[inline]
    fn between(&mut self, bytes: &[u8], at: usize, origin: usize, seen: &mut Seen, notes: &mut Notes) -> usize {
        let byte = bytes[at];
        match byte {
            b'"' => {
                notes.begin_text(self.depth);
                (self.is_escaped, self.has_text) = (false, false);
                self.held.clear();
                return self.text(bytes, at + 1, origin, seen, notes);
            }
            b'{' | b'[' => {
                self.open(byte == b'{', seen);
                notes.structure(self.depth, byte);
            }
            b'}' | b']' => {
                notes.structure(self.depth, byte);
                self.close();
            }
            b':' | b',' => return self.behind(bytes, at, notes),
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => {
                self.held.clear();
                return self.word(bytes, at, seen, notes);
            }
        }
        at + 1
    }

    #[inline]
    fn text(&mut self, bytes: &[u8], at: usize, origin: usize, seen: &mut Seen, notes: &mut Notes) -> usize {
        let rest = &bytes[at..];
        let length = text_length(rest);
        let run = &rest[..length];
        self.has_text |= !run.is_empty();
        notes.text(self.depth, run);
        match rest.get(length) {
            Some(b'"') => {
                notes.end_text(self.depth);
                self.lex = Lex::Between;
                let before = seen.texts;
                // Most strings come in one piece, without a backslash.
                let is_whole = self.held.is_empty() && !self.is_escaped;
                if is_whole {
                    self.end_text(run, seen, notes);
                } else {
                    self.held.push(run);
                    let held = self.held.clone();
                    self.end_text(held.get(), seen, notes);
                }
                if seen.texts != before {
                    self.text_at = is_whole.then(|| origin + at..origin + at + length);
                }
                return self.behind(bytes, at + length + 1, notes);
            }
            Some(_) => {
                self.held.push(&rest[..=length]);
                notes.text(self.depth, b"\\");
                (self.lex, self.is_escaped, self.has_text) = (Lex::Escape, true, true);
            }
            None => {
                self.held.push(run);
                self.lex = Lex::Text;
                return at + length;
            }
        }
        at + length + 1
    }

    /// A string has ended: a key, or a value.
    #[inline]
    fn end_text(&mut self, text: &[u8], seen: &mut Seen, notes: &mut Notes) {
        let level = self.level();
        if self.expects_key {
            self.expects_key = false;
            self.values[level] = member(self.containers[level], text, self.is_escaped, seen);
            return;
        }
        let place = self.values[level];
        seen.text(place, self.has_text, text);
        if place == Place::Reason {
            notes.reason(seen.choice, text);
        }
    }

    #[inline]
    fn word(&mut self, bytes: &[u8], at: usize, seen: &mut Seen, notes: &mut Notes) -> usize {
        let length = bytes[at..].iter().position(|byte| ENDS_WORD[usize::from(*byte)]);
        let end = length.map_or(bytes.len(), |length| at + length);
        let run = &bytes[at..end];
        notes.word(self.depth, run);
        if length.is_none() {
            self.held.push(run);
            self.lex = Lex::Word;
            return end;
        }
        self.lex = Lex::Between;
        if !self.expects_key {
            let place = self.values[self.level()];
            if self.held.is_empty() {
                seen.word(place, run);
            } else {
                self.held.push(run);
                seen.word(place, self.held.get());
            }
        }
        self.behind(bytes, end, notes)
    }

    /// What nearly always is behind a string, a number or a word: a colon or a comma.
    #[inline]
    fn behind(&mut self, bytes: &[u8], at: usize, notes: &mut Notes) -> usize {
        let Some(byte @ (b':' | b',')) = bytes.get(at) else { return at };
        self.expects_key = *byte == b',' && self.is_in_object();
        notes.structure(self.depth, *byte);
        at + 1
    }

    #[inline]
    fn level(&self) -> usize {
        (self.depth as usize).min(LEVELS + 1)
    }

    fn is_in_object(&self) -> bool {
        self.objects & 1 << self.level() != 0
    }

    #[inline]
    fn open(&mut self, is_object: bool, seen: &mut Seen) {
        let place = match self.depth {
            0 => Place::Event,
            _ => self.values[self.level()],
        };
        if self.depth > 0 {
            seen.open(place, is_object);
        }
        self.depth += 1;
        let level = self.level();
        (self.expects_key, self.objects) = (is_object, self.objects & !(1 << level) | u16::from(is_object) << level);
        let place = if level > LEVELS { Place::Other } else { place };
        self.containers[level] = place;
        self.values[level] = match is_object {
            true => Place::Other,
            // The elements of an array that is the whole document are events.
            false if self.depth == 1 => Place::Event,
            false => place.element(),
        };
    }

    #[inline]
    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.expects_key = false;
        self.is_done = self.depth == 0;
    }
}

/// Where the value of a member stands, by its key.
fn member(container: Place, key: &[u8], is_escaped: bool, seen: &mut Seen) -> Place {
    match container {
        Place::Other => return Place::Other,
        Place::Event => seen.members = seen.members.saturating_add(1),
        _ => {}
    }
    if is_escaped { container.member(&plain(key)) } else { container.member(key) }
}

/// How many bytes there are before the next quote or backslash. Most texts are short: a call would cost more than they do.
#[inline]
fn text_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // The high bit of each byte that is zero; of those above the first one it may be wrong.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let mut at = 0;
    while let Some(eight) = bytes[at..].first_chunk() {
        let eight = u64::from_le_bytes(*eight);
        let found = zeros(eight ^ (ONES * u64::from(b'"'))) | zeros(eight ^ (ONES * u64::from(b'\\')));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
        if at == SHORT {
            break;
        }
    }
    memchr::memchr2(b'"', b'\\', &bytes[at..]).map_or(bytes.len(), |length| at + length)
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
