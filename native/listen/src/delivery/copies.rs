//! An additional sink: copies of every batch, through a bounded buffer, at the sink's own pace.
//!
//! It never holds anything back: lines that do not fit into its buffer are dropped and counted for this sink alone.
//! Once it takes lines again, it gets a `sink.dropped` record where the gap is.

use super::notice::Notices;
use super::{Batch, HUNG_AFTER, NamedSink};
use crate::attached::{QueueReader, Room};
use crate::sink::{Now, Sink, WriteError, count_lines, whole_lines};
use lines::encode::Encoder;
use queue::published::sinks::{SinkRole, SinkState, SinkWords};
use queue::system::{now_monotonic_nano, thread_cpu_nano};
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(500);

/// The leader's side of an additional sink.
pub struct Copies {
    worker: Arc<CopyWorker>,
    ended: Receiver<()>,
}

struct CopyWorker {
    name: String,
    boot_id: String,
    row: &'static SinkWords,
    /// Of the buffer; a part of it can keep one batch more in memory.
    capacity: usize,
    buffer: Mutex<Buffer>,
    changed: Condvar,
    /// Monotonic nanoseconds at which the write under way began; 0: none.
    busy_since: AtomicU64,
    ending: Arc<AtomicBool>,
    cpu_nano: AtomicU64,
}

#[derive(Default)]
struct Buffer {
    items: VecDeque<Item>,
    bytes: usize,
    /// Lines dropped behind the last item.
    gap: u64,
    /// When the thread must be gone, on the monotonic clock.
    end: Option<Duration>,
}

enum Item {
    Lines(Arc<Batch>, Range<usize>),
    Gap(u64),
}

impl Copies {
    /// Starts the sink's thread. Without one (the system gives no more) everything is dropped and counted.
    pub fn start(named: NamedSink, row: &'static SinkWords, capacity: usize, boot_id: &str, now: Now) -> Self {
        row.assign(&named.name, SinkRole::Additional, now.unix_nano);
        let worker = Arc::new(CopyWorker {
            name: named.name,
            boot_id: boot_id.to_owned(),
            row,
            capacity,
            buffer: Mutex::default(),
            changed: Condvar::new(),
            busy_since: AtomicU64::new(0),
            ending: Arc::default(),
            cpu_nano: AtomicU64::new(0),
        });
        let (alive, ended) = channel::<()>();
        let run = Arc::clone(&worker);
        let thread = std::thread::Builder::new().name("inference-copy".into());
        let started = thread.spawn(move || {
            let mut sink = named.sink;
            sink.heed(&run.ending);
            run.serve(&mut *sink);
            drop(alive);
        });
        if let Err(error) = started {
            worker.row.count_error(&error);
            worker.row.set_state(SinkState::Failing, now.unix_nano);
        }
        Self { worker, ended }
    }

    /// Puts a batch into the buffer, or as much of it as fits.
    pub fn offer(&self, batch: &Arc<Batch>) {
        let worker = &self.worker;
        let mut buffer = worker.lock();
        let room = worker.capacity.saturating_sub(buffer.bytes).min(batch.lines.len());
        let fits = if room == batch.lines.len() { room } else { whole_lines(&batch.lines[..room]) };
        if fits > 0 {
            let gap = std::mem::take(&mut buffer.gap);
            buffer.items.extend((gap > 0).then_some(Item::Gap(gap)));
            buffer.items.push_back(Item::Lines(Arc::clone(batch), 0..fits));
            buffer.bytes += fits;
        }
        if fits < batch.lines.len() {
            let dropped = count_lines(&batch.lines[fits..]);
            buffer.gap += dropped;
            worker.row.records_dropped.fetch_add(dropped, Relaxed);
        }
        drop(buffer);
        worker.changed.notify_all();
    }

    /// Notes that a write has not returned for long.
    pub fn check_worker(&self, now: Now) {
        let since = self.worker.busy_since.load(Relaxed);
        if since != 0 && now.monotonic >= Duration::from_nanos(since) + HUNG_AFTER {
            self.worker.row.set_state(SinkState::Hung, now.unix_nano);
        }
    }

    /// Asks the thread to write what is left, and to end by `end`.
    pub fn begin_end(&self, end: Duration) {
        self.worker.lock().end = Some(end);
        self.worker.ending.store(true, Relaxed);
        self.worker.changed.notify_all();
    }

    /// Waits for that. A thread that hangs is left behind, and its remaining lines are counted as dropped.
    pub fn end(self, end: Duration) {
        let _ = self.ended.recv_timeout(end.saturating_sub(Now::read().monotonic));
        let left = std::mem::take(&mut *self.worker.lock());
        self.worker.row.records_dropped.fetch_add(left.items.iter().map(Item::lines).sum(), Relaxed);
    }

    /// CPU time of the thread.
    pub fn cpu_nano(&self) -> u64 {
        self.worker.cpu_nano.load(Relaxed)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let mut buffer = self.worker.lock();
        buffer.end.get_or_insert(Duration::ZERO);
        drop(buffer);
        self.worker.changed.notify_all();
    }
}

impl Item {
    fn lines(&self) -> u64 {
        match self {
            Self::Lines(batch, range) => count_lines(&batch.lines[range.clone()]),
            Self::Gap(_) => 0,
        }
    }
}

