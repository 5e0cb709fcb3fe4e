//! Usage, finish reason, id and model as each API declares them.

use super::{facts, response, stream};
use crate::members;
use lines::catalogue::Semconv;
use lines::extract::{UnknownStreams, push_facts, push_form, push_texts};
use queue::record::{Body, BodyKind, BodyText};
use serde_json::{Map, Value, json};

fn expect(found: &Value, expected: &[(&str, Value)]) {
    for (key, value) in expected {
        assert_eq!(found.get(*key).unwrap_or(&Value::Null), value, "{key} in {found}");
    }
}

/// Input, output, tokens read from a cache, tokens written to one.
fn tokens(found: &Value) -> [Value; 4] {
    ["input_tokens", "output_tokens", "cache_read.input_tokens", "cache_creation.input_tokens"]
        .map(|name| found.get(format!("gen_ai.usage.{name}")).cloned().unwrap_or_default())
}

fn lines(events: &[Value]) -> String {
    events.iter().map(|event| format!("{event}\n")).collect()
}

fn sse(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn message_start(usage: &Value) -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "model": "m", "usage": usage}})
}

#[test]
fn the_input_includes_what_the_messages_api_counts_beside_it() {
    let usage = json!({"input_tokens": 45, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200, "output_tokens": 7});
    let expected = [json!(1245), json!(7), json!(1000), json!(200)];
    assert_eq!(tokens(&response(&json!({"id": "msg_1", "usage": usage}).to_string())), expected);
    let begin = json!({"input_tokens": 45, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200, "output_tokens": 1});
    let end = |usage: Value| json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage});
    let short = [message_start(&begin), end(json!({"output_tokens": 7}))];
    assert_eq!(tokens(&stream(&sse(&short))), expected, "its end has the output only");
    let some = [message_start(&begin), end(json!({"input_tokens": 45, "output_tokens": 7}))];
    assert_eq!(tokens(&stream(&sse(&some))), expected, "its end has no tokens of the cache");
    let late = [message_start(&json!({"input_tokens": 1245, "output_tokens": 0})), end(usage)];
    assert_eq!(tokens(&stream(&sse(&late))), expected, "its begin does not know of the cache");
}

#[test]
fn the_other_apis_have_the_cache_within_their_input() {
    let chat = json!({"prompt_tokens": 1245, "completion_tokens": 7, "prompt_tokens_details":
        {"cached_tokens": 1000, "created_cache_tokens": 200}});
    let responses = json!({"input_tokens": 1245, "output_tokens": 7, "input_tokens_details":
        {"cached_tokens": 1000, "cache_write_tokens": 200}});
    let both = json!({"prompt_tokens": 1245, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 1000},
        "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200});
    for usage in [chat, responses, both] {
        let body = json!({"id": "1", "usage": usage}).to_string();
        assert_eq!(tokens(&response(&body)), [json!(1245), json!(7), json!(1000), json!(200)], "{body}");
    }
}

#[test]
fn a_stream_may_wrap_its_usage_in_a_choice_or_in_a_member_of_the_server() {
    let usage = json!({"prompt_tokens": 19, "completion_tokens": 13, "prompt_cache_hit_tokens": 7});
    for event in [
        json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage}]}),
        json!({"id": "c", "choices": [{"finish_reason": "stop"}], "x_groq": {"id": "other", "usage": usage}}),
    ] {
        let found = stream(&sse(&[event]));
        assert_eq!(tokens(&found), [json!(19), json!(13), json!(7), Value::Null]);
        let rest = [("gen_ai.response.id", json!("c")), ("gen_ai.response.finish_reasons", json!(["stop"]))];
        expect(&found, &rest);
    }
}

