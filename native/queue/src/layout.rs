//! Byte layout of a queue file, version 3.
//!
//! ```text
//!      0  header      one page: what the file is, who owns it, ring control words, counters ([`QueueHeader`])
//!   4096  schemas     61,440 bytes: event schemas, appended once each, `schemas_len` bytes are valid
//!  65536  slots       `slot_count` of 2048 bytes: the requests in flight (`flight`)
//!         data        from the next page on ([`data_offset`]): `data_bytes` of ring words, a power of two
//! ```
//! Pages are those of the machine that has created the file, so that it can give the data back to the system on their own;
//! the header notes their size. Another machine may have other pages: it reads the file as it is.
//!
//! Little-endian, as every platform this builds for. A change bumps [`VERSION`] and the golden bytes in
//! `request/tests/golden_layout.rs`, and the numbers in `tests/c/layout.c`.

use ring::slots::SLOT_BYTES;
use std::fmt;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU64, Ordering};

pub const MAGIC: u64 = u64::from_le_bytes(*b"INFLOGQ\0");
pub const VERSION: u32 = 3;
pub const HEADER_BYTES: usize = 4096;
pub const SCHEMAS_OFFSET: usize = HEADER_BYTES;
pub(crate) const SCHEMAS_BYTES: usize = 61_440;
pub const SLOTS_OFFSET: usize = SCHEMAS_OFFSET + SCHEMAS_BYTES;
pub const MAX_SLOTS: u32 = 65_536;
/// The sizes that pages have on Linux: 4 KiB to 64 KiB. A file without a note is of a time when 4 KiB were taken for granted.
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 4096..=65_536;
pub(crate) const MIN_DATA_BYTES: u64 = 65_536;
pub(crate) const MAX_DATA_BYTES: u64 = 8 << 30;

/// Where the data begin: at a page of `page_bytes`, behind the slots.
#[must_use]
pub const fn data_offset(slot_count: u32, page_bytes: u32) -> usize {
    SLOTS_OFFSET + (slot_count as usize * SLOT_BYTES).next_multiple_of(page_bytes as usize)
}

/// Whether a machine can have such pages.
#[must_use]
pub(crate) fn is_page_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && PAGE_SIZES.contains(&bytes)
}

/// Why a record did not reach a segment; the index of its row in [`Dropped`], and its name in metrics and records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Reason {
    /// The queue was filled past the limit for the record's severity.
    QueueFull = 0,
    /// The record is larger than `max_record_bytes`.
    Oversize = 1,
    /// The queue was closed before the record came.
    AlreadyShutdown = 2,
    /// Still in the queue when the drain's deadline passed.
    ShutdownDeadline = 3,
    /// Reserved by a process that died before it committed.
    Torn = 4,
    /// The words in the queue file or the payload could not be read.
    Corrupt = 5,
    /// The process has no queue: it could not be created after a fork.
    NoQueue = 6,
    /// The values do not fit the event's field list.
    SerializeError = 7,
}

/// Severity as OpenTelemetry counts it, folded to the six short names.
pub const LEVELS: [&str; 6] = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"];
pub const REASONS: [Reason; 8] = [
    Reason::QueueFull,
    Reason::Oversize,
    Reason::AlreadyShutdown,
    Reason::ShutdownDeadline,
    Reason::Torn,
    Reason::Corrupt,
    Reason::NoQueue,
    Reason::SerializeError,
];

impl Reason {
    /// The `reason` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Oversize => "oversize",
            Self::AlreadyShutdown => "already_shutdown",
            Self::ShutdownDeadline => "shutdown_deadline",
            Self::Torn => "torn",
            Self::Corrupt => "corrupt",
            Self::NoQueue => "no_queue",
            Self::SerializeError => "serialize_error",
        }
    }
}

/// Index into [`LEVELS`] of an OpenTelemetry severity number (1–24).
#[inline]
#[must_use]
pub const fn level_index(severity: u8) -> usize {
    match severity {
        0..=4 => 0,
        5..=8 => 1,
        9..=12 => 2,
        13..=16 => 3,
        17..=20 => 4,
        _ => 5,
    }
}

crate::shared! {
    /// Records that did not reach a segment, by reason and level.
    pub struct Dropped(pub [[AtomicU64; LEVELS.len()]; REASONS.len()]);
}

impl Dropped {
    /// One counter.
    #[must_use]
    pub const fn of(&self, reason: Reason, severity: u8) -> &AtomicU64 {
        &self.0[reason as usize][level_index(severity)]
    }

