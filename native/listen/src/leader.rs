//! The leading listener: drains every queue of a directory into its sinks, in rounds.
//!
//! A round reads the committed records, encodes them into one batch, has it written, and only then releases them. While
//! a batch cannot be written it is kept, nothing further is read, and the records stay in their queues (P1, P4). Rounds
//! go on while a sink writes or hangs, so that other processes can see that the leader lives.

mod settling;

use crate::attached::{self, QueueReader, ReaderId, Room};
use crate::delivered::Delivered;
use crate::delivery::copies::CopyReader;
use crate::delivery::{Delivery, DeliveryStep};
use crate::housekeeper::HousekeepingSettings;
use crate::sink::Now;
use crate::takeover::Inquiry;
use lines::catalogue::Semconv;
use lines::encode::Encoder;
use lines::redact::Rules;
use lines::series::Series;
use queue::control::{Control, SLOTS_OLDEST_FIRST};
use queue::lock::ProcessLock;
use queue::queue_file::{self, QueueCounts, QueueFile};
use queue::record::Scratch;
use segments::segment_account;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// When the listener writes, and where it finds queues.
#[derive(Clone, Debug)]
pub struct ListenerSettings {
    pub queue_directory: PathBuf,
    pub flush_interval: Duration,
    pub flush_records: u64,
    pub flush_bytes: usize,
    /// None: nothing is ever compressed or removed.
    pub housekeeping: Option<HousekeepingSettings>,
    /// What is replaced in lines before any sink sees them.
    pub redaction: Option<Arc<Rules>>,
    /// Key of the hashes that stand for texts.
    pub hash_key: Option<[u8; 32]>,
    /// The names that lines have.
    pub semconv: Semconv,
    /// Who provides the model, as lines name it.
    pub provider: Option<String>,
    /// Tenants that are counted by themselves.
    pub tenants: Vec<String>,
    /// Members behind all others of each line, led by a comma; or empty.
    pub line_end: String,
}

/// Longest pause between checks while something waits for a sink.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Longest pause between checks otherwise: each check costs the server's core some 50 µs. Producers wake the leader
/// only at a fill in bytes, so this is how late `flush_records` is noticed.
const IDLE_INTERVAL: Duration = Duration::from_millis(250);
const RESCAN_INTERVAL: Duration = Duration::from_millis(500);
/// How long the end of a leader waits for one sink.
const CLOSING_PATIENCE: Duration = Duration::from_millis(100);
/// Ended queues whose counts the footers still carry.
const REMEMBERED_COUNTS: usize = 256;

/// The result of a round.
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
    delivery: Delivery,
    encoder: Encoder,
    queues: Vec<QueueReader>,
    ended: Vec<QueueCounts>,
    /// Lines at the batch's beginning that are the listener's own.
    notices: u64,
    copy_reader: CopyReader,
    last_flush: Duration,
    last_scan: Option<Duration>,
    flushes_done: u32,
    /// The slots of the last leader's writes that are not settled yet.
    unsettled: Vec<usize>,
    /// The inquiry that a sink is answering about the last of them.
    settling: Option<Inquiry>,
    /// The directory is a copy of another one, which its files still describe.
    is_copy: bool,
    /// Copied queues that another listener reads, and those without any record that it has not written.
    left_to_others: Vec<PathBuf>,
    obsolete: Vec<PathBuf>,
    delivered: Delivered,
    /// The lock under which it leads a directory, and its path.
    lock: Option<(ProcessLock, PathBuf)>,
    reader: ReaderId,
    /// The directory or its lock has been replaced: only the attached queues are left to do.
    lost_leadership: bool,
}

/// What a leader leads.
pub enum Leadership {
    /// Every queue of the directory, as long as `path` names the locked file.
    Directory { lock: ProcessLock, path: PathBuf },
    /// One queue of this process, which has no name any more.
    Queue(Box<QueueReader>),
}

