//! Finds the records of a segment that fulfil a query: by its columns, and by its lines where columns do not suffice.
//!
//! Lines are read of records that are odd, of all records where a field is not indexed (in this segment), and where a
//! text is searched for.

use crate::block::{Block, Decoded, Values};
use crate::builder::{LENGTH, ODD, OFFSET, TIME};
use crate::catalog::{Entry, NoLines};
use crate::columns::{self, COLUMNS, Kind, RESOURCE, SEVERITY, SEVERITY_TEXT, TIMESTAMP, TRACE};
use crate::condition::Condition;
use crate::image::{Image, Reader, Unreadable};
use crate::query::{Filter, Query};
use crate::record::{Json, Record};
use crate::source::Lines;
use crate::times;
use lines::json::text::unescape_onto;
use std::time::Instant;

/// Lines of a block that are read before the next look at the clock.
const LINES_AT_ONCE: usize = 512;
/// Where more than this share of lines is wanted, the file is read ahead.
const DENSE: usize = 16;

/// What a scan does with records. Blocks come in one order, or lines of some in between.
pub trait Visitor: Send {
    /// Begins with a segment.
    fn begin(&mut self, _entry: &Entry) {}

    /// Returns the fields that [`Visitor::columns`] needs, also of lines.
    fn fields(&self) -> &[String];

    /// Returns whether a block can have records that matter.
    fn admits(&mut self, block: &Block) -> bool;

    /// Takes records of a block whose fields are all in columns.
    ///
    /// # Errors
    /// A column cannot be read.
    fn columns(&mut self, view: &mut View<'_, '_>, rows: &[u16]) -> Result<(), Unreadable>;

    /// Takes a record that was read from its line.
    fn line(&mut self, time: u64, offset: u64, record: &Record);
}

/// How far a scan came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scanned {
    pub rows: u64,
    /// The latest time of what was not searched.
    pub stopped_at: Option<u64>,
    /// A block was left out, since it could not matter.
    pub skipped: bool,
}

/// Why a segment could not be searched.
#[derive(Debug)]
pub enum Failed {
    /// Its index is damaged, or the segment another one.
    Stale,
    System(std::io::Error),
}

impl From<Unreadable> for Failed {
    fn from(error: Unreadable) -> Self {
        match error {
            Unreadable::Damaged => Self::Stale,
            Unreadable::System(error) if error.kind() == std::io::ErrorKind::NotFound => Self::Stale,
            Unreadable::System(error) => Self::System(error),
        }
    }
}

impl From<NoLines> for Failed {
    fn from(error: NoLines) -> Self {
        match error {
            NoLines::Gone => Self::Stale,
            NoLines::System(error) => Self::System(error),
        }
    }
}

/// A filter, as far as columns answer it.
enum Test<'a> {
    /// By code; the first is for records without a value.
    Codes(usize, Vec<bool>),
    Number(usize, &'a Condition),
    Hex(usize, &'a Filter),
    Time(&'a Condition),
}

/// What the columns of a segment say to a filter.
enum Answer<'a> {
    Always(bool),
    Test(Test<'a>),
    /// They do not say it.
    Line,
}

/// One block, with what was read of it.
pub struct View<'a, 'i> {
    pub image: &'i Image,
    pub at: usize,
    pub block: &'i Block,
    reader: &'a mut Reader<'i>,
    read: Vec<(usize, Option<Decoded>)>,
}

impl<'i> View<'_, 'i> {
    /// Returns the values of a column; None if no record has one.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn column(&mut self, id: usize) -> Result<Option<&Decoded>, Unreadable> {
        let place = match self.read.iter().position(|(read, _)| *read == id) {
            Some(place) => place,
            None => {
                self.read.push((id, self.reader.section(self.at, id)?));
                self.read.len() - 1
            }
        };
        Ok(self.read[place].1.as_ref())
    }

    /// Returns the numbers of a column for all records; NaN for none.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn dense(&mut self, id: usize) -> Result<Vec<f64>, Unreadable> {
        let rows = self.block.rows;
        Ok(self.column(id)?.map_or_else(|| vec![f64::NAN; rows], |decoded| decoded.dense(rows)))
    }

    /// Returns the numbers of a column that every record has.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn integers(&mut self, id: usize) -> Result<&[i64], Unreadable> {
        let rows = self.block.rows;
        match self.column(id)? {
            Some(Decoded { values: Values::Ints(values), .. }) if values.len() == rows => Ok(values),
            _ => Err(Unreadable::Damaged),
        }
    }

    /// Returns the texts of a column's dictionary.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn texts(&mut self, column: usize) -> Result<Vec<String>, Unreadable> {
        self.reader.texts(column)
    }
}

