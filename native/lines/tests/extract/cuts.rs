//! Bodies with any number of first and last bytes kept: every fact that is read is true, and every fact that is there
//! is read.

use super::{Facts, facts};
use queue::record::BodyKind;
use serde_json::{Value, json};

/// Text that tries to pass for structure, at any byte where it may be cut.
const HOSTILE: [&str; 9] = [
    r#"","model":"x","stream":true,"n":9}"#,
    r#"\","model":"x"}"#,
    r#"\\","model":"x","usage":{"prompt_tokens":99}}"#,
    r#"\\\"model":"x","#,
    r#"}],"model":"x","finish_reason":"x"}],"id":"x"#,
    r#"{"model":"x"}"#,
    "\n\ndata: {\"model\":\"x\",\"choices\":[{\"index\":0,\"finish_reason\":\"x\"}]}\n\n",
    r#""model":"x""#,
    r#"":"model":"x",""":"\"#,
];

/// Check each way to keep a head and a tail of `body`.
fn at_every_cut(kind: BodyKind, body: &str, check: impl Fn(&Facts, usize, usize)) {
    let bytes = body.as_bytes();
    let lengths: Vec<usize> = (0..=bytes.len()).collect();
    for head in &lengths {
        check(&facts(kind, &bytes[..*head], b"", false), *head, bytes.len());
    }
    for tail in &lengths {
        check(&facts(kind, b"", &bytes[*tail..], false), 0, *tail);
    }
    for (head, tail) in lengths.iter().flat_map(|head| [1, 5, 40].map(|gap| (*head, head + gap))) {
        if tail <= bytes.len() {
            check(&facts(kind, &bytes[..head], &bytes[tail..], false), head, tail);
        }
    }
}

/// Every fact that was read is one of the whole body; finish reasons may be fewer.
fn assert_true(read: &Facts, whole: &Facts, cut: (usize, usize)) {
    for (key, value) in read {
        if let Value::Array(reasons) = value {
            let mut all = whole[key].as_array().unwrap().iter();
            assert!(
                reasons.iter().all(|reason| all.any(|other| other == reason)),
                "{key} {value} at {cut:?} of {whole:?}"
            );
        } else {
            assert_eq!(Some(value), whole.get(key), "{key} at {cut:?}");
        }
    }
}

fn check_all(kind: BodyKind, body: &str) {
    let whole = facts(kind, body.as_bytes(), b"", true);
    assert!(!whole.is_empty(), "the test needs something to be found in {body}");
    at_every_cut(kind, body, |read, head, tail| assert_true(read, &whole, (head, tail)));
}

#[test]
fn no_text_of_a_request_passes_for_a_key_wherever_it_is_cut() {
    for text in HOSTILE {
        check_all(
            BodyKind::Request,
            &json!({
                "stream": false, "\"model": "x", text: text, "messages": [{"role": "user", "content": text}, {text: [text]}],
                "model": format!("true{text}"), "stop": [text], "n": 1, "user": text,
            })
            .to_string(),
        );
    }
}

#[test]
fn no_text_of_a_response_passes_for_a_fact_wherever_it_is_cut() {
    for text in HOSTILE {
        let choice = |index: usize, reason: &str| json!({"index": index, "message": {"content": text, "logprobs": [{text: text}]}, "finish_reason": reason});
        check_all(
            BodyKind::Response,
            &json!({
                "id": "i", "model": "m", "choices": [choice(0, "stop"), choice(1, "length")],
                "usage": {"prompt_tokens": 12, "completion_tokens": 345}, "extra": text, "list": [{"a": text}],
            })
            .to_string(),
        );
    }
}

