//! Each line parses to the pushed values, in the promised order, and is appended whole or not at all.

use crate::HEAD;
use lines::encode::{Encoder, LineHead};
use lines::json::bounded::DEEPEST;
use lines::plan::LinePlan;
use proptest::prelude::*;
use queue::event::EventSchema;
use queue::record::{Body, BodyKind, BodyText, Malformed, Scratch, Trace};
use serde_json::{Map, Value, json};

const HEAD_TEXT: &str = concat!(
    r#"{"timestamp":"2026-11-21T05:00:00.123456789Z","severity_text":"INFO","event_name":"e","#,
    r#""boot_id":"0123456789abcdef","pid":42,"seq":7"#
);

fn schema(fields: &[&str]) -> LinePlan {
    EventSchema::new(16, "e", fields).unwrap().into()
}

fn payload(push: impl FnOnce(&mut Scratch)) -> Vec<u8> {
    let mut scratch = Scratch::new();
    push(&mut scratch);
    scratch.as_slice().to_vec()
}

fn line(head: &LineHead<'_>, fields: &[&str], push: impl FnOnce(&mut Scratch)) -> String {
    let mut out = b"before\n".to_vec();
    Encoder::new().line(&mut out, head, &schema(fields), &payload(push)).unwrap();
    let text = String::from_utf8(out).unwrap();
    text.strip_prefix("before\n").unwrap().to_owned()
}

/// The part after the head of a line with the fields a, b, c….
fn fields(push: impl FnOnce(&mut Scratch)) -> String {
    let line = line(&HEAD, &["a", "b", "c", "d"], push);
    serde_json::from_str::<Map<String, Value>>(&line).unwrap();
    line.strip_prefix(HEAD_TEXT).unwrap().strip_suffix("}\n").unwrap().to_owned()
}

/// The value of field `a` as a JSON reader sees it.
fn read(push: impl FnOnce(&mut Scratch)) -> Value {
    let line = line(&HEAD, &["a"], push);
    assert_eq!(line.find('\n'), Some(line.len() - 1));
    serde_json::from_str::<Value>(&line).unwrap()["a"].clone()
}

/// The members of a line of a stream of the Messages API that ended with these events, and what the engine counted.
fn usage_of(events: &str, engine: Option<(u64, u64)>) -> Value {
    let names = ["response_body", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "usage_source"];
    let text = line(&HEAD, &names, |s| {
        let (head, tail, complete, text) = (events.as_bytes(), &b""[..], true, BodyText::Withheld);
        s.push_body(&Body { kind: BodyKind::Stream, head, tail, complete, text });
        if let Some((input, output)) = engine {
            s.push_uint(input);
            s.push_uint(output);
            s.push_str("engine");
        }
    });
    let mut all: Map<String, Value> = serde_json::from_str(&text).unwrap();
    all.retain(|key, _| key.contains("usage"));
    Value::Object(all)
}

#[test]
fn the_count_of_a_begin_gives_way_to_that_of_the_engine_and_an_end_does_not() {
    let begin = r#"data: {"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":0}}}"#;
    let end = r#"data: {"type":"message_delta","delta":{},"usage":{"output_tokens":3}}"#;
    let expected = |output: Option<u64>, source: &str| {
        let mut usage = json!({"gen_ai.usage.input_tokens": 9, "usage_source": source});
        if let Some(output) = output {
            usage["gen_ai.usage.output_tokens"] = json!(output);
        }
        usage
    };
    assert_eq!(usage_of(begin, None), expected(None, "response"));
    assert_eq!(usage_of(begin, Some((9, 2))), expected(Some(2), "engine"));
    let whole = format!("{begin}\n\n{end}");
    assert_eq!(usage_of(&whole, None), expected(Some(3), "response"));
    assert_eq!(usage_of(&whole, Some((9, 2))), expected(Some(3), "response"));
}

