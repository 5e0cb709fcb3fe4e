//! The listener's thread: waits to become the leader of its queue directory, leads, and drains at the end.
//!
//! It never touches Python. Exactly one thread leads a directory, by a lock that the kernel releases with the process;
//! the others look again every 100 ms.

use crate::control::Control;
use crate::leader::{Leader, ListenerSettings, Round};
use crate::lock::{Attempt, ProcessLock};
use crate::queue_file::QueueFile;
use crate::sink::{Now, Sink};
use crate::system::{now_monotonic_nano, now_unix_nano, thread_cpu_nano};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Thread;
use std::time::Duration;

const ELECTION_INTERVAL: Duration = Duration::from_millis(100);
const ELECTION_INTERVAL_AT_STOP: Duration = Duration::from_millis(2);
/// What a stop waits beyond its deadline for the thread to write its footer.
const GRACE: Duration = Duration::from_millis(500);

/// A running listener thread. Dropping it without `stop` leaves the thread running.
pub struct Listener {
    shared: Arc<Shared>,
    thread: Thread,
    ended: Receiver<()>,
    control: Control,
}

struct Shared {
    /// Monotonic nanoseconds after which the thread must be gone; 0 while it should run.
    stop_at: AtomicU64,
    queue: Arc<QueueFile>,
}

impl Listener {
    /// Starts the thread. It serves the whole directory; at the stop it sees that `queue`, its process's own, is drained.
    ///
    /// # Errors
    /// The control page cannot be mapped, or no thread can be started.
    pub fn start(settings: ListenerSettings, sink: Box<dyn Sink>, queue: Arc<QueueFile>) -> io::Result<Self> {
        let control = Control::open(&settings.queue_directory)?;
        let shared = Arc::new(Shared { stop_at: AtomicU64::new(0), queue });
        let (alive, ended) = channel::<()>();
        let run = Arc::clone(&shared);
        let handle = std::thread::Builder::new().name("inference-log".into()).spawn(move || {
            mask_signals();
            run.run(settings, control, sink, alive);
        })?;
        Ok(Self { shared, thread: handle.thread().clone(), ended, control })
    }

    /// Drains this process's queue and ends the thread, within `deadline`. Returns whether the thread has ended.
    #[must_use]
    pub fn stop(self, deadline: Duration) -> bool {
        let stop_at = now_monotonic_nano().saturating_add(deadline.as_nanos() as u64).max(1);
        self.shared.stop_at.store(stop_at, Ordering::Release);
        self.control.request_flush();
        self.thread.unpark();
        // Disconnected: the thread has dropped its end, as the last thing it did.
        matches!(self.ended.recv_timeout(deadline + GRACE), Err(RecvTimeoutError::Disconnected))
    }
}

impl Shared {
    fn run(&self, settings: ListenerSettings, control: Control, sink: Box<dyn Sink>, alive: Sender<()>) {
        let mut sink = Some(sink);
        loop {
            // Before any thought of the end: the last process of a directory also leads once, and leaves no file behind.
            let attempt = ProcessLock::try_acquire(&settings.queue_directory.join("leader.lock"), true);
            if let Ok(Attempt::Acquired(lock)) = attempt {
                let Some(sink) = sink.take() else { break };
                self.lead(Leader::new(settings, control, sink, now()), control);
                drop(lock);
                break;
            }
            if self.may_end() {
                break;
            }
            let stopping = self.stop_at.load(Ordering::Acquire) != 0;
            if stopping {
                control.request_flush();
            }
            std::thread::park_timeout(if stopping { ELECTION_INTERVAL_AT_STOP } else { ELECTION_INTERVAL });
        }
        drop(alive);
    }

    fn lead(&self, mut leader: Leader, control: Control) {
        let mut spent = 0;
        loop {
            let stopping = self.stop_at.load(Ordering::Acquire) != 0;
            let round = leader.round(now(), stopping);
            let before = std::mem::replace(&mut spent, thread_cpu_nano());
            control.page().listener_cpu_nano.fetch_add(spent - before, Ordering::Relaxed);
            if stopping && (self.is_past_deadline() || (self.queue.ring().is_drained() && !leader.has_work())) {
                break;
            }
            if let Round::Idle(pause) = round {
                leader.wait(if stopping { pause.min(ELECTION_INTERVAL_AT_STOP) } else { pause });
            }
        }
        leader.close(now());
    }

    fn may_end(&self) -> bool {
        let stopping = self.stop_at.load(Ordering::Acquire) != 0;
        stopping && (self.queue.ring().is_drained() || self.is_past_deadline())
    }

    fn is_past_deadline(&self) -> bool {
        now_monotonic_nano() >= self.stop_at.load(Ordering::Acquire)
    }
}

/// Reads both clocks.
#[must_use]
pub fn now() -> Now {
    Now { unix_nano: now_unix_nano(), monotonic: Duration::from_nanos(now_monotonic_nano()) }
}

/// Signals belong to the server's threads: a handler must not interrupt this one, and Python's must not run here.
fn mask_signals() {
    // SAFETY: the set lives for the calls; masking in a fresh thread affects nobody else.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}
