//! The messages that are read from bodies, whole and cut.

use crate::members;
use lines::extract::{UnknownStreams, push_texts};
use queue::record::{Body, BodyKind, BodyText};
use serde_json::{Map, Value, json};

mod cuts;

const KEY: [u8; 32] = [7; 32];

/// The members that a body gives; invalid JSON fails.
fn texts_of(body: &Body<'_>, key: Option<&[u8; 32]>) -> Map<String, Value> {
    members(|out| push_texts(out, body, key, UnknownStreams::Written)).0
}

fn texts(kind: BodyKind, head: &[u8], tail: &[u8], complete: bool) -> Map<String, Value> {
    texts_of(&Body { kind, head, tail, complete, text: BodyText::Written }, None)
}

fn whole(kind: BodyKind, body: &str) -> Value {
    Value::Object(texts(kind, body.as_bytes(), b"", true))
}

fn input(body: &Value) -> Value {
    whole(BodyKind::Request, &body.to_string())["gen_ai.input.messages"].take()
}

fn output(body: &Value) -> Value {
    whole(BodyKind::Response, &body.to_string())["gen_ai.output.messages"].take()
}

fn stream(events: &[Value]) -> Value {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    whole(BodyKind::Stream, &format!("{body}data: [DONE]\n\n"))["gen_ai.output.messages"].take()
}

fn text(content: &str) -> Value {
    json!({"type": "text", "content": content})
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "parts": [text(content)]})
}

#[test]
fn the_messages_of_a_chat_are_its_input() {
    let body = json!({"model": "m", "messages": [
        {"role": "system", "content": "Be \"brief\"\n."},
        {"content": [{"type": "text", "text": "What"}, {"text": "is é?", "type": "text"}], "role": "user"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{\"a\":1}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "found"},
    ], "tools": [{"type": "function", "function": {"name": "look", "description": "not said"}}], "user": "not said"});
    assert_eq!(
        input(&body),
        json!([
            message("system", "Be \"brief\"\n."),
            {"role": "user", "parts": [text("What"), text("is é?")]},
            {"role": "assistant", "parts": [
                {"type": "tool_call", "id": "call_1", "name": "look", "arguments": "{\"a\":1}"}]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "found"}]},
        ])
    );
}

#[test]
fn prompts_and_inputs_of_the_other_operations_are_input_too() {
    assert_eq!(input(&json!({"prompt": "Once"})), json!([message("user", "Once")]));
    assert_eq!(input(&json!({"prompt": ["a", "b"]})), json!([message("user", "a"), message("user", "b")]));
    assert_eq!(input(&json!({"input": "embed me", "model": "e"})), json!([message("user", "embed me")]));
    assert_eq!(input(&json!({"input": ["x", "y"]})), json!([message("user", "x"), message("user", "y")]));
    let tokens = input(&json!({"prompt": [1, 2, 3]}));
    assert_eq!((&tokens[0]["parts"][0]["type"], &tokens[0]["parts"][0]["length"]), (&json!("tokens"), &json!(3)));
    let tokens = input(&json!({"prompt": [[1, 2], [3]]}));
    assert_eq!((&tokens[0]["parts"][0]["length"], &tokens[1]["parts"][0]["length"]), (&json!(2), &json!(1)));
}

#[test]
fn the_responses_api_gives_instructions_input_and_output() {
    let body = json!({"instructions": "Be kind.", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "42"},
    ]});
    let read = whole(BodyKind::Request, &body.to_string());
    assert_eq!(read["gen_ai.system_instructions"], json!([text("Be kind.")]));
    assert_eq!(
        read["gen_ai.input.messages"],
        json!([
            message("user", "Hi"),
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "f", "arguments": "{}"}]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "42"}]},
        ])
    );
    let body = json!({"id": "resp_1", "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Thinking."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c2", "name": "g", "arguments": "{\"b\":2}"},
    ]});
    assert_eq!(
        output(&body),
        json!([
            {"role": "assistant", "parts": [{"type": "reasoning", "content": "Thinking."}]},
            message("assistant", "Hello"),
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "c2", "name": "g", "arguments": "{\"b\":2}"}]},
        ])
    );
}

