//! The facts that are read from whole bodies, and from bodies whose middle is missing.

use crate::members;
use lines::catalogue::Semconv;
use lines::extract::push_facts;
use proptest::prelude::*;
use queue::record::{Body, BodyKind, BodyText};
use serde_json::{Map, Value, json};

mod cuts;
mod usage;

type Facts = Map<String, Value>;

/// Read the facts of a capture; fails for a repeated key or invalid JSON.
fn facts(kind: BodyKind, head: &[u8], tail: &[u8], complete: bool) -> Facts {
    let body = Body { kind, head, tail, complete, text: BodyText::Withheld };
    let (facts, out) = members(|out| push_facts(out, &body, Semconv::Published));
    let keys = facts.keys().map(|key| format!("{}:", json!(key)));
    assert_eq!(keys.filter(|key| count(&out, key.as_bytes()) != 1).count(), 0);
    facts
}

fn count(text: &[u8], part: &[u8]) -> usize {
    let starts = (0..text.len()).filter(|at| text[*at] == part[0]);
    starts.filter(|at| text[*at..].starts_with(part)).count()
}

fn whole(kind: BodyKind, body: &str) -> Value {
    Value::Object(facts(kind, body.as_bytes(), b"", true))
}

fn request(body: &str) -> Value {
    whole(BodyKind::Request, body)
}

fn response(body: &str) -> Value {
    whole(BodyKind::Response, body)
}

fn stream(body: &str) -> Value {
    whole(BodyKind::Stream, body)
}

#[test]
fn a_request_gives_its_model_and_parameters() {
    let body = r#"{"model": "m/7b", "messages": [{"role": "user", "content": "hi", "model": "inner", "n": 7}],
        "stream": true, "max_tokens": 16, "temperature": 0.7, "top_p": 1, "top_k": -1, "seed": -5, "n": 2,
        "stream_options": {"include_usage": true, "stream": false}}"#;
    assert_eq!(
        request(body),
        json!({
            "gen_ai.request.model": "m/7b", "gen_ai.request.stream": true, "gen_ai.request.max_tokens": 16,
            "gen_ai.request.temperature": 0.7, "gen_ai.request.top_p": 1, "gen_ai.request.top_k": -1,
            "gen_ai.request.seed": -5, "gen_ai.request.choice.count": 2,
        })
    );
    for name in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        assert_eq!(request(&format!("\u{FEFF}{{\"{name}\":9}}")), json!({"gen_ai.request.max_tokens": 9}));
    }
}

