//! Streams that the reader is tested with: those that servers write, failures within one, and random ones.

use proptest::collection::vec;
use proptest::prelude::*;
use request::events::Form;
use serde_json::{Value, json};

/// Events that report a failure; the type and the code that a record has of each.
pub const FAILURES: &[(&str, &str, &str)] = &[
    (
        "data: {\"error\":{\"message\":\"gone\",\"type\":\"InternalServerError\",\"code\":500}}\n\n",
        "InternalServerError",
        "500",
    ),
    ("data: {\"id\":\"a\",\"choices\":[],\"error\":{\"code\":\"overloaded\"}}\n\n", "stream_error", "overloaded"),
    ("data:{\"error\":\"overloaded\"}\n\n", "stream_error", ""),
    ("data: {\"error\":\"Input is too long\",\"error_type\":\"validation\"}\n\n", "validation", ""),
    (
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n",
        "overloaded_error",
        "",
    ),
    ("id: 7\nretry: 3000\n: note\nevent: error\ndata: whatever\n\n", "stream_error", ""),
    ("data: {}\nevent:error\r\n\r\n", "stream_error", ""),
    (
        "data: {\"code\":\"rate_limit\",\"message\":\"x\",\"param\":null,\"type\":\"error\"}\n\n",
        "stream_error",
        "rate_limit",
    ),
    (
        "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"x\"}}}\n\n",
        "stream_error",
        "server_error",
    ),
    ("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"error\"}]}\n\n", "stream_error", ""),
    ("data: {\"type\":\"message-end\",\"delta\":{\"finish_reason\":\"ERROR\"}}\n\n", "stream_error", ""),
    (
        "data: {\"error\":{\"message\":\"x\",\"type\":\"None\",\"param\":\"None\",\"code\":\"500\"}}\n\n",
        "stream_error",
        "500",
    ),
    (
        "data: {\"object\":\"error\",\"message\":\"x\",\"type\":\"BadRequestError\",\"code\":400}\n\n",
        "BadRequestError",
        "400",
    ),
    ("data: {\"error\":{\"code\":503,\"message\":\"x\",\"status\":\"UNAVAILABLE\"}}\n\n", "UNAVAILABLE", "503"),
    ("data: {\"\\u0065rror\": {\"type\": \"a\"}}\n\n", "a", ""),
    (
        "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"error\":{\"code\":502,\"message\":\"x\"}}]}\n\n",
        "stream_error",
        "502",
    ),
    (
        "data: {\"text\":\"a\",\"meta_info\":{\"finish_reason\":{\"type\":\"abort\",\"status_code\":503,\"err_type\":\"Full\"}}}\n\n",
        "Full",
        "503",
    ),
    ("data: {\"type\":\"RUN_ERROR\",\"message\":\"x\",\"code\":\"E7\"}\n\n", "stream_error", "E7"),
    (
        "data: {\"event\":\"error\",\"status\":400,\"code\":\"invalid_param\",\"message\":\"x\"}\n\n",
        "stream_error",
        "invalid_param",
    ),
    ("error: {\"code\":500,\"message\":\"x\",\"type\":\"server_error\"}\n\n", "stream_error", "500"),
];

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

