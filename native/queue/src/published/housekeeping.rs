//! The counts of housekeeping in a queue directory: shared words, only ever added to, by the leader's process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why segments were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Age = 0,
    Quota = 1,
    /// The quota, before a shipper was done with it.
    Unshipped = 2,
}

impl Reason {
    /// The name in records and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Quota => "quota",
            Self::Unshipped => "unshipped",
        }
    }
}

/// Every reason.
pub const REASONS: [Reason; 3] = [Reason::Age, Reason::Quota, Reason::Unshipped];

crate::shared! {
    /// The words, in the control page.
    #[derive(Debug, Default)]
    pub struct HousekeepingWords {
        /// Segments removed, by [`Reason`].
        pub segments_removed: [AtomicU64; REASONS.len()],
        /// Bytes that those had on disk.
        pub removed_bytes: [AtomicU64; REASONS.len()],
        /// The part of these that was reported: the next leader reports the removals that a process did not live to
        /// report.
        reported_segments: [AtomicU64; REASONS.len()],
        reported_bytes: [AtomicU64; REASONS.len()],
        pub segments_compressed: AtomicU64,
        /// Bytes of those segments before and after.
        pub compressed_from_bytes: AtomicU64,
        pub compressed_to_bytes: AtomicU64,
        /// Removals and compressions that failed.
        pub errors: AtomicU64,
    }
}

impl HousekeepingWords {
    /// Segments that were removed and never reported, and their bytes, by [`Reason`]; their names are lost.
    #[must_use]
    pub fn unreported(&self) -> [(u64, u64); REASONS.len()] {
        let left = |all: &AtomicU64, reported: &AtomicU64| {
            all.load(Ordering::Relaxed).saturating_sub(reported.load(Ordering::Relaxed))
        };
        std::array::from_fn(|reason| {
            let segments = left(&self.segments_removed[reason], &self.reported_segments[reason]);
            (segments, left(&self.removed_bytes[reason], &self.reported_bytes[reason]))
        })
    }

    /// Notes that so many segments of so many bytes were reported.
    pub fn count_reported(&self, reason: Reason, segments: u64, bytes: u64) {
        self.reported_segments[reason as usize].fetch_add(segments, Ordering::Relaxed);
        self.reported_bytes[reason as usize].fetch_add(bytes, Ordering::Relaxed);
    }
}
