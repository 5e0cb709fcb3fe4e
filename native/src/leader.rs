//! The leading listener: drains every queue of a directory into one sink, in rounds.
//!
//! A round reads what is committed, encodes it into one batch, writes it, and only then releases it. While a batch
//! cannot be written it is kept, nothing further is read, and the records stay in their queues (P1, P4).

use crate::attached::{self, Attached, Room};
use crate::books;
use crate::control::Control;
use crate::encode::Encoder;
use crate::queue_file::{self, Books};
use crate::series::Series;
use crate::sink::{Now, Sink, WriteError};
use crate::sink_words::{SinkRole, SinkState, SinkWords};
use crate::system::now_monotonic_nano;
use crate::takeover;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// When the listener writes, and where it finds queues.
#[derive(Clone, Debug)]
pub struct ListenerSettings {
    pub queue_directory: PathBuf,
    pub flush_interval: Duration,
    pub flush_records: u64,
    pub flush_bytes: usize,
}

/// How long to look away at most: producers call only at a fill in bytes, so this is how late `flush_records` is seen.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const RESCAN_INTERVAL: Duration = Duration::from_millis(500);
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// Ended queues whose counts the footers still carry.
const REMEMBERED_BOOKS: usize = 256;

/// What a round did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// A batch was written; there may be more.
    Wrote,
    /// Nothing to do before the given time has passed.
    Idle(Duration),
}

/// The one consumer of a queue directory.
pub struct Leader {
    settings: ListenerSettings,
    control: Control,
    sink: Box<dyn Sink>,
    encoder: Encoder,
    queues: Vec<Attached>,
    ended: Vec<Books>,
    batch: Vec<u8>,
    batch_records: u64,
    /// Bytes of the batch that the sink already has.
    batch_written: usize,
    last_flush: Duration,
    last_scan: Option<Duration>,
    flushes_done: u32,
    backoff: Duration,
    retry_at: Duration,
}

impl Leader {
    /// Takes over the directory; the caller holds the leader lock.
    #[must_use]
    pub fn new(settings: ListenerSettings, control: Control, sink: Box<dyn Sink>, now: Now) -> Self {
        control.page().leader_pid.store(std::process::id(), Ordering::Relaxed);
        control.page().leaders.fetch_add(1, Ordering::Relaxed);
        let [primary, others @ ..] = &control.page().sinks;
        primary.assign(sink.name(), SinkRole::Primary, now.unix_nano);
        others.iter().for_each(SinkWords::clear);
        // Without room for the histograms the listener still writes.
        let series = Series::open(&settings.queue_directory).ok();
        Self {
            batch: Vec::with_capacity(settings.flush_bytes + (settings.flush_bytes >> 2)),
            settings,
            control,
            sink,
            encoder: Encoder::counting(series),
            queues: Vec::new(),
            ended: Vec::new(),
            batch_records: 0,
            batch_written: 0,
            last_flush: now.monotonic,
            last_scan: None,
            flushes_done: control.flush_requests(),
            backoff: FIRST_BACKOFF,
            retry_at: Duration::ZERO,
        }
    }

    /// Does one round. With `force`, writes what is there without waiting for the interval.
    pub fn round(&mut self, now: Now, force: bool) -> Round {
        let page = self.control.page();
        page.heartbeat_unix_nano.store(now.unix_nano, Ordering::Relaxed);
        page.heartbeat_monotonic_nano.store(now.monotonic.as_nanos() as u64, Ordering::Relaxed);
        let requests = self.control.flush_requests();
        let force = force || requests != self.flushes_done;
        self.scan(now, force);
        if self.batch.is_empty() {
            if !force && !self.is_due(now) {
                let _ = self.sink.maintain(now);
                return Round::Idle(self.pause(now));
            }
            self.fill_batch(now);
        }
        if self.batch.is_empty() {
            self.release();
            self.flushes_done = requests;
            self.last_flush = now.monotonic;
            let _ = self.sink.maintain(now);
            return Round::Idle(self.settings.flush_interval.min(LOOK_INTERVAL));
        }
        self.write(now)
    }

    fn scan(&mut self, now: Now, force: bool) {
        if !force && self.last_scan.is_some_and(|last| now.monotonic < last + RESCAN_INTERVAL) {
            return;
        }
        let first = self.last_scan.replace(now.monotonic).is_none();
        for path in queue_file::list(&self.settings.queue_directory).unwrap_or_default() {
            if !self.queues.iter().any(|queue| queue.file.path == path) {
                // A file that cannot be attached (foreign version, vanished) is left alone and looked at again.
                let Ok(mut queue) = Attached::open(&path) else { continue };
                if let Some(series) = &self.encoder.series {
                    queue.trust_counted(series.generation());
                }
                self.queues.push(queue);
            }
        }
        if first {
            queue_file::remove_unfinished(&self.settings.queue_directory);
            takeover::settle_last_write(self.control, &mut self.queues, &mut self.encoder);
        }
        for queue in &mut self.queues {
            queue.look_after_owner();
        }
    }

