//! The values of the parameters, each of its type: those of listener, sinks and requests, beside those of [`Common`].

use crate::common::{Audit, Common, expanded, severity};
use crate::json::{ascii, quoted};
use crate::schema::{self, is_valid};
use crate::words::{ParametersError, size};
use request::callers::Callers;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::Duration;

/// Sizes that are rounded up to a power of two.
const RINGS: [&str; 2] = ["queue_bytes", "audit_queue_bytes"];

/// A type of a parameter. None: the value has another.
trait Read: Sized {
    fn read(value: &Value) -> Option<Self>;
}

macro_rules! values {
    ($($(#[$note:meta])* $name:ident: $type:ty,)+) => {
        /// One value for each parameter, valid.
        #[derive(Clone, Debug)]
        pub struct Values { $($(#[$note])* pub $name: $type,)+ }

        impl Values {
            fn read(all: &Map<String, Value>) -> Result<Self, String> {
                Ok(Self { $($name: of(all, stringify!($name))?,)+ })
            }
        }
    };
}

values! {
    additional_sinks: Vec<String>,
    audit_chain: String,
    audit_chain_key_file: Option<PathBuf>,
    audit_commit_interval_s: Duration,
    audit_commit_records: u64,
    audit_directory: Option<PathBuf>,
    audit_queue_bytes: u64,
    audit_sink: String,
    budget_records_s: u32,
    capture_body: String,
    capture_head_bytes: usize,
    capture_input: String,
    capture_opt_out_header: Option<String>,
    capture_output: String,
    capture_tail_bytes: usize,
    capture_text_bytes: usize,
    capture_tools: String,
    chunk_timeline_limit: usize,
    chunks: String,
    compress: String,
    compress_keep_segments: usize,
    compress_level: i32,
    console: String,
    control_limit_s: f64,
    drain_deadline_s: Duration,
    fallback: String,
    fallback_delay_s: Duration,
    flush_interval_s: Duration,
    flush_records: u64,
    forward_ids: String,
    health_backlog_ratio: f64,
    health_backlog_records: f64,
    health_clear_ratio: f64,
    health_oldest_age_s: f64,
    health_path: Option<String>,
    health_pressured_ratio: f64,
    listener: String,
    liveness_path: Option<String>,
    metrics_path: Option<String>,
    metrics_tenants: Vec<String>,
    provider_name: Option<String>,
    quota_bytes: u64,
    record_body_fields: Vec<String>,
    record_headers: Vec<String>,
    redact_custom: Vec<(String, String)>,
    redact_fields: Vec<String>,
    redact_patterns: Vec<String>,
    redact_replacement: String,
    resource: Vec<(String, String)>,
    resource_on_lines: bool,
    response_header: Option<String>,
    retention_s: Duration,
    retention_waits_for: Vec<String>,
    rotate_bytes: u64,
    rotate_interval_s: Duration,
    sample_precision: u8,
    sample_ratio: f64,
    sample_routes: Vec<(String, f64)>,
    sampler: String,
    semconv: String,
    ship_name: Option<String>,
    ship_to: Option<String>,
    sink: String,
    sink_buffer_bytes: usize,
    skip_paths: Vec<String>,
    slow_s: Duration,
    stuck_after_s: f64,
    trace_source: String,
    triton_metrics: bool,
    triton_tensors: bool,
    trusted_callers: Vec<String>,
    wrap_health: String,
    wrap_health_path: Option<String>,
    writeback_bytes: u64,
}

/// Checks the given values, and adds the defaults of all other parameters.
pub fn checked(given: &Map<String, Value>) -> Result<(Common, Values), ParametersError> {
    let (mut all, mut valid) = (Map::new(), 0);
    // One pass: to find each parameter's line, and to parse it again for the default, would take six times as long.
    for (name, described) in schema::parameters() {
        let found = given.get(name);
        if found.is_some_and(|value| !is_valid(&described, value)) {
            continue;
        }
        valid += usize::from(found.is_some());
        if let Some(value) = found.or_else(|| described.get("default")) {
            all.insert(name.to_owned(), canonical(name, &described, value.clone()));
        }
    }
    if valid < given.len() {
        let faults: Vec<String> = given.iter().filter_map(|(name, value)| schema::fault(name, value)).collect();
        return Err(faults.into());
    }
    let values = Values::read(&all).and_then(|values| Ok((common(&all, &values)?, values)));
    let (common, values) = values.map_err(|why| vec![why])?;
    // Some have the form of a network but are not one: bits of a host are set, or the prefix is too long.
    let invalid = values.trusted_callers.iter().filter(|caller| Callers::parse(&[caller]).is_err());
    let faults: Vec<String> = invalid.map(|caller| schema::refusal("trusted_callers", &quoted(caller))).collect();
    if faults.is_empty() { Ok((common, values)) } else { Err(faults.into()) }
}

fn common(all: &Map<String, Value>, values: &Values) -> Result<Common, String> {
    let ascii = |value: Value| ascii(&value.to_string()).unwrap_or_default();
    let json = |name: &'static str| of(all, name).map(|value| (name, ascii(value)));
    let audit = || Audit {
        sink: values.audit_sink.clone(),
        chain: values.audit_chain.clone(),
        directory: values.audit_directory.clone(),
        chain_key_file: values.audit_chain_key_file.clone(),
    };
    Ok(Common {
        service_name: of(all, "service_name")?,
        queue_directory: of(all, "queue_directory")?,
        directory: of(all, "directory")?,
        enabled: of::<String>(all, "enabled")? != "off",
        least_severity: severity(&of::<String>(all, "level")?),
        queue_bytes: of(all, "queue_bytes")?,
        max_record_bytes: of(all, "max_record_bytes")?,
        in_flight_slots: of(all, "in_flight_slots")?,
        overflow_info_ratio: of(all, "overflow_info_ratio")?,
        flush_bytes: of(all, "flush_bytes")?,
        capture_hash_key_file: of(all, "capture_hash_key_file")?,
        audit: of::<bool>(all, "audit")?.then(audit),
        compared: [
            json("service_name")?,
            json("sink")?,
            json("fallback")?,
            json("additional_sinks")?,
            json("redact_fields")?,
            json("redact_patterns")?,
            json("redact_custom")?,
            json("redact_replacement")?,
        ],
        noted: None,
    })
}

/// The value of a parameter. Fails where the schema has another type or none, which a test of all defaults finds.
fn of<T: Read>(all: &Map<String, Value>, name: &str) -> Result<T, String> {
    let value = all.get(name).and_then(T::read);
    value.ok_or_else(|| format!("{name}: this version has no such parameter, or one of another type"))
}

macro_rules! whole {
    ($($type:ty),+) => { $(impl Read for $type {
        fn read(value: &Value) -> Option<Self> {
            // Also 100.0 is a whole number; the conversion is exact within all limits.
            let number = value.as_u64().or_else(|| value.as_f64().map(|number| number as u64));
            number?.try_into().ok()
        }
    })+ };
}

whole!(u8, u32, u64, i32, usize);

impl Read for Value {
    fn read(value: &Value) -> Option<Self> {
        Some(value.clone())
    }
}

impl Read for f64 {
    fn read(value: &Value) -> Option<Self> {
        value.as_f64()
    }
}

impl Read for bool {
    fn read(value: &Value) -> Option<Self> {
        Some(value == "on").filter(|is_on| *is_on || value == "off")
    }
}

impl Read for Duration {
    fn read(value: &Value) -> Option<Self> {
        Self::try_from_secs_f64(value.as_f64()?).ok()
    }
}

impl Read for String {
    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl Read for PathBuf {
    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(Self::from)
    }
}

impl<T: Read> Read for Option<T> {
    /// Null: the parameter is empty.
    fn read(value: &Value) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::read(value).map(Some) }
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::read).collect()
    }
}

impl<T: Read> Read for Vec<(String, T)> {
    fn read(value: &Value) -> Option<Self> {
        value.as_object()?.iter().map(|(name, value)| Some((name.clone(), T::read(value)?))).collect()
    }
}

/// Returns the canonical form of a value that can be written in several ways.
fn canonical(name: &str, schema: &Value, value: Value) -> Value {
    let value = match value {
        Value::Bool(is_on) => on_or_off(is_on),
        Value::String(text) => canonical_text(text, schema),
        other => other,
    };
    match value.as_f64() {
        Some(bytes) if RINGS.contains(&name) => Value::from((bytes as u64).next_power_of_two()),
        _ => value,
    }
}

fn canonical_text(text: String, schema: &Value) -> Value {
    let forms: Vec<&Value> = schema["anyOf"].as_array().into_iter().flatten().collect();
    let has = |keyword: &str, wanted: &str| std::iter::once(&schema).chain(&forms).any(|form| form[keyword] == wanted);
    if schema.get("sizes").is_some() {
        size(&text).map_or(Value::Null, Value::from)
    } else if text.is_empty() && has("type", "null") {
        Value::Null
    } else if has("format", "path") {
        Value::String(expanded(text))
    } else if text == "true" || text == "false" {
        let is_choice = schema["enum"].as_array().is_some_and(|choices| choices.contains(&Value::Bool(true)));
        if is_choice { on_or_off(text == "true") } else { Value::String(text) }
    } else if forms.iter().any(|form| form.get("enum").is_some()) {
        Value::String(text.to_ascii_uppercase())
    } else {
        Value::String(text)
    }
}

fn on_or_off(is_on: bool) -> Value {
    Value::from(if is_on { "on" } else { "off" })
}
