//! A slow reading of a whole stream: lines by the standard's text, JSON by a library, and the APIs by their documents.

use serde_json::Value;

/// What there is to know of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Truth {
    pub chunks: u64,
    pub keep_alives: u64,
    pub frames: u64,
    pub has_reasoning: bool,
    pub has_tool_call: bool,
    /// Type and code of the first failure.
    pub failure: Option<(String, Option<String>)>,
}

pub fn truth(stream: &[u8], is_lines: bool) -> Truth {
    let mut truth = Truth::default();
    let text = String::from_utf8_lossy(stream);
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(&text).replace("\r\n", "\n").replace('\r', "\n");
    if is_lines {
        for line in text.split('\n').filter(|line| !line.trim().is_empty()) {
            truth.data("", line);
        }
        return truth;
    }
    let (mut name, mut data, mut has_data, mut has_comment) = (String::new(), Vec::new(), false, false);
    for line in text.split('\n') {
        if line.is_empty() {
            let joined = data.join("\n");
            if !joined.is_empty() {
                truth.data(&name, &joined);
            } else if is_failed(&name) {
                truth.fail("", "");
                truth.frames += 1;
            } else if has_data || has_comment || is_ping(&name) {
                truth.keep_alives += 1;
            }
            (name, data, has_data, has_comment) = (String::new(), Vec::new(), false, false);
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => has_comment = true,
            "data" => {
                has_data = true;
                data.push(value.to_owned());
            }
            "event" => name = value.to_owned(),
            _ => {}
        }
    }
    truth
}

fn is_ping(name: &str) -> bool {
    matches!(name, "ping" | "keepalive" | "keep-alive" | "keep_alive" | "heartbeat")
}

fn text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

/// Whether a list has a part with such a text.
fn part(value: &Value, key: &str) -> bool {
    value.as_array().is_some_and(|parts| parts.iter().any(|part| text(&part[key])))
}

/// Whether a message's or a delta's content is there: a text, or parts with texts.
fn content(value: &Value) -> bool {
    text(value) || part(value, "text")
}

/// Whether there is a thought: a text, or parts with texts.
fn thought(value: &Value) -> bool {
    text(value) || part(value, "text")
}

/// What an event adds: content, reasoning, a tool call.
type Adds = [bool; 3];

fn message(message: &Value) -> Adds {
    let function =
        |function: &Value| text(&function["name"]) || text(&function["arguments"]) || function["arguments"].is_object();
    let calls =
        message["tool_calls"].as_array().is_some_and(|calls| calls.iter().any(|call| function(&call["function"])));
    let thoughts = |parts: &Value| parts.as_array().is_some_and(|all| all.iter().any(|one| thought(&one["thinking"])));
    let reasoning = ["reasoning_content", "reasoning", "thinking"].iter().any(|key| thought(&message[*key]));
    let has_image = message["images"].as_array().is_some_and(|images| images.iter().any(Value::is_object));
    [
        content(&message["content"]) || content(&message["refusal"]) || has_image,
        reasoning || thoughts(&message["content"]) || thoughts(&message["refusal"]),
        calls || function(&message["function_call"]),
    ]
}

fn or(left: Adds, right: Adds) -> Adds {
    [left[0] || right[0], left[1] || right[1], left[2] || right[2]]
}

impl Truth {
    fn fail(&mut self, kind: &str, code: &str) {
        let kind = if kind.is_empty() { "stream_error" } else { kind };
        let failure = (kind.to_owned(), (!code.is_empty()).then(|| code.to_owned()));
        self.failure.get_or_insert(failure);
    }

    fn data(&mut self, name: &str, data: &str) {
        let value = serde_json::from_str::<Value>(data).ok().filter(Value::is_object);
        let Some(value) = value else {
            if is_failed(name) {
                self.fail("", "");
            }
            match data {
                "[DONE]" => self.frames += 1,
                _ if is_ping(name) => self.keep_alives += 1,
                _ if is_failed(name) => self.frames += 1,
                _ => self.chunks += 1,
            }
            return;
        };
        let own_kind = value["type"].as_str().or(value["event"].as_str()).unwrap_or_default();
        let is_failure = self.look_for_failure(name, own_kind, &value);
        let kind = if is_known(own_kind) || is_ping(own_kind) || is_failed(own_kind) { own_kind } else { name };
        if is_ping(kind) {
            self.keep_alives += 1;
            return;
        }
        let adds = adds(kind, &value);
        self.has_reasoning |= adds[1];
        self.has_tool_call |= adds[2];
        let of_known = ["choices", "candidates"].iter().any(|key| value[*key].is_array())
            || ["done", "stop"].iter().any(|key| value[*key].is_boolean())
            || ["token", "content_block", "response", "usageMetadata"].iter().any(|key| value[*key].is_object())
            || value["text_output"].is_string();
        let is_usage = value["usage"].is_object() && value.as_object().is_some_and(|members| members.len() == 1);
        let is_frame = of_known || is_known(kind) || is_failed(kind) || is_failure || is_usage;
        if adds.contains(&true) || !is_frame {
            self.chunks += 1;
        } else {
            self.frames += 1;
        }
    }

