//! What must not be stored is not in the line, however it is spelled; the line stays JSON, and the rest stays as it was.

use _native::encode::{Encoder, LineHead};
use _native::event::EventSchema;
use _native::record::Scratch;
use _native::redact::{RedactionSettings, Rules};
use serde_json::{Map, Value};

const HEAD: LineHead<'static> = LineHead {
    time_unix_nano: 1_795_237_200_123_456_789,
    severity: 9,
    boot_id: "0123456789abcdef",
    pid: 42,
    seq: Some(7),
};

fn settings(fields: &[&str], patterns: &[&str]) -> RedactionSettings {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    RedactionSettings {
        fields: owned(fields),
        patterns: owned(patterns),
        custom: Vec::new(),
        replacement: "[redacted:{name}]".to_owned(),
    }
}

const ALL: [&str; 5] = ["email", "phone", "card", "key", "bearer"];

fn line(settings: &RedactionSettings, push: impl FnOnce(&mut Scratch)) -> String {
    let mut scratch = Scratch::new();
    push(&mut scratch);
    let schema = EventSchema::new(16, "e", &["a", "b", "c"]).unwrap();
    let mut out = b"before\n".to_vec();
    let mut encoder = Encoder::new().redacting(Rules::compile(settings).unwrap());
    encoder.line(&mut out, &HEAD, &schema, scratch.as_slice()).unwrap();
    String::from_utf8(out).unwrap().strip_prefix("before\n").unwrap().to_owned()
}

fn read(line: &str) -> Map<String, Value> {
    assert_eq!(line.find('\n'), Some(line.len() - 1), "{line}");
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Field `a` of a line whose `a` is this text.
fn text(settings: &RedactionSettings, text: &str) -> String {
    read(&line(settings, |s| s.push_str(text)))["a"].as_str().unwrap().to_owned()
}

/// Field `a` of a line whose `a` is this JSON.
fn json(settings: &RedactionSettings, json: &str) -> String {
    serde_json::to_string(&read(&line(settings, |s| s.push_json(json.as_bytes())))["a"]).unwrap()
}

#[test]
fn each_pattern_replaces_what_it_finds_and_nothing_else() {
    let all = settings(&[], &ALL);
    for (before, after) in [
        ("to alice@example.com, now", "to [redacted:email], now"),
        ("pay 4111 1111 1111 1111.", "pay [redacted:card]."),
        ("call +1 (555) 010-9999!", "call [redacted:phone]!"),
        ("use sk-abcdefghijklmnopqrstuv now", "use [redacted:key] now"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: [redacted:bearer]"),
        ("nothing to see here, 12 of 345", "nothing to see here, 12 of 345"),
    ] {
        assert_eq!(text(&all, before), after);
    }
}

#[test]
fn json_in_a_text_has_paths_and_stays_json() {
    let rules = settings(&["user.email"], &["card"]);
    let nested = r#"{"user":{"email":"x@y","n":4111111111111111}}"#;
    let inside: Value = serde_json::from_str(&text(&rules, nested)).unwrap();
    assert_eq!(inside.to_string(), r#"{"user":{"email":"[redacted:field]","n":"[redacted:card]"}}"#);
}

#[test]
fn an_escape_hides_nothing() {
    let rules = settings(&[], &ALL);
    assert_eq!(json(&rules, r#"{"m":"alice\u0040example.com"}"#), r#"{"m":"[redacted:email]"}"#);
    assert_eq!(text(&rules, r#"x {"m":"alice\u0040example.com"}"#), r#"x {"m":"[redacted:email]"}"#);
    assert_eq!(text(&rules, "/find?q=alice%40example.com"), "/find?q=[redacted:email]");
    assert_eq!(text(&rules, "/find?q=alice%2540example.com&x"), "/find?q=[redacted:email]&x");
}
