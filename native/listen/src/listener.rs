//! The listener's thread: waits to become the leader of its queue directory, leads, and drains at the end.
//!
//! It never touches Python. Exactly one thread leads a directory, by a lock that the kernel releases with the process;
//! the others try again every 50 ms. A leader that panics begins again, with fresh sinks, as if it had died.

use crate::attached::{QueueReader, ReaderId};
use crate::delivery::{Delivery, Sinks};
use crate::housekeeper::{Housekeeper, report_of};
use crate::leader::{Leader, Leadership, ListenerSettings, Round};
use crate::overrides;
use crate::sink::Now;
use queue::control::Control;
use queue::lock::{Attempt, ProcessLock};
use queue::queue_check::CHECK_INTERVAL;
use queue::queue_file::QueueFile;
use queue::system::{mask_signals, now_monotonic_nano, thread_cpu_nano};
use request::runtime::Runtime;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

const LOCK_NAME: &str = "leader.lock";
/// Short enough that one try may fail and the leadership still moves within 200 ms; a try costs three system calls.
const ELECTION_INTERVAL: Duration = Duration::from_millis(50);
const ELECTION_INTERVAL_AT_STOP: Duration = Duration::from_millis(2);
const FIRST_RESTART_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_RESTART_PAUSE: Duration = Duration::from_secs(5);
/// How long a stop waits beyond its deadline for the thread: for footers, copies of additional sinks, housekeeping.
const GRACE: Duration = Duration::from_secs(1);

/// How a period as the leader ended.
enum LeadResult {
    ToTheEnd,
    /// The lock's file has another name or none: the holder of the new lock leads.
    LostLeadership,
    Failed,
}

/// Opens every sink; called by the thread that leads, and again after a panic.
pub(crate) type OpenSinks = Box<dyn FnMut() -> Result<Sinks, String> + Send>;

/// A running listener thread. Dropping it without `stop` leaves the thread running.
pub struct Listener {
    shared: Arc<ListenerThread>,
    thread: Thread,
    ended: Receiver<()>,
    control: Control,
}

struct ListenerThread {
    /// Another queue has replaced this thread's: only the rest of it is still to be written.
    retired_at: AtomicU64,
    check_queue: Box<dyn Fn() + Send + Sync>,
    looked_at: AtomicU64,
    /// Monotonic nanoseconds after which the thread must be gone; 0 while it should run.
    stop_at: AtomicU64,
    queue: Arc<QueueFile>,
    /// None: the overrides of an operator vanished with the directory.
    runtime: Option<Runtime>,
    directory: PathBuf,
    /// The control page for a period as the leader of `queue` alone.
    apart: OnceLock<Control>,
}

