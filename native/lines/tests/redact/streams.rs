//! A secret that a stream divides is found in each protocol that is known; what is not known is not written.

use super::{HEAD, compiled, settings};
use lines::encode::Encoder;
use lines::redact::RedactionSettings;
use proptest::prelude::*;
use queue::event::EventSchema;
use queue::record::{BodyText, Scratch};
use request::capture::{Content, TextCapture, TextLimit};
use serde_json::{Value, json};

/// Each three letters of it stand nowhere else.
const SECRET: &str = "QZXW.KVJQ@ZQKX-WJV.XQ";

/// The content type of a stream, and its parts.
type Stream = (&'static str, Vec<Vec<u8>>);
/// How an API divides a text.
type Protocol = (&'static str, fn(&[String]) -> Stream);

const SSE: &str = "text/event-stream; charset=utf-8";
const NDJSON: &str = "application/x-ndjson";

fn sse(events: Vec<Value>) -> Stream {
    (SSE, events.iter().map(|event| format!("data: {event}\n\n").into_bytes()).collect())
}

fn typed(events: Vec<Value>) -> Stream {
    let one = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()).into_bytes();
    (SSE, events.iter().map(one).collect())
}

fn ndjson(events: Vec<Value>) -> Stream {
    (NDJSON, events.iter().map(|event| format!("{event}\n").into_bytes()).collect())
}

fn each(texts: &[String], event: impl Fn(&str) -> Value) -> Vec<Value> {
    texts.iter().map(|text| event(text)).collect()
}

/// A stream of the Messages API whose only block is this one.
fn messages(block: &Value, texts: &[String], delta: impl Fn(&str) -> Value) -> Stream {
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "model": "m"}}),
        json!({"type": "content_block_start", "index": 1, "content_block": block}),
        json!({"type": "ping"}),
    ];
    events.extend(each(texts, |text| json!({"type": "content_block_delta", "index": 1, "delta": delta(text)})));
    events.push(json!({"type": "content_block_stop", "index": 1}));
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}));
    typed(events)
}

fn gemini(text: &str) -> Value {
    json!({"candidates": [{"content": {"parts": [{"text": text}], "role": "model"}}], "modelVersion": "g"})
}

/// Two answers at once, each of which has all of the texts.
fn interleaved(texts: &[String], event: impl Fn(&str, u32) -> Value) -> Vec<Value> {
    texts.iter().flat_map(|text| [event(text, 0), event(text, 1)]).collect()
}

