//! The chunks of one stream: in which detail they are recorded, their number, their distances, and a capped list of gaps (P12).

use crate::events::{Kinds, Passed};
use crate::fields::{Gaps, Stream, Unwritten};
use crate::in_flight::terminal::seconds;

/// Gaps of a short stream, for which there is room at once.
const USUAL_GAPS: usize = 64;

/// The times of one answer's chunks, in monotonic nanoseconds; what each chunk changes comes first.
#[derive(Debug)]
#[repr(C)]
pub struct Timeline {
    /// In microseconds.
    gaps: Vec<u32>,
    last: u64,
    chunks: u64,
    /// In nanoseconds.
    gap_min: u64,
    gap_max: u64,
    first: u64,
    /// The first byte of a stream's body, the first reasoning, the first tool call; 0: none.
    first_byte: u64,
    first_reasoning: u64,
    first_tool_call: u64,
    /// What the first chunk added.
    first_kinds: Kinds,
}

impl Timeline {
    pub const fn new() -> Self {
        Self {
            first_byte: 0,
            first_reasoning: 0,
            first_tool_call: 0,
            first_kinds: Kinds::CONTENT,
            first: 0,
            last: 0,
            chunks: 0,
            gap_min: u64::MAX,
            gap_max: 0,
            gaps: Vec::new(),
        }
    }

    /// Bytes of a stream's body pass at `now`.
    #[inline]
    pub fn bytes(&mut self, now: u64) {
        if self.first_byte == 0 {
            self.first_byte = now;
        }
    }

    /// Takes note of what the next chunks add, which pass at `now`.
    #[inline]
    pub fn kinds(&mut self, passed: &Passed, now: u64) {
        if self.chunks == 0 {
            self.first_kinds = passed.first;
        }
        if passed.kinds.has(Kinds::REASONING) && self.first_reasoning == 0 {
            self.first_reasoning = now;
        }
        if passed.kinds.has(Kinds::TOOL_CALL) && self.first_tool_call == 0 {
            self.first_tool_call = now;
        }
    }

    /// Counts chunks at `now`, at least one; keeps at most so many gaps.
    #[inline]
    pub fn chunks_pass(&mut self, chunks: u32, now: u64, gaps_limit: usize) {
        if self.chunks == 0 {
            self.first = now;
        } else {
            self.gap(now.saturating_sub(self.last), gaps_limit);
        }
        if chunks > 1 {
            self.no_gaps(chunks - 1, gaps_limit);
        }
        self.chunks += u64::from(chunks);
        self.last = now;
    }

    /// Counts one chunk at `now`, behind the first one.
    #[inline(always)]
    pub fn next_chunk(&mut self, now: u64, gaps_limit: usize) {
        self.gap(now.saturating_sub(self.last), gaps_limit);
        self.chunks += 1;
        self.last = now;
    }

    /// More chunks came in the same message.
    #[cold]
    #[inline(never)]
    fn no_gaps(&mut self, chunks: u32, limit: usize) {
        (0..chunks).for_each(|_| self.gap(0, limit));
    }

    #[inline(always)]
    fn gap(&mut self, nano: u64, limit: usize) {
        self.gap_min = self.gap_min.min(nano);
        self.gap_max = self.gap_max.max(nano);
        if self.gaps.len() < limit {
            if self.gaps.len() == self.gaps.capacity() {
                self.make_room(limit);
            }
            self.gaps.push(u32::try_from(nano / 1000).unwrap_or(u32::MAX));
        }
    }

    /// Makes room for more gaps: first for those of a short stream.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, limit: usize) {
        let room = self.gaps.len().max(USUAL_GAPS);
        self.gaps.reserve_exact(room.min(limit - self.gaps.len()));
    }

    /// When the first chunk passed.
    #[inline]
    pub const fn first(&self) -> u64 {
        self.first
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

    /// The fields; those of chunks are absent if there was none. If what is in them `is_seen`, their first one has a time.
    #[inline]
    pub fn fields(&self, started: u64, is_seen: bool) -> Stream<'_> {
        let since = |time: u64| (time != 0).then(|| seconds(time.saturating_sub(started)));
        let Some(gaps) = self.chunks.checked_sub(1) else {
            return Stream { first_byte_s: since(self.first_byte), ..Stream::default() };
        };
        let span = self.last - self.first;
        let has_gaps = gaps > 0;
        Stream {
            chunks: Some(self.chunks),
            first_s: is_seen.then(|| seconds(self.first - started)),
            gap_min: has_gaps.then_some(self.gap_min / 1000),
            gap_mean: (span / 1000).checked_div(gaps),
            gap_max: has_gaps.then_some(self.gap_max / 1000),
            gaps: Gaps(&self.gaps),
            gaps_truncated: Some(gaps - self.gaps.len() as u64).filter(|left| *left > 0 && !self.gaps.is_empty()),
            span: Unwritten((has_gaps && is_seen).then(|| seconds(span))),
            first_byte_s: since(self.first_byte),
            first_reasoning_s: since(self.first_reasoning).filter(|_| !self.first_kinds.has(Kinds::REASONING)),
            first_tool_call_s: since(self.first_tool_call).filter(|_| !self.first_kinds.has(Kinds::TOOL_CALL)),
            ..Stream::default()
        }
    }
}

/// The detail in which a stream's timing is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    Off,
    /// Count, time to the first chunk, least, mean and largest gap.
    Summary,
    /// Summary and each gap, up to a limit.
    Timeline,
    /// Summary and a `request.chunk` record for each chunk.
    Events,
}

impl Chunks {
    /// The mode with this name in configurations.
    ///
    /// # Errors
    /// A sentence that names the value.
    pub fn named(name: &str) -> Result<Self, String> {
        match name {
            "off" => Ok(Self::Off),
            "summary" => Ok(Self::Summary),
            "timeline" => Ok(Self::Timeline),
            "events" => Ok(Self::Events),
            other => Err(format!("chunks={other:?}: must be off, summary, timeline or events")),
        }
    }

    /// The mode with this code in the run-time control: the place in this list.
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Off,
            1 => Self::Summary,
            2 => Self::Timeline,
            _ => Self::Events,
        }
    }
}
