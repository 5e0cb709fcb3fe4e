//! What a queue holds that is not released, for who compares it with segments.

use super::QueueReader;

/// What a queue at hand holds: records that are not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub boot_id: u64,
    /// Sequences: from `first`, up to but not with `end`.
    pub first: u64,
    pub end: u64,
    /// When the oldest of them was made; None: there is none, or it cannot be seen.
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

    /// Goes on behind everything, of which nothing is to be written or counted.
    pub fn pass_over(&mut self) {
        let head = self.file.ring().head();
        self.skip_to(head.sequence);
        self.read = head;
        (self.torn, self.corrupt) = (0, 0);
        self.reports.forget_lost();
    }
}