const KNOWN: [Protocol; 24] = [
    ("chat", |texts| sse(each(texts, |text| json!({"choices": [{"index": 0, "delta": {"content": text}}]})))),
    ("chat reasoning", |texts| {
        sse(each(texts, |text| json!({"choices": [{"index": 0, "delta": {"reasoning_content": text}}]})))
    }),
    ("chat of two", |texts| {
        sse(interleaved(texts, |text, index| json!({"choices": [{"index": index, "delta": {"content": text}}]})))
    }),
    ("chat call", |texts| {
        let call = |text: &str| json!([{"index": 0, "function": {"arguments": text}}]);
        sse(each(texts, |text| json!({"choices": [{"index": 0, "delta": {"tool_calls": call(text)}}]})))
    }),
    ("chat call without an index", |texts| {
        let mut calls = each(texts, |text| json!([{"function": {"arguments": text}}]));
        calls.insert(0, json!([{"id": "call_1", "function": {"name": "f", "arguments": ""}}]));
        sse(calls.iter().map(|call| json!({"choices": [{"index": 0, "delta": {"tool_calls": call}}]})).collect())
    }),
    ("chat call by its id", |texts| {
        let call = |text: &str, id| json!([{"id": id, "function": {"arguments": text}}]);
        sse(interleaved(
            texts,
            |text, id| json!({"choices": [{"index": 0, "delta": {"tool_calls": call(text, id.to_string())}}]}),
        ))
    }),
    ("completions", |texts| sse(each(texts, |text| json!({"choices": [{"index": 0, "text": text}]})))),
    ("vllm generate", |texts| {
        sse(each(
            texts,
            |text| json!({"request_id": "r", "output_mode": "text", "choices": [{"index": 0, "text": text, "token_ids": [1]}]}),
        ))
    }),
    ("responses", |texts| {
        typed(each(texts, |text| json!({"type": "response.output_text.delta", "output_index": 0, "delta": text})))
    }),
    ("transcription", |texts| typed(each(texts, |text| json!({"type": "transcript.text.delta", "delta": text})))),
    ("messages", |texts| {
        messages(&json!({"type": "text", "text": ""}), texts, |text| json!({"type": "text_delta", "text": text}))
    }),
    ("messages thinking", |texts| {
        let block = json!({"type": "thinking", "thinking": ""});
        messages(&block, texts, |text| json!({"type": "thinking_delta", "thinking": text}))
    }),
    ("messages call", |texts| {
        let block = json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}});
        messages(&block, texts, |text| json!({"type": "input_json_delta", "partial_json": text}))
    }),
    ("cohere", |texts| {
        typed(each(
            texts,
            |text| json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": text}}}}),
        ))
    }),
    ("ollama chat", |texts| {
        ndjson(each(
            texts,
            |text| json!({"model": "m", "message": {"role": "assistant", "content": text}, "done": false}),
        ))
    }),
    ("ollama thinking", |texts| {
        ndjson(each(
            texts,
            |text| json!({"model": "m", "message": {"role": "assistant", "content": "", "thinking": text}, "done": false}),
        ))
    }),
    ("ollama generate", |texts| ndjson(each(texts, |text| json!({"model": "m", "response": text, "done": false})))),
    ("gemini", |texts| sse(each(texts, gemini))),
    ("gemini array", |texts| {
        let array = Value::Array(each(texts, gemini));
        let pretty = serde_json::to_vec_pretty(&array).unwrap();
        ("application/json", pretty.chunks(50).map(<[u8]>::to_vec).collect())
    }),
    ("llama.cpp", |texts| {
        sse(interleaved(texts, |text, index| json!({"index": index, "content": text, "tokens": [1], "stop": false})))
    }),
    ("tgi", |texts| {
        let mut events: Vec<Value> = texts.iter().enumerate().map(|(at, text)| {
            json!({"index": at, "token": {"id": 5, "text": text, "special": false}, "generated_text": null, "details": null})
        }).collect();
        events.push(json!({"index": 99, "token": {"id": 2, "text": "</s>"}, "generated_text": texts.concat()}));
        sse(events)
    }),
    ("triton", |texts| {
        sse(each(texts, |text| json!({"model_name": "ensemble", "model_version": "1", "text_output": text})))
    }),
    ("triton batch", |texts| sse(each(texts, |text| json!({"model_name": "e", "text_output": [text, text]})))),
    ("tensorrt-llm", |texts| {
        sse(interleaved(
            texts,
            |text, sequence| json!({"model_name": "tensorrt_llm_bls", "sequence_index": sequence, "text_output": text}),
        ))
    }),
];

const UNKNOWN: [Protocol; 4] = [
    ("own events", |texts| sse(each(texts, |text| json!({"piece": text, "score": 0.5})))),
    ("own lines", |texts| ndjson(each(texts, |text| json!({"piece": text})))),
    ("plain events", |texts| (SSE, texts.iter().map(|text| format!("data: {text}\n\n").into_bytes()).collect())),
    ("a tensor", |texts| sse(each(texts, |text| json!({"model_name": "m", "OUTPUT0": [text]})))),
];

/// The line of an answer that passed in these parts, and all that is captured of it.
fn line_of((content_type, parts): &Stream, rules: &RedactionSettings, text: BodyText) -> String {
    let capture = TextCapture { output: TextLimit { text, bytes: 1 << 20 }, ..TextCapture::default() };
    let content = Content::of_type(content_type.as_bytes());
    let mut captured = capture.response(content, false, (4096, 4096)).unwrap();
    parts.iter().for_each(|part| captured.push(part));
    let mut scratch = Scratch::new();
    captured.push_value(&mut scratch);
    let plan = EventSchema::new(16, "e", &["response_body"]).unwrap().into();
    let mut encoder = Encoder::new().redacting(compiled(rules)).hashing(Some([7; 32]));
    let mut out = Vec::new();
    encoder.line(&mut out, &HEAD, &plan, scratch.as_slice()).unwrap();
    serde_json::from_slice::<Value>(&out).expect("a line is JSON");
    String::from_utf8(out).unwrap()
}