/// A scan of one segment.
pub struct Scan<'a> {
    query: &'a Query,
    entry: &'a Entry,
    image: &'a Image,
    tests: Vec<Test<'a>>,
    /// Lines from this offset on.
    begin: u64,
    never: bool,
    all_lines: bool,
    /// The names of members that a line must be asked for.
    wanted: Vec<String>,
}

impl<'a> Scan<'a> {
    /// Prepares it; None if no record of the segment can fulfil the query.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn new(query: &'a Query, entry: &'a Entry, image: &'a Image, fields: &[String]) -> Result<Self, Failed> {
        let mut reader = image.reader().map_err(Unreadable::from)?;
        let mut scan = Self {
            query,
            entry,
            image,
            tests: Vec::new(),
            begin: query.begin_in(&entry.text, &entry.directory).unwrap_or(u64::MAX),
            never: false,
            all_lines: query.text.is_some() || fields.iter().any(|field| !is_indexed(image, field)),
            wanted: wanted(query.filters.iter().map(Filter::field).chain(fields.iter().map(String::as_str))),
        };
        for filter in &query.filters {
            match answer(filter, image, &mut reader)? {
                Answer::Always(holds) => scan.never |= !holds,
                Answer::Test(test) => scan.tests.push(test),
                Answer::Line => scan.all_lines = true,
            }
        }
        Ok(scan)
    }

    /// Passes the records that fulfil the query, block by block; the newest block first unless `forward`. The first block
    /// that matters is searched whatever the budget is if `at_least_one`, so that a repeated question gets on.
    ///
    /// # Errors
    /// The index or the segment cannot be read.
    pub fn run(&self, visitor: &mut impl Visitor, forward: bool, at_least_one: bool) -> Result<Scanned, Failed> {
        let mut reader = self.image.reader().map_err(Unreadable::from)?;
        let mut scanned = Scanned::default();
        let mut lines = None;
        let by_lines = self.all_lines && self.image.facts.identity.compressed;
        let mut may_stop = !at_least_one;
        let mut last_time = None;
        for at in self.order(forward, by_lines) {
            let block = &self.image.blocks[at].1;
            if block.times.1 < self.query.from_ns || block.times.0 >= self.query.to_ns {
                continue;
            }
            if !visitor.admits(block) {
                scanned.skipped = true;
                continue;
            }
            // Two blocks that end at one moment are searched together.
            let is_late = may_stop && last_time != Some(block.times.1) && Instant::now() >= self.query.deadline;
            let can_stop = may_stop && !is_late;
            if is_late || !self.block(&mut reader, at, &mut lines, visitor, &mut scanned, can_stop)? {
                scanned.stopped_at = scanned.stopped_at.max(Some(block.times.1));
                continue; // for the times of the others
            }
            last_time = Some(block.times.1);
            may_stop |= !by_lines;
        }
        Ok(scanned)
    }

    /// The places of the blocks. A compressed segment whose lines are read is read from its beginning.
    fn order(&self, forward: bool, by_lines: bool) -> Vec<usize> {
        let blocks = &self.image.blocks;
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        if !by_lines && forward {
            order.sort_by_key(|at| blocks[*at].1.times.0);
        } else if !by_lines {
            order.sort_by_key(|at| std::cmp::Reverse(blocks[*at].1.times.1));
        }
        order
    }

    /// Returns whether the block was searched to its end.
    fn block(
        &self,
        reader: &mut Reader<'a>,
        at: usize,
        lines: &mut Option<Lines>,
        visitor: &mut impl Visitor,
        scanned: &mut Scanned,
        can_stop: bool,
    ) -> Result<bool, Failed> {
        let block = &self.image.blocks[at].1;
        let has_odd = block.section(ODD).is_some();
        if self.never && !has_odd || !has_odd && self.tests.iter().any(|test| excludes(test, block)) {
            scanned.rows += block.rows as u64;
            return Ok(true);
        }
        let mut view = View { image: self.image, at, block, reader, read: Vec::new() };
        let mut mask = vec![!self.never; block.rows];
        let odd = match view.column(ODD)? {
            Some(Decoded { values: Values::Bits(rows), .. }) => rows.clone(),
            _ => Vec::new(),
        };
        for test in &self.tests {
            apply(test, &mut view, &mut mask)?;
        }
        odd.iter().for_each(|row| mask[usize::from(*row)] = true);
        self.within_time(&mut view, &mut mask)?;
        self.from_offset(&mut view, &mut mask)?;
        scanned.rows += block.rows as u64;
        let chosen = |row: &u16| mask[usize::from(*row)];
        let all = 0..block.rows as u16;
        if self.all_lines {
            let rows: Vec<u16> = all.filter(chosen).collect();
            return self.lines(&mut view, &rows, lines, visitor, can_stop);
        }
        let odd: Vec<u16> = odd.into_iter().filter(chosen).collect();
        let rows: Vec<u16> = all.filter(chosen).filter(|row| odd.binary_search(row).is_err()).collect();
        if !rows.is_empty() {
            visitor.columns(&mut view, &rows)?;
        }
        self.lines(&mut view, &odd, lines, visitor, can_stop)
    }

    fn within_time(&self, view: &mut View<'_, 'a>, mask: &mut [bool]) -> Result<(), Failed> {
        let (from, to) = (self.query.from_ns, self.query.to_ns);
        if view.block.times.0 >= from && view.block.times.1 < to {
            return Ok(());
        }
        for (chosen, time) in mask.iter_mut().zip(view.integers(TIME)?) {
            *chosen &= (from..to).contains(&time.cast_unsigned());
        }
        Ok(())
    }

    fn from_offset(&self, view: &mut View<'_, 'a>, mask: &mut [bool]) -> Result<(), Failed> {
        if self.begin == 0 {
            return Ok(());
        }
        for (chosen, offset) in mask.iter_mut().zip(view.integers(OFFSET)?) {
            *chosen &= offset.cast_unsigned() >= self.begin;
        }
        Ok(())
    }

    fn lines(
        &self,
        view: &mut View<'_, 'a>,
        rows: &[u16],
        lines: &mut Option<Lines>,
        visitor: &mut impl Visitor,
        can_stop: bool,
    ) -> Result<bool, Failed> {
        if rows.is_empty() {
            return Ok(true);
        }
        let dense = rows.len() * DENSE > view.block.rows;
        let offsets = view.integers(OFFSET)?.to_vec();
        let lengths = view.integers(LENGTH)?.to_vec();
        let times = view.integers(TIME)?.to_vec();
        let lines = match lines {
            Some(lines) => lines,
            None => lines.insert(self.entry.lines()?),
        };
        for (at, row) in rows.iter().map(|row| usize::from(*row)).enumerate() {
            if can_stop && at > 0 && at % LINES_AT_ONCE == 0 && Instant::now() >= self.query.deadline {
                return Ok(false);
            }
            let offset = offsets[row].cast_unsigned();
            let line = lines.read(offset, lengths[row] as usize, dense).map_err(Failed::System)?;
            let line = line.ok_or(Failed::Stale)?;
            if self.query.text.as_ref().is_some_and(|text| !contains(line, text)) {
                continue;
            }
            let record = self.record(line).ok_or(Failed::Stale)?;
            if self.query.filters.iter().all(|filter| filter.holds(&record)) {
                visitor.line(times[row].cast_unsigned(), offset, &record);
            }
        }
        Ok(true)
    }

    fn record(&self, line: &[u8]) -> Option<Record> {
        read_record(line, self.image, &|name| self.wanted.iter().any(|one| one == name))
    }
}

