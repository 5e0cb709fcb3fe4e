//! No secret is in the line, however it is spelled; the line stays JSON, and the rest is unchanged.

use crate::support::HEAD;
use ::lines::encode::Encoder;
use ::lines::redact::{RedactionSettings, Rules};
use queue::event::EventSchema;
use queue::record::Scratch;
use serde_json::{Map, Value};
use std::sync::{Arc, Mutex};

mod disguised;
mod fields;
mod lines;
mod patterns;
mod refused;
mod streams;

const ALL: [&str; 5] = ["email", "phone", "card", "key", "bearer"];

fn settings(fields: &[&str], patterns: &[&str]) -> RedactionSettings {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    RedactionSettings {
        fields: owned(fields),
        patterns: owned(patterns),
        custom: Vec::new(),
        replacement: "[redacted:{name}]".to_owned(),
    }
}

fn custom(expression: &str) -> RedactionSettings {
    RedactionSettings { custom: vec![("own".to_owned(), expression.to_owned())], ..settings(&[], &[]) }
}

/// The compiled rules: in a debug build compiling takes longer than using them.
fn compiled(settings: &RedactionSettings) -> Option<Arc<Rules>> {
    static COMPILED: Mutex<Vec<(RedactionSettings, Option<Arc<Rules>>)>> = Mutex::new(Vec::new());
    let mut all = COMPILED.lock().unwrap();
    if let Some((_, rules)) = all.iter().find(|(known, _)| known == settings) {
        return rules.clone();
    }
    all.push((settings.clone(), Rules::compile(settings).unwrap()));
    all.last().unwrap().1.clone()
}

/// A line of an event with fields `a`, `b`, `c`.
fn line(settings: &RedactionSettings, push: impl FnOnce(&mut Scratch)) -> String {
    let mut scratch = Scratch::new();
    push(&mut scratch);
    let plan = EventSchema::new(16, "e", &["a", "b", "c"]).unwrap().into();
    let mut out = b"before\n".to_vec();
    let mut encoder = Encoder::new().redacting(compiled(settings));
    encoder.line(&mut out, &HEAD, &plan, scratch.as_slice()).unwrap();
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
