//! The record of a plain request has code of its own; it must say what the code for any request says.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use queue::record::Scratch;
use request::added::{AddedFields, Kind, Members};
use request::in_flight::InFlight;
use request::in_flight::facts::Begun;

/// A request, as the middleware sees it.
#[derive(Clone, Debug)]
struct Seen {
    status: u16,
    method: String,
    path: Vec<u8>,
    prefix: &'static str,
    route: String,
    version: &'static str,
    client: String,
    client_id: Option<String>,
    body: Option<Vec<u8>>,
    parts: Vec<Vec<u8>>,
    chunks: Chunks,
    slow: bool,
    /// The sampler's: all or none.
    ratio: f64,
    added: AddedByOthers,
}

/// What configuration and application add to its record.
#[derive(Clone, Debug, Default)]
struct AddedByOthers {
    header: Option<String>,
    /// The body's members, if it has a body.
    of_body: bool,
    /// The application's tenant and one attribute, and whether it sets them before the answer begins.
    set: Option<(String, i64)>,
    is_early: bool,
}

fn added() -> impl Strategy<Value = AddedByOthers> {
    let set = proptest::option::of(("[a-z]{1,8}", any::<i64>()));
    (proptest::option::of("[a-z]{0,20}"), any::<bool>(), set, any::<bool>())
        .prop_map(|(header, of_body, set, is_early)| AddedByOthers { header, of_body, set, is_early })
}

impl AddedByOthers {
    fn fields(&self) -> Option<Box<AddedFields>> {
        let (tenant, number) = self.set.as_ref()?;
        let (mut fields, mut encoded) = (AddedFields::default(), Scratch::new());
        fields.members.set(b"tenant.id", tenant.as_bytes());
        encoded.push_map_key("n");
        encoded.push_int(*number);
        fields.put(1, encoded.as_slice());
        Some(Box::new(fields))
    }

    fn begin(&self, observer: &mut Observer) {
        if let Some(value) = &self.header {
            let mut members = Members::default();
            members.add(Kind::Text, b"tenant.id", value.as_bytes());
            members.add(Kind::Text, b"http.request.header.x", value.as_bytes());
            assert!(observer.identify_few(members.as_bytes()));
        }
    }
}

