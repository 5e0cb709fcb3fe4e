//! The right to read a queue: one reader at a time (P4, P7), whatever files are removed.
//!
//! The leader's lock protects a directory by its name. When the lock's file or the directory is removed, a leader
//! finishes what it has begun without a name, and other leaders work beside it; nothing that they share by name shows
//! this. So a word in the queue itself names its reader and the time of the reader's last sign of life. A new leader
//! takes over at once the queues that were read under the lock that it now holds: the earlier holder of that lock is
//! gone. Any other process waits until the reader gives the queue back, or has shown no sign of life for long.

use crate::lock::ProcessLock;
use crate::platform::{self, Scope};
use crate::queue_file::QueueFile;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A reader without a sign of life for this long does not come back. Shorter than a shutdown waits by default.
const ABANDONED_AFTER: Duration = Duration::from_secs(3);

/// A reader, as the queue's header names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderId(u32);

impl ReaderId {
    /// The process that owns the queue. No other leader knows this reader.
    pub const OWNER: Self = Self(u32::MAX);
    /// A leader without a lock of its own: its caller makes sure that there is only one.
    pub const UNLOCKED: Self = Self(u32::MAX - 1);

    /// The holder of this lock: one at a time. The file keeps its number as long as a process has it open.
    #[must_use]
    pub fn of_lock(lock: &ProcessLock) -> Self {
        Self((lock.inode() as u32).clamp(1, Self::UNLOCKED.0 - 1))
    }

    /// The header's word: the reader, and a time in milliseconds, which begins anew after 49 days.
    fn word(self, now: Duration) -> u64 {
        u64::from(self.0) << 32 | now.as_millis() as u64 & u64::from(u32::MAX)
    }

    fn of_word(word: u64) -> Self {
        Self((word >> 32) as u32)
    }
}

fn is_fresh(word: u64, now: Duration) -> bool {
    // In both directions: this process may read its clock before another process writes its sign of life.
    let age = (now.as_millis() as u32).wrapping_sub(word as u32).cast_signed().unsigned_abs();
    word != 0 && Duration::from_millis(u64::from(age)) < ABANDONED_AFTER
}

/// The right to read a queue and to release its records; given back when dropped.
pub struct Claim {
    file: Arc<QueueFile>,
    reader: ReaderId,
}

impl Claim {
    /// Takes the right, unless another reader has it.
    #[must_use]
    pub fn take(file: &Arc<QueueFile>, reader: ReaderId, now: Duration) -> Option<Self> {
        let word = &file.header().reader;
        let seen = word.load(Ordering::Acquire);
        if ReaderId::of_word(seen) != reader && is_fresh(seen, now) {
            return None;
        }
        // Acquire pairs with the Release in `drop`: the ring is as the last reader left it.
        let taken = word.compare_exchange(seen, reader.word(now), Ordering::AcqRel, Ordering::Relaxed);
        taken.ok().map(|_| Self { file: Arc::clone(file), reader })
    }

    /// Writes a sign of life. Returns false if another reader has the queue by now.
    #[must_use]
    pub fn keep(&self, now: Duration) -> bool {
        let word = &self.file.header().reader;
        let seen = word.load(Ordering::Relaxed);
        let is_kept =
            || word.compare_exchange(seen, self.reader.word(now), Ordering::Release, Ordering::Relaxed).is_ok();
        self.file.is_headless() || (ReaderId::of_word(seen) == self.reader && is_kept())
    }

    /// Whether no other reader has taken the queue.
    #[must_use]
    pub fn holds(&self) -> bool {
        ReaderId::of_word(self.file.header().reader.load(Ordering::Acquire)) == self.reader || self.file.is_headless()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let word = &self.file.header().reader;
        let seen = word.load(Ordering::Relaxed);
        if ReaderId::of_word(seen) == self.reader {
            let _ = word.compare_exchange(seen, 0, Ordering::Release, Ordering::Relaxed);
        }
    }
}

// Waiting until records are committed: released from the queue. The listener of a durable sink releases them only once
// they are on the device.
//
// Waiters sleep on the sequence half of the ring's tail itself, in the queue file: one call of the leader, in any
// process, wakes all waiters of this queue, and there is no second word that could disagree.

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
