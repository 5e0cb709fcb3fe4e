//! Waiting until records are committed: released from the queue. The listener of a durable sink releases them only once
//! they are on the device.
//!
//! Waiters sleep on the sequence half of the ring's tail itself, in the queue file: one call of the leader, in any
//! process, wakes all waiters of this queue, and there is no second word that could disagree.

use crate::platform::{self, Scope};
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

    /// Wakes every thread, of any process, that waits for a release of this queue.
    pub fn wake_released(&self) {
        platform::wake_all(self.released_word(), Scope::Shared);
    }

    /// Sleeps until [`Self::released`] differs from `seen`, at most `timeout`; may return early.
    pub fn wait_released(&self, seen: u32, timeout: Duration) {
        platform::wait(self.released_word(), Scope::Shared, seen, timeout);
    }
}