fn assert_hidden(line: &str, protocol: &str) {
    for at in 0..SECRET.len() - 2 {
        assert!(!line.contains(&SECRET[at..at + 3]), "{protocol}: {} in {line}", &SECRET[at..at + 3]);
    }
}

/// The text in pieces of these lengths.
fn divided(text: &str, lengths: &[usize]) -> Vec<String> {
    let (mut rest, mut pieces) = (text, Vec::new());
    for length in lengths {
        let end = rest.char_indices().map(|(at, _)| at).nth(*length).unwrap_or(rest.len());
        let (piece, more) = rest.split_at(end);
        pieces.push(piece.to_owned());
        rest = more;
    }
    pieces.push(rest.to_owned());
    pieces
}

fn email() -> RedactionSettings {
    settings(&[], &["email"])
}

proptest! {
    #[test]
    fn no_piece_of_a_secret_is_in_the_line_however_a_stream_divides_it(
        before in "[ -!#-~\u{e9}\"]{0,20}",
        lengths in prop::collection::vec(0..9usize, 0..14),
    ) {
        let text = format!("{} {SECRET} é\"\n", before.to_lowercase());
        let pieces = divided(&text, &lengths);
        for (name, protocol) in KNOWN {
            let line = line_of(&protocol(&pieces), &email(), BodyText::Written);
            assert_hidden(&line, name);
            assert!(line.contains("[redacted:email]"), "{name}: {line}");
            assert!(!line.contains("output_withheld"), "{name}: {line}");
        }
        for (name, protocol) in UNKNOWN {
            let line = line_of(&protocol(&pieces), &email(), BodyText::Written);
            assert_hidden(&line, name);
            assert!(line.contains(r#""output_withheld":"unknown format""#), "{name}: {line}");
            assert!(line.contains(r#""type":"events","length":"#) && line.contains("blake3-keyed:"), "{name}: {line}");
        }
    }
}

#[test]
fn without_patterns_a_stream_that_is_not_known_stands_as_it_is() {
    let (_, protocol) = UNKNOWN[0];
    let stream = protocol(&["Hel".to_owned(), "lo".to_owned()]);
    let line = line_of(&stream, &settings(&["password"], &[]), BodyText::Written);
    assert!(line.contains("Hel") && !line.contains("output_withheld"), "{line}");
}

#[test]
fn an_answer_in_one_piece_is_read_as_its_stream_is() {
    let text = format!("Ask {SECRET}.");
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "mail", "input": {"to": SECRET}});
    let thinking = json!({"type": "thinking", "thinking": text, "signature": "x"});
    let own = json!({"type": "text", "text": text});
    let messages = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [thinking, own, call],
        "model": "m", "stop_reason": "tool_use"});
    let all = [
        (messages, 3),
        (
            json!({"model": "m", "message": {"role": "assistant", "content": text, "tool_calls":
            [{"function": {"name": "mail", "arguments": {"to": SECRET}}}]}, "done": true, "done_reason": "stop"}),
            2,
        ),
        (json!({"model": "m", "response": text, "done": true}), 1),
        (json!({"model_name": "m", "text_output": text}), 1),
        (json!([{"generated_text": text}]), 1),
        (json!({"content": text, "stop": true, "stop_type": "eos"}), 1),
        (gemini(&text), 1),
        (
            json!({"id": "1", "finish_reason": "COMPLETE", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}}),
            1,
        ),
    ];
    for (body, parts) in all {
        let line = line_of(&("application/json", vec![body.to_string().into_bytes()]), &email(), BodyText::Written);
        assert_hidden(&line, "whole");
        let read: Value = serde_json::from_str(&line).unwrap();
        let found = read["gen_ai.output.messages"][0]["parts"].as_array().unwrap();
        assert_eq!(found.len(), parts, "{line}");
        assert!(found.iter().all(|part| part["type"] != "json"), "{line}");
        assert_eq!(line.matches("[redacted:email]").count(), parts, "{line}");
    }
}
