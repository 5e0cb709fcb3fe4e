//! What the columns of a segment say to a filter, and the filter applied to the columns of a block.

use crate::block::{Block, Decoded, Values};
use crate::builder::TIME;
use crate::columns::{self, COLUMNS, Kind, RESOURCE, SEVERITY, SEVERITY_TEXT, TIMESTAMP, TRACE};
use crate::condition::{Condition, Number, Operator};
use crate::image::{Image, Reader, Unreadable};
use crate::query::Filter;
use crate::record::Json;
use crate::times;
use crate::view::View;

/// A filter, as far as columns answer it.
pub enum Test<'a> {
    /// By code; the first is for records without a value.
    Codes(usize, Vec<bool>),
    Number(usize, &'a Condition),
    Hex(usize, &'a Filter),
    Time(&'a Condition),
}

/// What the columns of a segment say to a filter.
pub enum Answer<'a> {
    Always(bool),
    Test(Test<'a>),
    /// They do not say it.
    Line,
}

/// Whether the columns of a segment have a field.
#[must_use]
pub fn is_indexed(image: &Image, field: &str) -> bool {
    let column = if field == SEVERITY { Some(SEVERITY_TEXT) } else { columns::of(field) };
    match column {
        Some(column) => !image.texts[column].is_full,
        None => field == TIMESTAMP || RESOURCE.contains(&field),
    }
}

/// Returns what the columns of a segment say to a filter.
///
/// # Errors
/// A dictionary cannot be read.
pub fn answer<'a>(filter: &'a Filter, image: &Image, reader: &mut Reader<'_>) -> Result<Answer<'a>, Unreadable> {
    let field = filter.field();
    if !is_indexed(image, field) {
        return Ok(Answer::Line);
    }
    let value = |text: &str| if field == SEVERITY { severity(text) } else { Some(Json::Text(text.to_owned())) };
    let holds = |found: Option<&Json>| match filter {
        Filter::Condition(condition) => condition.holds_for(found),
        Filter::Events(names) => matches!(found, Some(Json::Text(name)) if names.contains(name)),
        Filter::Trace(_) => false,
    };
    let column = match columns::of(field) {
        Some(column) => column,
        None if field == SEVERITY => SEVERITY_TEXT,
        None => {
            return Ok(match filter {
                Filter::Condition(condition) if field == TIMESTAMP => Answer::Test(Test::Time(condition)),
                _ => {
                    let found = image.facts.resource.iter().find(|(name, _)| name == field);
                    Answer::Always(holds(found.and_then(|(_, text)| value(text)).as_ref()))
                }
            });
        }
    };
    match (COLUMNS[column].kind, filter) {
        (Kind::Text, _) => {
            let texts = reader.texts(column)?;
            let mut accepts = vec![holds(None)];
            accepts.extend(texts.iter().map(|text| holds(value(text).as_ref())));
            let all = accepts.iter().all(|accepts| *accepts);
            let any = accepts.iter().any(|accepts| *accepts);
            Ok(if all == any { Answer::Always(any) } else { Answer::Test(Test::Codes(column, accepts)) })
        }
        (Kind::Hex(_), _) => Ok(Answer::Test(Test::Hex(column, filter))),
        (_, Filter::Condition(condition)) => Ok(Answer::Test(Test::Number(column, condition))),
        _ => Ok(Answer::Line),
    }
}

fn severity(text: &str) -> Option<Json> {
    columns::severity_number(text).map(|number| Json::Int(number.into()))
}

/// Whether no record of a block, all of which have this form, can pass the test.
#[must_use]
pub fn excludes(test: &Test<'_>, block: &Block) -> bool {
    let Test::Number(column, condition) = test else { return false };
    let Some(section) = block.section(*column) else { return condition.operator != Operator::NotEqual };
    let (low, high) = section.zone;
    let Some(number) = &condition.number else { return false };
    let (Some(low), Some(high)) = (number.compare_float(low), number.compare_float(high)) else { return false };
    match condition.operator {
        Operator::Greater | Operator::GreaterOrEqual => high.is_lt(),
        Operator::Less | Operator::LessOrEqual => low.is_gt(),
        Operator::Equal => low.is_gt() || high.is_lt(),
        Operator::NotEqual | Operator::Contains => false,
    }
}

/// Takes out of `mask` the records that do not pass the test.
///
/// # Errors
/// A column cannot be read.
pub fn apply(test: &Test<'_>, view: &mut View<'_, '_>, mask: &mut [bool]) -> Result<(), Unreadable> {
    let rows = mask.len();
    let mut hits = vec![false; rows];
    match test {
        Test::Codes(column, accepts) => match view.column(*column)? {
            None => hits.fill(accepts[0]),
            Some(Decoded { values: Values::Codes(codes), .. }) => {
                for (hit, code) in hits.iter_mut().zip(codes) {
                    *hit = *accepts.get(usize::from(*code)).ok_or(Unreadable::Damaged)?;
                }
            }
            Some(_) => return Err(Unreadable::Damaged),
        },
        Test::Number(column, condition) => {
            hits.fill(condition.holds_for(None));
            if let Some(decoded) = view.column(*column)? {
                number_hits(decoded, condition, &mut hits)?;
            }
        }
        Test::Hex(column, filter) => hex_hits(view.column(*column)?, filter, *column == TRACE, &mut hits)?,
        Test::Time(condition) => {
            for (hit, time) in hits.iter_mut().zip(view.integers(TIME)?) {
                *hit = condition.holds_for_text(&times::text(time.cast_unsigned()));
            }
        }
    }
    mask.iter_mut().zip(hits).for_each(|(chosen, hit)| *chosen &= hit);
    Ok(())
}

fn number_hits(decoded: &Decoded, condition: &Condition, hits: &mut [bool]) -> Result<(), Unreadable> {
    let rows = hits.len();
    match (&decoded.values, &condition.number, condition.operator) {
        (_, _, Operator::Contains) | (_, None, _) => match &decoded.values {
            Values::Ints(values) => {
                decoded
                    .each(rows, |row, place| hits[row] = condition.holds_for(Some(&Json::Int(values[place].into()))));
            }
            Values::Floats(values) => {
                decoded.each(rows, |row, place| hits[row] = condition.holds_for(Some(&Json::Float(values[place]))));
            }
            _ => return Err(Unreadable::Damaged),
        },
        (Values::Ints(values), Some(Number::Int(wanted)), operator) => {
            let wanted = *wanted;
            decoded.each(rows, |row, place| hits[row] = operator.accepts(Some(i128::from(values[place]).cmp(&wanted))));
        }
        (Values::Floats(values), Some(number @ (Number::Int(_) | Number::Float(_))), operator) => {
            let simple = match number {
                Number::Float(wanted) => Some(*wanted),
                Number::Int(wanted) if wanted.unsigned_abs() < 1 << 53 => Some(*wanted as f64),
                _ => None,
            };
            match simple {
                Some(wanted) => {
                    decoded.each(rows, |row, place| hits[row] = operator.accepts(values[place].partial_cmp(&wanted)));
                }
                None => {
                    decoded.each(rows, |row, place| hits[row] = operator.accepts(number.compare_float(values[place])))
                }
            }
        }
        (Values::Ints(values), Some(number), operator) => {
            decoded.each(rows, |row, place| hits[row] = operator.accepts(number.compare_int(values[place].into())));
        }
        (Values::Floats(values), Some(number), operator) => {
            decoded.each(rows, |row, place| hits[row] = operator.accepts(number.compare_float(values[place])));
        }
        _ => return Err(Unreadable::Damaged),
    }
    Ok(())
}

fn hex_hits(decoded: Option<&Decoded>, filter: &Filter, is_trace: bool, hits: &mut [bool]) -> Result<(), Unreadable> {
    let rows = hits.len();
    let holds = |text: Option<&str>| match (filter, text) {
        (Filter::Trace(digits), text) => text.unwrap_or_default().starts_with(digits.as_str()),
        (Filter::Condition(condition), Some(text)) => condition.holds_for_text(text),
        (Filter::Condition(condition), None) => condition.holds_for(None),
        (Filter::Events(_), _) => false,
    };
    hits.fill(holds(None));
    let Some(decoded) = decoded else { return Ok(()) };
    let Values::Hex(bytes) = &decoded.values else { return Err(Unreadable::Damaged) };
    let width = if is_trace { 16 } else { 8 };
    let count = decoded.at.as_ref().map_or(rows, Vec::len);
    if bytes.len() != count * width {
        return Err(Unreadable::Damaged);
    }
    // The first byte rules most of them out.
    let first = match filter {
        Filter::Trace(digits) => first_byte(digits),
        Filter::Condition(condition) if condition.operator == Operator::Equal => first_byte(&condition.value),
        _ => None,
    };
    decoded.each(rows, |row, place| {
        let id = &bytes[place * width..(place + 1) * width];
        hits[row] = first.is_none_or(|first| first == id[0]) && holds(Some(&hex(id)));
    });
    Ok(())
}

fn first_byte(digits: &str) -> Option<u8> {
    digits.get(..2).and_then(|pair| u8::from_str_radix(pair, 16).ok())
}

/// Returns bytes as lowercase digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}
