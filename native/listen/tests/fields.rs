//! The fields of requests: a group with one more, and queues whose lists are those of an earlier build.

use crate::support::{Bench, begun, child, child_directory, die, queue_settings};
use queue::event::{EventSchema, MODEL_REQUEST, REQUEST};
use queue::producer::{Producer, QueueSettings};
use queue::record::{Scratch, Trace};
use request::fields::{self, Correlation, Exact, Exception, FieldInfo, Group, HttpRecord, ModelRecord, Rest, Served};
use request::group;
use request::ids::RequestIds;
use request::in_flight::InFlight;
use request::in_flight::facts::Begun;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::Path;

group! {
    /// As the group of how long it took, with one field more.
    struct Duration {
        /// Seconds until the last part of the answer.
        "duration_s" => seconds: f64,
        /// Seconds in which the answer waited for its client.
        "waited_s" => waited_s: Option<f64>,
    }
}

request::record! {
    /// A request of which only this is known.
    struct Timed<'a> {
        duration: Duration,
    } at the end if any {
        after: Duration,
        exception: Exception<'a>,
    }
}

fn names(fields: &[FieldInfo]) -> Vec<&'static str> {
    fields.iter().map(|field| field.name).collect()
}

/// The record that `emit` puts into a queue with this list of a request's fields, as a line without its head.
fn line(fields: &[&str], emit: impl FnOnce(&mut Scratch)) -> String {
    let mut bench = Bench::new();
    let events = vec![EventSchema::new(REQUEST, "request", fields).unwrap()];
    let producer = Producer::open(QueueSettings { events, ..queue_settings(bench.path()) }).unwrap();
    let mut scratch = Scratch::new();
    emit(&mut scratch);
    assert!(producer.emit(REQUEST, 9, scratch.as_slice()));
    bench.drain();
    let text = String::from_utf8(bench.sink.taken().bytes.clone()).unwrap();
    let line = text.lines().find(|line| line.contains(r#""event_name":"request""#)).unwrap();
    line.split_once(r#""seq":0"#).unwrap().1.to_owned()
}

#[test]
fn a_field_is_one_line_of_its_group_and_stands_in_the_line() {
    assert_eq!(names(Duration::FIELDS), ["duration_s", "waited_s"]);
    assert_eq!(Duration::FIELDS[1].column, "DOUBLE");
    assert_eq!(Duration::FIELDS[1].meaning, " Seconds in which the answer waited for its client.");
    let fields: Vec<&str> = names(Duration::FIELDS);
    let duration = |waited_s| Duration { seconds: 0.5, waited_s };
    let known = |to: &mut Scratch| Timed { duration: duration(Some(0.25)), after: None, exception: None }.push(to);
    assert_eq!(line(&fields, known), r#","duration_s":0.5,"waited_s":0.25}"#);
    let unknown = |to: &mut Scratch| Timed { duration: duration(None), after: None, exception: None }.push(to);
    assert_eq!(line(&fields, unknown), r#","duration_s":0.5}"#);
}

#[test]
fn of_the_groups_at_the_end_those_behind_the_last_one_take_no_room() {
    let text = |text| Rest { text, record_bytes: 100 };
    let exception = || Exception { kind: text("ValueError"), message: text(""), stacktrace: text("") };
    let duration = || Duration { seconds: 0.5, waited_s: None };
    let bytes = |after, exception| {
        let mut scratch = Scratch::new();
        Timed { duration: duration(), after, exception }.push(&mut scratch);
        scratch.as_slice().len()
    };
    assert_eq!(bytes(None, None), 10);
    assert_eq!(bytes(Some(duration()), None), 20);
    assert_eq!(bytes(None, Some(exception())), 10 + 2 + 15 + 2, "places of the group that is not there");
}

#[test]
fn no_field_stands_twice_in_a_record() {
    for fields in [HttpRecord::fields(), ModelRecord::fields()] {
        assert_eq!(names(&fields).into_iter().collect::<HashSet<_>>().len(), fields.len());
    }
}

/// Of both kinds of requests, as builds before this one had them.
const EARLIER: [&str; 54] = [
    "trace",
    "request_id",
    "client_request_id",
    "outcome",
    "error.type",
    "http.request.method",
    "url.path",
    "http.route",
    "network.protocol.version",
    "client.address",
    "http.response.status_code",
    "http.request.body.size",
    "http.response.body.size",
    "duration_s",
    "after_response_s",
    "after_response_outcome",
    "after_response_error_type",
    "chunks",
    "gen_ai.response.time_to_first_chunk",
    "chunk_gap_min_us",
    "chunk_gap_mean_us",
    "chunk_gap_max_us",
    "chunk_gaps_us",
    "chunk_gaps_truncated",
    "chunks_s",
    "gen_ai.operation.name",
    "request_body",
    "response_body",
    "sampled_by",
    "adjusted_count",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "usage_source",
    "engine.request_id",
    "engine.requests",
    "engine.finish_reasons",
    "engine.queued_s",
    "engine.prefill_s",
    "engine.decode_s",
    "engine.e2e_s",
    "engine.preemptions",
    "triton.model_name",
    "triton.model_version",
    "triton.model_instance_name",
    "triton.batch_size",
    "triton.batch_position",
    "triton.correlation_id",
    "triton.parameters",
    "triton.inputs",
    "triton.outputs",
    "exception.type",
    "exception.message",
    "exception.stacktrace",
];

#[test]
fn both_lists_have_the_order_of_the_one_before_them() {
    for fields in [HttpRecord::fields(), ModelRecord::fields()] {
        let names = names(&fields);
        let kept = names.iter().filter(|name| EARLIER.contains(name));
        assert!(EARLIER.iter().filter(|name| names.contains(name)).eq(kept), "{names:?}");
    }
    let all = names(&fields::of_requests());
    assert!(EARLIER.iter().all(|name| all.contains(name)), "{all:?}");
}

#[test]
fn a_record_of_an_earlier_build_is_the_same_line() {
    let value = |to: &mut Scratch, name: &str| match name {
        "outcome" | "url.path" | "triton.model_name" | "exception.type" => to.push_str(name),
        "duration_s" | "chunks_s" => to.push_float(0.5),
        "gen_ai.usage.output_tokens" => to.push_uint(6),
        _ => to.push_absent(),
    };
    let found = line(&EARLIER, |to| EARLIER.iter().for_each(|name| value(to, name)));
    let parts = [
        r#","outcome":"outcome","url.path":"url.path","duration_s":0.5,"gen_ai.usage.output_tokens":6"#,
        r#","triton.model_name":"triton.model_name","exception.type":"exception.type""#,
        r#","gen_ai.response.time_per_output_token":0.1,"gen_ai.response.output_tokens_per_second":12.0}"#,
    ];
    assert_eq!(found, parts.concat());
}

/// Leaves one request of each kind in flight.
fn die_with_two(directory: &Path, events: Vec<EventSchema>) -> ! {
    let producer = Producer::open(QueueSettings { events, ..queue_settings(directory) }).unwrap();
    let trace = |number| Trace { trace_id: [number; 16], span_id: [number; 8], ..Trace::default() };
    let mut model = Scratch::new();
    let correlation = Correlation::Number(7);
    let [name, version, instance] = ["whisper", "1", "whisper_0"].map(Exact);
    Served { name, version, instance, batch_size: 2, batch_position: 1, correlation }.push(&mut model);
    for (number, path, model) in [(1, &b"/v1/completions"[..], &b""[..]), (2, b"", model.as_slice())] {
        let (ids, method) = (RequestIds::new(trace(number), None, None), if number == 1 { &b"POST"[..] } else { b"" });
        let begun = Begun { model, ..begun(&ids, method, path) };
        std::mem::forget(InFlight::begin(&producer, &begun).unwrap());
    }
    die()
}

/// The lines of both, by a listener of this build.
fn recovered(test: &str) -> Vec<Value> {
    let mut bench = Bench::new();
    child(&format!("fields::{test}"), bench.path()).output().unwrap();
    bench.drain();
    let mut lines = bench.sink.events("request");
    for line in &mut lines {
        let line = line.as_object_mut().unwrap();
        for key in ["timestamp", "boot_id", "pid", "seq", "span_id", "trace_id", "trace_flags", "request_id"] {
            line.shift_remove(key).unwrap();
        }
    }
    lines
}

/// The lines of two requests whose process has died.
fn died() -> [Value; 2] {
    [
        json!({
            "severity_text": "ERROR", "event_name": "request", "outcome": "process_died", "error.type": "process_died",
            "http.request.method": "POST", "url.path": "/v1/completions", "http.request.body.size": 0,
            "http.response.body.size": 0, "duration_s": 0.0, "sampled_by": "error", "adjusted_count": 1.0,
        }),
        json!({
            "severity_text": "ERROR", "event_name": "request", "outcome": "process_died", "error.type": "process_died",
            "duration_s": 0.0, "sampled_by": "error", "adjusted_count": 1.0, "triton.model_name": "whisper",
            "triton.model_version": "1", "triton.model_instance_name": "whisper_0", "triton.batch_size": 2,
            "triton.batch_position": 1, "triton.correlation_id": 7,
        }),
    ]
}

#[test]
fn requests_of_both_kinds_are_recovered_after_their_process() {
    if let Some(directory) = child_directory() {
        die_with_two(&directory, fields::schemas());
    }
    assert_eq!(recovered("requests_of_both_kinds_are_recovered_after_their_process"), died());
}

#[test]
fn requests_of_both_kinds_are_recovered_after_a_process_of_an_earlier_build() {
    if let Some(directory) = child_directory() {
        die_with_two(&directory, vec![EventSchema::new(REQUEST, "request", &EARLIER).unwrap()]);
    }
    assert_eq!(recovered("requests_of_both_kinds_are_recovered_after_a_process_of_an_earlier_build"), died());
}

#[test]
fn requests_of_both_kinds_are_ended_with_their_queue() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let ids = RequestIds::new(Trace { trace_id: [1; 16], span_id: [1; 8], ..Trace::default() }, None, None);
    let mut model = Scratch::new();
    ["whisper", "1", "whisper_0"].iter().for_each(|text| model.push_str(text));
    let begun = |model| Begun { model, ..begun(&ids, b"", b"/") };
    let _open = [b"", model.as_slice()].map(|model| InFlight::begin(&producer, &begun(model)).unwrap());
    producer.close();
    let file = &producer.queue().unwrap().file;
    assert_eq!(file.counts().accepted, 2, "{MODEL_REQUEST}");
    bench.drain();
    let found: Vec<Value> = bench.sink.events("request").iter().map(|line| line["triton.model_name"].clone()).collect();
    assert_eq!(found, [Value::Null, json!("whisper")]);
}
