//! Requests by outcome, and their tokens.

use super::routes::Request;
use super::{count, die_around_the_count, snapshot};
use crate::support::Bench;
use lines::redact::{RedactionSettings, Rules};
use lines::series::histogram::{BOUNDS, TOKENS_WORD};
use lines::series::{self, EngineState, OUTCOMES};
use queue::producer::Producer;
use queue::record::Scratch;
use std::path::Path;
use std::time::Duration;

/// How many requests ended so.
fn requests(directory: &Path, outcome: &str) -> f64 {
    let place = OUTCOMES.iter().position(|name| *name == outcome).unwrap();
    series::read(directory).unwrap().outcomes[place]
}

fn all_requests(directory: &Path) -> f64 {
    series::read(directory).unwrap().outcomes.iter().sum()
}

type Tokens = (String, String, String, [f64; 2]);

/// Operation, model, error, and tokens of input and output of each series.
fn tokens(directory: &Path) -> Vec<Tokens> {
    let all = series::read(directory).unwrap().series.into_iter();
    all.map(|one| (one.operation, one.model, one.error_type, [one.words[TOKENS_WORD], one.words[TOKENS_WORD + 1]]))
        .collect()
}

fn expected(operation: &str, model: &str, error_type: &str, tokens: [f64; 2]) -> Tokens {
    (operation.to_owned(), model.to_owned(), error_type.to_owned(), tokens)
}

fn token_sums(directory: &Path) -> [f64; 2] {
    tokens(directory).iter().fold([0.0; 2], |[i, o], (_, _, _, [input, output])| [i + input, o + output])
}

#[test]
fn every_request_counts_under_its_outcome_as_often_as_it_stands_for() {
    let mut bench = Bench::new();
    assert_eq!(all_requests(bench.path()), 0.0);
    let producer = bench.producer();
    let outcomes =
        ["ok", "error", "client_disconnect", "timeout", "server_shutdown", "process_died", "aborted", "made up"];
    for (place, outcome) in outcomes.into_iter().enumerate() {
        Request { outcome, adjusted_count: place as f64 + 0.5, ..Request::plain() }.emit(&producer);
        Request { outcome, ..Request::ok("m") }.emit(&producer);
    }
    for adjusted_count in [0.0, -7.0, f64::NAN, f64::INFINITY] {
        Request { adjusted_count, ..Request::plain() }.emit(&producer);
    }
    bench.drain();
    let counted = OUTCOMES.map(|outcome| requests(bench.path(), outcome));
    assert_eq!(counted, [5.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5]);
    assert_eq!(OUTCOMES[7], "_OTHER");
}

#[test]
fn records_that_are_no_requests_are_not_counted() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let event = producer.register("request.like", &["outcome".to_owned(), "adjusted_count".to_owned()]).unwrap();
    let mut payload = Scratch::new();
    payload.push_str("ok");
    payload.push_float(1.0);
    assert!(producer.emit(event, 9, payload.as_slice()));
    bench.drain();
    assert_eq!(bench.sink.events("request.like").len(), 1);
    assert_eq!(all_requests(bench.path()), 0.0);
}

#[test]
fn tokens_are_those_of_the_line_the_answers_own_or_else_the_engines() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let answered = Request { usage: r#"{"prompt_tokens":9,"completion_tokens":3}"#, ..Request::ok("m") };
    answered.emit(&producer);
    Request { engine_tokens: Some([1000, 1000]), ..answered.clone() }.emit(&producer);
    Request { adjusted_count: 2.5, ..answered.clone() }.emit(&producer);
    // The answer reports half of it: the line has only that half.
    let half = r#"{"completion_tokens":1}"#;
    Request { usage: half, engine_tokens: Some([1000, 1000]), ..answered.clone() }.emit(&producer);
    Request { usage: "", engine_tokens: Some([70, 7]), ..answered.clone() }.emit(&producer);
    Request { status: 500, outcome: "error", ..answered }.emit(&producer);
    bench.drain();
    let [input, output] = [9.0 + 9.0 + 22.5 + 70.0, 3.0 + 3.0 + 7.5 + 1.0 + 7.0];
    let counted = [expected("chat", "m", "", [input, output]), expected("chat", "m", "500", [9.0, 3.0])];
    assert_eq!(tokens(bench.path()), counted);
    let lines = bench.sink.events("request");
    let sum = |key: &str| lines.iter().filter_map(|line| line[key].as_u64()).sum::<u64>();
    assert_eq!(sum("gen_ai.usage.input_tokens"), 4 * 9 + 70, "what stands in the lines, unweighted");
    assert_eq!(sum("gen_ai.usage.output_tokens"), 4 * 3 + 1 + 7);
}

