//! Whether a request that has ended is on record, and what its record says of that.

use super::{Chunks, Observer, ObserverSettings};
use crate::outcome::Outcome;
use crate::record::Scratch;
use crate::sampler::{SampledBy, Sampler};

impl Observer {
    /// Decides whether this is one of the errors that are wanted; the timeline of any other is as configured.
    #[inline]
    pub(super) fn end_watch(&mut self, outcome: Outcome, now: u64, settings: &ObserverSettings) {
        let Some(runtime) = self.watched.take() else { return };
        if matches!(outcome, Outcome::Error | Outcome::Timeout) && runtime.take_error(now) {
            self.forced = true;
            if matches!(self.chunks(settings), Chunks::Off | Chunks::Summary) {
                self.chunks = Some(Chunks::Timeline);
            }
        } else if self.chunks(settings) != Chunks::Timeline {
            self.timeline.forget_gaps();
        }
    }

    #[inline]
    pub(super) fn kept(&self, outcome: Outcome, now: u64, sampler: &Sampler) -> Option<(SampledBy, f64)> {
        let failed = matches!(outcome, Outcome::Error | Outcome::Timeout);
        let aborted = matches!(outcome, Outcome::ClientDisconnect | Outcome::ServerShutdown);
        sampler.tail(&self.head, failed, aborted, now.saturating_sub(self.started), self.forced)
    }
}

#[inline]
pub fn push_sampling(scratch: &mut Scratch, (by, count): (SampledBy, f64)) {
    scratch.push_str(by.name());
    // NaN: the caller sampled the request and did not tell how many it stands for.
    if count.is_nan() { scratch.push_absent() } else { scratch.push_float(count) }
}
