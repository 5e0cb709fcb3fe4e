//! One process's logging: its producer, and its listener thread; opened, flushed, drained, closed, and forked.

use crate::delivery::{Kept, NamedSink, Sinks};
use crate::leader::ListenerSettings;
use crate::listener::Listener;
use crate::sink::{DeliverySettings, SinkSettings};
use queue::claim::is_before;
use queue::control::Control;
use queue::lock::ForkSafe;
use queue::producer::poll;
use queue::producer::{Producer, QueueSettings};
use queue::queue_check::QueueCheck;
use queue::queue_file::{QueueCounts, QueueFile};
use queue::system::{WallClock, now_monotonic_nano};
use request::budget::Budget;
use request::observer::ObserverSettings;
use request::requests::{Requests, open_producer};
use request::runtime::Runtime;
use segments::segment;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Opens the sinks, or names the parameter at fault. An additional sink that cannot be opened is an error too.
fn open_sinks(settings: &DeliverySettings, queue: &Arc<QueueFile>, kept: &Kept) -> Result<Sinks, String> {
    let boot_id = queue.header().boot_id;
    let open = |settings: &SinkSettings| -> Result<NamedSink, String> {
        let sink = settings.open(boot_id).map_err(|error| error.to_string())?;
        Ok(NamedSink { name: settings.name(), sink })
    };
    Ok(Sinks {
        primary: open(&settings.primary)?,
        fallback: settings.fallback.as_ref().map(open).transpose()?,
        fallback_delay: settings.fallback_delay,
        additional: settings.additional.iter().map(open).collect::<Result<_, _>>()?,
        buffer_bytes: settings.buffer_bytes,
        boot_id: format!("{boot_id:016x}"),
        reports: Some(Arc::clone(queue)),
        kept: Arc::clone(kept),
    })
}

/// How long a wait for a release sleeps at most: so it notices a leader that died between a release and its wake-up
/// call.
const RELEASE_LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A process's logging. Closing is idempotent; a forked child starts anew at its first record.
pub struct Service {
    pub producer: Arc<Producer>,
    /// Limits the records of the process by call site; unset: no limit.
    pub budget: OnceLock<Arc<Budget>>,
    /// The temporary overrides of an operator.
    pub runtime: Runtime,
    listener_settings: ListenerSettings,
    delivery_settings: DeliverySettings,
    /// The last one belongs to the current queue; those before it drain queues that were lost.
    listeners: ForkSafe<Vec<Listener>>,
    runs_listener: bool,
    kept: Kept,
    /// For a process that runs no listener.
    queue_check: QueueCheck,
}

impl Service {
    /// Creates the queue and starts the listener thread, if this process is to run one.
    ///
    /// # Errors
    /// A sentence that names what cannot be created.
    pub fn open(
        queue: QueueSettings,
        listener: ListenerSettings,
        sinks: impl Into<DeliverySettings>,
        runs_listener: bool,
    ) -> Result<Arc<Self>, String> {
        let (producer, runtime) = open_producer(queue)?;
        let service = Arc::new(Self {
            producer: Arc::new(producer),
            budget: OnceLock::new(),
            runtime,
            listener_settings: listener,
            delivery_settings: sinks.into(),
            listeners: ForkSafe::new(Vec::new()),
            runs_listener,
            kept: Kept::default(),
            queue_check: QueueCheck::default(),
        });
        // Opened here first, so that an error in them stops the start.
        let opened = service.open_first().and_then(|sinks| service.start_listener(sinks));
        if opened.is_err() {
            service.close(Duration::ZERO);
        }
        opened?;
        let child = Arc::downgrade(&service);
        service.producer.after_reopen(move || {
            // The child's sinks are opened by its listener's thread: a request waits for this call.
            child.upgrade().map(|service| service.start_listener(None));
        });
        Ok(service)
    }

    /// Begins requests whose records go to the service.
    #[must_use]
    pub fn requests(&self, settings: ObserverSettings) -> Requests {
        Requests { producer: Arc::clone(&self.producer), runtime: self.runtime, settings, clock: WallClock::default() }
    }

