//! The calls of the operating system that the standard library does not offer: clocks, random bits, signals, and calls on
//! open files.

use crate::platform;
use libc::{SIGINT, SIGTERM, sigset_t};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The machine's name in its network; empty if the system does not say.
#[must_use]
pub fn host_name() -> String {
    let mut name = [0_u8; 256];
    // SAFETY: the buffer has that many bytes; the last one stays zero.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) } != 0;
    let len = name.iter().position(|byte| *byte == 0).unwrap_or_default();
    if failed { String::new() } else { String::from_utf8_lossy(&name[..len]).into_owned() }
}

/// Reads random bits from the system.
///
/// # Errors
/// The system call's error.
pub fn random_id() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    platform::fill_random(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
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

/// The wall clock, from readings of the monotonic one: the two run alike unless somebody sets the time, which is noticed
/// within a second.
#[derive(Debug, Default)]
pub struct WallClock {
    /// The difference between the two.
    ahead: AtomicU64,
    /// The monotonic time from which on it is taken anew.
    until: AtomicU64,
}

impl WallClock {
    /// Nanoseconds since the Unix epoch at a monotonic time that has just been read.
    #[inline]
    pub fn unix_nano_at(&self, monotonic: u64) -> u64 {
        // Acquire pairs with the Release in `look`: the difference is as new.
        if monotonic >= self.until.load(Ordering::Acquire) {
            self.look(monotonic);
        }
        monotonic.wrapping_add(self.ahead.load(Ordering::Relaxed))
    }

    #[cold]
    fn look(&self, monotonic: u64) {
        const EVERY_NANO: u64 = 1_000_000_000;
        // Whatever happened between the two readings must not become a part of the difference.
        let ahead = now_unix_nano().wrapping_sub(now_monotonic_nano());
        self.ahead.store(ahead, Ordering::Relaxed);
        self.until.store(monotonic + EVERY_NANO, Ordering::Release);
    }
}

/// Nanoseconds since the machine began, including the time in which it slept.
#[must_use]
pub fn now_boottime_nano() -> u64 {
    clock(platform::CLOCK_SLEEPING)
}

/// Names this boot of the machine; empty where the system does not provide it.
#[must_use]
pub fn boot_id() -> String {
    platform::boot_id().unwrap_or_default().trim().to_owned()
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

/// Blocks signals in this thread. They belong to the server's threads: a handler must not interrupt this one, and
/// Python's must not run here.
pub fn mask_signals() {
    // SAFETY: the set lives for the calls; masking in a fresh thread affects no other.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        // A fault whose signal is blocked ends the process, whatever its handler would do.
        for fault in [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL] {
            libc::sigdelset(&mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// The real user of this process: the user that started it.
#[must_use]
pub fn real_user() -> u32 {
    // SAFETY: a plain call, without memory of ours.
    unsafe { libc::getuid() }
}

/// The effective user of this process.
#[must_use]
pub fn user() -> u32 {
    // SAFETY: a plain call, without memory of ours.
    unsafe { libc::geteuid() }
}

/// Lets this process open as many files as its hard limit allows: a server needs some for each connection. Returns how many
/// that are.
pub fn raise_file_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives for the calls. If the limit cannot be read or raised, it stays as it is.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
    limit.rlim_cur
}

/// Sends one datagram, whole or not at all; raises no signal if there is no receiver.
///
/// # Errors
/// The system call's error.
pub fn send(socket: &impl AsFd, bytes: &[u8]) -> io::Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open during the call; pointer and length are of one slice.
    let sent = unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), platform::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Waits until a write would take something, or would return an error; false when `timeout` has passed.
///
/// # Errors
/// The system call's error, `Interrupted` among them.
pub fn wait_writable(file: &impl AsFd, timeout: Duration) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: file.as_fd().as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let milliseconds = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `entry` is one valid pollfd that lives through the call, and the count is 1.
    match unsafe { libc::poll(&raw mut entry, 1, milliseconds) } {
        -1 => Err(io::Error::last_os_error()),
        ready => Ok(ready > 0),
    }
}

/// The width of a terminal; None: the file is none, or it does not say.
#[must_use]
pub fn terminal_columns(file: &impl AsFd) -> Option<usize> {
    // SAFETY: all zeroes is a valid value of this plain struct.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open during the call, which writes one struct of this type.
    let failed = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) } != 0;
    (!failed && size.ws_col > 0).then(|| usize::from(size.ws_col))
}