impl Leader {
    /// Takes over the directory; the caller holds the leader lock.
    #[must_use]
    pub fn new(settings: ListenerSettings, control: Control, delivery: Delivery, now: Now) -> Self {
        control.page().leader_pid.store(std::process::id(), Ordering::Relaxed);
        // Without room for the histograms the listener still writes.
        let series = Series::open(&settings.queue_directory, &settings.tenants).ok();
        let prepared = |encoder: Encoder| {
            let encoder = encoder.redacting(settings.redaction.clone()).hashing(settings.hash_key);
            encoder.ending(&settings.line_end).naming(settings.semconv).provided_by(settings.provider.as_deref())
        };
        Self {
            copy_reader: CopyReader::new(prepared(Encoder::new())),
            encoder: prepared(Encoder::counting(series)),
            delivered: Delivered::begin(control, &settings.queue_directory),
            settings,
            control,
            delivery,
            queues: Vec::new(),
            ended: Vec::new(),
            notices: 0,
            last_flush: now.monotonic,
            last_scan: None,
            // A flush that was requested before there was a leader is not requested again.
            flushes_done: control.flush_requests().wrapping_sub(1),
            unsettled: SLOTS_OLDEST_FIRST.iter().rev().copied().collect(),
            settling: None,
            is_copy: control.is_copy(),
            left_to_others: Vec::new(),
            obsolete: Vec::new(),
            lock: None,
            reader: ReaderId::UNLOCKED,
            lost_leadership: false,
        }
    }

    /// Leads what `leadership` names, as long as that lasts.
    #[must_use]
    pub fn leading(mut self, leadership: Leadership) -> Self {
        match leadership {
            Leadership::Directory { lock, path } => {
                self.reader = ReaderId::of_lock(&lock);
                self.lock = Some((lock, path));
            }
            Leadership::Queue(queue) => {
                // Only the leader of the directory counts the histograms.
                self.encoder.series = None;
                self.queues.push(*queue);
                self.lost_leadership = true;
            }
        }
        self
    }

    /// Whether the leadership is lost, and every record that no other listener can find is written.
    #[must_use]
    pub fn has_handed_over(&self) -> bool {
        self.lost_leadership && self.queues.is_empty() && !self.delivery.has_batch()
    }

    /// Whether there are queues that no other listener can find, and that are not at their ends.
    #[must_use]
    pub(crate) fn has_vanished_queues(&self) -> bool {
        self.lost_leadership && !self.queues.is_empty()
    }

    /// Whether this queue is one of those that it reads.
    #[must_use]
    pub fn reads(&self, file: &QueueFile) -> bool {
        self.queues.iter().any(|queue| std::ptr::eq(&raw const *queue.file, file))
    }

    /// Checks whether the lock still has its name in the directory. If not, queues that have their names belong to the
    /// next leader.
    fn check_leadership(&mut self) {
        let Some((lock, path)) = &self.lock else { return };
        if !self.lost_leadership && !lock.is_named(path) {
            self.lost_leadership = true;
        }
        if self.lost_leadership && !self.delivery.has_batch() {
            self.queues.retain(|queue| queue.file.has_vanished());
        }
    }

    /// Closes queues that no other listener can find any more: their owners continue in new ones, which are found, and
    /// these are read to their ends.
    fn close_vanished(&self) {
        let vanished = self.queues.iter().filter(|queue| !queue.is_ending() && queue.file.has_vanished());
        vanished.for_each(|queue| queue.file.ring().close());
    }

    /// Writes a sign of life into each queue. A queue that another reader has taken is dropped, once the batch with its
    /// records is done.
    fn keep_queues(&mut self, now: Now) {
        let may_drop = !self.delivery.has_batch();
        self.queues.retain(|queue| queue.keep(now.monotonic) || !may_drop);
    }

    /// Does one round. With `force`, writes everything that is there without waiting for the interval.
    pub fn round(&mut self, now: Now, force: bool) -> Round {
        let page = self.control.page();
        page.heartbeat_unix_nano.store(now.unix_nano, Ordering::Relaxed);
        page.heartbeat_monotonic_nano.store(now.monotonic.as_nanos() as u64, Ordering::Relaxed);
        let requests = self.control.flush_requests();
        let force = force || requests != self.flushes_done;
        self.keep_queues(now);
        self.scan(now, force);
        if !self.settle_predecessor(now) {
            return Round::Idle(LOOK_INTERVAL);
        }
        if self.delivery.has_batch() {
            let round = self.write(now);
            if self.delivery.has_batch() {
                self.read_for_copies(now);
            }
            return round;
        }
        self.delivery.check_sinks(now);
        if !force && !self.is_due(now) {
            return Round::Idle(self.pause(now));
        }
        self.fill_batch(now);
        if self.delivery.has_batch() {
            return self.write(now);
        }
        self.release();
        self.flushes_done = requests;
        self.last_flush = now.monotonic;
        Round::Idle(self.settings.flush_interval.min(IDLE_INTERVAL))
    }