    fn look_for_failure(&mut self, name: &str, kind: &str, value: &Value) -> bool {
        let choices = value["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
        let own_error = &value["error"];
        let has_error = value["custom_id"].is_null() && choices.iter().map(|one| &one["error"]).any(is_error_value)
            || value["custom_id"].is_null() && is_error_value(own_error);
        let error = choices.iter().map(|one| &one["error"]).find(|error| is_error_value(error)).unwrap_or(own_error);
        let is_error =
            |reason: &Value| reason.as_str().is_some_and(|reason| reason.to_ascii_lowercase().starts_with("error"));
        let reasons = ["done_reason", "finish_reason", "stop_reason"].iter().any(|key| is_error(&value[*key]))
            || ["finish_reason", "stop_reason"].iter().any(|key| is_error(&value["delta"][*key]))
            || value["choices"].as_array().is_some_and(|all| all.iter().any(|one| is_error(&one["finish_reason"])));
        let wrapped = value["response"].is_object() && value["response"]["status"] == "failed";
        let is_error = value["object"] == "error";
        let is_failed = has_error || reasons || wrapped || is_error || is_failed(kind) || is_failed(name);
        if is_failed {
            let error = if error.is_object() { error } else { &value["response"]["error"] };
            let code = |value: &Value| match value {
                Value::Number(number) => number.to_string(),
                other => other.as_str().unwrap_or_default().to_owned(),
            };
            let own = [error["status"].as_str(), error["type"].as_str(), value["error_type"].as_str()];
            let own = own.into_iter().flatten().next().unwrap_or_default();
            let own_code = code(&error["code"]);
            self.fail(
                if own.is_empty() && is_error { kind } else { own },
                &if own_code.is_empty() { code(&value["code"]) } else { own_code },
            );
        }
        is_failed
    }
}

/// Whether the value of `error` says that there is one.
fn is_error_value(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.to_string() != "0",
        Value::Array(parts) => parts.iter().any(is_member),
        Value::Object(members) => members.values().any(is_member),
        Value::Bool(true) => true,
    }
}

/// Whether a member of an error is there.
fn is_member(value: &Value) -> bool {
    !value.is_null() && value.as_str() != Some("")
}

fn is_failed(kind: &str) -> bool {
    matches!(kind, "error" | "response.failed" | "RUN_ERROR")
}

fn is_known(kind: &str) -> bool {
    let exact = ["message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta"];
    let of_dify = ["message_end", "workflow_started", "workflow_finished", "node_started", "node_finished"];
    let apis = ["response.", "transcript.", "speech.", "RUN_", "STEP_", "TEXT_MESSAGE_", "TOOL_CALL_", "THINKING_"];
    let others = ["REASONING_", "STATE_", "MESSAGES_SNAPSHOT"];
    exact.contains(&kind)
        || kind == "content_block_stop"
        || of_dify.contains(&kind)
        || apis.iter().chain(&others).any(|api| kind.starts_with(api))
}

fn adds(kind: &str, value: &Value) -> Adds {
    let mut adds = [false; 3];
    for choice in value["choices"].as_array().into_iter().flatten() {
        let tokens = choice["token_ids"].as_array().is_some_and(|tokens| !tokens.is_empty());
        adds = or(adds, or(message(&choice["delta"]), [text(&choice["text"]) || tokens, false, false]));
    }
    for candidate in value["candidates"].as_array().into_iter().flatten() {
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            let thought = part["thought"] == true;
            let has_text = text(&part["text"]);
            adds = or(adds, [has_text && !thought, has_text && thought, part["functionCall"].is_object()]);
        }
    }
    adds = or(adds, message(&value["message"]));
    let delta = &value["delta"];
    if text(delta) {
        let place = match kind {
            _ if !is_known(kind) => 0,
            _ if kind.contains("reasoning") || kind.starts_with("REASONING_") || kind.starts_with("THINKING_") => 1,
            _ if kind.contains("_call") || kind.contains("tool") || kind.starts_with("TOOL_CALL_") => 2,
            _ => 0,
        };
        adds[place] = true;
    }
    adds = or(adds, [text(&delta["text"]), thought(&delta["thinking"]), text(&delta["partial_json"])]);
    let block = &value["content_block"];
    adds = or(adds, [text(&block["text"]), thought(&block["thinking"]), false]);
    let plain = ["response", "content", "text_output"].iter().any(|key| text(&value[*key]));
    or(adds, [plain || text(&value["token"]["text"]), thought(&value["thinking"]), false])
}
