//! Whether a request that has ended is on record, and what its record says of that.

use super::{Chunks, Observer, ObserverSettings};
use crate::outcome::Ended;
use crate::sampler::{SampledBy, Sampler};
use queue::record::Scratch;

impl Observer {
    /// Decides whether this is one of the errors that are wanted; the timeline of any other is as configured.
    #[inline]
    pub(super) fn end_watch(&mut self, ended: &Ended<'_>, now: u64, settings: &ObserverSettings) {
        let Some(runtime) = self.watched.take() else { return };
        if ended.has_failed() && runtime.take_error(now) {
            self.forced = true;
            if matches!(self.chunks(settings), Chunks::Off | Chunks::Summary) {
                self.chunks = Some(Chunks::Timeline);
            }
        } else if self.chunks(settings) != Chunks::Timeline {
            self.timeline.forget_gaps();
        }
    }

    #[inline]
    pub(super) fn kept(&self, ended: &Ended<'_>, duration_nano: u64, sampler: &Sampler) -> Option<(SampledBy, f64)> {
        sampler.tail(&self.head, ended.has_failed(), ended.was_aborted(), duration_nano, self.forced)
    }
}

#[inline]
pub fn push_sampling(scratch: &mut Scratch, (by, count): (SampledBy, f64)) {
    scratch.push_str(by.name());
    // NaN: the caller sampled the request and did not tell how many it stands for.
    if count.is_nan() { scratch.push_absent() } else { scratch.push_float(count) }
}
