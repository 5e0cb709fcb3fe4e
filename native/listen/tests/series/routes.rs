//! Requests over HTTP by route, method and status.

use super::die_around_the_count;
use crate::support::Bench;
use lines::redact::{RedactionSettings, Rules};
use lines::series::{self, ROUTE_BOUNDS_S, RouteCounts};
use listen::leader::Round;
use queue::event::{MODEL_REQUEST, REQUEST};
use queue::producer::Producer;
use queue::record::{Body, BodyKind, BodyText, Scratch, Trace};
use request::fields::{CHUNKS_S, HttpRecord, ModelRecord};
use std::path::Path;
use std::time::Duration;

fn counted(directory: &Path) -> Vec<RouteCounts> {
    series::read(directory).unwrap().routes
}

fn requests(series: &RouteCounts) -> f64 {
    series.words[..=ROUTE_BOUNDS_S.len()].iter().sum()
}

fn all_requests(directory: &Path) -> f64 {
    counted(directory).iter().map(requests).sum()
}

/// Route, method, status and number of each series.
fn labels(directory: &Path) -> Vec<(String, &'static str, u16, f64)> {
    let mut all: Vec<_> =
        counted(directory).iter().map(|one| (one.route.clone(), one.method, one.status, requests(one))).collect();
    all.sort_by(|one, other| (&one.0, one.1, one.2).cmp(&(&other.0, other.1, other.2)));
    all
}

fn drain(bench: &mut Bench) {
    while bench.leader.round(bench.now, true) == Round::Wrote {}
}

#[test]
fn a_request_counts_under_its_route_its_method_and_its_status_in_the_bucket_of_its_time() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let got = Request { duration_s: 0.25, ..Request::http("GET", "/items/{item}") };
    got.emit(&producer);
    Request { duration_s: 0.26, adjusted_count: 2.5, ..got.clone() }.emit(&producer);
    Request { status: 404, outcome: "error", ..got.clone() }.emit(&producer);
    Request { method: "POST", duration_s: 100.0, ..Request::ok("m") }.emit(&producer);
    Request { method: "BREW", status: 0, outcome: "client_disconnect", ..got }.emit(&producer);
    // Without a method it is no request over HTTP.
    Request { route: "/never", ..Request::plain() }.emit(&producer);
    bench.drain();
    let expected = [
        ("", "POST", 200, 1.0),
        ("/items/{item}", "GET", 200, 3.5),
        ("/items/{item}", "GET", 404, 1.0),
        ("/items/{item}", "_OTHER", 0, 1.0),
    ];
    let expected = expected.map(|(route, method, status, count)| (route.to_owned(), method, status, count));
    assert_eq!(labels(bench.path()), expected);
    let all = counted(bench.path());
    let found = all.iter().find(|one| one.status == 200 && one.method == "GET").unwrap();
    let bucket = ROUTE_BOUNDS_S.iter().position(|bound| *bound == 0.25).unwrap();
    assert_eq!((found.words[bucket], found.words[bucket + 1]), (1.0, 2.5), "a bound belongs to its bucket");
    assert_eq!(found.words[ROUTE_BOUNDS_S.len() + 1], 0.25 + 0.26 * 2.5, "the sum of the times");
    let slow = all.iter().find(|one| one.method == "POST").unwrap();
    assert_eq!(slow.words[ROUTE_BOUNDS_S.len()], 1.0, "above all bounds");
}

#[test]
fn names_that_come_once_each_take_no_place_from_a_route_that_comes_back_and_grow_nothing() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let file_bytes = |bench: &Bench| std::fs::metadata(bench.path().join("metrics")).unwrap().len();
    let before = file_bytes(&bench);
    for n in 0..600 {
        Request::http("GET", &format!("/users/{n}/items")).emit(&producer);
        if n >= 100 && n % 5 == 0 {
            Request::http("GET", "/late").emit(&producer);
        }
        if n % 50 == 0 {
            drain(&mut bench);
        }
    }
    Request::http("GET", &format!("/{}", "x".repeat(200))).emit(&producer);
    Request::http("GET", "other").emit(&producer);
    drain(&mut bench);
    let all = counted(bench.path());
    assert_eq!(all.len(), 32 + 1 + 1, "the first ones, the late one, and all others together");
    let of = |route: &str| all.iter().filter(|one| one.route == route).map(requests).sum::<f64>();
    assert!((80.0..86.0).contains(&of("/late")), "had to come back 16 times: {}", of("/late"));
    assert_eq!(of("other") + of("/late"), 600.0 - 32.0 + 100.0 + 2.0);
    assert_eq!(file_bytes(&bench), before);
}

