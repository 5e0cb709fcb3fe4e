//! One request as its messages pass by: outcomes, counts, timing with its caps, sampling; and exactly one record.

mod plain;
mod streams;

use crate::support::Bench;
use queue::event;
use queue::producer::Producer;
use queue::record::Trace;
use request::added::Recorded;
use request::callers::Caller;
use request::capture::{Content, TextCapture};
use request::fields;
use request::ids::RequestIds;
use request::observer::{Chunks, EngineFacts, Observer, ObserverSettings, RequestSource, RequestTexts};
use request::outcome::{Answered, Ending, Outcome};
use request::sampler::{Sampler, SamplerSettings};
use serde_json::{Value, json};
use std::sync::Arc;

const STARTED: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const TRACE: Trace = Trace { trace_id: [0x0a; 16], span_id: [0x0b; 8], parent_span_id: [0; 8], flags: 3 };

fn settings() -> ObserverSettings {
    ObserverSettings {
        recorded: Recorded::default(),
        chunks: Chunks::Timeline,
        chunk_timeline_limit: 4,
        capture_head_bytes: 1024,
        capture_tail_bytes: 1024,
        texts: TextCapture::default(),
        sampler: sampler(SamplerSettings::default()),
    }
}

fn sampler(settings: SamplerSettings) -> Arc<Sampler> {
    Arc::new(Sampler::new(&settings).unwrap())
}

/// A request that begins, as the sampler of these settings decides.
fn begin(settings: &ObserverSettings) -> Observer {
    begin_as(TRACE, b"/", settings)
}

fn begin_as(trace: Trace, path: &[u8], settings: &ObserverSettings) -> Observer {
    Observer::begin(STARTED, settings.sampler.head(&trace.trace_id, Caller::Nobody, path, STARTED))
}

fn ids() -> RequestIds {
    RequestIds::new(TRACE, None, None)
}

/// The records that `observe` causes, without the members that every line has.
fn records(observe: impl FnOnce(&Producer)) -> Vec<Value> {
    let mut bench = Bench::new();
    let producer = bench.producer();
    observe(&producer);
    bench.drain();
    let mut lines = bench.sink.lines();
    for line in &mut lines {
        let line = line.as_object_mut().unwrap();
        for key in ["timestamp", "boot_id", "pid", "seq", "trace_id", "span_id", "trace_flags"] {
            assert!(line.shift_remove(key).is_some(), "{key}");
        }
    }
    lines
}

fn finished(observer: Observer, ending: Ending<'_>, settings: &ObserverSettings) -> Value {
    finished_as(&ids(), observer, ending, settings)
}

fn finished_as(ids: &RequestIds, observer: Observer, ending: Ending<'_>, settings: &ObserverSettings) -> Value {
    finished_from(ids, observer, ending, http(None), settings)
}

fn finished_from(
    ids: &RequestIds,
    mut observer: Observer,
    ending: Ending<'_>,
    source: RequestSource<'_>,
    settings: &ObserverSettings,
) -> Value {
    let mut records = records(|producer| observer.finish(ids, ending, &source, STARTED + 100 * MS, producer, settings));
    assert_eq!(records.len(), 1);
    records.remove(0)
}

/// A request about which only the engine reports.
fn http<'a>(engine: Option<&'a EngineFacts<'a>>) -> RequestSource<'a> {
    RequestSource::Http { texts: RequestTexts::default(), engine }
}

/// A request whose answer has this status and these parts, each 10 ms after the one before.
fn answered(status: u16, parts: &[&[u8]], complete: bool, settings: &ObserverSettings) -> Observer {
    let mut observer = begin(settings);
    if status > 0 {
        observer.response_start(status, None, settings);
    }
    for (at, part) in (1..).zip(parts) {
        let last = complete && at == parts.len() as u64;
        observer.response_body(part, !last, STARTED + at * 10 * MS, settings);
    }
    observer
}

