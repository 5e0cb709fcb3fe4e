//! Texts of JSON are judged as serde judges them.

use parameters::json::ascii;
use proptest::prelude::*;
use queue::json::is_json;

/// Texts that are JSON or nearly so.
fn texts() -> impl Strategy<Value = String> {
    let parts = r#"{ } [ ] , : "a" "\u00e9" "\ud83d\ude00" "\ud800" "\x" "\n\/" 1 -1 0 -0 01 1.5 1. .5 1e3 1E+3 2e-7 1e 1e999
        - +1 18446744073709551616 true false null nul é"#;
    let parts: Vec<&str> = parts.split_whitespace().chain([" ", "\n", "\t", "\u{b}", "\"\n\""]).collect();
    prop::collection::vec(prop::sample::select(parts), 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn a_text_is_json_for_both_readers_or_for_none(text in texts()) {
        let ignored = serde_json::from_str::<serde::de::IgnoredAny>(&text);
        prop_assert_eq!(is_json(text.as_bytes()), ignored.is_ok(), "{:?}", text);
        if let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) {
            let written = ascii(&text).unwrap();
            prop_assert!(written.is_ascii());
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), value);
        }
    }

    #[test]
    fn any_text_has_one_form_in_ascii(text in ".{0,12}") {
        let json = serde_json::Value::from(text.as_str()).to_string();
        let written = ascii(&json).unwrap();
        prop_assert!(written.is_ascii());
        prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
        prop_assert_eq!(ascii(&written), Some(written));
    }
}

#[test]
fn brackets_may_be_open_as_long_as_there_is_room_to_count_them() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(is_json(nested(128).as_bytes()));
    assert!(!is_json(nested(129).as_bytes()));
}
