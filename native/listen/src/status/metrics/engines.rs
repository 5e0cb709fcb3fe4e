//! The state of engines, as their last statistics say: gauges, as long as these are not old.

use super::family::{Family, Labels};
use lines::series::EngineState;
use std::collections::BTreeMap;

/// Statistics are old after so many of their own intervals,
const STALE_INTERVALS: f64 = 3.0;
/// but not before so many seconds. A working engine reports in each interval, an idle one does not.
const STALE_S: f64 = 60.0;

/// The families; none where no engine has reported of late. Times are Unix times in nanoseconds.
pub fn families(engines: &[EngineState], unix_nano: u64) -> Vec<Family> {
    let mut fresh = BTreeMap::<u64, &EngineState>::new();
    for engine in engines.iter().filter(|engine| engine.running.is_finite() && is_fresh(engine, unix_nano)) {
        // Several API servers report of one engine, each of a part of its steps.
        let last = fresh.entry(engine.index as u64).or_insert(engine);
        if engine.unix_nano > last.unix_nano {
            *last = engine;
        }
    }
    let mut running = Family::gauge(
        "inference_logging_engine_requests_running",
        "Requests that the engine works on, by its last engine.stats record",
    );
    let mut waiting = Family::gauge(
        "inference_logging_engine_requests_waiting",
        "Requests that wait in the engine's queue, by its last engine.stats record",
    );
    let mut cache = Family::gauge(
        "inference_logging_engine_kv_cache_usage_ratio",
        "Used share of the engine's KV cache, by its last engine.stats record",
    )
    .unit("ratio");
    for (index, engine) in fresh {
        let labels: Labels = vec![("engine", index.to_string())];
        for (family, value) in
            [(&mut running, engine.running), (&mut waiting, engine.waiting), (&mut cache, engine.kv_cache_usage)]
        {
            if value.is_finite() {
                family.add(labels.clone(), value);
            }
        }
    }
    [running, waiting, cache].into_iter().filter(|family| !family.samples.is_empty()).collect()
}

fn is_fresh(engine: &EngineState, unix_nano: u64) -> bool {
    let age_s = unix_nano.saturating_sub(engine.unix_nano) as f64 / 1e9;
    // Also where the interval is not a number.
    age_s <= STALE_S.max(STALE_INTERVALS * engine.interval_s)
}

#[cfg(test)]
mod tests {
    use super::{EngineState, Family, families};

    const NOW_S: u64 = 1_763_850_000;
    const NANOS_PER_S: u64 = 1_000_000_000;

    fn state(index: f64, age_s: u64, interval_s: f64, running: f64) -> EngineState {
        let unix_nano = (NOW_S - age_s) * NANOS_PER_S;
        EngineState { index, unix_nano, interval_s, running, waiting: 2.0, kv_cache_usage: f64::NAN }
    }

    /// Engine and value of each sample.
    fn shown(family: &Family) -> Vec<(&str, f64)> {
        family.samples.iter().map(|sample| (&*sample.labels[0].1, sample.value)).collect()
    }

    #[test]
    fn statistics_that_are_old_or_of_an_earlier_process_are_not_shown() {
        let engines = [
            state(0.0, 50, 10.0, 3.0),
            state(1.0, 61, 10.0, 4.0),
            state(2.0, 89, 30.0, 5.0),
            state(3.0, 91, 30.0, 6.0),
            state(4.0, 61, f64::NAN, 7.0),
            // Of other processes: one that began anew, and one that knows nothing of the scheduler.
            state(0.0, 5, 10.0, 8.0),
            state(0.0, 20, 10.0, 9.0),
            state(0.0, 1, 10.0, f64::NAN),
        ];
        let found = families(&engines, NOW_S * NANOS_PER_S);
        let names: Vec<&str> = found.iter().map(|family| family.name).collect();
        let expected = ["inference_logging_engine_requests_running", "inference_logging_engine_requests_waiting"];
        assert_eq!(names, expected, "no value, no family");
        assert_eq!(shown(&found[0]), [("0", 8.0), ("2", 5.0)]);
        assert_eq!(families(&engines, (NOW_S + 3600) * NANOS_PER_S), []);
        // A clock that was set back.
        assert_eq!(families(&engines[..1], 0).len(), 2);
    }
}
