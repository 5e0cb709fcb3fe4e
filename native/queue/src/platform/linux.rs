//! As [`super`] says, with the calls of Linux.

use super::Scope;
use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// The name of this half.
pub const NAME: &str = "linux";
/// A clock that goes on while the machine sleeps.
pub const CLOCK_SLEEPING: libc::clockid_t = libc::CLOCK_BOOTTIME;
/// Makes every page of a new mapping there from the start, ready to be read.
pub const MAP_POPULATE: libc::c_int = libc::MAP_POPULATE;
/// Keeps `send` from raising a signal.
pub const MSG_NOSIGNAL: libc::c_int = libc::MSG_NOSIGNAL;

/// Sleeps while `word` is `seen`, at most `longest`. It may return early: the caller checks again.
pub fn wait(word: &AtomicU32, scope: Scope, seen: u32, longest: Duration) {
    let timeout = timespec(longest);
    let operation = libc::FUTEX_WAIT | flag(scope);
    // SAFETY: word and timeout live for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, seen, &raw const timeout) };
}

/// Wakes every thread that sleeps on `word`.
pub fn wake_all(word: &AtomicU32, scope: Scope) {
    let operation = libc::FUTEX_WAKE | flag(scope);
    // SAFETY: the word lives for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}

const fn flag(scope: Scope) -> libc::c_int {
    match scope {
        Scope::Process => libc::FUTEX_PRIVATE_FLAG,
        Scope::Shared => 0,
    }
}

fn timespec(time: Duration) -> libc::timespec {
    // Each C library names its types differently.
    libc::timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ }
}

/// Allocates the first `bytes` of a file. Idempotent.
///
/// # Errors
/// The system call's error, `StorageFull` among them.
pub fn allocate(file: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    // SAFETY: plain call on an open descriptor.
    code_of(unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) })
}

/// Makes every page of a mapping there, ready to be written.
///
/// # Errors
/// Linux before 5.14 does not know the call.
///
/// # Safety
/// The pages lie in a mapping of the caller's.
pub unsafe fn populate(base: *mut u8, bytes: usize) -> io::Result<()> {
    // SAFETY: the caller's promise; the content stays.
    zero_or_errno(unsafe { libc::madvise(base.cast(), bytes, libc::MADV_POPULATE_WRITE) })
}

/// Gives the pages of a mapped file back to the system, for every process that maps it.
///
/// # Errors
/// The file system cannot, or the address is not that of a page.
///
/// # Safety
/// The pages lie in a mapping of the caller's, and every reader of them tolerates zeroes.
pub unsafe fn give_back(from: *mut u8, bytes: usize) -> io::Result<()> {
    // SAFETY: the caller's promise.
    zero_or_errno(unsafe { libc::madvise(from.cast(), bytes, libc::MADV_REMOVE) })
}

/// Fills a short buffer with random bits.
///
/// # Errors
/// The system call's error.
pub fn fill_random(buffer: &mut [u8]) -> io::Result<()> {
    // SAFETY: the buffer lives for the call and has the given length.
    let got = unsafe { libc::getrandom(buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    if usize::try_from(got) == Ok(buffer.len()) { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Names this boot of the machine; None where the system does not provide it.
#[must_use]
pub fn boot_id() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()
}

/// Lowers the priority of the calling thread, for the processor and for the disk, to this nice value.
pub fn lower_priority(nice: i32) {
    // SAFETY: no pointers; 0 is the calling thread, as threads have their own nice value on Linux.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

/// Gives the calling thread, and the threads that it starts from now on, to another user for good. Other threads of the
/// process stay what they are: the C library's functions would change all of them.
///
/// # Errors
/// The system call's error: only root, or a process with the capabilities SETUID and SETGID, may do this.
pub fn become_user(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: no memory of ours; the list of further groups becomes empty.
    unsafe {
        code_of_call(libc::syscall(libc::SYS_setgroups, 0, null_mut::<libc::gid_t>()))?;
        code_of_call(libc::syscall(libc::SYS_setresgid, group, group, group))?;
        code_of_call(libc::syscall(libc::SYS_setresuid, user, user, user))
    }
}

fn code_of_call(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Begins to write a range of a file to the device.
///
/// # Errors
/// The system call's error.
pub fn start_writeback(file: BorrowedFd<'_>, from: i64, len: i64) -> io::Result<()> {
    sync_file_range(file, from, len, libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits until a range of a file is on the device, and drops it from the page cache.
///
/// # Errors
/// The system call's error.
pub fn finish_writeback(file: BorrowedFd<'_>, from: i64, len: i64) -> io::Result<()> {
    let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_file_range(file, from, len, wait)?;
    // SAFETY: the descriptor is open during the call, which touches no memory of ours.
    code_of(unsafe { libc::posix_fadvise(file.as_raw_fd(), from, len, libc::POSIX_FADV_DONTNEED) })
}

fn sync_file_range(file: BorrowedFd<'_>, from: i64, len: i64, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: as above.
    zero_or_errno(unsafe { libc::sync_file_range(file.as_raw_fd(), from, len, flags) })
}

/// The next of some blocked signals; None: none came within `timeout`, or another signal's handler ended the wait.
#[must_use]
pub fn next_signal(signals: &libc::sigset_t, timeout: Duration) -> Option<i32> {
    let timeout = timespec(timeout);
    // SAFETY: both live until it returns.
    let number = unsafe { libc::sigtimedwait(signals, null_mut(), &raw const timeout) };
    (number > 0).then_some(number)
}

/// The path by which this process opens a file once more that it has open.
#[must_use]
pub fn path_of(descriptor: RawFd) -> String {
    format!("/proc/self/fd/{descriptor}")
}

/// The error number of the calling thread.
#[must_use]
pub fn errno() -> *mut libc::c_int {
    // SAFETY: no arguments.
    unsafe { libc::__errno_location() }
}

/// A descriptor that is readable from a signal on until it is reset.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// Makes one that is not readable.
    ///
    /// # Errors
    /// The system call's error.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just opened and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// The descriptor to wait for.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes it readable.
    pub fn signal(&self) {
        let one = 1u64;
        // SAFETY: eight bytes that live for the call. A full counter is readable already.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), size_of_val(&one)) };
    }

    /// Makes it not readable.
    pub fn reset(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes that live for the call; the descriptor does not block.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), size_of_val(&count)) };
    }
}

fn zero_or_errno(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn code_of(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}
