//! The messages of other APIs than OpenAI's, whole and in a stream.

use super::{input, message, output, stream, text};
use queue::record::BodyKind;
use serde_json::{Value, json};

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
    let read = super::whole(BodyKind::Request, &body.to_string());
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
