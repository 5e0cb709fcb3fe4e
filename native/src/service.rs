//! One process's logging: its producer, and its listener thread; opened, flushed, drained, closed, and forked.

use crate::budget::Budget;
use crate::control::Control;
use crate::delivery::{NamedSink, Sinks};
use crate::layout::Reason;
use crate::leader::ListenerSettings;
use crate::listener::Listener;
use crate::lock::ForkSafe;
use crate::producer::{Producer, Queue, QueueSettings};
use crate::queue_file::{Books, QueueFile};
use crate::runtime::Runtime;
use crate::segment_lock;
use crate::sink::{DeliverySettings, SinkSettings};
use crate::system::now_monotonic_nano;
use crate::totals;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Opens the sinks, or says which parameter is at fault. An additional one that cannot be had is an error too.
fn open_sinks(settings: &DeliverySettings, queue: &Arc<QueueFile>) -> Result<Sinks, String> {
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
    })
}

/// A process's logging. Closing is idempotent; a forked child starts anew at its first record.
pub struct Service {
    pub producer: Producer,
    /// Limits application records by call site; unset: no limit.
    pub budget: OnceLock<Budget>,
    /// What an operator has changed for a while.
    pub runtime: Runtime,
    listener_settings: ListenerSettings,
    delivery_settings: DeliverySettings,
    /// The last one is of the queue that is there now; those before it drain queues that were lost.
    listeners: ForkSafe<Vec<Listener>>,
    runs_listener: bool,
    me: Weak<Self>,
}

