//! One queue as the leading listener sees it: how far it has read, the schemas it knows, and whether the owner lives.
//!
//! Reading and releasing are apart: `read_into` moves the read mark over records that went into the batch; only after
//! the sink took the batch does `release` give them back to the producer. A listener that dies in between leaves them
//! in the queue.

mod held;
mod reports;

use lines::encode::{Encoder, LineHead};
use lines::plan::LinePlan;
use queue::claim::Claim;
use queue::event::{EventSchema, INFO};
use queue::layout::{QueueHeader, Reason};
use queue::lock::{Attempt, ProcessLock};
use queue::published::totals::{self, TotalsWords};
use queue::queue_file::{self, QueueCounts, QueueFile};
use queue::system::now_monotonic_nano;
use reports::Reports;
use ring::{Mark, Peek, Record, words_between};
use segments::segment_account::Span;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

pub use held::Held;
pub use queue::claim::ReaderId;

/// The severity under which torn and corrupt records are counted; their own is not known.
const UNKNOWN_SEVERITY: u8 = INFO;

/// An attached queue.
pub struct QueueReader {
    pub file: Arc<QueueFile>,
    /// None: this reader reads records that another one releases.
    claim: Option<Claim>,
    boot_id: String,
    pid: u32,
    read: Mark,
    /// All 64 bits of `read.sequence`.
    sequence: u64,
    plans: Vec<Option<LinePlan>>,
    schema_bytes: usize,
    /// Held once the owner is dead: no other process can take this queue for its own.
    orphaned: Option<ProcessLock>,
    /// When the owner was last seen alive, in monotonic nanoseconds; 0: never by this reader.
    seen_alive: u64,
    torn: u64,
    corrupt: u64,
    records_in_batch: u64,
    reports: Reports,
    /// The histograms include the records below this sequence already: an earlier leader had counted, but not released
    /// them.
    counted_below: u64,
    /// How many records were accepted and released when the header was last read, in case the file is cut to nothing.
    seen: u64,
    released: u64,
    reported_lost: bool,
    /// The batch has the last lines about this queue: no record can follow, and every gap is reported.
    at_end: bool,
}

/// Releases the records that were read from each queue: the sink has them. First the histograms count them, in one step
/// for all queues.
pub fn release_all(queues: &mut [QueueReader], encoder: &mut Encoder) {
    if let Some(series) = encoder.series.as_mut().filter(|series| series.pending() > 0) {
        for queue in queues.iter() {
            queue.note_counted(series.generation() + 1);
        }
        series.commit();
    }
    for queue in queues {
        queue.release();
    }
}

