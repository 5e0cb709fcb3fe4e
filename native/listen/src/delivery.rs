//! How a batch reaches its sinks: the primary, the fallback that replaces it, and copies for additional sinks.
//!
//! Only the success of the primary, or of the fallback, frees the records in the queues (P4). Invariants:
//!
//! * A sink has one job at a time, on a thread of its own: a sink that hangs delays neither the leader nor the others.
//! * After a failed batch, the next try (with either sink) begins behind the last line that was certainly written.
//! * A batch that hangs in one sink is given to a second one only if there is a fallback; only then can a record be in
//!   both, and a `sink.fallback` record names these records.

pub(crate) mod copies;
mod ends;
mod notice;
mod outlet;
mod worker;

use crate::sink::{Now, Sink};
use copies::Copies;
use notice::{Notices, Operator};
use outlet::{Outlet, Written};
use queue::control::{Control, FALLBACK_SLOT, PRIMARY_SLOT};
use queue::published::sinks::{SinkRole, SinkWords};
use queue::queue_file::QueueFile;
use queue::record::Scratch;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use worker::{Desk, Worker};

/// A write that takes longer is called hung.
const HUNG_AFTER: Duration = Duration::from_secs(2);
/// How long to wait between checks while a sink works: its answer wakes the leader anyway.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Whole lines, and their number.
#[derive(Default)]
pub struct Batch {
    pub lines: Vec<u8>,
    pub records: u64,
}

/// Sentences for the operator.
pub type Kept = Arc<Mutex<Vec<String>>>;

/// An open sink, and its name in the configuration.
pub struct NamedSink {
    pub name: String,
    pub sink: Box<dyn Sink>,
}

/// Where batches go.
pub struct Sinks {
    pub primary: NamedSink,
    pub fallback: Option<NamedSink>,
    /// How long the primary fails or hangs before the fallback takes over.
    pub fallback_delay: Duration,
    pub additional: Vec<NamedSink>,
    /// The size of an additional sink's buffer.
    pub buffer_bytes: usize,
    /// The listener's, for records about the sinks.
    pub boot_id: String,
    /// The process's own queue, for records about segments that were repaired.
    pub reports: Option<Arc<QueueFile>>,
    /// Damage that the leader found and left as it is.
    pub kept: Kept,
}

