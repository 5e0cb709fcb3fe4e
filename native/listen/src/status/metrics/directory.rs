//! The families over a queue directory: its queues, sinks and listener, its segments, and the audit lane.

use super::family::{Family, Labels};
use super::requests;
use crate::sink::Now;
use crate::status::health::{HealthWatch, STATES, Snapshot, State};
use crate::status::lane::Lane;
use lines::series::{self, EngineState};
use queue::control::{CLOSED_BY_PROXY, ControlPage};
use queue::inspect;
use queue::layout::{LEVELS, REASONS, SAMPLED_OUT};
use queue::published::housekeeping::{HousekeepingWords, REASONS as REMOVAL_REASONS};
use queue::published::sinks::SinkWords;
use queue::published::totals::{self, Totals};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Collects every family of what `watch` looks at.
///
/// # Errors
/// The listener's counts of requests cannot be read.
pub fn families(watch: &HealthWatch, now: Now) -> io::Result<Vec<Family>> {
    let lane = &watch.fast.source;
    let (before, counted) = given_out(lane);
    let mut all = counters(&counted);
    let health = watch.assess(now);
    all.extend(queues(&health.snapshot));
    let page = lane.control.page();
    all.extend(sinks(&page.sinks));
    let mut books = vec![("fast", difference(lane, before, &counted))];
    all.extend(listener(page));
    all.extend(housekeeping(&page.housekeeping));
    all.extend(proxy(page));
    all.push(state(health.state()));
    all.extend(dead_producers(&health.snapshot.dead_producers));
    if let Some(audit) = watch.audit.as_ref().map(|watched| &watched.source) {
        let (before, counted) = given_out(audit);
        books.push(("audit", difference(audit, before, &counted)));
        all.extend(audit_lane(audit, &counted));
    }
    all.push(balance(books));
    let requests = series::read(&lane.directory)?;
    all.extend(requests::families(&requests));
    all.extend(of_engines(&requests.engines, now.unix_nano));
    Ok(all)
}

/// The records that sinks took of a lane, and then the counts of its queues.
fn given_out(lane: &Lane) -> (u64, Totals) {
    let page = lane.control.page();
    let taken = page.taken_from_queues.load(Ordering::Acquire);
    (taken, totals::of_directory(&page.totals, &lane.directory))
}

fn difference(lane: &Lane, before: u64, counted: &Totals) -> i64 {
    books_difference(before, counted.written, lane.control.page().taken_from_queues.load(Ordering::Acquire))
}

/// The records that queues gave out less those that sinks took, which was read before and after it.
///
/// The two are counted independently, by headers of queues and by the listener, and a batch is taken before it is given
/// out. So only wrong counts can show more given out than was taken a moment later, or less than a moment before.
#[must_use]
pub const fn books_difference(taken_before: u64, given_out: u64, taken_after: u64) -> i64 {
    let lost = given_out.wrapping_sub(taken_after).cast_signed();
    let doubled = given_out.wrapping_sub(taken_before).cast_signed();
    if lost > 0 {
        lost
    } else if doubled < 0 {
        doubled
    } else {
        0
    }
}