/// Does what `releasing` says; after a process that dies in the middle, the next one does all of it again.
fn finish_release(file: &QueueFile, releasing: Mark) {
    let header = file.header();
    for (reason, sum) in unreadable(header) {
        header.dropped.of(reason, UNKNOWN_SEVERITY).fetch_max(sum.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    file.ring().release(releasing);
}

fn unreadable(header: &QueueHeader) -> impl Iterator<Item = (Reason, &AtomicU64)> {
    [Reason::Torn, Reason::Corrupt].into_iter().zip(&header.unreadable)
}

impl QueueReader {
    /// Attaches the queue at `path`, through this process's own mapping if it is the owner. A copy has no other reader:
    /// the reader that it names reads the original.
    ///
    /// # Errors
    /// The file cannot be mapped, or is not a queue of this version; `WouldBlock` if another reader has it.
    pub fn open(path: &Path, reader: ReaderId, now: Duration, is_copy: bool) -> io::Result<Self> {
        let file = match queue_file::owned_by_this_process(path) {
            Some(file) => file,
            None => QueueFile::open(path)?,
        };
        if file.is_headless() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file was cut short"));
        }
        if is_copy {
            file.header().reader.store(0, Ordering::Release);
        }
        let claim = Claim::take(&file, reader, now).ok_or(io::ErrorKind::WouldBlock)?;
        let header = file.header();
        let releasing = Mark::from_word(header.releasing.load(Ordering::Acquire));
        if releasing != file.ring().tail() {
            // A listener died between the write and the end of its release.
            finish_release(&file, releasing);
        }
        let read = file.ring().tail();
        let sequence = file.full_sequence(read.sequence);
        Ok(Self {
            boot_id: format!("{:016x}", header.boot_id),
            pid: header.pid,
            read,
            sequence,
            seen: sequence,
            released: sequence,
            reported_lost: false,
            plans: Vec::new(),
            schema_bytes: 0,
            orphaned: None,
            seen_alive: 0,
            torn: 0,
            corrupt: 0,
            records_in_batch: 0,
            reports: Reports::default(),
            counted_below: 0,
            at_end: false,
            claim: Some(claim),
            file,
        })
    }

    /// Writes a sign of life into the queue. Returns false if another reader has it by now: this reader was taken for
    /// dead.
    #[must_use]
    pub fn keep(&self, now: Duration) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.keep(now))
    }

    fn holds(&self) -> bool {
        self.claim.as_ref().is_some_and(Claim::holds)
    }

    /// Encodes committed records into `batch` while there is `room`; returns how many records it added.
    pub fn read_into(&mut self, batch: &mut Vec<u8>, room: Room, encoder: &mut Encoder) -> u64 {
        let file = Arc::clone(&self.file);
        let ring = file.ring();
        let head = ring.head();
        // A damaged head: beyond what the ring holds.
        let overfull = u64::from(words_between(self.read.position, head.position)) * 8 > self.file.header().data_bytes;
        let is_dead = self.is_dead();
        if self.file.is_headless() {
            return 0;
        }
        self.seen = self.sequence.wrapping_add(u64::from(head.sequence.wrapping_sub(self.read.sequence)));
        let mut records = 0;
        while self.read.position != head.position
            && batch.len() < room.bytes
            && records < room.records
            && self.sequence < room.until
        {
            let next = match ring.peek(self.read.position) {
                _ if overfull => None,
                Peek::Record { next, .. } | Peek::Pad { next } if self.is_beyond(next, head) => None,
                Peek::Record { record, .. } if !self.is_reserved(record.sequence, head) => None,
                Peek::Record { record, next } => {
                    let added = self.encode(batch, encoder, &record);
                    (records, self.records_in_batch) = (records + added, self.records_in_batch + added);
                    Some(next)
                }
                Peek::Pad { next } => Some(next),
                Peek::Reserved { next } if is_dead => Some(next).filter(|next| !self.is_beyond(*next, head)),
                Peek::Untouched if is_dead => Some(ring.skip_untouched(self.read.position)),
                Peek::Corrupt => None,
                Peek::Reserved { .. } | Peek::Untouched | Peek::Empty => return records,
            };
            let Some(next) = next else {
                self.read.position = head.position;
                self.lose_up_to(head.sequence, Reason::Corrupt);
                return records;
            };
            self.read.position = next;
        }
        if is_dead && self.read.position == head.position {
            self.lose_up_to(head.sequence, Reason::Torn);
        }
        records
    }

    /// Whether no new records can come: the owner is dead, or the file was cut short.
    fn is_dead(&self) -> bool {
        self.orphaned.is_some() || self.file.is_lost()
    }

    /// Whether a record that ends at `next` passes the head, which is impossible.
    fn is_beyond(&self, next: u32, head: Mark) -> bool {
        words_between(self.read.position, next) > words_between(self.read.position, head.position)
    }

    /// Whether a record that is not read yet can have this sequence.
    fn is_reserved(&self, sequence: u32, head: Mark) -> bool {
        sequence.wrapping_sub(self.read.sequence) < head.sequence.wrapping_sub(self.read.sequence)
    }

    fn encode(&mut self, batch: &mut Vec<u8>, encoder: &mut Encoder, record: &Record<'_>) -> u64 {
        // Sequence numbers follow the ring's order: a gap is a reservation that its owner did not live to commit.
        self.lose_up_to(record.sequence, Reason::Torn);
        if usize::from(record.event) >= self.plans.len() || self.plans[usize::from(record.event)].is_none() {
            self.read_schemas();
        }
        let head = LineHead {
            time_unix_nano: record.time_unix_nano,
            severity: record.severity,
            boot_id: &self.boot_id,
            pid: self.pid,
            seq: Some(self.sequence),
        };
        let plan = self.plans.get(usize::from(record.event)).and_then(Option::as_ref);
        let counted = encoder.observed();
        let encoded = plan.is_some_and(|plan| encoder.line(batch, &head, plan, &record.payload).is_ok());
        if self.sequence < self.counted_below {
            encoder.forget_observed(counted);
        }
        if encoded {
            self.skip_to(record.sequence.wrapping_add(1));
        } else {
            self.lose_up_to(record.sequence.wrapping_add(1), Reason::Corrupt);
        }
        u64::from(encoded)
    }

    /// Goes on to `sequence` over records that cannot be written, and counts them.
    fn lose_up_to(&mut self, sequence: u32, reason: Reason) {
        let first = self.sequence;
        let records = self.skip_to(sequence);
        *(if reason == Reason::Torn { &mut self.torn } else { &mut self.corrupt }) += records;
        self.reports.lose(first, records, reason);
    }

    fn skip_to(&mut self, sequence: u32) -> u64 {
        let skipped = u64::from(sequence.wrapping_sub(self.read.sequence));
        self.read.sequence = sequence;
        self.sequence = self.sequence.wrapping_add(skipped);
        skipped
    }

    #[cold]
    fn read_schemas(&mut self) {
        let file = Arc::clone(&self.file);
        while let Ok((schema, bytes)) = EventSchema::from_bytes(&file.schemas()[self.schema_bytes..]) {
            self.schema_bytes += bytes;
            let id = usize::from(schema.id);
            if self.plans.len() <= id {
                self.plans.resize(id + 1, None);
            }
            self.plans[id] = Some(LinePlan::from(schema));
        }
    }

    /// Trusts the header's note about the histograms, if they reached the generation that it names.
    pub fn trust_counted(&mut self, generation: u64) {
        let header = self.file.header();
        if header.counted_generation.load(Ordering::Acquire) <= generation {
            self.counted_below = header.counted_sequence.load(Ordering::Acquire);
        } else {
            // The leader that wrote the note died before that generation; a later generation must not make it true.
            header.counted_generation.store(0, Ordering::Relaxed);
            header.counted_sequence.store(0, Ordering::Release);
        }
    }

    /// Notes that the coming generation of the histograms includes the records read so far.
    pub fn note_counted(&self, generation: u64) {
        let header = self.file.header();
        // In this order: a new sequence must never stand beside a generation that is already valid.
        header.counted_generation.store(generation, Ordering::Release);
        header.counted_sequence.store(self.sequence, Ordering::Release);
    }

    /// The sink took only the first `lines` of a batch, and this queue's lines come next: reads its records among them
    /// again, for a release; returns how many of `lines` were reports about this queue, and how many were its records.
    pub(crate) fn reread_lines(&mut self, lines: u64, encoder: &mut Encoder) -> (u64, u64) {
        let reported = self.keep_reported(lines);
        self.read = self.file.ring().tail();
        self.sequence = self.file.full_sequence(self.read.sequence);
        (self.torn, self.corrupt, self.at_end) = (0, 0, false);
        self.reports.forget_lost();
        let records = self.records_in_batch.min(lines - reported);
        self.read_into(&mut Vec::new(), Room::of_records(records), encoder);
        (reported, records)
    }

    /// A listener that died had written the records up to `last`, but not released them: reads them, and returns how
    /// many they are.
    pub(crate) fn read_up_to(&mut self, last: u64, encoder: &mut Encoder) -> u64 {
        self.look_after_owner();
        let (mut lines, mut records) = (Vec::new(), 0);
        while self.sequence <= last {
            let before = (self.read, self.sequence, self.torn, self.corrupt);
            let observed = encoder.observed();
            lines.clear();
            let read = self.read_into(&mut lines, Room::of_records(1), encoder);
            if read == 0 || self.sequence > last + 1 {
                (self.read, self.sequence, self.torn, self.corrupt) = before;
                self.reports.forget_lost();
                encoder.forget_observed(observed);
                break;
            }
            records += read;
        }
        records
    }

    /// The records that are read and not released.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        let first = self.file.full_sequence(self.file.ring().tail().sequence);
        let last = self.sequence.checked_sub(1).filter(|last| *last >= first)?;
        let boot_id = self.file.header().boot_id;
        Some(Span { boot_id, pid: self.pid, first, last, records: self.records_in_batch })
    }

    /// Gives the records that were read back to the producer.
    fn release(&mut self) {
        self.records_in_batch = 0;
        if !self.holds() {
            return;
        }
        self.release_reported();
        let header = self.file.header();
        if self.read == self.file.ring().tail() {
            return;
        }
        self.released = self.sequence;
        header.sequence_base.store(self.sequence.saturating_sub(u64::from(u32::MAX / 2)), Ordering::Release);
        for ((reason, sum), records) in unreadable(header).zip([&mut self.torn, &mut self.corrupt]) {
            let before = header.dropped.of(reason, UNKNOWN_SEVERITY).load(Ordering::Relaxed);
            sum.store(before.wrapping_add(std::mem::take(records)), Ordering::Relaxed);
        }
        header.releasing.store(self.read.to_word(), Ordering::Release);
        // A process that sees a zeroed word sees that it is being released.
        fence(Ordering::Release);
        finish_release(&self.file, self.read);
        self.reports.release_lost();
        self.file.wake_released();
    }

    /// Records that are reserved and not yet read.
    #[must_use]
    pub fn unread(&self) -> u64 {
        u64::from(self.file.ring().head().sequence.wrapping_sub(self.read.sequence))
    }

    /// Checks whether the owner has died; from then on the rest of the queue is recovered.
    pub(crate) fn look_after_owner(&mut self) {
        if self.orphaned.is_some() {
            return;
        }
        match self.file.try_lock() {
            Ok(Attempt::Acquired(lock)) => {
                self.orphaned = Some(lock);
                // Before anything of it is read, and so before anything is released.
                self.settle_requests();
            }
            Ok(_) => self.seen_alive = now_monotonic_nano(),
            Err(_) => (),
        }
    }

    /// Whether no record can follow, and everything is released and reported, by this reader.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.at_end && self.holds()
    }

    /// Whether the owner has closed its queue or died.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_dead() || self.file.ring().is_closed()
    }

    /// Adds the finished queue to the directory's totals, removes its file and returns its last counts; None if the
    /// totals are not available now. The records that its owner counted as `shutdown_deadline` have been written after
    /// all.
    #[must_use]
    pub fn finish(&self, words: &TotalsWords) -> Option<QueueCounts> {
        if self.file.is_headless() {
            return self.finish_lost(words);
        }
        if !totals::add_ended(words, &self.file) {
            return None;
        }
        for counter in &self.file.header().dropped.0[Reason::ShutdownDeadline as usize] {
            counter.store(0, Ordering::Relaxed);
        }
        self.file.remove_name();
        Some(self.counts())
    }

    /// The queue's counts.
    #[must_use]
    pub fn counts(&self) -> QueueCounts {
        self.file.counts()
    }
}

/// How much more a batch takes.
#[derive(Clone, Copy)]
pub struct Room {
    /// Reached by the last record that is added.
    pub bytes: usize,
    pub records: u64,
    /// The sequence of the first record that is left for later.
    pub until: u64,
}

impl Room {
    /// Room for `bytes`.
    #[must_use]
    pub const fn of_bytes(bytes: usize) -> Self {
        Self { bytes, records: u64::MAX, until: u64::MAX }
    }

    /// Room for a number of records of any size.
    #[must_use]
    pub const fn of_records(records: u64) -> Self {
        Self { bytes: usize::MAX, records, until: u64::MAX }
    }
}
