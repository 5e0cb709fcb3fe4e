//! An open log: opened, flushed, closed, counted.

use crate::guarded;
use std::ffi::{CStr, c_char};
use std::ptr;
use std::time::Duration;

/// The version of the functions and structures in this header.
pub const ABI_VERSION: u32 = 1;

/// An open log. It is never freed.
pub struct Log {
    _opaque: [u8; 0],
}

impl Log {
    /// The open log of an address; None for NULL.
    ///
    /// # Safety
    /// `log` is NULL or an open log.
    #[inline]
    pub unsafe fn at(log: *const Self) -> Option<inferlog::Log> {
        // SAFETY: the caller's promise: `opened` has made the address of a log.
        unsafe { inferlog::Log::from_ptr(log.cast()) }
    }
}

/// Counts of one process since it opened the log. accepted = written + in_queue + what the listener could not read.
#[repr(C)]
pub struct Stats {
    /// Records that the queue took.
    pub accepted: u64,
    /// Records that the sink took.
    pub written: u64,
    /// Records that wait in the queue.
    pub in_queue: u64,
    /// Records that were refused, since the queue was full or closed, or that could not be read.
    pub dropped: u64,
    /// Requests that sampling left out. They are not lost, and not accepted.
    pub sampled_out: u64,
    /// Records that are still in the queue after a close whose deadline has passed. The next listener writes them.
    pub left: u64,
}

/// Returns the version of the library's functions and structures.
#[unsafe(no_mangle)]
pub extern "C" fn inferlog_abi_version() -> u32 {
    ABI_VERSION
}

/// Opens a log. `abi_version` is `INFERLOG_ABI_VERSION`; `configuration` has the parameters of docs/parameters.md: lines of a
/// name, a colon, a space and a value; or one JSON object, which the library of small machines does not read. NULL: the
/// parameters come from the environment (`INFERENCE_LOGGING_...`) and from the file that it names.
///
/// Returns NULL for another ABI version, for a parameter that is unknown or wrong, and if the queue, the sink or the
/// listener is not available. The listener is a thread of this process, unless `listener` is `external`.
///
/// # Safety
/// `configuration` is NULL or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_open(abi_version: u32, configuration: *const c_char) -> *const Log {
    opened(abi_version, || {
        if configuration.is_null() {
            return Ok(inferlog::Log::from_environment()?);
        }
        // SAFETY: the caller's promise.
        let text = unsafe { CStr::from_ptr(configuration) };
        let text = text.to_str().map_err(|_| format!("configuration={text:?}: must be UTF-8"))?;
        Ok(inferlog::Log::open(text)?)
    })
}

/// As `inferlog_open`, with the parameters of a file over those of the environment.
///
/// # Safety
/// `path` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_open_file(abi_version: u32, path: *const c_char) -> *const Log {
    opened(abi_version, || {
        if path.is_null() {
            return Err("path=NULL: must be the path of a file".to_owned());
        }
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(path) };
        let path = path.to_str().map_err(|_| format!("path={path:?}: must be UTF-8"))?;
        Ok(inferlog::Log::open_file(path)?)
    })
}

/// Waits until everything that was accepted before is written, at most `deadline_ms` milliseconds. Returns whether it is.
///
/// # Safety
/// `log` is NULL or an open log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_flush(log: *const Log, deadline_ms: u64) -> bool {
    // SAFETY: the caller's promise.
    let log = unsafe { Log::at(log) };
    written_by(log, deadline_ms, inferlog::Log::flush)
}

/// Ends the requests in flight, refuses records from now on, writes what is queued within `deadline_ms` milliseconds, and
/// ends the listener. Returns whether everything is written; records that are left stay in the queue file, where the next
/// listener finds them. A second call does nothing.
///
/// # Safety
/// `log` is NULL or an open log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_close(log: *const Log, deadline_ms: u64) -> bool {
    // SAFETY: the caller's promise.
    let log = unsafe { Log::at(log) };
    written_by(log, deadline_ms, inferlog::Log::close)
}

/// Reads the counts. Returns false if there are none: in a forked child that has not logged yet.
///
/// # Safety
/// `log` is NULL or an open log; `stats` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_stats(log: *const Log, stats: *mut Stats) -> bool {
    // SAFETY: the caller's promise.
    let (log, stats) = unsafe { (Log::at(log), stats.as_mut()) };
    guarded(false, || {
        let log = log.ok_or("log=NULL: must be an open log")?;
        let stats = stats.ok_or("stats=NULL: must be a structure")?;
        let counts = log.stats().ok_or("this process has no queue yet")?;
        let inferlog::Stats { accepted, written, in_queue, dropped, sampled_out, left } = counts;
        *stats = Stats { accepted, written, in_queue, dropped, sampled_out, left };
        Ok(true)
    })
}

/// Waits by `wait` until everything is written; returns whether it is.
fn written_by(log: Option<inferlog::Log>, deadline_ms: u64, wait: fn(inferlog::Log, Duration) -> bool) -> bool {
    guarded(false, || {
        let log = log.ok_or("log=NULL: must be an open log")?;
        let is_written = wait(log, Duration::from_millis(deadline_ms));
        is_written.then_some(true).ok_or_else(|| format!("not everything was written within {deadline_ms} ms"))
    })
}

/// The address of a log that `open` opens; NULL if it fails.
fn opened(abi_version: u32, open: impl FnOnce() -> Result<inferlog::Log, String>) -> *const Log {
    guarded(ptr::null(), || {
        if abi_version != ABI_VERSION {
            return Err(format!("abi_version={abi_version}: this library has version {ABI_VERSION}"));
        }
        Ok(open()?.as_ptr().cast())
    })
}
