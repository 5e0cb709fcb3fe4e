//! Assesses the logging of a queue directory from one process, and remembers what the next assessment needs.

use super::{Health, Limits, MEMORY_S, RECENT_LOOK, Reached, Reason, Snapshot, grade};
use crate::sink::Now;
use crate::status::PerProcess;
use crate::status::lane::{Lane, LaneState, Source};
use queue::inspect::QueueSnapshot;
use queue::layout::lost;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A lane, and its limits.
pub struct Watched<S = Lane> {
    pub source: S,
    pub limits: Limits,
    /// Whether this process is configured to run its listener.
    pub listens: bool,
}

/// Watches the fast lane, and the lane of audit records if there is one. A forked child begins with an empty memory.
pub struct HealthWatch<S = Lane> {
    pub fast: Watched<S>,
    pub audit: Option<Watched<S>>,
    looks: PerProcess<Looks>,
}

#[derive(Default)]
struct Looks {
    fast: Memory,
    audit: Memory,
    /// When the last assessment was, by the monotonic clock, and its result.
    last: Option<(Duration, Arc<Health>)>,
}

impl<S: Source> HealthWatch<S> {
    /// Begins with an assessment: earlier losses are not news.
    pub fn new(fast: Watched<S>, audit: Option<Watched<S>>, now: Now) -> Self {
        let watch = Self { fast, audit, looks: PerProcess::new() };
        watch.assess(now);
        // The state at the start, before anything has happened, only serves the next assessment.
        watch.looks.with(|looks| looks.last = None);
        watch
    }

    /// Returns the last assessment, or makes a new one if that is [`RECENT_LOOK`] old.
    pub fn recent(&self, now: Now) -> Arc<Health> {
        self.looks.with(|looks| match &looks.last {
            Some((at, health)) if now.monotonic.saturating_sub(*at) < RECENT_LOOK => Arc::clone(health),
            _ => self.assess_again(looks, now),
        })
    }

    /// Assesses the logging now; the audit lane's reasons count like those of the fast one.
    pub fn assess(&self, now: Now) -> Arc<Health> {
        self.looks.with(|looks| self.assess_again(looks, now))
    }

    fn assess_again(&self, looks: &mut Looks, now: Now) -> Arc<Health> {
        let mut health = looks.fast.grade(&self.fast, now);
        if let Some(audit) = &self.audit {
            let found = looks.audit.grade(audit, now);
            health.retry_after_s = health.retry_after_s.max(found.retry_after_s);
            health.reasons.extend(found.reasons.into_iter().map(of_audit_lane));
        }
        let health = Arc::new(health);
        looks.last = Some((now.monotonic, Arc::clone(&health)));
        health
    }
}

fn of_audit_lane(reason: Reason) -> Reason {
    let (kind, text) = (format!("audit.{}", reason.kind), format!("audit lane: {}", reason.text));
    Reason { kind: kind.into(), text, ..reason }
}

/// What the next assessment of a lane needs from the ones before it.
#[derive(Default)]
struct Memory {
    /// When the first assessment was, in seconds of the monotonic clock.
    started_s: Option<f64>,
    /// Lost records of each queue at the last assessment, by boot id.
    dropped_of: HashMap<u64, u64>,
    dropped: u64,
    drops: Recent,
    errors: Recent,
    writes: Recent,
    renewals: Recent,
    reached: Reached,
}

impl Memory {
    fn grade<S: Source>(&mut self, watched: &Watched<S>, now: Now) -> Health {
        let snapshot = self.snapshot(watched.source.read(now), watched.listens, now);
        let health = grade(snapshot, &watched.limits, &self.reached);
        self.reached = health.reached();
        health
    }

