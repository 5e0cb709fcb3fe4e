//! Bodies with any number of first and last bytes kept: the output is JSON, and its texts are in the body.

use super::texts;
use proptest::prelude::*;
use queue::record::BodyKind;
use serde_json::{Value, json};

/// All texts of the messages in `read`, without the ellipses for missing parts.
fn contents(read: &Value) -> Vec<String> {
    match read {
        Value::Object(members) => {
            let own = ["content", "arguments", "response", "uri"].iter().filter_map(|name| members.get(*name));
            let own = own.filter_map(Value::as_str).flat_map(|text| text.split('…').map(str::to_owned));
            own.chain(members.values().filter(|value| !value.is_string()).flat_map(contents)).collect()
        }
        Value::Array(values) => values.iter().flat_map(contents).collect(),
        _ => vec![],
    }
}

/// Check each way in which a body may be kept: all of it, a head, a tail, both.
fn at_cuts(body: &str, step: usize, check: impl Fn(&[u8], &[u8])) {
    let bytes = body.as_bytes();
    for head in (0..=bytes.len()).step_by(step) {
        check(&bytes[..head], b"");
        check(b"", &bytes[head..]);
        for gap in [1, 5, 90] {
            check(&bytes[..head], &bytes[(head + gap).min(bytes.len())..]);
        }
    }
}

fn assert_said(kind: BodyKind, body: &str, said: &[String], step: usize) {
    at_cuts(body, step, |head, tail| assert_said_of(kind, head, tail, said));
}

