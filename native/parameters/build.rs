//! Takes the published schema apart: a line a parameter for the reader of JSON, without what only documents it; and a table
//! of what a producer needs, for the reader of lines.

use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// What a producer without requests needs, and what the text of its queue directory says.
const OF_LINES: [&str; 23] = [
    "service_name", "queue_directory", "queue_bytes", "max_record_bytes", "in_flight_slots", "overflow_info_ratio",
    "flush_bytes", "level", "enabled", "sink", "fallback", "additional_sinks", "redact_fields", "redact_patterns",
    "redact_custom", "redact_replacement", "directory", "capture_hash_key_file", "audit", "audit_sink", "audit_chain",
    "audit_directory", "audit_chain_key_file",
];
const ALLOWED: &str = " Allowed: ";

fn main() {
    println!("cargo:rerun-if-changed=src/schema.json");
    let text = std::fs::read_to_string("src/schema.json").expect("src/schema.json");
    let schema: Value = serde_json::from_str(&text).expect("JSON");
    let mut parameters = schema["properties"].as_object().expect("an object").clone();
    // It refers to the parameters beside it, which are checked there.
    parameters.shift_remove("advanced");
    let whole: String = parameters.iter().map(|(name, schema)| format!("{name} {}\n", reduced(schema))).collect();
    let others = parameters.keys().filter(|name| !OF_LINES.contains(&name.as_str()));
    let mut table = format!("pub static OTHERS: &[&str] = &{:?};\n", others.collect::<Vec<_>>());
    for name in OF_LINES {
        let (constant, schema) = (name.to_uppercase(), &parameters[name]);
        let (form, default, allowed) = (form(name, schema), schema["default"].to_string(), allowed(schema));
        let fields = format!("name: {name:?}, form: {form}, default: {default:?}, allowed: {allowed:?}");
        let _ = writeln!(table, "pub static {constant}: Described = Described {{ {fields} }};");
    }
    let _ = writeln!(table, "pub static KNOWN: &[&Described] = &[&{}];", OF_LINES.join(", &").to_uppercase());
    let directory = std::env::var("OUT_DIR").expect("OUT_DIR");
    let write = |name: &str, text: String| std::fs::write(Path::new(&directory).join(name), text).expect("written");
    write("parameters.txt", whole);
    write("lines.rs", table);
}

/// What is needed to check a value, and to say what is allowed. A size has its limits in place of a long pattern.
fn reduced(schema: &Value) -> Value {
    let mut rest: Map<String, Value> = schema.as_object().expect("an object").clone();
    rest.retain(|name, _| name != "description" && name != "unit");
    if let Some((least, most)) = sizes(schema) {
        rest.shift_remove("anyOf");
        rest.insert("sizes".to_owned(), json!([least, most]));
    }
    if !allowed(schema).is_empty() {
        rest.insert("allowed".to_owned(), json!(allowed(schema)));
    }
    Value::Object(rest)
}

fn allowed(schema: &Value) -> &str {
    let found = schema["description"].as_str().and_then(|text| text.rsplit_once(ALLOWED));
    found.map_or("", |(_, allowed)| allowed.trim_end_matches('.'))
}

/// The limits of a size: a number, or a text with a unit.
fn sizes(schema: &Value) -> Option<(u64, u64)> {
    let [number, text] = schema.get("anyOf")?.as_array()?.as_slice() else { return None };
    let is_size = number["type"] == "integer" && text["type"] == "string";
    is_size.then(|| Some((number["minimum"].as_u64()?, number["maximum"].as_u64()?))).flatten()
}

/// The check of a value in a line.
fn form(name: &str, schema: &Value) -> String {
    let limit = |name: &str| schema[name].as_f64();
    let choices = schema.get("enum").or_else(|| schema["anyOf"][0].get("enum")).and_then(Value::as_array);
    if let Some((least, most)) = sizes(schema) {
        format!("Form::Size({least}, {most})")
    } else if let Some(choices) = choices {
        format!("Form::Choice(&{:?})", choices.iter().filter_map(Value::as_str).collect::<Vec<_>>())
    } else if let Some((least, most)) = limit("minimum").zip(limit("maximum")) {
        format!("Form::Number({least:?}, {most:?}, {})", schema["type"] == "integer")
    } else if name == "service_name" {
        "Form::Name".to_owned()
    } else {
        "Form::Any".to_owned()
    }
}
