//! Bodies with any number of first and last bytes kept: the output is JSON, and its texts are in the body.

use super::{input, output, stream, texts, whole};
use proptest::prelude::*;
use queue::record::{BodyKind, Scratch, Value as Stored, Values};
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

// Media in bodies: type, length and hash replace them, and their bytes are never written.

/// The base64 of `bytes`.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().enumerate().fold(0u32, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn hash(bytes: &[u8]) -> String {
    format!("blake3:{}", blake3::hash(bytes).to_hex())
}

fn image_bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7919 % 251) as u8 ^ (at >> 8) as u8).collect()
}

#[test]
fn an_image_is_its_type_length_and_hash() {
    for length in [0, 1, 2, 3, 1000, 10_000] {
        let bytes = image_bytes(length);
        let url = format!("data:image/png;base64,{}", base64(&bytes));
        let expected = json!({"type": "blob", "modality": "image", "mime_type": "image/png", "length": length, "hash": hash(&bytes)});
        let chat = json!({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url, "detail": "low"}}]}]});
        assert_eq!(input(&chat)[0]["parts"][1], expected);
        let responses = json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]});
        assert_eq!(input(&responses)[0]["parts"][0], expected);
        let escaped = chat.to_string().replace('/', "\\/");
        assert_eq!(whole(BodyKind::Request, &escaped)["gen_ai.input.messages"][0]["parts"][1], expected);
    }
    let link = json!({"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}]}]});
    let expected = json!({"type": "uri", "modality": "image", "uri": "https://a.example/b.png"});
    assert_eq!(input(&link)[0]["parts"][0], expected);
}

#[test]
fn audio_and_files_are_their_type_length_and_hash() {
    let bytes = image_bytes(500);
    let body = json!({"messages": [{"role": "user", "content": [
        {"type": "input_audio", "input_audio": {"data": base64(&bytes), "format": "wav"}},
        {"type": "file", "file": {"file_data": format!("data:application/pdf;base64,{}", base64(&bytes)), "filename": "f"}},
        {"type": "file", "file": {"file_id": "file-1"}},
    ]}]});
    assert_eq!(
        input(&body)[0]["parts"],
        json!([
            {"type": "blob", "modality": "audio", "mime_type": "audio/wav", "length": 500, "hash": hash(&bytes)},
            {"type": "blob", "modality": "file", "mime_type": "application/pdf", "length": 500, "hash": hash(&bytes)},
            {"type": "file", "modality": "file", "file_id": "file-1"},
        ])
    );
    let answer = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": null,
        "audio": {"id": "a", "data": base64(&bytes), "transcript": "said"}}}]});
    let parts = &output(&answer)[0]["parts"];
    assert_eq!((&parts[0]["length"], &parts[1]["content"]), (&json!(500), &json!("said")));
}

#[test]
fn embeddings_and_images_that_were_made_are_counted_and_hashed() {
    let body = json!({"object": "list", "data": [
        {"object": "embedding", "index": 0, "embedding": [0.5, -1, 2e-3]},
        {"object": "embedding", "index": 1, "embedding": base64(&image_bytes(64))},
    ]});
    let read = output(&body);
    let numbers: Vec<String> = [json!(0.5), json!(-1), json!(2e-3)].iter().map(Value::to_string).collect();
    let expected = json!({"type": "embedding", "length": 3, "hash": hash(numbers.join(",").as_bytes())});
    assert_eq!(read[0]["parts"][0], expected);
    assert_eq!(read[1]["parts"][0], json!({"type": "embedding", "length": 64, "hash": hash(&image_bytes(64))}));
    let images =
        json!({"created": 1, "data": [{"b64_json": base64(&image_bytes(900))}, {"url": "https://a.example/i"}]});
    let read = output(&images);
    assert_eq!(read[0]["parts"][0]["length"], 900);
    assert_eq!(read[1]["parts"][0]["uri"], "https://a.example/i");
}

#[test]
fn base64_within_a_text_is_replaced_and_words_are_not() {
    let bytes = image_bytes(300);
    let chat = |text: &str| input(&json!({"messages": [{"role": "user", "content": text}]}))[0]["parts"][0].clone();
    let text = format!("See ![](data:image/gif;base64,{}) and more", base64(&bytes));
    let expected = format!("See ![]([image/gif, 300 bytes, {}]) and more", hash(&bytes));
    assert_eq!(chat(&text)["content"], json!(expected));
    assert_eq!(chat(&base64(&bytes))["length"], 300);
    for text in ["x".repeat(5000), "Hello1 ".repeat(100), "data:;base64,".to_owned(), ";base64,".repeat(50)] {
        assert_eq!(chat(&text)["content"], json!(text));
    }
    let deltas: Vec<Value> = base64(&bytes)
        .as_bytes()
        .chunks(40)
        .map(|part| json!({"choices": [{"index": 0, "delta": {"content": String::from_utf8_lossy(part)}}]}))
        .collect();
    assert_eq!(stream(&deltas)[0]["parts"][0]["length"], 300, "however it is cut into deltas");
}

#[test]
fn nothing_of_media_is_written_wherever_the_body_is_cut() {
    let payload = base64(&image_bytes(700));
    let url = format!("data:image/png;base64,{payload}");
    let body = json!({"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": url}}, {"type": "input_audio", "input_audio": {"data": payload}}]},
        {"role": "user", "content": format!("look: {url} there")}, {"role": "user", "content": url}]});
    let body = body.to_string();
    for head in (0..body.len()).step_by(29) {
        for tail in (head + 1..body.len()).step_by(97) {
            let read = texts(BodyKind::Request, &body.as_bytes()[..head], &body.as_bytes()[tail..], false);
            let written = Value::Object(read).to_string();
            let mut runs = (0..payload.len() - 40).step_by(20).map(|at| &payload[at..at + 40]);
            assert!(!runs.any(|run| written.contains(run)), "head {head} tail {tail}: {written}");
        }
    }
}

#[test]
fn a_body_of_bytes_is_their_number_type_and_hash_however_it_came() {
    use queue::record::BodyText;
    use request::capture::{Captured, Content, TextCapture, TextLimit};
    let limit = TextLimit { text: BodyText::Written, bytes: 100 };
    let capture = TextCapture { input: limit, output: limit, body_bytes: 0, hash_key: None };
    let bytes = image_bytes(5000);
    for step in [1, 100, 5000] {
        let mut captured: Captured = capture.request(Content::Media(b"audio/mpeg"), false, (0, 0)).unwrap();
        bytes.chunks(step).for_each(|part| captured.push(part));
        let mut scratch = Scratch::new();
        captured.push_value(&mut scratch);
        let Some(Ok(Stored::Body(body))) = Values::new(scratch.as_slice()).next() else { panic!("a body") };
        assert!(body.head.len() < 100, "the bytes are not kept");
        assert_eq!(
            Value::Object(crate::messages::texts_of(&body, None)),
            json!({"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "blob", "modality": "audio",
                "mime_type": "audio/mpeg", "length": 5000, "hash": hash(&bytes)}]}]})
        );
    }
    assert!(capture.request(Content::Media(b"audio/mpeg"), true, (0, 0)).is_none(), "a private one");
}

proptest! {
    #[test]
    fn any_bytes_have_the_hash_of_the_file(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        let body = json!({"input": [{"role": "user", "content": [
            {"type": "input_file", "file_data": format!("data:a/b;base64,{}", base64(&bytes))}]}]});
        let part = &input(&body)[0]["parts"][0];
        prop_assert_eq!((&part["length"], &part["hash"]), (&json!(bytes.len()), &json!(hash(&bytes))));
    }
}
