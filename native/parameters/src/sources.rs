//! A configuration from its sources: the command line takes precedence over the environment, and the environment over a
//! file.
//!
//! `inference_logging/record/config/config.py` reads the same variables and files. A file here must be JSON, which
//! is YAML too, or have lines of a name and JSON, as `configuration.yaml` has in each queue directory.

use crate::error::ParametersError;
use crate::json::{Map, Value};
use crate::pattern;
use crate::schema::Schema;
use crate::{ADVANCED, Parameters, flat, values};
use std::path::Path;

const PREFIX: &str = "INFERENCE_LOGGING_";
const CONFIG_FILE: &str = "config_file";
const VERSION: &str = "version";
/// Kubernetes gives each pod variables for each Service of its namespace. A Service called inference-logging must not
/// stop it.
const SERVICE_LINK: &str = "^(?:[A-Za-z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Za-z0-9_]+)?\
                            |PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_[A-Za-z0-9_]+)?)?)$";

/// Values with where each comes from, and the problems of their sources.
#[derive(Default)]
struct Gathered {
    values: Map,
    origins: Vec<(String, String)>,
    sentences: Vec<String>,
}

impl Parameters {
    /// Reads a configuration: `keywords` by name, `config_file` perhaps among them, then the variables of `environment`
    /// whose names begin with `INFERENCE_LOGGING_`, then the JSON file that either names.
    ///
    /// # Errors
    /// One sentence for each wrong parameter: where it comes from, the value, and what is allowed.
    pub fn from_sources(
        keywords: &[(&str, &str)],
        environment: impl Iterator<Item = (String, String)>,
        schema: Schema,
    ) -> Result<Self, ParametersError> {
        let mut gathered = Gathered::default();
        for (name, text) in keywords {
            gathered.add(name, Value::from(*text), "keyword".to_owned());
        }
        gathered.add_environment(environment, schema);
        gathered.add_file();
        gathered.parameters(schema)
    }
}

impl Gathered {
    /// Adds a value, unless a stronger source has given one.
    fn add(&mut self, name: &str, value: Value, origin: String) {
        if !self.values.contains_key(name) {
            self.values.insert(name.to_owned(), value);
            self.origins.push((name.to_owned(), origin));
        }
    }

    fn add_environment(&mut self, environment: impl Iterator<Item = (String, String)>, schema: Schema) {
        for (variable, text) in environment {
            let Some(rest) = variable.strip_prefix(PREFIX) else { continue };
            let name = rest.to_ascii_lowercase();
            if is_service_link(rest) {
                continue;
            }
            if name == ADVANCED || name == VERSION {
                self.sentences.push(format!("{name} (environment {variable}): is no parameter with a variable"));
                continue;
            }
            let value = schema.parameter(&name).map_or_else(|| Value::from(text.as_str()), |of| meant(&of, &text));
            self.add(&name, value, format!("environment {variable}"));
        }
    }

    /// Adds the values of the file that is named, if one is.
    fn add_file(&mut self) {
        let Some(Value::String(path)) = self.values.remove(CONFIG_FILE) else { return };
        if path.is_empty() {
            return;
        }
        let path = values::expanded(path);
        match read_file(Path::new(&path)) {
            Ok(values) => values.into_iter().for_each(|(name, value)| self.add(&name, value, "file".to_owned())),
            Err(reason) => self.sentences.push(format!("config_file='{path}': {reason}")),
        }
    }

    fn parameters(mut self, schema: Schema) -> Result<Parameters, ParametersError> {
        let faults = self.values.iter().filter_map(|(name, value)| {
            let origin = self.origins.iter().find_map(|(known, origin)| (known == name).then_some(origin.as_str()));
            let origin = origin.unwrap_or_default();
            schema.fault(name, value).map(|sentence| with_origin(&sentence, origin))
        });
        self.sentences.extend(faults);
        if self.sentences.is_empty() {
            Parameters::from_values(self.values, schema)
        } else {
            Err(self.sentences.into())
        }
    }
}

fn is_service_link(name: &str) -> bool {
    // Other names do not need the pattern.
    (name.ends_with("HOST") || name.contains("PORT")) && pattern::matches(SERVICE_LINK, name)
}

/// Puts the origin of the value into a sentence: behind the value, or behind an unknown name.
fn with_origin(sentence: &str, origin: &str) -> String {
    let end = sentence.rfind(": must be ").or_else(|| sentence.find(": unknown "));
    let (what, why) = sentence.split_at(end.unwrap_or(sentence.len()));
    format!("{what} ({origin}){why}")
}

fn read_file(path: &Path) -> Result<Map, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("can't be read: {error}"))?;
    let parsed = Value::parse(&bytes).or_else(|error| {
        let refused = || format!("this program reads JSON (which is YAML, too), and this file is none: {error}");
        lines_of_json(&bytes).ok_or_else(refused)
    })?;
    let Value::Object(mut values) = parsed else { return Err("must be a mapping of parameters to values".to_owned()) };
    match values.remove(VERSION) {
        Some(version) if version == Value::from(1_u64) => {}
        found => return Err(format!("version={}: must be 1", found.unwrap_or_default())),
    }
    if values.contains_key(CONFIG_FILE) {
        return Err("config_file: a file can't name another file".to_owned());
    }
    flat(values).map_err(|error| error.to_string())
}

/// Lines of a name and JSON behind a colon; comments are left out. None: it has other lines.
pub(crate) fn lines_of_json(bytes: &[u8]) -> Option<Value> {
    let lines = std::str::from_utf8(bytes).ok()?.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs = lines.map(|line| {
        let (name, json) = line.split_once(": ")?;
        Some((name.to_owned(), Value::parse(json.as_bytes()).ok()?))
    });
    pairs.collect::<Option<Map>>().map(Value::Object)
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
    whole.or_else(|| Value::decimal(text))
}

/// A list in JSON, or texts between commas.
fn list(text: &str) -> Value {
    let json =
        || Value::parse(text.as_bytes()).ok().filter(|list| is_of(list.as_array(), |item| item.as_str().is_some()));
    let parts = || text.split(',').map(str::trim).map(Value::from).collect();
    match text.trim() {
        "" => Value::Array(Vec::new()),
        trimmed if trimmed.starts_with('[') => json().unwrap_or_else(|| Value::Array(parts())),
        _ => Value::Array(parts()),
    }
}

fn is_of(list: Option<&Vec<Value>>, test: fn(&Value) -> bool) -> bool {
    list.is_some_and(|list| list.iter().all(test))
}

/// A mapping in JSON, or pairs of a path and a ratio between commas; if a path is given twice, the first counts.
fn ratios(text: &str) -> Value {
    let mut pairs = Map::default();
    let Some(parts) = mapping(text).map_or_else(
        || list(text).as_array().cloned(),
        |found| {
            pairs = found;
            None
        },
    ) else {
        return Value::Object(pairs);
    };
    for part in parts.iter().filter_map(Value::as_str) {
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
    let mut found = Map::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, expression) = line.split_once('=').unwrap_or((line, ""));
        if found.insert(name.to_owned(), Value::from(expression)).is_some() {
            return Value::from(text);
        }
    }
    Value::Object(found)
}

fn mapping(text: &str) -> Option<Map> {
    let parsed = text.trim_start().starts_with('{').then(|| Value::parse(text.as_bytes()).ok()).flatten()?;
    if let Value::Object(members) = parsed { Some(members) } else { None }
}