#[test]
fn an_answer_has_a_message_for_each_choice() {
    let body = json!({"choices": [
        {"index": 1, "message": {"role": "assistant", "content": "two"}, "finish_reason": "length"},
        {"index": 0, "message": {"role": "assistant", "reasoning_content": "hm", "content": "one"}, "finish_reason": "stop"},
        {"index": 2, "message": {"role": "assistant", "refusal": "No.", "content": null}, "finish_reason": "stop"},
    ], "usage": {"prompt_tokens": 1}});
    assert_eq!(
        output(&body),
        json!([
            {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}, text("one")], "finish_reason": "stop"},
            {"role": "assistant", "parts": [text("two")], "finish_reason": "length"},
            {"role": "assistant", "parts": [{"type": "refusal", "content": "No."}], "finish_reason": "stop"},
        ])
    );
    let body = json!({"choices": [{"text": " upon", "index": 0, "finish_reason": "stop"}]});
    assert_eq!(output(&body), json!([{"role": "assistant", "parts": [text(" upon")], "finish_reason": "stop"}]));
}

#[test]
fn the_deltas_of_a_stream_are_joined_by_choice_and_by_call() {
    let chunk =
        |index: u32, delta: Value| json!({"choices": [{"index": index, "delta": delta, "finish_reason": null}]});
    let call = |index: u32, call: Value| {
        let mut call = call;
        call["index"] = json!(index);
        chunk(0, json!({"tool_calls": [call]}))
    };
    let events = [
        chunk(0, json!({"role": "assistant", "content": ""})),
        chunk(1, json!({"role": "assistant", "content": "B"})),
        chunk(0, json!({"content": "Hel"})),
        chunk(1, json!({"content": "ye"})),
        chunk(0, json!({"content": "lo \"you\""})),
        call(0, json!({"id": "c0", "type": "function", "function": {"name": "f", "arguments": ""}})),
        call(1, json!({"id": "c1", "type": "function", "function": {"name": "g", "arguments": "{"}})),
        call(0, json!({"function": {"arguments": "{\"x\":"}})),
        call(1, json!({"function": {"arguments": "}"}})),
        call(0, json!({"function": {"arguments": "1}"}})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 1}}),
    ];
    assert_eq!(
        stream(&events),
        json!([
            {"role": "assistant", "parts": [
                text("Hello \"you\""),
                {"type": "tool_call", "id": "c0", "name": "f", "arguments": "{\"x\":1}"},
                {"type": "tool_call", "id": "c1", "name": "g", "arguments": "{}"},
            ], "finish_reason": "tool_calls"},
            {"role": "assistant", "parts": [text("Bye")], "finish_reason": "stop"},
        ])
    );
}

#[test]
fn the_events_of_the_responses_api_are_joined_once() {
    let item = json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": ""});
    let whole = json!([{"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}]);
    let events = [
        json!({"type": "response.created", "response": {"id": "r", "output": []}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}}),
        json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hel"}),
        json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "lo"}),
        json!({"type": "response.output_text.done", "output_index": 0, "text": "Hello"}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": item}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{\"a\""}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": ":1}"}),
        json!({"type": "response.completed", "response": {"id": "r", "output": whole}}),
    ];
    assert_eq!(
        stream(&events),
        json!([
            message("assistant", "Hello"),
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "f", "arguments": "{\"a\":1}"}]},
        ])
    );
}

