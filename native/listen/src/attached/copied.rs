//! Reading ahead for additional sinks, which can be further than the primary: by a second reader, and by a mark in the
//! header.

use super::reports::Reports;
use super::{QueueReader, Room};
use lines::encode::Encoder;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl QueueReader {
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