/// Reads members of a line, and adds those that the segment gives to each record.
pub fn read_record(line: &[u8], image: &Image, wanted: &dyn Fn(&str) -> bool) -> Option<Record> {
    let mut record = Record::read(line, wanted).ok()?;
    for (name, value) in image.facts.resource.iter().filter(|(name, _)| wanted(name)) {
        record.add(name, Json::Text(value.clone()));
    }
    let severity = record.members.iter().find_map(|(key, value)| match value {
        Json::Text(text) if key == COLUMNS[SEVERITY_TEXT].name => columns::severity_number(text),
        _ => None,
    });
    if let Some(number) = severity.filter(|_| wanted(SEVERITY)) {
        record.add(SEVERITY, Json::Int(number.into()));
    }
    Some(record)
}

/// The names of top members in which fields can be: their own, and those on the way.
#[must_use]
pub fn wanted<'a>(fields: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names = Vec::new();
    let mut add = |name: &str| {
        if !names.iter().any(|one| one == name) {
            names.push(name.to_owned());
        }
    };
    for field in fields {
        add(field);
        field.match_indices('.').for_each(|(at, _)| add(&field[..at]));
        if field == SEVERITY {
            add(COLUMNS[SEVERITY_TEXT].name);
        }
    }
    names
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

fn answer<'a>(filter: &'a Filter, image: &Image, reader: &mut Reader<'_>) -> Result<Answer<'a>, Unreadable> {
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
fn excludes(test: &Test<'_>, block: &Block) -> bool {
    use crate::condition::Operator;
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

fn apply(test: &Test<'_>, view: &mut View<'_, '_>, mask: &mut [bool]) -> Result<(), Unreadable> {
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
    use crate::condition::{Number, Operator};
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
        Filter::Condition(condition) if condition.operator == crate::condition::Operator::Equal => {
            first_byte(&condition.value)
        }
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

/// Whether the text of a line, its escapes resolved, contains another; ASCII letters match in both cases.
#[must_use]
pub fn contains(line: &[u8], text: &[u8]) -> bool {
    if memchr::memchr(b'\\', line).is_none() {
        return contains_bytes(line, text);
    }
    let mut plain = Vec::with_capacity(line.len());
    unescape_onto(&mut plain, line);
    contains_bytes(&plain, text)
}

fn contains_bytes(line: &[u8], text: &[u8]) -> bool {
    // A byte that is rare in lines: digits, signs and capitals before small letters.
    let rank = |byte: u8| match byte {
        b'"' | b':' | b',' | b'_' | b'.' | b'0'..=b'9' => 2,
        b'e' | b't' | b's' | b'a' | b'n' | b'o' | b'i' | b'r' | b'p' | b'u' | b'q' => 3,
        b'a'..=b'z' | b'A'..=b'Z' => 1,
        _ => 0,
    };
    let Some((at, rare)) = text.iter().enumerate().min_by_key(|(_, byte)| rank(byte.to_ascii_lowercase())) else {
        return true;
    };
    let (lower, upper) = (rare.to_ascii_lowercase(), rare.to_ascii_uppercase());
    memchr::memchr2_iter(lower, upper, line).any(|found| {
        let begin = found.checked_sub(at);
        let here = begin.and_then(|begin| line.get(begin..begin + text.len()));
        here.is_some_and(|here| here.eq_ignore_ascii_case(text))
    })
}
