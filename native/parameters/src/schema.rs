//! The published JSON schema: checks a value by the few keywords that the schema uses, and describes what it allows.
//!
//! A build script takes the schema apart into lines, one for each parameter. A process parses the line of one parameter at
//! a time: a whole tree would take more memory than a small machine has for it.

use crate::json::Value;
use crate::pattern;

const PUBLISHED: &str = include_str!(concat!(env!("OUT_DIR"), "/parameters.txt"));
const OF_PRODUCERS: &str = include_str!(concat!(env!("OUT_DIR"), "/producers.txt"));
/// In a description, the allowed values follow these words.
const ALLOWED: &str = " Allowed: ";
/// Longest value that a sentence shows whole, in characters.
const LONGEST_VALUE: usize = 120;

/// The parameters of a schema: a line with the name and the JSON of each.
#[derive(Clone, Copy, Debug)]
pub struct Schema(&'static str);

impl Schema {
    /// The schema of configuration files, as the package publishes it.
    #[must_use]
    pub fn published() -> Self {
        Self(PUBLISHED)
    }

    /// The same, where only a producer's own parameters are checked. Those of the listener are known by name: the listener
    /// checks them when it reads the file.
    #[must_use]
    pub fn of_producers() -> Self {
        Self(OF_PRODUCERS)
    }

    /// Each parameter with its schema, and `version`.
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, Value)> {
        self.lines().map(|(name, json)| (name, parsed(json)))
    }

    /// The schema of one parameter.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<Value> {
        self.lines().find_map(|(known, json)| (known == name).then(|| parsed(json)))
    }

    fn lines(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.0.lines().filter_map(|line| line.split_once(' '))
    }

    /// Returns the problem with a parameter's value as one sentence; None: the value is valid.
    pub fn fault(&self, name: &str, value: &Value) -> Option<String> {
        let Some(schema) = self.parameter(name) else {
            return Some(format!("{name}: unknown parameter, the nearest known is {}", self.nearest(name)));
        };
        let is_valid = is_valid(&schema, value);
        (!is_valid).then(|| self.refusal(name, &wrong_part(&schema, value).unwrap_or_else(|| shown(value))))
    }

    /// Returns the sentence that refuses `value`, in the form in which it is shown, without the password of a URL.
    pub fn refusal(&self, name: &str, value: &str) -> String {
        let schema = self.parameter(name).unwrap_or_default();
        let described = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let allowed = described.rsplit_once(ALLOWED).map(|(_, allowed)| allowed.trim_end_matches('.'));
        let allowed =
            allowed.map_or_else(|| schema.get("const").map(Value::to_string).unwrap_or_default(), str::to_owned);
        let value = without_password(value).unwrap_or_else(|| value.to_owned());
        format!("{name}={value}: must be {allowed}")
    }

    fn nearest(&self, name: &str) -> &'static str {
        self.lines().map(|(known, _)| known).min_by_key(|known| distance(known, name)).unwrap_or_default()
    }
}

fn parsed(json: &str) -> Value {
    Value::parse(json.as_bytes()).unwrap_or_default()
}

/// Shows the first wrong item of a list, with its position.
fn wrong_part(schema: &Value, value: &Value) -> Option<String> {
    let (items, item) = (value.as_array()?, schema.get("items")?);
    let wrong = items.iter().position(|one| !accepts(item, one))?;
    Some(format!("{} (item {})", shown(&items[wrong]), wrong + 1))
}

/// Whether the schema of a parameter allows `value`.
pub fn is_valid(schema: &Value, value: &Value) -> bool {
    // A default needs no pattern to be compiled for it.
    schema.get("default") == Some(value) || accepts(schema, value)
}

fn accepts(schema: &Value, value: &Value) -> bool {
    schema.as_object().is_some_and(|keywords| keywords.iter().all(|(keyword, wanted)| keeps(keyword, wanted, value)))
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
        "pattern" => value.as_str().is_none_or(|text| pattern::matches(wanted.as_str().unwrap_or_default(), text)),
        "maxLength" => value.as_str().is_none_or(|text| Some(text.chars().count() as u64) <= wanted.as_u64()),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| accepts(wanted, item))),
        "maxItems" => value.as_array().is_none_or(|items| Some(items.len() as u64) <= wanted.as_u64()),
        "uniqueItems" => value.as_array().is_none_or(|items| !has_twins(items)),
        "additionalProperties" => {
            value.as_object().is_none_or(|members| members.values().all(|member| accepts(wanted, member)))
        }
        "propertyNames" => {
            value.as_object().is_none_or(|members| members.keys().all(|name| accepts(wanted, &Value::from(name))))
        }
        "description" | "unit" | "format" | "default" => true,
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

/// Reads a size such as `16777216`, `16MiB`, `16 Mi` or `16 MB`; None: it has another form.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0c', '\x0b']);
    let (digits, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()));
    let unit = unit.trim_start_matches([' ', '\t', '\n', '\r', '\x0c', '\x0b']).to_ascii_uppercase();
    let factor = match unit.strip_suffix('B').unwrap_or(&unit) {
        "KI" => 1 << 10,
        "MI" => 1 << 20,
        "GI" => 1 << 30,
        "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "" => 1,
        _ => return None,
    };
    let is_number = !digits.is_empty();
    is_number.then(|| digits.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(factor))
}

/// A value as JSON, cut where it is long.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
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
