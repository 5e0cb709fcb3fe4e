//! The records of a queue that are not released, for comparison with segments.

use super::QueueReader;

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
}