#[test]
fn what_gemini_reads_from_tools_is_input_too() {
    let usage = json!({"promptTokenCount": 8, "toolUsePromptTokenCount": 100, "candidatesTokenCount": 3, "totalTokenCount": 111});
    let body = json!({"candidates": [], "usageMetadata": usage});
    for found in [stream(&sse(std::slice::from_ref(&body))), response(&body.to_string())] {
        assert_eq!(tokens(&found)[..2], [json!(108), json!(3)]);
    }
}

#[test]
fn the_output_of_a_begin_is_no_final_usage() {
    let begin = message_start(&json!({"input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 0}));
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}});
    let expected = json!({
        "gen_ai.response.id": "msg_1", "gen_ai.response.model": "m", "gen_ai.usage.input_tokens": 13,
        "gen_ai.usage.cache_read.input_tokens": 4,
    });
    let left = sse(&[begin, delta.clone()]);
    assert_eq!(stream(&left), expected);
    let at = left.find("\"usage\"").unwrap();
    let only_end = Value::Object(facts(BodyKind::Stream, b"", &left.as_bytes()[at - 10..], false));
    assert_eq!(tokens(&only_end), [json!(13), Value::Null, json!(4), Value::Null], "its wrapper is lost");
    let completed =
        json!({"type": "response.completed", "response": {"usage": {"input_tokens": 9, "output_tokens": 2}}});
    let done = sse(&[completed]);
    let at = done.find("\"usage\"").unwrap();
    let only_end = Value::Object(facts(BodyKind::Stream, b"", &done.as_bytes()[at - 1..], false));
    assert_eq!(tokens(&only_end)[1], json!(2), "the last event is no begin");
}

#[test]
fn an_answer_that_is_incomplete_says_why() {
    let body = json!({"id": "r", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}});
    let reason = [("gen_ai.response.finish_reasons", json!(["max_output_tokens"]))];
    expect(&response(&body.to_string()), &reason);
    expect(&stream(&sse(&[json!({"type": "response.incomplete", "response": body})])), &reason);
}

