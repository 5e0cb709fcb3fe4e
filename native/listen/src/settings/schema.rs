//! The published JSON schema: checks a value by the few keywords that the schema uses, and describes what it allows.

use super::ADVANCED;
use regex::Regex;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::HashMap;

const PUBLISHED: &str = include_str!("schema.json");
/// In a description, the allowed values follow these words.
const ALLOWED: &str = " Allowed: ";
/// Longest value that a sentence shows whole, in characters.
const LONGEST_VALUE: usize = 120;

/// The parameters of a schema.
pub struct Schema {
    parameters: Map<String, Value>,
    /// Each is compiled at its first use: most values are not texts.
    patterns: RefCell<HashMap<String, Option<Regex>>>,
}

impl Schema {
    /// The schema of configuration files, as the package publishes it.
    pub fn published() -> Self {
        let mut schema: Value = serde_json::from_str(PUBLISHED).unwrap_or_default();
        let parameters = schema.get_mut("properties").map(Value::take);
        let Some(Value::Object(mut parameters)) = parameters else { panic!("schema.json is no schema") };
        // It refers to the parameters beside it, which are checked there.
        parameters.shift_remove(ADVANCED);
        Self { parameters, patterns: RefCell::default() }
    }

    /// Each parameter with its schema, and `version`.
    pub fn parameters(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.parameters.iter()
    }

    /// The schema of one parameter.
    pub fn parameter(&self, name: &str) -> Option<&Value> {
        self.parameters.get(name)
    }

    /// Returns the problem with a parameter's value as one sentence; None: the value is valid.
    pub fn fault(&self, name: &str, value: &Value) -> Option<String> {
        let Some(schema) = self.parameters.get(name) else {
            return Some(format!("{name}: unknown parameter, the nearest known is {}", self.nearest(name)));
        };
        // A default needs no pattern to be compiled for it.
        let is_valid = schema.get("default") == Some(value) || self.accepts(schema, value);
        (!is_valid).then(|| self.refusal(name, &self.wrong_part(schema, value).unwrap_or_else(|| shown(value))))
    }

    /// Returns the sentence that refuses `value`, in the form in which it is shown.
    pub fn refusal(&self, name: &str, value: &str) -> String {
        let schema = &self.parameters[name];
        let described = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let allowed = described.rsplit_once(ALLOWED).map(|(_, allowed)| allowed.trim_end_matches('.'));
        let allowed = allowed.map_or_else(|| schema["const"].to_string(), str::to_owned);
        format!("{name}={value}: must be {allowed}")
    }

    /// Shows the first wrong item of a list, with its position.
    fn wrong_part(&self, schema: &Value, value: &Value) -> Option<String> {
        let (items, item) = (value.as_array()?, schema.get("items")?);
        let wrong = items.iter().position(|one| !self.accepts(item, one))?;
        Some(format!("{} (item {})", shown(&items[wrong]), wrong + 1))
    }

    fn accepts(&self, schema: &Value, value: &Value) -> bool {
        let Value::Object(keywords) = schema else { return false };
        keywords.iter().all(|(keyword, wanted)| self.keeps(keyword, wanted, value))
    }

    /// Whether `value` fulfils one keyword, which applies only to values of its own kind.
    fn keeps(&self, keyword: &str, wanted: &Value, value: &Value) -> bool {
        let number = |test: fn(&f64, &f64) -> bool| {
            value.as_f64().is_none_or(|value| wanted.as_f64().is_some_and(|wanted| test(&value, &wanted)))
        };
        let each = |values: Vec<&Value>| values.into_iter().all(|one| self.accepts(wanted, one));
        let any_of = |test: &dyn Fn(&Value) -> bool| wanted.as_array().is_some_and(|all| all.iter().any(test));
        match keyword {
            "type" => is_of_type(value, wanted.as_str().unwrap_or_default()),
            "const" => is_equal(value, wanted),
            "enum" => any_of(&|one| is_equal(value, one)),
            "anyOf" => any_of(&|one| self.accepts(one, value)),
            "minimum" => number(f64::ge),
            "maximum" => number(f64::le),
            "pattern" => value.as_str().is_none_or(|text| self.matches(wanted.as_str().unwrap_or_default(), text)),
            "maxLength" => value.as_str().is_none_or(|text| Some(text.chars().count() as u64) <= wanted.as_u64()),
            "items" => value.as_array().is_none_or(|items| each(items.iter().collect())),
            "maxItems" => value.as_array().is_none_or(|items| Some(items.len() as u64) <= wanted.as_u64()),
            "uniqueItems" => value.as_array().is_none_or(|items| !has_twins(items)),
            "additionalProperties" => value.as_object().is_none_or(|members| each(members.values().collect())),
            "propertyNames" => value
                .as_object()
                .is_none_or(|members| members.keys().all(|name| self.accepts(wanted, &Value::String(name.clone())))),
            "description" | "unit" | "format" | "default" => true,
            // A keyword that is not implemented refuses everything; a test finds it.
            _ => false,
        }
    }

    fn matches(&self, pattern: &str, text: &str) -> bool {
        let mut patterns = self.patterns.borrow_mut();
        let compiled = patterns.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
        compiled.as_ref().is_some_and(|compiled| compiled.is_match(text))
    }

    fn nearest(&self, name: &str) -> &str {
        self.parameters.keys().min_by_key(|known| distance(known, name)).map_or("", String::as_str)
    }
}

/// A value as JSON, cut where it is long.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
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

/// The edit distance of two names: bytes inserted, removed or replaced.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, wanted) in one.bytes().enumerate() {
        let mut before = line;
        row[0] = line + 1;
        for (column, found) in other.bytes().enumerate() {
            let changed = before + usize::from(wanted != found);
            before = row[column + 1];
            row[column + 1] = changed.min(before + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
