//! A configuration's JSON: which values are refused, the sentences about them, and the settings that the parameters
//! become.
//!
//! `tests/vectors/settings.json` has values that the package, its JSON schema and this reader must judge alike.

use listen::settings::{Host, Lane, Resource, Role, Settings, of_environment};
use listen::sink::SinkSettings;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const VECTORS: &str = include_str!("../../../tests/vectors/settings.json");
const SCHEMA: &str = include_str!("../../parameters/src/schema.json");

fn read(values: &Value) -> Settings {
    Settings::from_json(values.to_string().as_bytes()).unwrap()
}

fn refused(json: &str) -> Vec<String> {
    Settings::from_json(json.as_bytes()).unwrap_err().sentences
}

/// The parameters at fault, each once.
fn at_fault(values: &Value) -> BTreeSet<String> {
    let faults = Settings::from_json(values.to_string().as_bytes()).err();
    faults.iter().flat_map(|error| error.parameters()).map(str::to_owned).collect()
}

#[test]
fn every_vector_is_judged_as_it_says() {
    let cases: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
    assert!(cases.len() > 100);
    for case in cases {
        let wanted: Vec<String> = serde_json::from_value(case["error"].clone()).unwrap_or_default();
        assert_eq!(at_fault(&case["values"]), BTreeSet::from_iter(wanted), "{}", case["name"]);
    }
}

