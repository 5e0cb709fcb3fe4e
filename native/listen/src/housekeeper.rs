//! The housekeeper: beside the leader, a thread of its own that removes segments beyond the limits and compresses sealed
//! ones, in rounds.
//!
//! Invariants:
//!
//! * One housekeeper at a time per directory and prefix, in whichever process: it holds `.{prefix}.housekeeping.lock`
//!   for a round, and a round without the lock does nothing.
//! * Removal comes before compression, because it frees the most on a full disk; one segment is compressed per round.
//! * Nothing disappears silently: each removal is counted in the control page and reported by a `segments.removed`
//!   record. The record is in the queue, and so survives this process, before the segment is removed; if the queue has
//!   no room, the record is tried again, by the next leader if necessary: the removal does not wait for it on a full
//!   disk.
//! * A closed queue takes no report, and so the threads remove nothing while it is drained. Its listener does the last
//!   round itself, and writes the reports into the log before it seals the segment.
//! * It works at the lowest priority, rests as long as it works, and no other thread ever waits for it.

use queue::control::Control;
use queue::event::{self, INFO, WARN};
use queue::lock::{Attempt, ProcessLock};
use queue::platform;
use queue::published::housekeeping::{HousekeepingWords, REASONS, Reason};
use queue::queue_file::QueueFile;
use queue::record::Scratch;
use queue::system::mask_signals;
use segments::compress::{self, Pace};
use segments::retention::{self, ClockSteps, Limits, Moment, Removed};
use segments::rotation::{Rotation, Rotations};
use segments::segment::SegmentName;
use segments::segment_account::spans_json;
use segments::segment_store::{Inventory, RealStore, Store, Stored};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Thread;
use std::time::{Duration, Instant};

const ROUND_INTERVAL: Duration = Duration::from_secs(5);
/// How often it checks whether the quota needs an earlier round: once this part of the quota was written since the last
/// one.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const PART_OF_QUOTA: u64 = 16;
/// How long nothing is compressed after an error: a full disk should not be filled again every five seconds.
const REST_AFTER_ERROR: Duration = Duration::from_secs(60);
/// Longest rest between two steps, and how long a stop waits for the thread.
const LONGEST_REST: Duration = Duration::from_millis(200);
/// The number of spans in one `segments.removed` record: some 6 KB.
const SPANS_PER_REPORT: usize = 64;
/// Nice value: the lowest priority, for processor and disk.
const NICE: libc::c_int = 19;

/// What is kept, and how.
#[derive(Clone, Debug)]
pub struct HousekeepingSettings {
    /// Directories of segments; each has the limits for itself.
    pub directories: Vec<PathBuf>,
    pub prefix: String,
    pub limits: Limits,
    pub compression: Option<Compression>,
    /// Names of the shippers that must have shipped a segment of a directory before it is removed for its age, and that
    /// directory.
    pub waits_for: (Vec<String>, PathBuf),
    /// Through this the sinks ask for the quota to be kept.
    pub rotations: Rotations,
}

impl HousekeepingSettings {
    /// Returns the settings; None if there is nothing to do.
    #[must_use]
    pub fn new(
        directories: Vec<PathBuf>,
        prefix: &str,
        limits: Limits,
        compression: Option<Compression>,
        waits_for: (Vec<String>, PathBuf),
    ) -> Option<Self> {
        let idle = limits.retention.is_zero() && limits.quota_bytes == 0 && compression.is_none();
        let rotations = Rotations::default();
        let own = Self { directories, prefix: prefix.to_owned(), limits, compression, waits_for, rotations };
        (!idle && !own.directories.is_empty()).then_some(own)
    }
}

/// How sealed segments are compressed.
#[derive(Clone, Copy, Debug)]
pub struct Compression {
    /// zstd's level.
    pub level: i32,
    /// Newest sealed segments that stay plain.
    pub keep_segments: usize,
}

/// Takes a report of removed segments; returns whether it was accepted.
pub(crate) type Report<'a> = &'a mut dyn FnMut(Reason, &Removed) -> bool;

/// The rounds, without a thread.
pub struct Rounds<S: Store = RealStore> {
    settings: HousekeepingSettings,
    words: &'static HousekeepingWords,
    store: S,
    /// Announced, and not reported yet.
    unreported: [Removed; REASONS.len()],
    /// Names of segments that were announced, and could not be removed yet.
    announced: HashSet<String>,
    /// Segments that cannot be compressed: only retention touches them.
    given_up: HashSet<SegmentName>,
    /// Unix nanoseconds before which nothing is compressed.
    rest_until: u64,
}

