//! Finds the records of a segment that fulfil a query: by its columns, and by its lines where columns do not suffice.
//!
//! Lines are read of records that are odd, of all records where a field is not indexed (in this segment), and where a
//! text is searched for.

use crate::block::{Block, Decoded, Values};
use crate::builder::{LENGTH, ODD, OFFSET, TIME};
use crate::columns::{self, COLUMNS, SEVERITY, SEVERITY_TEXT};
use crate::entry::{Entry, NoLines};
use crate::filter::{Answer, Test, answer, apply, excludes, is_indexed};
use crate::image::{Image, Reader, Unreadable};
use crate::query::{Filter, Query};
use crate::record::{Json, Record};
use crate::source::Lines;
use crate::text::contains;
use crate::view::View;
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
        if !by_lines {
            order.sort_by_key(|at| {
                let (first, last) = blocks[*at].1.times;
                if forward { first } else { u64::MAX - last }
            });
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
        let is_excluded = || self.never || self.tests.iter().any(|test| excludes(test, block));
        if !has_odd && is_excluded() {
            scanned.rows += block.rows as u64;
            return Ok(true);
        }
        let mut view = View::new(self.image, at, reader);
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
        self.after_begin(&mut view, &mut mask)?;
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

    fn after_begin(&self, view: &mut View<'_, 'a>, mask: &mut [bool]) -> Result<(), Failed> {
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
