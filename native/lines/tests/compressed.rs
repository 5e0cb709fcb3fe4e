//! Compressed bodies: what their captured beginning holds is read, and the line says where something may be missing.

use crate::support::HEAD;
use lines::encode::Encoder;
use queue::event::EventSchema;
use queue::record::{BodyText, Scratch};
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