#[test]
fn seconds_of_audio_are_no_tokens() {
    let found = response(r#"{"text":"said","usage":{"type":"duration","seconds":12}}"#);
    assert_eq!(found, json!({"audio_input_s": 12}));
    assert_eq!(response(r#"{"usage":{"seconds":-1}}"#), json!({}));
    let found = response(
        r#"{"text":"said","usage":{"type":"tokens","input_tokens":14,"output_tokens":3,"input_token_details":{"audio_tokens":10}}}"#,
    );
    expect(&found, &[("gen_ai.usage.audio.input_tokens", json!(10)), ("gen_ai.usage.input_tokens", json!(14))]);
}

#[test]
fn the_counts_of_ollama_are_read_from_its_last_line() {
    let chat = |more: Value| {
        let mut line = json!({"model": "llama3.2", "created_at": "2026-01-01T00:00:00Z",
            "message": {"role": "assistant", "content": "\n{\"eval_count\":9}"}, "done": false});
        line.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        line
    };
    let end =
        json!({"done": true, "done_reason": "length", "total_duration": 5, "prompt_eval_count": 26, "eval_count": 290});
    let expected = json!({
        "gen_ai.response.model": "llama3.2", "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.input_tokens": 26, "gen_ai.usage.output_tokens": 290, "usage_source": "response",
    });
    let body = lines(&[chat(json!({})), chat(end.clone())]);
    assert_eq!(stream(&body), expected);
    assert_eq!(response(&chat(end).to_string()), expected, "an answer in one piece");
    let cut = Value::Object(facts(BodyKind::Stream, b"", &body.as_bytes()[70..], false));
    assert_eq!(cut, expected, "its first line is cut");
}

#[test]
fn the_counts_of_llama_cpp_and_of_tgi_are_read() {
    let part = json!({"index": 0, "content": " a", "tokens": [7], "stop": false, "tokens_predicted": 1, "tokens_evaluated": 12});
    let end = json!({"index": 0, "content": "", "stop": true, "model": "gguf", "stop_type": "limit", "tokens_predicted": 32,
        "tokens_evaluated": 12, "timings": {"cache_n": 8, "prompt_n": 4}});
    let counts = [json!(12), json!(32), json!(8), Value::Null];
    for found in [stream(&sse(&[part.clone(), end.clone()])), response(&end.to_string())] {
        assert_eq!(tokens(&found), counts);
        expect(&found, &[("gen_ai.response.finish_reasons", json!(["limit"]))]);
    }
    let early = stream(&sse(&[part]));
    assert_eq!(tokens(&early)[..2], [json!(12), json!(1)], "what was known when the client left");
    let token = json!({"index": 1, "token": {"id": 5, "text": " a", "logprob": -0.1, "special": false},
        "generated_text": null, "details": null});
    let details = json!({"finish_reason": "eos_token", "generated_tokens": 20, "input_length": 6, "seed": null});
    let last = json!({"token": {"id": 2, "text": "</s>"}, "generated_text": " a b", "details": details});
    let whole = json!({"generated_text": " a b", "details": details});
    for found in [stream(&sse(&[token, last])), response(&whole.to_string()), response(&json!([whole]).to_string())] {
        assert_eq!(tokens(&found)[..2], [json!(6), json!(20)]);
        expect(&found, &[("gen_ai.response.finish_reasons", json!(["eos_token"]))]);
    }
}

#[test]
fn the_answers_of_gemini_give_the_same_in_events_in_an_array_and_alone() {
    let chunk = |text: &str, more: Value, output: u32| {
        let mut candidate = json!({"content": {"parts": [{"text": text}], "role": "model"}, "index": 0});
        candidate.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        json!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 20, "cachedContentTokenCount": 8,
            "candidatesTokenCount": output, "thoughtsTokenCount": 5, "totalTokenCount": 20 + output + 5},
            "modelVersion": "gemini-2.5-flash", "responseId": "abc"})
    };
    let (first, last) = (chunk("Hel", json!({}), 1), chunk("lo", json!({"finishReason": "MAX_TOKENS"}), 7));
    let expected = json!({
        "gen_ai.response.id": "abc", "gen_ai.response.model": "gemini-2.5-flash",
        "gen_ai.response.finish_reasons": ["MAX_TOKENS"], "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 12, "gen_ai.usage.cache_read.input_tokens": 8,
        "gen_ai.usage.reasoning.output_tokens": 5, "usage_source": "response",
    });
    assert_eq!(response(&last.to_string()), expected);
    assert_eq!(stream(&sse(&[first.clone(), last.clone()])), expected);
    assert_eq!(stream(&format!("[{first}\n,\n{last}\n]")), expected, "an array by its lines");
    assert_eq!(stream(&format!("[{first}\n,{last}\n]")), expected);
    let array = format!("[{first},\r\n{last}]");
    assert_eq!(response(&array), expected, "an array as a document");
    let cut = Value::Object(facts(BodyKind::Response, &array.as_bytes()[..40], &array.as_bytes()[70..], false));
    assert_eq!(cut, expected);
}

#[test]
fn the_counts_of_cohere_are_read() {
    let embed = json!({"id": "embd-1", "embeddings": {"float": [[0.5]]}, "texts": ["a"], "meta": {"api_version": {"version": "2"},
        "billed_units": {"input_tokens": 12, "image_tokens": 30}}, "response_type": "embeddings_by_type"});
    expect(
        &response(&embed.to_string()),
        &[("gen_ai.usage.input_tokens", json!(42)), ("gen_ai.usage.image.input_tokens", json!(30))],
    );
    let usage = json!({"billed_units": {"input_tokens": 5.0, "output_tokens": 1.0}, "tokens": {"input_tokens": 71.0, "output_tokens": 3.0}});
    let chat = json!({"id": "1", "finish_reason": "COMPLETE", "message": {"role": "assistant"}, "usage": usage});
    let end = json!({"type": "message-end", "id": "1", "delta": {"finish_reason": "COMPLETE", "usage": usage}});
    for found in [response(&chat.to_string()), stream(&sse(&[end]))] {
        assert_eq!(tokens(&found)[..2], [json!(71), json!(3)]);
        expect(&found, &[("gen_ai.response.finish_reasons", json!(["COMPLETE"]))]);
    }
}

