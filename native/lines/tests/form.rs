//! Forms that requests upload: small parts by name, the file only by name, type and size.

use crate::support::members;
use lines::extract::{UnknownStreams, push_form, push_texts};
use queue::record::{Body, BodyKind, BodyText};
use serde_json::{Map, Value, json};

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

fn facts(bytes: &[u8], head: usize, tail: usize) -> Map<String, Value> {
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
    let found = facts(&whole, whole.len(), 0);
    assert_eq!(Value::Object(found.clone()), expected(content.len() as u64));
    assert!(!Value::Object(found).to_string().contains("secret"));
}

#[test]
fn the_size_of_a_file_is_known_where_its_beginning_and_its_end_are() {
    let content = vec![7; 50_000];
    let whole = form(&transcription(&content));
    assert_eq!(Value::Object(facts(&whole, 1000, 1000)), expected(50_000));
    for head in 0..1000 {
        for tail in [0, 10, 60, 100, 150, 190, 200, 400] {
            let found = facts(&whole, head, tail);
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
    let found = facts(&form(&files), 2000, 2000);
    assert_eq!((&found["gen_ai.request.model"], found.get("file.size")), (&json!("m"), None));
    let files = [file("file", &[1; 9000]), part("model", "m"), file("other", &[2; 100])];
    assert_eq!(facts(&form(&files), 2000, 2000).get("file.size"), None);
}

#[test]
fn noise_and_values_that_are_no_names_are_left_out() {
    for bytes in [&b""[..], b"--", b"--x", b"\r\n--x\r\n", b"{\"model\":\"x\"}", b"--x\r\n\r\nmodel", b"--x--\r\n"] {
        assert_eq!(Value::Object(facts(bytes, bytes.len(), 0)), json!({}));
    }
    let whole = form(&[part("model", "a\"b"), part("temperature", "warm"), part("n", "2"), part("seed", "\n")]);
    assert_eq!(Value::Object(facts(&whole, whole.len(), 0)), json!({"gen_ai.request.choice.count": 2}));
    let long = form(&[part("model", &"m".repeat(300))]);
    assert_eq!(Value::Object(facts(&long, long.len(), 0)), json!({}));
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