#[test]
fn an_outcome_follows_from_the_ending_the_status_and_the_client() {
    use Ending::{Cancelled, Raised, Returned, TimedOut};
    use Outcome::{ClientDisconnect, Error, Ok, ServerShutdown, Timeout};
    const DONE: (bool, bool) = (true, false);
    const OPEN: (bool, bool) = (false, false);
    const GONE: (bool, bool) = (false, true);
    let table = [
        (Returned, 200, DONE, Ok, ""),
        (Returned, 304, DONE, Ok, ""),
        (Returned, 404, DONE, Ok, ""),
        (Returned, 429, DONE, Ok, ""),
        (Returned, 408, DONE, Timeout, ""),
        (Returned, 504, DONE, Timeout, ""),
        (Returned, 500, DONE, Error, ""),
        (Returned, 503, DONE, Error, ""),
        (Returned, 599, DONE, Error, ""),
        (Returned, 200, OPEN, Error, "response_incomplete"),
        (Returned, 0, OPEN, Error, "response_incomplete"),
        (Returned, 200, GONE, ClientDisconnect, ""),
        (Returned, 500, GONE, ClientDisconnect, ""),
        (Ending::Disconnected("ClientDisconnect"), 200, OPEN, ClientDisconnect, "ClientDisconnect"),
        (Raised("ValueError"), 0, OPEN, Error, "ValueError"),
        (Raised("ValueError"), 200, OPEN, Error, "ValueError"),
        (Raised("OSError"), 200, GONE, ClientDisconnect, "OSError"),
        (TimedOut("TimeoutError"), 0, OPEN, Timeout, "TimeoutError"),
        (TimedOut("TimeoutError"), 200, OPEN, Timeout, "TimeoutError"),
        (Cancelled("CancelledError"), 200, OPEN, ServerShutdown, "CancelledError"),
        (Cancelled("CancelledError"), 0, OPEN, ServerShutdown, "CancelledError"),
        (Cancelled("CancelledError"), 200, GONE, ClientDisconnect, "CancelledError"),
    ];
    for (ending, status, (complete, disconnected), outcome, error_type) in table {
        let answered = Answered { status, complete, disconnected, ..Answered::default() };
        let decided = Outcome::of(ending, &answered);
        assert_eq!(decided, (outcome, error_type), "{ending:?} {status} complete={complete} gone={disconnected}");
    }
    let words =
        [Ok, Error, ClientDisconnect, Timeout, ServerShutdown].map(|outcome| (outcome.name(), outcome.severity()));
    let expected = [("ok", 9), ("error", 17), ("client_disconnect", 13), ("timeout", 17), ("server_shutdown", 13)];
    assert_eq!(words, expected);
}

