//! The values of the whole configuration that texts stand for: variables, and files.

use crate::by_line;
use crate::schema;
use crate::sources::{ADVANCED, Form, VERSION};
use crate::words::ParametersError;
use serde_json::{Map, Number, Value};

impl Form for Value {
    fn of_variable(name: &str, text: &str) -> Self {
        schema::parameter(name).map_or_else(|| Self::from(text), |of| meant(&of, text))
    }

    fn of_file(bytes: &[u8]) -> Result<Vec<(String, Self)>, String> {
        let parsed = serde_json::from_slice(bytes).or_else(|error| {
            let refused = || {
                format!("this program reads JSON (which is YAML, too) or lines of a name and a value, and this file is none: {error}")
            };
            of_lines(bytes).ok_or_else(refused)
        })?;
        let Self::Object(mut values) = parsed else {
            return Err("must be a mapping of parameters to values".to_owned());
        };
        values.entry(VERSION).or_insert(Self::Null);
        Ok(flat(values).map_err(|error| error.to_string())?.into_iter().collect())
    }

    fn fault(&self, name: &str) -> Option<String> {
        schema::fault(name, self)
    }
}

/// The values of lines. None: there is none, or another line.
pub fn of_lines(bytes: &[u8]) -> Option<Value> {
    let pairs = by_line::split(bytes)?.into_iter().map(|(name, text)| {
        let plain = || by_line::is_plain(text).then(|| Value::from(text));
        Some((name.to_owned(), serde_json::from_str(text).ok().or_else(plain)?))
    });
    pairs.collect::<Option<Map<_, _>>>().map(Value::Object)
}

/// Moves the parameters under `advanced` beside the others.
pub fn flat(mut given: Map<String, Value>) -> Result<Map<String, Value>, ParametersError> {
    let Some(advanced) = given.shift_remove(ADVANCED) else { return Ok(given) };
    let Value::Object(advanced) = advanced else {
        return Err(vec![format!("{ADVANCED}: must be an object of parameters")].into());
    };
    let twice = advanced.keys().filter(|name| given.contains_key(*name));
    let twice: Vec<String> = twice.map(|name| format!("{name}: stands twice, also under {ADVANCED}")).collect();
    given.extend(advanced);
    if twice.is_empty() { Ok(given) } else { Err(twice.into()) }
}

/// The value that the text of a variable stands for, by the type of its parameter. A size stays a text.
fn meant(schema: &Value, text: &str) -> Value {
    let forms = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let types = std::iter::once(schema).chain(forms).filter_map(|form| form.get("type")?.as_str());
    let types: Vec<&str> = types.collect();
    let has = |name: &str| types.contains(&name);
    let plain = || Value::from(text);
    if has("array") {
        list(text)
    } else if has("object") {
        let is_ratio = schema.get("additionalProperties").is_some_and(|of| of.get("anyOf").is_some());
        if is_ratio { ratios(text) } else { expressions(text) }
    } else if !has("string") && (has("integer") || has("number")) {
        number(text).unwrap_or_else(plain)
    } else {
        plain()
    }
}

fn number(text: &str) -> Option<Value> {
    let text = text.trim();
    let whole = text.parse::<i64>().ok().map(Value::from);
    whole.or_else(|| Number::from_f64(text.parse().ok()?).map(Value::Number))
}

/// A list in JSON, or texts between commas.
fn list(text: &str) -> Value {
    let is_of_texts = |list: &Value| list.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    let json = || serde_json::from_str(text).ok().filter(is_of_texts);
    let parts = || text.split(',').map(str::trim).map(Value::from).collect();
    match text.trim() {
        "" => Value::Array(Vec::new()),
        trimmed if trimmed.starts_with('[') => json().unwrap_or_else(|| Value::Array(parts())),
        _ => Value::Array(parts()),
    }
}

/// A mapping in JSON, or pairs of a path and a ratio between commas; if a path is given twice, the first counts.
fn ratios(text: &str) -> Value {
    if let Some(found) = mapping(text) {
        return Value::Object(found);
    }
    let (mut pairs, parts) = (Map::new(), list(text));
    for part in parts.as_array().into_iter().flatten().filter_map(Value::as_str) {
        let (path, ratio) = part.rsplit_once('=').unwrap_or(("", part));
        let ratio = ratio.trim();
        if !pairs.contains_key(path.trim()) {
            pairs.insert(path.trim().to_owned(), number(ratio).unwrap_or_else(|| Value::from(ratio)));
        }
    }
    Value::Object(pairs)
}

/// A mapping in JSON, or a line for each name with its expression, which can hold commas. Where a name stands twice, it
/// stays a text, which is refused: a mapping would keep one of the two expressions.
fn expressions(text: &str) -> Value {
    if let Some(found) = mapping(text) {
        return Value::Object(found);
    }
    let mut found = Map::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, expression) = line.split_once('=').unwrap_or((line, ""));
        if found.insert(name.to_owned(), Value::from(expression)).is_some() {
            return Value::from(text);
        }
    }
    Value::Object(found)
}

fn mapping(text: &str) -> Option<Map<String, Value>> {
    let parsed = text.trim_start().starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()?;
    if let Value::Object(members) = parsed { Some(members) } else { None }
}
