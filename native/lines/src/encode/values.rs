//! The values of a record as JSON.

use crate::json::number::{push_float, push_integer};
use crate::json::{bounded, escape};
use queue::hex;
use queue::record::{Gaps, Map, Trace, Value};

/// Append a value that is no body and no trace, within so many containers.
#[inline(always)]
pub fn push_value(out: &mut Vec<u8>, value: Value<'_>, within: usize) {
    match value {
        Value::Str(text) | Value::Bytes(text) => escape::push_string(out, text),
        Value::Int(value) => push_integer(out, value),
        Value::Uint(value) => push_integer(out, value),
        Value::Float(value) => push_float(out, value),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Json(json) => push_json(out, json, within),
        Value::Map(map) => push_map(out, map, within),
        Value::Gaps(gaps) => push_gaps(out, gaps),
        // The callers handle the last three; `null` keeps the line valid in any case.
        Value::Null | Value::Absent | Value::Trace(_) | Value::Body(_) => out.extend_from_slice(b"null"),
    }
}

fn push_json(out: &mut Vec<u8>, json: &[u8], within: usize) {
    if json.is_empty() {
        out.extend_from_slice(b"null");
        return;
    }
    let start = out.len();
    out.extend_from_slice(json);
    // A search first: the loop that writes is slow, and JSON rarely has line breaks.
    if json.contains(&b'\n') || json.contains(&b'\r') {
        for byte in out[start..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
    }
    bounded::keep(out, start, within);
}

/// Append a map as an object; recursion is bounded, since `record` refuses maps that nest too deep.
fn push_map(out: &mut Vec<u8>, map: Map<'_>, within: usize) {
    let mut before = b'{';
    for (key, value) in map {
        if matches!(value, Value::Absent) {
            continue;
        }
        out.push(before);
        escape::push_string(out, key);
        out.push(b':');
        push_nested(out, value, within + 1);
        before = b',';
    }
    out.extend_from_slice(if before == b'{' { b"{}" } else { b"}" });
}

/// [`push_value`] as a call: it is inlined for the fields of a line, and recursion needs a function.
#[inline(never)]
fn push_nested(out: &mut Vec<u8>, value: Value<'_>, within: usize) {
    push_value(out, value, within);
}

fn push_gaps(out: &mut Vec<u8>, gaps: Gaps<'_>) {
    out.push(b'[');
    for (at, gap) in gaps.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        push_integer(out, gap);
    }
    out.push(b']');
}

/// Append the ids of a trace as members.
pub fn push_trace(out: &mut Vec<u8>, trace: &Trace) {
    if trace.trace_id == [0; 16] {
        return;
    }
    out.extend_from_slice(br#","trace_id":""#);
    hex::push(out, trace.trace_id);
    if trace.span_id != [0; 8] {
        out.extend_from_slice(br#"","span_id":""#);
        hex::push(out, trace.span_id);
    }
    if trace.parent_span_id != [0; 8] {
        out.extend_from_slice(br#"","parent_span_id":""#);
        hex::push(out, trace.parent_span_id);
    }
    out.extend_from_slice(br#"","trace_flags":""#);
    hex::push(out, [trace.flags]);
    out.push(b'"');
}
