//! Whether an ended request is on record, and how its record describes the sampling.

use super::{Chunks, Observer, ObserverSettings};
use crate::fields::Sampling;
use crate::outcome::Ended;
use crate::sampler::Sampler;

impl Observer {
    /// Decides whether this is one of the errors that an operator wants; the timeline of any other is as configured.
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
    pub(super) fn kept(&self, ended: &Ended<'_>, duration_nano: u64, sampler: &Sampler) -> Option<Sampling> {
        let (failed, aborted) = (ended.has_failed(), ended.was_aborted());
        let (by, count) = sampler.tail(&self.head, failed, aborted, duration_nano, self.forced)?;
        // NaN: the caller sampled the request and did not report how many it stands for.
        Some(Sampling { by, count: (!count.is_nan()).then_some(count) })
    }
}
