//! Application records from the time before anything is configured.
//!
//! They wait in memory for the first logger that opens, with the time at which they were made, and their number is
//! bounded. Before the logger opens, neither their destination nor the redaction is known. Records above the bound are
//! counted as `no_queue` in that logger's queue.
//!
//! A forked child has a copy of its parent's records. Each record has a byte that both share, so that only the process
//! whose logger opens first writes it.

use listen::service::Service;
use pyo3::prelude::*;
use queue::event::LOG;
use queue::layout::{LEVELS, Reason, level_index};
use queue::lock::ForkSafe;
use queue::memory;
use std::sync::atomic::{AtomicU8, Ordering};

/// The number is also the bytes of a page, one for each record.
const MOST_RECORDS: usize = 4096;
const MOST_BYTES: usize = 4 << 20;

struct Record {
    severity: u8,
    /// The configured level decides about it.
    obeys_level: bool,
    time_unix_nano: u64,
    payload: Box<[u8]>,
    /// 1 once a process has written the record.
    taken: &'static AtomicU8,
    is_inherited: bool,
}

struct Waiting {
    records: Vec<Record>,
    bytes: usize,
    /// The number of this process's records on its page.
    next: usize,
    left_out: [u64; LEVELS.len()],
    /// The page is made with the first record; children that are forked later share it.
    page: Option<&'static [AtomicU8; MOST_RECORDS]>,
}

static WAITING: ForkSafe<Waiting> =
    ForkSafe::new(Waiting { records: Vec::new(), bytes: 0, next: 0, left_out: [0; LEVELS.len()], page: None });

/// Keeps a record for the logger that opens first. Returns whether there was room.
pub fn hold(severity: u8, obeys_level: bool, time_unix_nano: u64, payload: &[u8]) -> bool {
    WAITING.with(|waiting| {
        let has_room = waiting.next < MOST_RECORDS && waiting.bytes + payload.len() <= MOST_BYTES;
        let Some(page) = waiting.page.or_else(memory::share_with_children).filter(|_| has_room) else {
            waiting.left_out[level_index(severity)] += 1;
            return false;
        };
        waiting.page = Some(page);
        waiting.bytes += payload.len();
        let taken = &page[waiting.next];
        waiting.next += 1;
        let payload = payload.into();
        waiting.records.push(Record { severity, obeys_level, time_unix_nano, payload, taken, is_inherited: false });
        true
    })
}

/// Passes the waiting records to `service`; those that obey the level from `least_severity` on.
pub fn release(service: &Service, least_severity: u8) {
    let (records, left_out) = WAITING.with(|waiting| {
        // The bytes of the page are taken: later records need another page.
        (waiting.page, waiting.next, waiting.bytes) = (None, 0, 0);
        (std::mem::take(&mut waiting.records), std::mem::take(&mut waiting.left_out))
    });
    for record in records {
        let is_accepted = !record.obeys_level || record.severity >= least_severity;
        if record.taken.swap(1, Ordering::AcqRel) == 0 && is_accepted {
            service.producer.emit_at(record.time_unix_nano, LOG, record.severity, &record.payload);
        }
    }
    let Some(queue) = service.producer.queue() else { return };
    for (level, count) in left_out.into_iter().enumerate().filter(|(_, count)| *count > 0) {
        queue.file.header().dropped.add(Reason::NoQueue, 4 * level as u8 + 1, count);
    }
}

/// Return the number of waiting records that this process has made itself.
#[pyfunction]
pub fn waiting_records() -> usize {
    WAITING.with(|waiting| {
        let own = waiting.records.iter().filter(|record| !record.is_inherited);
        own.filter(|record| record.taken.load(Ordering::Acquire) == 0).count()
    })
}

/// Leave the records of other processes to them.
#[pyfunction]
pub fn forget_inherited_records() {
    WAITING.with(|waiting| waiting.records.retain(|record| !record.is_inherited));
}

/// In a forked child: leave the waiting records to the process that opens a logger first, since they are the parent's.
#[pyfunction]
pub fn leave_waiting_records_to_parent() {
    WAITING.with(|waiting| {
        waiting.records.iter_mut().for_each(|record| record.is_inherited = true);
        (waiting.page, waiting.next, waiting.bytes, waiting.left_out) = (None, 0, 0, [0; LEVELS.len()]);
    });
}
