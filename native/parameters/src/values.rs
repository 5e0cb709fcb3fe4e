//! The values of all parameters, valid and in canonical form: a size is a number, `false` is `off`, an empty text is null.

use crate::error::ParametersError;
use crate::json::{Map, Value};
use crate::schema::{Schema, is_valid, size};
use request::callers::Callers;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Sizes that are rounded up to a power of two.
const RINGS: [&str; 2] = ["queue_bytes", "audit_queue_bytes"];

/// One value for each parameter. A getter panics for a name that the schema does not have.
#[derive(Clone, Debug)]
pub struct Values(Map);

impl Values {
    /// Checks the given values, and adds the defaults of all other parameters.
    pub fn checked(given: Map, schema: Schema) -> Result<Self, ParametersError> {
        let (mut values, mut valid) = (Map::default(), 0);
        // One pass: to find each parameter's line, and to parse it again for the default, would take six times as long.
        for (name, described) in schema.parameters() {
            let found = given.get(name);
            if found.is_some_and(|value| !is_valid(&described, value)) {
                continue;
            }
            valid += usize::from(found.is_some());
            if let Some(value) = found.or_else(|| described.get("default")) {
                values.insert(name.to_owned(), canonical(name, &described, value.clone()));
            }
        }
        if valid < given.keys().count() {
            let faults: Vec<String> = given.iter().filter_map(|(name, value)| schema.fault(name, value)).collect();
            return Err(faults.into());
        }
        let values = Self(values);
        let invalid = invalid_callers(&values);
        let faults: Vec<String> =
            invalid.map(|caller| schema.refusal("trusted_callers", &Value::String(caller).to_string())).collect();
        if faults.is_empty() { Ok(values) } else { Err(faults.into()) }
    }

    /// Replaces the value of a path.
    pub fn set_path(&mut self, name: &str, path: &Path) {
        self.0.insert(name.to_owned(), Value::String(path.display().to_string()));
    }

    /// Replaces a value by another valid one.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    fn value(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or_else(|| panic!("{name} is no parameter"))
    }

    pub fn text(&self, name: &str) -> &str {
        self.maybe_text(name).unwrap_or_else(|| panic!("{name} is no text"))
    }

    /// None: the parameter is empty.
    pub fn maybe_text(&self, name: &str) -> Option<&str> {
        self.value(name).as_str()
    }

    /// Whether the parameter has the value `choice`.
    pub fn is(&self, name: &str, choice: &str) -> bool {
        self.text(name) == choice
    }

    /// None: the parameter is empty.
    pub fn maybe_path(&self, name: &str) -> Option<PathBuf> {
        self.maybe_text(name).map(PathBuf::from)
    }

    pub fn number(&self, name: &str) -> f64 {
        self.value(name).as_f64().unwrap_or_else(|| panic!("{name} is no number"))
    }

    pub fn whole(&self, name: &str) -> u64 {
        // Also 100.0 is a whole number; the conversion is exact within all limits.
        self.value(name).as_u64().unwrap_or_else(|| self.number(name) as u64)
    }

    pub fn seconds(&self, name: &str) -> Duration {
        Duration::from_secs_f64(self.number(name))
    }

    pub fn texts(&self, name: &str) -> Vec<String> {
        let items = self.value(name).as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    pub fn pairs<T>(&self, name: &str, read: impl Fn(&Value) -> T) -> Vec<(String, T)> {
        let members = self.value(name).as_object().into_iter().flat_map(Map::iter);
        members.map(|(name, value)| (name.to_owned(), read(value))).collect()
    }

    /// The value as JSON.
    pub fn json(&self, name: &str) -> &Value {
        self.value(name)
    }
}

/// Returns the callers that have the form of a network but are not one: bits of a host are set, or the prefix is too
/// long.
fn invalid_callers(values: &Values) -> impl Iterator<Item = String> {
    values.texts("trusted_callers").into_iter().filter(|caller| Callers::parse(&[caller]).is_err())
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
    let forms: Vec<&Value> = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten().collect();
    let has = |keyword: &str, wanted: &str| {
        std::iter::once(&schema).chain(&forms).any(|form| form.get(keyword).and_then(Value::as_str) == Some(wanted))
    };
    let choices = |form: &Value| form.get("enum").and_then(Value::as_array).cloned().unwrap_or_default();
    if has("type", "integer") || schema.get("sizes").is_some() {
        Value::from(size(&text).unwrap_or(u64::MAX))
    } else if text.is_empty() && has("type", "null") {
        Value::Null
    } else if has("format", "path") {
        Value::String(expanded(text))
    } else if choices(schema).contains(&Value::Bool(true)) && (text == "true" || text == "false") {
        on_or_off(text == "true")
    } else if forms.iter().any(|form| !choices(form).is_empty()) {
        Value::String(text.to_ascii_uppercase())
    } else {
        Value::String(text)
    }
}

fn on_or_off(is_on: bool) -> Value {
    Value::from(if is_on { "on" } else { "off" })
}

/// A path whose `~` is the home directory.
pub fn expanded(path: String) -> String {
    let rest = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
    match (rest, std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{}{rest}", home.trim_end_matches('/')),
        _ => path,
    }
}
