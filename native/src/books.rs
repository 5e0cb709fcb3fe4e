//! The counts of queues as JSON, for segment footers and `log.dropped` records.

use crate::layout::{DroppedCounts, LEVELS, REASONS};
use crate::queue_file::Books;
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
pub fn processes_json(books: &[Books]) -> String {
    let mut json = String::from(",\"processes\":[");
    for (position, process) in books.iter().enumerate() {
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

/// Encodes a list of `{"boot_id":…,"pid":…,"first":…,"last":…}`: the records of one batch, by process.
#[must_use]
pub fn spans_json(spans: impl Iterator<Item = Span>) -> String {
    let spans = spans.map(|Span { boot_id, pid, first, last }| {
        format!("{{\"boot_id\":\"{boot_id}\",\"pid\":{pid},\"first\":{first},\"last\":{last}}}")
    });
    format!("[{}]", spans.collect::<Vec<_>>().join(","))
}

/// Records of one process: the sequence numbers from `first` to `last`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub boot_id: String,
    pub pid: u32,
    pub first: u64,
    pub last: u64,
}