impl Service {
    /// Creates the queue and starts the listener thread, if this process is to run one.
    ///
    /// # Errors
    /// What cannot be created, in words.
    pub fn open(
        queue: QueueSettings,
        listener: ListenerSettings,
        sinks: impl Into<DeliverySettings>,
        runs_listener: bool,
    ) -> Result<Arc<Self>, String> {
        let directory = queue.directory.clone();
        let bytes = queue.queue_bytes;
        let producer = Producer::open(queue).map_err(|error| {
            format!("a queue of {bytes} bytes cannot be created in queue_directory={}: {error}", directory.display())
        })?;
        let runtime = Runtime::open(&directory)
            .map_err(|error| format!("run-time control in queue_directory={}: {error}", directory.display()))?;
        let service = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            producer,
            budget: OnceLock::new(),
            runtime,
            listener_settings: listener,
            delivery_settings: sinks.into(),
            listeners: ForkSafe::new(Vec::new()),
            runs_listener,
        });
        // Opened here first, so that what is wrong with them stops the start.
        let opened = service.open_first().and_then(|sinks| service.start_listener(sinks));
        if opened.is_err() {
            service.close(Duration::ZERO);
        }
        opened?;
        let child = Arc::downgrade(&service);
        service.producer.after_reopen(move || {
            // The child's sinks are opened by its listener's thread: this call is on the way of a request.
            child.upgrade().map(|service| service.start_listener(None));
        });
        Ok(service)
    }

    fn open_first(&self) -> Result<Option<Sinks>, String> {
        let queue = self.producer.queue().filter(|_| self.runs_listener);
        queue.map(|queue| open_sinks(&self.delivery_settings, &queue.file)).transpose()
    }

    fn start_listener(&self, mut first: Option<Sinks>) -> Result<(), String> {
        let Some(queue) = self.producer.queue().filter(|_| self.runs_listener) else { return Ok(()) };
        let (settings, own) = (self.delivery_settings.clone(), Arc::clone(&queue.file));
        let open = move || first.take().map_or_else(|| open_sinks(&settings, &own), Ok);
        let me = self.me.clone();
        let look_after = move || {
            if let Some(service) = me.upgrade() {
                service.producer.look_after_queue();
            }
        };
        let started = Listener::start_looking_after(
            self.listener_settings.clone(),
            Box::new(open),
            (Arc::clone(&queue.file), queue.control),
            Box::new(look_after),
        );
        let listener = started.map_err(|error| format!("the listener thread cannot be started: {error}"))?;
        self.listeners.with(|listeners| {
            listeners.retain(|before| !before.has_ended());
            // Of a queue that was lost: it writes what is left of that.
            listeners.iter().for_each(Listener::retire);
            listeners.push(listener);
        });
        Ok(())
    }

    /// Waits until everything accepted before this call is written, at most `deadline`. Returns whether it is.
    #[must_use]
    pub fn flush(&self, deadline: Duration) -> bool {
        let Some(queue) = self.producer.queue() else { return true };
        let ring = queue.file.ring();
        let wanted = ring.head().sequence;
        let is_lost_written = || self.listeners.with(|all| all.iter().rev().skip(1).all(Listener::is_drained));
        let reached = || wanted.wrapping_sub(ring.tail().sequence).cast_signed() <= 0 && is_lost_written();
        poll(queue.control, deadline, reached)
    }

    /// Refuses new records, drains what is queued within `deadline`, and ends the listener. Records that are left are
    /// counted as `shutdown_deadline` and stay in the queue file, where the next listener finds them.
    /// Returns whether everything was written.
    pub fn close(&self, deadline: Duration) -> bool {
        let started = now_monotonic_nano();
        let Some(queue) = self.last_queue(deadline) else { return true };
        let left = || deadline.saturating_sub(Duration::from_nanos(now_monotonic_nano() - started));
        let mut lost = self.listeners.with(std::mem::take);
        lost.iter().for_each(|listener| listener.begin_stop(deadline));
        if let Some(listener) = lost.pop()
            && !listener.stop(deadline)
        {
            // The thread hangs in the sink. It keeps its mapping; the process can end without it.
            self.count_left(&queue.file);
            return false;
        }
        // Each has its time, whatever became of the others.
        let unwritten = lost.iter().filter(|listener| !(listener.stop(left()) && listener.is_drained())).count();
        let drained = if self.runs_listener {
            queue.file.ring().is_drained()
        } else {
            poll(queue.control, left(), || queue.file.ring().is_drained())
        };
        if !drained {
            self.count_left(&queue.file);
        } else if queue.file.is_told()
            && queue.file.slots().taken() == 0
            && queue.file.is_end_told()
            && totals::add_ended(&queue.control.page().totals, &queue.file)
        {
            // Usually the leader has done so. Not if it ended between the last write and this process's end.
            let _ = std::fs::remove_file(&queue.file.path);
        }
        let is_done = drained && queue.file.has_vanished();
        queue.file.disown(is_done);
        if is_done {
            queue.unlock();
        }
        drained && unwritten == 0
    }

    /// Closes the producer. If its queue is just being replaced, that is waited for: the next one has a listener, too.
    fn last_queue(&self, deadline: Duration) -> Option<&Queue> {
        self.producer.close();
        let queue = self.producer.queue()?;
        poll(queue.control, deadline, || !self.producer.is_renewing());
        self.producer.queue()
    }

    /// Counts what stays behind, unless another process's listener is at work on it.
    fn count_left(&self, file: &QueueFile) {
        let books = file.books();
        let counted: u64 = books.dropped[Reason::ShutdownDeadline as usize].iter().sum();
        file.header().dropped.add(Reason::ShutdownDeadline, 9, books.in_queue.saturating_sub(counted));
    }

    /// Starts anew in a forked child: the parent's queue and thread are not its own.
    pub fn after_fork_in_child(&self) {
        self.listeners.with(|listeners| std::mem::forget(std::mem::take(listeners)));
        segment_lock::close_inherited();
        self.producer.after_fork_in_child();
    }

    /// Reads this process's counts.
    #[must_use]
    pub fn books(&self) -> Option<Books> {
        self.producer.queue().map(|queue| queue.file.books())
    }

    /// Reads the control page of the queue directory.
    #[must_use]
    pub fn control(&self) -> Option<Control> {
        self.producer.queue().map(|queue| queue.control)
    }
}

/// Looks every millisecond, and keeps asking the listener for a flush, until `reached` or the deadline.
fn poll(control: Control, deadline: Duration, reached: impl Fn() -> bool) -> bool {
    let end = now_monotonic_nano().saturating_add(deadline.as_nanos() as u64);
    while !reached() {
        if now_monotonic_nano() >= end {
            return false;
        }
        control.request_flush();
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