    fn open_first(&self) -> Result<Option<Sinks>, String> {
        let queue = self.producer.queue().filter(|_| self.runs_listener);
        queue.map(|queue| open_sinks(&self.delivery_settings, &queue.file, &self.kept)).transpose()
    }

    fn start_listener(&self, mut first: Option<Sinks>) -> Result<(), String> {
        if !self.runs_listener {
            return self.queue_check.start(&self.producer);
        }
        let Some(queue) = self.producer.queue() else { return Ok(()) };
        let (settings, own, kept) = (self.delivery_settings.clone(), Arc::clone(&queue.file), Arc::clone(&self.kept));
        let open = move || first.take().map_or_else(|| open_sinks(&settings, &own, &kept), Ok);
        let producer = Arc::downgrade(&self.producer);
        let check_queue = move || {
            if let Some(producer) = producer.upgrade() {
                producer.look_after_queue();
            }
        };
        let started = Listener::start(
            self.listener_settings.clone(),
            Box::new(open),
            (Arc::clone(&queue.file), queue.control),
            Box::new(check_queue),
        );
        let listener = started.map_err(|error| format!("the listener thread cannot be started: {error}"))?;
        self.listeners.with(|listeners| {
            listeners.retain(|before| !before.has_ended());
            // A replaced queue's listener drains the old file, then exits.
            listeners.iter().for_each(Listener::retire);
            listeners.push(listener);
        });
        Ok(())
    }

    /// Waits until everything accepted before this call is written, at most `deadline`. Returns whether it is.
    #[must_use]
    pub fn flush(&self, deadline: Duration) -> bool {
        self.producer.flush(deadline)
    }

    /// Waits, at most `deadline`, until every record before `sequence` (its low 32 bits) is released, and asks for that.
    #[must_use]
    pub fn wait_released(&self, sequence: u32, deadline: Duration) -> bool {
        let Some(queue) = self.producer.queue() else { return true };
        let end = Instant::now() + deadline;
        loop {
            let released = queue.file.released();
            if !is_before(released, sequence) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            queue.control.request_flush();
            queue.file.wait_released(released, left.min(RELEASE_LOOK_INTERVAL));
        }
    }

    /// Refuses new records, drains what is queued within `deadline`, and ends the listener. Records that are left are
    /// counted as `shutdown_deadline` and stay in the queue file, where the next listener finds them.
    /// Returns whether everything was written.
    pub fn close(&self, deadline: Duration) -> bool {
        let started = now_monotonic_nano();
        let Some(queue) = self.producer.last_queue(deadline) else { return true };
        let left = || deadline.saturating_sub(Duration::from_nanos(now_monotonic_nano() - started));
        self.queue_check.stop();
        let mut lost = self.listeners.with(std::mem::take);
        lost.iter().for_each(|listener| listener.begin_stop(deadline));
        if let Some(listener) = lost.pop()
            && !listener.stop(deadline)
        {
            // The thread hangs in the sink. It keeps its mapping; the process can end without it.
            queue.count_left();
            return false;
        }
        // Each gets its time, whatever the others returned.
        let unwritten = lost.iter().filter(|listener| !(listener.stop(left()) && listener.is_drained())).count();
        let drained = if self.runs_listener {
            queue.file.ring().is_drained()
        } else {
            poll(queue.control, left(), || self.producer.save_all())
        };
        queue.finish(drained);
        drained && unwritten == 0
    }

    /// Begins again in a forked child: the parent's queue and thread are not its own.
    pub fn after_fork_in_child(&self) {
        self.listeners.with(|listeners| std::mem::forget(std::mem::take(listeners)));
        self.queue_check.after_fork_in_child();
        segment::close_inherited();
        self.producer.after_fork_in_child();
    }

    /// The damage that this process's listener found and left as it is, in words.
    #[must_use]
    pub fn kept(&self) -> Vec<String> {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Reads this process's counts.
    #[must_use]
    pub fn counts(&self) -> Option<QueueCounts> {
        self.producer.queue().map(|queue| queue.file.counts())
    }

    /// Reads the control page of the queue directory.
    #[must_use]
    pub fn control(&self) -> Option<Control> {
        self.producer.queue().map(|queue| queue.control)
    }
}