impl From<Box<dyn Sink>> for Sinks {
    fn from(sink: Box<dyn Sink>) -> Self {
        Self {
            primary: NamedSink { name: sink.name().to_owned(), sink },
            fallback: None,
            fallback_delay: Duration::from_secs(5),
            additional: Vec::new(),
            buffer_bytes: 8 << 20,
            boot_id: format!("{:016x}", 0),
            reports: None,
            kept: Kept::default(),
        }
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryStep {
    /// The batch is written.
    Done { records: u64, bytes: usize },
    /// Not before this time has passed, unless a sink answers.
    Waiting(Duration),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Nowhere,
    Primary,
    Fallback,
}

/// The sinks at work.
pub struct Delivery {
    control: Control,
    primary: Outlet,
    fallback: Option<Outlet>,
    fallback_delay: Duration,
    /// Since when a predecessor's write has been under way still.
    asked_since: Option<Duration>,
    copies: Vec<Copies>,
    ending: Arc<AtomicBool>,
    batch: Option<Arc<Batch>>,
    /// When the batch came.
    taken: Duration,
    at: At,
    /// Bytes and records of the batch that one sink or the other certainly has.
    written: usize,
    left: u64,
    /// How much of `written` the primary has, if it has all of it.
    continues: bool,
    fallback_records: u64,
    notices: Notices,
    kept: Kept,
    spare: Vec<u8>,
}

impl Delivery {
    /// Serves the primary and the fallback on the caller's own thread: for tests with a clock of their own.
    #[must_use]
    pub fn here(sinks: impl Into<Sinks>, control: Control, now: Now) -> Self {
        Self::with(sinks.into(), control, now, None, Worker::here)
    }

    /// Serves each sink on a thread of its own, which wakes the calling one. `alive` is dropped when all have ended.
    #[must_use]
    pub fn start(sinks: Sinks, control: Control, now: Now, alive: &Sender<()>) -> Self {
        let operator = Some(Operator::default());
        Self::with(sinks, control, now, operator, |desk| Worker::start(desk, alive.clone()))
    }

    fn with(
        sinks: Sinks,
        control: Control,
        now: Now,
        operator: Option<Operator>,
        serve: impl Fn(Desk) -> Worker,
    ) -> Self {
        let ending = Arc::default();
        let [first, second, others @ ..] = &control.page().sinks;
        let outlet = |named: NamedSink, role, row: &'static SinkWords, slot| {
            row.assign(&named.name, role, now.unix_nano);
            Outlet::new(named.name, serve(Desk::new(named.sink, control, slot, sinks.reports.clone(), &ending)), row)
        };
        let rows = [second].into_iter().chain(others);
        let mut rows = rows.skip(usize::from(sinks.fallback.is_some()));
        let copies = sinks.additional.into_iter().zip(rows.by_ref());
        let copies = copies.map(|(named, row)| Copies::start(named, row, sinks.buffer_bytes, &sinks.boot_id, now));
        let copies = copies.collect();
        rows.for_each(SinkWords::clear);
        control.page().fallback_active.store(0, Ordering::Relaxed);
        Self {
            control,
            primary: outlet(sinks.primary, SinkRole::Primary, first, PRIMARY_SLOT),
            fallback: sinks.fallback.map(|named| outlet(named, SinkRole::Fallback, second, FALLBACK_SLOT)),
            fallback_delay: sinks.fallback_delay,
            asked_since: None,
            copies,
            ending: Arc::clone(&ending),
            batch: None,
            taken: Duration::ZERO,
            at: At::Nowhere,
            written: 0,
            left: 0,
            continues: false,
            fallback_records: 0,
            notices: Notices::new(sinks.boot_id, operator),
            kept: sinks.kept,
            spare: Vec::new(),
        }
    }

    /// Whether a batch is under way.
    #[must_use]
    pub(crate) fn has_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Whether there are records about the sinks to write.
    #[must_use]
    pub(crate) fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Puts a report about removed segments into the next batch.
    pub(crate) fn note_removed(&mut self, report: &(u8, Scratch), now: Now) {
        self.notices.removed(report, now.unix_nano);
    }

    /// Whether another sink can replace the primary.
    #[must_use]
    pub(crate) fn has_fallback(&self) -> bool {
        self.fallback.is_some()
    }

    /// Whether there are additional sinks.
    #[must_use]
    pub(crate) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Whether a batch has waited for at least `time`.
    #[must_use]
    pub(crate) fn is_held_since(&self, now: Now, time: Duration) -> bool {
        self.has_batch() && now.monotonic >= self.taken + time
    }

    /// Gives a batch to the additional sinks alone.
    pub fn copy(&mut self, batch: Batch) {
        if batch.records > 0 {
            let batch = Arc::new(batch);
            self.copies.iter().for_each(|copies| copies.offer(&batch));
        }
    }

    /// Returns an empty buffer for the next batch, with the records about the sinks if it `reports`, and the number of
    /// their lines.
    pub(crate) fn begin_batch(&mut self, capacity: usize, reports: bool) -> Batch {
        let mut lines = std::mem::take(&mut self.spare);
        lines.clear();
        lines.reserve(capacity);
        let records = if reports { self.notices.move_into(&mut lines) } else { 0 };
        Batch { lines, records }
    }

    /// Takes a batch, with a copy for additional sinks if they have none of it yet; call `step` until it is done.
    pub fn take(&mut self, batch: Batch, copies: bool, now: Now) {
        if batch.records == 0 {
            self.spare = batch.lines;
            return;
        }
        (self.written, self.left, self.continues, self.at) = (0, batch.records, false, At::Nowhere);
        self.taken = now.monotonic;
        let batch = Arc::new(batch);
        for additional in self.copies.iter().filter(|_| copies) {
            additional.offer(&batch);
        }
        self.batch = Some(batch);
    }

    /// How many lines of the batch are certainly written.
    #[must_use]
    pub(crate) fn written_lines(&self) -> u64 {
        self.batch.as_ref().map_or(0, |batch| crate::sink::count_lines(&batch.lines[..self.written]))
    }

    /// Moves the batch on. `spans` returns the processes and sequence numbers in it as a JSON list.
    pub fn step(&mut self, now: Now, spans: &dyn Fn() -> String) -> DeliveryStep {
        self.check_sinks(now);
        loop {
            let Some(batch) = self.batch.clone() else { return DeliveryStep::Waiting(LOOK_INTERVAL) };
            let Some(outlet) = self.outlet_at() else {
                match self.choose(now) {
                    At::Nowhere => return DeliveryStep::Waiting(self.pause(now)),
                    at => self.submit(at, &batch, now),
                }
                continue;
            };
            match outlet.written(now) {
                Some(Written::All) => return self.finish(batch, now),
                Some(Written::Part(error)) => {
                    self.continues = self.at == At::Primary && (self.written == 0 || self.continues);
                    self.written += error.written;
                    self.left = self.left.saturating_sub(error.records);
                    self.failed(now);
                }
                None if self.should_leave(now) => self.leave(now, spans),
                None => return DeliveryStep::Waiting(LOOK_INTERVAL),
            }
        }
    }

    fn outlet_at(&mut self) -> Option<&mut Outlet> {
        match self.at {
            At::Nowhere => None,
            At::Primary => Some(&mut self.primary),
            At::Fallback => self.fallback.as_mut(),
        }
    }

    fn submit(&mut self, at: At, batch: &Arc<Batch>, now: Now) {
        self.at = at;
        let (written, left) = (self.written, self.left);
        if at == At::Fallback && self.control.page().fallback_active.swap(1, Ordering::Relaxed) == 0 {
            self.fallback_begins(None, now);
        }
        let continues = self.continues && at == At::Primary;
        if let Some(outlet) = self.outlet_at() {
            outlet.write(batch, written, left, continues, now);
        }
    }

    fn failed(&mut self, now: Now) {
        self.control.page().sink_errors.fetch_add(1, Ordering::Relaxed);
        let news = self.outlet_at().and_then(|outlet| {
            let trouble = outlet.trouble.as_ref()?;
            (trouble.errors == 1).then(|| (outlet.name.clone(), trouble.clone()))
        });
        self.at = At::Nowhere;
        if let Some((name, trouble)) = news {
            self.notices.failed(&name, &trouble, now);
        }
    }

    fn finish(&mut self, batch: Arc<Batch>, now: Now) -> DeliveryStep {
        let done = DeliveryStep::Done { records: batch.records, bytes: batch.lines.len() };
        if self.at == At::Primary {
            self.primary_is_well(now);
        } else if let Some(fallback) = &mut self.fallback {
            self.fallback_records += self.left;
            if let Some(trouble) = fallback.trouble.take() {
                self.notices.recovered(&fallback.name, &trouble, 0, now);
            }
        }
        self.report_refused(now);
        (self.batch, self.at, self.written, self.left) = (None, At::Nowhere, 0, 0);
        if let Ok(batch) = Arc::try_unwrap(batch) {
            self.spare = batch.lines;
        }
        done
    }

    fn report_refused(&mut self, now: Now) {
        for outlet in [Some(&mut self.primary), self.fallback.as_mut()].into_iter().flatten() {
            let refused = std::mem::take(&mut outlet.refused);
            if refused > 0 {
                self.notices.dropped(&outlet.name, refused, now.unix_nano);
            }
        }
    }

    /// Checks for sinks that hang, and does periodic work while there is no batch.
    pub(crate) fn check_sinks(&mut self, now: Now) {
        let outlets = [Some(&mut self.primary), self.fallback.as_mut()];
        let mut news = Vec::new();
        let mut well = false;
        for (position, outlet) in outlets.into_iter().flatten().enumerate() {
            if outlet.check_worker(now) {
                news.extend(outlet.trouble.clone().map(|trouble| (outlet.name.clone(), trouble)));
            }
            if outlet.is_abandoned() {
                match outlet.written(now) {
                    Some(Written::All) => well |= position == 0,
                    Some(Written::Part(_)) => {
                        self.control.page().sink_errors.fetch_add(1, Ordering::Relaxed);
                    }
                    None => {}
                }
            }
            if self.batch.is_none() {
                outlet.worker.maintain(now);
            }
        }
        for (name, trouble) in news {
            self.notices.failed(&name, &trouble, now);
        }
        if well {
            self.primary_is_well(now);
        }
        self.copies.iter_mut().for_each(|copies| copies.check_worker(now));
    }

    /// CPU time of the sinks' threads.
    #[must_use]
    pub(crate) fn cpu_nano(&self) -> u64 {
        let outlets = [Some(&self.primary), self.fallback.as_ref()].into_iter().flatten();
        outlets.map(|outlet| outlet.worker.cpu_nano()).chain(self.copies.iter().map(Copies::cpu_nano)).sum()
    }

    // When the fallback replaces the primary, and when the primary takes over again.
    //
    // The primary goes first whenever it is ready: it is offered the current batch again after growing pauses, so a batch
    // that it takes proves that it works. Between those tries, and while a write hangs in it, batches go to the fallback,
    // once the trouble has lasted for the configured delay.

    fn choose(&self, now: Now) -> At {
        if self.primary.is_ready(now) {
            return At::Primary;
        }
        let overdue = self.primary.troubled_for(now).is_some_and(|time| time >= self.fallback_delay);
        let ready = overdue && self.fallback.as_ref().is_some_and(|fallback| fallback.is_ready(now));
        if ready { At::Fallback } else { At::Nowhere }
    }

    /// Whether the sink at work has had its time, and the other one can take the batch.
    fn should_leave(&self, now: Now) -> bool {
        let Some(fallback) = &self.fallback else { return false };
        match self.at {
            At::Primary => self.primary.busy_for(now) >= self.fallback_delay && fallback.is_ready(now),
            At::Fallback => fallback.busy_for(now) >= self.fallback_delay && self.primary.is_ready(now),
            At::Nowhere => false,
        }
    }

    fn leave(&mut self, now: Now, spans: &dyn Fn() -> String) {
        let from_primary = self.at == At::Primary;
        if let Some(outlet) = self.outlet_at() {
            outlet.hang(now);
            outlet.abandon();
        }
        self.at = At::Nowhere;
        if from_primary {
            self.control.page().fallback_active.store(1, Ordering::Relaxed);
            self.fallback_begins(Some(&spans()), now);
        }
    }

    fn fallback_begins(&mut self, doubtful: Option<&str>, now: Now) {
        let Some(fallback) = &self.fallback else { return };
        let reason = if doubtful.is_some() { "hung" } else { "failing" };
        self.notices.fallback(&self.primary.name, &fallback.name, reason, doubtful, now);
    }

    fn primary_is_well(&mut self, now: Now) {
        self.control.page().fallback_active.store(0, Ordering::Relaxed);
        let Some(trouble) = self.primary.trouble.take() else { return };
        self.notices.recovered(&self.primary.name, &trouble, std::mem::take(&mut self.fallback_records), now);
    }

    fn pause(&self, now: Now) -> Duration {
        let mut pause = self.primary.retry_at.saturating_sub(now.monotonic);
        if !self.primary.is_free() {
            pause = LOOK_INTERVAL;
        }
        if let Some(fallback) = &self.fallback {
            let overdue = self.primary.troubled_for(now).map(|time| self.fallback_delay.saturating_sub(time));
            let ready = fallback.retry_at.saturating_sub(now.monotonic);
            let ready = if fallback.is_free() { ready } else { LOOK_INTERVAL };
            pause = pause.min(overdue.unwrap_or(pause).max(ready));
        }
        pause
    }

    /// The end is near: the next try is now, and the fallback waits at most `delay`.
    pub fn hurry(&mut self, delay: Duration) {
        self.fallback_delay = self.fallback_delay.min(delay);
        self.primary.hurry();
        self.fallback.iter_mut().for_each(Outlet::hurry);
    }
}