fn named(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

/// Whole streams, with the form that their content type gives.
pub fn of_servers() -> Vec<(&'static str, Form, Vec<u8>)> {
    let chat = |delta: Value, finish: Value| {
        event(&json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]}))
    };
    let chats = [
        ": waiting\n\n".to_owned(),
        chat(json!({"role": "assistant", "content": ""}), Value::Null),
        chat(json!({"reasoning_content": "hm"}), Value::Null),
        chat(json!({"content": "Hel"}), Value::Null),
        chat(json!({"content": "lo \"you\" \\ \n é"}), Value::Null),
        chat(json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]}), Value::Null),
        chat(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}), Value::Null),
        chat(json!({}), json!("stop")),
        event(&json!({"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})),
        "data: [DONE]\n\n".to_owned(),
    ];
    let messages = [
        json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "model": "m",
            "usage": {"input_tokens": 45, "cache_read_input_tokens": 1200, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ];
    let responses = [
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "error": null}}),
        json!({"type": "response.in_progress", "response": {"id": "resp_1", "status": "in_progress"}}),
        json!({"type": "response.output_item.added", "item": {"type": "message", "content": []}}),
        json!({"type": "response.reasoning_text.delta", "delta": "hm", "sequence_number": 3}),
        json!({"type": "response.output_text.delta", "delta": "Hi", "sequence_number": 4}),
        json!({"type": "response.output_text.delta", "delta": "there", "sequence_number": 15}),
        json!({"type": "response.function_call_arguments.delta", "delta": "{", "sequence_number": 16}),
        json!({"type": "response.output_text.done", "text": "Hi there"}),
        json!({"type": "response.incomplete", "response": {"status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"}, "usage": {"input_tokens": 3}}}),
    ];
    let ollama = [
        json!({"model": "m", "created_at": "2026-01-01T00:00:00.5Z", "message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": false}),
        json!({"model": "m", "created_at": "2026-01-01T00:00:01.25Z", "message": {"role": "assistant", "content": "Hi"}, "done": false}),
        json!({"model": "m", "created_at": "2026-01-01T00:00:02.125Z", "response": "there", "done": false}),
        json!({"model": "m", "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop", "eval_count": 2}),
    ];
    let others = [
        json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "hm", "thought": true}]}, "index": 0}]}),
        json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "Hi"}]}, "finishReason": "STOP"}], "usageMetadata": {}}),
        json!({"index": 1, "token": {"id": 5, "text": " a", "logprob": -0.5, "special": false}, "generated_text": null}),
        json!({"content": "x", "stop": false}),
        json!({"content": "", "stop": true, "tokens_predicted": 4}),
        json!({"model_name": "m", "model_version": "1", "text_output": "x"}),
        json!({"choices": [{"index": 0, "token_ids": [5, 6]}]}),
        json!({"my": {"own": ["shape"]}}),
    ];
    let ag_ui = [
        json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}),
        json!({"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}),
        json!({"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "hm"}),
        json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hi"}),
        json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "there"}),
        json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}"}),
        json!({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": 1}]}),
        json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}),
    ];
    let dify = [
        json!({"event": "workflow_started", "task_id": "t", "data": {"id": "w"}}),
        json!({"event": "message", "task_id": "t", "answer": "Hi", "created_at": 1}),
        json!({"event": "ping"}),
        json!({"event": "message_end", "task_id": "t", "metadata": {"usage": {"prompt_tokens": 3}}}),
    ];
    let joined = |events: &[Value], write: fn(&Value) -> String| events.iter().map(write).collect::<String>();
    let crlf = |text: String| text.replace('\n', "\r\n");
    vec![
        ("chat", Form::Events, chats.concat().into_bytes()),
        ("chat with CRLF", Form::Events, crlf(chats.concat()).into_bytes()),
        (
            "chat with CR and a mark",
            Form::Events,
            format!("\u{FEFF}{}", chats.concat().replace('\n', "\r")).into_bytes(),
        ),
        ("messages", Form::Events, joined(&messages, named).into_bytes()),
        ("responses", Form::Events, joined(&responses, named).into_bytes()),
        ("ollama", Form::Lines, joined(&ollama, |line| format!("{line}\n")).into_bytes()),
        ("others", Form::Events, joined(&others, event).into_bytes()),
        ("AG-UI", Form::Events, joined(&ag_ui, event).into_bytes()),
        ("Dify", Form::Events, joined(&dify, event).into_bytes()),
        (
            "several lines of data",
            Form::Events,
            b"data: {\"choices\":[{\ndata: \"text\":\"a\"}]}\n\ndata\ndata: b\n\n".to_vec(),
        ),
    ]
}

