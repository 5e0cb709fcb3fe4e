//! How many connections of clients there may be, and how long one may say nothing.

use inferlog::Log;
use inferlog::severity::{INFO, WARN};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

const LOGGER: &str = "inference_logging.proxy";
/// How often what was turned away is reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Why a connection without a request is closed; the order is that of the counts in the control page.
#[derive(Clone, Copy)]
enum Reason {
    Silent,
    TooMany,
}

/// What all threads share.
pub struct Gate {
    most: usize,
    head_deadline: Duration,
    open: AtomicUsize,
    /// Connections that had no request when they were last looked at, the oldest first.
    silent: Mutex<VecDeque<Weak<State>>>,
    /// By reason.
    closed: [AtomicUsize; 2],
    reported: Mutex<Option<Instant>>,
    log: Option<Log>,
}

struct State {
    begun: Instant,
    has_request: AtomicBool,
    /// Requests whose answers have not ended.
    requests: AtomicUsize,
    /// When the last of them ended, in milliseconds since the beginning.
    idle_since_milli: AtomicU64,
    makes_room: Notify,
}

impl State {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            has_request: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            idle_since_milli: AtomicU64::new(0),
            makes_room: Notify::new(),
        }
    }

    fn is_idle_since_now(&self) {
        self.idle_since_milli.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// How long it has had no request; zero while it has one.
    fn idle(&self) -> Duration {
        if self.requests.load(Ordering::Acquire) > 0 {
            return Duration::ZERO;
        }
        let since = Duration::from_millis(self.idle_since_milli.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(since)
    }
}

/// A connection of a client; it counts until its last clone is dropped.
#[derive(Clone)]
pub struct Admitted {
    state: Arc<State>,
    _place: Arc<Place>,
}

struct Place(Arc<Gate>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admitted {
    /// A request has come.
    pub fn begin_request(&self) -> Asked {
        self.state.has_request.store(true, Ordering::Relaxed);
        self.state.requests.fetch_add(1, Ordering::Relaxed);
        Asked(self.clone())
    }

    /// Whether a request has come.
    pub fn has_request(&self) -> bool {
        self.state.has_request.load(Ordering::Relaxed)
    }
}

/// A request of a connection, which is not idle until the last clone is dropped.
pub struct Asked(Admitted);

impl Clone for Asked {
    fn clone(&self) -> Self {
        self.0.begin_request()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let state = &self.0.state;
        // Before the count: a connection without requests has been idle since then.
        state.is_idle_since_now();
        state.requests.fetch_sub(1, Ordering::Release);
    }
}

impl Gate {
    pub fn new(most: usize, head_deadline: Duration, log: Option<Log>) -> Self {
        if let Some(control) = log.and_then(|log| log.service.control()) {
            control.page().proxies.fetch_add(1, Ordering::Relaxed);
        }
        let silent = Mutex::new(VecDeque::new());
        let (open, closed, reported) = (AtomicUsize::new(0), Default::default(), Mutex::new(None));
        Self { most, head_deadline, open, silent, closed, reported, log }
    }

    /// How long a client may take for the head of a request, and be idle before it.
    pub const fn head_deadline(&self) -> Duration {
        self.head_deadline
    }

    /// Takes a connection in. If there are too many, the oldest one without a request makes room; None: there is none such,
    /// and the new one is to be closed.
    pub fn admit(self: &Arc<Self>) -> Option<Admitted> {
        let admitted = Admitted { state: Arc::new(State::new()), _place: Arc::new(Place(Arc::clone(self))) };
        let is_full = self.open.fetch_add(1, Ordering::Relaxed) >= self.most;
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent = |state: &Weak<State>| state.upgrade().filter(|one| !one.has_request.load(Ordering::Relaxed));
        while silent.front().is_some_and(|front| is_silent(front).is_none()) {
            silent.pop_front();
        }
        if is_full {
            let Some(oldest) = silent.pop_front().as_ref().and_then(is_silent) else {
                drop(silent);
                self.turn_away(Reason::TooMany);
                return None;
            };
            oldest.makes_room.notify_one();
        }
        silent.push_back(Arc::downgrade(&admitted.state));
        Some(admitted)
    }

    /// Waits until a connection has to go: it had no request for so long, or one that never had any makes room. The next
    /// wait begins anew.
    pub async fn wait_idle(&self, admitted: &Admitted) {
        let state = &admitted.state;
        loop {
            let left = self.head_deadline.saturating_sub(state.idle());
            let makes_room = tokio::time::timeout(left, state.makes_room.notified()).await.is_ok();
            if !admitted.has_request() {
                return self.turn_away(if makes_room { Reason::TooMany } else { Reason::Silent });
            }
            if state.idle() >= self.head_deadline {
                return state.is_idle_since_now();
            }
        }
    }

    /// Counts a connection that was closed before it had a request, and reports the numbers now and then.
    fn turn_away(&self, reason: Reason) {
        self.closed[reason as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(control) = self.log.and_then(|log| log.service.control()) {
            control.page().closed_by_proxy[reason as usize].fetch_add(1, Ordering::Relaxed);
        }
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL) {
            *reported = Some(Instant::now());
            drop(reported);
            let [silent, too_many] = self.closed();
            let count = silent + too_many;
            super::say(&format!("{count} connections closed so far without a request: too many, or silent"));
            self.report(WARN, "connections closed without a request");
        }
    }

    /// Puts the final numbers on record.
    pub fn report_end(&self) {
        self.report(INFO, "the proxy ended");
    }

    fn report(&self, severity: u8, message: &str) {
        let [silent, too_many] = self.closed();
        let attributes = [
            ("connections_closed", ((silent + too_many) as i64).into()),
            ("header_timeout", (silent as i64).into()),
            ("max_connections", (too_many as i64).into()),
        ];
        self.log.map(|log| log.message(None, severity, LOGGER, message, &attributes));
    }

    fn closed(&self) -> [usize; 2] {
        [Reason::Silent, Reason::TooMany].map(|reason| self.closed[reason as usize].load(Ordering::Relaxed))
    }
}
