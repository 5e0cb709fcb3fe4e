//! The reader of JSON agrees with serde's about every text.

use parameters::json::{Value, is_json};
use proptest::prelude::*;

/// Texts that are JSON or nearly so.
fn texts() -> impl Strategy<Value = String> {
    let parts = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\"",
        "\"\\u00e9\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud800\"",
        "\"\\x\"",
        "\"\n\"",
        "\"\\n\\/\"",
        "1",
        "-1",
        "0",
        "-0",
        "01",
        "1.5",
        "1.",
        ".5",
        "1e3",
        "1E+3",
        "2e-7",
        "1e",
        "1e999",
        "-",
        "+1",
        "18446744073709551616",
        "-9223372036854775809",
        "true",
        "false",
        "null",
        "nul",
        " ",
        "\n",
        "\t",
        "\u{b}",
        "é",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..12).prop_map(|parts| parts.concat())
}

fn values() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<u64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        ".{0,12}".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
            prop::collection::vec((".{0,3}", inner), 0..5)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Whether every number is one. With its feature `arbitrary_precision`, which other crates of the workspace use,
/// serde_json reads any.
fn is_finite(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Number(number) => number.as_f64().is_some_and(f64::is_finite),
        serde_json::Value::Array(items) => items.iter().all(is_finite),
        serde_json::Value::Object(members) => members.values().all(is_finite),
        _ => true,
    }
}

fn read_again(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

proptest! {
    #[test]
    fn a_text_is_json_for_all_readers_or_for_none(text in texts()) {
        let theirs = serde_json::from_str::<serde_json::Value>(&text).ok().filter(is_finite);
        let ours = Value::parse(text.as_bytes());
        prop_assert_eq!(ours.is_ok(), theirs.is_some(), "{:?}", text);
        let ignored = serde_json::from_str::<serde::de::IgnoredAny>(&text);
        prop_assert_eq!(is_json(text.as_bytes()), ignored.is_ok(), "{:?}", text);
        if let (Ok(ours), Some(theirs)) = (ours, theirs) {
            prop_assert_eq!(read_again(&ours.to_string()), theirs);
        }
    }

    #[test]
    fn a_value_is_read_and_written_without_loss(value in values()) {
        let text = value.to_string();
        prop_assert!(is_json(text.as_bytes()));
        prop_assert_eq!(read_again(&Value::parse(text.as_bytes()).unwrap().to_string()), value);
    }

    #[test]
    fn a_number_is_the_nearest_float(number in any::<f64>(), few in 0..10_u64.pow(15)) {
        let text = serde_json::Value::from(number).to_string();
        if let Some(read) = Value::parse(text.as_bytes()).unwrap().as_f64() {
            prop_assert_eq!(read, text.parse::<f64>().unwrap());
        }
        for places in 1..=22 {
            let text = format!("{few}e-{places}");
            prop_assert_eq!(Value::parse(text.as_bytes()).unwrap().as_f64(), text.parse().ok());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let is_read = Value::parse(&bytes).is_ok();
        prop_assert_eq!(is_read, serde_json::from_slice::<serde_json::Value>(&bytes).is_ok());
        prop_assert!(is_json(&bytes) || !is_read);
    }
}

#[test]
fn brackets_may_be_open_as_long_as_there_is_room_to_count_them() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(is_json(nested(128).as_bytes()));
    assert!(!is_json(nested(129).as_bytes()));
    assert!(Value::parse(nested(128).as_bytes()).is_ok());
    assert!(Value::parse(nested(129).as_bytes()).is_err());
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    assert_eq!(Value::parse(b"{\n\"a\": tru}").unwrap_err(), "it has something else than a value, at line 2 column 6");
    assert_eq!(Value::parse(b"").unwrap_err(), "it ends too early, at line 1 column 1");
    assert_eq!(Value::parse(b"1 2").unwrap_err(), "it has more behind its value, at line 1 column 3");
}