fn balance(books: Vec<(&'static str, i64)>) -> Family {
    let mut family = Family::gauge(
        "inference_logging_books_difference_records",
        "Records that queues released as written, less those that sinks took; 0 if the books balance",
    );
    books.into_iter().for_each(|(lane, records)| family.add(label("lane", lane), records as f64));
    family
}

/// The counts of the processes, including those that ended.
fn counters(counted: &Totals) -> Vec<Family> {
    let mut dropped = Family::counter(
        "inference_logging_records_dropped",
        "Records that were refused or lost; those of shutdown_deadline stay in the queue directory, and the next \
         listener writes them",
    );
    for reason in REASONS {
        for (level, count) in LEVELS.iter().zip(&counted.dropped[reason as usize]) {
            let labels = vec![("reason", reason.name().to_owned()), ("level", (*level).to_owned())];
            dropped.add(labels, *count as f64);
        }
    }
    let mut sampled_out =
        Family::counter("inference_logging_records_sampled_out", "Records that sampling left out on purpose");
    for reason in SAMPLED_OUT {
        sampled_out.add(label("reason", reason.name()), counted.sampled_out[reason as usize] as f64);
    }
    vec![
        count("inference_logging_records_accepted", "Records that were put into a queue", counted.accepted),
        dropped,
        sampled_out,
        count(
            "inference_logging_in_flight_slots_missed",
            "Requests that began while every slot of the flight recorder was taken: recorded at their end only",
            counted.in_flight_missed,
        ),
        count(
            "inference_logging_producer_deaths",
            "Processes that died without closing their queue",
            counted.producer_deaths,
        ),
        Family::counter(
            "inference_logging_hot_path_seconds",
            "Time that requests spent inside of this library, estimated from every 64th request",
        )
        .unit("seconds")
        .value(counted.hot_path_nano as f64 / 1e9),
    ]
}

/// The fill of the queues of all processes together.
fn queues(seen: &Snapshot) -> Vec<Family> {
    let gauge = |name, help, value: u64| Family::gauge(name, help).value(value as f64);
    vec![
        gauge(
            "inference_logging_queues",
            "Queues of the queue directory: one for each process that logs",
            seen.queues as u64,
        ),
        gauge("inference_logging_queue_records", "Records waiting in queues", seen.records),
        gauge("inference_logging_queue_bytes", "Used bytes of all queues", seen.used_bytes).unit("bytes"),
        gauge("inference_logging_queue_capacity_bytes", "Size of all queues", seen.capacity_bytes).unit("bytes"),
        Family::gauge("inference_logging_queue_fill_ratio", "Used share of the fullest queue")
            .unit("ratio")
            .value(seen.fill),
        gauge(
            "inference_logging_requests_in_flight",
            "Requests in flight that have a slot of the flight recorder",
            seen.in_flight,
        ),
        Family::gauge(
            "inference_logging_queue_oldest_age_seconds",
            "Age of the oldest waiting record; 0 if none waits",
        )
        .unit("seconds")
        .value(seen.oldest_age_s.unwrap_or(0.0)),
    ]
}

/// What each sink took and refused, and how long its writes took.
fn sinks(rows: &[SinkWords]) -> [Family; 5] {
    let mut written = Family::counter("inference_logging_records_written", "Records that a sink took");
    let mut size = Family::counter("inference_logging_bytes_written", "Bytes that a sink took");
    let mut dropped = Family::counter(
        "inference_logging_sink_records_dropped",
        "Records dropped because an additional sink was too slow",
    );
    let mut errors = Family::counter("inference_logging_sink_errors", "Failed writes");
    let mut seconds = Family::histogram("inference_logging_write_seconds", "Time of one write").unit("seconds");
    for row in rows.iter().filter(|row| row.role().is_some()) {
        let name = label("sink", &row.name());
        written.add(name.clone(), load(&row.records_written));
        size.add(name.clone(), load(&row.bytes_written));
        dropped.add(name.clone(), load(&row.records_dropped));
        for (kind, count) in row.errors() {
            errors.add([name.clone(), label("error_type", kind.name())].concat(), count as f64);
        }
        let (buckets, nano, _) = row.write_times();
        let buckets = buckets.into_iter().map(|(bound, count)| (bound, count as f64, None));
        seconds.add_buckets(&name, buckets, nano as f64 / 1e9);
    }
    [written, size, dropped, errors, seconds]
}

/// The listener's counts of its own work.
fn listener(page: &ControlPage) -> Vec<Family> {
    vec![
        Family::gauge("inference_logging_fallback_active", "1 while the fallback writes in place of the primary sink")
            .value(f64::from(u8::from(page.fallback_active.load(Ordering::Relaxed) != 0))),
        Family::gauge("inference_logging_writer_heartbeat_timestamp_seconds", "Unix time of the listener's last round")
            .unit("seconds")
            .value(load(&page.heartbeat_unix_nano) / 1e9),
        Family::counter("inference_logging_listener_cpu_seconds", "CPU time of the listeners' threads")
            .unit("seconds")
            .value(load(&page.listener_cpu_nano) / 1e9),
        Family::counter("inference_logging_listener_restarts", "How often a listener failed and began again")
            .value(load(&page.listener_restarts)),
        Family::counter("inference_logging_listener_starts", "How often a listener began to serve the queue directory")
            .value(f64::from(page.leaders.load(Ordering::Relaxed))),
    ]
}

/// What happened to sealed segments.
fn housekeeping(words: &HousekeepingWords) -> Vec<Family> {
    let mut removed =
        Family::counter("inference_logging_segments_removed", "Segments that were removed, for their age or the quota");
    let mut removed_bytes =
        Family::counter("inference_logging_segments_removed_bytes", "Bytes of segments that were removed");
    for reason in REMOVAL_REASONS {
        let labels = label("reason", reason.name());
        removed.add(labels.clone(), load(&words.segments_removed[reason as usize]));
        removed_bytes.add(labels, load(&words.removed_bytes[reason as usize]));
    }
    let counted = |name, help, word| Family::counter(name, help).value(load(word));
    vec![
        removed,
        removed_bytes,
        counted("inference_logging_segments_compressed", "Segments that were compressed", &words.segments_compressed),
        counted(
            "inference_logging_compression_read_bytes",
            "Bytes of segments before their compression",
            &words.compressed_from_bytes,
        ),
        counted(
            "inference_logging_compression_written_bytes",
            "Bytes of segments after their compression",
            &words.compressed_to_bytes,
        ),
        counted(
            "inference_logging_housekeeping_errors",
            "Segments that could not be removed or compressed",
            &words.errors,
        ),
    ]
}

/// The connections that proxies closed; no family where there is no proxy.
fn proxy(page: &ControlPage) -> Option<Family> {
    let mut family = Family::counter(
        "inference_logging_proxy_connections_closed",
        "Connections of clients that the proxy closed before they had a request",
    );
    let words = CLOSED_BY_PROXY.into_iter().zip(&page.closed_by_proxy);
    words.for_each(|(reason, count)| family.add(label("reason", reason), load(count)));
    (page.proxies.load(Ordering::Relaxed) > 0).then_some(family)
}

/// The current state of health.
fn state(now: State) -> Family {
    let mut family = Family::gauge("inference_logging_state", "State of the logging: 1 for the current one");
    STATES.into_iter().for_each(|state| family.add(label("state", state.name()), f64::from(u8::from(state == now))));
    family
}

/// A 1 for each process that has a name, has died and has not come back; no family where there is none.
fn dead_producers(names: &[String]) -> Option<Family> {
    let mut family =
        Family::gauge("inference_logging_producer_dead", "1 for each named producer that has died and not come back");
    names.iter().for_each(|name| family.add(label("producer", name), 1.0));
    (!names.is_empty()).then_some(family)
}

/// The counts of the audit lane, of all processes.
fn audit_lane(lane: &Lane, counted: &Totals) -> Vec<Family> {
    let page = lane.control.page();
    let mut dropped =
        Family::counter("inference_logging_audit_records_dropped", "Audit records that were refused or lost");
    for reason in REASONS {
        let levels = counted.dropped[reason as usize];
        dropped
            .add(label("reason", reason.name()), levels.iter().fold(0, |sum: u64, one| sum.wrapping_add(*one)) as f64);
    }
    let fill = inspect::queues(&lane.directory).iter().map(|queue| queue.schemas_fill_ratio).fold(0.0, f64::max);
    vec![
        count("inference_logging_audit_records_accepted", "Audit records that were put into a queue", counted.accepted),
        count("inference_logging_audit_records_committed", "Audit records that are on the device", counted.written),
        Family::counter("inference_logging_audit_commits", "Groups of audit records that one fsync committed")
            .value(load(&page.batches_written)),
        Family::counter("inference_logging_audit_sink_errors", "Commits of the audit lane that failed")
            .value(load(&page.sink_errors)),
        dropped,
        Family::gauge(
            "inference_logging_audit_events_fill_ratio",
            "Used share of the room for kinds of audit events, of the fullest queue; at 1 new kinds are refused",
        )
        .unit("ratio")
        .value(fill),
    ]
}

fn count(name: &'static str, help: &'static str, records: u64) -> Family {
    Family::counter(name, help).value(records as f64)
}

fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_owned())]
}

