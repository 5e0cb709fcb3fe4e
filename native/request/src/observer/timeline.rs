//! The chunks of one stream: their number, their distances, and a capped list of the gaps (P12).

use crate::fields::{Gaps, Stream, Unwritten};
use crate::in_flight::terminal::seconds;

/// The times of one answer's chunks, in monotonic nanoseconds.
#[derive(Debug)]
pub struct Timeline {
    first: u64,
    last: u64,
    chunks: u64,
    gap_min: u64,
    gap_max: u64,
    gaps: Vec<u32>,
}

impl Timeline {
    pub const fn new() -> Self {
        Self { first: 0, last: 0, chunks: 0, gap_min: u64::MAX, gap_max: 0, gaps: Vec::new() }
    }

    /// Counts a chunk at `now`; keeps at most so many gaps.
    #[inline]
    pub fn chunk(&mut self, now: u64, gaps_limit: usize) {
        self.chunks += 1;
        if self.chunks == 1 {
            self.first = now;
        } else {
            let gap = now.saturating_sub(self.last) / 1000;
            self.gap_min = self.gap_min.min(gap);
            self.gap_max = self.gap_max.max(gap);
            if self.gaps.len() < gaps_limit {
                self.gaps.push(u32::try_from(gap).unwrap_or(u32::MAX));
            }
        }
        self.last = now;
    }

    /// How many chunks have passed.
    #[inline]
    pub const fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Drops the gaps, which were kept for a possible failure.
    pub fn forget_gaps(&mut self) {
        self.gaps = Vec::new();
    }

    /// The number of the last chunk, and the seconds until it.
    pub fn last(&self, started: u64) -> (u64, f64) {
        (self.chunks, seconds(self.last - started))
    }

    /// The fields; none if there was no chunk.
    #[inline]
    pub fn fields(&self, started: u64) -> Option<Stream<'_>> {
        let gaps = self.chunks.checked_sub(1)?;
        let span = self.last - self.first;
        let has_gaps = gaps > 0;
        Some(Stream {
            chunks: self.chunks,
            first_s: seconds(self.first - started),
            gap_min: has_gaps.then_some(self.gap_min),
            gap_mean: (span / 1000).checked_div(gaps),
            gap_max: has_gaps.then_some(self.gap_max),
            gaps: Gaps(&self.gaps),
            gaps_truncated: Some(gaps - self.gaps.len() as u64).filter(|left| *left > 0 && !self.gaps.is_empty()),
            span: Unwritten(has_gaps.then(|| seconds(span))),
        })
    }
}
