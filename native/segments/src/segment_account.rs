//! A segment's footer describes its lines: the processes of the records, and a checksum.
//!
//! So a reader can find out, line by line or without reading them, what a segment held, also when it is removed:
//!
//! * `spans`: for each process the first and the last sequence, and how many of its records are here;
//! * `crc32`: CRC-32 (IEEE) of all record lines, their `\n` included, which shows later alterations.

use crate::line::{self, LinePrefix, Piece, Process};
use crate::segment::Form;
use crate::segment_store::{Reading, Store, Stored};
use queue::layout::{DroppedCounts, LEVELS, REASONS, Reason};
use queue::queue_file::QueueCounts;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// The account of one segment, kept while lines are added.
#[derive(Clone, Debug, Default)]
pub struct SegmentAccount {
    /// By boot id.
    spans: BTreeMap<u64, Span>,
    checksum: crc32fast::Hasher,
}

impl SegmentAccount {
    /// Counts whole lines of the segment, `records` of them.
    ///
    /// In a batch the lines of one process are consecutive, first those about it, then its records, whose sequences
    /// have no gaps except torn records: so it is enough to read where such a run begins and ends. A run that does not
    /// add up is read line by line.
    pub fn add(&mut self, lines: &[u8], records: u64) {
        self.checksum.update(lines);
        let (mut rest, mut left) = (lines, records);
        while let Some(line) = line::whole_lines(rest).next() {
            let Some((first, seq)) = numbered(line) else {
                (rest, left) = (&rest[line.len() + 1..], left.saturating_sub(1));
                continue;
            };
            let (run, behind) = rest.split_at(end_of_run(rest, first.boot_id));
            let count = if behind.is_empty() { left } else { memchr::memchr_iter(b'\n', run).count() as u64 };
            let span = Span { records: count, last: seq + count.saturating_sub(1), ..Span::of(first, seq) };
            if numbered(last_line(run)) == Some((first.at(span.last), span.last)) {
                self.merge(span);
            } else {
                self.add_each(run);
            }
            (rest, left) = (behind, left.saturating_sub(count));
        }
    }

    /// Counts whole lines in any order; without the checksum.
    pub(crate) fn add_each(&mut self, lines: &[u8]) {
        line::whole_lines(lines).filter_map(numbered).for_each(|(process, seq)| self.merge(Span::of(process, seq)));
    }

    fn merge(&mut self, span: Span) {
        self.spans.entry(span.boot_id).and_modify(|known| known.add(&span)).or_insert(span);
    }

    /// The spans, by boot id.
    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        self.spans.values()
    }

    /// The checksum of the lines so far.
    #[must_use]
    pub fn crc32(&self) -> u32 {
        self.checksum.clone().finalize()
    }

    /// Encodes the members of the footer, each led by a comma.
    #[must_use]
    pub fn members(&self) -> String {
        format!(",\"crc32\":\"{:08x}\",\"spans\":{}", self.crc32(), spans_json(self.spans()))
    }
}

fn numbered(line: &[u8]) -> Option<(Process, u64)> {
    let process = LinePrefix::read(line)?.process?;
    Some((process, process.seq?))
}

/// The end of the run of lines that belong to the process of the first one.
fn end_of_run(lines: &[u8], boot_id: u64) -> usize {
    let is_of_run = |start: usize| {
        let line = line::whole_lines(&lines[start..]).next();
        line.and_then(numbered).is_some_and(|(process, _)| process.boot_id == boot_id)
    };
    let behind = |at: usize| memchr::memchr(b'\n', &lines[at..]).map_or(lines.len(), |end| at + end + 1);
    let (mut inside, mut outside) = (0, lines.len());
    if is_of_run(lines.len() - last_line(lines).len() - 1) {
        return lines.len();
    }
    while inside < outside {
        let middle = behind(inside.midpoint(outside));
        match middle < outside {
            true if is_of_run(middle) => inside = middle,
            true => outside = middle,
            // No line begins in the second half.
            false => {
                let next = behind(inside);
                if next >= outside || !is_of_run(next) {
                    return next.min(outside);
                }
                inside = next;
            }
        }
    }
    outside
}

/// The last of whole lines, without its `\n`.
fn last_line(lines: &[u8]) -> &[u8] {
    let lines = lines.strip_suffix(b"\n").unwrap_or(lines);
    &lines[memchr::memrchr(b'\n', lines).map_or(0, |end| end + 1)..]
}

// The records of a segment that is about to be removed: from its footer, or from its lines.

/// More than any footer, unless thousands of processes wrote into one segment.
const FOOTER_BYTES: u64 = 256 << 10;

/// Returns the spans of a segment that has no writer; `plain` is its plain form, if it has one.
///
/// # Errors
/// It cannot be read, or is damaged.
pub(crate) fn spans_of(
    store: &mut impl Store,
    dir: &Path,
    stored: &Stored,
    plain: Option<&File>,
) -> io::Result<Vec<Span>> {
    if let Some(file) = plain {
        if let Some(spans) = spans_of_footer(store, file)? {
            return Ok(spans);
        }
        let mut file_at_start = file;
        file_at_start.seek(SeekFrom::Start(0))?;
        return spans_of_lines(Reading { store, file });
    }
    let file = store.open(&dir.join(stored.name.file_name(Form::Compressed)))?;
    spans_of_lines(zstd::stream::read::Decoder::new(Reading { store, file: &file })?)
}

