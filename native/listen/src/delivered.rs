//! The leader's own counts of delivered records, in the control page. They are independent of the headers of queues, so
//! that the two can be compared.
//!
//! A batch that a sink took is counted before it is released: at any time, the count is at least what the queues have
//! released. A leader that dies between a write and its count leaves the count to its successor, which learns from the
//! segment and the queues what was written and not released, but not whether that was counted. So each batch first
//! notes the count without it, and the successor takes the larger of the stored count and the expected one.

use crate::delivery::Batch;
use queue::control::{Control, ControlPage};
use queue::published::totals;
use std::path::Path;
use std::sync::atomic::Ordering;

/// The count of one leader.
pub struct Delivered {
    page: &'static ControlPage,
    /// The batch under way.
    records: u64,
    bytes: u64,
    from_queues: u64,
    /// Records that the last leader had written and not released, and the slots of the control page that named their
    /// places.
    found: u64,
    settled: Vec<usize>,
}

impl Delivered {
    /// Begins to lead; the caller holds the leader lock. On a page without counts of any leader, every record that the
    /// queues of `directory` have released counts as taken: it was counted on the page of another version.
    #[must_use]
    pub fn begin(control: Control, directory: &Path) -> Self {
        let page = control.page();
        if page.leaders.load(Ordering::Relaxed) == 0 {
            let released = totals::of_directory(&page.totals, directory).written;
            page.taken_before_batch.store(released, Ordering::Relaxed);
            page.taken_from_queues.store(released, Ordering::Relaxed);
        }
        page.leaders.fetch_add(1, Ordering::Relaxed);
        Self { page, records: 0, bytes: 0, from_queues: 0, found: 0, settled: Vec::new() }
    }

    /// A batch is under way, with this many records of queues; nothing of it is written yet.
    pub fn note_batch(&mut self, batch: &Batch, from_queues: u64) {
        (self.records, self.bytes, self.from_queues) = (batch.records, batch.lines.len() as u64, from_queues);
        self.page.taken_before_batch.store(self.page.taken_from_queues.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// A sink has the batch.
    pub fn count_batch(&self) {
        self.page.bytes_written.fetch_add(self.bytes, Ordering::Relaxed);
        self.page.batches_written.fetch_add(1, Ordering::Relaxed);
        self.count_part(self.records, self.from_queues);
    }

    /// A sink has these records of it, and will not get the others.
    pub fn count_part(&self, records: u64, from_queues: u64) {
        self.page.records_written.fetch_add(records, Ordering::Relaxed);
        // Pairs with the readers' Acquire: a reader that sees what a queue has released after that also sees this
        // count.
        self.page.taken_from_queues.fetch_add(from_queues, Ordering::Release);
    }

    /// The last leader's last batch has these records of queues, not released, at the place that `slot` names.
    pub fn find(&mut self, slot: usize, records: u64) {
        self.settled.push(slot);
        self.found += records;
    }

    /// The search is complete: counts what the last leader did not live to count, and returns the slots.
    pub fn count_found(&mut self) -> Vec<usize> {
        if self.settled.is_empty() {
            return Vec::new();
        }
        let due = self.page.taken_before_batch.load(Ordering::Relaxed).wrapping_add(std::mem::take(&mut self.found));
        let counted = self.page.taken_from_queues.fetch_max(due, Ordering::Release);
        self.page.records_written.fetch_add(due.saturating_sub(counted), Ordering::Relaxed);
        std::mem::take(&mut self.settled)
    }
}
