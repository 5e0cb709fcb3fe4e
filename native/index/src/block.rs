//! A block: the columns of up to [`ROWS`] records, each a section of bytes with its checksum and its zone map.
//!
//! ```text
//! numbers    presence, least value (8), width (1), values less the least, `width` bytes each, of the rows that have one
//! floats     presence, 8 bytes each
//! hex        presence, 8 or 16 bytes each
//! codes      for each row 1 or 2 bytes: 0 for none, else 1 + the place in the dictionary
//! bits       one bit for each row
//! presence   0: every row has a value; 1: one bit for each row follows
//! ```

use crate::bytes::{Damaged, Put, Take};

/// Most records of a block.
pub const ROWS: usize = 16_384;
const MILLION: f64 = 1e6;
const MOST_MICROS: f64 = 4e15;

/// How the values of a section are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Ints = 1,
    /// Floats that are whole millionths.
    Micros = 2,
    Floats = 3,
    Codes = 4,
    Hex = 5,
    Bits = 6,
}

impl Encoding {
    fn read(byte: u8) -> Result<Self, Damaged> {
        let all = [Self::Ints, Self::Micros, Self::Floats, Self::Codes, Self::Hex, Self::Bits];
        all.into_iter().find(|encoding| *encoding as u8 == byte).ok_or(Damaged)
    }
}

/// Where a section stands, and the bounds of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section {
    pub id: u8,
    pub encoding: Encoding,
    /// From the beginning of the block.
    pub offset: u32,
    pub len: u32,
    pub crc32: u32,
    /// Least and greatest number.
    pub zone: (f64, f64),
}

/// What is known of a block without its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub rows: usize,
    /// Earliest and latest time.
    pub times: (u64, u64),
    pub sections: Vec<Section>,
    pub bytes: u32,
}

impl Block {
    /// Returns the section of a column; None if no row has a value.
    #[must_use]
    pub fn section(&self, id: usize) -> Option<&Section> {
        self.sections.iter().find(|section| usize::from(section.id) == id)
    }

    /// Appends it to a directory.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_u32(self.rows as u32);
        out.put_u64(self.times.0);
        out.put_u64(self.times.1);
        out.put_u32(self.bytes);
        out.put_u32(self.sections.len() as u32);
        for section in &self.sections {
            out.put_u8(section.id);
            out.put_u8(section.encoding as u8);
            out.put_u32(section.offset);
            out.put_u32(section.len);
            out.put_u32(section.crc32);
            out.put_u64(section.zone.0.to_bits());
            out.put_u64(section.zone.1.to_bits());
        }
    }

    /// Reads it from a directory.
    ///
    /// # Errors
    /// It is not what [`Block::write`] writes.
    pub fn read(from: &mut Take<'_>) -> Result<Self, Damaged> {
        let rows = from.u32()? as usize;
        let times = (from.u64()?, from.u64()?);
        let (bytes, count) = (from.u32()?, from.u32()?);
        if rows == 0 || rows > ROWS || count > 255 {
            return Err(Damaged);
        }
        let mut sections = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (id, encoding) = (from.u8()?, Encoding::read(from.u8()?)?);
            let (offset, len, crc32) = (from.u32()?, from.u32()?, from.u32()?);
            let zone = (f64::from_bits(from.u64()?), f64::from_bits(from.u64()?));
            if u64::from(offset) + u64::from(len) > u64::from(bytes) {
                return Err(Damaged);
            }
            sections.push(Section { id, encoding, offset, len, crc32, zone });
        }
        Ok(Self { rows, times, sections, bytes })
    }
}

/// Writes the sections of one block.
pub struct Writer {
    rows: usize,
    bytes: Vec<u8>,
    sections: Vec<Section>,
}

impl Writer {
    #[must_use]
    pub fn new(rows: usize) -> Self {
        Self { rows, bytes: Vec::new(), sections: Vec::new() }
    }

    /// Writes whole numbers of the rows `at`.
    pub fn ints(&mut self, id: usize, at: &[u16], values: &[i64]) {
        // Beyond it, floats are rounded.
        let is_exact = values.iter().all(|value| value.unsigned_abs() < 1 << 53);
        let zone = if is_exact { zone(values.iter().map(|value| *value as f64)) } else { NO_ZONE };
        self.numbers(id, Encoding::Ints, at, values, zone);
    }

