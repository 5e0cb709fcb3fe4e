//! Counts of a queue directory that never go back: the counts of ended queues stay in the control page.
//!
//! A queue file is removed once everything in it is written. Before that its counts are added to the totals, exactly
//! once: the adding process holds `totals.lock`, the sum and the queue's boot id change in one step ([`Generation`]),
//! and then the queue's header is marked. A process that dies between the two leaves a queue whose boot id is the last
//! one added, which the next adding process marks; a process that dies before the removal leaves a marked queue. Readers
//! recognise both.

use crate::layout::{Dropped, DroppedCounts, LEVELS, REASONS, SAMPLED_OUT};
use crate::lock::{Attempt, Holder, ProcessLock};
use crate::queue_file::{self, QueueFile};
use crate::shared_page::Generation;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long to wait for another process that is adding right now; it needs microseconds.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_micros(500);

crate::shared! {
    /// Counts of all queues of a directory that have ended, in the control page.
    pub struct TotalsWords {
        generation: Generation,
        copies: [EndedWords; 2],
    }
}

crate::shared! {
    struct EndedWords {
        /// The queue that was added last.
        last_boot_id: AtomicU64,
        queues: AtomicU64,
        accepted: AtomicU64,
        written: AtomicU64,
        hot_path_nano: AtomicU64,
        in_flight_missed: AtomicU64,
        producer_deaths: AtomicU64,
        sampled_out: [AtomicU64; SAMPLED_OUT.len()],
        dropped: Dropped,
    }
}

/// The counts of a queue directory since it was created, or of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Queues, ended ones included.
    pub queues: u64,
    pub accepted: u64,
    pub written: u64,
    /// What the request path has spent in the middleware, estimated from every 64th request.
    pub hot_path_nano: u64,
    /// Requests that began while every slot was taken.
    pub in_flight_missed: u64,
    /// Ended queues whose owner died without closing them.
    pub producer_deaths: u64,
    pub sampled_out: [u64; SAMPLED_OUT.len()],
    pub dropped: DroppedCounts,
}

impl Totals {
    /// The counts of one queue.
    #[must_use]
    pub fn of(file: &QueueFile) -> Self {
        let (counts, header) = (file.counts(), file.header());
        Self {
            queues: 1,
            accepted: counts.accepted,
            written: counts.written,
            hot_path_nano: header.hot_path_nano.load(Ordering::Relaxed),
            in_flight_missed: header.in_flight_missed.load(Ordering::Relaxed),
            producer_deaths: 0,
            sampled_out: counts.sampled_out,
            dropped: counts.dropped,
        }
    }

    fn add(&mut self, other: &Self) {
        // Wraps, as sequences do: a damaged header must not stop the listener.
        for (sum, more) in [
            (&mut self.queues, other.queues),
            (&mut self.accepted, other.accepted),
            (&mut self.written, other.written),
            (&mut self.hot_path_nano, other.hot_path_nano),
            (&mut self.in_flight_missed, other.in_flight_missed),
            (&mut self.producer_deaths, other.producer_deaths),
        ] {
            *sum = sum.wrapping_add(more);
        }
        for (sum, more) in self.sampled_out.iter_mut().zip(&other.sampled_out) {
            *sum = sum.wrapping_add(*more);
        }
        for (sum, more) in self.dropped.iter_mut().flatten().zip(other.dropped.iter().flatten()) {
            *sum = sum.wrapping_add(*more);
        }
    }
}

impl EndedWords {
    fn load(&self) -> Totals {
        Totals {
            queues: self.queues.load(Ordering::Relaxed),
            accepted: self.accepted.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            hot_path_nano: self.hot_path_nano.load(Ordering::Relaxed),
            in_flight_missed: self.in_flight_missed.load(Ordering::Relaxed),
            producer_deaths: self.producer_deaths.load(Ordering::Relaxed),
            sampled_out: self.sampled_out.each_ref().map(|count| count.load(Ordering::Relaxed)),
            dropped: self.dropped.snapshot(),
        }
    }

    fn store(&self, totals: &Totals, boot_id: u64) {
        self.last_boot_id.store(boot_id, Ordering::Relaxed);
        self.queues.store(totals.queues, Ordering::Relaxed);
        self.accepted.store(totals.accepted, Ordering::Relaxed);
        self.written.store(totals.written, Ordering::Relaxed);
        self.hot_path_nano.store(totals.hot_path_nano, Ordering::Relaxed);
        self.in_flight_missed.store(totals.in_flight_missed, Ordering::Relaxed);
        self.producer_deaths.store(totals.producer_deaths, Ordering::Relaxed);
        for (word, count) in self.sampled_out.iter().zip(&totals.sampled_out) {
            word.store(*count, Ordering::Relaxed);
        }
        for reason in REASONS {
            for level in 0..LEVELS.len() {
                let count = totals.dropped[reason as usize][level];
                self.dropped.0[reason as usize][level].store(count, Ordering::Relaxed);
            }
        }
    }

    /// Whether these totals include the counts of the queue already.
    fn holds(&self, file: &QueueFile) -> bool {
        let header = file.header();
        header.added_to_totals.load(Ordering::Acquire) != 0
            || self.last_boot_id.load(Ordering::Relaxed) == header.boot_id
    }
}

