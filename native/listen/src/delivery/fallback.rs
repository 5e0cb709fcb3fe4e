//! When the fallback replaces the primary, and when the primary takes over again.
//!
//! The primary goes first whenever it is ready: it is offered the current batch again after growing pauses, so a batch
//! that it takes proves that it works. Between those tries, and while a write hangs in it, batches go to the fallback,
//! once the trouble has lasted for the configured delay.

use super::outlet::Outlet;
use super::{At, Delivery, LOOK_INTERVAL};
use crate::sink::Now;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Delivery {
    pub(super) fn choose(&self, now: Now) -> At {
        if self.primary.is_ready(now) {
            return At::Primary;
        }
        let overdue = self.primary.troubled_for(now).is_some_and(|time| time >= self.fallback_delay);
        let ready = overdue && self.fallback.as_ref().is_some_and(|fallback| fallback.is_ready(now));
        if ready { At::Fallback } else { At::Nowhere }
    }

    /// Whether the sink at work has had its time, and the other one can take the batch.
    pub(super) fn should_leave(&self, now: Now) -> bool {
        let Some(fallback) = &self.fallback else { return false };
        match self.at {
            At::Primary => self.primary.busy_for(now) >= self.fallback_delay && fallback.is_ready(now),
            At::Fallback => fallback.busy_for(now) >= self.fallback_delay && self.primary.is_ready(now),
            At::Nowhere => false,
        }
    }

    pub(super) fn leave(&mut self, now: Now, spans: &dyn Fn() -> String) {
        let from_primary = self.at == At::Primary;
        if let Some(outlet) = self.outlet_at() {
            outlet.hang(now);
            outlet.abandon();
        }
        self.at = At::Nowhere;
        if from_primary {
            self.control.page().fallback_active.store(1, Ordering::Relaxed);
            self.fallback_begins(Some(&spans()), now);
        }
    }

    pub(super) fn fallback_begins(&mut self, doubtful: Option<&str>, now: Now) {
        let Some(fallback) = &self.fallback else { return };
        let reason = if doubtful.is_some() { "hung" } else { "failing" };
        self.notices.fallback(&self.primary.name, &fallback.name, reason, doubtful, now);
    }

    pub(super) fn primary_is_well(&mut self, now: Now) {
        self.control.page().fallback_active.store(0, Ordering::Relaxed);
        let Some(trouble) = self.primary.trouble.take() else { return };
        self.notices.recovered(&self.primary.name, &trouble, std::mem::take(&mut self.fallback_records), now);
    }

    pub(super) fn pause(&self, now: Now) -> Duration {
        let mut pause = self.primary.retry_at.saturating_sub(now.monotonic);
        if !self.primary.is_free() {
            pause = LOOK_INTERVAL;
        }
        if let Some(fallback) = &self.fallback {
            let overdue = self.primary.troubled_for(now).map(|time| self.fallback_delay.saturating_sub(time));
            let ready = fallback.retry_at.saturating_sub(now.monotonic);
            let ready = if fallback.is_free() { ready } else { LOOK_INTERVAL };
            pause = pause.min(overdue.unwrap_or(pause).max(ready));
        }
        pause
    }

    /// The end is near: the next try is now, and the fallback waits at most `delay`.
    pub fn hurry(&mut self, delay: Duration) {
        self.fallback_delay = self.fallback_delay.min(delay);
        self.primary.hurry();
        self.fallback.iter_mut().for_each(Outlet::hurry);
    }
}