    /// Writes floats of the rows `at`, as millionths where all are such.
    pub fn floats(&mut self, id: usize, at: &[u16], values: &[f64]) {
        let zone = zone(values.iter().copied());
        if let Some(micros) = values.iter().map(|value| whole_micros(*value)).collect::<Option<Vec<i64>>>() {
            return self.numbers(id, Encoding::Micros, at, &micros, zone);
        }
        let begin = self.presence(at);
        values.iter().for_each(|value| self.bytes.put_u64(value.to_bits()));
        self.end(id, Encoding::Floats, begin, zone);
    }

    /// Writes the codes of all rows.
    pub fn codes(&mut self, id: usize, codes: &[u16]) {
        let begin = self.bytes.len();
        if codes.iter().all(|code| *code < 256) {
            self.bytes.push(1);
            self.bytes.extend(codes.iter().map(|code| *code as u8));
        } else {
            self.bytes.push(2);
            codes.iter().for_each(|code| self.bytes.extend_from_slice(&code.to_le_bytes()));
        }
        self.end(id, Encoding::Codes, begin, NO_ZONE);
    }

    /// Writes ids of `N` bytes.
    pub fn hex(&mut self, id: usize, at: &[u16], bytes: &[u8]) {
        let begin = self.presence(at);
        self.bytes.extend_from_slice(bytes);
        self.end(id, Encoding::Hex, begin, NO_ZONE);
    }

    /// Writes a bit for each row; nothing if none is set.
    pub fn bits(&mut self, id: usize, at: &[u16]) {
        if !at.is_empty() {
            let begin = self.bytes.len();
            self.bitmap(at);
            self.end(id, Encoding::Bits, begin, NO_ZONE);
        }
    }

    /// Returns the block and its bytes.
    #[must_use]
    pub fn finish(self, times: (u64, u64)) -> (Block, Vec<u8>) {
        let bytes = self.bytes.len() as u32;
        (Block { rows: self.rows, times, sections: self.sections, bytes }, self.bytes)
    }

    fn numbers(&mut self, id: usize, encoding: Encoding, at: &[u16], values: &[i64], zone: (f64, f64)) {
        let begin = self.presence(at);
        let least = values.iter().copied().min().unwrap_or(0);
        let span = values.iter().map(|value| value.wrapping_sub(least).cast_unsigned()).max().unwrap_or(0);
        let width = (64 - span.leading_zeros() as usize).div_ceil(8);
        self.bytes.put_u64(least.cast_unsigned());
        self.bytes.push(width as u8);
        for value in values {
            let over = value.wrapping_sub(least).cast_unsigned();
            self.bytes.extend_from_slice(&over.to_le_bytes()[..width]);
        }
        self.end(id, encoding, begin, zone);
    }

    fn presence(&mut self, at: &[u16]) -> usize {
        let begin = self.bytes.len();
        if at.len() == self.rows {
            self.bytes.push(0);
        } else {
            self.bytes.push(1);
            self.bitmap(at);
        }
        begin
    }

    fn bitmap(&mut self, at: &[u16]) {
        let begin = self.bytes.len();
        self.bytes.resize(begin + self.rows.div_ceil(8), 0);
        for row in at {
            self.bytes[begin + usize::from(row / 8)] |= 1 << (row % 8);
        }
    }

    fn end(&mut self, id: usize, encoding: Encoding, begin: usize, zone: (f64, f64)) {
        let content = &self.bytes[begin..];
        self.sections.push(Section {
            id: id as u8,
            encoding,
            offset: begin as u32,
            len: content.len() as u32,
            crc32: crc32fast::hash(content),
            zone,
        });
    }
}

/// Bounds that exclude nothing.
pub const NO_ZONE: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

fn zone(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// The millionths that a number is, if it is a whole number of them, and comes back from them as it was.
fn whole_micros(value: f64) -> Option<i64> {
    let micros = (value * MILLION).round();
    let is_whole = micros.abs() < MOST_MICROS && (micros / MILLION).to_bits() == value.to_bits();
    is_whole.then_some(micros as i64)
}

/// The values of a section, of the rows that have one.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    /// Of every row.
    Codes(Vec<u16>),
    Hex(Vec<u8>),
    Bits(Vec<u16>),
}

/// A section, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The rows that have a value; None: all.
    pub at: Option<Vec<u16>>,
    pub values: Values,
}