impl TotalsWords {
    /// Adds the counts of a queue of this directory. The caller holds the lock.
    fn add(&self, directory: &Path, boot_id: u64, queue: &Totals) {
        self.mark_last(directory);
        self.generation.change(|from, to| {
            let mut sum = self.copies[from].load();
            sum.add(queue);
            self.copies[to].store(&sum, boot_id);
        });
    }

    /// Marks the queue that was added last, if it is still there: who added it may have died before the mark, and once
    /// another queue is the last one, only the mark says that this one is added.
    fn mark_last(&self, directory: &Path) {
        let last = self.generation.read(|copy| self.copies[copy].last_boot_id.load(Ordering::Relaxed));
        if let Ok(file) = open(&queue_file::path_of(directory, last)) {
            file.header().added_to_totals.store(1, Ordering::Release);
        }
    }
}

/// Adds the counts of an ended queue to the totals of its directory, unless they are in there. Returns whether they
/// are; if not, the file must stay.
#[must_use]
pub fn add_ended(words: &TotalsWords, file: &QueueFile) -> bool {
    let Some(directory) = file.path.parent() else { return false };
    let Some(_alone) = lock(directory) else { return false };
    if !words.generation.read(|copy| words.copies[copy].holds(file)) {
        let is_server = file.header().only_listens.load(Ordering::Relaxed) == 0;
        let producer_deaths = u64::from(is_server && file.has_died());
        let queue = Totals { producer_deaths, ..Totals::of(file) };
        words.add(directory, file.header().boot_id, &queue);
        if producer_deaths > 0 {
            note_death(file);
        }
    }
    file.header().added_to_totals.store(1, Ordering::Release);
    true
}

/// The beginning of the names of the notes about dead producers that have a name.
const DEAD: &str = "dead-";

/// Leaves a note in the directory, until a producer of that name is there again.
fn note_death(file: &QueueFile) {
    let name = file.header().producer_name();
    if let (false, Some(directory)) = (name.is_empty(), file.path.parent()) {
        // Without the note, only the counter and the record report the death.
        let _ = std::fs::write(directory.join(note_of(&name)), name);
    }
}

/// Removes the note of a producer that is there again.
pub fn forget_death(directory: &Path, name: &str) {
    let _ = std::fs::remove_file(directory.join(note_of(name)));
}

/// The sorted names of the producers that have died and are not there again.
#[must_use]
pub fn dead_producers(directory: &Path) -> Vec<String> {
    let notes = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let notes = notes.filter(|note| note.file_name().to_string_lossy().starts_with(DEAD));
    let mut names: Vec<String> = notes.filter_map(|note| std::fs::read_to_string(note.path()).ok()).collect();
    let here = |name: &str| {
        let files = queue_file::list(directory).unwrap_or_default();
        files.iter().filter_map(|path| open(path).ok()).any(|file| {
            file.header().producer_name() == name
                && !file.ring().is_closed()
                && Holder::of(&file.path) != Holder::Nobody
        })
    };
    names.retain(|name| !here(name));
    names.sort();
    names
}

fn note_of(name: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let plain: String = name.bytes().map(|byte| if is_plain(&byte) { char::from(byte) } else { '_' }).collect();
    format!("{DEAD}{plain}")
}

/// Adds a queue of a file without even a readable header: the counts that its last reader knows.
pub fn add_lost(words: &TotalsWords, directory: &Path, boot_id: u64, known: &Totals) -> bool {
    let Some(_alone) = lock(directory) else { return false };
    words.add(directory, boot_id, known);
    true
}

/// The right to add, alone. In a removed directory no lock is needed.
enum TotalsLock {
    Locked {
        _lock: ProcessLock,
    },
    /// The directory was removed: later processes have another control page.
    NotNeeded,
}

fn lock(directory: &Path) -> Option<TotalsLock> {
    for _ in 0..LOCK_TRIES {
        match ProcessLock::try_acquire(&directory.join("totals.lock"), true) {
            Ok(Attempt::Acquired(lock)) => return Some(TotalsLock::Locked { _lock: lock }),
            Ok(_) => std::thread::sleep(LOCK_PAUSE),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(TotalsLock::NotNeeded),
            Err(_) => return None,
        }
    }
    None
}

/// Reads the counts of all queues of a directory, ended or not, each exactly once.
#[must_use]
pub fn of_directory(words: &TotalsWords, directory: &Path) -> Totals {
    words.generation.read(|copy| {
        let ended = &words.copies[copy];
        let mut sum = ended.load();
        // A queue that ends and vanishes meanwhile advances the generation, and everything is read again.
        for path in queue_file::list(directory).unwrap_or_default() {
            if let Ok(file) = open(&path)
                && !ended.holds(&file)
            {
                sum.add(&Totals::of(&file));
            }
        }
        sum
    })
}

fn open(path: &Path) -> io::Result<Arc<QueueFile>> {
    queue_file::owned_by_this_process(path).map_or_else(|| QueueFile::open(path), Ok)
}
