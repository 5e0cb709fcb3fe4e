//! Makes the columns of a segment out of its lines, in bounded memory: one open block, and one dictionary for each
//! column of texts.

use crate::block::{Block, ROWS, Writer};
use crate::columns::{COLUMNS, EVENT, KEYS, Key, Kind, RESOURCE, ends};
use crate::json::{self, Token};
use crate::record::{self, Json, Record};
use crate::times;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Sections beside those of the columns.
pub const OFFSET: usize = COLUMNS.len();
pub const LENGTH: usize = OFFSET + 1;
pub const TIME: usize = OFFSET + 2;
pub const ODD: usize = OFFSET + 3;

/// Most texts of a dictionary; a column with more is not indexed in its segment.
const MOST_TEXTS: usize = 16_384;
/// Most bytes of a dictionary.
const MOST_TEXT_BYTES: usize = 1 << 20;
const MEMO: usize = 256;

/// The texts of one column.
#[derive(Default)]
pub struct Dictionary {
    pub texts: Vec<Box<str>>,
    places: HashMap<Box<str>, u16>,
    bytes: usize,
    /// It was full: the column is not indexed.
    pub is_full: bool,
    memo: Vec<u16>,
}

impl Dictionary {
    /// The code of a text; None if there is no room for it.
    #[inline]
    fn code(&mut self, text: &[u8]) -> Option<u16> {
        if self.memo.is_empty() {
            self.memo = vec![0; MEMO];
        }
        let memo = (ends(text) >> 56) as usize % MEMO;
        let known = self.memo[memo];
        if known > 0 && self.texts[usize::from(known) - 1].as_bytes() == text {
            return Some(known);
        }
        let code = self.find(std::str::from_utf8(text).ok()?)?;
        self.memo[memo] = code;
        Some(code)
    }

    fn find(&mut self, text: &str) -> Option<u16> {
        if let Some(code) = self.places.get(text) {
            return Some(*code);
        }
        if self.texts.len() == MOST_TEXTS || self.bytes + text.len() > MOST_TEXT_BYTES {
            *self = Self { is_full: true, ..Self::default() };
            return None;
        }
        self.bytes += text.len();
        self.texts.push(text.into());
        let code = self.texts.len() as u16;
        self.places.insert(text.into(), code);
        Some(code)
    }
}

/// The values of one column in the open block, of the rows that have one.
#[derive(Default)]
struct Open {
    at: Vec<u16>,
    ints: Vec<i64>,
    floats: Vec<f64>,
    codes: Vec<u16>,
    hex: Vec<u8>,
}

impl Open {
    fn clear(&mut self) {
        self.at.clear();
        self.ints.clear();
        self.floats.clear();
        self.codes.clear();
        self.hex.clear();
    }

    /// Removes the value of the last row.
    fn pop(&mut self, hex: usize) {
        self.at.pop();
        self.ints.pop();
        self.floats.pop();
        self.codes.pop();
        self.hex.truncate(self.hex.len().saturating_sub(hex));
    }
}

/// Columns under construction.
pub struct Builder {
    columns: Vec<Open>,
    dictionaries: Vec<Dictionary>,
    offsets: Vec<i64>,
    lengths: Vec<i64>,
    times: Vec<i64>,
    odd: Vec<u16>,
    last_time: u64,
    /// Finished blocks with their bytes.
    pub blocks: Vec<(Block, Arc<[u8]>)>,
    /// Bytes of those.
    pub bytes: u64,
    /// The members of the header's `resource` that are texts.
    pub resource: Vec<(String, String)>,
    /// Records in all blocks, the open one included.
    pub rows: u64,
    /// Lines that are no records.
    pub unreadable: u64,
    /// The footer's line, if it has come.
    pub footer: Option<Vec<u8>>,
}

impl Builder {
    /// Begins; records without a readable time have that of the record before, the first ones `begun`.
    #[must_use]
    pub fn new(begun_unix_nano: u64) -> Self {
        Self {
            columns: COLUMNS.iter().map(|_| Open::default()).collect(),
            dictionaries: COLUMNS.iter().map(|_| Dictionary::default()).collect(),
            offsets: Vec::new(),
            lengths: Vec::new(),
            times: Vec::new(),
            odd: Vec::new(),
            last_time: begun_unix_nano,
            blocks: Vec::new(),
            bytes: 0,
            resource: Vec::new(),
            rows: 0,
            unreadable: 0,
            footer: None,
        }
    }

