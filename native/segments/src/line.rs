//! The beginning of a line, read without parsing the line: event, process, sequence.
//!
//! `encode` writes these members first and in this order, and escapes every quote in a text, so that they cannot be
//! found elsewhere. A reader that needs more of a line parses it.

use lines::json::timestamp::TIMESTAMP_BYTES;
use queue::hex;
use serde_json::Value;
use std::io::{self, Read};

const TIMESTAMP: &[u8] = br#"{"timestamp":""#;
const SEVERITY: &[u8] = br#"","severity_text":""#;
const EVENT: &[u8] = br#"","event_name":""#;
const BOOT_ID: &[u8] = br#"","boot_id":""#;
const PID: &[u8] = br#"","pid":"#;
const SEQ: &[u8] = br#","seq":"#;
const BOOT_ID_DIGITS: usize = 16;
const BLOCK_BYTES: usize = 1 << 20;
/// More than the line of any record: the largest one of a queue, with an escape for each byte.
pub const LONGEST_LINE: usize = 128 << 20;

/// The beginning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePrefix<'a> {
    /// RFC 3339, UTC, nanoseconds.
    pub timestamp: &'a [u8],
    /// With its escapes.
    pub event: &'a [u8],
    /// None for a segment's own lines.
    pub process: Option<Process>,
}

/// The process that a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub boot_id: u64,
    pub pid: u32,
    /// None for a line that the listener wrote about the process.
    pub seq: Option<u64>,
}

impl<'a> LinePrefix<'a> {
    /// Reads the beginning of a line; None if no listener wrote it.
    #[inline]
    #[must_use]
    pub fn read(line: &'a [u8]) -> Option<Self> {
        let (timestamp, mut rest) = line.strip_prefix(TIMESTAMP)?.split_at_checked(TIMESTAMP_BYTES)?;
        if let Some(severity) = rest.strip_prefix(SEVERITY) {
            rest = &severity[severity.iter().take(8).position(|byte| *byte == b'"')?..];
        }
        let (event, rest) = text(rest.strip_prefix(EVENT)?)?;
        Some(Self { timestamp, event, process: Process::read(rest) })
    }
}

impl Process {
    /// The same process, at another record.
    #[must_use]
    pub fn at(self, seq: u64) -> Self {
        Self { seq: Some(seq), ..self }
    }

    #[inline]
    fn read(rest: &[u8]) -> Option<Self> {
        let (digits, rest) = rest.strip_prefix(BOOT_ID)?.split_at_checked(BOOT_ID_DIGITS)?;
        let (pid, rest) = number(rest.strip_prefix(PID)?)?;
        let seq = match rest.strip_prefix(SEQ) {
            Some(rest) => Some(number(rest)?.0),
            None => None,
        };
        Some(Self { boot_id: parse_boot_id(digits)?, pid: u32::try_from(pid).ok()?, seq })
    }
}

/// Reads a boot id in the form of lines.
#[inline]
#[must_use]
pub fn parse_boot_id(digits: &[u8]) -> Option<u64> {
    hex::read(digits).map(u64::from_be_bytes)
}

/// The text up to the closing quote, and what follows from that quote on.
#[inline]
fn text(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        match rest.get(at)? {
            b'"' => return Some(rest.split_at(at)),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[inline]
fn number(rest: &[u8]) -> Option<(u64, &[u8])> {
    let (mut value, mut digits) = (0_u64, 0);
    while let Some(digit) = rest.get(digits).filter(|byte| byte.is_ascii_digit()) {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        digits += 1;
    }
    (digits > 0).then_some((value, &rest[digits..]))
}

/// A piece of a file.
pub enum Piece<'a> {
    /// Whole lines.
    Lines(&'a [u8]),
    /// Of a line above [`LONGEST_LINE`]; `is_end`: with its `\n`.
    OfLong { bytes: &'a [u8], is_end: bool },
}

/// Reads to the end, in memory for one line, and passes it to `take` in pieces; returns the bytes of an unfinished line
/// behind them.
///
/// # Errors
/// As `from`.
pub fn read_pieces(mut from: impl Read, mut take: impl FnMut(Piece<'_>)) -> io::Result<u64> {
    let (mut block, mut have, mut passed) = (vec![0; BLOCK_BYTES], 0, 0);
    loop {
        if have == LONGEST_LINE {
            take(Piece::OfLong { bytes: &block, is_end: false });
            (passed, have) = (passed + have as u64, 0);
        } else if have == block.len() {
            block.resize((have * 2).min(LONGEST_LINE), 0);
        }
        let taken = match from.read(&mut block[have..]) {
            Ok(0) => return Ok(passed + have as u64),
            Ok(taken) => taken,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut begin = 0;
        if passed > 0 {
            let end = memchr::memchr(b'\n', &block[..taken]);
            begin = end.map_or(taken, |end| end + 1);
            take(Piece::OfLong { bytes: &block[..begin], is_end: end.is_some() });
            passed = if end.is_some() { 0 } else { passed + taken as u64 };
        }
        let whole = memchr::memrchr(b'\n', &block[have.max(begin)..have + taken]);
        let whole = whole.map_or(begin, |end| have.max(begin) + end + 1);
        if whole > begin {
            take(Piece::Lines(&block[begin..whole]));
        }
        block.copy_within(whole..have + taken, 0);
        have = have + taken - whole;
    }
}

/// Iterates over whole lines, without their `\n`.
pub fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr::memchr_iter(b'\n', bytes).map(move |end| &bytes[std::mem::replace(&mut start, end + 1)..end])
}

/// Parses a line by the parser that is compiled once, within `serde_json`: each crate that calls `serde_json::from_slice` gets a
/// parser of its own.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse(text: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    text.parse().map_err(|error: serde_json::Error| error.to_string())
}