#[test]
fn combinations_without_room_count_together_and_failures_leave_room_for_successful_requests() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    for n in 0..30 {
        let route = format!("/route/{n}");
        for status in 400..416 {
            Request { status, outcome: "error", ..Request::http("GET", &route) }.emit(&producer);
        }
        drain(&mut bench);
    }
    Request::http("GET", "/route/29").emit(&producer);
    bench.drain();
    let all = counted(bench.path());
    let of = |route: &str, status: u16| {
        all.iter().filter(|one| one.route == route && one.status == status).map(requests).sum::<f64>()
    };
    assert_eq!((of("/route/29", 200), of("other", 0)), (1.0, 480.0 - 128.0));
    assert_eq!(all_requests(bench.path()), 481.0);
}

#[test]
fn what_is_given_back_of_a_batch_and_a_change_of_leader_count_once() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    (0..5).for_each(|_| Request::http("GET", "/a").emit(&producer));
    bench.sink.taken().faults.push_back(3);
    bench.round(Duration::from_millis(1), true);
    assert_eq!(all_requests(bench.path()), 0.0, "not before they are written");
    bench.change_leader();
    assert_eq!(all_requests(bench.path()), 3.0);
    bench.drain();
    for round in 1..=3 {
        ["/a", "/b"].iter().for_each(|route| Request::http("GET", route).emit(&producer));
        bench.drain();
        assert_eq!(all_requests(bench.path()), 5.0 + f64::from(2 * round));
        bench.change_leader();
    }
    assert_eq!(counted(bench.path()).len(), 2);
}

#[test]
fn a_leader_that_dies_around_its_count_leaves_a_successor_that_counts_the_rest() {
    for before in [true, false] {
        let mut bench = Bench::new();
        let producer = bench.producer();
        (0..4).for_each(|_| Request::http("GET", "/a").emit(&producer));
        die_around_the_count(bench.path(), &producer, before);
        assert_eq!(all_requests(bench.path()), if before { 0.0 } else { 4.0 });
        Request::http("GET", "/a").emit(&producer);
        bench.next_leader();
        bench.drain();
        assert_eq!(all_requests(bench.path()), 5.0, "died before the commit: {before}");
    }
}

#[test]
fn what_is_redacted_of_a_route_in_the_line_is_redacted_of_its_label() {
    let custom = vec![("user".to_owned(), "u-[0-9]+".to_owned())];
    let redaction = RedactionSettings { custom, replacement: "\"***\"".to_owned(), ..RedactionSettings::default() };
    let mut bench = Bench::with(|settings| settings.redaction = Rules::compile(&redaction).unwrap());
    let producer = bench.producer();
    for route in ["/users/u-7/items", "/users/u-8/items", "/plain"] {
        Request::http("GET", route).emit(&producer);
    }
    bench.drain();
    let expected = [("/plain".to_owned(), "GET", 200, 1.0), ("/users/\"***\"/items".to_owned(), "GET", 200, 2.0)];
    assert_eq!(labels(bench.path()), expected);
    let lines = bench.sink.events("request");
    assert_eq!(lines[0]["http.route"], "/users/\"***\"/items");
}

// Terminal records of requests, with the few fields that are counted.

#[derive(Clone)]
pub struct Request<'a> {
    pub outcome: &'a str,
    pub error_type: &'a str,
    pub operation: &'a str,
    pub status: u64,
    pub duration_s: f64,
    pub first_chunk_s: f64,
    pub mean_gap_us: u64,
    pub chunks_s: f64,
    pub adjusted_count: f64,
    pub request_model: &'a str,
    pub response_model: &'a str,
    /// The usage that the answer reports, as JSON.
    pub usage: &'a str,
    /// The tokens that the engine reports.
    pub engine_tokens: Option<[u64; 2]>,
    pub served_model: &'a str,
    /// Empty: it is not over HTTP.
    pub method: &'a str,
    pub route: &'a str,
    /// In the engine's queue, of prefill, of decoding.
    pub engine_s: Option<[f64; 3]>,
}