fn load(word: &AtomicU64) -> f64 {
    word.load(Ordering::Relaxed) as f64
}

/// Statistics are old after so many of their own intervals,
const STALE_INTERVALS: f64 = 3.0;
/// but not before so many seconds. A working engine reports in each interval, an idle one does not.
const STALE_S: f64 = 60.0;

/// The families; none where no engine has reported of late. Times are Unix times in nanoseconds.
pub fn of_engines(engines: &[EngineState], unix_nano: u64) -> Vec<Family> {
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
    use super::{EngineState, Family, of_engines};

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
            // Other processes: one that began anew, and one that knows nothing of the scheduler.
            state(0.0, 5, 10.0, 8.0),
            state(0.0, 20, 10.0, 9.0),
            state(0.0, 1, 10.0, f64::NAN),
        ];
        let found = of_engines(&engines, NOW_S * NANOS_PER_S);
        let names: Vec<&str> = found.iter().map(|family| family.name).collect();
        let expected = ["inference_logging_engine_requests_running", "inference_logging_engine_requests_waiting"];
        assert_eq!(names, expected, "no value, no family");
        assert_eq!(shown(&found[0]), [("0", 8.0), ("2", 5.0)]);
        assert_eq!(of_engines(&engines, (NOW_S + 3600) * NANOS_PER_S), []);
        // A clock that was set back.
        assert_eq!(of_engines(&engines[..1], 0).len(), 2);
    }
}