#[test]
fn json_in_which_nothing_is_known_stands_as_it_is() {
    assert_eq!(
        input(&json!({"text": "mine"})),
        json!([{"role": "user", "parts": [{"type": "json", "content": "{\"text\":\"mine\"}"}]}])
    );
    assert_eq!(output(&json!({"error": {"message": "no"}}))[0]["parts"][0]["content"], r#"{"error":{"message":"no"}}"#);
    let nothing = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": null}}]});
    assert_eq!(whole(BodyKind::Response, &nothing.to_string()), json!({}));
}

#[test]
fn a_text_that_is_no_json_is_one_message() {
    let read = whole(BodyKind::RequestText, "Ask \"me\".\n");
    assert_eq!(read, json!({"gen_ai.input.messages": [message("user", "Ask \"me\".\n")]}));
    let cut = texts(BodyKind::ResponseText, "Once é".as_bytes(), "\u{e9}nd".as_bytes().split_at(1).1, false);
    assert_eq!(
        Value::Object(cut),
        json!({"gen_ai.output.messages": [{"role": "assistant", "parts": [
            {"type": "text", "content": "Once é…nd", "truncated": true}]}], "output_truncated": true})
    );
}

#[test]
fn hashes_stand_for_texts_and_nothing_of_a_text_is_left() {
    let body = json!({"messages": [
        {"role": "my secret role", "name": "secret", "content": "the secret"},
        {"role": "assistant", "tool_calls": [{"id": "secret", "function": {"name": "secret", "arguments": "secret"}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://secret.example"}}]},
    ]});
    let body = body.to_string();
    let hashed =
        Body { kind: BodyKind::Request, head: body.as_bytes(), tail: b"", complete: true, text: BodyText::Hashed };
    let read = Value::Object(texts_of(&hashed, Some(&KEY)));
    let hash = format!("blake3-keyed:{}", blake3::keyed_hash(&KEY, b"the secret").to_hex());
    let first = &read["gen_ai.input.messages"][0];
    assert_eq!(first, &json!({"role": "other", "parts": [{"type": "text", "length": 10, "hash": hash}]}));
    assert!(!read.to_string().contains("secret"), "{read}");
    assert!(!Value::Object(texts_of(&hashed, None)).to_string().contains("secret"), "a listener without the key");
    let cut = Body { head: &body.as_bytes()[..70], complete: false, ..hashed };
    let read = Value::Object(texts_of(&cut, Some(&KEY)));
    assert_eq!(read["gen_ai.input.messages"][0]["parts"][0], json!({"type": "text", "truncated": true}));
}

// The messages of other APIs than OpenAI's, whole and in a stream.

#[test]
fn a_stream_of_the_messages_api_is_one_message() {
    let delta = |index: u32, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let start =
        |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let events = [
        json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "stop_reason": null}}),
        start(0, json!({"type": "thinking", "thinking": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "H"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "m"})),
        delta(0, json!({"type": "signature_delta", "signature": "no text"})),
        start(1, json!({"type": "text", "text": ""})),
        json!({"type": "ping"}),
        delta(1, json!({"type": "text_delta", "text": "Hel"})),
        delta(1, json!({"type": "text_delta", "text": "lo"})),
        start(2, json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"a\""})),
        delta(2, json!({"type": "input_json_delta", "partial_json": ":1}"})),
        start(3, json!({"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "{}"})),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}}),
        json!({"type": "message_stop"}),
    ];
    let expected = json!([{"role": "assistant", "parts": [
        {"type": "reasoning", "content": "Hm"},
        text("Hello"),
        {"type": "tool_call", "id": "toolu_1", "name": "f", "arguments": "{\"a\":1}"},
        {"type": "tool_call", "id": "toolu_2", "name": "g", "arguments": "{}"},
    ], "finish_reason": "tool_use"}]);
    assert_eq!(stream(&events), expected);
    let whole = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm", "signature": "no text"}, {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}},
    ], "stop_reason": "tool_use"});
    assert_eq!(output(&whole), expected);
}

#[test]
fn the_input_of_the_messages_api_has_calls_results_and_images() {
    let body = json!({"system": [{"type": "text", "text": "Be kind."}], "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1]}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "42"}]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "43"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}},
        ]},
    ]});
    let found = input(&body);
    assert_eq!(
        found[0]["parts"],
        json!([{"type": "tool_call", "id": "toolu_1", "name": "f", "arguments": "{\"a\":[1]}"}])
    );
    let parts = &found[1]["parts"];
    assert_eq!(parts[0], json!({"type": "tool_call_response", "id": "toolu_1", "response": "42"}));
    assert_eq!(parts[1], json!({"type": "tool_call_response", "id": "toolu_2", "response": "43"}));
    assert_eq!(
        (&parts[2]["type"], &parts[2]["modality"], &parts[2]["length"]),
        (&json!("blob"), &json!("image"), &json!(5))
    );
}

