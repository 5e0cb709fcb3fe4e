//! Walks the structure of a JSON document, whole or cut at either side, and shows its scalars with their paths.
//!
//! Invariants: one pass, no recursion, no allocation; paths are known to a number of levels, `LEVELS`, deeper values
//! are skipped; a string without its end and a word that touches the end are never shown, since they may be cut. Broken
//! JSON is read in some way, but the scan always ends.

use crate::json::lex::{self, Resume, Scalar};

/// The elements of paths: the keys that mean something to a visitor.
pub trait DocumentKey: Copy {
    /// An element of an array.
    const ITEM: Self;
    /// A member of an object whose key is in the part of the document that is missing.
    const LOST: Self;
    /// A key without a meaning.
    const OTHER: Self;
    /// The key for the bytes between the quotes.
    fn of(raw: &[u8]) -> Self;
}

/// Receives what [`scan`] finds. A path names a value from the root on; elements of arrays are [`DocumentKey::ITEM`].
pub trait Visit<'a, P: DocumentKey> {
    /// A string or a word.
    fn scalar(&mut self, path: &[P], value: Scalar<'a>);
    /// A string whose end is missing, with the bytes that are there.
    #[inline]
    fn cut(&mut self, _path: &[P], _raw: &'a [u8]) {}
    /// An object or array begins.
    fn open(&mut self, _path: &[P]) {}
    /// An object or array ends.
    fn close(&mut self, _path: &[P]) {}
    /// The same with all of it, before [`Visit::close`], if its beginning was seen.
    #[inline]
    fn whole(&mut self, _path: &[P], _raw: &'a [u8]) {}
}

/// Show the content of `bytes` from `start` on to `visit`; a new document begins with `Resume::default()`.
pub fn scan<'a, P: DocumentKey, const LEVELS: usize>(
    bytes: &'a [u8],
    start: Resume<LEVELS>,
    visit: &mut impl Visit<'a, P>,
) {
    let mut walk = Walk::from(start);
    let mut at = start.at;
    while let Some(&byte) = bytes.get(at) {
        let next = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => Some(at + 1),
            b'"' => match lex::string_end(bytes, at + 1) {
                Some(end) => {
                    walk.text(&bytes[at + 1..end], visit);
                    Some(end + 1)
                }
                None => {
                    walk.cut(&bytes[at + 1..], visit);
                    None
                }
            },
            b'{' | b'[' | b'}' | b']' | b',' | b':' => {
                walk.structure(bytes, at, visit);
                Some(at + 1)
            }
            _ => lex::word_end(bytes, at).inspect(|end| walk.scalar(Scalar::Word(&bytes[at..*end]), visit)),
        };
        match next {
            // After the root, or not in an object at all: there is nothing to find.
            Some(next) if walk.depth > 0 || byte.is_ascii_whitespace() => at = next,
            _ => return,
        }
    }
}

/// The open containers.
struct Walk<P, const LEVELS: usize> {
    depth: usize,
    /// For each level the key of the member that is being read.
    keys: [P; LEVELS],
    objects: [bool; LEVELS],
    /// Where the containers begin, as far as that was seen.
    starts: [Option<usize>; LEVELS],
    /// The next string is a key.
    expect_key: bool,
}

impl<P: DocumentKey, const LEVELS: usize> From<Resume<LEVELS>> for Walk<P, LEVELS> {
    fn from(start: Resume<LEVELS>) -> Self {
        let keys = start.objects.map(|object| if object { P::LOST } else { P::ITEM });
        Self { depth: start.depth, keys, objects: start.objects, starts: [None; LEVELS], expect_key: false }
    }
}

impl<P: DocumentKey, const LEVELS: usize> Walk<P, LEVELS> {
    fn text<'a>(&mut self, text: &'a [u8], visit: &mut impl Visit<'a, P>) {
        if !self.expect_key {
            return self.scalar(Scalar::Text(text), visit);
        }
        self.expect_key = false;
        self.set_key(P::of(text));
    }

    fn cut<'a>(&self, raw: &'a [u8], visit: &mut impl Visit<'a, P>) {
        if !self.expect_key && (1..=LEVELS).contains(&self.depth) {
            visit.cut(&self.keys[..self.depth], raw);
        }
    }

    fn scalar<'a>(&self, value: Scalar<'a>, visit: &mut impl Visit<'a, P>) {
        if (1..=LEVELS).contains(&self.depth) {
            visit.scalar(&self.keys[..self.depth], value);
        }
    }

    fn structure<'a>(&mut self, bytes: &'a [u8], at: usize, visit: &mut impl Visit<'a, P>) {
        match bytes[at] {
            open @ (b'{' | b'[') => self.open(at, open == b'{', visit),
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.expect_key = false;
                if self.depth < LEVELS {
                    if let Some(start) = self.starts[self.depth].take() {
                        visit.whole(&self.keys[..self.depth], &bytes[start..=at]);
                    }
                    visit.close(&self.keys[..self.depth]);
                }
            }
            b',' => {
                self.expect_key = self.in_object();
                if self.expect_key {
                    self.set_key(P::OTHER);
                }
            }
            _ => self.expect_key = false,
        }
    }

    fn open<'a>(&mut self, at: usize, object: bool, visit: &mut impl Visit<'a, P>) {
        let level = self.depth;
        self.depth += 1;
        self.expect_key = object && level < LEVELS;
        if level < LEVELS {
            visit.open(&self.keys[..level]);
            self.keys[level] = if object { P::OTHER } else { P::ITEM };
            self.objects[level] = object;
            self.starts[level] = Some(at);
        }
    }

    fn in_object(&self) -> bool {
        self.depth.checked_sub(1).and_then(|level| self.objects.get(level)).is_some_and(|object| *object)
    }

    fn set_key(&mut self, key: P) {
        if let Some(slot) = self.depth.checked_sub(1).and_then(|level| self.keys.get_mut(level)) {
            *slot = key;
        }
    }
}