#[test]
fn values_that_are_null_or_of_another_type_are_left_out() {
    let body = r#"{"model": 5, "stream": "true", "max_tokens": "9", "temperature": null, "top_p": [1], "top_k": {"a":1},
        "seed": 1.5, "n": NaN}"#;
    assert_eq!(request(body), json!({}));
    assert_eq!(request(r#"{"model":"a","model":null,"mod\u0065l":"b"}"#), json!({"gen_ai.request.model": "b"}));
    for body in
        ["", "null", "[{\"model\":\"x\"}]", "\"model\"", "model", "{", "}", "{\"model\"", "{\"model\":", "\u{0}"]
    {
        assert_eq!(request(body), json!({}), "{body}");
    }
}

#[test]
fn huge_numbers_are_bounded() {
    let body = format!(
        r#"{{"seed":18446744073709551615,"max_tokens":184467440737095516160,"temperature":1e999,"top_p":{},"top_k":1e3,"n":3.0}}"#,
        "9".repeat(100_000)
    );
    let seed: Value = serde_json::from_str("18446744073709551615").unwrap();
    assert_eq!(
        request(&body),
        json!({"gen_ai.request.seed": seed, "gen_ai.request.top_k": 1000.0, "gen_ai.request.choice.count": 3})
    );
    let usage = |value: &str| response(&format!(r#"{{"usage":{{"prompt_tokens":{value}}}}}"#));
    assert_eq!(usage("-1"), json!({}));
    assert_eq!(usage("1-1"), json!({}));
    assert_eq!(usage("7"), json!({"gen_ai.usage.input_tokens": 7, "usage_source": "response"}));
}

#[test]
fn long_and_broken_strings_are_cut_and_escaped_again() {
    let model = |raw: &str| request(&format!("{{\"model\":\"{raw}\"}}"))["gen_ai.request.model"].clone();
    assert_eq!(model(&"x".repeat(100_000)), json!("x".repeat(256)));
    assert_eq!(model(&"€".repeat(100)), json!("€".repeat(85)));
    assert_eq!(model(&"\\u20ac".repeat(100)), json!("€".repeat(85)));
    assert_eq!(model("a\\\"b\\\\\\n\n\\u0000\\ud800\\q"), json!("a\"b\\\n\n\0\u{FFFD}\u{FFFD}q"));
    let raw = facts(BodyKind::Request, b"{\"model\":\"\xff\xe2\x82\"}", b"", true);
    assert_eq!(raw["gen_ai.request.model"], json!("\u{FFFD}\u{FFFD}"));
}

#[test]
fn a_chat_response_gives_ids_reasons_and_usage() {
    let body = r#"{"id":"chatcmpl-1","object":"chat.completion","model":"served","choices":[
        {"index":1,"message":{"role":"assistant","content":"{\"id\":\"fake\"}","finish_reason":"fake"},"finish_reason":"length"},
        {"finish_reason":"stop","index":0},{"index":16,"finish_reason":"beyond"},{"index":2,"finish_reason":null}],
        "usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30,"prompt_tokens_details":{"cached_tokens":4},
        "completion_tokens_details":{"reasoning_tokens":5,"prompt_tokens":99}}}"#;
    assert_eq!(
        response(body),
        json!({
            "gen_ai.response.id": "chatcmpl-1", "gen_ai.response.model": "served",
            "gen_ai.response.finish_reasons": ["stop", "length"],
            "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 20,
            "gen_ai.usage.cache_read.input_tokens": 4, "gen_ai.usage.reasoning.output_tokens": 5,
            "usage_source": "response",
        })
    );
}

#[test]
fn a_body_of_the_responses_api_gives_the_same() {
    let body = r#"{"id":"resp_1","object":"response","model":"m","output":[{"id":"msg_1","content":[{"text":"t"}]}],
        "usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":0},"output_tokens":2,
        "output_tokens_details":{"reasoning_tokens":3}}}"#;
    let expected = json!({
        "gen_ai.response.id": "resp_1", "gen_ai.response.model": "m", "gen_ai.usage.input_tokens": 1,
        "gen_ai.usage.output_tokens": 2, "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 3, "usage_source": "response",
    });
    assert_eq!(response(body), expected);
    let wrapped = format!("{{\"type\":\"response.completed\",\"response\":{body}}}").replace('\n', "");
    let item = r#"data: {"type":"response.output_item.added","item":{"id":"msg_1","usage":{"input_tokens":9}}}"#;
    assert_eq!(stream(&format!("{item}\n\nevent: response.completed\ndata: {wrapped}\n\n")), expected);
    assert_eq!(response(&wrapped), json!({}), "only events wrap the body");
}

#[test]
fn choices_without_an_index_count_by_position() {
    let body = r#"{"choices":[{"finish_reason":"a"},{"finish_reason":null},{"finish_reason":"c"},{"index":1,"finish_reason":"b"}]}"#;
    assert_eq!(response(body), json!({"gen_ai.response.finish_reasons": ["a", "b", "c"]}));
    let many: Vec<Value> = (0..40).map(|at| json!({"finish_reason": at.to_string()})).collect();
    let reasons = response(&json!({"choices": many}).to_string())["gen_ai.response.finish_reasons"].clone();
    assert_eq!(reasons, json!((0..16).map(|at: i32| at.to_string()).collect::<Vec<_>>()));
}