#[test]
fn all_reasons_of_six_choices_are_read() {
    let reasons = ["stop", "length", "tool_calls", "stop", "content_filter", "stop"];
    let choices: Vec<Value> = reasons
        .iter()
        .enumerate()
        .map(|(index, reason)| {
            json!({"index": index,
        "message": {"role": "assistant", "content": "words ".repeat(20)}, "finish_reason": reason})
        })
        .collect();
    let expected = [("gen_ai.response.finish_reasons", json!(reasons))];
    expect(&response(&json!({"choices": choices}).to_string()), &expected);
    let events: Vec<Value> = reasons
        .iter()
        .enumerate()
        .map(|(index, reason)| json!({"choices": [{"index": index, "delta": {}, "finish_reason": reason}]}))
        .collect();
    expect(&stream(&sse(&events)), &expected);
}

#[test]
fn what_is_left_of_a_cut_usage_is_no_sum_of_a_part() {
    let usage = json!({"input_tokens": 45, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 200, "output_tokens": 7});
    let body = format!("{{\"id\":\"msg_1\",\"usage\":{usage}}}");
    for end in 0..body.len() {
        let found = facts(BodyKind::Response, &body.as_bytes()[..end], b"", false);
        let input = found.get("gen_ai.usage.input_tokens");
        assert!(input.is_none() || input == Some(&json!(1245)), "{input:?} at {end}");
    }
}

#[test]
fn an_event_on_several_data_lines_is_one_document() {
    let event = "event: x\ndata: {\"id\":\"1\",\ndata: \"usage\":\ndata:{\"prompt_tokens\":3}}\n\n";
    let mut out = b"{\"\":0".to_vec();
    let body =
        Body { kind: BodyKind::Stream, head: event.as_bytes(), tail: b"", complete: true, text: BodyText::Withheld };
    let joined = lines::extract::Readable::of(&body).expect("it is put together");
    push_facts(&mut out, &joined.body(), Semconv::Published);
    out.push(b'}');
    let found: Value = serde_json::from_slice(&out).unwrap();
    expect(&found, &[("gen_ai.response.id", json!("1")), ("gen_ai.usage.input_tokens", json!(3))]);
}

// Forms that requests upload: small parts by name, the file only by name, type and size.

const DIVIDER: &str = "--b0undary";

fn part(name: &str, value: &str) -> Vec<u8> {
    format!("{DIVIDER}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").into_bytes()
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    let headers = format!(
        "{DIVIDER}\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"my; name=\\.wav\"\r\nContent-Type: audio/wav\r\n\r\n"
    );
    [headers.as_bytes(), content, b"\r\n"].concat()
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat(), format!("{DIVIDER}--\r\n").into_bytes()].concat()
}

fn body<'a>(bytes: &'a [u8], head: usize, tail: usize, text: BodyText) -> Body<'a> {
    let complete = head + tail >= bytes.len();
    let (head, tail) = if complete { (bytes, &b""[..]) } else { (&bytes[..head], &bytes[bytes.len() - tail..]) };
    Body { kind: BodyKind::RequestForm, head, tail, complete, text }
}

fn form_facts(bytes: &[u8], head: usize, tail: usize) -> Map<String, Value> {
    let body = body(bytes, head, tail, BodyText::Withheld);
    members(|out| push_form(out, &body, Some(bytes.len() as u64))).0
}