impl<'a> Request<'a> {
    /// A successful request of 20 ms whose answer names the requested model.
    pub fn ok(model: &'a str) -> Self {
        Self {
            outcome: "ok",
            error_type: "",
            operation: "chat",
            status: 200,
            duration_s: 0.02,
            first_chunk_s: -1.0,
            mean_gap_us: 0,
            chunks_s: 0.0,
            adjusted_count: 1.0,
            request_model: model,
            response_model: model,
            usage: "",
            engine_tokens: None,
            served_model: "",
            method: "",
            route: "",
            engine_s: None,
        }
    }

    /// A successful request that is not for inference.
    pub fn plain() -> Self {
        Self { operation: "", ..Self::ok("") }
    }

    /// A successful request over HTTP that is not for inference.
    pub fn http(method: &'a str, route: &'a str) -> Self {
        Self { method, route, ..Self::plain() }
    }

    pub fn emit(&self, producer: &Producer) {
        let mut scratch = Scratch::new();
        let (event, fields) = match self.served_model {
            "" => (REQUEST, HttpRecord::fields()),
            _ => (MODEL_REQUEST, ModelRecord::fields()),
        };
        for field in fields {
            self.push(&mut scratch, field.name);
        }
        assert!(producer.emit(event, 9, scratch.as_slice()));
    }

    fn push(&self, scratch: &mut Scratch, field: &str) {
        match field {
            "trace" => scratch.push_trace(&Trace { trace_id: [0x0a; 16], span_id: [0x0b; 8], ..Trace::default() }),
            "outcome" => scratch.push_str(self.outcome),
            "error.type" if !self.error_type.is_empty() => scratch.push_str(self.error_type),
            "gen_ai.operation.name" if !self.operation.is_empty() => scratch.push_str(self.operation),
            "http.response.status_code" => scratch.push_uint(self.status),
            "duration_s" => scratch.push_float(self.duration_s),
            "gen_ai.response.time_to_first_chunk" if self.first_chunk_s >= 0.0 => {
                scratch.push_float(self.first_chunk_s);
            }
            "chunk_gap_mean_us" if self.mean_gap_us > 0 => scratch.push_uint(self.mean_gap_us),
            CHUNKS_S if self.chunks_s > 0.0 => scratch.push_float(self.chunks_s),
            "adjusted_count" => scratch.push_float(self.adjusted_count),
            "request_body" => push_body(scratch, BodyKind::Request, self.request_model, ""),
            "response_body" => push_body(scratch, BodyKind::Response, self.response_model, self.usage),
            "gen_ai.usage.input_tokens" => push_tokens(scratch, self.engine_tokens.map(|[input, _]| input)),
            "gen_ai.usage.output_tokens" => push_tokens(scratch, self.engine_tokens.map(|[_, output]| output)),
            "triton.model_name" if !self.served_model.is_empty() => scratch.push_str(self.served_model),
            "http.request.method" if !self.method.is_empty() => scratch.push_str(self.method),
            "http.route" if !self.route.is_empty() => scratch.push_str(self.route),
            "engine.queued_s" => push_seconds(scratch, self.engine_s.map(|[queued, ..]| queued)),
            "engine.prefill_s" => push_seconds(scratch, self.engine_s.map(|[_, prefill, _]| prefill)),
            "engine.decode_s" => push_seconds(scratch, self.engine_s.map(|[.., decode]| decode)),
            _ => scratch.push_absent(),
        }
    }
}

fn push_tokens(scratch: &mut Scratch, tokens: Option<u64>) {
    match tokens {
        Some(tokens) => scratch.push_uint(tokens),
        None => scratch.push_absent(),
    }
}

fn push_seconds(scratch: &mut Scratch, seconds: Option<f64>) {
    match seconds {
        Some(seconds) => scratch.push_float(seconds),
        None => scratch.push_absent(),
    }
}

fn push_body(scratch: &mut Scratch, kind: BodyKind, model: &str, usage: &str) {
    let members = [("model", format!("\"{model}\"")), ("usage", usage.to_owned())];
    let members = members.iter().filter(|(_, value)| !matches!(value.as_str(), "" | "\"\""));
    let head: Vec<String> = members.map(|(key, value)| format!("\"{key}\":{value}")).collect();
    let head = format!("{{{}}}", head.join(","));
    scratch.push_body(&Body { kind, head: head.as_bytes(), tail: b"", complete: true, text: BodyText::Withheld });
}
