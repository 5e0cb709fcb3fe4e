//! Waits that a signal ends: what came before a wait began is not lost.

#![allow(unsafe_code)]

use libc::{SIGINT, SIGTERM, sigset_t, timespec};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// What asks a process to end.
pub const ENDING: [i32; 2] = [SIGTERM, SIGINT];

/// Signals that wait until they are asked for. Threads that begin later leave them to this one.
pub struct Signals {
    taken: sigset_t,
    before: sigset_t,
}

impl Signals {
    /// Takes `numbers` from now on, until it is dropped.
    pub fn take(numbers: &[i32]) -> Self {
        let (mut taken, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: `sigemptyset` and `pthread_sigmask` write a set each; they fail for wrong numbers only.
        unsafe {
            libc::sigemptyset(taken.as_mut_ptr());
            for number in numbers {
                libc::sigaddset(taken.as_mut_ptr(), *number);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, taken.as_ptr(), before.as_mut_ptr());
            Self { taken: taken.assume_init(), before: before.assume_init() }
        }
    }

    /// The next signal; None: none came within `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<i32> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
            // SAFETY: both live until it returns.
            let number = unsafe { libc::sigtimedwait(&raw const self.taken, null_mut(), &raw const left) };
            if number > 0 {
                return Some(number);
            }
            // A handler of another signal may have ended the wait before its time.
            if Instant::now() >= end {
                return None;
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // One more would end the process in the middle of its answer.
        while self.wait(Duration::ZERO).is_some() {}
        // SAFETY: the set is one that `pthread_sigmask` has written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut()) };
    }
}