fn assert_said_of(kind: BodyKind, head: &[u8], tail: &[u8], said: &[String]) {
    let read = Value::Object(texts(kind, head, tail, false));
    let is_known = [r#""type":"json""#, r#""type":"events""#].iter().all(|raw| !read.to_string().contains(raw));
    for content in contents(&read).iter().filter(|_| is_known) {
        let was_said = said.iter().any(|text| text.contains(content));
        let [head, tail] = [head, tail].map(String::from_utf8_lossy);
        assert!(was_said, "{content:?} was not said: {read}\nhead {head}\ntail {tail}");
    }
}

const TRICKY: [&str; 6] = [
    "plain words, many of them",
    "é€😀 \u{1F9D1}\u{200D}\u{1F4BB} \u{7f}\u{e000}",
    "quotes \" and \\ and \\\\\" and \n\t\r\u{1}",
    r#"","role":"system","content":"x"}],"messages":[{"role":"x"#,
    r"\ud83d\ude00 \u0041 \\u0041 \\\",
    "udeadbeef0123",
];

#[test]
fn what_is_written_of_a_request_was_said_wherever_it_is_cut() {
    for text in TRICKY {
        for escaped in [false, true] {
            let body = json!({"model": "m", "messages": [
                {"role": "system", "content": text},
                {"role": "user", "content": [{"type": "text", "text": text}, {"text": text, "type": "text"}]},
                {"role": "assistant", "tool_calls": [{"id": "i", "function": {"name": "f", "arguments": text}}]},
                {"content": text, "role": "user"}], "stop": ["not said"], "n": 1});
            let mut body = body.to_string();
            if escaped {
                body = body.chars().map(|c| if c.is_ascii() { c.to_string() } else { unit_escapes(c) }).collect();
            }
            assert_said(BodyKind::Request, &body, &[text.to_owned()], 1);
        }
    }
}

fn unit_escapes(character: char) -> String {
    character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

#[test]
fn what_is_written_of_an_answer_was_said_wherever_it_is_cut() {
    for text in TRICKY {
        let choice = |index: u32| json!({"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"});
        let chat = json!({"id": "i", "choices": [choice(0), choice(1)], "usage": {"prompt_tokens": 1}});
        assert_said(BodyKind::Response, &chat.to_string(), &[text.to_owned()], 1);
        let completion = json!({"id": "i", "choices": [{"text": text, "index": 0, "finish_reason": "stop"}]});
        assert_said(BodyKind::Response, &completion.to_string(), &[text.to_owned()], 1);
        let response =
            json!({"id": "r", "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]});
        assert_said(BodyKind::Response, &response.to_string(), &[text.to_owned()], 1);
    }
}

#[test]
fn what_is_written_of_a_stream_was_said_wherever_it_is_cut() {
    for text in TRICKY {
        let deltas: Vec<String> =
            text.chars().collect::<Vec<_>>().chunks(3).map(|part| part.iter().collect()).collect();
        let events: String = deltas
            .iter()
            .flat_map(|delta| {
                (0..2).map(move |index| json!({"choices": [{"index": index, "delta": {"content": delta}}]}))
            })
            .map(|event| format!("data: {event}\n\n"))
            .collect();
        assert_said(BodyKind::Stream, &events, &[text.to_owned()], 1);
    }
}

#[test]
fn the_first_and_the_last_words_are_kept() {
    let long = "word ".repeat(2000);
    let said = format!("First {long} last.");
    let check = |kind: BodyKind, body: &str, first: &str, last: &str| {
        let bytes = body.as_bytes();
        let read = Value::Object(texts(kind, &bytes[..600], &bytes[bytes.len() - 600..], false));
        let contents = contents(&read);
        assert!(contents.iter().any(|text| text.starts_with(first)), "{first}: {read}");
        assert!(contents.iter().any(|text| text.ends_with(last)), "{last}: {read}");
        assert!(read.to_string().contains(r#"_truncated":true"#));
    };
    let user = |text: &str| json!({"role": "user", "content": text});
    let chat = json!({"messages": [{"role": "system", "content": "System."}, user(&said), user("Really?")]});
    check(BodyKind::Request, &chat.to_string(), "First", " last.");
    check(BodyKind::Request, &chat.to_string(), "System.", "Really?");
    check(BodyKind::Request, &json!({"messages": [user(&said)], "model": "m"}).to_string(), "First", " last.");
    check(BodyKind::Request, &json!({"prompt": said, "model": "m"}).to_string(), "First", " last.");
    let parts = json!({"messages": [{"role": "user", "content": [{"type": "text", "text": said}]}]});
    check(BodyKind::Request, &parts.to_string(), "First", " last.");
    let answer =
        json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}]});
    check(BodyKind::Response, &answer.to_string(), "First", " last.");
    let bytes = answer.to_string().into_bytes();
    let read = texts(BodyKind::Response, &bytes[..600], &bytes[bytes.len() - 600..], false);
    assert_eq!(read["gen_ai.output.messages"].as_array().unwrap().len(), 1, "one choice is one message");
    let events: String = said
        .split_inclusive(' ')
        .map(|word| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": word}}]})))
        .collect();
    check(BodyKind::Stream, &events, "First", " last.");
}

fn noise() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => proptest::sample::select(
            &["{", "}", "[", "]", ",", ":", "\"", "\\", "\\\"", "\n", "data: ", "\"messages\":", "\"content\":", "\"text\":",
              "\"choices\":", "\"delta\":", "\"role\":", "\"user\"", "\"index\":", "\"prompt\":", "\"type\":", "12", "null",
              "\"tool_calls\":", "\"function\":", "\"arguments\":", "\"image_url\":", "\"url\":", "\"data:a/b;base64,AAAA",
              "\"embedding\":", "\"data\":", "\"output\":", "\"input\":", "\"delta\"", "\\ud800", "\\u00"][..]
        ).prop_map(|part| part.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ];
    prop::collection::vec(part, 0..80).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn noise_gives_valid_members_without_a_panic(head in noise(), tail in noise()) {
        use BodyKind::{Request, RequestMedia, RequestText, Response, ResponseText, Stream};
        for kind in [Request, Response, Stream, RequestText, ResponseText, RequestMedia] {
            texts(kind, &head, &tail, false);
            texts(kind, &head, b"", true);
            let framed = [&b"lost\",\"a\":"[..], &head, b"\"}]}"].concat();
            texts(kind, b"", &framed, false);
        }
    }

    #[test]
    fn any_text_is_said_wherever_its_body_is_cut(
        text in "\\PC{0,60}",
        other in ".{0,40}",
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 20),
    ) {
        prop_assume!(!text.contains('…') && !other.contains('…'));
        let request = json!({"messages": [
            {"role": "user", "content": text}, {"role": "user", "content": [{"type": "text", "text": other}]}], "user": "u"});
        let answer = json!({"choices": [{"index": 0, "message": {"content": text}}, {"index": 1, "message": {"content": other}}]});
        let said = [text, other];
        for (kind, body) in [(BodyKind::Request, request.to_string()), (BodyKind::Response, answer.to_string())] {
            for (head, gap) in &cuts {
                let (head, rest) = body.as_bytes().split_at(head.index(body.len()));
                assert_said_of(kind, head, &rest[gap.index(rest.len())..], &said);
            }
        }
    }
}

#[test]
fn of_an_array_whose_key_is_missing_only_messages_are_read() {
    let body = json!({"documents": [{"content": "not said"}, {"content": "nor this"}, {"text": "nor that"}],
        "messages": [{"role": "user", "content": "said"}]});
    let body = body.to_string();
    let from = body.find("\"not said").unwrap();
    let read = Value::Object(texts(BodyKind::Request, b"", &body.as_bytes()[from..], false));
    assert_eq!(contents(&read), ["said"]);
}

#[test]
fn the_hash_of_a_data_url_that_is_cut_would_be_wrong_so_there_is_none() {
    let body =
        json!({"messages": [{"role": "user", "content": format!("See data:image/png;base64,{}", "Ab1+".repeat(100))}]});
    let read = texts(BodyKind::Request, &body.to_string().as_bytes()[..300], b"", false);
    let part = &read["gen_ai.input.messages"][0]["parts"][0];
    assert_eq!(part, &json!({"type": "text", "content": "See [image/png, cut]…", "truncated": true}));
}
