//! The counts of queues as JSON, for segment footers and `log.dropped` records.

use crate::line::Process;
use queue::layout::{DroppedCounts, LEVELS, REASONS, Reason};
use queue::queue_file::QueueCounts;
use std::fmt::Write;

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
