//! An open log: its service, its listener, and what a forked child does with it.

use crate::Error;
#[cfg(not(feature = "listener"))]
use crate::producing::{Service, Settings};
#[cfg(feature = "listener")]
use listen::service::Service;
#[cfg(feature = "listener")]
use listen::settings::{Lane, Role, Settings};
use queue::layout::Reason;
use queue::system::now_monotonic_nano;
#[cfg(feature = "requests")]
use request::ids::IdSource;
#[cfg(feature = "requests")]
use request::requests::Requests;
use std::ops::Deref;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

/// An open log. It is never freed: a thread may still hold it when another one closes it. A closed log refuses records and
/// counts them.
#[derive(Clone, Copy)]
pub struct Log(&'static Inner);

/// The content of an open log, for the other faces of the core.
pub struct Inner {
    pub service: Arc<Service>,
    #[cfg(feature = "requests")]
    pub ids: IdSource,
    #[cfg(feature = "requests")]
    pub requests: Requests,
    #[cfg(feature = "listener")]
    pub settings: Settings,
    pub(crate) events: Registered,
    /// The parameter `level`.
    level: u8,
    /// The log that was opened before.
    before: *const Inner,
}

// SAFETY: the pointer is written before the log is shared, and refers to a log that is never freed.
unsafe impl Sync for Inner {}
// SAFETY: as above.
unsafe impl Send for Inner {}

/// Counts of one process since it opened the log. accepted = written + in_queue + what the listener could not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Log {
    /// Opens a log. `configuration` is one JSON object with the parameters of `docs/parameters.md`, or lines of a name and a
    /// value; without listener and requests, lines. The listener is a thread of this process, unless `listener` is
    /// `external`.
    ///
    /// # Errors
    /// A parameter is unknown or wrong, or the queue, the sink or the listener is not available.
    pub fn open(configuration: &str) -> Result<Self, Error> {
        Self::with(Settings::from_json(configuration.as_bytes()).map_err(|error| Error::new(error.to_string()))?)
    }

    /// As [`Self::open`], with the parameters of a file over those of the environment (`INFERENCE_LOGGING_...`).
    ///
    /// # Errors
    /// As [`Self::open`], or the file cannot be read.
    pub fn open_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let path = path.to_str().ok_or_else(|| Error::new(format!("path={}: must be UTF-8", path.display())))?;
        Self::with(from_environment(&[("config_file", path)])?)
    }

    /// As [`Self::open`], with the parameters of the environment, and of the file that it names.
    ///
    /// # Errors
    /// As [`Self::open_file`].
    pub fn from_environment() -> Result<Self, Error> {
        Self::with(from_environment(&[])?)
    }

    /// As [`Self::open`], with settings that were read before.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn with(settings: Settings) -> Result<Self, Error> {
        if !settings.enabled {
            return Err(Error::new("enabled=off: nothing is recorded"));
        }
        let settings = settings.with_queue_directory(&settings.resolved_queue_directory());
        let service = service_of(&settings)?;
        #[cfg(feature = "requests")]
        let (ids, requests) = requests_of(&settings, &service).inspect_err(|_| {
            service.close(Duration::ZERO);
        })?;
        let level = settings.least_severity;
        Ok(share(Inner {
            service,
            #[cfg(feature = "requests")]
            ids,
            #[cfg(feature = "requests")]
            requests,
            #[cfg(feature = "listener")]
            settings,
            events: Registered::new(),
            level,
            before: ptr::null(),
        }))
    }

    /// Waits until everything that was accepted before is written, at most `deadline`. Returns whether it is.
    #[must_use]
    pub fn flush(self, deadline: Duration) -> bool {
        self.service.flush(deadline)
    }

    /// Ends the requests in flight, refuses records from now on, writes what is queued within `deadline`, and ends the
    /// listener. Returns whether everything is written; records that are left stay in the queue file, where the next
    /// listener finds them. A second call does nothing.
    #[must_use]
    pub fn close(self, deadline: Duration) -> bool {
        self.service.close(deadline)
    }

    /// Reads the counts; None: a forked child that has not logged yet.
    #[must_use]
    pub fn stats(self) -> Option<Stats> {
        let counts = self.service.counts()?;
        let left: u64 = counts.dropped[Reason::ShutdownDeadline as usize].iter().sum();
        Some(Stats {
            accepted: counts.accepted,
            written: counts.written,
            in_queue: counts.in_queue,
            dropped: counts.dropped.iter().flatten().sum::<u64>() - left,
            sampled_out: counts.sampled_out.iter().sum(),
            left,
        })
    }

    /// The address under which a face of another language knows the log.
    #[must_use]
    pub const fn as_ptr(self) -> *const Inner {
        self.0
    }

    /// The log of an address.
    ///
    /// # Safety
    /// `log` is NULL or comes from [`Self::as_ptr`].
    #[inline]
    #[must_use]
    pub const unsafe fn from_ptr(log: *const Inner) -> Option<Self> {
        // SAFETY: the caller's promise; a log is never freed.
        match unsafe { log.as_ref() } {
            Some(inner) => Some(Self(inner)),
            None => None,
        }
    }
}

