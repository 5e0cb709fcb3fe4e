//! Any text in a line, and any JSON as its members: the redacted line is one valid line.
//!
//! The first byte says whether the rest is the text of a field and of a key, or JSON.
//!
//! `cargo +nightly fuzz run redact` fuzzes redaction.
#![cfg_attr(fuzzing, no_main)]

use lines::redact::{Redaction, RedactionSettings, Rules};
use serde_json::Value as Json;
use std::sync::{Arc, OnceLock};

/// Checks one input.
pub fn check(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let fields = if choice & 1 == 0 { quoted(rest) } else { rest.to_vec() };
    let mut line = br#"{"head":1"#.to_vec();
    let head = line.len();
    line.extend_from_slice(&fields);
    line.extend_from_slice(b"}\n");
    let is_line = line.iter().filter(|byte| **byte == b'\n').count() == 1;
    if !is_line || !serde_json::from_slice::<Json>(&line).is_ok_and(|json| json.is_object()) {
        return;
    }
    redaction().line(&mut line, head);
    assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1), "one line");
    let parsed = serde_json::from_slice::<Json>(&line);
    assert!(parsed.is_ok_and(|json| json.is_object()), "{}", String::from_utf8_lossy(&line));
}

fn quoted(text: &[u8]) -> Vec<u8> {
    let text = Json::from(String::from_utf8_lossy(text)).to_string();
    format!(",\"text\":{text},\"map\":{{{text}:{text},\"secret\":{text}}}").into_bytes()
}

fn redaction() -> Redaction {
    static RULES: OnceLock<Arc<Rules>> = OnceLock::new();
    Redaction::new(Arc::clone(RULES.get_or_init(rules)))
}

fn rules() -> Arc<Rules> {
    let settings = RedactionSettings {
        fields: ["map.secret", "$.headers.authorization", "messages[*].content"].map(str::to_owned).into(),
        patterns: ["email", "phone", "card", "key", "bearer"].map(str::to_owned).into(),
        custom: vec![("order".to_owned(), "ORD-[0-9]{4,}".to_owned())],
        replacement: "[{name}]".to_owned(),
    };
    Rules::compile(&settings).unwrap().unwrap()
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));
