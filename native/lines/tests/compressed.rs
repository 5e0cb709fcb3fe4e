//! Compressed bodies: what their captured beginning holds is read, and the line says where something may be missing.

use crate::HEAD;
use lines::encode::Encoder;
use proptest::prelude::*;
use queue::event::EventSchema;
use queue::record::{Body, BodyText, Scratch, Values};
use request::capture::packed::{PackedStream, Unpacked};
use request::capture::{Captured, Content, TextCapture, TextLimit};
use serde_json::{Map, Value, json};
use std::io::Write;

/// `ANSWER` by the `brotli` of Node.js.
const BROTLI: &str = concat!(
    "1b0701208cc338867c2086a5dc236a6da94fdea0686b225f2c86c747351d964edfd34b03c5a025595b10672d6a4b39f003d32177e43f7d33c52e",
    "bdca7960167e1276bec3622b239b298ce08556e3297e5669d0ad2d8a4056cb3dbe55e7b8af3ede06ccf1b004edd288f50f"
);

fn answer() -> String {
    let content = "hello ".repeat(20);
    format!(
        r#"{{"id":"1","model":"m","choices":[{{"message":{{"content":"{content}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":3,"completion_tokens":4}}}}"#
    )
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn brotli() -> Vec<u8> {
    (0..BROTLI.len()).step_by(2).map(|at| u8::from_str_radix(&BROTLI[at..at + 2], 16).unwrap()).collect()
}

fn encodings() -> [(&'static str, Vec<u8>); 6] {
    let answer = answer();
    let bytes = answer.as_bytes();
    [
        ("gzip", gzip(bytes)),
        ("X-GZip ", gzip(bytes)),
        ("deflate", zlib(bytes)),
        ("deflate", deflate(bytes)),
        ("br", brotli()),
        ("zstd", zstd::bulk::compress(bytes, 3).unwrap()),
    ]
}

fn line(capture: impl FnOnce() -> Option<Captured>, parts: &[&[u8]]) -> Map<String, Value> {
    let mut captured = capture().unwrap();
    parts.iter().for_each(|part| captured.push(part));
    let mut scratch = Scratch::new();
    captured.push_value(&mut scratch);
    let plan = EventSchema::new(16, "e", &["body"]).unwrap().into();
    let mut out = Vec::new();
    Encoder::new().line(&mut out, &HEAD, &plan, scratch.as_slice()).unwrap();
    let mut members: Map<String, Value> = serde_json::from_slice(&out).unwrap();
    members.retain(|key, _| key.starts_with("gen_ai") || key.contains("body") || key.contains("_truncated"));
    members
}

fn json_answer(encoding: &str, bytes: &[u8], facts: (usize, usize)) -> Map<String, Value> {
    let content = Content::of_type(b"application/json").encoded(encoding.as_bytes());
    line(|| TextCapture::default().response(content, true, facts), &[bytes])
}

#[test]
fn the_facts_of_a_compressed_answer_are_those_of_the_answer() {
    let plain = json_answer("identity", answer().as_bytes(), (4096, 4096));
    assert_eq!(plain["gen_ai.usage.output_tokens"], json!(4));
    for (encoding, bytes) in encodings() {
        assert_eq!(json_answer(encoding, &bytes, (4096, 4096)), plain, "{encoding}");
        for limit in 0..bytes.len() {
            let found = json_answer(encoding, &bytes, (limit, 1));
            assert!(found.iter().all(|(key, value)| key == "body_facts" || plain.get(key) == Some(value)), "{found:?}");
            let is_whole = found.len() == plain.len() && !found.contains_key("body_facts");
            assert!(is_whole || found["body_facts"] == "compressed", "{encoding} {limit}: {found:?}");
        }
    }
}

#[test]
fn an_encoding_that_is_not_known_and_bytes_that_are_none_say_so() {
    for (encoding, bytes) in
        [("compress", &b"\x1f\x9d"[..]), ("gzip, br", b"x"), ("gzip", b"{}"), ("br", b"\xff\xff"), ("zstd", b"{}")]
    {
        let found = json_answer(encoding, bytes, (4096, 4096));
        assert_eq!(Value::Object(found), json!({"body_facts": "compressed"}), "{encoding}");
    }
}

#[test]
fn a_compressed_stream_gives_what_its_beginning_says() {
    let event = |text: &str| {
        format!("data: {{\"id\":\"1\",\"model\":\"m\",\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let events: String = (0..2000).map(|number| event(&format!("{:x}", number * 7919))).collect();
    let content = Content::of_type(b"text/event-stream").encoded(b"gzip");
    let found = line(|| TextCapture::default().response(content, true, (1000, 1000)), &[&gzip(events.as_bytes())]);
    let expected = json!({"gen_ai.response.id": "1", "gen_ai.response.model": "m", "body_facts": "compressed"});
    assert_eq!(Value::Object(found), expected);
}

#[test]
fn the_text_of_a_compressed_body_is_no_longer_than_that_of_another() {
    let limit = TextLimit { text: BodyText::Written, bytes: 200 };
    let capture = TextCapture { input: limit, output: limit, ..TextCapture::default() };
    let content = Content::of_type(b"application/json").encoded(b"zstd");
    let of = |text: &str| {
        let body = json!({"messages": [{"role": "user", "content": text}]}).to_string();
        let packed = zstd::bulk::compress(body.as_bytes(), 3).unwrap();
        line(|| capture.request(content, false, (10, 10)), &[&packed[..3], &packed[3..]])
    };
    let short = of("Say hi.");
    assert_eq!(short["gen_ai.input.messages"][0]["parts"][0]["content"], "Say hi.");
    assert!(!short.contains_key("body_facts"));
    let long = of(&"Say hi. ".repeat(100_000));
    assert!(
        long["gen_ai.input.messages"].to_string().len() < 400 && long["input_truncated"] == json!(true),
        "{long:?}"
    );
}

#[test]
fn a_body_that_grows_without_bound_is_read_to_a_limit() {
    let bomb = zstd::bulk::compress(&vec![b' '; 200 << 20], 3).unwrap();
    assert_eq!(Value::Object(json_answer("zstd", &bomb, (1 << 20, 0))), json!({"body_facts": "compressed"}));
}

// A packed stream: the unpacked stream equals the original, and the limits are kept.

/// Head, tail and whether that is all, of a stream that came in `parts`; and the bytes that it took.
fn packed(parts: &[&[u8]], head: usize, tail: usize) -> Option<(Vec<u8>, Vec<u8>, bool, usize)> {
    let mut stream = PackedStream::new(BodyText::Written, head, tail);
    parts.iter().for_each(|part| stream.push(part));
    let mut scratch = Scratch::new();
    stream.push_value(&mut scratch);
    match Values::new(scratch.as_slice()).next().unwrap().unwrap() {
        queue::record::Value::Absent => None,
        queue::record::Value::Body(body) => {
            let unpacked = Unpacked::of(&body);
            let stored = body.head.len() + body.tail.len();
            let Body { head, tail, complete, .. } = unpacked.body();
            Some((head.to_vec(), tail.to_vec(), complete, stored))
        }
        other => panic!("{other:?}"),
    }
}

fn check(parts: &[&[u8]], head: usize, tail: usize) {
    let whole = parts.concat();
    let Some((first, last, complete, stored)) = packed(parts, head, tail) else {
        assert!(whole.is_empty() || head + tail < 40, "nothing of {} bytes in {head} and {tail}", whole.len());
        return;
    };
    if complete {
        assert_eq!((String::from_utf8_lossy(&first), last.len()), (String::from_utf8_lossy(&whole), 0));
    } else {
        assert!(whole.starts_with(&first), "the head is a beginning");
        assert!(whole.ends_with(&last), "the tail is an end");
        assert!(first.len() + last.len() <= whole.len());
    }
    assert!(stored <= head + tail + 1, "{stored} bytes in {head} and {tail}");
}

fn chat(words: &[String]) -> Vec<Vec<u8>> {
    let chunk = |delta| {
        json!({"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1_763_000_000,
            "model": "meta/llama-3-8b", "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]})
    };
    let first = std::iter::once(chunk(json!({"role": "assistant", "content": ""})));
    let events = first.chain(words.iter().map(|word| chunk(json!({"content": word}))));
    events.map(|event| format!("data: {event}\n\n").into_bytes()).collect()
}

#[test]
fn a_stream_takes_little_more_than_what_is_new_in_its_events() {
    let words: Vec<String> = (0..1000).map(|number| format!(" word{}", number % 37)).collect();
    let events = chat(&words);
    let parts: Vec<&[u8]> = events.iter().map(Vec::as_slice).collect();
    let (raw, text) = (parts.concat().len(), words.concat().len());
    let (first, last, complete, stored) = packed(&parts, 8192, 8192).unwrap();
    assert_eq!((first, last.len(), complete), (parts.concat(), 0, true), "{raw} bytes fit into 16 KiB");
    assert!(stored < text + 6 * words.len() && raw > 15 * stored, "{raw} bytes took {stored}, their text has {text}");
    let together = parts.concat();
    let (_, _, _, as_one) = packed(&[&together], 8192, 8192).unwrap();
    assert_eq!(as_one, stored, "also where all events come at once");
}

#[test]
fn the_end_of_a_long_stream_is_kept() {
    let words: Vec<String> = (0..20_000).map(|number| format!(" word{number}")).collect();
    let events = chat(&words);
    let parts: Vec<&[u8]> = events.iter().map(Vec::as_slice).collect();
    let (first, last, complete, stored) = packed(&parts, 4096, 4096).unwrap();
    assert!(!complete && stored <= 8193);
    assert!(parts.concat().starts_with(&first) && parts.concat().ends_with(&last));
    assert!(first.len() > 40_000 && last.len() > 40_000, "{} and {}", first.len(), last.len());
    let huge = [&b"data: "[..], &vec![b'x'; 100_000], b"end\n\n"].concat();
    let (_, last, complete, _) = packed(&[parts[0], &huge], 1000, 1000).unwrap();
    assert!(!complete && last.len() > 900 && last.ends_with(b"xend\n\n"));
}

proptest! {
    #[test]
    fn any_stream_comes_out_as_it_went_in(
        words in prop::collection::vec(".{0,30}", 0..60),
        noise in prop::collection::vec(any::<u8>(), 0..300),
        step in 1..700usize,
        head in 0..3000usize,
        tail in 0..3000usize,
    ) {
        let events = chat(&words);
        check(&events.iter().map(Vec::as_slice).collect::<Vec<_>>(), head, tail);
        let bytes = [events.concat(), noise].concat();
        check(&bytes.chunks(step).collect::<Vec<_>>(), head, tail);
    }

    #[test]
    fn noise_unpacks_to_something_without_a_panic(
        head in prop::collection::vec(any::<u8>(), 0..200),
        tail in prop::collection::vec(0..9u8, 0..200),
    ) {
        use queue::record::BodyKind;
        for (head, tail) in [(&head, &tail), (&tail, &head)] {
            let kind = BodyKind::PackedStream;
            let unpacked = Unpacked::of(&Body { kind, head, tail, complete: false, text: BodyText::Written });
            prop_assert!(unpacked.body().head.len() < 300_000);
        }
    }
}
