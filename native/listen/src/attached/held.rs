//! The records of a queue that are not released, for comparison with segments.

use super::reports::Reports;
use super::{QueueReader, Room};
use lines::encode::Encoder;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The records of an available queue that are not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub boot_id: u64,
    /// Sequences from `first` up to, and without, `end`.
    pub first: u64,
    pub end: u64,
    /// When the oldest of them was made; None: there is none, or it cannot be read.
    pub oldest_unix_nano: Option<u64>,
    /// When the queue was made.
    pub created_unix_nano: u64,
}

impl QueueReader {
    /// The records that are not released.
    #[must_use]
    pub fn held(&self) -> Held {
        let ring = self.file.ring();
        let tail = ring.tail();
        let first = self.file.full_sequence(tail.sequence);
        let end = first.wrapping_add(u64::from(ring.head().sequence.wrapping_sub(tail.sequence)));
        let created_unix_nano = self.file.header().created_unix_nano;
        Held {
            boot_id: self.file.header().boot_id,
            first,
            end,
            oldest_unix_nano: ring.oldest_time(),
            created_unix_nano,
        }
    }

    /// Moves behind all records without writing or counting any of them.
    pub fn pass_over(&mut self) {
        let head = self.file.ring().head();
        self.skip_to(head.sequence);
        self.read = head;
        (self.torn, self.corrupt) = (0, 0);
        self.reports.forget_lost();
    }

    // Reading ahead for additional sinks, which can be further than the primary: by a second reader, and by a mark in the
    // header.

    /// A second reader, which starts at this one's position and releases nothing.
    #[must_use]
    pub fn second_reader(&self) -> Self {
        Self {
            file: Arc::clone(&self.file),
            claim: None,
            boot_id: self.boot_id.clone(),
            plans: self.plans.clone(),
            orphaned: None,
            reports: Reports::default(),
            ..*self
        }
    }

    /// Whether another reader of the same queue has come further.
    #[must_use]
    pub fn is_behind(&self, other: &Self) -> bool {
        self.sequence < other.sequence
    }

    /// Notes that additional sinks were given everything that this reader has read.
    pub fn note_copied(&self) {
        self.file.header().copied_sequence.store(self.sequence, Ordering::Relaxed);
    }

    /// Whether additional sinks have records that this reader has not reached.
    #[must_use]
    pub fn is_behind_copies(&self) -> bool {
        self.unread() > 0 && self.sequence < self.file.header().copied_sequence.load(Ordering::Relaxed)
    }

    /// As `read_into`, but only as far as additional sinks have the records already.
    pub fn read_copied_into(&mut self, batch: &mut Vec<u8>, bytes: usize, encoder: &mut Encoder) -> u64 {
        let until = self.file.header().copied_sequence.load(Ordering::Relaxed);
        self.read_into(batch, Room { until, ..Room::of_bytes(bytes) }, encoder)
    }
}