#[test]
fn a_plain_request_has_these_fields_in_this_order() {
    let settings = settings();
    let ids = RequestIds::new(TRACE, Some(b"client-7"), None);
    let mut observer = begin(&settings);
    observer.capture_request(Content::Json, false, &settings);
    assert!(observer.wants_content_type(&settings));
    observer.request_bytes(br#"{"model":"m","#);
    observer.request_bytes(br#""stream":false}"#);
    observer.response_start(200, Some(Content::Json), &settings);
    observer.response_body(br#"{"model":"m-1"}"#, false, STARTED + 20 * MS, &settings);
    observer.disconnect();
    let texts = RequestTexts {
        method: "POST",
        path: b"/v1/chat/completions",
        route_prefix: "/v1",
        route: "/chat/{kind}",
        protocol_version: "1.1",
        client_address: "10.0.0.1",
    };
    let source = RequestSource::Http { texts, engine: None };
    let records = records(|producer| {
        observer.finish(&ids, Ending::Returned, &source, STARTED + 25 * MS + 1_999, producer, &settings);
        observer.finish(&ids, Ending::Raised("Late"), &source, STARTED + 30 * MS, producer, &settings);
    });
    let expected = json!({
        "severity_text": "INFO",
        "event_name": "request",
        "request_id": "0b0b0b0b0b0b0b0b",
        "client_request_id": "client-7",
        "outcome": "ok",
        "http.request.method": "POST",
        "url.path": "/v1/chat/completions",
        "http.route": "/v1/chat/{kind}",
        "network.protocol.version": "1.1",
        "client.address": "10.0.0.1",
        "http.response.status_code": 200,
        "http.request.body.size": 28,
        "http.response.body.size": 15,
        "duration_s": 0.02,
        "after_response_s": 0.005001,
    });
    assert_eq!(records.len(), 1, "exactly one, whichever side ends it first");
    let record = records[0].as_object().unwrap();
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&record[key], value, "{key}");
    }
    assert_eq!((&record["gen_ai.request.model"], &record["gen_ai.response.model"]), (&json!("m"), &json!("m-1")));
    let known: Vec<&String> = record.keys().filter(|key| expected.get(key.as_str()).is_some()).collect();
    assert_eq!(known, expected.as_object().unwrap().keys().collect::<Vec<_>>());
}

#[test]
fn a_request_has_our_id_whatever_the_client_calls_it_and_a_hostile_id_is_left_out() {
    for (id, kept) in [
        (None, None),
        (Some(&b"client-7"[..]), Some("client-7")),
        (Some(&b"with blank"[..]), None),
        (Some(&b""[..]), None),
        (Some(&[b'x'; 129][..]), None),
    ] {
        let ids = RequestIds::new(TRACE, id, None);
        let record = finished_as(&ids, begin(&settings()), Ending::Returned, &settings());
        assert_eq!(record["request_id"], "0b0b0b0b0b0b0b0b");
        assert_eq!(record.get("client_request_id"), kept.map(Value::from).as_ref());
    }
}

#[test]
fn a_request_that_follows_a_tracers_span_keeps_our_id() {
    let mut ids = RequestIds::new(TRACE, None, None);
    ids.follow([0x1a; 16], [0x1b; 8], 0xff);
    assert_eq!(ids.trace, Trace { trace_id: [0x1a; 16], span_id: [0x1b; 8], parent_span_id: [0; 8], flags: 3 });
    let record = finished_as(&ids, begin(&settings()), Ending::Returned, &settings());
    assert_eq!(record["request_id"], "0b0b0b0b0b0b0b0b");
}

#[test]
fn a_disconnect_counts_only_before_the_end_of_the_answer() {
    let settings = settings();
    let mut observer = answered(200, &[b"a"], false, &settings);
    observer.disconnect();
    let record = finished(observer, Ending::Cancelled("CancelledError"), &settings);
    assert_eq!((&record["outcome"], &record["error.type"]), (&json!("client_disconnect"), &json!("CancelledError")));
    assert_eq!(record["severity_text"], "WARN");
    let mut observer = answered(200, &[b"a"], true, &settings);
    observer.disconnect();
    assert_eq!(finished(observer, Ending::Returned, &settings)["outcome"], "ok");
}

#[test]
fn an_exception_before_the_answer_is_the_servers_500() {
    let settings = settings();
    let record = finished(begin(&settings), Ending::Raised("ValueError"), &settings);
    assert_eq!((&record["http.response.status_code"], &record["outcome"]), (&json!(500), &json!("error")));
    assert_eq!((&record["error.type"], &record["severity_text"]), (&json!("ValueError"), &json!("ERROR")));
    let record = finished(begin(&settings), Ending::Cancelled("CancelledError"), &settings);
    assert_eq!((record.get("http.response.status_code"), &record["outcome"]), (None, &json!("server_shutdown")));
    let record = finished(answered(200, &[b"a"], false, &settings), Ending::Raised("ValueError"), &settings);
    assert_eq!(record["http.response.status_code"], 200, "what the client has seen");
}

/// The sampling members of a request's record: why it was kept and how many requests it stands for; None if there is no
/// record.
fn sampled(
    trace: Trace,
    path: &[u8],
    end: impl FnOnce(&mut Observer),
    ending: Ending<'_>,
    settings: &ObserverSettings,
) -> Option<(String, f64)> {
    let mut lines = records(|producer| {
        let mut observer = begin_as(trace, path, settings);
        end(&mut observer);
        observer.finish(&ids(), ending, &http(None), STARTED + 100 * MS, producer, settings);
        let left_out: u64 = producer.queue().unwrap().file.counts().sampled_out.iter().sum();
        let accepted = producer.queue().unwrap().file.counts().accepted;
        assert_eq!(left_out + accepted, 1, "a record, or counted as left out");
    });
    let line = lines.pop()?;
    Some((line["sampled_by"].as_str().unwrap().to_owned(), line["adjusted_count"].as_f64().unwrap()))
}

fn answer(status: u16) -> impl FnOnce(&mut Observer) {
    move |observer| {
        let settings = settings();
        observer.response_start(status, None, &settings);
        observer.response_body(b"a", false, STARTED + MS, &settings);
    }
}

#[test]
fn good_requests_are_left_out_by_trace_id_and_what_stands_out_is_kept() {
    let trace = |low: u64| {
        let mut trace = TRACE;
        trace.trace_id[8..].copy_from_slice(&low.to_be_bytes());
        trace
    };
    let half = SamplerSettings { ratio: 0.5, skip_paths: vec!["/health".to_owned()], ..Default::default() };
    let settings = ObserverSettings { sampler: sampler(half.clone()), ..settings() };
    let slow = ObserverSettings { sampler: sampler(SamplerSettings { slow_nano: MS, ..half }), ..settings.clone() };
    let (out, kept) = (trace((1 << 55) - 1), trace(1 << 55));
    let gone = |observer: &mut Observer| observer.disconnect();
    let forced = |observer: &mut Observer| {
        answer(200)(observer);
        observer.force();
    };
    let row = |by: &str, count: f64| Some((by.to_owned(), count));
    use Ending::{Raised, Returned};
    assert_eq!(sampled(kept, b"/", answer(200), Returned, &settings), row("head", 2.0));
    assert_eq!(sampled(out, b"/", answer(200), Returned, &settings), None);
    assert_eq!(sampled(trace(0xff << 56), b"/", answer(200), Returned, &settings), None, "the low 56 bits count");
    assert_eq!(sampled(out, b"/", answer(404), Returned, &settings), None, "the client's error");
    assert_eq!(sampled(out, b"/", answer(500), Returned, &settings), row("error", 1.0));
    assert_eq!(sampled(kept, b"/", answer(500), Returned, &settings), row("head", 1.0));
    assert_eq!(sampled(out, b"/", |_| (), Raised("ValueError"), &settings), row("error", 1.0));
    assert_eq!(sampled(out, b"/", gone, Returned, &settings), row("abort", 1.0));
    assert_eq!(sampled(out, b"/", answer(200), Returned, &slow), row("slow", 1.0));
    assert_eq!(sampled(out, b"/", forced, Returned, &settings), row("forced", 1.0));
    assert_eq!(sampled(kept, b"/health", answer(200), Returned, &slow), None);
    assert_eq!(sampled(kept, b"/health", answer(503), Returned, &settings), row("error", 1.0));
}

#[test]
fn the_answer_of_a_request_that_only_a_failure_could_keep_is_not_captured() {
    let none = SamplerSettings { ratio: 0.0, ..Default::default() };
    let slow = SamplerSettings { slow_nano: 1, ..none.clone() };
    for (sampling, forced, wanted) in [
        (SamplerSettings::default(), false, true),
        (none.clone(), false, false),
        (slow, false, true),
        (none, true, true),
    ] {
        let settings = ObserverSettings { sampler: sampler(sampling), ..settings() };
        let mut observer = begin(&settings);
        observer.capture_request(Content::Json, false, &settings);
        if forced {
            observer.force();
        }
        assert_eq!(observer.wants_content_type(&settings), wanted);
    }
}

#[test]
fn a_request_that_turns_out_to_be_of_another_trace_is_decided_by_that_one() {
    let none =
        ObserverSettings { sampler: sampler(SamplerSettings { ratio: 0.0, ..Default::default() }), ..settings() };
    let decide = |observer: &mut Observer| {
        answer(200)(observer);
        observer.decide(settings().sampler.head(&TRACE.trace_id, Caller::Nobody, b"/", STARTED));
    };
    assert_eq!(sampled(TRACE, b"/", decide, Ending::Returned, &none), Some(("head".to_owned(), 1.0)));
}

#[test]
fn a_weight_that_nobody_knows_is_left_out() {
    use request::callers::Parent;
    let settings = settings();
    let parent = Parent { sampled: true, th: None, rv: None };
    let head = settings.sampler.head(&TRACE.trace_id, Caller::Trusted(parent), b"/", STARTED);
    let mut observer = Observer::begin(STARTED, head);
    answer(200)(&mut observer);
    let record = finished(observer, Ending::Returned, &settings);
    assert_eq!((&record["sampled_by"], record.get("adjusted_count")), (&json!("head"), None));
}

#[test]
fn the_built_in_events_keep_their_ids() {
    let mut schemas = [event::builtin(), fields::schemas()].concat();
    schemas.sort_by_key(|schema| schema.id);
    let events: Vec<(u16, String)> = schemas.into_iter().map(|schema| (schema.id, schema.name)).collect();
    let expected = [
        (0, "log.dropped"),
        (1, "log"),
        (2, "request"),
        (3, "request.chunk"),
        (4, "segments.removed"),
        (5, "control.changed"),
        (6, "process.ended"),
        (7, "segment.repaired"),
        (8, "request"),
    ];
    assert_eq!(events, expected.map(|(id, name)| (id, name.to_owned())));
}