    /// Returns the dictionary of each column.
    #[must_use]
    pub fn dictionaries(&self) -> &[Dictionary] {
        &self.dictionaries
    }

    /// Takes a line, without its newline, that begins at `offset` of the segment's content.
    pub fn take(&mut self, line: &[u8], offset: u64) {
        self.footer = None; // of all footers only one that ends the segment is its own
        let row = self.offsets.len() as u16;
        let Some(found) = self.read(line, row) else {
            self.drop_row(row);
            self.unreadable += 1;
            return;
        };
        if found.is_framing {
            self.drop_row(row);
            return self.take_framing(line);
        }
        self.last_time = found.time.unwrap_or(self.last_time);
        self.offsets.push(offset.cast_signed());
        self.lengths.push(line.len() as i64);
        self.times.push(self.last_time.cast_signed());
        if found.is_odd {
            self.odd.push(row);
        }
        self.rows += 1;
        if self.offsets.len() == ROWS {
            let (block, bytes) = self.encode();
            self.bytes += bytes.len() as u64;
            self.blocks.push((block, bytes.into()));
            self.clear();
        }
    }

    /// Takes the first line of a segment of which only a part is read, if it is a header.
    pub fn take_header(&mut self, line: &[u8]) {
        let framing = Record::read(line, |key| key == "event_name");
        let is_header = |record: Record| record.look_up("event_name") == Some(&Json::Text("segment.header".into()));
        if framing.is_ok_and(is_header) {
            self.take_framing(line);
        }
    }

    /// Takes a line that is too long to be a record.
    pub fn skip_long(&mut self) {
        self.footer = None;
        self.unreadable += 1;
    }

    /// Returns the unfinished block, if it has rows.
    #[must_use]
    pub fn open_block(&self) -> Option<(Block, Vec<u8>)> {
        (!self.offsets.is_empty()).then(|| self.encode())
    }

    fn clear(&mut self) {
        self.columns.iter_mut().for_each(Open::clear);
        self.offsets.clear();
        self.lengths.clear();
        self.times.clear();
        self.odd.clear();
    }

    fn drop_row(&mut self, row: u16) {
        for (open, column) in self.columns.iter_mut().zip(COLUMNS) {
            if open.at.last() == Some(&row) {
                open.pop(if let Kind::Hex(bytes) = column.kind { bytes } else { 0 });
            }
        }
    }

    #[inline]
    fn read(&mut self, line: &[u8], row: u16) -> Option<Found> {
        let mut found = Found::default();
        let ascii = line.is_ascii();
        if !ascii {
            std::str::from_utf8(line).ok()?;
        }
        json::members(line, |key, escaped, token| {
            let key: Cow<'_, [u8]> =
                if escaped { Cow::Owned(record::text(key, true).into_bytes()) } else { Cow::Borrowed(key) };
            match KEYS.find(&key) {
                Key::Other => {}
                Key::Timestamp => {
                    found.is_odd |= found.time.is_some();
                    found.time = match token {
                        Token::Text { raw, escaped: false } => times::read(raw),
                        _ => None,
                    };
                    found.has_time |= found.time.is_some();
                    found.is_odd |= found.time.is_none();
                }
                Key::Way => found.is_odd |= matches!(token, Token::Object(_)),
                Key::Shadow => found.is_odd = true,
                Key::Column(at) => {
                    found.has_pid |= COLUMNS[at].name == "pid";
                    self.put(at, row, token, &mut found);
                }
            }
        })
        .ok()?;
        // A record without a time cannot be found by it, nor shown with it.
        found.is_odd |= !found.has_time;
        found.is_framing &= !found.has_pid;
        Some(found)
    }

