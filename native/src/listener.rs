//! The listener's thread: waits to become the leader of its queue directory, leads, and drains at the end.
//!
//! It never touches Python. Exactly one thread leads a directory, by a lock that the kernel releases with the process;
//! the others look again every 50 ms. A leader that panics begins anew, with fresh sinks, as if it had died.

use crate::attached::{Attached, Reader};
use crate::control::Control;
use crate::delivery::{Delivery, Sinks, read_now};
use crate::housekeeper::Housekeeper;
use crate::leader::{Leader, ListenerSettings, Round, Rule};
use crate::lock::{Attempt, ProcessLock};
use crate::queue_file::QueueFile;
use crate::runtime::{self, Runtime};
use crate::system::{now_monotonic_nano, thread_cpu_nano};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

const LOCK_NAME: &str = "leader.lock";
/// Short enough that one look may be missed and the leadership still moves within 200 ms; it costs three system calls.
const ELECTION_INTERVAL: Duration = Duration::from_millis(50);
const ELECTION_INTERVAL_AT_STOP: Duration = Duration::from_millis(2);
const FIRST_RESTART_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_RESTART_PAUSE: Duration = Duration::from_secs(5);
/// What a stop waits beyond its deadline for the thread: for footers, copies of additional sinks, housekeeping.
const GRACE: Duration = Duration::from_secs(1);

/// How often a process sees whether its queue is still there.
const LOOK_AFTER_INTERVAL: Duration = Duration::from_millis(500);

/// How a time as the leader ended.
enum Led {
    ToTheEnd,
    /// The lock's file has another name or none: whoever locks the new one leads.
    Evicted,
    Failed,
}

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
    /// Another queue has taken the place of this one's: only what is left in it is still to be written.
    retired_at: AtomicU64,
    look_after: Box<dyn Fn() + Send + Sync>,
    looked_at: AtomicU64,
    /// Monotonic nanoseconds after which the thread must be gone; 0 while it should run.
    stop_at: AtomicU64,
    queue: Arc<QueueFile>,
    /// None: whatever an operator has changed is gone with the directory.
    runtime: Option<Runtime>,
    directory: PathBuf,
    /// The control page for a time as the leader of `queue` alone.
    apart: OnceLock<Control>,
}

impl Listener {
    /// Starts the thread. It serves the whole directory; at the stop it sees that `queue`, its process's own, is drained.
    ///
    /// # Errors
    /// The control page cannot be mapped, or no thread can be started.
    pub fn start(settings: ListenerSettings, open: OpenSinks, queue: Arc<QueueFile>) -> io::Result<Self> {
        let control = Control::open(&settings.queue_directory)?;
        Self::start_looking_after(settings, open, (queue, control), Box::new(|| ()))
    }

    /// As `start`, with the control page that the queue has had since it was made: its directory may be gone already. Now
    /// and then the thread calls `look_after`, which sees whether the process needs another queue.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start_looking_after(
        settings: ListenerSettings,
        open: OpenSinks,
        (queue, control): (Arc<QueueFile>, Control),
        look_after: Box<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            retired_at: AtomicU64::new(0),
            look_after,
            looked_at: AtomicU64::new(0),
            stop_at: AtomicU64::new(0),
            queue,
            runtime: Runtime::open(&settings.queue_directory).ok(),
            directory: settings.queue_directory.clone(),
            apart: OnceLock::new(),
        });
        let (alive, ended) = channel::<()>();
        let run = Arc::clone(&shared);
        let handle = std::thread::Builder::new().name("inference-log".into()).spawn(move || {
            mask_signals();
            run.run(&settings, control, open, alive);
        })?;
        Ok(Self { shared, thread: handle.thread().clone(), ended, control })
    }

    /// Lets the thread drain its queue, which another one has replaced, and end by itself. Waits for nothing.
    pub fn retire(&self) {
        self.shared.retired_at.store(now_monotonic_nano().max(1), Ordering::Release);
        self.thread.unpark();
    }

    /// Whether nothing is left in its queue.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.shared.is_drained()
    }

    /// Whether the thread has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.ended.try_recv(), Err(TryRecvError::Disconnected))
    }

    /// Lets the thread drain its process's queue and end, within `deadline`. Waits for nothing.
    pub fn begin_stop(&self, deadline: Duration) {
        let stop_at = now_monotonic_nano().saturating_add(deadline.as_nanos() as u64).max(1);
        self.shared.stop_at.store(stop_at, Ordering::Release);
        self.control.request_flush();
        self.thread.unpark();
    }

    /// As `begin_stop`, and waits for it. Returns whether the thread has ended.
    #[must_use]
    pub fn stop(&self, deadline: Duration) -> bool {
        self.begin_stop(deadline);
        // Disconnected: the thread has dropped its end, as the last thing it did.
        matches!(self.ended.recv_timeout(deadline + GRACE), Err(RecvTimeoutError::Disconnected))
    }
}

impl Shared {
    fn run(&self, settings: &ListenerSettings, control: Control, mut open: OpenSinks, alive: Sender<()>) {
        let mut restart_pause = FIRST_RESTART_PAUSE;
        loop {
            // Before any thought of the end: the last process of a directory also leads once, and leaves no file behind.
            if let Some(rule) = self.may_lead(settings) {
                let housekeeper = Housekeeper::start(settings.housekeeping.as_ref(), control, &self.queue);
                let led = open().map_or(Led::Failed, |sinks| self.lead(settings, control, sinks, rule));
                drop(housekeeper);
                match led {
                    Led::ToTheEnd => break,
                    Led::Evicted => {}
                    Led::Failed if self.may_end() => break,
                    Led::Failed => {
                        std::thread::park_timeout(restart_pause);
                        restart_pause = (restart_pause * 2).min(LONGEST_RESTART_PAUSE);
                    }
                }
            }
            if self.may_end() && self.is_without_queue() {
                break;
            }
            self.look_after();
            let stopping = self.stop_at.load(Ordering::Acquire) != 0;
            if stopping {
                control.request_flush();
            }
            std::thread::park_timeout(if stopping { ELECTION_INTERVAL_AT_STOP } else { ELECTION_INTERVAL });
        }
        drop(alive);
    }

