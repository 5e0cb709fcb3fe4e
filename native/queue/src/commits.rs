//! Waiting until records are committed: released from the queue, which a durable sink's listener does only once they are
//! on the device.
//!
//! The word that waiters sleep on is the sequence half of the ring's tail itself, in the queue file: so one call of the
//! leader, in whatever process, wakes all of this queue's waiters, and there is no second word that could disagree.

use crate::futex::{self, Scope};
use crate::queue_file::QueueFile;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Whether the record with this sequence (its low 32 bits) lies before `released`.
#[must_use]
pub const fn is_before(sequence: u32, released: u32) -> bool {
    (sequence.wrapping_sub(released) as i32) < 0
}

impl QueueFile {
    /// Low 32 bits of the sequence of the first record that is not released.
    #[must_use]
    pub fn released(&self) -> u32 {
        self.ring().tail().sequence
    }

    /// The upper half of the tail: its sequence.
    fn released_word(&self) -> &AtomicU32 {
        ring::sync::upper_half(&self.header().tail)
    }

    /// Wakes everybody, of any process, who waits for a release of this queue.
    pub fn wake_released(&self) {
        futex::wake_all(self.released_word(), Scope::Shared);
    }

    /// Sleeps until [`Self::released`] is other than `seen`, at most `timeout`; may return early.
    pub fn wait_released(&self, seen: u32, timeout: Duration) {
        futex::wait(self.released_word(), Scope::Shared, seen, timeout);
    }
}