fn transcription(content: &[u8]) -> Vec<Vec<u8>> {
    vec![
        part("model", "whisper-1"),
        part("prompt", "the secret"),
        part("stream", "true"),
        part("temperature", "0.5"),
        file("file", content),
        part("language", "en"),
        part("response_format", "json"),
    ]
}

fn expected(size: u64) -> Value {
    json!({
        "gen_ai.request.model": "whisper-1", "gen_ai.request.stream": true, "gen_ai.request.temperature": 0.5,
        "form.language": "en", "form.response_format": "json", "file.name": "my; name=\\.wav",
        "file.mime_type": "audio/wav", "file.size": size,
    })
}

#[test]
fn small_parts_stand_by_their_names_and_the_file_never() {
    let content = b"RIFF the secret\r\n--b0undar\r\n\xff".repeat(3);
    let whole = form(&transcription(&content));
    let found = form_facts(&whole, whole.len(), 0);
    assert_eq!(Value::Object(found.clone()), expected(content.len() as u64));
    assert!(!Value::Object(found).to_string().contains("secret"));
}

#[test]
fn the_size_of_a_file_is_known_where_its_beginning_and_its_end_are() {
    let content = vec![7; 50_000];
    let whole = form(&transcription(&content));
    assert_eq!(Value::Object(form_facts(&whole, 1000, 1000)), expected(50_000));
    for head in 0..1000 {
        for tail in [0, 10, 60, 100, 150, 190, 200, 400] {
            let found = form_facts(&whole, head, tail);
            let all = expected(50_000);
            for (key, value) in &found {
                assert_eq!(Some(value), all.get(key), "{key} with {head} and {tail}");
            }
        }
    }
}

#[test]
fn of_several_files_in_what_is_missing_no_size_is_known() {
    let files = [file("image[]", &[1; 9000]), file("image[]", &[2; 9000]), part("model", "m")];
    let found = form_facts(&form(&files), 2000, 2000);
    assert_eq!((&found["gen_ai.request.model"], found.get("file.size")), (&json!("m"), None));
    let files = [file("file", &[1; 9000]), part("model", "m"), file("other", &[2; 100])];
    assert_eq!(form_facts(&form(&files), 2000, 2000).get("file.size"), None);
}

#[test]
fn noise_and_values_that_are_no_names_are_left_out() {
    for bytes in [&b""[..], b"--", b"--x", b"\r\n--x\r\n", b"{\"model\":\"x\"}", b"--x\r\n\r\nmodel", b"--x--\r\n"] {
        assert_eq!(Value::Object(form_facts(bytes, bytes.len(), 0)), json!({}));
    }
    let whole = form(&[part("model", "a\"b"), part("temperature", "warm"), part("n", "2"), part("seed", "\n")]);
    assert_eq!(Value::Object(form_facts(&whole, whole.len(), 0)), json!({"gen_ai.request.choice.count": 2}));
    let long = form(&[part("model", &"m".repeat(300))]);
    assert_eq!(Value::Object(form_facts(&long, long.len(), 0)), json!({}));
}

#[test]
fn the_text_of_a_form_is_written_if_it_may_and_its_file_is_a_digest() {
    let content = b"RIFF the secret";
    let whole = form(&transcription(content));
    let texts = |head, tail, text| {
        members(|out| push_texts(out, &body(&whole, head, tail, text), Some(&[7; 32]), UnknownStreams::Written)).0
    };
    let hash = format!("blake3-keyed:{}", blake3::keyed_hash(&[7; 32], content).to_hex());
    assert_eq!(
        texts(whole.len(), 0, BodyText::Written)["gen_ai.input.messages"][0]["parts"],
        json!([
            {"type": "text", "content": "the secret"},
            {"type": "blob", "modality": "audio", "mime_type": "audio/wav", "length": 15, "hash": hash},
        ])
    );
    let hashed = Value::Object(texts(whole.len(), 0, BodyText::Hashed)).to_string();
    assert!(!hashed.contains("secret"), "{hashed}");
}