#[test]
fn null_usage_is_no_usage() {
    for usage in ["null", "{}", "[]", "7", r#"{"prompt_tokens":null}"#] {
        assert_eq!(response(&format!("{{\"id\":\"i\",\"usage\":{usage}}}")), json!({"gen_ai.response.id": "i"}));
    }
}

const CHUNKS: [&str; 6] = [
    r#"{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"data: {\"id\":\"fake\"}"},"finish_reason":null}],"usage":null}"#,
    r#"{"id":"c","model":"m","choices":[{"index":1,"delta":{},"finish_reason":"length"}],"usage":null}"#,
    r#"{"id":"c","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    r#"{"id":"c","model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#,
    r#"{"id":"c","model":"m","choices":[],"usage":null}"#,
    "[DONE]",
];

fn events(data: &str, line: &str) -> String {
    CHUNKS.iter().map(|chunk| format!("{data}{chunk}{line}{line}")).collect()
}

#[test]
fn a_body_of_the_messages_api_gives_the_same() {
    let expected = json!({
        "gen_ai.response.id": "msg_1",
        "gen_ai.response.model": "tiny",
        "gen_ai.response.finish_reasons": ["max_tokens"],
        "gen_ai.usage.input_tokens": 13,
        "gen_ai.usage.output_tokens": 32,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "usage_source": "response",
    });
    let whole = concat!(
        r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"\"stop_reason\":\"x\""}],"#,
        r#""model":"tiny","stop_reason":"max_tokens","stop_sequence":null,"#,
        r#""usage":{"input_tokens":9,"output_tokens":32,"cache_read_input_tokens":4}}"#
    );
    assert_eq!(response(whole), expected);
    let events = concat!(
        "event: message_start\n",
        r#"data: {"type":"message_start","message":{"id":"msg_1","model":"tiny","stop_reason":null,"#,
        r#""usage":{"input_tokens":9,"cache_read_input_tokens":4,"output_tokens":0}}}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}"#,
        "\n\nevent: message_delta\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":32}}"#,
        "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    assert_eq!(stream(events), expected);
}

#[test]
fn a_stream_gives_the_last_usage_and_all_finish_reasons() {
    for line in ["\n", "\r\n", "\r"] {
        for data in ["data: ", "data:"] {
            assert_eq!(
                stream(&events(data, line)),
                json!({
                    "gen_ai.response.id": "c", "gen_ai.response.model": "m",
                    "gen_ai.response.finish_reasons": ["stop", "length"], "gen_ai.usage.input_tokens": 3,
                    "gen_ai.usage.output_tokens": 4, "usage_source": "response",
                })
            );
        }
    }
}

#[test]
fn the_last_usage_wins_where_each_chunk_has_one() {
    let body = "data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\n\
                data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\n: {\"usage\":{\"prompt_tokens\":9}}\n\n";
    let expected = json!({"gen_ai.usage.input_tokens": 3, "gen_ai.usage.output_tokens": 2, "usage_source": "response"});
    assert_eq!(stream(body), expected);
}

#[test]
fn a_stream_without_data_lines_gives_nothing() {
    assert_eq!(stream("id: {\"id\":\"x\"}\nevent: data\n:data: {\"id\":\"x\"}\n data: {\"id\":\"x\"}"), json!({}));
}

#[test]
fn json_nested_deep_is_passed_over() {
    let deep = "[".repeat(100_000);
    let close = "]".repeat(100_000);
    let body = format!("{{\"a\":{deep}{close},\"model\":\"m\"}}");
    assert_eq!(request(&body), json!({"gen_ai.request.model": "m"}));
    let cut = Value::Object(facts(BodyKind::Request, b"", &body.as_bytes()[10..], false));
    assert_eq!(cut, json!({"gen_ai.request.model": "m"}));
}

