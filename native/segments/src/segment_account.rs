//! A segment's footer describes its lines: the processes of the records, and a checksum.
//!
//! So a reader can find out, line by line or without reading them, what a segment held, also when it is removed:
//!
//! * `spans`: for each process the first and the last sequence, and how many of its records are here;
//! * `crc32`: CRC-32 (IEEE) of all record lines, their `\n` included, which shows later alterations.

use crate::line::{self, LinePrefix, Process};
use crate::spans::{Span, spans_json};
use std::collections::BTreeMap;

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