    fn snapshot(&mut self, seen: LaneState, listens: bool, now: Now) -> Snapshot {
        let now_s = now.monotonic.as_secs_f64();
        let watched_s = now_s - *self.started_s.get_or_insert(now_s);
        let dropped = self.count_drops(&seen.queues);
        self.errors.add(now_s, seen.sink_errors);
        self.drops.add(now_s, dropped);
        self.writes.add(now_s, seen.records_written);
        self.renewals.add(now_s, seen.queue_renewals);
        let sum = |count: fn(&QueueSnapshot) -> u64| seen.queues.iter().map(count).fold(0, u64::wrapping_add);
        Snapshot {
            queues: seen.queues.len(),
            used_bytes: sum(|queue| queue.counts.bytes_in_queue),
            capacity_bytes: sum(|queue| queue.capacity_bytes),
            in_flight: sum(|queue| queue.in_flight),
            records: sum(|queue| queue.counts.in_queue),
            fill: fullest(&seen.queues),
            oldest_age_s: oldest_age_s(&seen.queues, now.unix_nano),
            stalled_s: seen.heartbeat_age_s.map_or(watched_s, |age_s| watched_s.min(age_s)),
            leader: seen.leader,
            listens,
            failing: seen.failing,
            fallback: seen.fallback_active,
            recent_drops: self.drops.increase(),
            recent_errors: self.errors.increase(),
            recent_s: self.drops.span_s(),
            queue_missing: seen.queue_missing,
            queue_refused: seen.queue_refused,
            recent_renewals: self.renewals.increase(),
            dead_producers: seen.dead_producers,
            records_per_s: self.writes.per_s(),
        }
    }

    /// Returns how many records were lost in total since this watch began, also by processes that are gone by now.
    fn count_drops(&mut self, queues: &[QueueSnapshot]) -> u64 {
        let lost = queues.iter().map(|queue| (queue.counts.boot_id, lost(&queue.counts.dropped)));
        let seen: HashMap<u64, u64> = lost.collect();
        for (boot_id, count) in &seen {
            let before = self.dropped_of.get(boot_id).copied().unwrap_or(0);
            self.dropped = self.dropped.saturating_add(count.saturating_sub(before));
        }
        self.dropped_of = seen;
        self.dropped
    }
}

/// Share of its bytes that the fullest queue uses.
fn fullest(queues: &[QueueSnapshot]) -> f64 {
    queues.iter().map(|queue| queue.counts.bytes_in_queue as f64 / queue.capacity_bytes as f64).fold(0.0, f64::max)
}

fn oldest_age_s(queues: &[QueueSnapshot], unix_nano: u64) -> Option<f64> {
    let oldest = queues.iter().filter_map(|queue| queue.oldest_unix_nano.filter(|at| *at > 0)).min()?;
    Some(unix_nano.saturating_sub(oldest) as f64 / 1e9)
}

/// The shortest time over which a rate is reported.
const SHORTEST_RATE_SPAN_S: f64 = 0.5;

/// The remembered readings of one counter.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    /// Time of a reading in seconds of the monotonic clock, and the counter then.
    seen: VecDeque<(f64, u64)>,
}

impl Recent {
    /// Notes the counter's value; one that is smaller than before (a new directory) begins again.
    pub fn add(&mut self, now_s: f64, total: u64) {
        let seen = &mut self.seen;
        if seen.back().is_some_and(|(_, before)| total < *before) {
            seen.clear();
        }
        if seen.len() >= 2 && now_s - seen[seen.len() - 2].0 < SHORTEST_RATE_SPAN_S {
            // Readings in quick succession are dropped: bounded memory.
            seen.pop_back();
        }
        seen.push_back((now_s, total));
        while seen.len() > 1 && seen[1].0 <= now_s - MEMORY_S {
            seen.pop_front();
        }
    }

    /// The growth.
    #[must_use]
    pub fn increase(&self) -> u64 {
        self.ends().map_or(0, |((_, first), (_, last))| last - first)
    }

    /// The time between the first and the last reading, in seconds.
    #[must_use]
    pub fn span_s(&self) -> f64 {
        self.ends().map_or(0.0, |((first, _), (last, _))| last - first)
    }

    /// The growth per second; None if the time is too short.
    #[must_use]
    pub fn per_s(&self) -> Option<f64> {
        (self.span_s() >= SHORTEST_RATE_SPAN_S).then(|| self.increase() as f64 / self.span_s())
    }

    fn ends(&self) -> Option<((f64, u64), (f64, u64))> {
        Some((*self.seen.front()?, *self.seen.back()?))
    }
}

#[cfg(test)]
mod tests {
    use super::{MEMORY_S, Recent};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_remembered_of_a_counter_is_bounded_and_never_negative(
            steps in prop::collection::vec((0.0..=100.0, 0u64..=1000), 0..300),
        ) {
            let (mut recent, mut now_s) = (Recent::default(), 0.0);
            for (step_s, total) in steps {
                now_s += step_s;
                recent.add(now_s, total);
                prop_assert!(recent.increase() <= 1000);
                prop_assert!(recent.seen.len() <= 2 * MEMORY_S as usize + 3);
            }
        }
    }
}
