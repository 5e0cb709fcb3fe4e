//! What a producer's library checks of a configuration, beside what the published schema says.
//!
//! `tests/vectors/settings.json` has values that the package, its JSON schema and both readers must judge alike.

use parameters::{Parameters, ParametersError, Schema};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const VECTORS: &str = include_str!("../../../tests/vectors/settings.json");
/// Parameters whose values only the listener checks.
fn of_listeners() -> BTreeSet<&'static str> {
    let is_open = |schema: &parameters::json::Value| schema.as_object().is_some_and(|keys| keys.keys().count() == 0);
    Schema::of_producers().parameters().filter(|(_, schema)| is_open(schema)).map(|(name, _)| name).collect()
}

fn read(values: &Value, schema: Schema) -> Result<Parameters, ParametersError> {
    let parameters = Parameters::from_json(values.to_string().as_bytes(), schema)?;
    let broken = parameters.violations();
    if broken.is_empty() { Ok(parameters) } else { Err(broken.into()) }
}

/// What a producer's library opens with them.
fn shown(parameters: &Parameters) -> String {
    format!(
        "{:?} {} {} {:?} {:?}",
        parameters.queue("/q".into()),
        parameters.configuration(),
        parameters.least_severity(),
        parameters.resolved_queue_directory(),
        parameters.is_enabled(),
    )
}

#[test]
fn both_readers_judge_each_vector_alike_and_read_the_same() {
    let cases: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
    let mut compared = 0;
    for case in cases {
        let (ours, whole) = (read(&case["values"], Schema::of_producers()), read(&case["values"], Schema::published()));
        match (ours, whole) {
            (Ok(ours), Ok(whole)) => assert_eq!(shown(&ours), shown(&whole), "{}", case["name"]),
            (Err(ours), Err(whole)) => {
                compared += 1;
                assert!(ours.sentences.iter().all(|sentence| whole.sentences.contains(sentence)), "{ours} {whole}");
            }
            (Ok(_), Err(whole)) => {
                let at_fault: BTreeSet<&str> = whole.parameters().collect();
                assert!(at_fault.is_subset(&of_listeners()), "{}: {whole}", case["name"]);
            }
            (Err(ours), Ok(_)) => panic!("{}: {ours}", case["name"]),
        }
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn a_producer_without_a_listener_records_the_headers_and_members_that_are_asked_for() {
    let values = json!({
        "record_headers": ["x-tenant=tenant.id", "authorization:hash=api_key.hash"],
        "record_body_fields": ["user:hash"],
        "capture_hash_key_file": "/no/such/file",
        "capture_body": "raw",
        "capture_tools": "full",
    });
    let of = |schema| read(&values, schema).unwrap().recorded().unwrap();
    let recorded = of(Schema::of_producers());
    assert_eq!(recorded, of(Schema::published()));
    assert!(recorded.has_headers());
    let members = request::added::members(recorded.of_bodies().as_bytes());
    let names: Vec<_> = members.map(|member| String::from_utf8_lossy(member.name)).collect();
    assert_eq!(names, ["openai.request.user", "http.request.body", "gen_ai.tool.definitions"]);
    for wrong in [json!({"record_headers": ["cookie"]}), json!({"record_headers": ["x-a:hash"]})] {
        let sentences = read(&wrong, Schema::of_producers()).unwrap().recorded().unwrap_err();
        assert!(sentences[0].starts_with("record_headers='"), "{sentences:?}");
    }
    let refused = read(&json!({"record_headers": ["a b"]}), Schema::of_producers()).unwrap_err();
    assert!(refused.sentences[0].starts_with("record_headers="), "{refused}");
}

#[test]
fn a_size_with_a_unit_is_judged_alike() {
    for text in [
        "65536",
        "65535",
        "64KiB",
        "64 kib",
        "\t64 Ki\n",
        "63KiB",
        "4GiB",
        "5GiB",
        "4294967297",
        "66K",
        "65K",
        "1 MB",
        "1B",
        "100000 B",
        "000064KiB",
        "64 K iB",
        "64Ki B",
        "KiB",
        "",
        "-64KiB",
        "64.5KiB",
        "64TiB",
        "99999999999999999999",
        "18446744073709551616 GiB",
        "6\u{a0}",
        "64\u{2003}KiB",
    ] {
        let judged = |schema| read(&json!({"queue_bytes": text, "max_record_bytes": 16384}), schema);
        match (judged(Schema::of_producers()), judged(Schema::published())) {
            (Ok(ours), Ok(whole)) => assert_eq!(shown(&ours), shown(&whole), "{text:?}"),
            (ours, whole) => assert_eq!(ours.err(), whole.err(), "{text:?}"),
        }
    }
}

#[test]
fn a_listeners_parameter_is_left_to_the_listener_and_an_unknown_one_is_refused() {
    assert!(of_listeners().contains("rotate_bytes"));
    assert!(!of_listeners().contains("queue_bytes"));
    assert!(read(&json!({"rotate_bytes": "much"}), Schema::of_producers()).is_ok());
    let refused = read(&json!({"queu_bytes": 1, "level": 7}), Schema::of_producers()).unwrap_err();
    assert_eq!(
        refused.sentences,
        [
            "queu_bytes: unknown parameter, the nearest known is queue_bytes",
            r#"level=7: must be one of "DEBUG", "INFO", "WARN", "ERROR""#
        ]
    );
}

#[test]
fn the_password_of_a_url_is_not_shown() {
    let said = |to: &str| read(&json!({"ship_to": to}), Schema::published()).unwrap_err().sentences.remove(0);
    for to in ["clickhouse+http://user:hun/t@er2@host/d", "amqp://:hunter2@host"] {
        let sentence = said(to);
        assert!(sentence.contains(":***@host") && !sentence.contains("er2"), "{sentence}");
    }
    for to in ["amqp://host:1/a", "kafka://host:1"] {
        assert!(said(to).starts_with(&format!("ship_to=\"{to}\": must be ")));
    }
}

#[test]
fn the_environment_is_read_alike() {
    let variables = [
        ("SERVICE_NAME", "sensor"),
        ("QUEUE_BYTES", "128KiB"),
        ("MAX_RECORD_BYTES", "16Ki"),
        ("IN_FLIGHT_SLOTS", "0"),
        ("OVERFLOW_INFO_RATIO", "0.5"),
        ("SKIP_PATHS", "/a, /b/*"),
        ("SAMPLE_ROUTES", "/v1/*=0.5,/=1"),
        ("REDACT_CUSTOM", "a=b+"),
        ("ADDITIONAL_SINKS", "stdout"),
        ("SERVICE_PORT_HTTP", "80"),
        ("ROTATE_BYTES", "1GiB"),
    ];
    let read = |schema| {
        let variables = variables.map(|(name, text)| (format!("INFERENCE_LOGGING_{name}"), text.to_owned()));
        Parameters::from_sources(&[], variables.into_iter(), schema).unwrap()
    };
    let ours = read(Schema::of_producers());
    assert_eq!(shown(&ours), shown(&read(Schema::published())));
    assert_eq!(ours.queue("/q".into()).queue_bytes, 131_072);
    assert_eq!(ours.queue("/q".into()).in_flight_slots, 0);
}

#[test]
fn the_least_ratio_is_one_for_the_sampler_too() {
    for schema in [Schema::of_producers(), Schema::published()] {
        let parameters = read(&json!({"sample_ratio": 1.3877787807814457e-17}), schema).unwrap();
        assert!(parameters.sampler().is_ok());
    }
}
