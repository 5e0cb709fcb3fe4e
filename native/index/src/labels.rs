//! The values of a field in a block, each with a number: what records are counted and grouped by.

use crate::block::{Decoded, Values};
use crate::builder::TIME;
use crate::columns::{self, COLUMNS, Kind, SEVERITY, SEVERITY_TEXT, TIMESTAMP};
use crate::image::Unreadable;
use crate::record::Json;
use crate::scan::{View, hex};
use crate::times;
use std::collections::HashMap;

/// For each record the place of its value, 0 for none; and the values, from place 1 on.
pub struct Labels {
    pub of_rows: Vec<u32>,
    pub values: Vec<Json>,
}

impl Labels {
    /// Reads those of an indexed field.
    ///
    /// # Errors
    /// A column cannot be read.
    pub fn read(view: &mut View<'_, '_>, field: &str) -> Result<Self, Unreadable> {
        let rows = view.block.rows;
        let column = match columns::of(field) {
            Some(column) => column,
            None if field == SEVERITY => SEVERITY_TEXT,
            None if field == TIMESTAMP => {
                let texts = view.integers(TIME)?.iter().map(|time| Json::Text(times::text(time.cast_unsigned())));
                return Ok(Self { values: texts.collect(), of_rows: (1..=rows as u32).collect() });
            }
            None => return Ok(Self::of_segment(view, field)),
        };
        if COLUMNS[column].kind == Kind::Text {
            return Self::of_texts(view, column, field == SEVERITY);
        }
        let mut labels = Self { of_rows: vec![0; rows], values: Vec::new() };
        let mut places = HashMap::<u64, u32>::new();
        match view.column(column)? {
            None => {}
            Some(decoded @ Decoded { values: Values::Ints(values), .. }) => decoded.each(rows, |row, place| {
                let value = values[place];
                labels.put(row, &mut places, value.cast_unsigned(), || Json::Int(value.into()));
            }),
            Some(decoded @ Decoded { values: Values::Floats(values), .. }) => decoded.each(rows, |row, place| {
                let value = values[place];
                labels.put(row, &mut places, value.to_bits(), || Json::Float(value));
            }),
            Some(decoded @ Decoded { values: Values::Hex(bytes), at }) => {
                let width = bytes.len() / at.as_ref().map_or(rows, Vec::len).max(1);
                decoded.each(rows, |row, place| {
                    labels.values.push(Json::Text(hex(&bytes[place * width..(place + 1) * width])));
                    labels.of_rows[row] = labels.values.len() as u32;
                });
            }
            Some(_) => return Err(Unreadable::Damaged),
        }
        Ok(labels)
    }

    fn put(&mut self, row: usize, places: &mut HashMap<u64, u32>, bits: u64, value: impl FnOnce() -> Json) {
        let values = &mut self.values;
        self.of_rows[row] = *places.entry(bits).or_insert_with(|| {
            values.push(value());
            values.len() as u32
        });
    }

    fn of_segment(view: &View<'_, '_>, field: &str) -> Self {
        let rows = view.block.rows;
        let found = view.image.facts.resource.iter().find(|(name, _)| name == field);
        match found {
            Some((_, text)) => Self { of_rows: vec![1; rows], values: vec![Json::Text(text.clone())] },
            None => Self { of_rows: vec![0; rows], values: Vec::new() },
        }
    }

    fn of_texts(view: &mut View<'_, '_>, column: usize, as_severity: bool) -> Result<Self, Unreadable> {
        let texts = view.texts(column)?;
        let rows = view.block.rows;
        let of_rows: Vec<u32> = match view.column(column)? {
            None => vec![0; rows],
            Some(Decoded { values: Values::Codes(codes), .. }) => codes.iter().map(|code| u32::from(*code)).collect(),
            Some(_) => return Err(Unreadable::Damaged),
        };
        if of_rows.iter().any(|code| *code as usize > texts.len()) {
            return Err(Unreadable::Damaged);
        }
        if !as_severity {
            return Ok(Self { of_rows, values: texts.into_iter().map(Json::Text).collect() });
        }
        let numbers: Vec<Option<i64>> = texts.iter().map(|text| columns::severity_number(text)).collect();
        let has = |code: u32| code > 0 && numbers[code as usize - 1].is_some();
        let of_rows = of_rows.iter().map(|code| if has(*code) { *code } else { 0 }).collect();
        Ok(Self { of_rows, values: numbers.iter().map(|number| Json::Int(number.unwrap_or(0).into())).collect() })
    }
}