    fn is_due(&self, now: Now) -> bool {
        let settings = &self.settings;
        let unread: u64 = self.queues.iter().map(Attached::unread).sum();
        let bytes: u64 = self.queues.iter().map(|queue| u64::from(queue.file.ring().used_words()) * 8).sum();
        unread >= settings.flush_records
            || bytes >= settings.flush_bytes as u64
            || now.monotonic >= self.last_flush + settings.flush_interval
            || self.queues.iter().any(Attached::is_ending)
    }

    fn pause(&self, now: Now) -> Duration {
        let until_flush = (self.last_flush + self.settings.flush_interval).saturating_sub(now.monotonic);
        until_flush.min(LOOK_INTERVAL)
    }

    fn fill_batch(&mut self, now: Now) {
        // Whoever was first last time is last this time: a busy process cannot starve the others.
        if !self.queues.is_empty() {
            self.queues.rotate_left(1);
        }
        for queue in &mut self.queues {
            self.batch_records += queue.tell_dropped(&mut self.batch, &mut self.encoder, now.unix_nano);
            let room = Room { bytes: self.settings.flush_bytes, records: u64::MAX };
            self.batch_records += queue.read_into(&mut self.batch, room, &mut self.encoder);
        }
    }

    fn write(&mut self, now: Now) -> Round {
        if now.monotonic < self.retry_at {
            return Round::Idle(self.retry_at - now.monotonic);
        }
        let page = self.control.page();
        let lines = &self.batch[self.batch_written..];
        let prepared = match self.sink.prepare(lines.len(), now) {
            Ok(place) => {
                self.control.publish_write(place);
                Ok(())
            }
            Err(error) => Err(WriteError::nothing_written(error)),
        };
        let begun = now_monotonic_nano();
        let result = prepared.and_then(|()| self.sink.write(lines, self.batch_records, now));
        let took = Duration::from_nanos(now_monotonic_nano() - begun);
        let row = &page.sinks[0];
        match result {
            Ok(()) => {
                row.count_write(self.batch_records, lines.len(), took);
                row.set_state(SinkState::Ok, now.unix_nano);
                page.bytes_written.fetch_add(self.batch.len() as u64, Ordering::Relaxed);
                page.records_written.fetch_add(self.batch_records, Ordering::Relaxed);
                page.batches_written.fetch_add(1, Ordering::Relaxed);
                self.backoff = FIRST_BACKOFF;
                self.release();
                Round::Wrote
            }
            Err(error) => {
                page.sink_errors.fetch_add(1, Ordering::Relaxed);
                row.count_error(&error.source);
                row.count_write(error.records, error.written, took);
                row.set_state(SinkState::Failing, now.unix_nano);
                self.batch_written += error.written;
                self.batch_records -= error.records.min(self.batch_records);
                page.records_written.fetch_add(error.records, Ordering::Relaxed);
                self.retry_at = now.monotonic + self.backoff;
                let pause = self.backoff;
                self.backoff = (self.backoff * 2).min(LONGEST_BACKOFF);
                Round::Idle(pause)
            }
        }
    }

    fn release(&mut self) {
        self.batch.clear();
        (self.batch_records, self.batch_written) = (0, 0);
        attached::release_all(&mut self.queues, &mut self.encoder);
        let (ended, control) = (&mut self.ended, self.control);
        self.queues.retain(|queue| {
            let finished = queue.is_finished().then(|| queue.finish(control)).flatten();
            let stays = finished.is_none();
            ended.extend(finished);
            stays
        });
        let surplus = self.ended.len().saturating_sub(REMEMBERED_BOOKS);
        self.ended.drain(..surplus);
    }

    /// Whether a batch is not written, or a queue is closed or orphaned and not at its end. What live processes still
    /// emit is for the next leader.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.batch.is_empty() || self.queues.iter().any(Attached::is_ending)
    }

    /// Gives back the records of an unfinished batch that the sink already has: the next leader must not write them.
    fn release_written(&mut self) {
        let mut lines = self.batch[..self.batch_written].iter().filter(|byte| **byte == b'\n').count() as u64;
        self.encoder.forget_observed(0);
        // In the order of the batch: queues that came later stand at the end.
        for queue in &mut self.queues {
            lines -= queue.reread_lines(lines, &mut self.encoder);
        }
        attached::release_all(&mut self.queues, &mut self.encoder);
    }

    /// Ends the output with a footer that carries every process's counts.
    pub fn close(mut self, now: Now) {
        if self.batch_written > 0 {
            self.release_written();
        }
        let books: Vec<Books> = self.ended.iter().cloned().chain(self.queues.iter().map(Attached::books)).collect();
        if self.sink.close(now, books::processes_json(&books).as_bytes()).is_err() {
            self.control.page().sink_errors.fetch_add(1, Ordering::Relaxed);
        }
        self.control.publish_write(None);
    }

    /// Waits until `pause` has passed or a producer calls.
    pub fn wait(&self, pause: Duration) {
        if !self.batch.is_empty() {
            // The sink fails: no call of a producer helps before the next try, only the end of the thread. The rounds go
            // on meanwhile: a failing sink is not a listener that hangs.
            return std::thread::park_timeout(pause.min(LOOK_INTERVAL));
        }
        let asked = self.flushes_done;
        self.control.wait(pause, || self.control.flush_requests() != asked);
    }
}
