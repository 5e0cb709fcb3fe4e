//! An open log: its service, its listener, and what a forked child does with it.

use crate::failure::guarded;
use listen::service::Service;
use listen::settings::{Lane, Role, Settings};
use queue::layout::Reason;
use queue::system::now_monotonic_nano;
use request::ids::IdSource;
use request::requests::Requests;
use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

/// The version of the functions and structures in this header.
pub const ABI_VERSION: u32 = 1;

/// An open log. It is never freed.
pub struct Log {
    pub(crate) service: Arc<Service>,
    pub(crate) ids: IdSource,
    pub(crate) requests: Requests,
    /// The parameter `level`.
    level: u8,
    /// The log that was opened before.
    before: *const Log,
}

impl Log {
    /// The least severity of messages that is accepted now: the configured one, or an operator's temporary one.
    #[inline]
    pub(crate) fn least_severity(&self) -> u8 {
        let runtime = &self.service.runtime;
        if !runtime.is_active() {
            return self.level;
        }
        let now = now_monotonic_nano();
        if runtime.is_disabled(now) { u8::MAX } else { runtime.level(now).unwrap_or(self.level) }
    }
}

// SAFETY: the pointer is written before the log is shared, and refers to a log that is never freed.
unsafe impl Sync for Log {}

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

/// Opens a log. `abi_version` is `INFERLOG_ABI_VERSION`; `configuration` one JSON object with the parameters of
/// docs/parameters.md. NULL: the parameters come from the environment (`INFERENCE_LOGGING_...`) and from the file that it
/// names.
///
/// Returns NULL for another ABI version, for a parameter that is unknown or wrong, and if the queue, the sink or the
/// listener is not available. The listener is a thread of this process, unless `listener` is `external`.
///
/// # Safety
/// `configuration` is NULL or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_open(abi_version: u32, configuration: *const c_char) -> *const Log {
    guarded(ptr::null(), || {
        if configuration.is_null() {
            return open(abi_version, || from_environment(&[]));
        }
        // SAFETY: the caller's promise.
        let text = unsafe { CStr::from_ptr(configuration) };
        open(abi_version, || Settings::from_json(text.to_bytes()).map_err(|error| error.to_string()))
    })
}

/// As `inferlog_open`, with the parameters of a JSON file over those of the environment.
///
/// # Safety
/// `path` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_open_file(abi_version: u32, path: *const c_char) -> *const Log {
    guarded(ptr::null(), || {
        if path.is_null() {
            return Err("path=NULL: must be the path of a file".to_owned());
        }
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(path) };
        let path = path.to_str().map_err(|_| format!("path={path:?}: must be UTF-8"))?;
        open(abi_version, || from_environment(&[("config_file", path)]))
    })
}

/// Waits until everything that was accepted before is written, at most `deadline_ms` milliseconds. Returns whether it is.
///
/// # Safety
/// `log` is NULL or an open log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_flush(log: *const Log, deadline_ms: u64) -> bool {
    // SAFETY: the caller's promise.
    let log = unsafe { log.as_ref() };
    written_by(log, deadline_ms, Service::flush)
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
    let log = unsafe { log.as_ref() };
    written_by(log, deadline_ms, Service::close)
}

/// Reads the counts. Returns false if there are none: in a forked child that has not logged yet.
///
/// # Safety
/// `log` is NULL or an open log; `stats` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_stats(log: *const Log, stats: *mut Stats) -> bool {
    // SAFETY: the caller's promise.
    let (log, stats) = unsafe { (log.as_ref(), stats.as_mut()) };
    guarded(false, || {
        let log = log.ok_or("log=NULL: must be an open log")?;
        let stats = stats.ok_or("stats=NULL: must be a structure")?;
        let counts = log.service.counts().ok_or("this process has no queue yet")?;
        let left: u64 = counts.dropped[Reason::ShutdownDeadline as usize].iter().sum();
        *stats = Stats {
            accepted: counts.accepted,
            written: counts.written,
            in_queue: counts.in_queue,
            dropped: counts.dropped.iter().flatten().sum::<u64>() - left,
            sampled_out: counts.sampled_out.iter().sum(),
            left,
        };
        Ok(true)
    })
}

/// Waits by `wait` until everything is written; returns whether it is.
fn written_by(log: Option<&Log>, deadline_ms: u64, wait: fn(&Service, Duration) -> bool) -> bool {
    guarded(false, || {
        let log = log.ok_or("log=NULL: must be an open log")?;
        let is_written = wait(&log.service, Duration::from_millis(deadline_ms));
        is_written.then_some(true).ok_or_else(|| format!("not everything was written within {deadline_ms} ms"))
    })
}

fn from_environment(keywords: &[(&str, &str)]) -> Result<Settings, String> {
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())));
    Settings::from_sources(keywords, environment).map_err(|error| error.to_string())
}

fn open(abi_version: u32, settings: impl FnOnce() -> Result<Settings, String>) -> Result<*const Log, String> {
    if abi_version != ABI_VERSION {
        return Err(format!("abi_version={abi_version}: this library has version {ABI_VERSION}"));
    }
    let settings = settings()?;
    if !settings.is_enabled() {
        return Err("enabled=off: nothing is recorded".to_owned());
    }
    let settings = settings.with_queue_directory(&settings.resolved_queue_directory());
    let service = settings.lane(Lane::Fast, Role::Serves, true, None)?.open()?;
    let observer = settings.observer(&service).inspect_err(|_| {
        service.close(Duration::ZERO);
    })?;
    let ids = IdSource::new().map_err(|error| format!("no random bits: {error}"))?;
    let requests = service.requests(observer);
    Ok(share(Log { service, ids, requests, level: settings.least_severity(), before: ptr::null() }))
}

/// The log that was opened last.
static LAST: AtomicPtr<Log> = AtomicPtr::new(ptr::null_mut());

/// Puts a log into the list of those that a forked child has to begin anew.
fn share(mut log: Log) -> *const Log {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the function stays, and does nothing that a forked child may not do. Without memory for it, a child that
        // logs is refused by the queue's lock.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    });
    log.before = LAST.load(Ordering::Acquire);
    let shared = Box::into_raw(Box::new(log));
    loop {
        // SAFETY: the log is not shared until it is in the list.
        let before = unsafe { &mut (*shared).before };
        match LAST.compare_exchange(before.cast_mut(), shared, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return shared,
            Err(other) => *before = other,
        }
    }
}

extern "C" fn after_fork_in_child() {
    let mut at = LAST.load(Ordering::Acquire).cast_const();
    // SAFETY: a log in the list is never freed or changed.
    while let Some(log) = unsafe { at.as_ref() } {
        log.service.after_fork_in_child();
        // Without random bits the child repeats its parent's ids, which is still better than no record.
        let _ = log.ids.reseed();
        at = log.before;
    }
}
