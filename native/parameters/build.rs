//! Writes the published schema a parameter a line; and the part of it that a producer's library needs, without what only
//! documents it.

use json::{Map, Value};
use std::path::Path;

#[allow(dead_code, unused_imports, reason = "the library uses all of it")]
#[path = "src/json/mod.rs"]
mod json;

/// What a producer needs, beside the parameters of the text that names a queue directory's configuration.
const OF_PRODUCERS: [&str; 31] = [
    "version",
    "service_name",
    "queue_directory",
    "queue_bytes",
    "max_record_bytes",
    "listener",
    "level",
    "sampler",
    "trusted_callers",
    "sample_ratio",
    "sample_routes",
    "slow_s",
    "skip_paths",
    "budget_records_s",
    "chunks",
    "capture_input",
    "capture_body",
    "capture_output",
    "capture_text_bytes",
    "capture_hash_key_file",
    "capture_tools",
    "record_headers",
    "record_body_fields",
    "enabled",
    "overflow_info_ratio",
    "flush_bytes",
    "sample_precision",
    "chunk_timeline_limit",
    "capture_head_bytes",
    "capture_tail_bytes",
    "in_flight_slots",
];
/// The parameters of that text.
const OF_DIRECTORIES: [&str; 13] = [
    "sink",
    "fallback",
    "additional_sinks",
    "redact_fields",
    "redact_patterns",
    "redact_custom",
    "redact_replacement",
    "directory",
    "audit",
    "audit_sink",
    "audit_chain",
    "audit_directory",
    "audit_chain_key_file",
];
const DOCUMENTS: [&str; 2] = ["description", "unit"];
const ALLOWED: &str = " Allowed: ";

fn main() {
    println!("cargo:rerun-if-changed=src/schema.json");
    println!("cargo:rerun-if-changed=src/json");
    let schema = Value::parse(&std::fs::read("src/schema.json").expect("src/schema.json")).expect("JSON");
    let parameters = schema.get("properties").and_then(Value::as_object).expect("an object");
    // It refers to the parameters beside it, which are checked there.
    let parameters = || parameters.iter().filter(|(name, _)| *name != "advanced");
    let whole = parameters().map(|(name, schema)| format!("{name} {schema}\n"));
    let small = parameters().map(|(name, schema)| {
        let is_needed = OF_PRODUCERS.contains(&name) || OF_DIRECTORIES.contains(&name);
        format!("{name} {}\n", if is_needed { reduced(schema) } else { Value::Object(Map::default()) })
    });
    for name in OF_PRODUCERS.iter().chain(&OF_DIRECTORIES) {
        assert!(parameters().any(|(known, _)| known == *name), "{name} is no parameter");
    }
    let directory = std::env::var("OUT_DIR").expect("OUT_DIR");
    let write = |name: &str, text: String| std::fs::write(Path::new(&directory).join(name), text).expect("written");
    write("parameters.txt", whole.collect());
    write("producers.txt", small.collect());
}

/// What is needed to check a value, and to say what is allowed.
fn reduced(schema: &Value) -> Value {
    let members = schema.as_object().expect("an object");
    let limits = sizes(schema);
    let allowed = schema.get("description").and_then(Value::as_str).and_then(|text| text.rsplit_once(ALLOWED));
    let allowed = allowed.map(|(_, allowed)| ("description".to_owned(), format!("{ALLOWED}{allowed}").as_str().into()));
    let is_left_out = |name: &str| DOCUMENTS.contains(&name) || name == "anyOf" && limits.is_some();
    let rest = members.iter().filter(|(name, _)| !is_left_out(name));
    let rest = rest.map(|(name, value)| (name.to_owned(), value.clone()));
    let limits = limits.clone().map(|limits| ("sizes".to_owned(), limits));
    Value::Object(allowed.into_iter().chain(limits).chain(rest).collect())
}

/// The limits of a size, whose second form is a pattern for texts with a unit, too long for a small library.
fn sizes(schema: &Value) -> Option<Value> {
    let [number, text] = schema.get("anyOf")?.as_array()?.as_slice() else { return None };
    let is_size = number.get("type")?.as_str() == Some("integer") && text.get("type")?.as_str() == Some("string");
    let limits = || Some([number.get("minimum")?.clone(), number.get("maximum")?.clone()].into_iter().collect());
    is_size.then(limits).flatten()
}
