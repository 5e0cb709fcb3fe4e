//! The timing of streams: chunks, gaps, timelines, and their memory.

use super::*;
use queue::record::BodyText;
use request::capture::TextLimit;
use request::fields::{CHUNKS_S, Engine, Exact, Usage};
use request::observer::ExceptionTexts;
use request::outcome::Abort;

const USUAL: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n";

#[test]
fn a_stream_has_its_timing_and_a_capped_timeline() {
    let settings = settings();
    let record = finished(answered(200, &[&b"ab"[..]; 7], true, &settings), Ending::Returned, &settings);
    assert_eq!((&record["chunks"], &record["http.response.body.size"]), (&json!(7), &json!(14)));
    assert_eq!(record["gen_ai.response.time_to_first_chunk"], 0.01);
    let gaps = ["min", "mean", "max"].map(|name| record[format!("chunk_gap_{name}_us")].clone());
    assert_eq!(gaps, [10_000, 10_000, 10_000]);
    assert_eq!(
        (&record["chunk_gaps_us"], &record["chunk_gaps_truncated"]),
        (&json!([10_000, 10_000, 10_000, 10_000]), &json!(2))
    );

    let record = finished(answered(200, &[&b"ab"[..]; 5], true, &settings), Ending::Returned, &settings);
    assert_eq!(
        (&record["chunk_gaps_us"], record.get("chunk_gaps_truncated")),
        (&json!([10_000, 10_000, 10_000, 10_000]), None)
    );
}

#[test]
fn gaps_are_measured_between_chunks_with_bytes() {
    let settings = settings();
    let mut observer = answered(200, &[b"a", b"", b"b"], false, &settings);
    observer.response_body(b"c", true, STARTED + 35 * MS, &settings);
    observer.response_body(b"", false, STARTED + 90 * MS, &settings);
    let record = finished(observer, Ending::Returned, &settings);
    assert_eq!((&record["chunks"], &record["chunk_gaps_us"]), (&json!(3), &json!([20_000, 5_000])));
    let gaps = ["min", "mean", "max"].map(|name| record[format!("chunk_gap_{name}_us")].clone());
    assert_eq!(gaps, [5_000, 12_500, 20_000]);
}

#[test]
fn a_usual_part_is_recorded_as_if_it_had_been_read_and_one_behind_the_end_is_not() {
    let (usual, escaped) = (USUAL.as_bytes(), USUAL.replace("word", r"a\n").into_bytes());
    for settings in [settings(), ObserverSettings { chunks: Chunks::Summary, ..settings() }] {
        let record = |takes_short_way: bool| {
            let mut observer = begin(&settings);
            observer.response_start(200, Some(Content::Stream), &settings);
            for (at, part) in (1..).zip([usual, usual, &escaped, usual, b": ping\n\n", usual]) {
                let now = STARTED + at * at * MS;
                if !(takes_short_way && observer.usual_part(part, now, &settings)) {
                    observer.any_part(part, true, now, &settings);
                }
            }
            observer.any_part(usual, false, STARTED + 90 * MS, &settings);
            assert!(!observer.usual_part(usual, STARTED + 99 * MS, &settings));
            observer.response_body(usual, true, STARTED + 99 * MS, &settings);
            finished(observer, Ending::Returned, &settings)
        };
        let read = record(false);
        assert_eq!(record(true), read);
        assert_eq!((&read["chunks"], &read["stream.keep_alives"]), (&json!(6), &json!(1)));
    }
}

