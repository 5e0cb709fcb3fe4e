//! Engines: the times of requests in them, and the state that their statistics report.

use super::requests::Request;
use super::{count, snapshot};
use crate::support::Bench;
use lines::series::histogram::BOUNDS;
use lines::series::{self, EngineState};
use queue::producer::Producer;
use queue::record::Scratch;
use std::path::Path;

const FIELDS: [&str; 6] =
    ["engine.index", "engine.interval_s", "engine.running", "more", "engine.waiting", "engine.kv_cache_usage"];

/// Emits statistics; negative: the scheduler has not reported it.
fn report(producer: &Producer, index: i64, [running, waiting, cache]: [f64; 3]) {
    let event = producer.register("engine.stats", &FIELDS.map(str::to_owned)).unwrap();
    let mut payload = Scratch::new();
    payload.push_int(index);
    payload.push_float(10.0);
    let known = running >= 0.0;
    if known {
        payload.push_int(running as i64)
    } else {
        payload.push_null()
    }
    payload.push_str("1000");
    if known {
        payload.push_uint(waiting as u64)
    } else {
        payload.push_null()
    }
    if known {
        payload.push_float(cache)
    } else {
        payload.push_null()
    }
    assert!(producer.emit(event, 9, payload.as_slice()));
}

fn engines(directory: &Path) -> Vec<EngineState> {
    let mut found = series::read(directory).unwrap().engines;
    found.sort_by(|one, other| one.index.total_cmp(&other.index));
    found
}

#[test]
fn the_last_statistics_of_each_engine_are_its_state() {
    let mut bench = Bench::new();
    assert_eq!(engines(bench.path()), []);
    let producer = bench.producer();
    report(&producer, 0, [3.0, 1.0, 0.25]);
    report(&producer, 1, [7.0, 0.0, 0.5]);
    report(&producer, 0, [4.0, 2.0, 0.75]);
    bench.drain();
    let found = engines(bench.path());
    let values: Vec<_> = found.iter().map(|one| [one.index, one.running, one.waiting, one.kv_cache_usage]).collect();
    assert_eq!(values, [[0.0, 4.0, 2.0, 0.75], [1.0, 7.0, 0.0, 0.5]]);
    assert!(found.iter().all(|one| one.interval_s == 10.0));
    assert!(found[0].unix_nano >= found[1].unix_nano);
    report(&producer, 0, [-1.0; 3]);
    bench.drain();
    assert!(engines(bench.path())[0].running.is_nan(), "nothing is made up");
    bench.change_leader();
    assert_eq!(engines(bench.path()).len(), 2);
}

#[test]
fn a_new_engine_takes_the_place_of_the_oldest_record() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    for index in 0..40 {
        report(&producer, index, [1.0, 0.0, 0.0]);
        bench.drain();
    }
    let found: Vec<f64> = engines(bench.path()).iter().map(|one| one.index).collect();
    assert_eq!(found, (8..40).map(f64::from).collect::<Vec<_>>());
}

#[test]
fn times_in_the_engine_are_those_of_successful_requests_for_inference() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let served = Request { method: "POST", engine_s: Some([0.03, 0.3, 3.0]), ..Request::ok("m") };
    served.emit(&producer);
    Request { adjusted_count: 2.5, ..served.clone() }.emit(&producer);
    Request { status: 500, outcome: "error", ..served.clone() }.emit(&producer);
    Request { operation: "", ..served }.emit(&producer);
    bench.drain();
    let all = snapshot(bench.path());
    let [series] = &all.iter().filter(|one| one.error_type.is_empty()).collect::<Vec<_>>()[..] else {
        panic!("{all:?}")
    };
    assert_eq!([4, 5, 6].map(|kind| count(series, kind)), [3.5; 3]);
    for (histogram, seconds) in BOUNDS[4..].iter().zip([0.03, 0.3, 3.0]) {
        assert_eq!(series.words[histogram.first_word + histogram.bucket(seconds)], 3.5, "{}", histogram.name);
    }
    let failed = all.iter().find(|one| one.error_type == "500").unwrap();
    assert_eq!([0, 4, 5, 6].map(|kind| count(failed, kind)), [1.0, 0.0, 0.0, 0.0]);
}