    fn scan(&mut self, now: Now, force: bool) {
        if (!force || self.delivery.has_batch())
            && self.last_scan.is_some_and(|last| now.monotonic < last + RESCAN_INTERVAL)
        {
            return;
        }
        let first = self.last_scan.replace(now.monotonic).is_none();
        self.check_leadership();
        self.close_vanished();
        let listed =
            if self.lost_leadership { Ok(Vec::new()) } else { queue_file::list(&self.settings.queue_directory) };
        for path in listed.unwrap_or_default() {
            if !self.queues.iter().any(|queue| queue.file.path == path) && !self.left_to_others.contains(&path) {
                // A file that cannot be attached (foreign version, vanished, read by another listener) is left alone
                // and tried again.
                let is_copy = self.is_copy && first;
                let Ok(mut queue) = QueueReader::open(&path, self.reader, now.monotonic, is_copy) else { continue };
                if let Some(series) = &self.encoder.series {
                    queue.trust_counted(series.generation());
                }
                self.queues.push(queue);
            }
        }
        if first && !self.lost_leadership {
            queue_file::remove_unfinished(&self.settings.queue_directory);
        }
        for queue in &mut self.queues {
            queue.look_after_owner();
        }
    }

    fn is_due(&self, now: Now) -> bool {
        let settings = &self.settings;
        let unread: u64 = self.queues.iter().map(QueueReader::unread).sum();
        let bytes: u64 = self.queues.iter().map(|queue| u64::from(queue.file.ring().used_words()) * 8).sum();
        unread >= settings.flush_records
            || bytes >= settings.flush_bytes as u64
            || now.monotonic >= self.last_flush + settings.flush_interval
            || self.queues.iter().any(QueueReader::has_work)
            || self.delivery.has_notices()
    }

    fn pause(&self, now: Now) -> Duration {
        let until_flush = (self.last_flush + self.settings.flush_interval).saturating_sub(now.monotonic);
        until_flush.min(IDLE_INTERVAL)
    }

    /// While a batch waits long for the primary: gives additional sinks the records that came since.
    fn read_for_copies(&mut self, now: Now) {
        if self.delivery.has_copies() && self.delivery.is_held_since(now, self.settings.flush_interval) {
            let batch = self.copy_reader.read(&self.queues, self.settings.flush_bytes);
            self.delivery.copy(batch);
        }
    }

    fn fill_batch(&mut self, now: Now) {
        // The first queue of the last round is the last one now: a busy process cannot starve the others.
        if !self.queues.is_empty() {
            self.queues.rotate_left(1);
        }
        let bytes = self.settings.flush_bytes;
        // Records that additional sinks have already go into batches of their own.
        let is_copied = self.delivery.has_copies() && self.queues.iter().any(QueueReader::is_behind_copies);
        let mut batch = self.delivery.begin_batch(bytes + (bytes >> 2), !is_copied);
        self.notices = batch.records;
        let mut records = 0;
        for queue in &mut self.queues {
            if is_copied {
                records += queue.read_copied_into(&mut batch.lines, bytes, &mut self.encoder);
            } else {
                queue.end_requests();
                batch.records += queue.report(&mut batch.lines, &mut self.encoder, now.unix_nano);
                records += queue.read_into(&mut batch.lines, Room::of_bytes(bytes), &mut self.encoder);
            }
        }
        batch.records += records;
        self.delivered.note_batch(&batch, records);
        if self.delivery.has_copies() && !is_copied {
            self.queues.iter().for_each(QueueReader::note_copied);
        }
        self.delivery.take(batch, !is_copied, now);
    }

