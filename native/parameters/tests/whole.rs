//! What the reader of the whole configuration checks, beside the vectors in `listen`.

use parameters::{Parameters, ParametersError};
use serde_json::{Value, json};

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