#[test]
fn a_line_has_its_golden_text() {
    let text = fields(|s| {
        s.push_str("x");
        s.push_int(-5);
        s.push_bool(true);
        s.push_float(0.5);
    });
    assert_eq!(text, r#","a":"x","b":-5,"c":true,"d":0.5"#);
}

#[test]
fn the_head_says_what_is_known() {
    let listener = LineHead { seq: None, pid: 1, ..HEAD };
    assert!(line(&listener, &[], |_| ()).ends_with("\"boot_id\":\"0123456789abcdef\",\"pid\":1}\n"));
    for (severity, text) in [(1, "TRACE"), (5, "DEBUG"), (10, "INFO2"), (13, "WARN"), (17, "ERROR"), (24, "FATAL4")] {
        let line: Value = serde_json::from_str(&line(&LineHead { severity, ..HEAD }, &[], |_| ())).unwrap();
        assert_eq!(line["severity_text"], text);
    }
    for severity in [0, 25, 255] {
        let line = line(&LineHead { severity, ..HEAD }, &[], |_| ());
        assert!(line.starts_with("{\"timestamp\":\"2026-11-21T05:00:00.123456789Z\",\"event_name\":"), "{line}");
    }
}

#[test]
fn one_encoder_follows_time_and_process() {
    let mut encoder = Encoder::new();
    for (time_unix_nano, boot_id, pid) in [(1, "a", 1), (1, "a", 2), (2_000_000_000, "b", 2), (1, "b\"", 2)] {
        let head = LineHead { time_unix_nano, boot_id, pid, ..HEAD };
        let mut shared = Vec::new();
        encoder.line(&mut shared, &head, &schema(&[]), &[]).unwrap();
        assert_eq!(String::from_utf8(shared).unwrap(), line(&head, &[], |_| ()));
    }
}

#[test]
fn absent_values_take_their_key_with_them() {
    let text = fields(|s| {
        s.push_absent();
        s.push_null();
        s.push_absent();
    });
    assert_eq!(text, r#","b":null"#);
    let more = fields(|s| (0..6).for_each(|value| s.push_uint(value)));
    assert_eq!(more, r#","a":0,"b":1,"c":2,"d":3"#);
    assert_eq!(fields(|_| ()), "");
}

#[test]
fn a_malformed_record_leaves_no_trace() {
    for fields in [&["a", "b"][..], &["a"], &[]] {
        let mut broken = payload(|s| s.push_str("text"));
        broken.push(200);
        let mut out = b"before\n".to_vec();
        let result = Encoder::new().line(&mut out, &HEAD, &schema(fields), &broken);
        assert_eq!(result, Err(Malformed::Unknown));
        assert_eq!(out, b"before\n");
    }
}

#[test]
fn numbers_are_exact() {
    for value in [i64::MIN, -1, 0, i64::MAX] {
        assert_eq!(read(|s| s.push_int(value)).to_string(), value.to_string());
    }
    assert_eq!(read(|s| s.push_uint(u64::MAX)).to_string(), u64::MAX.to_string());
    for (value, text) in [(-0.0, "-0.0"), (0.1, "0.1"), (1e21, "1e21"), (5e-324, "5e-324"), (3.0, "3.0")] {
        assert_eq!(fields(|s| s.push_float(value)), format!(",\"a\":{text}"));
    }
    for (value, text) in [(f64::NAN, "NaN"), (f64::INFINITY, "Infinity"), (f64::NEG_INFINITY, "-Infinity")] {
        assert_eq!(read(|s| s.push_float(value)), json!(text));
    }
}

#[test]
fn a_trace_stands_under_its_own_names_and_once() {
    let trace = Trace { trace_id: [0xAB; 16], span_id: [1; 8], parent_span_id: [0xF0; 8], flags: 1 };
    let ids = concat!(
        r#","trace_id":"abababababababababababababababab","span_id":"0101010101010101""#,
        r#","parent_span_id":"f0f0f0f0f0f0f0f0","trace_flags":"01""#
    );
    let other = Trace { flags: 0xFF, ..trace };
    let text = fields(|s| {
        s.push_trace(&trace);
        s.push_trace(&other);
        s.push_int(1);
    });
    assert_eq!(text, format!("{ids},\"c\":1"));
    let root = Trace { parent_span_id: [0; 8], ..trace };
    assert!(!fields(|s| s.push_trace(&root)).contains("parent"));
    assert_eq!(fields(|s| s.push_trace(&Trace::default())), "", "a trace id of zeros is invalid");
}

#[test]
fn bodies_stand_as_facts_once_for_each_side() {
    let body = |kind, head| Body { kind, head, tail: b"", complete: true, text: BodyText::Withheld };
    let text = fields(|s| {
        s.push_body(&body(BodyKind::Request, b"{\"model\":\"q\"}"));
        s.push_body(&body(BodyKind::Request, b"{\"model\":\"again\"}"));
        s.push_body(&body(BodyKind::Response, b"{\"model\":\"r\"}"));
        s.push_body(&body(BodyKind::Stream, b"data: {\"model\":\"again\"}"));
    });
    assert_eq!(text, r#","gen_ai.request.model":"q","gen_ai.response.model":"r""#);
}

#[test]
fn maps_gaps_and_json_nest() {
    let text = fields(|s| {
        s.push_map_begin(4);
        s.push_map_key("k\"");
        s.push_null();
        s.push_map_key("gone");
        s.push_absent();
        s.push_map_key("m");
        s.push_map_begin(1);
        s.push_map_key("gone");
        s.push_absent();
        s.push_map_key("");
        s.push_json(b"[1]");
        s.push_gaps(&[]);
        s.push_gaps(&[1, u32::MAX]);
    });
    assert_eq!(text, r#","a":{"k\"":null,"m":{},"":[1]},"b":[],"c":[1,4294967295]"#);
}

#[test]
fn json_cannot_break_a_line() {
    assert_eq!(read(|s| s.push_json(b"{\"a\":\r\n [1,\n2]}\n")), json!({"a": [1, 2]}));
    assert_eq!(read(|s| s.push_json(b"")), json!(null));
}

/// How many containers stand within each other.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[test]
fn a_line_is_no_deeper_than_every_reader_takes_and_what_is_deeper_is_text() {
    for levels in [1, DEEPEST - 1, DEEPEST, 64, 1000] {
        let nested = r#"{"a":["#.repeat(levels / 2) + &"[]".repeat(levels % 2) + &"]}".repeat(levels / 2);
        let in_field = read(|s| s.push_json(nested.as_bytes()));
        let in_map = read(|s| {
            s.push_map_begin(2);
            s.push_map_key("m");
            s.push_map_begin(1);
            s.push_map_key("j");
            s.push_json(nested.as_bytes());
            s.push_map_key("k");
            s.push_json(b"[1]");
        });
        assert_eq!(depth(&in_field), levels.min(DEEPEST - 1));
        assert_eq!(depth(&in_map), (levels + 2).min(DEEPEST - 1));
        assert_eq!(in_map["k"], json!([1]));
    }
}

#[test]
fn a_number_that_readers_do_not_keep_is_text() {
    assert_eq!(read(|s| s.push_json(b"18446744073709551616")), json!("18446744073709551616"));
    assert_eq!(read(|s| s.push_json(b"[1e309,1]")), json!(["1e309", 1]));
    assert_eq!(read(|s| s.push_uint(u64::MAX)), json!(u64::MAX));
}

#[test]
fn every_character_is_read_as_it_was_at_every_place_of_a_block() {
    let special = ['"', '\\', '/', '\u{7f}', '\u{80}', 'é', '\u{2028}', '\u{2029}', '\u{FFFF}', '😀'];
    for character in ('\0'..' ').chain(special) {
        for before in 0..36 {
            for after in [0, 1, 15, 16, 17] {
                let text = format!("{}{character}{}", "b".repeat(before), "a".repeat(after));
                assert_eq!(read(|s| s.push_str(&text)), json!(text));
            }
        }
    }
    assert_eq!(
        fields(|s| s.push_str("\"\\\n\r\t\u{8}\u{c}\u{1f}\u{7f}/")),
        r#","a":"\"\\\n\r\t\b\f\u001f/""#.replace("f/", "f\u{7f}/")
    );
}

#[test]
fn bytes_that_are_not_text_are_replaced_as_the_standard_library_does_it() {
    let broken: [&[u8]; 9] = [
        b"\xff",
        b"\xc3",
        b"\xe2\x82",
        b"\xe2\x82\x82\xe2\x82",
        b"\xed\xa0\x80",
        b"\xf0\x9f\x98",
        b"\xc0\xaf",
        b"\xf4\x90\x80\x80",
        b"a\x80\"\n\xc3\xa9\\\xfe",
    ];
    for bytes in broken {
        for before in 0..18 {
            let bytes = [&vec![b'x'; before][..], bytes, b"\"tail"].concat();
            assert_eq!(read(|s| s.push_bytes(&bytes)), json!(String::from_utf8_lossy(&bytes)));
        }
    }
}

/// Push a JSON value with the tags it has; return the value that a reader must see.
fn push(scratch: &mut Scratch, value: &Value) {
    match value {
        Value::Null => scratch.push_null(),
        Value::Bool(value) => scratch.push_bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(int) => scratch.push_int(int),
            None => scratch.push_float(number.as_f64().unwrap()),
        },
        Value::String(text) => scratch.push_str(text),
        Value::Array(_) => scratch.push_json(value.to_string().as_bytes()),
        Value::Object(members) => {
            scratch.push_map_begin(members.len() as u32);
            for (key, value) in members {
                scratch.push_map_key(key);
                push(scratch, value);
            }
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |float| float.is_finite()).prop_map(|float| {
            // The reader keeps the text of numbers, so it is compared in the shortest form.
            serde_json::from_str(&serde_json::to_string(&float).unwrap()).unwrap()
        }),
        any::<String>().prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| members.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

/// Compare numbers by value: two shortest forms of one float may be spelled differently.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right || left.as_f64().map(f64::to_bits) == right.as_f64().map(f64::to_bits)
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|((key, left), (other, right))| key == other && same(left, right))
        }
        _ => left == right,
    }
}

proptest! {
    #[test]
    fn any_value_is_read_as_it_was(value in any_json()) {
        let read = read(|s| push(s, &value));
        prop_assert!(same(&read, &value), "{} is not {}", read, value);
    }

    #[test]
    fn any_bytes_are_read_as_the_standard_library_reads_them(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(read(|s| s.push_bytes(&bytes)), json!(String::from_utf8_lossy(&bytes)));
    }

    #[test]
    fn any_float_is_read_as_it_was(value in any::<f64>()) {
        if value.is_finite() {
            let text = read(|s| s.push_float(value)).to_string();
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
    }

    #[test]
    fn noise_makes_a_whole_line_or_none(noise in proptest::collection::vec(any::<u8>(), 0..200), tag in 0..14u8) {
        // Json is trusted, so noise must not claim to be Json.
        let noise: Vec<u8> = std::iter::once(tag).chain(noise).map(|byte| if byte == 8 { 6 } else { byte }).collect();
        let mut out = b"before\n".to_vec();
        let result = Encoder::new().line(&mut out, &HEAD, &schema(&["a", "b", "c", "d"]), &noise);
        let line = out.strip_prefix(b"before\n").unwrap();
        match result {
            Ok(()) => {
                prop_assert!(serde_json::from_slice::<Value>(line).is_ok());
                prop_assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
            }
            Err(_) => prop_assert!(line.is_empty()),
        }
    }
}

#[test]
fn what_a_response_says_of_its_usage_goes_before_what_the_engine_reports() {
    let fields = [
        "response_body",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.cache_read.input_tokens",
        "usage_source",
        "engine.requests",
    ];
    let usage = |body: &str| {
        let text = line(&HEAD, &fields, |s| {
            let (kind, text) = (BodyKind::Response, BodyText::Withheld);
            s.push_body(&Body { kind, head: body.as_bytes(), tail: b"", complete: true, text });
            s.push_uint(10);
            s.push_uint(20);
            s.push_uint(8);
            s.push_str("engine");
            s.push_uint(1);
        });
        let members = text.strip_prefix(HEAD_TEXT).unwrap().strip_suffix("}\n").unwrap().to_owned();
        members.replace("gen_ai.usage.", "")
    };
    assert_eq!(
        usage("{}"),
        r#","input_tokens":10,"output_tokens":20,"cache_read.input_tokens":8,"usage_source":"engine","engine.requests":1"#
    );
    assert_eq!(
        usage(r#"{"usage":{"prompt_tokens":1,"completion_tokens":2}}"#),
        r#","input_tokens":1,"output_tokens":2,"usage_source":"response","cache_read.input_tokens":8,"engine.requests":1"#
    );
    assert_eq!(
        usage(r#"{"usage":{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}}"#),
        concat!(
            r#","input_tokens":1,"output_tokens":2,"cache_read.input_tokens":3,"usage_source":"response""#,
            r#","engine.requests":1"#
        )
    );
}

#[test]
fn a_plan_has_the_name_and_the_keys_as_they_stand_in_lines() {
    let plan = schema(&["a", "b\"c"]);
    assert_eq!(&*plan.name_json, b"\"e\"");
    let mut keys = Vec::new();
    plan.keys.iter().for_each(|key| key.push(&mut keys));
    assert_eq!(keys, b",\"a\":,\"b\\\"c\":");
}