    #[inline]
    fn put(&mut self, at: usize, row: u16, token: Token<'_>, found: &mut Found) {
        let (open, kind) = (&mut self.columns[at], COLUMNS[at].kind);
        if open.at.last() == Some(&row) {
            // A key a second time: its last value counts.
            open.pop(if let Kind::Hex(bytes) = kind { bytes } else { 0 });
            found.is_odd = true;
        }
        let fits = match (kind, token) {
            (Kind::Int, Token::Number { digits, whole: true }) => int(digits).map(|value| open.ints.push(value)),
            (Kind::Float, Token::Number { digits, whole: false }) => {
                open.floats.push(json::float(digits));
                Some(())
            }
            (Kind::Hex(bytes), Token::Text { raw, escaped: false }) => push_hex(&mut open.hex, raw, bytes),
            (Kind::Text, Token::Text { raw, escaped }) => {
                let text = if escaped { Cow::Owned(record::text(raw, true).into_bytes()) } else { Cow::Borrowed(raw) };
                if at == EVENT {
                    found.is_framing = matches!(&*text, b"segment.header" | b"segment.footer");
                }
                let dictionary = &mut self.dictionaries[at];
                if dictionary.is_full {
                    return;
                }
                let Some(code) = dictionary.code(&text) else { return };
                open.codes.push(code);
                Some(())
            }
            _ => None,
        };
        match fits {
            Some(()) => open.at.push(row),
            None => {
                found.is_odd = true;
                found.is_framing &= at != EVENT;
            }
        }
    }

    fn take_framing(&mut self, line: &[u8]) {
        let Ok(framing) = Record::read(line, |key| key == "event_name" || key == "resource") else { return };
        if framing.look_up("event_name") == Some(&Json::Text("segment.footer".into())) {
            self.footer = Some(line.to_vec());
            return;
        }
        if self.rows == 0
            && let Some(Json::Object(members)) = framing.look_up("resource")
        {
            let known = members.iter().filter(|(key, _)| RESOURCE.contains(&key.as_str()));
            self.resource = known
                .filter_map(|(key, value)| match value {
                    Json::Text(text) => Some((key.clone(), text.clone())),
                    _ => None,
                })
                .collect();
        }
    }

    fn encode(&self) -> (Block, Vec<u8>) {
        let rows = self.offsets.len();
        let all: Vec<u16> = (0..rows as u16).collect();
        let mut writer = Writer::new(rows);
        writer.ints(OFFSET, &all, &self.offsets);
        writer.ints(LENGTH, &all, &self.lengths);
        writer.ints(TIME, &all, &self.times);
        writer.bits(ODD, &self.odd);
        for (at, (open, column)) in self.columns.iter().zip(COLUMNS).enumerate() {
            if open.at.is_empty() {
                continue;
            }
            match column.kind {
                Kind::Int => writer.ints(at, &open.at, &open.ints),
                Kind::Float => writer.floats(at, &open.at, &open.floats),
                Kind::Hex(_) => writer.hex(at, &open.at, &open.hex),
                Kind::Text if self.dictionaries[at].is_full => {}
                Kind::Text => {
                    let mut codes = vec![0; rows];
                    open.at.iter().zip(&open.codes).for_each(|(row, code)| codes[usize::from(*row)] = *code);
                    writer.codes(at, &codes);
                }
            }
        }
        let times = self.times.iter().map(|time| time.cast_unsigned());
        let (first, last) = times.fold((u64::MAX, 0), |(first, last), time| (first.min(time), last.max(time)));
        writer.finish((first, last))
    }
}

/// What a line was found to be.
#[derive(Default)]
struct Found {
    time: Option<u64>,
    has_time: bool,
    has_pid: bool,
    is_odd: bool,
    is_framing: bool,
}

/// A whole number of 64 bits; -0 is 0.
#[inline]
fn int(digits: &[u8]) -> Option<i64> {
    if digits.len() <= 18 && digits[0] != b'-' {
        return Some(digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')));
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn push_hex(out: &mut Vec<u8>, digits: &[u8], bytes: usize) -> Option<()> {
    if digits.len() != 2 * bytes {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        _ => 255,
    };
    let begin = out.len();
    for pair in digits.chunks_exact(2) {
        let (high, low) = (digit(pair[0]), digit(pair[1]));
        if high | low > 15 {
            out.truncate(begin);
            return None;
        }
        out.push(high << 4 | low);
    }
    Some(())
}
