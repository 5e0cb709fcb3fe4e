//! Who reads a queue: one at a time (P4, P7), whatever somebody removes.
//!
//! The leader's lock stands for a directory by its name. Where the lock's file or the directory is removed, a leader goes
//! on without a name for what it has begun, and others lead beside it; nothing that they share by name tells of it. So a
//! word in the queue itself says who reads it and when it last said so. A leader that begins takes over at once what was
//! read under the lock that it holds now: who held that before is gone. Anybody else waits until the reader gives it back,
//! or shows no sign of life for long.

use crate::lock::ProcessLock;
use crate::queue_file::QueueFile;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A reader without a sign of life for so long does not come back. Shorter than a shutdown waits by default.
const ABANDONED_AFTER: Duration = Duration::from_secs(3);

/// A reader, as queues name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderId(u32);

impl ReaderId {
    /// The process that the queue belongs to, of which no other leader knows.
    pub const OWNER: Self = Self(u32::MAX);
    /// Who leads without a lock of its own: its caller sees to it that there is one.
    pub const UNLOCKED: Self = Self(u32::MAX - 1);

    /// Whoever holds this lock: one at a time. The file keeps its number as long as somebody has it open.
    #[must_use]
    pub fn of_lock(lock: &ProcessLock) -> Self {
        Self((lock.inode() as u32).clamp(1, Self::UNLOCKED.0 - 1))
    }

    /// What stands in the header: who, and when in milliseconds, which begin anew after 49 days.
    fn word(self, now: Duration) -> u64 {
        u64::from(self.0) << 32 | now.as_millis() as u64 & u64::from(u32::MAX)
    }

    fn of_word(word: u64) -> Self {
        Self((word >> 32) as u32)
    }
}

fn is_fresh(word: u64, now: Duration) -> bool {
    // In both directions: a clock may be read before another process says that it lives.
    let age = (now.as_millis() as u32).wrapping_sub(word as u32).cast_signed().unsigned_abs();
    word != 0 && Duration::from_millis(u64::from(age)) < ABANDONED_AFTER
}

/// The right to read a queue and to release its records; given back when dropped.
pub struct Claim {
    file: Arc<QueueFile>,
    reader: ReaderId,
}

impl Claim {
    /// Takes the right, unless somebody else has it.
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

    /// Says that the reader lives. False if somebody else reads the queue by now.
    #[must_use]
    pub fn keep(&self, now: Duration) -> bool {
        let word = &self.file.header().reader;
        let seen = word.load(Ordering::Relaxed);
        let is_kept =
            || word.compare_exchange(seen, self.reader.word(now), Ordering::Release, Ordering::Relaxed).is_ok();
        self.file.is_headless() || (ReaderId::of_word(seen) == self.reader && is_kept())
    }

    /// Whether nobody else reads the queue.
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