impl Rounds {
    /// Does one round at once, without a pace. For other crates, which else would each compile the rounds anew.
    pub fn once(settings: HousekeepingSettings, words: &'static HousekeepingWords, report: Report<'_>) {
        Self::new(settings, words, RealStore, Default::default()).round(Moment::read(), &mut |_| true, report);
    }
}

impl<S: Store> Rounds<S> {
    /// Prepares rounds on a given operating system; the first report is about `unreported`, which another process
    /// removed.
    pub fn new(
        settings: HousekeepingSettings,
        words: &'static HousekeepingWords,
        store: S,
        unreported: [Removed; REASONS.len()],
    ) -> Self {
        let (announced, given_up) = (HashSet::new(), HashSet::new());
        Self { settings, words, store, unreported, announced, given_up, rest_until: 0 }
    }

    /// Does one round in each directory; returns whether there may be more to compress.
    pub fn round(&mut self, now: Moment, pace: Pace<'_>, report: Report<'_>) -> bool {
        let mut more = false;
        for dir in self.settings.directories.clone() {
            match self.round_in(&dir, now, pace, report) {
                Ok(compressed) => more |= compressed,
                // No segment was written there yet, or the work was ended.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Interrupted) => {}
                Err(_) => self.count_error(now.unix_nano),
            }
        }
        more
    }

    fn round_in(&mut self, dir: &Path, now: Moment, pace: Pace<'_>, report: Report<'_>) -> io::Result<bool> {
        let lock = dir.join(format!(".{}.housekeeping.lock", self.settings.prefix));
        let Attempt::Acquired(lock) = ProcessLock::try_acquire(&lock, true)? else { return Ok(false) };
        let mut clock = lock.with_file(ClockSteps::read);
        clock.see(now);
        lock.with_file(|file| clock.write(file));
        let mut inventory = Inventory::take(&mut self.store, dir, &self.settings.prefix)?;
        for leftover in &inventory.leftovers {
            self.store.remove(leftover)?;
        }
        let Self { store, words, unreported, announced, .. } = self;
        let mut announce = |removed: Vec<(Reason, Removed)>| {
            for (reason, removed) in removed {
                if announced.insert(removed.newest.clone()) {
                    unreported[reason as usize].add(removed);
                }
            }
            report_all(words, unreported, report)
        };
        let mut goes_on = || pace(Duration::ZERO);
        let (shippers, shipped) = &self.settings.waits_for;
        let limits = (self.settings.limits, if dir == shipped { shippers.as_slice() } else { &[] });
        let outcome = retention::enforce(
            store,
            dir,
            &mut inventory,
            limits,
            (now.unix_nano, &clock),
            &mut goes_on,
            &mut announce,
        );
        for reason in REASONS {
            let at = reason as usize;
            words.segments_removed[at].fetch_add(outcome.segments[at], Ordering::Relaxed);
            words.removed_bytes[at].fetch_add(outcome.bytes[at], Ordering::Relaxed);
        }
        report_all(words, unreported, report);
        outcome.error.map_or(Ok(()), Err)?;
        self.announced.clear();
        self.compress_one(dir, &inventory, now.unix_nano, pace)
    }

    fn compress_one(&mut self, dir: &Path, inventory: &Inventory, now: u64, pace: Pace<'_>) -> io::Result<bool> {
        if now < self.rest_until {
            return Ok(false);
        }
        for stored in self.choose(dir, inventory, now)? {
            let Some(dead) = retention::lock_dead(&mut self.store, dir, stored, now)? else { continue };
            let Some(plain) = &dead.0 else { continue };
            let done = match (stored.compressed, self.settings.compression) {
                (None, Some(Compression { level, .. })) => {
                    compress::compress(&mut self.store, dir, &stored.name, plain, level, pace)
                }
                // An earlier compression stopped when both names were there.
                _ => compress::remove_plain(&mut self.store, dir, &stored.name, plain, pace).map(|()| None),
            };
            return self.account(stored, done).map(|()| true);
        }
        Ok(false)
    }