#[test]
fn a_wrong_value_is_reported_by_parameter_value_and_what_is_allowed() {
    assert_eq!(
        refused(r#"{"chunks": "all", "skip_paths": ["/a", "b"], "queu_bytes": 1, "colour": 2}"#),
        [
            r#"chunks="all": must be one of "off", "summary", "timeline", "events""#,
            r#"skip_paths="b" (item 2): must be a path in which {name} is any one segment and * at the end the rest"#,
            "queu_bytes: unknown parameter, the nearest known is queue_bytes",
            "colour: unknown parameter",
        ]
    );
    let long = refused(&json!({ "service_name": "x".repeat(10_000) }).to_string());
    assert!(long[0].len() < 300, "{}", long[0]);
    assert_eq!(refused(r#"{"version": 2}"#), ["version=2: must be 1"]);
}

#[test]
fn what_is_no_object_of_parameters_is_refused() {
    for text in ["", "{", "[]", "7", "\"a\"", "{\"a\": \"\\ud800\"}", "\u{feff}{}"] {
        let sentences = refused(text);
        assert!(sentences[0].starts_with("the configuration: "), "{text}: {sentences:?}");
    }
}

#[test]
fn parameters_under_advanced_count_as_if_they_stood_beside_it_and_none_stands_twice() {
    let settings = read(&json!({"version": 1, "advanced": {"flush_records": 7}, "queue_directory": "/q"}));
    let lane = settings.lane(Lane::Fast, Role::Serves, false, None).unwrap();
    assert_eq!(lane.listener.flush_records, 7);
    assert_eq!(at_fault(&json!({"advanced": {"flush_records": 0}})), BTreeSet::from(["flush_records".to_owned()]));
    assert_eq!(at_fault(&json!({"advanced": {"a": 1}, "level": "x"})).len(), 2);
    assert_eq!(refused(r#"{"advanced": 1}"#), ["advanced: must be an object of parameters"]);
    let twice = refused(r#"{"advanced": {"level": "INFO"}, "level": "INFO"}"#);
    assert_eq!(twice, ["level: stands twice, also under advanced"]);
}

/// Every schema within a schema.
fn parts<'a>(schema: &'a Value, found: &mut Vec<&'a Value>) {
    found.push(schema);
    let forms = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let more = ["items", "propertyNames", "additionalProperties"].iter().filter_map(|name| schema.get(name));
    forms.chain(more).for_each(|part| parts(part, found));
}

#[test]
fn the_schema_uses_no_keyword_that_is_not_read() {
    const READ: [&str; 16] = [
        "type", "const", "enum", "anyOf", "minimum", "maximum", "pattern", "items", "maxItems", "maxLength",
        "uniqueItems", "additionalProperties", "propertyNames", "description", "unit", "format",
    ];
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    // The group only refers to the others.
    for (name, parameter) in schema["properties"].as_object().unwrap().iter().filter(|(name, _)| *name != "advanced") {
        let mut found = Vec::new();
        parts(parameter, &mut found);
        for keyword in found.iter().flat_map(|part| part.as_object().unwrap().keys()) {
            assert!(READ.contains(&keyword.as_str()) || keyword == "default", "{name}: {keyword}");
        }
        let described = parameter["description"].as_str().unwrap();
        assert!(name == "version" || described.contains(" Allowed: "), "{name}");
    }
}

#[test]
fn each_default_is_allowed_also_where_it_is_written_in_another_way() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    for (name, parameter) in schema["properties"].as_object().unwrap() {
        let Some(default) = parameter.get("default") else { continue };
        let other = match default {
            // Not the default itself, so that the schema is asked.
            Value::Null => json!(""),
            Value::Number(number) if parameter.to_string().contains("integer") => json!(number.as_f64()),
            other => other.clone(),
        };
        assert_eq!(at_fault(&json!({ name: other })), BTreeSet::new(), "{name}={other}");
    }
}

#[test]
fn the_fast_lane_is_what_its_parameters_say() {
    let settings = read(&json!({
        "queue_directory": "/q", "queue_bytes": "1000000", "max_record_bytes": "16KB", "in_flight_slots": 5,
        "flush_interval_s": 0.25, "flush_records": 7, "flush_bytes": "8Ki", "directory": "/logs", "service_name": "chat",
        "rotate_bytes": "1MiB", "quota_bytes": "4MiB", "retention_s": 60, "compress": "zstd", "compress_level": 5,
        "fallback": "/elsewhere", "additional_sinks": ["stdout", "file:///copy"], "ship_to": "otlp+http://collector",
        "budget_records_s": 300, "redact_patterns": ["email"],
    }));
    let lane = settings.lane(Lane::Fast, Role::Serves, true, None).unwrap();
    assert_eq!(lane.queue.directory, Path::new("/q"));
    assert_eq!((lane.queue.queue_bytes, lane.queue.max_record_bytes), (1 << 20, 16_000));
    assert_eq!((lane.queue.in_flight_slots, lane.queue.wake_bytes), (5, 8192));
    assert_eq!(lane.queue.overflow_info_ratio.to_bits(), 0.8_f64.to_bits());
    assert_eq!(lane.queue.configuration, Some(settings.configuration()));
    assert_eq!((lane.listener.flush_interval, lane.listener.flush_records), (Duration::from_millis(250), 7));
    assert!(lane.listener.redaction.is_some());
    assert_eq!((lane.runs_listener, lane.budget_records_s), (true, 300));
    let names: Vec<String> = lane.sinks.additional.iter().map(SinkSettings::name).collect();
    assert_eq!((lane.sinks.primary.name(), names), ("file".to_owned(), vec!["stdout".into(), "file:///copy".into()]));
    let SinkSettings::File(file) = &lane.sinks.primary else { panic!("no file") };
    assert_eq!((file.dir.as_path(), file.prefix.as_str(), file.rotate_bytes), (Path::new("/logs"), "chat", 1 << 20));
    assert!(file.durable.is_none() && file.rotations.is_some());
    assert!(file.origin.starts_with(",\"queue_directory\":\"/q\",\"configuration\":\""), "{}", file.origin);
    let housekeeping = lane.listener.housekeeping.unwrap();
    assert_eq!(housekeeping.directories, ["/logs", "/elsewhere", "/copy"].map(Path::new));
    assert_eq!((housekeeping.limits.retention, housekeeping.limits.quota_bytes), (Duration::from_secs(60), 4 << 20));
    assert_eq!(housekeeping.compression.unwrap().level, 5);
    assert_eq!(housekeeping.waits_for, (vec!["otlp".to_owned()], "/logs".into()));
}

#[test]
fn segments_wait_for_the_shipper_that_the_destination_names() {
    for (destination, name) in [
        ("clickhouse+https://me@a/logs", "clickhouse"),
        ("syslog+tls://logs:6514?max_bytes=65536", "syslog"),
        ("journald:///run/systemd/journal/socket", "journald"),
    ] {
        let given = json!({ "queue_directory": "/q", "directory": "/logs", "retention_s": 60, "ship_to": destination });
        let settings = read(&given);
        let lane = settings.lane(Lane::Fast, Role::Serves, true, None).unwrap();
        let waits_for = lane.listener.housekeeping.unwrap().waits_for;
        assert_eq!(waits_for, (vec![name.to_owned()], "/logs".into()), "{destination}");
    }
}

#[test]
fn the_audit_lane_is_the_same_service_with_its_own_queue_directory_and_chain() {
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), "0f".repeat(32) + "\n").unwrap();
    let settings = read(&json!({
        "queue_directory": "/q", "directory": "/logs", "service_name": "chat", "audit": "on",
        "audit_commit_interval_s": 0.02, "audit_commit_records": 3, "audit_queue_bytes": "64KiB",
        "retention_s": 60, "quota_bytes": "1GiB", "fallback": "stderr", "budget_records_s": 300,
        "audit_chain": "sha256", "audit_chain_key_file": key.path(), "listener": "external",
    }));
    let lane = settings.lane(Lane::Audit, Role::Serves, false, None).unwrap();
    assert_eq!(lane.queue.directory, Path::new("/q/audit"));
    assert_eq!((lane.queue.queue_bytes, lane.queue.max_record_bytes), (1 << 16, 1 << 14));
    assert_eq!((lane.queue.in_flight_slots, lane.queue.configuration), (0, None));
    assert_eq!(lane.queue.overflow_info_ratio.to_bits(), 1.0_f64.to_bits());
    assert_eq!((lane.listener.flush_interval, lane.listener.flush_records), (Duration::from_millis(20), 3));
    assert!(lane.listener.housekeeping.is_none(), "nothing is removed there");
    assert!(lane.sinks.fallback.is_none() && lane.sinks.additional.is_empty());
    assert_eq!((lane.runs_listener, lane.budget_records_s), (false, 0));
    let SinkSettings::File(file) = lane.sinks.primary else { panic!("no file") };
    assert_eq!((file.dir.as_path(), file.prefix.as_str()), (Path::new("/logs/audit"), "chat-audit"));
    let chain = file.durable.unwrap().chain.unwrap();
    assert_eq!((chain.algorithm.name(), chain.key), ("sha256", Some([0x0f; 32])));
}

#[test]
fn a_process_that_only_listens_has_the_least_queue_and_listens_whatever_its_servers_do() {
    let settings =
        read(&json!({"queue_directory": "/q", "listener": "external", "budget_records_s": 1, "audit": "on"}));
    for lane in [Lane::Fast, Lane::Audit] {
        let lane = settings.lane(lane, Role::OnlyListens, true, None).unwrap();
        assert_eq!((lane.queue.queue_bytes, lane.queue.max_record_bytes), (64 << 10, 16 << 10));
        assert_eq!((lane.queue.in_flight_slots, lane.runs_listener, lane.budget_records_s), (0, true, 0));
    }
}

#[test]
fn a_lane_without_directory_key_or_store_is_refused_by_parameter() {
    let refused = |values: Value, lane| read(&values).lane(lane, Role::Serves, true, None).err().unwrap();
    assert_eq!(refused(json!({}), Lane::Fast), "queue_directory: must be named");
    let without = json!({"queue_directory": "/q", "capture_hash_key_file": "/nowhere/key"});
    let expected = "capture_hash_key_file='/nowhere/key': can't be read: No such file or directory";
    assert_eq!(refused(without, Lane::Fast), expected);
    let database = json!({"queue_directory": "/q", "audit_sink": "sqlite"});
    assert_eq!(refused(database, Lane::Audit), "audit_sink=\"sqlite\": names no sink");
    let key = tempfile::NamedTempFile::new().unwrap();
    for content in ["", "0f", &"0F".repeat(32), &"0g".repeat(32), &"0f".repeat(33)] {
        std::fs::write(key.path(), content).unwrap();
        let why = refused(json!({"queue_directory": "/q", "audit_chain_key_file": key.path()}), Lane::Audit);
        assert!(why.ends_with("must hold 64 lowercase hexadecimal digits"), "{why}");
    }
}

#[test]
fn a_key_of_hashes_is_32_bytes_or_as_many_as_hexadecimal_digits() {
    let key = tempfile::NamedTempFile::new().unwrap();
    let settings = read(&json!({"queue_directory": "/q", "capture_hash_key_file": key.path()}));
    let read = || settings.lane(Lane::Fast, Role::Serves, true, None).map(|lane| lane.listener.hash_key);
    for content in ["k".repeat(32).into_bytes(), format!(" {}\n", "6B".repeat(32)).into_bytes()] {
        std::fs::write(key.path(), content).unwrap();
        assert_eq!(read(), Ok(Some([b'k'; 32])));
    }
    std::fs::write(key.path(), "short").unwrap();
    assert!(read().unwrap_err().ends_with("must hold 32 bytes or 64 hexadecimal digits"));
}

#[test]
fn the_text_of_a_configuration_is_that_of_its_first_version() {
    let settings = read(&json!({
        "directory": "/a/../b/./c/", "redact_custom": {"b": "\\d+\"é", "a": "😀\t"}, "redact_fields": ["a", "b"],
        "audit": "on", "audit_directory": "//x/y", "capture_hash_key_file": "/nowhere", "queue_bytes": "1GiB",
    }));
    let expected = concat!(
        "version: 1\nservice_name: \"inference\"\nsink: \"file\"\nfallback: \"none\"\nadditional_sinks: []\n",
        "redact_fields: [\"a\", \"b\"]\nredact_patterns: []\n",
        r#"redact_custom: {"b": "\\d+\"\u00e9", "a": "\ud83d\ude00\t"}"#,
        "\nredact_replacement: \"[redacted:{name}]\"\ndirectory: \"/b/c\"\naudit: \"on\"\naudit_sink: \"file\"\n",
        "audit_chain: \"blake3\"\naudit_directory: \"//x/y\"\n# capture_hash_key: unreadable\n",
    );
    assert_eq!(settings.configuration(), expected);
}

#[test]
fn what_goes_to_others_with_a_request_is_what_its_parameters_say() {
    let defaults = read(&json!({}));
    assert_eq!(
        (defaults.values.response_header.as_deref(), defaults.values.capture_opt_out_header.as_deref()),
        (None, Some("X-No-Capture"))
    );
    assert_eq!((defaults.forwards(false), defaults.forwards(true)), ((false, false), (true, false)));
    assert_eq!(&*defaults.routes(), ["/health/logging", "/health/logging/live"]);
    assert!(defaults.asks_other_libraries() && defaults.values.triton_tensors && !defaults.values.triton_metrics);
    let other = read(&json!({
        "forward_ids": "on", "trace_source": "header", "response_header": "X-Id", "capture_opt_out_header": "",
        "health_path": "", "metrics_path": "/m", "triton_tensors": false, "triton_metrics": "on",
    }));
    assert_eq!(
        (other.values.response_header.as_deref(), other.values.capture_opt_out_header.as_deref()),
        (Some("X-Id"), None)
    );
    assert_eq!(
        (other.forwards(false), read(&json!({"forward_ids": false})).forwards(true)),
        ((true, true), (false, false))
    );
    assert_eq!(&*other.routes(), ["/health/logging/live", "/m"]);
    assert!(!other.asks_other_libraries() && !other.values.triton_tensors && other.values.triton_metrics);
}

// The resource of records: where its attributes come from, which of them counts, and what is refused.

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn host() -> Host {
    Host { name: "node-7".to_owned(), boot_id: "b".to_owned(), ..Host::default() }
}

fn resource(json: &str, environment: &[(&str, &str)]) -> Resource {
    of(json, environment, &host(), Role::Serves, "/q")
}

fn of(json: &str, environment: &[(&str, &str)], host: &Host, role: Role, directory: &str) -> Resource {
    let settings = Settings::from_json(json.as_bytes()).unwrap();
    settings.resource(role, Path::new(directory), host, |name| {
        environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn an_attribute_of_the_configuration_goes_before_the_environment_and_that_before_what_is_found() {
    let environment =
        [("OTEL_SERVICE_NAME", "by-name"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=by-list,host.name=h,a=1,b=2")];
    let found = resource(r#"{"resource": {"a": "configured"}}"#, &environment);
    let get = |name| found.get(name);
    assert_eq!((get("a"), get("b")), (Some("configured"), Some("2")));
    assert_eq!((get("service.name"), get("host.name")), (Some("by-name"), Some("h")));
    assert_eq!(resource("{}", &environment[1..]).get("service.name"), Some("by-list"));
    assert_eq!(resource(r#"{"service_name": "chat"}"#, &environment).get("service.name"), Some("chat"));
    assert_eq!(resource("{}", &[]).get("service.name"), Some("inference"));
    assert_eq!(resource("{}", &[]).get("host.name"), Some("node-7"));
}

#[test]
fn the_variable_is_percent_encoded_and_one_fault_discards_all_of_it() {
    let pairs = |text| of_environment(text).unwrap();
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(pairs(" a = x%2Cy%3D%20z , b=%C3%A9,"), [own("a", "x,y= z"), own("b", "é")]);
    assert_eq!(pairs("a=b=c"), [own("a", "b=c")], "the name ends at the first sign");
    for wrong in ["a", "a=%", "a=%4", "a=%zz", "a=%ff", "=b", "a=1,b"] {
        assert!(of_environment(wrong).unwrap_err().starts_with("OTEL_RESOURCE_ATTRIBUTES: "), "{wrong}");
    }
    let many: String = (0..65).map(|number| format!("a{number}=1,")).collect();
    assert!(of_environment(&many).unwrap_err().contains("65"));
    let found = resource("{}", &[("OTEL_RESOURCE_ATTRIBUTES", "a=1,b=%")]);
    assert_eq!((found.get("a"), found.get("service.name")), (None, Some("inference")));
}

#[test]
fn more_attributes_than_there_may_be_are_refused_by_name_and_number() {
    let members: Vec<String> = (0..65).map(|number| format!("\"a{number}\": \"1\"")).collect();
    let refused = Settings::from_json(format!("{{\"resource\": {{{}}}}}", members.join(",")).as_bytes()).unwrap_err();
    assert_eq!(refused.to_string(), "resource: has 65 attributes, must be at most 64");
}

#[test]
fn the_container_is_found_by_control_group_or_mount_and_is_never_the_pods_sandbox_or_a_listeners() {
    let of_group = |text: &str| Host { cgroup: text.to_owned(), ..host() }.container_id();
    assert_eq!(of_group(&format!("12:pids:/docker/{ID}\n")).as_deref(), Some(ID));
    assert_eq!(of_group(&format!("0::/kubepods.slice/cri-containerd-{ID}.scope")).as_deref(), Some(ID));
    assert_eq!(of_group("0::/\n"), None);
    assert_eq!(of_group("0::/user.slice/user-1000.slice/session-2.scope"), None);
    let mount = |place: &str| Host {
        mounts: format!("652 634 259:1 /var/lib/{place}/{ID}/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n"),
        ..host()
    };
    assert_eq!(mount("docker/containers").container_id().as_deref(), Some(ID));
    assert_eq!(mount("containerd/io.containerd.grpc.v1.cri/sandboxes").container_id(), None);
    let role = |role| of("{}", &[], &mount("docker/containers"), role, "/q").get("container.id").map(str::to_owned);
    assert_eq!((role(Role::Serves).as_deref(), role(Role::OnlyListens)), (Some(ID), None));
}

#[test]
fn the_processes_of_one_queue_directory_are_one_instance_and_another_directory_is_another() {
    let instance = |host: &Host, directory: &str| {
        of("{}", &[], host, Role::Serves, directory).get("service.instance.id").unwrap().to_owned()
    };
    let own = instance(&host(), "/q");
    assert_eq!((own.len(), own.as_bytes()[14], instance(&host(), "/q")), (36, b'8', own.clone()));
    let others = [Host { name: "node-8".to_owned(), ..host() }, Host { boot_id: "c".to_owned(), ..host() }];
    assert!(instance(&host(), "/p") != own && others.iter().all(|other| instance(other, "/q") != own));
}

#[test]
fn the_member_of_a_line_is_json_whatever_the_values_are() {
    let member = resource(r#"{"resource": {"a": "quote \" and é"}}"#, &[]).member();
    let line: serde_json::Value = serde_json::from_str(&format!("{{\"n\":1{member}}}")).unwrap();
    assert_eq!(line["resource"]["a"], "quote \" and é");
    assert_eq!(Resource::default().member(), "");
}