    /// Counts `records` more.
    pub fn add(&self, reason: Reason, severity: u8, records: u64) {
        self.of(reason, severity).fetch_add(records, Ordering::Relaxed);
    }

    /// Moves what is counted here to other counters.
    pub fn move_to(&self, other: &Self) {
        self.0.iter().flatten().zip(other.0.iter().flatten()).for_each(|(from, to)| move_count(from, to));
    }

    /// Reads all counters.
    #[must_use]
    pub fn snapshot(&self) -> DroppedCounts {
        std::array::from_fn(|reason| std::array::from_fn(|level| self.0[reason][level].load(Ordering::Relaxed)))
    }
}

crate::shared! {
    /// Records that were refused in processes without a queue, by level.
    pub struct RefusedWithoutQueue([AtomicU64; LEVELS.len()]);
}

impl RefusedWithoutQueue {
    /// Counts one more.
    pub fn add(&self, severity: u8) {
        self.0[level_index(severity)].fetch_add(1, Ordering::Relaxed);
    }

    /// Takes over what a process has counted before, whatever the reason was.
    pub(crate) fn take_from(&self, counted: &Dropped) {
        for levels in &counted.0 {
            levels.iter().zip(&self.0).for_each(|(from, to)| move_count(from, to));
        }
    }

    /// Moves what is counted here to a queue's counters.
    pub fn move_to(&self, queue: &Dropped) {
        let to = &queue.0[Reason::NoQueue as usize];
        self.0.iter().zip(to).for_each(|(from, to)| move_count(from, to));
    }
}

/// Most counters are zero, and stay untouched.
fn move_count(from: &AtomicU64, to: &AtomicU64) {
    if from.load(Ordering::Relaxed) > 0 {
        to.fetch_add(from.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// [`Dropped`] as plain numbers, `[reason][level]`.
pub type DroppedCounts = [[u64; LEVELS.len()]; REASONS.len()];

/// Returns the number of lost records. Those that missed the shutdown's deadline are still in the queue, and not lost.
#[must_use]
pub fn lost(dropped: &DroppedCounts) -> u64 {
    let reasons = dropped.iter().enumerate().filter(|(reason, _)| *reason != Reason::ShutdownDeadline as usize);
    // A foreign process can have written any number.
    reasons.flat_map(|(_, levels)| levels).fold(0, |sum, count| sum.wrapping_add(*count))
}

/// Why sampling left a record out; the index of its place in [`QueueHeader::sampled_out`], and its name in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum SampledOut {
    /// The configured ratio.
    Head = 0,
    /// The caller of the request did not sample its trace.
    Parent = 1,
    /// The call site offered more than its budget.
    Budget = 2,
    /// A probe or scrape that did not fail.
    Skipped = 3,
}

pub const SAMPLED_OUT: [SampledOut; 4] =
    [SampledOut::Head, SampledOut::Parent, SampledOut::Budget, SampledOut::Skipped];

impl SampledOut {
    /// The `reason` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Parent => "parent",
            Self::Budget => "budget",
            Self::Skipped => "skipped",
        }
    }
}

/// The first page of a queue file. Each group that one side writes has cache lines of its own.
#[repr(C)]
pub struct QueueHeader {
    pub magic: u64,
    pub version: u32,
    pub pid: u32,
    pub data_bytes: u64,
    /// Random, names this queue's life in every record.
    pub boot_id: u64,
    pub created_unix_nano: u64,
    /// Requests in flight that the slots area holds.
    pub slot_count: u32,
    /// Size of the pages of the machine that has created the file; 0: 4096.
    pub page_bytes: u32,
    /// Not 0 where the owner serves nothing: this queue holds only a listener's own reports.
    pub only_listens: AtomicU64,
    _pad0: [u64; 9],

    /// Written by producers: the ring's head word.
    pub head: AtomicU64,
    _pad1: [u64; 15],