    /// Segments that are there in both forms, then those that should be compressed, the oldest first.
    fn choose<'a>(&mut self, dir: &Path, inventory: &'a Inventory, now: u64) -> io::Result<Vec<&'a Stored>> {
        let segments = &inventory.segments;
        let plain = || segments.iter().filter(|stored| stored.plain.is_some());
        let mut chosen: Vec<&Stored> = plain().filter(|stored| stored.compressed.is_some()).collect();
        if let Some(compression) = self.settings.compression {
            let older = self.without_newest(dir, segments, compression.keep_segments, now)?;
            chosen.extend(older.iter().filter(|stored| stored.plain.is_some() && stored.compressed.is_none()));
        }
        chosen.retain(|stored| !self.given_up.contains(&stored.name));
        Ok(chosen)
    }

    fn account(&mut self, stored: &Stored, done: io::Result<Option<(u64, u64)>>) -> io::Result<()> {
        match done {
            Ok(Some((from, to))) => {
                self.words.segments_compressed.fetch_add(1, Ordering::Relaxed);
                self.words.compressed_from_bytes.fetch_add(from, Ordering::Relaxed);
                self.words.compressed_to_bytes.fetch_add(to, Ordering::Relaxed);
                Ok(())
            }
            Ok(None) if stored.compressed.is_some() => Ok(()),
            Ok(None) => {
                self.given_up.insert(stored.name.clone());
                Ok(())
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    self.given_up.insert(stored.name.clone());
                }
                Err(error)
            }
        }
    }

    /// The segments that are older than the newest `keep` sealed ones.
    fn without_newest<'a>(
        &mut self,
        dir: &Path,
        segments: &'a [Stored],
        keep: usize,
        now: u64,
    ) -> io::Result<&'a [Stored]> {
        let (mut sealed, mut end) = (0, segments.len());
        while end > 0 && sealed < keep {
            end -= 1;
            sealed += usize::from(retention::lock_dead(&mut self.store, dir, &segments[end], now)?.is_some());
        }
        Ok(&segments[..end])
    }

    fn count_error(&mut self, now_unix_nano: u64) {
        self.words.errors.fetch_add(1, Ordering::Relaxed);
        self.rest_until = now_unix_nano + REST_AFTER_ERROR.as_nanos() as u64;
    }
}

/// Reports what was announced, as far as the reports are accepted; returns whether everything is reported.
fn report_all(words: &HousekeepingWords, unreported: &mut [Removed; REASONS.len()], report: Report<'_>) -> bool {
    for (reason, removed) in REASONS.into_iter().zip(unreported.iter_mut()) {
        while !removed.is_empty() {
            let part = removed.take(SPANS_PER_REPORT);
            if !report(reason, &part) {
                let more = std::mem::take(&mut removed.spans);
                *removed = part;
                removed.spans.extend(more);
                break;
            }
            words.count_reported(reason, part.segments, part.bytes);
        }
    }
    unreported.iter().all(Removed::is_empty)
}

/// The running threads: one for each directory, so that a directory that hangs delays no other.
pub struct Housekeeper {
    settings: Option<HousekeepingSettings>,
    words: &'static HousekeepingWords,
    stopping: Arc<AtomicBool>,
    threads: Vec<(PathBuf, Thread, Receiver<()>)>,
    rotations: Vec<Arc<Rotation>>,
}

impl Housekeeper {
    /// Starts the threads; reports go into `queue`. If a thread cannot be started, that is counted, and the leader goes
    /// on.
    #[must_use]
    pub fn start(settings: Option<&HousekeepingSettings>, control: Control, queue: &Arc<QueueFile>) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let directories = settings.map_or(&[][..], |settings| &settings.directories);
        let words = &control.page().housekeeping;
        let mut unreported = words.unreported().map(Removed::from);
        let rotations = directories.iter().filter_map(|dir| Some(settings?.rotations.of(dir))).collect();
        let each = directories.iter().filter_map(|dir| {
            let own = HousekeepingSettings { directories: vec![dir.clone()], ..settings?.clone() };
            let rounds = Rounds::new(own, words, RealStore, std::mem::take(&mut unreported));
            let started = spawn(rounds, control, Arc::clone(&stopping), Arc::clone(queue));
            words.errors.fetch_add(u64::from(started.is_err()), Ordering::Relaxed);
            started.ok().map(|(thread, ended)| (dir.clone(), thread, ended))
        });
        Self { threads: each.collect(), settings: settings.cloned(), words, stopping, rotations }
    }

    /// Ends the threads, then keeps the quota once more, on the caller's own: of what was drained since the queue was
    /// closed, no round has removed anything. `report` takes the reports in place of the queue.
    pub fn finish(mut self, goes_on: &dyn Fn() -> bool, report: Report<'_>) {
        let directories = self.end();
        let Some(settings) = self.settings.take().filter(|settings| settings.limits.quota_bytes > 0) else { return };
        let last = HousekeepingSettings { directories, compression: None, ..settings };
        let unreported = self.words.unreported().map(Removed::from);
        Rounds::new(last, self.words, RealStore, unreported).round(Moment::read(), &mut |_| goes_on(), report);
    }

    /// Ends the threads, and waits for them only as long as a step may take: their work can be interrupted anywhere.
    /// Returns the directories of those that have ended: the others hang in theirs.
    fn end(&mut self) -> Vec<PathBuf> {
        self.stopping.store(true, Ordering::Release);
        self.threads.iter().for_each(|(_, thread, _)| thread.unpark());
        for rotation in &self.rotations {
            let _ = rotation.ask();
        }
        let end = Instant::now() + LONGEST_REST;
        let mut threads = std::mem::take(&mut self.threads);
        threads.retain(|(_, _, ended)| {
            let left = end.saturating_duration_since(Instant::now());
            ended.recv_timeout(left) == Err(RecvTimeoutError::Disconnected)
        });
        threads.into_iter().map(|(directory, ..)| directory).collect()
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        self.end();
    }
}