    fn write(&mut self, now: Now) -> Round {
        let queues = &self.queues;
        let spans =
            || segment_account::spans_json(queues.iter().filter_map(QueueReader::span).collect::<Vec<_>>().iter());
        match self.delivery.step(now, &spans) {
            DeliveryStep::Done { .. } => {
                self.delivered.count_batch();
                self.release();
                Round::Wrote
            }
            DeliveryStep::Waiting(pause) => Round::Idle(pause),
        }
    }

    fn release(&mut self) {
        attached::release_all(&mut self.queues, &mut self.encoder);
        let (ended, totals) = (&mut self.ended, &self.control.page().totals);
        self.queues.retain(|queue| {
            let finished = queue.is_finished().then(|| queue.finish(totals)).flatten();
            let stays = finished.is_none();
            ended.extend(finished);
            stays
        });
        let surplus = self.ended.len().saturating_sub(REMEMBERED_COUNTS);
        self.ended.drain(..surplus);
    }

    /// Whether a batch is not written, or a queue is closed or orphaned and not at its end. Records that live processes
    /// still emit are for the next leader.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.delivery.has_batch() || self.queues.iter().any(QueueReader::has_work)
    }

    /// Releases the records of an unfinished batch that a sink already has: the next leader must not write them.
    fn release_written(&mut self, lines: u64) {
        let (mut left, mut from_queues) = (lines.saturating_sub(self.notices), 0);
        self.encoder.forget_observed(0);
        // In the order of the batch: queues that came later are at the end.
        for queue in &mut self.queues {
            let (reported, records) = queue.reread_lines(left, &mut self.encoder);
            (left, from_queues) = (left - reported - records, from_queues + records);
        }
        self.delivered.count_part(lines, from_queues);
        attached::release_all(&mut self.queues, &mut self.encoder);
    }

    /// Writes a report about removed segments, while `goes_on`; returns whether a sink has it.
    pub fn report_removed(&mut self, report: &(u8, Scratch), goes_on: &dyn Fn() -> bool) -> bool {
        self.delivery.note_removed(report, Now::read());
        while self.delivery.has_notices() || self.delivery.has_batch() {
            if !goes_on() {
                return false;
            }
            if let Round::Idle(pause) = self.round(Now::read(), true) {
                self.wait(pause.min(LOOK_INTERVAL));
            }
        }
        true
    }

    /// The end is near, in `left`: tries failing sinks again at once, and waits less long for the fallback.
    pub fn hurry(&mut self, left: Duration) {
        self.delivery.hurry(left / 2);
    }

    /// Ends the output with a footer that carries every process's counts, in every sink that answers.
    pub fn close(mut self, now: Now) {
        if !self.unsettled.is_empty() {
            // Nothing is written here, and the next leader examines what the last one wrote.
            return;
        }
        if self.delivery.has_batch() {
            let written = self.delivery.written_lines();
            if self.delivery.wait_written(now, CLOSING_PATIENCE) {
                self.delivered.count_batch();
                self.release();
            } else if self.delivery.written_lines().max(written) > 0 {
                self.release_written(self.delivery.written_lines());
            }
        }
        let counts: Vec<QueueCounts> =
            self.ended.iter().cloned().chain(self.queues.iter().map(QueueReader::counts)).collect();
        self.delivery.close(now, segment_account::processes_json(&counts).as_bytes(), CLOSING_PATIENCE);
    }

    /// CPU time of the sinks' threads.
    #[must_use]
    pub(crate) fn sinks_cpu_nano(&self) -> u64 {
        self.delivery.cpu_nano()
    }

    /// Waits until `pause` has passed or a producer calls.
    pub fn wait(&self, pause: Duration) {
        if self.delivery.has_batch() || !self.unsettled.is_empty() {
            // Before the next try, a producer's wake-up does not help: only a sink's answer or the end of the thread
            // does. The rounds go on meanwhile: a failing sink is not a listener that hangs.
            return std::thread::park_timeout(pause.min(LOOK_INTERVAL));
        }
        let asked = self.flushes_done;
        self.control.wait(pause, || self.control.flush_requests() != asked);
    }
}