impl CopyWorker {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, sink: &mut dyn Sink) {
        while let Some(item) = self.next(sink) {
            match &item {
                Item::Lines(batch, range) => {
                    self.write(sink, &batch.lines[range.clone()]);
                    let mut buffer = self.lock();
                    buffer.bytes = buffer.bytes.saturating_sub(range.len());
                }
                Item::Gap(dropped) => {
                    let mut line = Vec::new();
                    let mut notices = Notices::new(self.boot_id.clone(), None);
                    notices.dropped(&self.name, *dropped, Now::read().unix_nano);
                    notices.move_into(&mut line);
                    self.write(sink, &line);
                }
            }
            self.cpu_nano.store(thread_cpu_nano(), Relaxed);
        }
        let _ = sink.close(Now::read(), b"");
    }

    /// Waits for something to write; None: this is the end.
    fn next(&self, sink: &mut dyn Sink) -> Option<Item> {
        let mut buffer = self.lock();
        loop {
            if self.is_past(&buffer) {
                return None;
            }
            if let Some(item) = buffer.items.pop_front() {
                return Some(item);
            }
            if buffer.gap > 0 {
                return Some(Item::Gap(std::mem::take(&mut buffer.gap)));
            }
            if buffer.end.is_some() {
                return None;
            }
            let (locked, timeout) =
                self.changed.wait_timeout(buffer, MAINTENANCE_INTERVAL).unwrap_or_else(PoisonError::into_inner);
            buffer = locked;
            if timeout.timed_out() {
                drop(buffer);
                let _ = catch_unwind(AssertUnwindSafe(|| sink.maintain(Now::read())));
                buffer = self.lock();
            }
        }
    }

    fn is_past(&self, buffer: &Buffer) -> bool {
        buffer.end.is_some_and(|end| Now::read().monotonic >= end)
    }

    /// Writes all of `lines`, however often that takes, or counts them as dropped at the end.
    fn write(&self, sink: &mut dyn Sink, mut lines: &[u8]) {
        let mut backoff = FIRST_BACKOFF;
        while !lines.is_empty() {
            match self.try_write(sink, lines) {
                Ok(()) => return,
                Err(error) => lines = &lines[error.written..],
            }
            if sink.has_ended() {
                self.row.records_dropped.fetch_add(count_lines(lines), Relaxed);
                return;
            }
            let buffer = self.lock();
            let waited = self.changed.wait_timeout_while(buffer, backoff, |buffer| buffer.end.is_none());
            let buffer = waited.unwrap_or_else(PoisonError::into_inner).0;
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
            if self.is_past(&buffer) {
                self.row.records_dropped.fetch_add(count_lines(lines), Relaxed);
                return;
            }
            if buffer.end.is_some() {
                drop(buffer);
                std::thread::sleep(FIRST_BACKOFF.min(backoff) / 10);
            }
        }
    }

    fn try_write(&self, sink: &mut dyn Sink, lines: &[u8]) -> Result<(), WriteError> {
        let (begun, records) = (now_monotonic_nano(), count_lines(lines));
        self.busy_since.store(begun, Relaxed);
        let write = || {
            let now = Now::read();
            sink.prepare(lines.len(), now).map_err(WriteError::nothing_written)?;
            sink.write(lines, records, now)
        };
        let panicked = |_| Err(WriteError::nothing_written(std::io::Error::other("the sink panicked")));
        let result = catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(panicked);
        let refused = sink.take_refused();
        self.row.count_refused(refused);
        self.busy_since.store(0, Relaxed);
        let took = Duration::from_nanos(now_monotonic_nano() - begun);
        let unix_nano = Now::read().unix_nano;
        match result {
            Ok(()) => {
                self.row.count_write(records.saturating_sub(refused), lines.len(), took);
                self.row.set_state(SinkState::Ok, unix_nano);
                Ok(())
            }
            Err(error) => {
                self.row.count_error(&error.source);
                self.row.count_write(error.records.saturating_sub(refused), error.written, took);
                self.row.set_state(SinkState::Failing, unix_nano);
                Err(error)
            }
        }
    }
}

// Reads ahead for additional sinks while the primary, or its fallback, takes nothing: they continue as far as the
// queues reach.
//
// The queue notes how far they were served (`copied_sequence`). The records stay there for the primary; for it they
// are read again, apart from those that no sink has. So additional sinks get each record once, also when the leader
// changes.

/// Second readers of the leader's queues.
pub struct CopyReader {
    readers: Vec<QueueReader>,
    encoder: Encoder,
}

impl CopyReader {
    /// Begin without readers; `encoder` redacts as the leader's own does.
    #[must_use]
    pub fn new(encoder: Encoder) -> Self {
        Self { readers: Vec::new(), encoder }
    }

    /// Reads on from the last record that additional sinks were given, up to about `bytes` of each queue.
    pub fn read(&mut self, queues: &[QueueReader], bytes: usize) -> Batch {
        self.readers.retain(|reader| queues.iter().any(|queue| Arc::ptr_eq(&queue.file, &reader.file)));
        let mut batch = Batch::default();
        for queue in queues {
            let reader = self.reader_of(queue);
            let room = Room::of_bytes(batch.lines.len() + bytes);
            batch.records += self.readers[reader].read_into(&mut batch.lines, room, &mut self.encoder);
            self.readers[reader].note_copied();
        }
        batch
    }

    fn reader_of(&mut self, queue: &QueueReader) -> usize {
        let known = self.readers.iter().position(|reader| Arc::ptr_eq(&queue.file, &reader.file));
        let number = known.unwrap_or(self.readers.len());
        if known.is_none() || self.readers[number].is_behind(queue) {
            let mut reader = queue.second_reader();
            // An earlier leader may have been further.
            reader.read_copied_into(&mut Vec::new(), usize::MAX, &mut self.encoder);
            match self.readers.get_mut(number) {
                Some(place) => *place = reader,
                None => self.readers.push(reader),
            }
        }
        number
    }
}