/// Locks or unlocks a file as a whole: `LOCK_…`.
///
/// # Errors
/// The system call's error, `WouldBlock` if another process holds it.
pub fn lock_file(file: &impl AsFd, operation: libc::c_int) -> io::Result<()> {
    // SAFETY: as above.
    zero_or_errno(unsafe { libc::flock(file.as_fd().as_raw_fd(), operation) })
}

/// Opens `name` in an open directory, and no other file by way of a link; never waits for a writer.
///
/// # Errors
/// The system call's error, or `InvalidInput` for a name with a zero.
pub fn open_at(directory: &impl AsFd, name: &str, access: libc::c_int) -> io::Result<File> {
    let name = CString::new(name)?;
    let flags = access | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the descriptor is open during the call, and the name ends with a zero.
    let descriptor = unsafe { libc::openat(directory.as_fd().as_raw_fd(), name.as_ptr(), flags) };
    owned(descriptor).map(File::from)
}

/// Opens a file with `O_…` flags; only the user may read or write a new one.
///
/// # Errors
/// The system call's error, or `InvalidInput` for a path with a zero.
pub fn open(path: &Path, flags: libc::c_int) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: a valid C string and no pointers kept.
    owned(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) })
}

fn owned(descriptor: RawFd) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn zero_or_errno(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes, in a forked child, a descriptor of its parent's. Its owner in this process vanished with the parent's
/// threads, so nothing here uses or closes it. May be called right after a fork.
pub fn close_inherited(descriptor: RawFd) {
    // SAFETY: no memory of ours; a descriptor that is not open is an error that is passed over.
    let _ = unsafe { libc::close(descriptor) };
}

/// Runs `before` in a process that is about to fork, and `in_child` in the child, where only what a signal handler may
/// do is allowed. If there is no memory for it, nothing is run.
pub(crate) fn at_fork(before: extern "C" fn(), in_child: extern "C" fn()) {
    // SAFETY: functions without arguments that stay for the life of the process.
    let _ = unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
}

/// What asks a process to end.
pub const ENDING: [i32; 2] = [SIGTERM, SIGINT];

/// Signals that wait until they are asked for. Threads that begin later leave them to this one.
pub struct Signals {
    taken: sigset_t,
    before: sigset_t,
}

impl Signals {
    /// Takes `numbers` from now on, until it is dropped.
    #[must_use]
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

    /// The next signal; None: none came within `timeout`. One that came before this call is not lost.
    pub fn wait(&self, timeout: Duration) -> Option<i32> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if let Some(number) = platform::next_signal(&self.taken, left) {
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

/// Lets the process that a command starts receive all signals, also those that this thread takes for itself.
pub fn unmask_signals(command: &mut Command) {
    let unmask = || {
        let mut none = MaybeUninit::uninit();
        // SAFETY: the set is made before it is read; both calls may be made between fork and exec.
        let failed = unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), null_mut())
        };
        zero_or_errno(failed)
    };
    // SAFETY: the function does what a signal handler may do, and takes no memory.
    unsafe { command.pre_exec(unmask) };
}

/// Sends a signal to a process; one that is gone gets none.
pub fn send_signal(pid: u32, number: i32) {
    // SAFETY: a plain call, without memory of ours.
    unsafe { libc::kill(pid as libc::pid_t, number) };
}

/// Collects a child of this process that has ended: its pid, and its status as `wait` has it. None: there is none.
#[must_use]
pub fn ended_child() -> Option<(u32, i32)> {
    let mut status = 0;
    // SAFETY: the integer lives for the call, which does not wait.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    u32::try_from(pid).ok().filter(|pid| *pid > 0).map(|pid| (pid, status))
}

/// Writes one line to stderr, unless that would wait: it may be a pipe that nobody reads.
pub fn say(text: &str) {
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one live entry, and no wait.
    let found = unsafe { libc::poll(&raw mut stderr, 1, 0) };
    if found == 1 && stderr.revents & libc::POLLOUT != 0 {
        let _ = io::stderr().write_all(format!("inference_logging: {text}\n").as_bytes());
    }
}

/// The size of the file system that `path` is in, and what of it is free.
#[must_use]
pub(crate) fn file_system_bytes(path: &Path) -> Option<(u64, u64)> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a text that ends, and room for the answer, which is read only if the call has filled it.
    let found = unsafe {
        if libc::statvfs(path.as_ptr(), found.as_mut_ptr()) != 0 {
            return None;
        }
        found.assume_init()
    };
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "other systems have other integers")]
    let (all, free, each) = (found.f_blocks as u64, found.f_bavail as u64, found.f_frsize as u64);
    Some((all.saturating_mul(each), free.saturating_mul(each)))
}
