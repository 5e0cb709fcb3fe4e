//! The reader of lines, which a library for small machines has alone, beside the reader of the whole configuration.
//!
//! `tests/vectors/settings.json` has values that the package, its JSON schema and both readers must judge alike.

// By the name that the other crates of the workspace use.
extern crate inferlog_parameters as parameters;

use parameters::json::ascii;
use parameters::{Common, Parameters, ParametersError, by_line};
use proptest::prelude::*;
use queue::json::is_json;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const VECTORS: &str = include_str!("../../../tests/vectors/settings.json");

fn both(text: &str) -> [Result<Common, ParametersError>; 2] {
    let whole = Parameters::from_json(text.as_bytes()).and_then(|whole| {
        let broken = whole.violations();
        if broken.is_empty() { Ok((*whole).clone()) } else { Err(broken.into()) }
    });
    [by_line::from_text(text.as_bytes()), whole]
}

/// What a producer opens with them.
fn shown(common: &Common) -> String {
    format!("{common:?} {:?} {}", common.resolved_queue_directory(), common.configuration())
}

fn assert_alike(text: &str) {
    match both(text) {
        [Ok(lines), Ok(whole)] => assert_eq!(shown(&lines), shown(&whole), "{text}"),
        [lines, whole] => {
            let named = |read: Result<Common, ParametersError>| {
                read.err().map(|error| error.parameters().map(str::to_owned).collect::<Vec<_>>())
            };
            assert_eq!(named(lines), named(whole), "{text}");
        }
    }
}

#[test]
fn lines_mean_what_the_same_values_mean_in_json() {
    let (mut compared, mut refused) = (0, 0);
    for case in serde_json::from_str::<Vec<Value>>(VECTORS).unwrap() {
        let given = case["values"].as_object().unwrap();
        let text: String = given.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        if text.is_empty() {
            continue;
        }
        match both(&text) {
            [Ok(lines), Ok(whole)] => {
                compared += 1;
                assert_eq!(shown(&lines), shown(&whole), "{text}");
            }
            // It leaves the rest to the listener.
            [Ok(_), Err(_)] => {}
            [Err(lines), whole] => {
                refused += 1;
                let whole = whole.unwrap_err().sentences;
                assert!(lines.sentences.iter().all(|sentence| whole.contains(sentence)), "{lines} {whole:?}");
            }
        }
    }
    assert!(compared > 50 && refused > 10, "{compared} {refused}");
}

#[test]
fn values_are_plain_texts_or_json() {
    assert_alike(concat!(
        "# a sensor\nversion: 1\n\nservice_name: sensor-7\nqueue_directory: /run/sensor/queues\n",
        "directory: \"/var/log/hall seven\"\nqueue_bytes: 64KiB\nmax_record_bytes: 16384\nin_flight_slots: 0\n",
        "overflow_info_ratio: 0.5\nlevel: warn\nlistener: external\nadditional_sinks: [ \"stdout\" ]\n",
        "redact_fields: [\"a\",\"\\u00e9\\/\",\"é😀\"]\nredact_custom: {\"a\":\"b+\"}\nsink: udp://[::1]:9\n",
    ));
    assert_alike(
        "enabled: false\naudit: on\naudit_chain: false\naudit_directory: a/../b\ncapture_hash_key_file: \"\"\n",
    );
    for line in
        ["max_record_bytes: 64KiB\nqueue_bytes: 64KiB", "version: 2", "queu_bytes: 1", "level: LOUD", "sink: null"]
    {
        let [lines, whole] = both(line);
        assert_eq!(lines.unwrap_err(), whole.map(|_| ()).unwrap_err(), "{line}");
    }
}