fn seen() -> impl Strategy<Value = Seen> {
    let texts = ("[A-Z]{0,8}", vec(any::<u8>(), 0..40), "[/a-z{}é]{0,30}", "[0-9.:]{0,20}", any::<Option<u64>>());
    let body = proptest::option::of(Just(br#"{"model":"m","max_tokens":7,"user":"u"}"#.to_vec()));
    let parts = vec(vec(any::<u8>(), 0..30), 1..7);
    let chunks = prop_oneof![Just(Chunks::Off), Just(Chunks::Summary), Just(Chunks::Timeline)];
    let few = (
        0_u16..600,
        prop_oneof![Just(""), Just("/v1")],
        prop_oneof![Just(""), Just("1.1"), Just("2")],
        any::<bool>(),
        prop_oneof![3 => Just(1.0), 1 => Just(0.0)],
    );
    (texts, body, parts, chunks, few, added()).prop_map(
        |((method, path, route, client, id), body, parts, chunks, (status, prefix, version, slow, ratio), added)| {
            let client_id = id.map(|id| format!("client-{id}"));
            Seen {
                status,
                method,
                path,
                prefix,
                route,
                version,
                client,
                client_id,
                body,
                parts,
                chunks,
                slow,
                ratio,
                added,
            }
        },
    )
}

/// Its record, and whether it is a plain one; with `any`, by the code for any request.
fn record(seen: &Seen, any: bool) -> (Value, bool) {
    let slow_nano = if seen.slow { 15 * MS } else { 0 };
    let sampler = sampler(SamplerSettings { slow_nano, ratio: seen.ratio, ..SamplerSettings::default() });
    let of_bodies: &[String] = if seen.added.of_body { &["user".to_owned()] } else { &[] };
    let recorded = Recorded::parse(&[], of_bodies, false).unwrap();
    let settings = ObserverSettings { chunks: seen.chunks, sampler, recorded, ..settings() };
    let mut ids = RequestIds::new(TRACE, seen.client_id.as_deref().map(str::as_bytes), None);
    let texts = RequestTexts {
        method: &seen.method,
        path: &seen.path,
        route_prefix: seen.prefix,
        route: &seen.route,
        protocol_version: seen.version,
        client_address: &seen.client,
    };
    let mut is_plain = false;
    let records = records(|producer| {
        let mut observer = begin(&settings);
        let begun = Begun {
            started: STARTED,
            started_unix_nano: STARTED,
            ids: &ids,
            method: seen.method.as_bytes(),
            path: &seen.path,
            protocol_version: seen.version.as_bytes(),
            client_address: seen.client.as_bytes(),
            is_probe: false,
            model: b"",
        };
        observer.enter(InFlight::begin(producer, &begun).unwrap(), begun.is_whole());
        seen.added.begin(&mut observer);
        if let Some(body) = &seen.body {
            observer.capture_request(Content::Json, false, &settings);
            observer.request_bytes(body);
        }
        observer.in_flight().unwrap().settle(&mut ids, seen.prefix, &seen.route);
        if let Some(fields) = seen.added.fields().filter(|_| seen.added.is_early) {
            observer.announce(&fields.members);
        }
        observer.response_start(seen.status, seen.body.is_some().then_some(Content::Json), &settings);
        for (at, part) in (1..).zip(&seen.parts) {
            observer.response_body(part, at < seen.parts.len() as u64, STARTED + at * 3 * MS, &settings);
        }
        let now = STARTED + 100 * MS;
        if let Some(fields) = seen.added.fields() {
            observer.add(fields);
        }
        is_plain = !any && observer.finish_plain(&ids, now, producer, &settings);
        observer.finish(&ids, Ending::Returned, &RequestSource::Http { texts, engine: None }, now, producer, &settings);
    });
    let is_left_out = seen.ratio == 0.0 && !(seen.slow && seen.parts.len() >= 5);
    let is_failure = records.iter().any(|record| record["outcome"] != "ok");
    assert_eq!(records.len(), usize::from(!is_left_out || is_failure), "at most one, whichever code ends it");
    (Value::Array(records), is_plain)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_plain_record_is_what_the_code_for_any_request_writes(seen in seen()) {
        let (plain, is_plain) = record(&seen, false);
        for record in plain.as_array().unwrap() {
            let user = (seen.added.of_body && seen.body.is_some()).then_some("u");
            prop_assert_eq!(record["openai.request.user"].as_str(), user);
            let set = seen.added.set.as_ref();
            let tenant = set.map(|(tenant, _)| tenant).or(seen.added.header.as_ref());
            prop_assert_eq!(record["tenant.id"].as_str(), tenant.map(String::as_str));
            prop_assert_eq!(record["http.request.header.x"].as_str(), seen.added.header.as_deref());
            prop_assert_eq!(record["attributes"]["n"].as_i64(), set.map(|(_, number)| *number));
        }
        prop_assert_eq!(plain, record(&seen, true).0);
        let is_ok = (100..500).contains(&seen.status) && seen.status != 408;
        let is_error_event = seen.parts.iter().any(|part| part.starts_with(b"data:") || part.starts_with(b"event:"));
        let is_kept_as_slow = seen.ratio == 0.0 && seen.slow && seen.parts.len() >= 5;
        prop_assert!(is_plain == (is_ok && !seen.path.is_empty() && !is_kept_as_slow) || is_error_event);
    }
}

#[test]
fn a_long_text_is_cut_whatever_else_the_request_is() {
    let seen = |path: usize, method: usize| Seen {
        status: 200,
        method: "M".repeat(method),
        path: vec![b'p'; path],
        prefix: "",
        route: String::new(),
        version: "1.1",
        client: String::new(),
        client_id: None,
        body: None,
        parts: vec![b"a".to_vec()],
        chunks: Chunks::Timeline,
        slow: false,
        ratio: 1.0,
        added: AddedByOthers::default(),
    };
    for (path, method, fits) in
        [(512, 16, true), (513, 16, false), (512, 17, false), (2049, 257, false), (70_000, 3, false)]
    {
        let seen = seen(path, method);
        let (plain, is_plain) = record(&seen, false);
        assert_eq!((&plain, is_plain), (&record(&seen, true).0, fits));
        let plain = &plain[0];
        assert_eq!(plain["url.path"].as_str().unwrap().len(), path.min(2048));
        assert_eq!(plain["http.request.method"].as_str().unwrap().len(), method.min(256));
    }
}

// The application's work after its answer has passed: its time and its failures are separate from those of the answer.

/// The record of a request whose whole answer has passed after 10 ms, and which ends after 100 ms.
fn ended(status: u16, ending: Ending<'_>, settings: &ObserverSettings) -> Value {
    finished(answered(status, &[b"a"], true, settings), ending, settings)
}

#[test]
fn a_duration_ends_with_the_last_part_of_the_answer() {
    let record = ended(200, Ending::Returned, &settings());
    assert_eq!((&record["duration_s"], &record["after_response_s"]), (&json!(0.01), &json!(0.09)));
    assert_eq!(record.get("after_response_outcome"), None);
    let open = finished(answered(200, &[b"a"], false, &settings()), Ending::Raised("ValueError"), &settings());
    assert_eq!((&open["duration_s"], open.get("after_response_s")), (&json!(0.1), None));
}

#[test]
fn trailers_are_the_last_part_of_their_answer() {
    let settings = settings();
    let mut observer = begin(&settings);
    observer.response_start(200, None, &settings);
    observer.expect_trailers();
    observer.response_body(b"a", false, STARTED + 10 * MS, &settings);
    observer.response_trailers(true, STARTED + 20 * MS);
    observer.response_trailers(false, STARTED + 30 * MS);
    let record = finished(observer, Ending::Returned, &settings);
    assert_eq!((&record["duration_s"], &record["after_response_s"]), (&json!(0.03), &json!(0.07)));
}

#[test]
fn a_failure_behind_a_good_answer_has_its_own_outcome() {
    use Ending::{Cancelled, Disconnected, Raised, TimedOut};
    for (ending, outcome, name, severity) in [
        (Raised("ValueError"), "error", "ValueError", "ERROR"),
        (TimedOut("TimeoutError"), "timeout", "TimeoutError", "ERROR"),
        (Cancelled("CancelledError"), "server_shutdown", "CancelledError", "WARN"),
        (Disconnected("ClientDisconnect"), "client_disconnect", "ClientDisconnect", "WARN"),
    ] {
        for status in [200, 404] {
            let record = ended(status, ending, &settings());
            assert_eq!((&record["outcome"], record.get("error.type")), (&json!("ok"), None), "{ending:?}");
            assert_eq!(
                (&record["after_response_outcome"], &record["severity_text"]),
                (&json!(outcome), &json!(severity))
            );
            assert_eq!(record["after_response_error_type"], name);
            assert_eq!((&record["http.response.status_code"], &record["duration_s"]), (&json!(status), &json!(0.01)));
        }
    }
}

#[test]
fn an_exception_that_the_answer_itself_reports_is_the_answers() {
    let record = ended(500, Ending::Raised("ValueError"), &settings());
    assert_eq!((&record["outcome"], &record["error.type"]), (&json!("error"), &json!("ValueError")));
    assert_eq!((record.get("after_response_outcome"), &record["after_response_s"]), (None, &json!(0.09)));
}

#[test]
fn a_last_part_that_the_server_refused_is_not_behind_the_answer() {
    let settings = settings();
    let mut observer = answered(200, &[b"a"], true, &settings);
    observer.take_back_end();
    let record = finished(observer, Ending::Raised("RuntimeError"), &settings);
    assert_eq!((&record["outcome"], &record["error.type"]), (&json!("error"), &json!("RuntimeError")));
    assert_eq!((&record["duration_s"], record.get("after_response_s")), (&json!(0.1), None));
}

#[test]
fn a_failure_behind_the_answer_is_kept_whatever_the_sampler_says() {
    let settings =
        ObserverSettings { sampler: sampler(SamplerSettings { ratio: 0.0, ..Default::default() }), ..settings() };
    for (ending, by) in [(Ending::Raised("ValueError"), "error"), (Ending::Cancelled("CancelledError"), "abort")] {
        assert_eq!(ended(200, ending, &settings)["sampled_by"], by);
    }
}

#[test]
fn what_is_slow_behind_the_answer_does_not_make_the_request_slow() {
    let settings = ObserverSettings {
        sampler: sampler(SamplerSettings { ratio: 0.0, slow_nano: 50 * MS, ..Default::default() }),
        ..settings()
    };
    let lines = records(|producer| {
        for complete in [true, false] {
            let mut observer = answered(200, &[b"a"], complete, &settings);
            observer.response_body(b"b", false, STARTED + 60 * MS, &settings);
            observer.finish(&ids(), Ending::Returned, &http(None), STARTED + 100 * MS, producer, &settings);
        }
    });
    assert_eq!(lines.len(), 1);
    assert_eq!((&lines[0]["sampled_by"], &lines[0]["duration_s"]), (&json!("slow"), &json!(0.06)));
}

// What a killed process's slot says of a stream is what the record of its end would say.

/// Messages of a stream, each with so many chunks; without one, it keeps the connection alive.
fn message(chunks: usize) -> Vec<u8> {
    if chunks == 0 { b": ping\n\n".to_vec() } else { b"data: {\"response\":\"a\"}\n\n".repeat(chunks) }
}

fn stream(messages: &[usize], settings: &ObserverSettings, enter: impl FnOnce(&mut Observer)) -> Observer {
    let mut observer = begin(settings);
    enter(&mut observer);
    observer.response_start(200, Some(Content::Stream), settings);
    for (at, chunks) in (1..).zip(messages) {
        observer.response_body(&message(*chunks), true, STARTED + at * 10 * MS, settings);
    }
    observer
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_slot_of_a_stream_says_of_its_chunks_what_the_record_says(messages in vec(0_usize..4, 0..6)) {
        let settings = ObserverSettings { chunks: Chunks::Summary, ..settings() };
        let whole = finished(stream(&messages, &settings, |_| ()), Ending::Returned, &settings);
        let (mut bench, ids) = (Bench::new(), ids());
        let producer = bench.producer();
        let begun = Begun { started: STARTED, ..crate::support::begun(&ids, b"POST", b"/") };
        let enter = |observer: &mut Observer| observer.enter(InFlight::begin(&producer, &begun).unwrap(), true);
        std::mem::forget(stream(&messages, &settings, enter));
        producer.close();
        bench.drain();
        let left = bench.sink.events("request");
        prop_assert_eq!(left.len(), 1);
        let fields = ["chunks", "gen_ai.response.time_to_first_chunk", "chunk_gap_mean_us", "http.response.body.size"];
        for field in fields {
            prop_assert_eq!(left[0].get(field), whole.get(field), "{}", field);
        }
    }
}
