//! Walks the structure of a JSON document, whole or cut at either side, and shows its scalars with their paths.
//!
//! Invariants: one pass, no recursion, no allocation; paths are known to [`TRACKED`] levels, deeper values are passed
//! over; a string without its end and a word that touches the end are never shown, since they may be cut. Broken JSON is
//! read in some way, but always ends.

use super::keys::Key;
use super::lex::{self, Resume, Scalar, TRACKED};

/// Receives what [`scan`] finds. A path names a value from the root on; elements of arrays are [`Key::Item`].
pub trait Visit<'a> {
    /// A string or a word.
    fn scalar(&mut self, path: &[Key], value: Scalar<'a>);
    /// An object or array begins.
    fn open(&mut self, _path: &[Key]) {}
    /// An object or array ends.
    fn close(&mut self, _path: &[Key]) {}
}

/// Show what `bytes` hold from `start` on to `visit`; a new document begins with `Resume::default()`.
pub fn scan<'a>(bytes: &'a [u8], start: Resume, visit: &mut impl Visit<'a>) {
    let mut walk = Walk::from(start);
    let mut at = start.at;
    while let Some(&byte) = bytes.get(at) {
        let next = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => Some(at + 1),
            b'"' => lex::string_end(bytes, at + 1).map(|end| {
                walk.text(&bytes[at + 1..end], visit);
                end + 1
            }),
            b'{' | b'[' | b'}' | b']' | b',' | b':' => {
                walk.structure(byte, visit);
                Some(at + 1)
            }
            _ => lex::word_end(bytes, at).inspect(|end| walk.scalar(Scalar::Word(&bytes[at..*end]), visit)),
        };
        match next {
            // Behind the root, or not in an object at all: there is nothing to find.
            Some(next) if walk.depth > 0 || byte.is_ascii_whitespace() => at = next,
            _ => return,
        }
    }
}

/// The open containers.
struct Walk {
    depth: usize,
    /// For each level the key of the member that is being read.
    keys: [Key; TRACKED],
    objects: [bool; TRACKED],
    /// The next string is a key.
    expect_key: bool,
}

impl From<Resume> for Walk {
    fn from(start: Resume) -> Self {
        let keys = start.objects.map(|object| if object { Key::Lost } else { Key::Item });
        Self { depth: start.depth, keys, objects: start.objects, expect_key: false }
    }
}

impl Walk {
    fn text<'a>(&mut self, text: &'a [u8], visit: &mut impl Visit<'a>) {
        if !self.expect_key {
            return self.scalar(Scalar::Text(text), visit);
        }
        self.expect_key = false;
        self.set_key(Key::of(text));
    }

    fn scalar<'a>(&self, value: Scalar<'a>, visit: &mut impl Visit<'a>) {
        if (1..=TRACKED).contains(&self.depth) {
            visit.scalar(&self.keys[..self.depth], value);
        }
    }

    fn structure<'a>(&mut self, byte: u8, visit: &mut impl Visit<'a>) {
        match byte {
            b'{' | b'[' => self.open(byte == b'{', visit),
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.expect_key = false;
                if self.depth < TRACKED {
                    visit.close(&self.keys[..self.depth]);
                }
            }
            b',' => {
                self.expect_key = self.in_object();
                if self.expect_key {
                    self.set_key(Key::Other);
                }
            }
            _ => self.expect_key = false,
        }
    }

    fn open<'a>(&mut self, object: bool, visit: &mut impl Visit<'a>) {
        let level = self.depth;
        self.depth += 1;
        self.expect_key = object && level < TRACKED;
        if level < TRACKED {
            visit.open(&self.keys[..level]);
            self.keys[level] = if object { Key::Other } else { Key::Item };
            self.objects[level] = object;
        }
    }

    fn in_object(&self) -> bool {
        self.depth.checked_sub(1).and_then(|level| self.objects.get(level)).is_some_and(|object| *object)
    }

    fn set_key(&mut self, key: Key) {
        if let Some(slot) = self.depth.checked_sub(1).and_then(|level| self.keys.get_mut(level)) {
            *slot = key;
        }
    }
}