#[test]
fn what_is_no_line_of_a_name_and_a_value_is_refused() {
    for text in ["", "{", "{}", "{\"queue_bytes\": 65536}", "7", "level INFO", "Level: INFO", "\u{feff}level: INFO"] {
        let refused = by_line::from_text(text.as_bytes()).unwrap_err().sentences;
        assert_eq!(refused, ["the configuration: must be lines of a name, a colon, a space and a value"], "{text}");
    }
    let twice = by_line::from_text(b"level: INFO\nsink: file\nlevel: WARN").unwrap_err().sentences;
    assert_eq!(twice, ["the configuration: level: stands twice"]);
    for value in ["a b", "'a'", "a # b", "*a", "[a]", "\"a", "017", "\"\\ud800\"", "a:"] {
        let refused = by_line::from_text(format!("directory: {value}").as_bytes()).unwrap_err().sentences;
        assert!(refused[0].contains(&format!("directory: {value}: ")), "{refused:?}");
    }
}

#[test]
fn redaction_that_is_no_list_or_mapping_is_refused_by_name_and_value() {
    for line in ["redact_fields: user", "redact_custom: [\"a+\"]", "redact_patterns: null"] {
        let (name, value) = line.split_once(": ").unwrap();
        let refused = by_line::from_text(line.as_bytes()).unwrap_err().sentences.remove(0);
        let value = if value == "user" { "\"user\"".to_owned() } else { value.to_owned() };
        assert!(refused.starts_with(&format!("{name}={value}: must be ")), "{refused}");
    }
}

#[test]
fn what_only_a_listener_needs_is_left_to_it() {
    assert!(by_line::from_text(b"rotate_bytes: much").is_ok());
}

#[test]
fn the_environment_is_read_alike() {
    let read = |variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(name, text)| (format!("INFERENCE_LOGGING_{name}"), (*text).to_owned()));
        let variables: Vec<_> = variables.collect();
        let whole = Parameters::from_sources(&[], variables.clone().into_iter()).map(|whole| (*whole).clone());
        (by_line::from_sources(&[], variables.into_iter()), whole)
    };
    let (lines, whole) = read(&[
        ("SERVICE_NAME", "sensor"),
        ("QUEUE_BYTES", "128KiB"),
        ("MAX_RECORD_BYTES", "16Ki"),
        ("IN_FLIGHT_SLOTS", "0"),
        ("OVERFLOW_INFO_RATIO", "0.5"),
        ("REDACT_FIELDS", "[\"a\",\"b\"]"),
        ("REDACT_CUSTOM", "{\"a\":\"b+\"}"),
        ("SINK", "stdout"),
        ("SERVICE_PORT_HTTP", "80"),
        ("SERVICE_HOST", "10.0.0.1"),
        ("PORT_80_TCP_ADDR", "10.0.0.1"),
        ("ROTATE_BYTES", "1GiB"),
    ]);
    let (lines, whole) = (lines.unwrap(), whole.unwrap());
    assert_eq!(shown(&lines), shown(&whole));
    assert_eq!((lines.queue_bytes, lines.in_flight_slots), (131_072, 0));
    let (lines, whole) = read(&[("SPORT", "1"), ("QUEUE_BYTES", "5"), ("ADVANCED", "{}"), ("ENABLED", "yes")]);
    let named = |error: ParametersError| error.parameters().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(named(lines.unwrap_err()), named(whole.unwrap_err()));
    let refused = read(&[("REDACT_FIELDS", "a,b")]).0.unwrap_err().sentences.remove(0);
    assert!(refused.starts_with("redact_fields=\"a,b\" (environment INFERENCE_LOGGING_REDACT_FIELDS): must be "));
}

proptest! {
    #[test]
    fn a_name_and_a_size_are_judged_alike(name in "[a-zA-Z0-9._-]{1,66}|.{0,3}", size in "[0-9]{1,7} ?(|[KMGk]i?)B?|.{0,3}") {
        let quoted = |text: &str| Value::from(text).to_string();
        assert_alike(&format!("service_name: {}", quoted(&name)));
        assert_alike(&format!("queue_bytes: {}\nmax_record_bytes: 16384", quoted(&size)));
    }
}

