//! The listener's thread: waits to become the leader of its queue directory, leads, and drains at the end.
//!
//! It never touches Python. Exactly one thread leads a directory, by a lock that the kernel releases with the process;
//! the others look again every 50 ms. A leader that panics begins anew, with fresh sinks, as if it had died.

use crate::control::Control;
use crate::delivery::{Delivery, Sinks, read_now};
use crate::housekeeper::Housekeeper;
use crate::leader::{Leader, ListenerSettings, Round};
use crate::lock::{Attempt, ProcessLock};
use crate::queue_file::QueueFile;
use crate::runtime::{self, Runtime};
use crate::system::{now_monotonic_nano, thread_cpu_nano};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Thread;
use std::time::Duration;

/// Short enough that one look may be missed and the leadership still moves within 200 ms; it costs three system calls.
const ELECTION_INTERVAL: Duration = Duration::from_millis(50);
const ELECTION_INTERVAL_AT_STOP: Duration = Duration::from_millis(2);
const FIRST_RESTART_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_RESTART_PAUSE: Duration = Duration::from_secs(5);
/// What a stop waits beyond its deadline for the thread: for footers, copies of additional sinks, housekeeping.
const GRACE: Duration = Duration::from_secs(1);

/// Opens every sink; called by the thread that leads, and again after a panic.
pub type OpenSinks = Box<dyn FnMut() -> Result<Sinks, String> + Send>;

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
    runtime: Runtime,
    directory: PathBuf,
}

impl Listener {
    /// Starts the thread. It serves the whole directory; at the stop it sees that `queue`, its process's own, is drained.
    ///
    /// # Errors
    /// The control page cannot be mapped, or no thread can be started.
    pub fn start(settings: ListenerSettings, open: OpenSinks, queue: Arc<QueueFile>) -> io::Result<Self> {
        let control = Control::open(&settings.queue_directory)?;
        let shared = Arc::new(Shared {
            stop_at: AtomicU64::new(0),
            queue,
            runtime: Runtime::open(&settings.queue_directory)?,
            directory: settings.queue_directory.clone(),
        });
        let (alive, ended) = channel::<()>();
        let run = Arc::clone(&shared);
        let handle = std::thread::Builder::new().name("inference-log".into()).spawn(move || {
            mask_signals();
            run.run(&settings, control, open, alive);
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
    fn run(&self, settings: &ListenerSettings, control: Control, mut open: OpenSinks, alive: Sender<()>) {
        let mut restart_pause = FIRST_RESTART_PAUSE;
        loop {
            // Before any thought of the end: the last process of a directory also leads once, and leaves no file behind.
            let attempt = ProcessLock::try_acquire(&settings.queue_directory.join("leader.lock"), true);
            if let Ok(Attempt::Acquired(lock)) = attempt {
                let housekeeper = Housekeeper::start(settings.housekeeping.as_ref(), control, &self.queue);
                if open().is_ok_and(|sinks| self.lead(settings, control, sinks)) {
                    break;
                }
                drop(housekeeper);
                drop(lock);
                if !self.may_end() {
                    std::thread::park_timeout(restart_pause);
                }
                restart_pause = (restart_pause * 2).min(LONGEST_RESTART_PAUSE);
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

    /// Leads until the stop; returns false after a panic, once no thread of a sink writes any more.
    fn lead(&self, settings: &ListenerSettings, control: Control, sinks: Sinks) -> bool {
        let (alive, ended) = channel::<()>();
        let led = catch_unwind(AssertUnwindSafe(|| {
            let delivery = Delivery::start(sinks, control, read_now(), &alive);
            self.go_round(Leader::new(settings.clone(), control, delivery, read_now()), control);
        }));
        drop(alive);
        if led.is_err() {
            control.page().listener_restarts.fetch_add(1, Ordering::Relaxed);
            // The next leader reads what was written last: nothing may be added to it after that.
            let _ = ended.recv_timeout(LONGEST_RESTART_PAUSE);
        }
        led.is_ok()
    }

    fn go_round(&self, mut leader: Leader, control: Control) {
        let (mut spent, mut hurried) = (thread_cpu_nano(), false);
        loop {
            let stopping = self.stop_at.load(Ordering::Acquire) != 0;
            if stopping && !hurried {
                let left = self.stop_at.load(Ordering::Acquire).saturating_sub(now_monotonic_nano());
                leader.hurry(Duration::from_nanos(left));
                hurried = true;
            }
            let round = leader.round(read_now(), stopping);
            let before = std::mem::replace(&mut spent, thread_cpu_nano() + leader.sinks_cpu_nano());
            control.page().listener_cpu_nano.fetch_add(spent.saturating_sub(before), Ordering::Relaxed);
            if stopping && (self.is_past_deadline() || (self.queue.ring().is_drained() && !leader.has_work())) {
                break;
            }
            runtime::writer::clear_over(self.runtime, &self.directory, &self.queue);
            if let Round::Idle(pause) = round {
                leader.wait(if stopping { pause.min(ELECTION_INTERVAL_AT_STOP) } else { pause });
            }
        }
        leader.close(read_now());
    }

    fn may_end(&self) -> bool {
        let stopping = self.stop_at.load(Ordering::Acquire) != 0;
        stopping && (self.queue.ring().is_drained() || self.is_past_deadline())
    }

    fn is_past_deadline(&self) -> bool {
        now_monotonic_nano() >= self.stop_at.load(Ordering::Acquire)
    }
}

/// Signals belong to the server's threads: a handler must not interrupt this one, and Python's must not run here.
pub(crate) fn mask_signals() {
    // SAFETY: the set lives for the calls; masking in a fresh thread affects nobody else.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}
