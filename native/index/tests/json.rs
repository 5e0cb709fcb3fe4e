//! What is JSON, and what a line's members are: as another parser finds it.

use index::json::{DEEPEST, members};
use index::record::{Json, Record};
use proptest::prelude::*;
use serde_json::Value;

fn is_object(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok() && members(line, |_, _, _| {}).is_ok()
}

fn same(ours: &Json, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Json::Object(ours), Value::Object(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|((key, value), (other, theirs))| key == other && same(value, theirs))
        }
        (Json::List(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(value, theirs)| same(value, theirs))
        }
        (Json::Int(value), Value::Number(theirs)) => {
            theirs.as_i64().map(i128::from).or(theirs.as_u64().map(i128::from)) == Some(*value)
                || *value == 0 && theirs.as_f64() == Some(0.0)
        }
        (Json::Float(value), Value::Number(theirs)) => theirs.as_f64().map(f64::to_bits) == Some(value.to_bits()),
        (Json::Text(value), Value::String(theirs)) => value == theirs,
        (Json::Bool(value), Value::Bool(theirs)) => value == theirs,
        (Json::Null, Value::Null) => true,
        _ => false,
    }
}

/// Whether no number is above the largest double: serde_json reads those where a crate beside ours has its feature
/// `arbitrary_precision`, and refuses them elsewhere.
fn is_finite(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(f64::is_finite),
        Value::Array(values) => values.iter().all(is_finite),
        Value::Object(members) => members.values().all(is_finite),
        _ => true,
    }
}

fn agrees(line: &[u8]) {
    let theirs: Option<Value> =
        serde_json::from_slice(line).ok().filter(|value: &Value| value.is_object() && is_finite(value));
    let ours = Record::read(line, |_| true).ok();
    let text = String::from_utf8_lossy(line);
    match (ours, theirs) {
        (None, None) => {}
        (Some(ours), Some(theirs)) => assert!(same(&Json::Object(ours.members), &theirs), "{text}"),
        (ours, theirs) => panic!("{text}: {} here, {} there", ours.is_some(), theirs.is_some()),
    }
}

/// Text that is nearly JSON: pieces of it in any order.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\"",
        "\"b\\u0041\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\q\"",
        "1",
        "-0",
        "-0.0",
        "01",
        "1.5",
        "1.",
        "1e5",
        "1e999",
        "-",
        "18446744073709551616",
        "true",
        "fals",
        "null",
        " ",
        "\t",
        "\"",
        "\\",
        "é",
        "\u{1}",
        "\"a\":",
        "{\"a\":1}",
        "[1,2]",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((".{0,3}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

#[test]
fn a_number_above_the_largest_double_is_refused() {
    for line in [&br#"{"a":1e999}"#[..], br#"{"a":[-1e999]}"#] {
        assert!(!is_object(line));
        agrees(line);
    }
}

proptest! {
    #[test]
    fn nearly_json_is_read_as_by_another_parser(text in pieces()) {
        agrees(text.as_bytes());
        agrees(format!("{{\"a\":{text}}}").as_bytes());
        agrees(format!("{{{text}}}").as_bytes());
    }

    #[test]
    fn any_document_is_read_as_by_another_parser(one in value(), other in value()) {
        let text = format!("{{\"a\":{one}, \"\\u0062\" :{other},\"a\":{other}}}");
        agrees(text.as_bytes());
        agrees(serde_json::to_string_pretty(&serde_json::json!({"x": one})).unwrap().as_bytes());
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        agrees(&bytes);
    }

    #[test]
    fn a_document_that_is_cut_off_is_refused(one in value()) {
        let text = serde_json::json!({"x": one}).to_string();
        for end in 0..text.len() {
            prop_assert!(!is_object(&text.as_bytes()[..end]));
        }
    }
}

#[test]
fn levels_are_bounded_as_in_python() {
    let nested = |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(is_object(nested(DEEPEST - 1).as_bytes()));
    assert!(!is_object(nested(DEEPEST).as_bytes()));
    assert!(Record::read(nested(DEEPEST - 1).as_bytes(), |_| true).is_ok());
    assert!(!is_object("{\"a\":".repeat(100_000).as_bytes()));
}

#[test]
fn numbers_that_no_float_holds_are_refused() {
    let with = |number: &str| is_object(format!("{{\"a\":{number}}}").as_bytes());
    assert!(with("1e308") && with("1e-400") && with(&"9".repeat(308)));
    assert!(!with("1e309") && !with("-1e309") && !with(&"9".repeat(400)));
}

#[test]
fn python_text_is_that_of_python() {
    let record =
        Record::read(br#"{"a":{"n":[1,2.0,1e22,1e-5,true,null,"it's","\"'","\u0000\u2028\u00e9"],"x":{}}}"#, |_| true);
    let text = record.unwrap().look_up("a").unwrap().to_text();
    assert_eq!(text, r#"{'n': [1, 2.0, 1e+22, 1e-05, True, None, "it's", '"\'', '\x00\u2028é'], 'x': {}}"#);
}