#[test]
fn tokens_without_an_operation_count_as_other_with_the_models_name_and_in_no_histogram() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let served = Request { served_model: "whisper", engine_tokens: Some([5, 2]), ..Request::plain() };
    served.emit(&producer);
    served.emit(&producer);
    Request { engine_tokens: None, ..served.clone() }.emit(&producer);
    Request { served_model: r#"no"name"#, ..served.clone() }.emit(&producer);
    Request { usage: r#"{"input_tokens":4}"#, response_model: "n", ..Request::plain() }.emit(&producer);
    bench.drain();
    let mut counted = tokens(bench.path());
    counted.sort_by(|one, other| one.1.cmp(&other.1));
    let whisper = expected("_OTHER", "whisper", "", [10.0, 4.0]);
    assert_eq!(counted, [expected("_OTHER", "", "", [5.0, 2.0]), expected("_OTHER", "n", "", [4.0, 0.0]), whisper]);
    let all = series::read(bench.path()).unwrap().series;
    assert!(all.iter().all(|series| count(series, 0) == 0.0), "{all:?}");
    assert_eq!(requests(bench.path(), "ok"), 5.0);
}

#[test]
fn a_number_that_no_request_can_have_of_tokens_does_not_spoil_the_sum() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let largest = u64::from(u32::MAX);
    for input in [3, largest, largest + 1, u64::MAX] {
        Request { engine_tokens: Some([input, 1]), ..Request::ok("m") }.emit(&producer);
    }
    for usage in [r#"{"prompt_tokens":-5}"#, r#"{"prompt_tokens":1e300}"#, r#"{"prompt_tokens":"7"}"#] {
        Request { usage, ..Request::ok("m") }.emit(&producer);
    }
    bench.drain();
    assert_eq!(token_sums(bench.path()), [largest as f64 + 3.0, 4.0]);
}

#[test]
fn what_is_redacted_of_a_model_is_redacted_of_its_tokens_too() {
    let redaction = RedactionSettings {
        fields: vec!["gen_ai.response.model".to_owned()],
        replacement: "***".to_owned(),
        ..RedactionSettings::default()
    };
    let mut bench = Bench::with(|settings| settings.redaction = Rules::compile(&redaction).unwrap());
    let producer = bench.producer();
    Request { engine_tokens: Some([5, 2]), ..Request::ok("secret") }.emit(&producer);
    bench.drain();
    assert_eq!(tokens(bench.path()), [expected("chat", "***", "", [5.0, 2.0])]);
    assert_eq!(requests(bench.path(), "ok"), 1.0);
}

/// Requests of both kinds, in turn.
fn emit_both_kinds(producer: &Producer, pairs: usize) {
    for _ in 0..pairs {
        Request::plain().emit(producer);
        Request { engine_tokens: Some([10, 1]), ..Request::ok("m") }.emit(producer);
    }
}

#[test]
fn what_is_given_back_of_a_batch_counts_when_it_is_written() {
    for written in 0..6 {
        let mut bench = Bench::new();
        let producer = bench.producer();
        emit_both_kinds(&producer, 3);
        bench.sink.taken().faults.push_back(written);
        bench.round(Duration::from_millis(1), true);
        assert_eq!(all_requests(bench.path()), 0.0, "not before they are written");
        bench.change_leader();
        let with_tokens = (written / 2) as f64;
        assert_eq!(all_requests(bench.path()), written as f64);
        assert_eq!(token_sums(bench.path()), [10.0 * with_tokens, with_tokens]);
        bench.drain();
        assert_eq!((all_requests(bench.path()), token_sums(bench.path())), (6.0, [30.0, 3.0]));
    }
}

#[test]
fn a_leader_that_dies_around_its_count_leaves_a_successor_that_counts_the_rest() {
    for before in [true, false] {
        let mut bench = Bench::new();
        let (counted, other) = (bench.producer(), bench.producer());
        emit_both_kinds(&counted, 3);
        die_around_the_count(bench.path(), &counted, before);
        assert_eq!(all_requests(bench.path()), if before { 0.0 } else { 4.0 });
        // In the same batch: forgetting one queue's requests does not touch another's.
        emit_both_kinds(&other, 2);
        bench.next_leader();
        bench.drain();
        let counts = (all_requests(bench.path()), token_sums(bench.path()));
        assert_eq!(counts, (10.0, [50.0, 5.0]), "died before the commit: {before}");
    }
}

// Engines: the times of requests in them, and the state that their statistics report.

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
