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
/// A text is searched here for so many words of eight bytes, and then by `memchr`.
const SHORT: usize = 8;

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
    is_key: bool,
    expects_key: bool,
    is_escaped: bool,
    /// The string that is open has text.
    has_text: bool,
    /// The document has ended.
    pub is_done: bool,
    pub depth: u32,
    /// For each level the place of its container, and of the value that is being read.
    containers: [Place; LEVELS],
    values: [Place; LEVELS],
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
                Lex::Between => self.between(bytes, at, seen, notes),
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
    fn between(&mut self, bytes: &[u8], at: usize, seen: &mut Seen, notes: &mut Notes) -> usize {
        let byte = bytes[at];
        match byte {
            b'"' => {
                self.lex = Lex::Text;
                self.held.clear();
                (self.is_key, self.is_escaped, self.has_text) = (self.expects_key, false, false);
                notes.begin_text(self.depth);
                return at + 1;
            }
            b'{' | b'[' => {
                self.open(byte == b'{', seen);
                notes.structure(self.depth, byte);
            }
            b'}' | b']' => {
                notes.structure(self.depth, byte);
                self.close();
            }
            b',' => {
                self.expects_key = self.is_in_object();
                notes.structure(self.depth, byte);
            }
            b':' => notes.structure(self.depth, byte),
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => {
                self.lex = Lex::Word;
                self.held.clear();
                return at;
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
            None => {
                self.held.push(run);
                at + length
            }
            Some(b'"') => {
                notes.end_text(self.depth);
                self.lex = Lex::Between;
                let is_whole = self.held.is_empty() && !self.is_escaped;
                if !is_whole {
                    self.held.push(run);
                }
                let (place, level) = (self.place(), self.level());
                let text = if is_whole { run } else { self.held.get() };
                if self.is_key {
                    self.expects_key = false;
                    if let Some(level) = level {
                        self.values[level] = member(self.containers[level], text, self.is_escaped, seen);
                    }
                } else {
                    let before = seen.texts;
                    seen.text(place, self.has_text, text);
                    if place == Place::Reason {
                        notes.reason(seen.choice, text);
                    }
                    if seen.texts != before {
                        self.text_at = is_whole.then(|| origin + at..origin + at + length);
                    }
                }
                at + length + 1
            }
            Some(_) => {
                self.held.push(&rest[..=length]);
                notes.text(self.depth, b"\\");
                (self.lex, self.is_escaped, self.has_text) = (Lex::Escape, true, true);
                at + length + 1
            }
        }
    }

    #[inline]
    fn word(&mut self, bytes: &[u8], at: usize, seen: &mut Seen, notes: &mut Notes) -> usize {
        let end = bytes[at..].iter().position(|byte| ENDS_WORD[usize::from(*byte)]);
        let end = end.map_or(bytes.len(), |length| at + length);
        self.held.push(&bytes[at..end]);
        notes.word(self.depth, &bytes[at..end]);
        if end < bytes.len() {
            self.lex = Lex::Between;
            if !self.expects_key {
                seen.word(self.place(), self.held.get());
            }
        }
        end
    }

    /// Where the value stands that is being read.
    fn place(&self) -> Place {
        self.level().map_or(Place::Other, |level| self.values[level])
    }

    fn level(&self) -> Option<usize> {
        (self.depth as usize).checked_sub(1).filter(|level| *level < LEVELS)
    }

    fn is_in_object(&self) -> bool {
        self.level().is_some_and(|level| self.objects & 1 << level != 0)
    }

    #[inline]
    fn open(&mut self, is_object: bool, seen: &mut Seen) {
        let place = match self.depth {
            0 => Place::Event,
            _ => self.place(),
        };
        if self.depth > 0 {
            seen.open(place, is_object);
        }
        self.depth += 1;
        self.expects_key = is_object;
        let Some(level) = self.level() else {
            self.expects_key = false;
            return;
        };
        self.objects = self.objects & !(1 << level) | u16::from(is_object) << level;
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
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().take(SHORT).enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
        if found != 0 {
            return at * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let from = words.len().min(SHORT) * 8;
    let length = match words.len() {
        ..=SHORT => rest.iter().position(|byte| matches!(byte, b'"' | b'\\')),
        _ => memchr::memchr2(b'"', b'\\', &bytes[from..]),
    };
    length.map_or(bytes.len(), |length| from + length)
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