#[test]
fn a_batch_of_chats_has_the_messages_of_all_of_them() {
    let chat = |name: &str| json!([{"role": "system", "content": name}, {"role": "user", "content": [{"type": "text", "text": "?"}]}]);
    let body = json!({"model": "m", "messages": [chat("a"), chat("b")]});
    let of = |name: &str| [message("system", name), message("user", "?")];
    assert_eq!(input(&body), Value::from([of("a"), of("b")].concat()));
}

#[test]
fn gemini_gives_instructions_messages_thoughts_and_calls() {
    let body = json!({"systemInstruction": {"parts": [{"text": "Be kind."}]}, "contents": [
        {"role": "user", "parts": [{"text": "Hi"}, {"inlineData": {"mimeType": "image/png", "data": "aGVsbG8="}}]}]});
    let read = whole(BodyKind::Request, &body.to_string());
    assert_eq!(read["gen_ai.system_instructions"], json!([text("Be kind.")]));
    let parts = &read["gen_ai.input.messages"][0]["parts"];
    assert_eq!((&parts[0], &parts[1]["type"]), (&text("Hi"), &json!("blob")));
    let chunk = |parts: Value| json!({"candidates": [{"content": {"parts": parts, "role": "model"}}]});
    let events = [
        chunk(json!([{"text": "H", "thought": true}])),
        chunk(json!([{"text": "m", "thought": true}])),
        chunk(json!([{"text": "Hel"}])),
        chunk(json!([{"text": "lo"}, {"functionCall": {"name": "f", "args": {"a": {"b": 1}}}}])),
        json!({"candidates": [{"finishReason": "STOP", "index": 0}]}),
    ];
    let expected = json!([{"role": "assistant", "parts": [
        {"type": "reasoning", "content": "Hm"}, text("Hello"),
        {"type": "tool_call", "name": "f", "arguments": "{\"a\":{\"b\":1}}"},
    ], "finish_reason": "STOP"}]);
    assert_eq!(stream(&events), expected);
    assert_eq!(output(&Value::from(events.to_vec())), expected, "the stream as one array");
}

#[test]
fn the_others_give_their_text_and_why_it_ended() {
    let ended = |reason: &str| json!([{"role": "assistant", "parts": [text("Hello")], "finish_reason": reason}]);
    let ollama = [
        json!({"message": {"role": "assistant", "content": "Hel"}, "done": false}),
        json!({"message": {"role": "assistant", "content": "lo"}, "done": true, "done_reason": "stop"}),
    ];
    assert_eq!(stream(&ollama), ended("stop"));
    let generated =
        [json!({"response": "Hel"}), json!({"response": "lo"}), json!({"response": "", "done_reason": "length"})];
    assert_eq!(stream(&generated), ended("length"));
    let llama = [
        json!({"index": 0, "content": "Hello", "stop": false}),
        json!({"content": "", "stop_type": "limit", "stop": true}),
    ];
    assert_eq!(stream(&llama), ended("limit"));
    let tgi = [
        json!({"token": {"text": "Hel"}, "generated_text": null}),
        json!({"token": {"text": "lo"}, "generated_text": "Hello", "details": {"finish_reason": "length"}}),
    ];
    assert_eq!(stream(&tgi), ended("length"));
    assert_eq!(output(&json!({"generated_text": "Hello", "details": {"finish_reason": "length"}})), ended("length"));
    assert_eq!(
        output(&json!({"message": {"role": "assistant", "content": "Hello"}, "done_reason": "stop"})),
        ended("stop")
    );
    assert_eq!(input(&json!({"inputs": "Once"})), json!([message("user", "Once")]));
    assert_eq!(input(&json!({"text_input": "Once", "parameters": {"stream": true}})), json!([message("user", "Once")]));
}
