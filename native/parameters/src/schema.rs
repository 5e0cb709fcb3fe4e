//! The published JSON schema: checks a value by the few keywords that the schema uses, and describes what it allows.
//!
//! A build script takes the schema apart into lines, one for each parameter. A process parses the line of one parameter at
//! a time, and keeps none.

use crate::words::{shown, size, unknown};
use regex::Regex;
use serde_json::Value;

const PUBLISHED: &str = include_str!(concat!(env!("OUT_DIR"), "/parameters.txt"));

/// Each parameter with its schema, and `version`.
pub fn parameters() -> impl Iterator<Item = (&'static str, Value)> {
    lines().map(|(name, json)| (name, parsed(json)))
}

/// The schema of one parameter.
pub fn parameter(name: &str) -> Option<Value> {
    lines().find_map(|(known, json)| (known == name).then(|| parsed(json)))
}

fn lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    PUBLISHED.lines().filter_map(|line| line.split_once(' '))
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}

/// Returns the problem with a parameter's value as one sentence; None: the value is valid.
pub fn fault(name: &str, value: &Value) -> Option<String> {
    let Some(schema) = parameter(name) else { return Some(unknown(name, lines().map(|(known, _)| known))) };
    let is_valid = is_valid(&schema, value);
    (!is_valid).then(|| refusal(name, &wrong_part(&schema, value).unwrap_or_else(|| shown(&value.to_string()))))
}

/// Returns the sentence that refuses `value`, in the form in which it is shown, without the password of a URL.
pub fn refusal(name: &str, value: &str) -> String {
    let schema = parameter(name).unwrap_or_default();
    let of_const = || schema["const"].to_string();
    let value = without_password(value).unwrap_or_else(|| value.to_owned());
    format!("{name}={value}: must be {}", schema["allowed"].as_str().map_or_else(of_const, str::to_owned))
}

/// Shows the first wrong item of a list, with its position.
fn wrong_part(schema: &Value, value: &Value) -> Option<String> {
    let (items, item) = (value.as_array()?, schema.get("items")?);
    let wrong = items.iter().position(|one| !accepts(item, one))?;
    Some(format!("{} (item {})", shown(&items[wrong].to_string()), wrong + 1))
}

/// Whether the schema of a parameter allows `value`.
pub fn is_valid(schema: &Value, value: &Value) -> bool {
    // A default needs no pattern to be compiled for it.
    schema.get("default") == Some(value) || accepts(schema, value)
}

fn accepts(schema: &Value, value: &Value) -> bool {
    accepts_all(schema, &[value])
}

/// Whether a schema allows each value; its pattern is compiled once for all.
fn accepts_all(schema: &Value, values: &[&Value]) -> bool {
    let each = |(keyword, wanted): (&String, &Value)| match keyword.as_str() {
        "pattern" => {
            // All patterns are anchored.
            let pattern = wanted.as_str().and_then(|pattern| Regex::new(pattern).ok());
            let matches = |text: &str| pattern.as_ref().is_some_and(|pattern| pattern.is_match(text));
            values.iter().all(|value| value.as_str().is_none_or(matches))
        }
        keyword => values.iter().all(|value| keeps(keyword, wanted, value)),
    };
    schema.as_object().is_some_and(|keywords| keywords.iter().all(each))
}

/// Whether `value` fulfils one keyword, which applies only to values of its own kind.
fn keeps(keyword: &str, wanted: &Value, value: &Value) -> bool {
    let number = |test: fn(&f64, &f64) -> bool| {
        value.as_f64().is_none_or(|value| wanted.as_f64().is_some_and(|wanted| test(&value, &wanted)))
    };
    let any_of = |test: &dyn Fn(&Value) -> bool| wanted.as_array().is_some_and(|all| all.iter().any(test));
    match keyword {
        "type" => is_of_type(value, wanted.as_str().unwrap_or_default()),
        "const" => is_equal(value, wanted),
        "enum" => any_of(&|one| is_equal(value, one)),
        "anyOf" => any_of(&|one| accepts(one, value)),
        "sizes" => is_size(wanted, value),
        "minimum" => number(f64::ge),
        "maximum" => number(f64::le),
        "maxLength" => value.as_str().is_none_or(|text| Some(text.chars().count() as u64) <= wanted.as_u64()),
        "items" => value.as_array().is_none_or(|items| accepts_all(wanted, &items.iter().collect::<Vec<_>>())),
        "maxItems" => value.as_array().is_none_or(|items| Some(items.len() as u64) <= wanted.as_u64()),
        "uniqueItems" => value.as_array().is_none_or(|items| !has_twins(items)),
        "additionalProperties" => {
            value.as_object().is_none_or(|members| accepts_all(wanted, &members.values().collect::<Vec<_>>()))
        }
        "propertyNames" => value.as_object().is_none_or(|members| {
            let names: Vec<Value> = members.keys().map(|name| Value::from(name.as_str())).collect();
            accepts_all(wanted, &names.iter().collect::<Vec<_>>())
        }),
        "allowed" | "format" | "default" => true,
        // A keyword that is not implemented refuses everything; a test finds it.
        _ => false,
    }
}

/// Whether `value` is a whole number within limits, or a text with a unit for one.
fn is_size(limits: &Value, value: &Value) -> bool {
    let bytes = match value {
        Value::String(text) => size(text).map(|bytes| bytes as f64),
        other => other.as_f64().filter(|number| number.fract() == 0.0),
    };
    let limit = |at: usize| limits.as_array()?.get(at)?.as_f64();
    bytes.is_some_and(|bytes| limit(0) <= Some(bytes) && Some(bytes) <= limit(1))
}

fn without_password(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let (user, rest) = rest.split_once(':').filter(|(user, _)| !user.contains(['/', '@']))?;
    let (_, host) = rest.rsplit_once('@')?;
    Some(format!("{scheme}://{user}:***@{host}"))
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => matches!(value, Value::String(_)),
        "number" => matches!(value, Value::Number(_)),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "array" => matches!(value, Value::Array(_)),
        "object" => matches!(value, Value::Object(_)),
        "null" => *value == Value::Null,
        _ => false,
    }
}

/// Whether two values are equal; 1 and 1.0 are.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

fn has_twins(items: &[Value]) -> bool {
    items.iter().enumerate().any(|(position, item)| items[..position].contains(item))
}