fn spans_of_footer(store: &mut impl Store, mut file: &File) -> io::Result<Option<Vec<Span>>> {
    let end = file.metadata()?.len();
    file.seek(SeekFrom::Start(end.saturating_sub(FOOTER_BYTES)))?;
    let mut tail = Vec::new();
    Reading { store, file }.take(FOOTER_BYTES).read_to_end(&mut tail)?;
    let last = line::whole_lines(&tail).last().unwrap_or_default();
    Ok(line::parse(last).ok().as_ref().and_then(read_footer))
}

/// Reads the spans of a footer; None for another line, or if one is malformed.
#[must_use]
pub(crate) fn read_footer(footer: &serde_json::Value) -> Option<Vec<Span>> {
    (footer.get("event_name")? == "segment.footer").then_some(())?;
    footer.get("spans")?.as_array()?.iter().map(read_span).collect()
}

/// Reads a span as [`spans_json`] writes it.
#[must_use]
pub(crate) fn read_span(span: &serde_json::Value) -> Option<Span> {
    let number = |name: &str| span.get(name)?.as_u64();
    let boot_id = line::parse_boot_id(span.get("boot_id")?.as_str()?.as_bytes())?;
    let (first, last) = (number("first")?, number("last")?);
    let pid = u32::try_from(number("pid")?).ok()?;
    (first <= last).then_some(Span { boot_id, pid, first, last, records: number("records")? })
}

fn spans_of_lines(from: impl Read) -> io::Result<Vec<Span>> {
    let mut account = SegmentAccount::default();
    line::read_pieces(from, |piece| {
        if let Piece::Lines(lines) = piece {
            account.add_each(lines);
        }
    })?;
    Ok(account.spans().copied().collect())
}

// The counts of queues as JSON, for segment footers and `log.dropped` records.

/// Encodes `{"queue_full":{"INFO":12}}`, without the zeroes.
#[must_use]
pub fn reasons_json(counts: &DroppedCounts) -> String {
    let mut json = String::from("{");
    for reason in REASONS {
        let levels = &counts[reason as usize];
        if levels.iter().all(|count| *count == 0) {
            continue;
        }
        let comma = if json.len() > 1 { "," } else { "" };
        let _ = write!(json, "{comma}\"{}\":{{", reason.name());
        let named = LEVELS.iter().zip(levels).filter(|(_, count)| **count > 0);
        for (position, (level, count)) in named.enumerate() {
            let _ = write!(json, "{}\"{level}\":{count}", if position > 0 { "," } else { "" });
        }
        json.push('}');
    }
    json.push('}');
    json
}

/// Encodes the member `,"processes":[…]` of a segment's footer.
#[must_use]
pub fn processes_json(counts: &[QueueCounts]) -> String {
    let mut json = String::from(",\"processes\":[");
    for (position, process) in counts.iter().enumerate() {
        let _ = write!(
            json,
            "{}{{\"boot_id\":\"{:016x}\",\"pid\":{},\"accepted\":{},\"written\":{},\"in_queue\":{},\"dropped\":{}}}",
            if position > 0 { "," } else { "" },
            process.boot_id,
            process.pid,
            process.accepted,
            process.written,
            process.in_queue,
            reasons_json(&process.dropped),
        );
    }
    json.push(']');
    json
}

/// Encodes a list of `{"boot_id":…,"pid":…,"first":…,"last":…,"records":…}`, by process.
#[must_use]
pub fn spans_json<'a>(spans: impl Iterator<Item = &'a Span>) -> String {
    let spans = spans.map(|Span { boot_id, pid, first, last, records }| {
        format!(
            "{{\"boot_id\":\"{boot_id:016x}\",\"pid\":{pid},\"first\":{first},\"last\":{last},\"records\":{records}}}"
        )
    });
    format!("[{}]", spans.collect::<Vec<_>>().join(","))
}

/// Encodes runs of records that were accepted and cannot be written.
#[must_use]
pub fn lost_json(lost: &[Lost]) -> String {
    let runs = lost.iter().map(|run| {
        let (first, last, reason) = (run.first, run.last, run.reason.name());
        format!("{{\"first\":{first},\"last\":{last},\"reason\":\"{reason}\"}}")
    });
    format!("[{}]", runs.collect::<Vec<_>>().join(","))
}

/// Records of one process that were accepted and cannot be written: torn, or corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    pub first: u64,
    pub last: u64,
    pub reason: Reason,
}

/// Records of one process: `records` of the sequence numbers from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub boot_id: u64,
    pub pid: u32,
    pub first: u64,
    pub last: u64,
    pub records: u64,
}

impl Span {
    /// One record.
    #[must_use]
    pub fn of(process: Process, seq: u64) -> Self {
        Self { boot_id: process.boot_id, pid: process.pid, first: seq, last: seq, records: 1 }
    }

    /// Adds other records of the same process.
    pub fn add(&mut self, other: &Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.records += other.records;
    }
}
