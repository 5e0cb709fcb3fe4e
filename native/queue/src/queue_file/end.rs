//! What is on record about the end of a queue, so that each report is written once, whichever process dies in between.
//!
//! An owner that ends in good order closes its ring first; an open ring without an owner means that the owner died. A
//! listener closes the ring of a dead owner too, before it reports the end: if the owner was taken for dead by mistake,
//! its next record finds the ring closed, and goes into a new queue. `end_reported` still notes that the owner died.

use super::QueueFile;
use crate::layout::Reason;
use std::sync::atomic::Ordering;

/// Bits of `end_reported`.
const REPORTED: u64 = 1;
const DIED: u64 = 2;

impl QueueFile {
    /// Whether every record that was refused is in a `log.dropped` record.
    #[must_use]
    pub fn are_drops_reported(&self) -> bool {
        let mut counts = self.header().dropped.snapshot();
        counts[Reason::ShutdownDeadline as usize] = Default::default();
        let total = counts.iter().flatten().fold(0, |total: u64, count| total.wrapping_add(*count));
        total <= self.header().dropped_reported.load(Ordering::Acquire)
    }

    /// Whether its `process.ended` record is written, or would have nothing to report.
    #[must_use]
    pub fn is_end_reported(&self) -> bool {
        let header = self.header();
        let nothing = || {
            let refused = header.dropped.snapshot().iter().flatten().any(|count| *count > 0);
            let left_out = header.sampled_out.iter().any(|count| count.load(Ordering::Relaxed) > 0);
            // The death of a process that has a name is always reported.
            let named = self.has_died() && !header.producer_name().is_empty();
            !refused && !left_out && !named && self.counts().accepted == 0
        };
        header.end_reported.load(Ordering::Acquire) & REPORTED != 0 || nothing()
    }

    /// Notes that its `process.ended` record is written.
    pub fn note_end_reported(&self) {
        self.header().end_reported.fetch_or(REPORTED, Ordering::Release);
    }

    /// Whether the owner died, for a queue whose owner is gone.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.header().end_reported.load(Ordering::Acquire) & DIED != 0 || !self.ring().is_closed()
    }

    /// Closes the ring of an owner that is taken for dead and whose queue is drained. Returns false if it has emitted
    /// meanwhile, and so lives: its next record goes into another queue.
    #[must_use]
    pub fn close_for_dead(&self) -> bool {
        if self.ring().is_closed() {
            return true;
        }
        self.header().end_reported.fetch_or(DIED, Ordering::AcqRel);
        self.ring().close();
        let is_drained = self.ring().is_drained();
        if !is_drained {
            self.header().end_reported.fetch_and(!DIED, Ordering::AcqRel);
        }
        is_drained
    }
}
