//! The growth of a counter within the last [`MEMORY_S`]; if it is read less often, since the reading before.

use super::MEMORY_S;
use std::collections::VecDeque;

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
