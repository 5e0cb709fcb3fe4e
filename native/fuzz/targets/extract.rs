//! Any bytes as a captured body, cut anywhere: the output is valid JSON, and short if it is of facts.
//!
//! The first byte chooses the kind of body and what may be written of its text, the next two the end of the kept head
//! and the beginning of the kept tail, in 256ths of the rest.
//!
//! `cargo +nightly fuzz run extract` fuzzes the reader of captured bodies.
#![cfg_attr(fuzzing, no_main)]

use lines::catalogue::Semconv;
use lines::extract;
use queue::record::{Body, BodyKind, BodyText};
use serde_json::Value as Json;

/// No fact is longer, escaped or not, and there are less than 32 of them, one a list of 16.
const MOST_BYTES: usize = 48 * 256 * 6;
const KEY: [u8; 32] = [7; 32];

/// Checks one input.
pub fn check(bytes: &[u8]) {
    let [choice, head, tail, body @ ..] = bytes else { return };
    let kind = BodyKind::from_byte(choice % 11 + 1).unwrap();
    let text = BodyText::from_byte(choice / 11 % 3).unwrap();
    read(&Body { kind, head: body, tail: b"", complete: true, text });
    read(&Body { kind, head: b"", tail: body, complete: false, text });
    let head = body.len() * usize::from(*head) / 256;
    let tail = (body.len() * usize::from(*tail) / 256).max(head);
    read(&Body { kind, head: &body[..head], tail: &body[tail..], complete: false, text });
}

fn read(body: &Body<'_>) {
    let readable = extract::Readable::of(body);
    let body = &readable.as_ref().map_or(*body, extract::Readable::body);
    let mut out = br#"{"first":1"#.to_vec();
    extract::push_facts(&mut out, body, Semconv::Published);
    assert!(out.len() <= MOST_BYTES, "{} bytes of facts", out.len());
    if body.text != BodyText::Withheld {
        extract::push_texts(&mut out, body, Some(&KEY), extract::UnknownStreams::Written);
    }
    assert!(!out.contains(&b'\n'), "a line break");
    out.push(b'}');
    let parsed = serde_json::from_slice::<Json>(&out);
    assert!(parsed.is_ok(), "{}", String::from_utf8_lossy(&out));
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));