impl Decoded {
    /// Reads the bytes of a section of a block.
    ///
    /// # Errors
    /// They are not what the section says.
    pub fn read(section: &Section, rows: usize, bytes: &[u8]) -> Result<Self, Damaged> {
        if bytes.len() != section.len as usize || crc32fast::hash(bytes) != section.crc32 {
            return Err(Damaged);
        }
        let mut from = Take(bytes);
        let found = match section.encoding {
            Encoding::Codes => Self { at: None, values: Values::Codes(codes(&mut from, rows)?) },
            Encoding::Bits => Self { at: None, values: Values::Bits(set_bits(from.bytes(rows.div_ceil(8))?, rows)?) },
            encoding => {
                let at = match from.u8()? {
                    0 => None,
                    1 => Some(set_bits(from.bytes(rows.div_ceil(8))?, rows)?),
                    _ => return Err(Damaged),
                };
                let count = at.as_ref().map_or(rows, Vec::len);
                Self { at, values: values(&mut from, encoding, count)? }
            }
        };
        if from.0.is_empty() { Ok(found) } else { Err(Damaged) }
    }

    /// Passes each row that has a value, with the value's place.
    #[inline]
    pub fn each(&self, rows: usize, mut take: impl FnMut(usize, usize)) {
        match &self.at {
            None => (0..rows).for_each(|row| take(row, row)),
            Some(at) => at.iter().enumerate().for_each(|(place, row)| take(usize::from(*row), place)),
        }
    }

    /// Returns the place of a row's value.
    #[must_use]
    pub fn place(&self, row: usize) -> Option<usize> {
        match &self.at {
            None => Some(row),
            Some(at) => at.binary_search(&(row as u16)).ok(),
        }
    }

    /// Returns the numbers of all rows; NaN for none.
    #[must_use]
    pub fn dense(&self, rows: usize) -> Vec<f64> {
        let mut dense = vec![f64::NAN; rows];
        match &self.values {
            Values::Ints(values) => self.each(rows, |row, place| dense[row] = values[place] as f64),
            Values::Floats(values) => self.each(rows, |row, place| dense[row] = values[place]),
            _ => {}
        }
        dense
    }
}

fn values(from: &mut Take<'_>, encoding: Encoding, count: usize) -> Result<Values, Damaged> {
    match encoding {
        Encoding::Ints => Ok(Values::Ints(numbers(from, count, |value| value)?)),
        Encoding::Micros => Ok(Values::Floats(numbers(from, count, |value| value as f64 / MILLION)?)),
        Encoding::Floats => {
            let words = from.bytes(count * 8)?.chunks_exact(8);
            Ok(Values::Floats(words.map(|word| f64::from_le_bytes(word.try_into().unwrap_or_default())).collect()))
        }
        _ => {
            let bytes = from.bytes(from.0.len())?;
            if bytes.len() == count * 8 || bytes.len() == count * 16 {
                Ok(Values::Hex(bytes.to_vec()))
            } else {
                Err(Damaged)
            }
        }
    }
}

fn numbers<T>(from: &mut Take<'_>, count: usize, of: impl Fn(i64) -> T) -> Result<Vec<T>, Damaged> {
    let (least, width) = (from.u64()?.cast_signed(), usize::from(from.u8()?));
    if width > 8 {
        return Err(Damaged);
    }
    if width == 0 {
        return Ok((0..count).map(|_| of(least)).collect());
    }
    let bytes = from.bytes(count.checked_mul(width).ok_or(Damaged)?)?;
    let mask = u64::MAX >> (64 - 8 * width);
    let mut numbers = Vec::with_capacity(count);
    for place in 0..count {
        let rest = &bytes[place * width..];
        let word = match rest.first_chunk::<8>() {
            Some(word) => u64::from_le_bytes(*word) & mask,
            None => rest[..width].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        numbers.push(of(least.wrapping_add(word.cast_signed())));
    }
    Ok(numbers)
}

fn codes(from: &mut Take<'_>, rows: usize) -> Result<Vec<u16>, Damaged> {
    match from.u8()? {
        1 => Ok(from.bytes(rows)?.iter().map(|code| u16::from(*code)).collect()),
        2 => Ok(from.bytes(rows * 2)?.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()),
        _ => Err(Damaged),
    }
}

fn set_bits(bitmap: &[u8], rows: usize) -> Result<Vec<u16>, Damaged> {
    let mut set = Vec::new();
    for (at, byte) in bitmap.iter().enumerate() {
        let mut byte = *byte;
        while byte != 0 {
            set.push((at * 8 + byte.trailing_zeros() as usize) as u16);
            byte &= byte - 1;
        }
    }
    if set.last().is_some_and(|last| usize::from(*last) >= rows) { Err(Damaged) } else { Ok(set) }
}
