//! A running request reports its progress to its slot of the flight recorder.

use super::{Observer, ObserverSettings};
use crate::in_flight::InFlight;
use crate::in_flight::facts::Answer;
use ring::slots::Progress;

impl Observer {
    /// The request has a slot of the flight recorder. `is_whole`: the slot holds all of its texts.
    #[inline]
    pub fn enter(&mut self, in_flight: InFlight, is_whole: bool) {
        self.unusual |= !is_whole;
        self.in_flight = Some(in_flight);
    }

    /// The request's slot, if it has one.
    #[inline]
    pub const fn in_flight(&self) -> Option<&InFlight> {
        self.in_flight.as_ref()
    }

    /// Chunks of the answer pass.
    #[inline]
    pub(super) fn chunks_pass(&mut self, chunks: u32, now: u64, settings: &ObserverSettings) {
        self.timeline.chunks_pass(chunks, now, self.gaps_limit(settings));
        if let Some(in_flight) = &self.in_flight {
            let progress = Progress { chunks: self.timeline.chunks(), bytes: self.bytes_out, last_chunk: now };
            in_flight.chunks(progress, self.timeline.first(), self.answer());
        }
    }

    /// A part of the answer passes that ends no chunk.
    #[inline]
    pub(super) fn bytes_pass(&self, now: u64) {
        if let Some(in_flight) = &self.in_flight {
            in_flight.bytes_out(self.timeline.chunks(), self.bytes_out, now, self.answer());
        }
    }

    #[inline]
    const fn answer(&self) -> Answer {
        Answer { status: self.status, streamed: self.streamed, unknown_size: self.unknown_size }
    }

    /// The answer has begun.
    #[inline]
    pub(super) fn note_answer(&self) {
        if let Some(in_flight) = &self.in_flight {
            in_flight.answer(self.answer());
        }
    }

    /// Bytes of the request have been received.
    #[inline]
    pub(super) fn note_bytes_in(&self, bytes: &[u8]) {
        if let Some(in_flight) = &self.in_flight {
            in_flight.bytes_in(self.bytes_in, bytes, self.in_flight_limits);
        }
    }
}
