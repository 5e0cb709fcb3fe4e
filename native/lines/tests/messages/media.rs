//! Media in bodies: type, length and hash replace them, and their bytes are never written.

use super::{input, output, stream, texts, whole};
use proptest::prelude::*;
use queue::record::{BodyKind, Scratch, Value as Stored, Values};
use serde_json::{Value, json};

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

fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7919 % 251) as u8 ^ (at >> 8) as u8).collect()
}

#[test]
fn an_image_is_its_type_length_and_hash() {
    for length in [0, 1, 2, 3, 1000, 10_000] {
        let bytes = noise(length);
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
    let bytes = noise(500);
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
        {"object": "embedding", "index": 1, "embedding": base64(&noise(64))},
    ]});
    let read = output(&body);
    let numbers: Vec<String> = [json!(0.5), json!(-1), json!(2e-3)].iter().map(Value::to_string).collect();
    let expected = json!({"type": "embedding", "length": 3, "hash": hash(numbers.join(",").as_bytes())});
    assert_eq!(read[0]["parts"][0], expected);
    assert_eq!(read[1]["parts"][0], json!({"type": "embedding", "length": 64, "hash": hash(&noise(64))}));
    let images = json!({"created": 1, "data": [{"b64_json": base64(&noise(900))}, {"url": "https://a.example/i"}]});
    let read = output(&images);
    assert_eq!(read[0]["parts"][0]["length"], 900);
    assert_eq!(read[1]["parts"][0]["uri"], "https://a.example/i");
}

#[test]
fn base64_within_a_text_is_replaced_and_words_are_not() {
    let bytes = noise(300);
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
    let payload = base64(&noise(700));
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
    let bytes = noise(5000);
    for step in [1, 100, 5000] {
        let mut captured: Captured = capture.request(Content::Media(b"audio/mpeg"), false, (0, 0)).unwrap();
        bytes.chunks(step).for_each(|part| captured.push(part));
        let mut scratch = Scratch::new();
        captured.push_value(&mut scratch);
        let Some(Ok(Stored::Body(body))) = Values::new(scratch.as_slice()).next() else { panic!("a body") };
        assert!(body.head.len() < 100, "the bytes are not kept");
        assert_eq!(
            Value::Object(super::texts_of(&body, None)),
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
