//! Sleeping on a word until another thread changes it and wakes the sleeper: the only calls of the kernel's futex.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// The threads that can wake a sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Threads of one process.
    Process,
    /// Every process that maps the word.
    Shared,
}

impl Scope {
    const fn flag(self) -> libc::c_int {
        match self {
            Self::Process => libc::FUTEX_PRIVATE_FLAG,
            Self::Shared => 0,
        }
    }
}

/// Sleeps while `word` is `seen`, at most `longest`. It may return early: the caller checks again.
pub fn wait(word: &AtomicU32, scope: Scope, seen: u32, longest: Duration) {
    let timeout = libc::timespec {
        // Each C library names its type differently.
        tv_sec: longest.as_secs() as _,
        tv_nsec: longest.subsec_nanos() as libc::c_long,
    };
    let operation = libc::FUTEX_WAIT | scope.flag();
    // SAFETY: word and timeout live for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, seen, &raw const timeout) };
}

/// Wakes every thread that sleeps on `word`.
pub fn wake_all(word: &AtomicU32, scope: Scope) {
    let operation = libc::FUTEX_WAKE | scope.flag();
    // SAFETY: the word lives for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}
