//! The chunks of one stream as they pass: how many, how far apart, and a capped list of the gaps (P12).

use crate::in_flight::terminal::seconds;
use queue::record::Scratch;

/// Values that [`Timeline::push_values`] appends.
const VALUES: usize = 8;

/// Times of the chunks of one answer, monotonic nanoseconds.
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

    /// Takes note of a chunk at `now`; keeps at most so many gaps.
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

    /// Leaves out the gaps, which were kept in case.
    pub fn forget_gaps(&mut self) {
        self.gaps = Vec::new();
    }

    /// Appends number, bytes and time of the last chunk.
    pub fn push_last(&self, scratch: &mut Scratch, bytes: Option<usize>, started: u64) {
        scratch.push_uint(self.chunks);
        match bytes {
            Some(bytes) => scratch.push_uint(bytes as u64),
            None => scratch.push_absent(),
        }
        scratch.push_float(seconds(self.last - started));
    }

    /// Appends count, time to the first chunk, the gaps and the time to the last chunk; absent values if there was no chunk.
    #[inline]
    pub fn push_values(&self, scratch: &mut Scratch, started: u64) {
        if self.chunks == 0 {
            return push_absent(scratch, VALUES);
        }
        scratch.push_uint(self.chunks);
        scratch.push_float(seconds(self.first - started));
        if self.chunks == 1 {
            return push_absent(scratch, VALUES - 2);
        }
        scratch.push_uint(self.gap_min);
        scratch.push_uint((self.last - self.first) / 1000 / (self.chunks - 1));
        scratch.push_uint(self.gap_max);
        if self.gaps.is_empty() {
            push_absent(scratch, 2);
        } else {
            scratch.push_gaps(&self.gaps);
            match self.chunks - 1 - self.gaps.len() as u64 {
                0 => scratch.push_absent(),
                truncated => scratch.push_uint(truncated),
            }
        }
        scratch.push_float(seconds(self.last - self.first));
    }

    /// Appends as many absent values as [`Self::push_values`] appends.
    pub fn push_none(scratch: &mut Scratch) {
        push_absent(scratch, VALUES);
    }
}

/// Appends so many absent values.
pub fn push_absent(scratch: &mut Scratch, values: usize) {
    (0..values).for_each(|_| scratch.push_absent());
}
