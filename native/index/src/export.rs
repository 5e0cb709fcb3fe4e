//! Writes columns as CSV, for the engine of `query`: a line for each record, texts in quotes, nothing where there is no
//! value. It is all or nothing: what columns do not answer is left to the lines.

use crate::block::{Decoded, Values};
use crate::builder::{ODD, TIME};
use crate::columns::{self, COLUMNS, EVENT, Kind, RESOURCE, TIMESTAMP};
use crate::entry::{Entry, Snapshot};
use crate::filter::hex;
use crate::image::{Image, Reader};
use lines::json::number::{push_float, push_integer};
use lines::json::timestamp::SecondCache;
use std::io::{self, Write};

/// Why columns do not suffice, or what the system says.
#[derive(Debug)]
pub enum Refused {
    NotEnough(String),
    System(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

fn not_enough(entry: &Entry, why: &str) -> Refused {
    Refused::NotEnough(format!("{}: {why}", entry.text))
}

/// Writes `fields` of the records of an event, or of all; returns how many they are. Segments come in the order of their
/// beginning, as readers list them.
///
/// # Errors
/// Columns do not have it all, or the file cannot be written.
pub fn export(
    snapshot: &Snapshot,
    fields: &[String],
    event: Option<&str>,
    to: &mut impl Write,
) -> Result<u64, Refused> {
    let mut order: Vec<&Entry> = snapshot.iter().map(AsRef::as_ref).collect();
    let key = |entry: &&Entry| {
        let name = &entry.name;
        (name.begun_unix_milli, name.boot_id.clone(), name.number, name.prefix.clone())
    };
    order.sort_by_key(key);
    let mut rows = 0;
    for entry in order {
        let image = entry.whole().ok_or_else(|| not_enough(entry, "is not indexed"))?;
        rows += segment(entry, image, fields, event, to)?;
    }
    Ok(rows)
}

fn segment(
    entry: &Entry,
    image: &Image,
    fields: &[String],
    event: Option<&str>,
    to: &mut impl Write,
) -> Result<u64, Refused> {
    let mut reader = image.reader()?;
    let texts = fields.iter().map(|field| quoted(entry, image, &mut reader, field)).collect::<Result<Vec<_>, _>>()?;
    let accepted = match event {
        None => None,
        Some(_) if image.texts[EVENT].is_full => return Err(not_enough(entry, "has too many events")),
        Some(event) => {
            let names = reader.texts(EVENT).map_err(|_| not_enough(entry, "has a damaged index"))?;
            Some(names.iter().position(|name| name == event).map_or(0, |place| place as u16 + 1))
        }
    };
    if accepted == Some(0) {
        return Ok(0);
    }
    let (mut rows, mut line) = (0, Vec::new());
    for (at, (_, block)) in image.blocks.iter().enumerate() {
        let mut section = |id| reader.section(at, id).map_err(|_| not_enough(entry, "has a damaged index"));
        if block.section(ODD).is_some() {
            return Err(not_enough(entry, "has records of an unusual form"));
        }
        let events = section(EVENT)?;
        let cells = fields.iter().map(|field| Ok(Cells::new(section(id_of(field))?, block.rows, field)));
        let cells: Vec<Cells> = cells.collect::<Result<_, Refused>>()?;
        for row in 0..block.rows {
            if accepted.is_some_and(|accepted| code(events.as_ref(), row) != accepted) {
                continue;
            }
            for (place, (cells, texts)) in cells.iter().zip(&texts).enumerate() {
                line.extend_from_slice(if place > 0 { b"," } else { b"" });
                cells.push(row, texts, &mut line);
            }
            line.push(b'\n');
            rows += 1;
        }
        to.write_all(&line)?;
        line.clear();
    }
    Ok(rows)
}

fn code(decoded: Option<&Decoded>, row: usize) -> u16 {
    match decoded {
        Some(Decoded { values: Values::Codes(codes), .. }) => codes[row],
        _ => 0,
    }
}

/// The section of a field; of what the segment gives to all records, none.
fn id_of(field: &str) -> usize {
    if field == TIMESTAMP { TIME } else { columns::of(field).unwrap_or(usize::MAX) }
}

/// The texts of a field, quoted; of what the segment gives, one.
fn quoted(entry: &Entry, image: &Image, reader: &mut Reader<'_>, field: &str) -> Result<Vec<Vec<u8>>, Refused> {
    let texts = match columns::of(field) {
        Some(column) if image.texts[column].is_full => {
            return Err(not_enough(entry, &format!("{field} has too many values to be indexed")));
        }
        Some(column) => reader.texts(column).map_err(|_| not_enough(entry, "has a damaged index"))?,
        None if RESOURCE.contains(&field) => {
            let found = image.facts.resource.iter().find(|(name, _)| name == field);
            found.map(|(_, value)| value.clone()).into_iter().collect()
        }
        None if field == TIMESTAMP => Vec::new(),
        None => return Err(not_enough(entry, &format!("{field} is not indexed"))),
    };
    if texts.iter().any(|text| text.bytes().any(|byte| byte < b' ')) {
        return Err(not_enough(entry, &format!("{field} has control characters")));
    }
    Ok(texts.iter().map(|text| format!("\"{}\"", text.replace('"', "\"\"")).into_bytes()).collect())
}

/// The cells of a column in a block.
struct Cells {
    decoded: Option<Decoded>,
    is_time: bool,
    /// Bytes of an id.
    width: usize,
    /// The place of each row's value, behind 0 for none.
    places: Vec<u32>,
}

impl Cells {
    fn new(decoded: Option<Decoded>, rows: usize, field: &str) -> Self {
        let width = match columns::of(field).map(|column| COLUMNS[column].kind) {
            Some(Kind::Hex(width)) => width,
            _ => 0,
        };
        let mut places = Vec::new();
        if let Some(decoded) = &decoded
            && decoded.at.is_some()
        {
            places = vec![0; rows];
            decoded.each(rows, |row, place| places[row] = place as u32 + 1);
        }
        Self { decoded, is_time: field == TIMESTAMP, width, places }
    }

    fn push(&self, row: usize, texts: &[Vec<u8>], line: &mut Vec<u8>) {
        let Some(decoded) = &self.decoded else {
            // Of all records of the segment, or of none.
            return line.extend_from_slice(texts.first().map_or(&[], Vec::as_slice));
        };
        let place = match self.places.get(row) {
            None => row,
            Some(0) => return,
            Some(place) => *place as usize - 1,
        };
        match &decoded.values {
            Values::Codes(codes) => {
                if let Some(text) = usize::from(codes[row]).checked_sub(1).and_then(|code| texts.get(code)) {
                    line.extend_from_slice(text);
                }
            }
            Values::Ints(values) if self.is_time => {
                SecondCache::default().push_timestamp(line, values[place].cast_unsigned());
            }
            Values::Ints(values) => push_integer(line, values[place]),
            Values::Floats(values) => push_float(line, values[place]),
            Values::Hex(bytes) => {
                line.extend_from_slice(hex(&bytes[place * self.width..(place + 1) * self.width]).as_bytes());
            }
            Values::Bits(_) => {}
        }
    }
}

/// Returns whether a field can be exported at all.
#[must_use]
pub fn has(field: &str) -> bool {
    COLUMNS.iter().any(|column| column.name == field) || RESOURCE.contains(&field) || field == TIMESTAMP
}