#[test]
fn no_text_of_a_stream_passes_for_a_fact_wherever_it_is_cut() {
    for (line, texts) in [("\n", &HOSTILE[..]), ("\r\n", &HOSTILE[6..7])] {
        for text in texts {
            let chunk = |choices: Value, usage: Value| {
                let data = json!({"id": "i", "choices": choices, "model": "m", "usage": usage});
                format!("data: {data}{line}{line}")
            };
            let body = [
                chunk(json!([{"index": 0, "delta": {"content": text}, "finish_reason": null}]), json!(null)),
                chunk(json!([{"index": 1, "delta": {"content": text}, "finish_reason": "length"}]), json!(null)),
                chunk(json!([{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]), json!(null)),
                chunk(json!([]), json!({"prompt_tokens": 12, "completion_tokens": 345})),
                format!("data: [DONE]{line}{line}"),
            ];
            check_all(BodyKind::Stream, &body.concat());
        }
    }
}

#[test]
fn a_document_that_ends_within_a_text_has_no_tail() {
    for text in HOSTILE {
        let body = json!({"model": "m", "messages": [{"content": text}, text]}).to_string();
        for end in 0..body.len() {
            for start in 0..end {
                let read = facts(BodyKind::Request, b"", &body.as_bytes()[start..end], false);
                assert!(read.is_empty() || read["gen_ai.request.model"] == "m", "{start}..{end} of {body}: {read:?}");
            }
        }
    }
}

#[test]
fn what_stands_whole_in_the_tail_is_read() {
    let body = json!({
        "messages": ["text \" \\ ".repeat(50)], "max_tokens": 7, "model": "m", "stream": true,
    })
    .to_string();
    let from = body.find(",\"max_tokens\"").unwrap();
    for cut in 20..=from {
        let read = facts(BodyKind::Request, &body.as_bytes()[..20], &body.as_bytes()[cut..], false);
        let expected =
            json!({"gen_ai.request.model": "m", "gen_ai.request.stream": true, "gen_ai.request.max_tokens": 7});
        assert_eq!(Value::Object(read), expected, "from {cut}");
    }
}

#[test]
fn the_end_of_a_long_choice_gives_its_finish_reason_and_the_usage() {
    let text = "He said \"}],\" \\ \n".repeat(100);
    let body = json!({
        "id": "i", "model": "m",
        "choices": [{"index": 0, "message": {"content": "short"}, "finish_reason": "stop"},
                    {"index": 1, "message": {"content": text}, "logprobs": null, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    })
    .to_string();
    let expected = json!({
        "gen_ai.response.id": "i", "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ["stop", "length"],
        "gen_ai.usage.input_tokens": 1, "gen_ai.usage.output_tokens": 2, "usage_source": "response",
    });
    for cut in body.len() - 1000..body.len() - 150 {
        let read = facts(BodyKind::Response, &body.as_bytes()[..200], &body.as_bytes()[cut..], false);
        assert_eq!(Value::Object(read), expected, "from {cut}");
    }
}

#[test]
fn the_end_of_a_long_last_event_gives_the_usage() {
    let text = "He said \"}],\" \\ \n".repeat(100);
    let response = json!({
        "id": "resp_1", "output": [{"id": "msg_1", "content": [{"text": text}]}], "tools": [{"usage": {"input_tokens": 9}}],
        "usage": {"input_tokens": 1, "output_tokens": 2}, "metadata": {"usage": "none"},
    });
    for end in ["", "\n\n", "\n\ndata: [DONE]\n\n"] {
        let body = format!("data: {}{end}", json!({"type": "response.completed", "response": response}));
        let cut = body.len() - 400;
        let read = facts(BodyKind::Stream, b"", &body.as_bytes()[cut..], false);
        let expected =
            json!({"gen_ai.usage.input_tokens": 1, "gen_ai.usage.output_tokens": 2, "usage_source": "response"});
        assert_eq!(Value::Object(read), expected);
    }
}

#[test]
fn the_index_of_a_choice_that_was_cut_follows_the_one_before() {
    let tail = br#"...","finish_reason":"c"},{"index":3,"finish_reason":"d"}]}"#;
    let head = br#"{"choices":[{"finish_reason":"a","index":0},{"finish_reason":"b","index":1},{"index":2,"te"#;
    let read = facts(BodyKind::Response, head, tail, false);
    assert_eq!(read["gen_ai.response.finish_reasons"], json!(["a", "b", "c", "d"]));
    let alone = facts(BodyKind::Response, b"", tail, false);
    assert_eq!(alone["gen_ai.response.finish_reasons"], json!(["c", "d"]));
}
