//! All tests of lines and their redaction as one program.

// By the name that the other crates of the workspace use.
extern crate inferlog_lines as lines;

mod compressed;
mod encode;
mod extract;
mod messages;
mod redact;
mod terminal;

use lines::encode::LineHead;
use serde_json::{Map, Value};

const HEAD: LineHead<'static> = LineHead {
    time_unix_nano: 1_795_237_200_123_456_789,
    severity: 9,
    boot_id: "0123456789abcdef",
    pid: 42,
    seq: Some(7),
};

/// The members that `push` appends to an object, and the object's text; invalid JSON fails.
fn members<R>(push: impl FnOnce(&mut Vec<u8>) -> R) -> (Map<String, Value>, Vec<u8>) {
    let mut out = b"{\"\":0".to_vec();
    let _ = push(&mut out);
    out.push(b'}');
    let mut members: Map<String, Value> = serde_json::from_slice(&out).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&out));
    });
    members.remove("");
    (members, out)
}
