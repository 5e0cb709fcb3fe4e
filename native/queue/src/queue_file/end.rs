//! What is on record about the end of a queue, so that each report is written once, whichever process dies in between.
//!
//! An owner that ends in good order closes its ring first; an open ring without an owner means that the owner died. A
//! listener closes the ring of a dead owner too, before it reports the end: if the owner was taken for dead by mistake,
//! its next record finds the ring closed, and goes into a new queue. `end_reported` still notes that the owner died.
//!
//! What the owner gives back to the system at its end is here too.

use super::{OWNED, QueueFile};
use crate::layout::{Reason, SLOTS_OFFSET};
use crate::memory;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};

/// Bits of `end_reported`.
const REPORTED: u64 = 1;
const DIED: u64 = 2;

impl QueueFile {
    /// Ends this process's ownership: the data pages go back to the system, the mapping stays valid for an emit that is
    /// under way (it will find the ring closed). `is_done`: no process wants the content of the file any more. Where the
    /// system refuses, the memory stays taken until this process ends, and stderr says so once. A queue that is closed
    /// again has no data here any more.
    pub fn disown(self: &Arc<Self>, is_done: bool) {
        OWNED.with(|owned| owned.retain(|entry| !Arc::ptr_eq(&entry.file, self)));
        let data_offset = self.bytes - self.data_bytes;
        let was_disowned = self.is_disowned.swap(true, Ordering::AcqRel);
        if is_done {
            let end = if was_disowned { data_offset } else { self.bytes };
            // The header stays mapped, and with it the file: without this all of it would stay in memory.
            // SAFETY: whole pages of our own mapping; late readers see zeroes.
            report_kept(unsafe { memory::give_back(self.base.add(SLOTS_OFFSET), end - SLOTS_OFFSET) });
        }
        if !was_disowned {
            // SAFETY: whole pages inside our own mapping; late readers see zeroes.
            report_kept(unsafe { memory::zero(self.base.add(data_offset), self.data_bytes) });
        }
    }

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

/// Says once on stderr that the system has refused to take memory back.
fn report_kept(outcome: io::Result<()>) {
    static SAID: Once = Once::new();
    if let Err(error) = outcome {
        let text =
            format!("inference_logging: the memory of a closed queue is not given back to the system: {error}\n");
        SAID.call_once(|| drop(io::stderr().write_all(text.as_bytes())));
    }
}
