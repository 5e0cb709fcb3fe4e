//! The answers to probes: a status, a JSON body, and when to ask again.
//!
//! The body equals the output of Python's `json.dumps` for the same values: in ASCII, with a space behind each comma
//! and colon.

use super::{FailingSink, Health};
use crate::status::number::{python, rounded};
use std::fmt::Write;

/// The answer to one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 200 or 503.
    pub status: u16,
    /// A JSON object.
    pub body: String,
    /// When to ask again, where the status is 503.
    pub retry_after_s: u32,
}

/// The answer for load balancers: send requests here, or do not.
#[must_use]
pub fn readiness(health: &Health) -> Answer {
    answer(health.is_ready(), health)
}

/// The answer for a program that restarts the process.
#[must_use]
pub fn liveness(health: &Health) -> Answer {
    answer(health.is_alive(), health)
}

/// The answer for a program that can restart a process that has died.
#[must_use]
pub fn producers(health: &Health) -> Answer {
    let dead = &health.snapshot.dead_producers;
    let (status, name) = if dead.is_empty() { (200, "ok") } else { (503, "producer_died") };
    let body = format!(r#"{{"status": "{name}", "dead_producers": {}}}"#, list(dead.iter().map(|name| text(name))));
    Answer { status, body, retry_after_s: 1 }
}

fn answer(is_well: bool, health: &Health) -> Answer {
    let status = if is_well { 200 } else { 503 };
    Answer { status, body: body(health), retry_after_s: health.retry_after_s }
}

fn body(health: &Health) -> String {
    let seen = &health.snapshot;
    let configured = if seen.listens { "thread" } else { "external" };
    let members = [
        ("status", text(health.state().name())),
        ("reasons", list(health.reasons.iter().map(|reason| text(&reason.text)))),
        ("backlog_records", seen.records.to_string()),
        ("fill_ratio", python(rounded(seen.fill, 4))),
        ("oldest_age_s", seen.oldest_age_s.map_or_else(|| "null".to_owned(), seconds)),
        (
            "listener",
            object([
                ("configured", text(configured)),
                ("leader", text(seen.leader.name())),
                ("since_last_round_s", seconds(seen.stalled_s)),
            ]),
        ),
        ("failing_sinks", list(seen.failing.iter().map(sink))),
        ("fallback_active", seen.fallback.to_string()),
        ("dead_producers", list(seen.dead_producers.iter().map(|name| text(name)))),
    ];
    object(members)
}

fn sink(sink: &FailingSink) -> String {
    object([
        ("name", text(&sink.name)),
        ("state", text(sink.state.name())),
        ("for_s", python(sink.for_s)),
        ("error", text(&sink.error)),
    ])
}

fn seconds(value: f64) -> String {
    python(rounded(value, 3))
}

fn object<const N: usize>(members: [(&str, String); N]) -> String {
    let members: Vec<String> = members.iter().map(|(name, value)| format!(r#""{name}": {value}"#)).collect();
    format!("{{{}}}", members.join(", "))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn text(value: &str) -> String {
    let mut json = String::with_capacity(value.len() + 2);
    json.push('"');
    for character in value.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            ' '..='\u{7f}' => json.push(character),
            _ => push_units(&mut json, character),
        }
    }
    json.push('"');
    json
}

/// Writes a character as the one or two units of UTF-16 that JSON escapes name.
fn push_units(json: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        let _ = write!(json, "\\u{unit:04x}");
    }
}
