//! What housekeeping has done in a queue directory: shared words, only ever added to, by the leader's process.

use crate::retention::{REASONS, Reason, Removed};
use std::sync::atomic::{AtomicU64, Ordering};

/// The words, in the control page.
#[derive(Debug, Default)]
#[repr(C)]
pub struct HousekeepingWords {
    /// Segments removed, by [`Reason`].
    pub segments_removed: [AtomicU64; REASONS.len()],
    /// Bytes that those had on disk.
    pub removed_bytes: [AtomicU64; REASONS.len()],
    /// How much of that was told: what a process that ended could not tell is told by the next leader.
    told_segments: [AtomicU64; REASONS.len()],
    told_bytes: [AtomicU64; REASONS.len()],
    pub segments_compressed: AtomicU64,
    /// Bytes of those segments before and after.
    pub compressed_from_bytes: AtomicU64,
    pub compressed_to_bytes: AtomicU64,
    /// Removals and compressions that failed.
    pub errors: AtomicU64,
}

impl HousekeepingWords {
    /// What was removed and never told; names are not known any more.
    #[must_use]
    pub fn untold(&self) -> [Removed; REASONS.len()] {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        REASONS.map(|reason| Removed {
            segments: load(&self.segments_removed[reason as usize])
                .saturating_sub(load(&self.told_segments[reason as usize])),
            bytes: load(&self.removed_bytes[reason as usize]).saturating_sub(load(&self.told_bytes[reason as usize])),
            ..Removed::default()
        })
    }

    /// Notes that so much was told.
    pub fn count_told(&self, reason: Reason, removed: &Removed) {
        self.told_segments[reason as usize].fetch_add(removed.segments, Ordering::Relaxed);
        self.told_bytes[reason as usize].fetch_add(removed.bytes, Ordering::Relaxed);
    }
}