/// One of these events, with texts and numbers of its own.
fn any_event() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just(String::new()),
        "[a-z \"\\\\{}:,\u{e9}\n]{0,12}",
        Just("data: {\"error\":1}".to_owned()),
        Just("\"type\":\"error\"".to_owned()),
        "[a-z]{30,400}",
    ];
    let word = prop_oneof![
        Just(Value::Null),
        Just(json!(false)),
        Just(json!(0)),
        Just(json!("")),
        Just(json!("stop")),
        Just(json!("error")),
        Just(json!({"type": "t", "code": 5})),
        Just(json!({"code": "c"})),
        Just(json!({"code": null, "message": ""})),
        Just(json!({"thinking": "t"})),
        Just(json!([{"text": "t"}, {"thinking": [{"text": "t"}]}])),
        Just(json!({})),
        Just(json!([])),
        Just(json!(7)),
    ];
    let key = prop::sample::select(vec![
        "error", "type", "object", "usage", "delta", "content", "response", "message", "choices", "done", "stop",
        "status", "text_output", "token", "other", "code", "finish_reason", "thinking", "images", "custom_id",
    ]);
    let kind = prop::sample::select(vec![
        "response.output_text.delta",
        "response.reasoning_text.delta",
        "response.function_call_arguments.delta",
        "content_block_delta",
        "message_delta",
        "ping",
        "own",
        "transcript.text.delta",
    ]);
    (text, word, key, kind, 0_u64..1_000_000, 0_usize..9).prop_map(|(text, word, key, kind, number, shape)| match shape
    {
        0 => json!({"id": number, "choices": [
            {"index": number % 3, "delta": {"content": text}, "finish_reason": word, "error": word},
        ]}),
        1 if number % 3 == 0 => json!({"choices": [{"delta": {key: word, "content": word, "images": [word]}}]}),
        1 => json!({"choices": [{"delta": {"role": "assistant", "reasoning": text}}, {"text": text}], "usage": word}),
        2 => json!({"type": kind, "delta": text, "sequence_number": number}),
        3 => json!({"type": kind, "index": number, "delta": {"type": "text_delta", "text": text}}),
        4 => json!({"model": "m", "n": number, "response": text, "done": number % 2 == 0}),
        5 => json!({"choices": [{"delta": {"tool_calls": [{"function": {"arguments": text}}]}}]}),
        6 => json!({key: word, "n": number}),
        7 => json!({"text": text, "nested": {key: word, "deeper": {"error": {"error": [number]}}}}),
        _ => json!({"candidates": [{"content": {"parts": [{"text": text, "thought": number % 2 == 0}]}}]}),
    })
}

/// A random stream and its form.
pub fn random() -> impl Strategy<Value = (Form, Vec<u8>)> {
    let before = prop_oneof![
        6 => Just(""), 1 => Just(": note\n"), 1 => Just("id: 7\n"), 1 => Just("event: error\n"), 1 => Just("event: ping\n"),
        1 => Just(": ping\n\n"), 1 => Just("event: message\nretry: 10\n"),
    ];
    let data = prop_oneof![
        12 => any_event().prop_map(|event| event.to_string()), 1 => Just("[DONE]".to_owned()), 1 => Just(String::new()),
        1 => "[a-z ]{1,9}".prop_map(|text| text),
    ];
    // Most events of a stream are alike.
    let events = vec((before, data, 1_usize..5), 1..9);
    let ends = prop::sample::select(vec!["\n", "\r\n", "\r"]);
    (events, ends, prop::bool::weighted(0.2), any::<bool>()).prop_map(|(events, end, is_lines, with_blank)| {
        let blank = if with_blank { " " } else { "" };
        let mut stream = String::new();
        for (before, data, times) in events {
            for _ in 0..times {
                match is_lines {
                    true if data.is_empty() || data == "[DONE]" => {}
                    true => stream.push_str(&format!("{data}\n")),
                    false => stream.push_str(&format!("{before}data:{blank}{data}\n\n")),
                }
            }
        }
        let form = if is_lines { Form::Lines } else { Form::Events };
        (form, stream.replace('\n', end).into_bytes())
    })
}