    /// What this thread may lead now, if anything.
    fn may_lead(&self, settings: &ListenerSettings) -> Option<Rule> {
        let path = settings.queue_directory.join(LOCK_NAME);
        if self.retired_at.load(Ordering::Acquire) == 0 && !self.queue.has_vanished() {
            let Ok(Attempt::Acquired(lock)) = ProcessLock::try_acquire(&path, true) else { return None };
            return Some(Rule::Directory { lock, path });
        }
        // Whoever leads by the name finds a queue that has one. One that was read before it lost its name still is, unless
        // its reader is gone as well.
        if self.is_drained() || !self.queue.has_vanished() {
            return None;
        }
        let queue = Attached::open(&self.queue.path, Reader::OWNER, read_now().monotonic).ok()?;
        Some(Rule::Queue(Box::new(queue)))
    }

    /// Sees whether the process needs another queue, from time to time.
    fn look_after(&self) {
        let now = now_monotonic_nano();
        if now.saturating_sub(self.looked_at.load(Ordering::Relaxed)) >= LOOK_AFTER_INTERVAL.as_nanos() as u64 {
            self.looked_at.store(now, Ordering::Relaxed);
            if !self.is_ending() {
                (self.look_after)();
            }
        }
    }

    /// Whether the thread is to end, once its queue is drained.
    fn is_ending(&self) -> bool {
        self.stop_at.load(Ordering::Acquire) != 0 || self.retired_at.load(Ordering::Acquire) != 0
    }

    /// Leads until the stop, or until the directory has become another one; after a panic returns once no thread of a
    /// sink writes any more.
    fn lead(&self, settings: &ListenerSettings, control: Control, sinks: Sinks, rule: Rule) -> Led {
        let control = match rule {
            Rule::Directory { .. } => control,
            // Somebody else may lead with the other one.
            Rule::Queue(_) => *self.apart.get_or_init(|| control.apart()),
        };
        let (alive, ended) = channel::<()>();
        let led = catch_unwind(AssertUnwindSafe(|| {
            let delivery = Delivery::start(sinks, control, read_now(), &alive);
            let leader = Leader::new(settings.clone(), control, delivery, read_now());
            self.go_round(leader.within(rule), control)
        }));
        drop(alive);
        if led.is_err() {
            control.page().listener_restarts.fetch_add(1, Ordering::Relaxed);
            // The next leader reads what was written last: nothing may be added to it after that.
            let _ = ended.recv_timeout(LONGEST_RESTART_PAUSE);
        }
        led.unwrap_or(Led::Failed)
    }

    fn go_round(&self, mut leader: Leader, control: Control) -> Led {
        let (mut spent, mut hurried) = (thread_cpu_nano(), false);
        loop {
            let stopping = self.stop_at.load(Ordering::Acquire) != 0;
            if stopping && !hurried {
                let left = self.stop_at.load(Ordering::Acquire).saturating_sub(now_monotonic_nano());
                leader.hurry(Duration::from_nanos(left));
                hurried = true;
            }
            let round = leader.round(read_now(), self.is_ending());
            let before = std::mem::replace(&mut spent, thread_cpu_nano() + leader.sinks_cpu_nano());
            control.page().listener_cpu_nano.fetch_add(spent.saturating_sub(before), Ordering::Relaxed);
            if self.may_end() && (self.is_past_deadline() || !leader.has_work()) || self.is_elsewhere(&leader) {
                break;
            }
            self.look_after();
            if let Some(runtime) = self.runtime {
                runtime::writer::clear_over(runtime, &self.directory, &self.queue);
            }
            if let Round::Idle(pause) = round {
                leader.wait(if self.is_ending() { pause.min(ELECTION_INTERVAL_AT_STOP) } else { pause });
            }
        }
        let led = if self.may_end() { Led::ToTheEnd } else { Led::Evicted };
        leader.close(read_now());
        led
    }

    /// Whether what is still to be done is not done by this leader: the directory is another one by now.
    fn is_elsewhere(&self, leader: &Leader) -> bool {
        let is_replaced = self.retired_at.load(Ordering::Acquire) != 0 && !leader.reads(&self.queue);
        leader.is_without_rule() || (is_replaced && !leader.has_batch())
    }

    fn may_end(&self) -> bool {
        self.is_ending() && (self.is_drained() || self.is_past_deadline())
    }

    /// Whether nobody has to do anything more with the queue: who leads in this one's place also tells its end.
    fn is_without_queue(&self) -> bool {
        self.retired_at.load(Ordering::Acquire) != 0 || self.is_past_deadline() || self.queue.has_vanished()
    }

    /// Whether nothing is left in the queue that anybody could read.
    fn is_drained(&self) -> bool {
        self.queue.ring().is_drained() || self.queue.is_headless()
    }

    fn is_past_deadline(&self) -> bool {
        let stop_at = self.stop_at.load(Ordering::Acquire);
        stop_at != 0 && now_monotonic_nano() >= stop_at
    }
}

/// Signals belong to the server's threads: a handler must not interrupt this one, and Python's must not run here.
pub(crate) fn mask_signals() {
    // SAFETY: the set lives for the calls; masking in a fresh thread affects nobody else.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        // Blocked, a fault ends the process whatever its handler would do.
        for fault in [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL] {
            libc::sigdelset(&mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}