fn spawn(
    rounds: Rounds,
    control: Control,
    stopping: Arc<AtomicBool>,
    queue: Arc<QueueFile>,
) -> io::Result<(Thread, Receiver<()>)> {
    let (alive, ended) = channel::<()>();
    let handle = std::thread::Builder::new().name("inference-house".into()).spawn(move || {
        mask_signals();
        // After every other thread, for the processor and for the disk.
        platform::lower_priority(NICE);
        run(rounds, control, &stopping, &queue);
        drop(alive);
    })?;
    Ok((handle.thread().clone(), ended))
}

fn run(mut rounds: Rounds, control: Control, stopping: &AtomicBool, queue: &QueueFile) {
    // Once the queue is closed, a removal could not be reported any more.
    let goes_on = || !stopping.load(Ordering::Acquire) && !queue.ring().is_closed();
    let bytes_written = || control.page().bytes_written.load(Ordering::Relaxed);
    let rotation = rounds.settings.directories.first().map(|dir| rounds.settings.rotations.of(dir)).unwrap_or_default();
    let much = rounds.settings.limits.quota_bytes.checked_div(PART_OF_QUOTA).filter(|part| *part > 0);
    rotation.begin();
    while goes_on() {
        let (begun, before, asked) = (Instant::now(), bytes_written(), rotation.asked());
        let is_due = || {
            much.is_some_and(|much| bytes_written().wrapping_sub(before) >= much) || begun.elapsed() >= ROUND_INTERVAL
        };
        let mut pace = |spent: Duration| {
            if !spent.is_zero() {
                // Only compression takes long, and it comes after the limits are kept; a sink that asks again does not
                // wait for it.
                rotation.answer(asked);
                rotation.wait(asked, spent.min(LONGEST_REST));
            }
            goes_on() && (spent.is_zero() || rotation.asked() == asked)
        };
        let more = rounds.round(Moment::read(), &mut pace, &mut |reason, removed| put(queue, reason, removed));
        rotation.answer(asked);
        while !more && goes_on() && !is_due() && rotation.asked() == asked {
            rotation.wait(asked, LOOK_INTERVAL);
        }
    }
    rotation.end();
}

/// Puts a report into this process's queue. A full queue refuses it: no record is lost, the report comes again.
fn put(queue: &QueueFile, reason: Reason, removed: &Removed) -> bool {
    let (severity, payload) = report_of(reason, removed);
    queue.put_report(event::SEGMENTS_REMOVED, severity, &payload)
}

/// The severity and the values of a `segments.removed` record.
pub(crate) fn report_of(reason: Reason, removed: &Removed) -> (u8, Scratch) {
    let mut payload = Scratch::new();
    payload.push_str(reason.name());
    payload.push_uint(removed.segments);
    payload.push_uint(removed.bytes);
    for name in [&removed.oldest, &removed.newest] {
        // Absent if another process removed them, and did not live to report them.
        if name.is_empty() { payload.push_absent() } else { payload.push_str(name) }
    }
    if removed.spans.is_empty() {
        payload.push_absent();
    } else {
        payload.push_json(spans_json(removed.spans.iter()).as_bytes());
    }
    // Removal by age is what the operator asked for; removal by quota may hit segments that were still needed.
    (if reason == Reason::Age { INFO } else { WARN }, payload)
}