    /// Written by the listener: the ring's tail word. Its sequence counts every record that was written, torn or corrupt.
    pub tail: AtomicU64,
    /// A release in progress, or equal to `tail`: set after the write, before the words are zeroed. A listener that
    /// dies in between leaves the rest to its successor to zero.
    pub releasing: AtomicU64,
    /// All 64 bits of a sequence at or shortly before the tail's.
    pub sequence_base: AtomicU64,
    /// Sum of all `dropped` that `log.dropped` records have reported so far.
    pub dropped_reported: AtomicU64,
    /// If the histograms are of this generation or later, they include the records below `counted_sequence`.
    pub counted_generation: AtomicU64,
    pub counted_sequence: AtomicU64,
    /// Not 0 once the counts of this queue, which has ended, are in the directory's totals.
    pub added_to_totals: AtomicU64,
    /// Additional sinks were given the records below this sequence.
    pub copied_sequence: AtomicU64,
    /// Not 0 once the last record about this queue, `process.ended`, is written.
    pub end_reported: AtomicU64,
    /// All torn and all corrupt records once the release in progress is done: set before `releasing`, so that the
    /// process that finishes a release counts the skipped records exactly once.
    pub unreadable: [AtomicU64; 2],
    /// `[ reader of the queue : 32 | its last sign of life, monotonic milliseconds : 32 ]`; 0: no reader.
    pub reader: AtomicU64,
    _pad2: [u64; 4],

    /// Bytes of the schema area that are valid.
    pub schemas_len: AtomicU64,
    /// Records that sampling left out, by [`SampledOut`]; neither accepted nor dropped.
    pub sampled_out: [AtomicU64; SAMPLED_OUT.len()],
    /// What the request path has spent in the middleware, estimated from every 64th request.
    pub hot_path_nano: AtomicU64,
    /// Requests that began while every slot was taken.
    pub in_flight_missed: AtomicU64,
    /// The owner's name, for reports of its death: text, filled up with zeroes.
    pub producer_name: [AtomicU64; PRODUCER_NAME_BYTES / 8],
    /// Requests that have a slot.
    pub in_flight: AtomicU64,

    pub dropped: Dropped,
}

const _: () = assert!(size_of::<QueueHeader>() <= HEADER_BYTES);
const _: () = assert!(offset_of!(QueueHeader, page_bytes) == 44);
const _: () = assert!(offset_of!(QueueHeader, head) == 128);
const _: () = assert!(offset_of!(QueueHeader, tail) == 256);
const _: () = assert!(offset_of!(QueueHeader, schemas_len) == 384);
const _: () = assert!(offset_of!(QueueHeader, dropped) == 512);
const _: () = assert!(size_of::<Dropped>() == 384);

/// What is wrong with a file that should be a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    Magic,
    Version(u32),
    Sizes,
    /// No machine has such pages.
    Pages(u32),
}

impl fmt::Display for BadHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => write!(f, "not a queue"),
            Self::Version(version) => write!(f, "a queue of version {version}, not {VERSION}"),
            Self::Sizes => write!(f, "not a queue: its sizes do not fit"),
            Self::Pages(bytes) => write!(f, "not a queue: pages of {bytes} bytes"),
        }
    }
}

/// Longest name of a producer.
pub(crate) const PRODUCER_NAME_BYTES: usize = 64;

impl QueueHeader {
    /// Gives the owner a name, cut to its place.
    pub fn set_producer_name(&self, name: &str) {
        let mut bytes = [0; PRODUCER_NAME_BYTES];
        let end = (0..=PRODUCER_NAME_BYTES.min(name.len())).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        for (word, bytes) in self.producer_name.iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// The owner's name; empty if it has none.
    #[must_use]
    pub fn producer_name(&self) -> String {
        let bytes: Vec<u8> =
            self.producer_name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// Counts one record that sampling left out.
    #[inline]
    pub fn count_sampled_out(&self, reason: SampledOut) {
        self.sampled_out[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The size of the pages that the file was made for.
    #[must_use]
    pub const fn page_bytes(&self) -> u32 {
        if self.page_bytes == 0 { *PAGE_SIZES.start() } else { self.page_bytes }
    }

    /// Checks what a reader must know before it trusts an offset.
    ///
    /// # Errors
    /// [`BadHeader`] says what differs from this version's layout.
    pub fn check(&self, file_bytes: u64) -> Result<(), BadHeader> {
        if self.magic != MAGIC {
            return Err(BadHeader::Magic);
        }
        if self.version != VERSION {
            return Err(BadHeader::Version(self.version));
        }
        if !is_page_size(self.page_bytes()) {
            return Err(BadHeader::Pages(self.page_bytes));
        }
        let sized = self.data_bytes.is_power_of_two() && (MIN_DATA_BYTES..=MAX_DATA_BYTES).contains(&self.data_bytes);
        let sized = sized && self.slot_count <= MAX_SLOTS;
        let is_whole = || file_bytes == data_offset(self.slot_count, self.page_bytes()) as u64 + self.data_bytes;
        if sized && is_whole() { Ok(()) } else { Err(BadHeader::Sizes) }
    }
}