/// Bytes that look like JSON more often than noise does.
fn almost_json() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => proptest::sample::select(
            &["{", "}", "[", "]", ",", ":", "\"", "\\", "\\\"", " ", "\n", "data: ", "\"model\":", "\"usage\":",
              "\"choices\":", "\"finish_reason\":", "\"index\":", "\"response\":", "\"prompt_tokens\":", "\"a\"", "12",
              "-1e9", "true", "null", "\\ud800"][..]
        ).prop_map(|part| part.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 1..4),
    ];
    proptest::collection::vec(part, 0..80).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn noise_gives_valid_members_without_a_panic(head in almost_json(), tail in almost_json()) {
        for kind in [BodyKind::Request, BodyKind::Response, BodyKind::Stream] {
            facts(kind, &head, &tail, false);
            facts(kind, &head, b"", true);
            let framed = [&b"{\"a\":"[..], &head, b"\"usage\":{\"prompt_tokens\":1}}"].concat();
            facts(kind, b"", &framed, false);
        }
    }

    #[test]
    fn any_text_is_taken_as_a_json_reader_takes_it(model in ".{0,60}", extra in ".{0,60}") {
        let body = json!({"user": extra, "model": model, "messages": [extra]}).to_string();
        prop_assert_eq!(&request(&body), &json!({"gen_ai.request.model": &model}));
        let tail = Value::Object(facts(BodyKind::Request, b"", &body.as_bytes()[1..], false));
        prop_assert_eq!(&tail, &json!({"gen_ai.request.model": &model}));
    }
}

#[test]
fn a_request_gives_penalties_stops_format_and_the_names_of_its_tools() {
    let body = r#"{"frequency_penalty": 0.5, "presence_penalty": -1, "stop": ["a", "b\"", 5], "response_format":
        {"type": "json_schema", "json_schema": {"name": "no"}}, "tools": [{"type": "function", "function": {"name": "find",
        "parameters": {"name": "no"}}}, {"name": "own", "input_schema": {}}, {"type": "web_search"}],
        "messages": [{"name": "no", "stop": "no", "type": "no"}]}"#;
    assert_eq!(
        request(body),
        json!({
            "gen_ai.request.frequency_penalty": 0.5, "gen_ai.request.presence_penalty": -1,
            "gen_ai.request.stop_sequences": ["a", "b\""], "gen_ai.output.type": "json",
            "gen_ai.tool.definitions": [{"type": "function", "name": "find"}, {"type": "function", "name": "own"}],
        })
    );
    assert_eq!(request(r#"{"stop":"x"}"#), json!({"gen_ai.request.stop_sequences": ["x"]}));
    assert_eq!(request(r#"{"text":{"format":{"type":"text"}}}"#), json!({"gen_ai.output.type": "text"}));
    let many: Vec<String> = (0..99).map(|number| format!("{{\"name\":\"t{number}\"}}")).collect();
    let found = request(&format!("{{\"tools\":[{}]}}", many.join(",")));
    assert_eq!(found["gen_ai.tool.definitions"].as_array().unwrap().len(), 16);
}

#[test]
fn usage_has_the_tokens_written_to_a_cache_and_those_of_audio_and_images() {
    let body = r#"{"usage":{"input_tokens":9,"cache_creation_input_tokens":4,"prompt_tokens_details":{"audio_tokens":2,
        "image_tokens":3},"completion_tokens_details":{"audio_tokens":5}}}"#;
    let common = json!({
        "gen_ai.usage.input_tokens": 13, "gen_ai.usage.audio.input_tokens": 2, "gen_ai.usage.image.input_tokens": 3,
        "gen_ai.usage.audio.output_tokens": 5, "usage_source": "response",
    });
    for (semconv, name) in [(Semconv::Published, "cache_creation"), (Semconv::Next, "cache_write")] {
        let mut expected = common.clone();
        expected[format!("gen_ai.usage.{name}.input_tokens")] = json!(4);
        let mut out = b"{".to_vec();
        let head = body.as_bytes();
        let kind = BodyKind::Response;
        push_facts(&mut out, &Body { kind, head, tail: b"", complete: true, text: BodyText::Withheld }, semconv);
        out.push(b'}');
        out.remove(1);
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expected);
    }
}