#[test]
fn a_stream_of_usual_parts_keeps_what_the_others_say_wherever_they_are() {
    let event = |rest: &str| {
        format!("data: {{\"id\":\"chatcmpl-1\",\"model\":\"tiny\",\"choices\":[{rest}]}}\n\n").into_bytes()
    };
    let first = event(r#"{"index":0,"delta":{"role":"assistant","content":""}}"#);
    let usual = event(r#"{"index":0,"delta":{"content":"word"}}"#);
    let odd = event(r#"{"index":0,"delta":{"content":"word"},"service_tier":"flex"}"#);
    let last = event(r#"{"index":0,"delta":{},"finish_reason":"length"}"#);
    let usage =
        b"data: {\"id\":\"chatcmpl-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":9}}\n\n";
    let settings = settings();
    let record = |takes_short_way: bool, usual_parts: usize, is_whole: bool| {
        let mut observer = begin(&settings);
        observer.capture_request(Content::Json, false, &settings);
        observer.response_start(200, Some(Content::Stream), &settings);
        let many = std::iter::repeat_n(&usual[..], usual_parts);
        let parts = std::iter::once(&first[..]).chain(many.clone()).chain([&odd[..]]).chain(many);
        let ends: &[&[u8]] = if is_whole { &[&last, usage, b"data: [DONE]\n\n"] } else { &[] };
        for (at, part) in (1..).zip(parts.chain(ends.iter().copied())) {
            let now = STARTED + at * MS;
            if !(takes_short_way && observer.usual_part(part, now, &settings)) {
                observer.any_part(part, true, now, &settings);
            }
        }
        if is_whole {
            observer.any_part(b"", false, STARTED + 900 * MS, &settings);
        }
        finished(observer, if is_whole { Ending::Returned } else { Ending::Disconnected("") }, &settings)
    };
    for (usual_parts, is_whole) in [(3, true), (3, false), (60, true), (60, false)] {
        let (short, read) = (record(true, usual_parts, is_whole), record(false, usual_parts, is_whole));
        assert_eq!(short, read, "{usual_parts} {is_whole}");
        assert_eq!(
            (&short["gen_ai.response.model"], &short["gen_ai.response.id"]),
            (&json!("tiny"), &json!("chatcmpl-1"))
        );
        let (tokens, reasons) = (&short["gen_ai.usage.output_tokens"], &short["gen_ai.response.finish_reasons"]);
        assert_eq!((tokens.as_u64(), reasons.is_array()), (is_whole.then_some(9), is_whole));
    }
}

#[test]
fn a_captured_text_has_each_usual_part() {
    let texts = |text| TextCapture { output: TextLimit { text, bytes: 1 << 14 }, ..TextCapture::default() };
    for text in [BodyText::Written, BodyText::Hashed] {
        let settings = ObserverSettings { texts: texts(text), ..settings() };
        let record = |takes_short_way: bool| {
            let mut observer = begin(&settings);
            observer.capture_request(Content::Json, false, &settings);
            observer.response_start(200, Some(Content::Stream), &settings);
            for at in 1..=9 {
                let now = STARTED + at * MS;
                if !(takes_short_way && observer.usual_part(USUAL.as_bytes(), now, &settings)) {
                    observer.any_part(USUAL.as_bytes(), true, now, &settings);
                }
            }
            observer.any_part(b"", false, STARTED + 90 * MS, &settings);
            finished(observer, Ending::Returned, &settings)
        };
        let read = record(false);
        assert_eq!(record(true), read);
        let messages = read["gen_ai.output.messages"].to_string();
        assert_eq!(messages.contains(&"word".repeat(9)), text == BodyText::Written, "{read}");
    }
}

#[test]
fn a_gap_beyond_32_bits_is_capped_in_the_timeline_only() {
    let settings = settings();
    let mut observer = answered(200, &[b"a"], false, &settings);
    observer.response_body(b"b", false, STARTED + 10 * MS + 5_000_000_000_000, &settings);
    let record = finished(observer, Ending::Returned, &settings);
    assert_eq!((&record["chunk_gap_max_us"], &record["chunk_gaps_us"]), (&json!(5_000_000_000u64), &json!([u32::MAX])));
}

#[test]
fn how_much_of_the_timing_stands_in_the_record_is_a_setting() {
    let keys = |chunks: Chunks, parts: &[&[u8]]| {
        let settings = ObserverSettings { chunks, ..settings() };
        let record = finished(answered(200, parts, true, &settings), Ending::Returned, &settings);
        let timing: Vec<String> =
            record.as_object().unwrap().keys().filter(|key| key.contains("chunk")).cloned().collect();
        timing.len()
    };
    assert_eq!(
        [Chunks::Off, Chunks::Summary, Chunks::Events, Chunks::Timeline].map(|it| keys(it, &[&b"a"[..]; 3])),
        [0, 5, 5, 6]
    );
    assert_eq!(keys(Chunks::Timeline, &[b"a"]), 0, "one part that says that it is the last: not a stream");
    assert_eq!(keys(Chunks::Timeline, &[b"a", b""]), 2, "a stream of one chunk has no gaps");
    assert_eq!(keys(Chunks::Timeline, &[b"", b""]), 0);
}

#[test]
fn the_memory_of_a_stream_does_not_grow_with_its_length() {
    let settings = settings();
    let text = |chunks: usize| {
        let mut observer = begin(&settings);
        observer.capture_request(Content::Json, false, &settings);
        observer.response_start(200, Some(Content::Stream), &settings);
        for at in 1..=chunks as u64 {
            observer.response_body(&[b'x'; 100], true, STARTED + at * MS, &settings);
        }
        observer.response_body(b"", false, STARTED + 1_000_000 * MS, &settings);
        finished(observer, Ending::Returned, &settings).to_string()
    };
    let (short, long) = (text(100), text(100_000));
    assert!(long.len() < short.len() + 40, "{short}\n{long}");
}

#[test]
fn chunk_events_number_the_chunks_of_sampled_streams() {
    let settings = ObserverSettings { chunks: Chunks::Events, ..settings() };
    let lines = records(|producer| {
        let mut observer = answered(200, &[b"abc"], false, &settings);
        observer.emit_chunks(&ids(), producer, 1, Some(3));
        observer.response_body(b"de", true, STARTED + 30 * MS, &settings);
        observer.emit_chunks(&ids(), producer, 1, Some(2));
        let none = ObserverSettings {
            sampler: sampler(SamplerSettings { ratio: 0.0, ..Default::default() }),
            ..settings.clone()
        };
        answered(200, &[b"abc"], false, &none).emit_chunks(&ids(), producer, 1, Some(3));
        let mut forced = answered(200, &[b"abc"], false, &none);
        forced.force();
        forced.emit_chunks(&ids(), producer, 1, Some(3));
        answered(200, &[b"whole"], true, &settings).emit_chunks(&ids(), producer, 1, Some(5));
    });
    let chunk = |chunk: u64, bytes: u64, since_start_s: f64| {
        json!({"severity_text": "INFO", "event_name": "request.chunk", "request_id": "0b0b0b0b0b0b0b0b",
               "chunk": chunk, "bytes": bytes, "since_start_s": since_start_s})
    };
    assert_eq!(lines, [chunk(1, 3, 0.01), chunk(2, 2, 0.03), chunk(1, 3, 0.01)]);
}

#[test]
fn a_stream_that_reports_an_error_has_failed_whatever_its_status() {
    let settings = settings();
    let outcome = |chunk: &[u8], complete: bool| {
        let observer = answered(200, &[b"data: {}\n\n", chunk, b"data: [DONE]\n\n"], complete, &settings);
        let record = finished(observer, Ending::Returned, &settings);
        (record["outcome"].clone(), record.get("error.type").cloned().unwrap_or_default())
    };
    let failed: [&[u8]; 5] = [
        b"data: {\"error\": {\"message\": \"EngineCore encountered an issue\", \"code\": 500}}\n\n",
        b"data:{\"error\":\"overloaded\"}\n\n",
        b"event: error\ndata: {\"type\":\"error\"}\n\n",
        b"event:error\r\ndata: {}\r\n\r\n",
        b"event: response.failed\ndata: {}\n\n",
    ];
    for chunk in failed {
        assert_eq!(outcome(chunk, true), (json!("error"), json!("stream_error")), "{chunk:?}");
    }
    let fine: [&[u8]; 8] = [
        b"data: {\"error\": null, \"choices\": []}\n\n",
        b"data: {\"choices\":[{\"delta\":{\"content\":\"{\\\"error\\\":1}\"}}]}\n\n",
        b"data: {\"errors\": 3}\n\n",
        b"data: \"error\"\n\n",
        b"event: errors\n\n",
        b"event: response.completed\ndata: {}\n\n",
        b"data:",
        b"event:",
    ];
    for chunk in fine {
        assert_eq!(outcome(chunk, true), (json!("ok"), json!(null)), "{chunk:?}");
    }
    let mut observer = answered(200, &[failed[0]], false, &settings);
    observer.disconnect();
    assert_eq!(finished(observer, Ending::Returned, &settings)["outcome"], "client_disconnect");
}

const DONE: &[u8] = b"data: [DONE]\n\n";
const USAGE: &[u8] = b"data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5}}\n\n";

#[test]
fn the_mark_of_the_end_and_events_with_nothing_but_usage_are_no_chunks() {
    let settings = settings();
    let chunks = |message: &[u8]| {
        let content = &b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"[..];
        let record =
            finished(answered(200, &[content, content, message, b""], true, &settings), Ending::Returned, &settings);
        assert_eq!(record["http.response.body.size"], 2 * content.len() + message.len());
        (record["chunks"].as_u64().unwrap(), record["chunk_gaps_us"].as_array().unwrap().len())
    };
    let none: [&[u8]; 16] = [
        DONE,
        b"data:[DONE]\r\n\r\n",
        b"data: [DONE]",
        USAGE,
        b"data: {\"choices\": [ ], \"usage\": {\"completion_tokens\": 5, \"details\": {\"cached_tokens\": 1}}}\n\n",
        b"data: {\"usage\": {\"completion_tokens\": 5, \"details\": {\"cached_tokens\": 1}}}\n\n",
        &[USAGE, DONE].concat(),
        b"data: {\"choices\":[],\"usage\":{\"completion_tokens\":5}}\n\n: done\n\ndata: [DONE]\n\n",
        b"data: {\"usage\":{}}\n\n",
        b"data: {\"choices\":[],\"usage\":{\"completion_tokens\":5},\"system_fingerprint\":\"vllm-1\"}\n\n",
        b"data: {\"choices\":[{\"index\":0}],\"usage\":null}\n\n",
        b"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
        b": ping\n\n",
        b"event: ping\ndata: {\"type\": \"ping\"}\n\n",
        b"data: \n\n",
        b"\n",
    ];
    for message in none {
        assert_eq!(chunks(message), (2, 1), "{}", String::from_utf8_lossy(message));
    }
    let some: [&[u8]; 8] = [
        b"data: {\"choices\":[{\"text\":\"[DONE]\"}]}\n\n",
        b"data: the [DONE]\n\n",
        b"data: {\"choices\":[{\"text\":\"a\"}],\"usage\":{\"completion_tokens\":5}}\n\n",
        b"data: {\"choices\":[{\"text\":\"\\\"choices\\\":[],\\\"usage\\\":{}\"}],\"x\":{\"y\":{}}}\n\n",
        b"data: {\"usage\":{\"completion_tokens\":5},\"delta\":{\"text\":{}}}\n\n",
        b"data: {\"delta\":{\"text\":\"a\"}}\n\n",
        b"data: {}}\n\n",
        b"id: 7\ndata: {\"n\":1,\ndata: \"m\":2}\n\n",
    ];
    for message in some {
        assert_eq!(chunks(message), (3, 2), "{}", String::from_utf8_lossy(message));
    }
}

#[test]
fn the_time_of_a_stream_ends_with_its_last_chunk_and_what_follows_makes_no_gap() {
    let settings = settings();
    let record = finished(answered(200, &[b"a", b"b", USAGE, DONE], true, &settings), Ending::Returned, &settings);
    let gaps = ["min", "mean", "max"].map(|name| record[format!("chunk_gap_{name}_us")].clone());
    assert_eq!((gaps, &record["duration_s"]), ([10_000, 10_000, 10_000].map(Value::from), &json!(0.04)));
    let record = finished(answered(200, &[USAGE, DONE], true, &settings), Ending::Returned, &settings);
    assert_eq!((record.get("chunks"), record.get("gen_ai.response.time_to_first_chunk")), (None, None));
}

/// What an engine reports of a request that it calls `chatcmpl-1`.
fn engine_facts(aborted: Abort, usage: Usage) -> EngineFacts<'static> {
    let engine = Engine { request_id: Exact("chatcmpl-1"), ..Engine::default() };
    EngineFacts { aborted, usage, engine }
}

/// The record of a stream of five tokens in three chunks, 10 ms apart, as reported by the answer or the engine.
fn rated(answer_reports: bool, engine_reports: Option<u64>, parts: &[&[u8]], settings: &ObserverSettings) -> Value {
    let mut observer = begin(settings);
    observer.capture_request(Content::Json, false, settings);
    observer.request_bytes(b"{}");
    observer.response_start(200, Some(Content::Stream), settings);
    let usage = [USAGE, b""];
    let parts: Vec<&[u8]> =
        parts.iter().copied().chain(usage[usize::from(!answer_reports)..].iter().copied()).collect();
    for (at, part) in (1..).zip(&parts) {
        observer.response_body(part, at < parts.len() as u64, STARTED + at * 10 * MS, settings);
    }
    let engine =
        engine_reports.map(|tokens| engine_facts(Abort::No, Usage { output: Some(tokens), ..Usage::default() }));
    finished_from(&ids(), observer, Ending::Returned, http(engine.as_ref()), settings)
}

#[test]
fn a_stream_has_its_time_per_output_token_and_tokens_per_second_where_the_tokens_are_known() {
    let settings = settings();
    let rates = |record: &Value| {
        ["time_per_output_token", "output_tokens_per_second"]
            .map(|name| record.get(format!("gen_ai.response.{name}")).and_then(Value::as_f64))
    };
    let three: [&[u8]; 3] = [b"data: a\n\n", b"data: b\n\n", b"data: c\n\n"];
    // 20 ms between first and last chunk, five tokens; the answer takes 50 ms, or 40 ms without the usage.
    assert_eq!(rates(&rated(true, None, &three, &settings)), [Some(0.005), Some(100.0)]);
    assert_eq!(rates(&rated(false, Some(5), &three, &settings)), [Some(0.005), Some(125.0)]);
    assert_eq!(rates(&rated(true, Some(9), &three, &settings)), [Some(0.005), Some(100.0)], "the answer goes before");
    assert_eq!(rates(&rated(false, Some(1), &three, &settings)), [None, Some(25.0)], "one token has no gap");
    assert_eq!(rates(&rated(false, Some(0), &three, &settings)), [None, None]);
    assert_eq!(rates(&rated(false, None, &three, &settings)), [None, None]);
    assert_eq!(rates(&rated(true, None, &three[..1], &settings))[0], None, "one chunk has no times between tokens");
    let summary = ObserverSettings { chunks: Chunks::Summary, ..settings.clone() };
    assert_eq!(rates(&rated(true, None, &three, &summary))[0], Some(0.005));
    let off = ObserverSettings { chunks: Chunks::Off, ..settings };
    assert_eq!(rates(&rated(true, None, &three, &off)), [None, Some(100.0)]);
}

#[test]
fn a_time_that_only_makes_rates_stands_in_no_line() {
    let settings = settings();
    assert_eq!(rated(true, None, &[b"data: a\n\n", b"data: b\n\n"], &settings).get(CHUNKS_S), None);
}

#[test]
fn what_the_engine_reports_stands_at_the_end_of_the_record() {
    let settings = settings();
    let reported = |aborted: Abort| {
        let usage = Usage { input: Some(12), output: Some(34), cached: None, source: "engine" };
        let observer = answered(200, &[b"a", b""], true, &settings);
        finished_from(&ids(), observer, Ending::Returned, http(Some(&engine_facts(aborted, usage))), &settings)
    };
    let record = reported(Abort::No);
    let keys: Vec<&String> = record.as_object().unwrap().keys().rev().take(5).collect();
    assert_eq!(
        keys,
        [
            "gen_ai.response.output_tokens_per_second",
            "engine.request_id",
            "usage_source",
            "gen_ai.usage.output_tokens",
            "gen_ai.usage.input_tokens"
        ],
        "{record}"
    );
    assert_eq!(
        (&record["gen_ai.usage.input_tokens"], &record["engine.request_id"]),
        (&json!(12), &json!("chatcmpl-1"))
    );
    let ended = |aborted: Abort| (reported(aborted)["outcome"].clone(), reported(aborted).get("error.type").cloned());
    assert_eq!(ended(Abort::No), (json!("ok"), None));
    assert_eq!(ended(Abort::Engine), (json!("server_shutdown"), Some(json!("engine_abort"))));
    assert_eq!(ended(Abort::Asked), (json!("aborted"), Some(json!("engine_abort"))));
}

#[test]
fn an_exception_stands_under_its_own_names_behind_whatever_the_engine_has_reported() {
    for engine in [None, Some(engine_facts(Abort::No, Usage::default()))] {
        let settings = settings();
        let mut observer = begin(&settings);
        let [kind, message, stacktrace] = ["ValueError", "no", "line 1"].map(str::to_owned);
        observer.raise(ExceptionTexts { kind, message, stacktrace });
        let record = finished_from(&ids(), observer, Ending::Raised("ValueError"), http(engine.as_ref()), &settings);
        let last: Vec<&Value> = record.as_object().unwrap().values().rev().take(3).collect();
        assert_eq!(last, ["line 1", "no", "ValueError"], "{record}");
        assert_eq!(record["exception.type"], "ValueError");
    }
}
