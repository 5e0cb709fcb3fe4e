//! The part of the page by which recording is compared with not recording on servers that serve.
//!
//! The command that compares switches recording off and on in slices. A request belongs to the arm in which it begins,
//! whenever it ends. Its times are taken alike in both arms, so what that costs is no part of the difference.
//!
//! ```text
//! 3072  number         of the comparison: a request of an earlier one is counted no more
//! 3080  counts until   monotonic nanoseconds; requests are counted, as long as the command renews it
//! 3088  off until      monotonic nanoseconds; nothing is recorded, as long as the command renews it
//! 3136  arms           2 × 8 words, off and on: requests begun; first chunks and their nanoseconds since the beginning;
//!                      later chunks and their nanoseconds since the one before
//! ```
//!
//! A command that is killed renews nothing: within [`RENEWED_FOR_NANO`] everything is recorded again.

use std::sync::atomic::{AtomicU64, Ordering};

/// How long a slice goes on without being renewed.
pub const RENEWED_FOR_NANO: u64 = 1_000_000_000;

queue::shared! {
    pub(super) struct Area {
        number: AtomicU64,
        counts_until: AtomicU64,
        off_until: AtomicU64,
        _pad: [AtomicU64; 5],
        arms: [Words; 2],
    }
}

queue::shared! {
    struct Words {
        requests: AtomicU64,
        first_chunks: AtomicU64,
        first_chunks_nano: AtomicU64,
        later_chunks: AtomicU64,
        later_chunks_nano: AtomicU64,
        _pad: [AtomicU64; 3],
    }
}

const _: () = assert!(std::mem::offset_of!(Area, arms) == 64 && size_of::<Words>() == 64);

/// The side of a comparison to which a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// Not recorded.
    Off = 0,
    On = 1,
}

/// The counts of one arm since the comparison began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmCounts {
    /// Requests that have begun.
    pub requests: u64,
    pub first_chunks: u64,
    /// From the beginning of each request to its first chunk, together.
    pub first_chunks_nano: u64,
    pub later_chunks: u64,
    /// From the chunk before to each later chunk, together.
    pub later_chunks_nano: u64,
}

impl Area {
    /// The arm of a request that begins at `now` (monotonic nanoseconds); None: no command counts.
    pub(super) fn arm(&self, now: u64) -> Option<Arm> {
        if now >= self.counts_until.load(Ordering::Relaxed) {
            return None;
        }
        Some(if now < self.off_until.load(Ordering::Relaxed) { Arm::Off } else { Arm::On })
    }

    pub(super) fn begin(&self) {
        self.hold(0, false);
        self.number.fetch_add(1, Ordering::Relaxed);
        for arm in &self.arms {
            for word in arm.all() {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn hold(&self, until: u64, is_off: bool) {
        // First this one: a request that sees both sees no slice that is off and not counted.
        self.counts_until.store(until, Ordering::Relaxed);
        self.off_until.store(if is_off { until } else { 0 }, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> [ArmCounts; 2] {
        [Arm::Off, Arm::On].map(|arm| {
            let [requests, first_chunks, first_chunks_nano, later_chunks, later_chunks_nano] =
                self.arms[arm as usize].all().map(|word| word.load(Ordering::Relaxed));
            ArmCounts { requests, first_chunks, first_chunks_nano, later_chunks, later_chunks_nano }
        })
    }
}

impl Words {
    fn all(&self) -> [&AtomicU64; 5] {
        let Self { requests, first_chunks, first_chunks_nano, later_chunks, later_chunks_nano, _pad } = self;
        [requests, first_chunks, first_chunks_nano, later_chunks, later_chunks_nano]
    }
}

/// The place of a request in a comparison.
#[derive(Clone, Copy)]
pub struct Compared {
    area: &'static Area,
    number: u64,
    arm: Arm,
}

impl std::fmt::Debug for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compared({:?} of {})", self.arm, self.number)
    }
}

impl Compared {
    pub(super) fn new(area: &'static Area, arm: Arm) -> Self {
        Self { area, number: area.number.load(Ordering::Relaxed), arm }
    }

    /// Counts requests that begin.
    pub fn count(&self, requests: u64) {
        self.add(|words| &words.requests, requests);
    }

    fn add(&self, word: impl Fn(&Words) -> &AtomicU64, value: u64) {
        if self.area.number.load(Ordering::Relaxed) == self.number {
            word(&self.area.arms[self.arm as usize]).fetch_add(value, Ordering::Relaxed);
        }
    }
}

/// The times of one request of a comparison, in monotonic nanoseconds.
#[derive(Debug)]
pub struct RequestTimer {
    compared: Compared,
    /// Its beginning; then its last chunk.
    last: u64,
    has_begun_answer: bool,
    has_ended: bool,
}

impl RequestTimer {
    /// Begins a request at `now`, and counts it.
    #[must_use]
    pub fn begin(compared: Compared, now: u64) -> Self {
        compared.count(1);
        Self { compared, last: now, has_begun_answer: false, has_ended: false }
    }

    /// A part of the answer passes at `now`, the last one without `more` after it. One without content is no chunk,
    /// unless it is the whole answer.
    pub fn part(&mut self, has_content: bool, more: bool, now: u64) {
        let is_whole = !more && !self.has_begun_answer;
        if self.has_ended || !(has_content || is_whole) {
            return;
        }
        let nano = now.saturating_sub(self.last);
        if std::mem::replace(&mut self.has_begun_answer, true) {
            self.compared.add(|words| &words.later_chunks, 1);
            self.compared.add(|words| &words.later_chunks_nano, nano);
        } else {
            self.compared.add(|words| &words.first_chunks, 1);
            self.compared.add(|words| &words.first_chunks_nano, nano);
        }
        (self.last, self.has_ended) = (now, !more);
    }
}
