//! As [`super`] says, with what POSIX and macOS have.

use super::Scope;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The name of this half.
pub const NAME: &str = "portable";
/// A clock that goes on while the machine sleeps: macOS's does, elsewhere there may be none.
pub const CLOCK_SLEEPING: libc::clockid_t = libc::CLOCK_MONOTONIC;
/// Pages come when they are touched.
pub const MAP_POPULATE: libc::c_int = 0;
/// Keeps `send` from raising a signal. macOS has no such flag; the programs of Rust and Python ignore that signal.
#[cfg(target_vendor = "apple")]
pub const MSG_NOSIGNAL: libc::c_int = 0;
/// Keeps `send` from raising a signal.
#[cfg(not(target_vendor = "apple"))]
pub const MSG_NOSIGNAL: libc::c_int = libc::MSG_NOSIGNAL;

/// How often a waiting thread looks.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Sleeps while `word` is `seen`, at most `longest`. It may return early: the caller checks again.
pub fn wait(word: &AtomicU32, _scope: Scope, seen: u32, longest: Duration) {
    let begin = Instant::now();
    // Acquire: what the waking thread did before its change is seen by the one that was woken.
    while word.load(Ordering::Acquire) == seen {
        let left = longest.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

/// Wakes every thread that sleeps on `word`: each looks by itself.
pub fn wake_all(_word: &AtomicU32, _scope: Scope) {}

/// Allocates the first `bytes` of a file by writing zeroes behind its end. Idempotent.
///
/// # Errors
/// The system call's error, `StorageFull` among them.
pub fn allocate(file: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
    // SAFETY: the descriptor is the caller's and open; this value does not close it.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(file.as_raw_fd()) });
    let mut end = file.metadata()?.len();
    while end < bytes as u64 {
        let len = ZEROES.len().min(usize::try_from(bytes as u64 - end).unwrap_or(ZEROES.len()));
        file.write_all_at(&ZEROES[..len], end)?;
        end += len as u64;
    }
    Ok(())
}

/// Does nothing: pages come when they are touched.
///
/// # Errors
/// None.
///
/// # Safety
/// As [`give_back`].
pub unsafe fn populate(_base: *mut u8, _bytes: usize) -> io::Result<()> {
    Ok(())
}

/// Does nothing: the pages of a mapped file go back to the system with its last mapping.
///
/// # Errors
/// None.
///
/// # Safety
/// None is asked for; the caller of the other platform's has to promise more.
pub unsafe fn give_back(_from: *mut u8, _bytes: usize) -> io::Result<()> {
    Ok(())
}

/// Fills a short buffer with random bits.
///
/// # Errors
/// The system has no device for it.
pub fn fill_random(buffer: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(buffer)
}

/// Names this boot of the machine; None where the system does not provide it.
#[must_use]
pub fn boot_id() -> Option<String> {
    #[cfg(target_vendor = "apple")]
    {
        let mut name = [0u8; 64];
        let mut len = name.len();
        // SAFETY: name and buffer live for the call; at most `len` bytes are written.
        let result = unsafe {
            libc::sysctlbyname(
                c"kern.bootsessionuuid".as_ptr(),
                name.as_mut_ptr().cast(),
                &raw mut len,
                std::ptr::null_mut(),
                0,
            )
        };
        (result == 0).then(|| String::from_utf8_lossy(&name[..len]).trim_end_matches('\0').to_owned())
    }
    #[cfg(not(target_vendor = "apple"))]
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()
}

/// Gives the calling thread to another user: not possible here, as all threads of a process have one user.
///
/// # Errors
/// Always.
pub fn become_user(_user: u32, _group: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing: POSIX knows the priority of processes only.
pub fn lower_priority(_nice: i32) {}

/// Does nothing: POSIX can only wait for all of a file.
///
/// # Errors
/// None.
pub fn start_writeback(_file: BorrowedFd<'_>, _from: i64, _len: i64) -> io::Result<()> {
    Ok(())
}

/// Waits until a file is on the device.
///
/// # Errors
/// The system call's error.
pub fn finish_writeback(file: BorrowedFd<'_>, _from: i64, _len: i64) -> io::Result<()> {
    // SAFETY: no memory of ours; the descriptor is open.
    if unsafe { libc::fsync(file.as_raw_fd()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The next of some blocked signals; None: none came within `timeout`.
#[must_use]
pub fn next_signal(signals: &libc::sigset_t, timeout: Duration) -> Option<i32> {
    const SIGNALS: std::ops::Range<i32> = 1..32;
    let begin = Instant::now();
    loop {
        // SAFETY: zeroes are a set; the pointers live for the calls. `sigwait` takes a signal that is there already.
        let taken = unsafe {
            let mut pending: libc::sigset_t = std::mem::zeroed();
            let mut number = 0;
            libc::sigpending(&raw mut pending);
            let is_there = SIGNALS.into_iter().any(|number| {
                libc::sigismember(&raw const pending, number) == 1 && libc::sigismember(signals, number) == 1
            });
            (is_there && libc::sigwait(signals, &raw mut number) == 0).then_some(number)
        };
        let left = timeout.saturating_sub(begin.elapsed());
        if taken.is_some() || left.is_zero() {
            return taken;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

/// The path by which this process opens a file once more that it has open.
#[must_use]
pub fn path_of(descriptor: RawFd) -> String {
    format!("/dev/fd/{descriptor}")
}

/// The error number of the calling thread.
#[must_use]
pub fn errno() -> *mut libc::c_int {
    // SAFETY: no arguments.
    unsafe {
        #[cfg(target_vendor = "apple")]
        return libc::__error();
        #[cfg(not(target_vendor = "apple"))]
        libc::__errno_location()
    }
}

/// A descriptor that is readable from a signal on until it is reset.
#[derive(Debug)]
pub struct Event {
    readable: UnixStream,
    written: UnixStream,
}

impl Event {
    /// Makes one that is not readable.
    ///
    /// # Errors
    /// The system call's error.
    pub fn new() -> io::Result<Self> {
        let (readable, written) = UnixStream::pair()?;
        readable.set_nonblocking(true)?;
        written.set_nonblocking(true)?;
        Ok(Self { readable, written })
    }

    /// The descriptor to wait for.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.readable.as_raw_fd()
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // A full buffer is readable already.
        let _ = (&self.written).write(&[1]);
    }

    /// Makes it not readable.
    pub fn reset(&self) {
        let mut signals = [0; 256];
        while matches!((&self.readable).read(&mut signals), Ok(count) if count > 0) {}
    }
}