impl Listener {
    /// Starts the thread. It serves the whole directory; at the stop it makes sure that `queue`, its process's own, is
    /// drained. `control` is the page that the queue has had since it was made: its directory may be gone already.
    /// From time to time the thread calls `check_queue`, which checks whether the process needs another queue.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        settings: ListenerSettings,
        open: OpenSinks,
        (queue, control): (Arc<QueueFile>, Control),
        check_queue: Box<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let shared = Arc::new(ListenerThread {
            retired_at: AtomicU64::new(0),
            check_queue,
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

    /// Lets the thread drain its replaced queue and end by itself. Waits for nothing.
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
    pub(crate) fn begin_stop(&self, deadline: Duration) {
        let stop_at = now_monotonic_nano().saturating_add(deadline.as_nanos() as u64).max(1);
        self.shared.stop_at.store(stop_at, Ordering::Release);
        self.control.request_flush();
        self.thread.unpark();
    }

    /// As `begin_stop`, and waits for it. Returns whether the thread has ended.
    #[must_use]
    pub fn stop(&self, deadline: Duration) -> bool {
        self.begin_stop(deadline);
        // Disconnected: the thread has dropped its end, as its last act.
        matches!(self.ended.recv_timeout(deadline + GRACE), Err(RecvTimeoutError::Disconnected))
    }
}

impl ListenerThread {
    fn run(&self, settings: &ListenerSettings, control: Control, mut open: OpenSinks, alive: Sender<()>) {
        let mut restart_pause = FIRST_RESTART_PAUSE;
        loop {
            // Before the check for the end: the last process of a directory also leads once, and leaves no file behind.
            if let Some(leadership) = self.may_lead(settings) {
                let housekeeper = Housekeeper::start(settings.housekeeping.as_ref(), control, &self.queue);
                let led = open()
                    .map_or(LeadResult::Failed, |sinks| self.lead(settings, control, (sinks, housekeeper), leadership));
                match led {
                    LeadResult::ToTheEnd => break,
                    LeadResult::LostLeadership => {}
                    LeadResult::Failed if self.may_end() => break,
                    LeadResult::Failed => {
                        std::thread::park_timeout(restart_pause);
                        restart_pause = (restart_pause * 2).min(LONGEST_RESTART_PAUSE);
                    }
                }
            }
            if self.may_end() && self.is_without_queue() {
                break;
            }
            self.check_queue();
            let stopping = self.stop_at.load(Ordering::Acquire) != 0;
            if stopping {
                control.request_flush();
            }
            std::thread::park_timeout(if stopping { ELECTION_INTERVAL_AT_STOP } else { ELECTION_INTERVAL });
        }
        drop(alive);
    }

    /// The leadership that this thread may take now, if any.
    fn may_lead(&self, settings: &ListenerSettings) -> Option<Leadership> {
        let path = settings.queue_directory.join(LOCK_NAME);
        if self.retired_at.load(Ordering::Acquire) == 0 && !self.queue.has_vanished() {
            let Ok(Attempt::Acquired(lock)) = ProcessLock::try_acquire(&path, true) else { return None };
            return Some(Leadership::Directory { lock, path });
        }
        // The leader of the directory finds a queue that has a name. It still reads one that lost its name while
        // attached, unless that leader is gone as well.
        if self.is_at_end() || !self.queue.has_vanished() {
            return None;
        }
        let queue = QueueReader::open(&self.queue.path, ReaderId::OWNER, Now::read().monotonic, false).ok()?;
        Some(Leadership::Queue(Box::new(queue)))
    }

    /// Checks, from time to time, whether the process needs another queue.
    fn check_queue(&self) {
        let now = now_monotonic_nano();
        if now.saturating_sub(self.looked_at.load(Ordering::Relaxed)) >= CHECK_INTERVAL.as_nanos() as u64 {
            self.looked_at.store(now, Ordering::Relaxed);
            if !self.is_ending() {
                (self.check_queue)();
            }
        }
    }

    /// Whether the thread is to end, once its queue is drained.
    fn is_ending(&self) -> bool {
        self.stop_at.load(Ordering::Acquire) != 0 || self.retired_at.load(Ordering::Acquire) != 0
    }

    /// Leads until the stop, or until the directory is replaced; after a panic returns once no sink's thread writes any
    /// more.
    fn lead(
        &self,
        settings: &ListenerSettings,
        control: Control,
        (sinks, housekeeper): (Sinks, Housekeeper),
        leadership: Leadership,
    ) -> LeadResult {
        let control = match leadership {
            Leadership::Directory { .. } => control,
            // Another process may lead with the directory's page.
            Leadership::Queue(_) => *self.apart.get_or_init(|| control.apart()),
        };
        let (alive, ended) = channel::<()>();
        let led = catch_unwind(AssertUnwindSafe(|| {
            let delivery = Delivery::start(sinks, control, Now::read(), &alive);
            let leader = Leader::new(settings.clone(), control, delivery, Now::read());
            self.go_round(leader.leading(leadership), housekeeper, control)
        }));
        drop(alive);
        if led.is_err() {
            control.page().listener_restarts.fetch_add(1, Ordering::Relaxed);
            // The next leader reads the last write: nothing may be added to it after that.
            let _ = ended.recv_timeout(LONGEST_RESTART_PAUSE);
        }
        led.unwrap_or(LeadResult::Failed)
    }

    fn go_round(&self, mut leader: Leader, housekeeper: Housekeeper, control: Control) -> LeadResult {
        let (mut spent, mut hurried) = (thread_cpu_nano(), false);
        loop {
            let stopping = self.stop_at.load(Ordering::Acquire) != 0;
            if stopping && !hurried {
                let left = self.stop_at.load(Ordering::Acquire).saturating_sub(now_monotonic_nano());
                leader.hurry(Duration::from_nanos(left));
                hurried = true;
            }
            if !self.queue.ring().is_closed() {
                control.page().without_queue.move_to(&self.queue.header().dropped);
            }
            let round = leader.round(Now::read(), self.is_ending());
            let before = std::mem::replace(&mut spent, thread_cpu_nano() + leader.sinks_cpu_nano());
            control.page().listener_cpu_nano.fetch_add(spent.saturating_sub(before), Ordering::Relaxed);
            if self.may_end() && (self.is_past_deadline() || !self.has_work(&leader)) || self.is_elsewhere(&leader) {
                break;
            }
            self.check_queue();
            if let Some(runtime) = self.runtime {
                overrides::clear_over(runtime, &self.directory, &self.queue);
            }
            if let Round::Idle(pause) = round {
                let retired = self.retired_at.load(Ordering::Acquire) != 0;
                let longest = [if retired { ELECTION_INTERVAL } else { pause }, ELECTION_INTERVAL_AT_STOP];
                leader.wait(pause.min(longest[usize::from(stopping)]));
            }
        }
        let led = if self.may_end() { LeadResult::ToTheEnd } else { LeadResult::LostLeadership };
        if matches!(led, LeadResult::ToTheEnd) {
            let goes_on = || !self.is_past_deadline();
            housekeeper
                .finish(&goes_on, &mut |reason, removed| leader.report_removed(&report_of(reason, removed), &goes_on));
        }
        leader.close(Now::read());
        led
    }

    /// Whether the leader has more to do. Without a stop it also waits for requests in flight in queues that no other
    /// listener can find.
    fn has_work(&self, leader: &Leader) -> bool {
        leader.has_work() || self.stop_at.load(Ordering::Acquire) == 0 && leader.has_vanished_queues()
    }

    /// Whether this leader is not the one to do the rest: the directory has been replaced.
    fn is_elsewhere(&self, leader: &Leader) -> bool {
        let is_replaced = self.retired_at.load(Ordering::Acquire) != 0 && !leader.reads(&self.queue);
        leader.has_handed_over() || (is_replaced && !self.has_work(leader))
    }

    fn may_end(&self) -> bool {
        self.is_ending() && (self.is_at_end() || self.is_past_deadline())
    }

    /// Whether the queue needs nothing more from this thread: the leader that takes over also reports its end.
    fn is_without_queue(&self) -> bool {
        self.retired_at.load(Ordering::Acquire) != 0 || self.is_past_deadline() || self.queue.has_vanished()
    }

    /// Whether no readable record is left in the queue.
    fn is_drained(&self) -> bool {
        self.queue.ring().is_drained() || self.queue.is_headless()
    }

    /// Whether nothing is left to do for the queue: it is read to its end, and the end is reported, by this thread or by
    /// a leader. Its name shows nothing: a directory that is being removed still has it. At the stop there is no
    /// time to wait for another leader, or for requests that are in flight.
    fn is_at_end(&self) -> bool {
        let has_requests = self.queue.slots().taken() > 0;
        let is_closed = !has_requests && self.queue.are_drops_reported() && self.queue.is_end_reported();
        let stops = self.stop_at.load(Ordering::Acquire) != 0;
        let is_left = stops && (has_requests || !self.queue.has_vanished());
        self.is_drained() && (self.queue.is_headless() || is_closed || is_left)
    }

    fn is_past_deadline(&self) -> bool {
        let stop_at = self.stop_at.load(Ordering::Acquire);
        stop_at != 0 && now_monotonic_nano() >= stop_at
    }
}
