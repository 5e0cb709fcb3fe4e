//! A hash chain over lines: altering, removing, adding or moving a line breaks it there, and verification shows where.
//!
//! Each line carries its own value as its last member:
//!
//! ```text
//! {"timestamp":…,"chain":"64 lowercase hex digits"}
//! value = H(previous value, 32 bytes || the line without `,"chain":"…"`, its braces included, without \n)
//! ```
//!
//! H is BLAKE3 or SHA-256; with a key, BLAKE3's keyed mode or HMAC-SHA-256. The first value before any line is 32 zero
//! bytes. Without a key the chain shows accidental changes and those made without knowledge of it: anyone who can write
//! the file can also compute it again. With a key that they do not have, or with the last value noted elsewhere, they
//! cannot.
//!
//! A segment's header and footer are lines of the chain too, and the header contains the value before it
//! ([`Chain::header_members`]): so segments link, and a missing one shows.

use hmac::{Hmac, KeyInit, Mac};
use queue::hex;
use sha2::{Digest, Sha256};

/// A value of the chain, or a key.
pub type Value = [u8; 32];

/// The value before the very first line.
pub const START: Value = [0; 32];

/// The name of the member.
pub const NAME: &str = "chain";
const MEMBER: &[u8] = br#","chain":""#;
const END: &[u8] = br#""}"#;
const HEX_LEN: usize = 64;
/// Bytes that `append` adds to a line.
pub(crate) const MEMBER_BYTES: usize = MEMBER.len() + HEX_LEN + 1;

/// The hash function of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Blake3,
    Sha256,
}

pub const ALGORITHMS: [Algorithm; 2] = [Algorithm::Blake3, Algorithm::Sha256];

impl Algorithm {
    /// The name in configuration and headers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
        }
    }

    /// Finds an algorithm by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALGORITHMS.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// The fault of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It carries no value of a chain.
    Missing,
    /// Its value does not follow from it and the line before.
    Differs,
}

/// The end of a chain: everything needed to continue it.
#[derive(Clone)]
pub struct Chain {
    algorithm: Algorithm,
    key: Option<Value>,
    value: Value,
}

impl Chain {
    /// Continues behind a line whose value is `previous`.
    #[must_use]
    pub fn new(algorithm: Algorithm, key: Option<Value>, previous: Value) -> Self {
        Self { algorithm, key, value: previous }
    }

    /// The value of the last line.
    #[must_use]
    pub fn value(&self) -> Value {
        self.value
    }

    /// Adds the next value to `line`: one JSON object with at least one member, with or without its `\n`.
    pub fn append(&mut self, line: &mut Vec<u8>) {
        self.append_at(line, 0);
    }

    /// As [`Chain::append`], for the line that begins at `start` of `lines` and ends with them.
    ///
    /// # Panics
    /// If there is no JSON object at `start`.
    pub(crate) fn append_at(&mut self, lines: &mut Vec<u8>, start: usize) {
        let newline = lines.last() == Some(&b'\n');
        lines.truncate(lines.len() - usize::from(newline));
        assert_eq!(lines.last(), Some(&b'}'), "a line is a JSON object");
        self.value = self.hash(&[&lines[start..]]);
        lines.pop();
        lines.extend_from_slice(MEMBER);
        hex::push(lines, self.value);
        lines.extend_from_slice(END);
        if newline {
            lines.push(b'\n');
        }
    }

    /// Appends whole `lines` to `out`, each with its value.
    pub fn append_lines(&mut self, lines: &[u8], out: &mut Vec<u8>) {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let start = out.len();
            out.extend_from_slice(line);
            self.append_at(out, start);
        }
    }

    /// Members for a segment's header, each led by a comma; its own value comes with [`Chain::append`].
    #[must_use]
    pub fn header_members(&self) -> String {
        let (name, keyed) = (self.algorithm.name(), self.key.is_some());
        let mut previous = Vec::with_capacity(HEX_LEN);
        hex::push(&mut previous, self.value);
        let previous = String::from_utf8_lossy(&previous);
        format!(",\"chain_algorithm\":\"{name}\",\"chain_keyed\":{keyed},\"chain_previous\":\"{previous}\"")
    }

    /// Checks the next line, without its `\n`, and continues behind it; behind a line that breaks the chain, from the
    /// value that it carries, so that a single altered line is one finding.
    ///
    /// # Errors
    /// [`Broken`] names the fault.
    pub fn check(&mut self, line: &[u8]) -> Result<(), Broken> {
        let (body, carried) = split(line).ok_or(Broken::Missing)?;
        let expected = self.hash(&[body, b"}"]);
        self.value = carried;
        if expected == carried { Ok(()) } else { Err(Broken::Differs) }
    }

    fn hash(&self, parts: &[&[u8]]) -> Value {
        let parts = [&self.value[..]].into_iter().chain(parts.iter().copied());
        match (self.algorithm, &self.key) {
            (Algorithm::Blake3, key) => {
                let mut hasher = key.as_ref().map_or_else(blake3::Hasher::new, blake3::Hasher::new_keyed);
                for part in parts {
                    hasher.update(part);
                }
                hasher.finalize().into()
            }
            (Algorithm::Sha256, None) => {
                let mut hasher = Sha256::new();
                parts.for_each(|part| Digest::update(&mut hasher, part));
                hasher.finalize().into()
            }
            (Algorithm::Sha256, Some(key)) => {
                // HMAC itself fills a key up to its block with zeroes.
                let mut block = [0; 64];
                block[..key.len()].copy_from_slice(key);
                let mut mac = Hmac::<Sha256>::new(&block.into());
                parts.for_each(|part| Mac::update(&mut mac, part));
                mac.finalize().into_bytes().into()
            }
        }
    }
}

/// Returns the value that a line carries, with or without its `\n`; None if it carries none.
#[must_use]
pub fn value_of(line: &[u8]) -> Option<Value> {
    split(line.strip_suffix(b"\n").unwrap_or(line)).map(|(_, value)| value)
}

/// Returns the value that a segment's header names as the one before it, and how the chain is computed.
#[must_use]
pub fn of_header(line: &[u8]) -> Option<(Algorithm, bool, Value)> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, rest) = text.split_once(",\"chain_algorithm\":\"")?;
    let (name, rest) = rest.split_once("\",\"chain_keyed\":")?;
    let (keyed, rest) = rest.split_once(",\"chain_previous\":\"")?;
    Some((Algorithm::named(name)?, keyed == "true", parse_hex(rest.as_bytes().get(..HEX_LEN)?)?))
}

/// Reads 64 lowercase hexadecimal digits, the form in lines and in key files.
#[must_use]
pub fn parse_hex(digits: &[u8]) -> Option<Value> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut value = START;
    if pairs.len() != value.len() {
        return None;
    }
    for (byte, [high, low]) in value.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(value)
}

/// The line up to the comma before its value, and the value.
fn split(line: &[u8]) -> Option<(&[u8], Value)> {
    let (body, member) = line.split_at_checked(line.len().checked_sub(MEMBER_BYTES + 1)?)?;
    let digits = member.strip_prefix(MEMBER)?.strip_suffix(END)?;
    Some((body, parse_hex(digits)?))
}
