//! A new leader's treatment of the last write of a leader that died (P7): exactly once per file.
//!
//! Before each write the leader publishes where it goes. If it dies between the write and the release of the records,
//! they are in the segment and in the queue. Its successor reads the segment from the published offset on and releases
//! the records that it finds there; an unfinished last line is cut off, since its record is still in the queue, and a
//! `segment.repaired` record reports that. The report comes before the repair: a listener that dies in between leaves
//! both to its successor.
//!
//! The published place lies in shared memory, and is not trusted (P14): [`place`] has the conditions for trusting it,
//! [`mod@repair`] those for cutting anything off. If they do not hold, or the queue directory is a copy, nothing is cut,
//! and all segments of the sink's directory are searched for the queues' records ([`survey`]).

mod place;
mod repair;
mod survey;

use crate::attached::{Held, QueueReader};
use lines::encode::Encoder;
use queue::record::Scratch;
use segments::json;
use segments::line::{self, LinePrefix};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

pub use repair::{Write, repair};

/// What a new leader asks about the last write of a sink.
#[derive(Clone, Debug, Default)]
pub struct Inquiry {
    /// Where the write began, as it was published.
    pub place: Option<(PathBuf, u64)>,
    pub held: Vec<Held>,
    /// The queue directory is a copy: its content describes another one.
    pub is_copy: bool,
}

/// The answer to an inquiry.
#[derive(Debug, Default)]
pub struct Findings {
    pub standing: Standing,
    /// Processes whose records are in a segment that another listener is writing right now.
    pub written_elsewhere: HashSet<u64>,
    /// A write that should have been cut off, and stays: which segment, and why.
    pub kept: Option<String>,
}

/// What segments hold, by process.
pub(crate) type Standing = HashMap<u64, Left>;

/// What segments hold of one process.
#[derive(Debug, Default)]
pub struct Left {
    pub last: Option<u64>,
    /// The sum of all losses that its `log.dropped` lines report.
    pub losses: u64,
    pub ended: bool,
}

impl Left {
    /// Adds a line that a listener wrote about the process.
    fn add(&mut self, event: &[u8], text: &[u8]) {
        match event {
            b"log.dropped" => self.losses = self.losses.max(losses_in(text).unwrap_or(0)),
            b"process.ended" => self.ended = true,
            _ => {}
        }
    }
}

/// Skips the records that are `standing` in segments, written by the last leader: they are released, and not written
/// again. Returns how many records of queues they are.
pub(crate) fn read_written(standing: &Standing, queues: &mut [QueueReader], encoder: &mut Encoder) -> u64 {
    let mut records = 0;
    for queue in queues {
        let Some(left) = standing.get(&queue.file.header().boot_id) else { continue };
        if let Some(last) = left.last {
            records += queue.read_up_to(last, encoder);
        }
        queue.note_reported(left.losses, left.ended);
    }
    records
}

/// The end of a segment that its writer did not live to finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// File name of the segment.
    pub segment: String,
    /// Where its whole lines end.
    pub offset: u64,
    /// The number of bytes behind them.
    pub bytes: u64,
}

impl Torn {
    fn at(path: &Path, offset: u64, bytes: u64) -> Self {
        Self { segment: path.file_name().unwrap_or_default().to_string_lossy().into_owned(), offset, bytes }
    }

    /// Returns the values of a `segment.repaired` record.
    #[must_use]
    pub fn payload(&self) -> Scratch {
        let mut payload = Scratch::new();
        payload.push_str(&self.segment);
        payload.push_uint(self.offset);
        payload.push_uint(self.bytes);
        payload
    }
}

fn what_stands_in(lines: &[u8]) -> Standing {
    let mut standing = Standing::new();
    for text in line::whole_lines(lines) {
        let Some((head, process)) = LinePrefix::read(text).and_then(|head| Some((head, head.process?))) else {
            continue;
        };
        let left = standing.entry(process.boot_id).or_default();
        match process.seq {
            Some(seq) => left.last = Some(seq),
            None => left.add(head.event, text),
        }
    }
    standing
}

/// The sum of all losses that a `log.dropped` line reports: those reported before it too.
fn losses_in(line: &[u8]) -> Option<u64> {
    let line = json::read(line).ok()?;
    let levels = line.get("reasons")?.as_object()?.values().filter_map(|levels| levels.as_object());
    Some(levels.flat_map(|levels| levels.values()).filter_map(|count| count.as_u64()).fold(0, u64::wrapping_add))
}
