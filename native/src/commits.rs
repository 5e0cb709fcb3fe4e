//! Waiting until records are committed: released from the queue, which a durable sink's listener does only once they are
//! on the device.
//!
//! The word that waiters sleep on is the sequence half of the ring's tail itself, in the queue file: so one call of the
//! leader, in whatever process, wakes all of this queue's waiters, and there is no second word that could disagree.

use crate::queue_file::QueueFile;
use std::sync::atomic::{AtomicU32, AtomicU64};
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
    fn released_word(&self) -> *const AtomicU32 {
        let tail: *const AtomicU64 = &raw const self.header().tail;
        tail.cast::<AtomicU32>().wrapping_add(usize::from(cfg!(target_endian = "little")))
    }

    /// Wakes everybody, of any process, who waits for a release of this queue.
    pub fn wake_released(&self) {
        // SAFETY: the word lies in the mapping, which lives for the call; a shared futex, since processes share it.
        unsafe { libc::syscall(libc::SYS_futex, self.released_word(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Sleeps until [`Self::released`] is other than `seen`, at most `timeout`; may return early.
    pub fn wait_released(&self, seen: u32, timeout: Duration) {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
        };
        // SAFETY: word and timeout live for the call. Any return means: go and look.
        unsafe { libc::syscall(libc::SYS_futex, self.released_word(), libc::FUTEX_WAIT, seen, &raw const timeout) };
    }
}
