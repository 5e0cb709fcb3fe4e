//! The patterns of the schema mean what they mean for a general reader of regular expressions.

use parameters::pattern::{is_known, matches};
use proptest::prelude::*;
use regex::Regex;
use std::collections::BTreeSet;

/// Every pattern of the schema.
fn patterns() -> BTreeSet<String> {
    fn collect(value: &serde_json::Value, found: &mut BTreeSet<String>) {
        if let Some(pattern) = value.get("pattern").and_then(serde_json::Value::as_str) {
            found.insert(pattern.to_owned());
        }
        value.as_array().into_iter().flatten().for_each(|part| collect(part, found));
        value.as_object().into_iter().flatten().for_each(|(_, part)| collect(part, found));
    }
    let mut found = BTreeSet::new();
    collect(&serde_json::from_str(include_str!("../src/schema.json")).unwrap(), &mut found);
    found
}

/// Texts of the pieces of names, paths, addresses and sizes.
fn texts() -> impl Strategy<Value = String> {
    let parts = [
        "a",
        "Z",
        "0",
        "9",
        "64",
        "65535",
        "65536",
        "4294967296",
        "16777216",
        ".",
        "-",
        "_",
        "/",
        "//",
        "{id}",
        "{",
        "}",
        "*",
        "?",
        "#",
        ":",
        "::1",
        "[::1]",
        "10.0.0.0",
        "/8",
        "KiB",
        "mib",
        " GB",
        "B",
        " ",
        "\t",
        "\n",
        "\0",
        "\u{7f}",
        "é",
        "file",
        "stdout",
        "udp://",
        "unix:///",
        "file:///",
        "kafka://",
        "otlp+http://",
        "syslog+tls://",
        "host",
        "none",
        "stderr",
        "email",
        "INFO",
        "warn",
        ",",
        "x-header",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..6).prop_map(|parts| parts.concat())
}

#[test]
fn every_pattern_of_the_schema_is_understood() {
    let unknown: Vec<String> = patterns().into_iter().filter(|pattern| !is_known(pattern)).collect();
    assert_eq!(unknown, Vec::<String>::new());
    assert!(patterns().len() > 20);
}

#[test]
fn a_place_of_clickhouse_has_a_scheme_a_host_and_a_database() {
    let pattern = patterns().into_iter().find(|pattern| pattern.contains("clickhouse")).unwrap();
    for place in ["http://a/d", "https://me@a.example:8443/d_1?ttl_days=30", "http://[::1]:8123/d"] {
        assert!(matches(&pattern, &format!("clickhouse+{place}")), "{place}");
    }
    for place in ["http://a", "http://me:secret@a/d", "http://a/d?ttl_days=0", "http://a/d-e", "ftp://a/d"] {
        assert!(!matches(&pattern, &format!("clickhouse+{place}")), "{place}");
    }
    assert!(!matches(&pattern, "clickhouse://a/d"));
}

#[test]
fn other_patterns_match_nothing() {
    for pattern in ["a", "^a", "a$", "^(a)$", "^a.b$", "^\\d$", "^a{x}$", "^[a$", "^(?:a$", "^a)$", "^**$"] {
        assert!(!is_known(pattern), "{pattern}");
        assert!(!matches(pattern, "a"), "{pattern}");
    }
}

#[test]
fn a_long_text_is_judged_without_much_of_the_stack() {
    assert!(matches("^(?:[^\\x00]+)$", &"x".repeat(1_000_000)));
    let paths = "^(?:(?:/(?:[^\\x00-\\x20\\x7f{}*?#,/]*|\\{[^\\x00-\\x20\\x7f{}*?#,/]+\\}))+(?:/\\*)?|/\\*)$";
    assert!(matches(paths, &"/a".repeat(100)));
    assert!(!matches(paths, &"/a".repeat(100_000)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn each_text_matches_for_both_or_for_none(text in texts()) {
        thread_local!(static COMPILED: Vec<(String, Regex)> = patterns()
            .into_iter()
            .map(|pattern| (pattern.clone(), Regex::new(&pattern).unwrap()))
            .collect());
        COMPILED.with(|compiled| {
            for (pattern, theirs) in compiled {
                assert_eq!(matches(pattern, &text), theirs.is_match(&text), "{pattern} {text:?}");
            }
        });
    }
}