impl Deref for Log {
    type Target = Inner;

    #[inline]
    fn deref(&self) -> &Inner {
        self.0
    }
}

impl Inner {
    /// The least severity of messages that is accepted now: the configured one, or an operator's temporary one.
    #[inline]
    #[must_use]
    pub fn least_severity(&self) -> u8 {
        let runtime = &self.service.runtime;
        if !runtime.is_active() {
            return self.level;
        }
        let now = now_monotonic_nano();
        if runtime.is_disabled(now) { u8::MAX } else { runtime.level(now).unwrap_or(self.level) }
    }
}

#[cfg(feature = "listener")]
fn service_of(settings: &Settings) -> Result<Arc<Service>, String> {
    settings.lane(Lane::Fast, Role::Serves, true, None)?.open()
}

#[cfg(not(feature = "listener"))]
fn service_of(settings: &Settings) -> Result<Arc<Service>, String> {
    settings.open()
}

#[cfg(feature = "requests")]
fn requests_of(settings: &Settings, service: &Service) -> Result<(IdSource, Requests), String> {
    let observer = settings.observer(service)?;
    let ids = IdSource::new().map_err(|error| format!("no random bits: {error}"))?;
    Ok((ids, service.requests(observer)))
}

fn from_environment(keywords: &[(&str, &str)]) -> Result<Settings, Error> {
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())));
    Settings::from_sources(keywords, environment).map_err(|error| Error::new(error.to_string()))
}

/// The log that was opened last.
static LAST: AtomicPtr<Inner> = AtomicPtr::new(ptr::null_mut());

/// Puts a log into the list of those that a forked child has to begin anew.
fn share(mut log: Inner) -> Log {
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
            // SAFETY: it is shared from now on, and never freed.
            Ok(_) => return Log(unsafe { &*shared }),
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
        #[cfg(feature = "requests")]
        let _ = log.ids.reseed();
        at = log.before;
    }
}

/// What a log knows of its events. A program may write over a handle, which then must not name another event, such as one of
/// the listener's own.
pub struct Registered([OnceLock<Box<Block>>; BLOCKS]);

type Block = [AtomicU32; 1 << BLOCK_BITS];
const BLOCK_BITS: u32 = 8;
const BLOCKS: usize = 1 << (u16::BITS - BLOCK_BITS);

impl Registered {
    pub const fn new() -> Self {
        Self([const { OnceLock::new() }; BLOCKS])
    }

    /// Takes note of an event; `form` is all but its id, and not 0.
    pub fn note(&self, id: u16, form: u32) {
        let block = self.0[usize::from(id >> BLOCK_BITS)]
            .get_or_init(|| Box::new([const { AtomicU32::new(0) }; 1 << BLOCK_BITS]));
        block[usize::from(id) % block.len()].store(form, Ordering::Release);
    }

    /// Whether an event is one of them. Takes no lock.
    #[inline]
    pub fn has(&self, id: u16, form: u32) -> bool {
        let block = self.0[usize::from(id >> BLOCK_BITS)].get();
        block.is_some_and(|block| block[usize::from(id) % block.len()].load(Ordering::Acquire) == form)
    }
}
