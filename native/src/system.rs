//! What the core asks of the operating system besides files: clocks and random bits.

use std::io;

/// Reads random bits from the system.
///
/// # Errors
/// The system call's error.
pub fn random_id() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer lives for the call and has the given length.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got == 8 { Ok(u64::from_ne_bytes(bytes)) } else { Err(io::Error::last_os_error()) }
}

/// Nanoseconds since the Unix epoch.
#[inline]
#[must_use]
pub fn now_unix_nano() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

/// Nanoseconds of the monotonic clock.
#[inline]
#[must_use]
pub fn now_monotonic_nano() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

#[inline]
fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer lives for the call; these clocks always exist.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of the calling thread, in nanoseconds.
#[must_use]
pub fn thread_cpu_nano() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}
