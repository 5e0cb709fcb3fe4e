//! Any bytes as the payload of a record: one line or none, valid JSON unless the payload brought JSON of its own.
//!
//! The first byte chooses the event; the rest is the payload, and also read as a stored schema.
//!
//! `cargo +nightly fuzz run record` fuzzes the record decoder.
#![cfg_attr(fuzzing, no_main)]

use lines::encode::{Encoder, LineHead};
use lines::plan::LinePlan;
use queue::event::{EventSchema, builtin};
use queue::record::{Map, Value, Values};
use serde_json::Value as Json;

/// Checks one input.
pub fn check(bytes: &[u8]) {
    let Some((choice, payload)) = bytes.split_first() else { return };
    check_schema(payload);
    let mut schemas = [builtin(), request::fields::schemas()].concat();
    schemas.sort_by_key(|schema| schema.id);
    schemas.push(EventSchema::new(16, "user.event", &["a", "b", "c", "d", "e", "f", "g", "h"]).unwrap());
    let plan = LinePlan::from(schemas.swap_remove(usize::from(*choice) % schemas.len()));
    let head = LineHead {
        time_unix_nano: u64::from(*choice) << 56,
        severity: *choice,
        boot_id: "0123456789abcdef",
        pid: 7,
        seq: (choice & 1 == 1).then_some(u64::MAX),
    };
    let mut out = b"before".to_vec();
    match Encoder::new().line(&mut out, &head, &plan, payload) {
        Ok(()) => check_line(&out[b"before".len()..], payload),
        Err(_) => assert_eq!(out, b"before", "a line that failed left something behind"),
    }
}

fn check_line(line: &[u8], payload: &[u8]) {
    assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1), "one line");
    if !Values::new(payload).any(|value| value.is_ok_and(brings_json)) {
        let parsed = serde_json::from_slice::<Json>(line);
        assert!(parsed.is_ok_and(|value| value.is_object()), "{}", String::from_utf8_lossy(line));
    }
}

/// Whether the writer of the payload promised that a part of it is JSON.
fn brings_json(value: Value<'_>) -> bool {
    match value {
        Value::Json(_) => true,
        Value::Map(map) => in_map(map),
        _ => false,
    }
}

fn in_map(map: Map<'_>) -> bool {
    map.iter().any(|(_, value)| brings_json(value))
}

fn check_schema(bytes: &[u8]) {
    if let Ok((schema, taken)) = EventSchema::from_bytes(bytes) {
        assert_eq!(schema.to_bytes(), bytes[..taken], "what was read is written the same");
    }
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));
