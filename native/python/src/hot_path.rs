//! The middleware's cost per request, which it measures itself on every 64th request.
//!
//! The measured time is spent inside `begin`, `send`, `received` and `finish`: our own work, without the application's,
//! the server's, or the interpreter's calls around it. A request that is not timed pays one branch in each of them. The
//! one after a timed one, and the very first, look for newly imported libraries that know the ids: that takes longer.

use super::gil_cell::GilCell;
use pyo3::Python;
use queue::producer::Producer;
use queue::system::now_monotonic_nano;
use std::sync::atomic::Ordering;

/// One request of this many is timed, and counts for all of them.
const EVERY: u64 = 64;

/// Chooses the requests that are timed.
pub struct Turns(GilCell<u64>);

impl Turns {
    /// Begins with 63 requests that are not timed: the first ones of a process are slow.
    pub const fn new() -> Self {
        Self(GilCell::new(0))
    }

    /// Begins a request.
    #[inline]
    pub fn next(&self, py: Python<'_>) -> Stopwatch {
        let turn = self.0.with(py, |requests| {
            *requests += 1;
            *requests % EVERY
        });
        Stopwatch { timed: turn == 0, is_first: turn == 1, spent_nano: GilCell::new(0) }
    }
}

/// The time that one request has spent in our code.
pub struct Stopwatch {
    timed: bool,
    is_first: bool,
    spent_nano: GilCell<u64>,
}

impl Stopwatch {
    /// Whether this request is the first of those of which one is timed.
    #[inline]
    pub const fn is_first(&self) -> bool {
        self.is_first
    }

    /// Does `work`, and adds its time if this request is timed.
    #[inline(always)]
    pub fn time<R>(&self, py: Python<'_>, work: impl FnOnce() -> R) -> R {
        if self.timed { self.time_it(py, work) } else { work() }
    }

    #[cold]
    #[inline(never)]
    fn time_it<R>(&self, py: Python<'_>, work: impl FnOnce() -> R) -> R {
        let started = now_monotonic_nano();
        let result = work();
        self.add_since(py, started);
        result
    }

    /// Adds the time since `started`, if this request is timed.
    #[inline]
    pub fn add_since(&self, py: Python<'_>, started: u64) {
        if self.timed {
            let nano = now_monotonic_nano().saturating_sub(started);
            self.spent_nano.with(py, |spent| *spent += nano);
        }
    }

    /// Adds the time since `started`, the last part of this request, and publishes the sum.
    #[inline]
    pub fn finish(&self, py: Python<'_>, started: u64, producer: &Producer) {
        if self.timed
            && let Some(queue) = producer.queue()
        {
            self.add_since(py, started);
            let nano = self.spent_nano.with(py, std::mem::take);
            queue.file.header().hot_path_nano.fetch_add(nano * EVERY, Ordering::Relaxed);
        }
    }
}