// What the reader of the whole configuration checks, beside the vectors in `listen`.

fn read(values: &Value) -> Result<Parameters, ParametersError> {
    Parameters::from_json(values.to_string().as_bytes())
}

#[test]
fn every_value_of_the_struct_is_a_parameter_of_its_type() {
    assert!(read(&json!({})).is_ok());
}

#[test]
fn every_pattern_of_the_schema_is_anchored_and_compiles() {
    fn collect(value: &Value, found: &mut Vec<String>) {
        found.extend(value.get("pattern").and_then(Value::as_str).map(str::to_owned));
        value.as_array().into_iter().flatten().for_each(|part| collect(part, found));
        value.as_object().into_iter().flatten().for_each(|(_, part)| collect(part, found));
    }
    let mut patterns = Vec::new();
    collect(&serde_json::from_str(include_str!("../src/schema.json")).unwrap(), &mut patterns);
    assert!(patterns.len() > 20);
    for pattern in patterns {
        assert!(pattern.starts_with('^') && pattern.ends_with('$'), "{pattern}");
        regex::Regex::new(&pattern).unwrap();
    }
}

#[test]
fn a_place_of_clickhouse_has_a_scheme_a_host_and_a_database() {
    let is_valid = |place: &str| read(&json!({"ship_to": place})).is_ok();
    for place in ["http://a/d", "https://me@a.example:8443/d_1?ttl_days=30", "http://[::1]:8123/d"] {
        assert!(is_valid(&format!("clickhouse+{place}")), "{place}");
    }
    for place in ["http://a", "http://me:secret@a/d", "http://a/d?ttl_days=0", "http://a/d-e", "ftp://a/d"] {
        assert!(!is_valid(&format!("clickhouse+{place}")), "{place}");
    }
    assert!(!is_valid("clickhouse://a/d"));
}

#[test]
fn the_password_of_a_url_is_not_shown() {
    let said = |to: &str| read(&json!({"ship_to": to})).unwrap_err().sentences.remove(0);
    for to in ["clickhouse+http://user:hun/t@er2@host/d", "amqp://:hunter2@host"] {
        let sentence = said(to);
        assert!(sentence.contains(":***@host") && !sentence.contains("er2"), "{sentence}");
    }
    for to in ["amqp://host:1/a", "kafka://host:1"] {
        assert!(said(to).starts_with(&format!("ship_to=\"{to}\": must be ")));
    }
}

#[test]
fn headers_and_members_are_recorded_that_are_asked_for() {
    let values = json!({
        "record_headers": ["x-tenant=tenant.id", "authorization:hash=api_key.hash"],
        "record_body_fields": ["user:hash"],
        "capture_hash_key_file": "/no/such/file",
        "capture_body": "raw",
        "capture_tools": "full",
    });
    let recorded = read(&values).unwrap().recorded().unwrap();
    assert!(recorded.has_headers());
    let members = request::added::members(recorded.of_bodies().as_bytes());
    let names: Vec<_> = members.map(|member| String::from_utf8_lossy(member.name)).collect();
    assert_eq!(names, ["openai.request.user", "http.request.body", "gen_ai.tool.definitions"]);
    for wrong in [json!({"record_headers": ["cookie"]}), json!({"record_headers": ["x-a:hash"]})] {
        let sentences = read(&wrong).unwrap().recorded().unwrap_err();
        assert!(sentences[0].starts_with("record_headers='"), "{sentences:?}");
    }
    assert!(read(&json!({"record_headers": ["a b"]})).unwrap_err().sentences[0].starts_with("record_headers="));
}

#[test]
fn the_least_ratio_is_one_for_the_sampler_too() {
    assert!(read(&json!({"sample_ratio": 1.3877787807814457e-17})).unwrap().sampler().is_ok());
}

// Texts of JSON are judged as serde judges them.

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
