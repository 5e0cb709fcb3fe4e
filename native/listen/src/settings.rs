//! The configuration as the core reads it: JSON in, the settings of queue, listener, sinks and requests out.
//!
//! Names, limits and defaults come from the published schema (`settings/schema.json`, written by `inference-logging
//! config schema`), so that each is stated once. The rules about several parameters are in `rules`. All problems are
//! reported at once.
//!
//! Reading a configuration opens nothing. The functions that return the settings of a lane or a sampler read the key files.

use lines::redact::{RedactionSettings, Rules};
use queue::severity::{ERROR, INFO, WARN};
use schema::Schema;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use values::Values;

mod health;
mod keys;
mod lanes;
mod origin;
mod others;
mod place;
mod requests;
mod rules;
mod schema;
mod sources;
mod values;

pub use lanes::{Lane, LaneSettings, Role};
pub use origin::ascii_json;
pub use place::{entries, is_own, plain, queue_directories, user_name};

/// The key of an object with parameters that only experts need; they count like those beside it.
const ADVANCED: &str = "advanced";

/// A valid configuration, complete with defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    values: Values,
    /// The names of the parameters that were given.
    given: HashSet<String>,
    redaction: Option<Arc<Rules>>,
}

/// The problems of a configuration. Retrying never helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// One for each problem: it begins with the parameter, and names the value and what is allowed.
    pub sentences: Vec<String>,
}

impl Settings {
    /// Reads one JSON object: parameters by name, some of them perhaps under `advanced`, and perhaps the `version`.
    ///
    /// # Errors
    /// One sentence for each parameter that is unknown or wrong. If each is valid by itself: one for each rule that
    /// several parameters break together.
    pub fn from_json(json: &[u8]) -> Result<Self, SettingsError> {
        Self::from_values(flat(parsed(json)?)?, &Schema::published())
    }

    fn from_values(given: Map<String, Value>, schema: &Schema) -> Result<Self, SettingsError> {
        let names = given.keys().cloned().collect();
        let values = Values::checked(given, schema)?;
        let mut sentences = rules::violations(&values);
        let redaction = Rules::compile(&redaction(&values)).map_err(|refused| sentences.push(refused.to_string()));
        match redaction {
            Ok(redaction) if sentences.is_empty() => Ok(Self { values, given: names, redaction }),
            _ => Err(sentences.into()),
        }
    }
}

impl Settings {
    /// Whether the configuration gives a parameter, rather than leaves it to its default.
    #[must_use]
    pub fn gives(&self, name: &str) -> bool {
        self.given.contains(name)
    }

    /// Whether anything is recorded.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        !self.values.is("enabled", "off")
    }

    /// The least severity of an application's messages, as OpenTelemetry's number.
    #[must_use]
    pub fn least_severity(&self) -> u8 {
        match self.values.text("level").to_ascii_uppercase().as_str() {
            "DEBUG" => 5,
            "WARN" => WARN,
            "ERROR" => ERROR,
            _ => INFO,
        }
    }

    /// Whether records go to the standard output.
    #[must_use]
    pub fn writes_to_stdout(&self) -> bool {
        self.values.is("sink", "stdout")
    }
}

fn redaction(values: &Values) -> RedactionSettings {
    RedactionSettings {
        fields: values.texts("redact_fields"),
        patterns: values.texts("redact_patterns"),
        custom: values.pairs("redact_custom", |expression| expression.as_str().unwrap_or_default().to_owned()),
        replacement: values.text("redact_replacement").to_owned(),
    }
}

/// Parses a JSON object.
fn parsed(json: &[u8]) -> Result<Map<String, Value>, SettingsError> {
    let refused = |why: String| SettingsError { sentences: vec![format!("the configuration: {why}")] };
    let parsed = serde_json::from_slice(json).map_err(|error| refused(format!("is no JSON: {error}")))?;
    let Value::Object(given) = parsed else { return Err(refused("must be a JSON object".to_owned())) };
    Ok(given)
}

/// Moves the parameters under `advanced` beside the others.
fn flat(mut given: Map<String, Value>) -> Result<Map<String, Value>, SettingsError> {
    let Some(advanced) = given.shift_remove(ADVANCED) else { return Ok(given) };
    let Value::Object(advanced) = advanced else {
        return Err(vec![format!("{ADVANCED}: must be an object of parameters")].into());
    };
    let twice = advanced.keys().filter(|name| given.contains_key(*name));
    let twice: Vec<String> = twice.map(|name| format!("{name}: stands twice, also under {ADVANCED}")).collect();
    if !twice.is_empty() {
        return Err(twice.into());
    }
    given.extend(advanced);
    Ok(given)
}

impl SettingsError {
    /// The parameters at fault, in the order of the sentences.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let is_of_name = |byte: char| byte.is_ascii_alphanumeric() || byte == '_';
        self.sentences.iter().map(move |sentence| {
            let end = sentence.find(|byte| !is_of_name(byte)).unwrap_or(sentence.len());
            &sentence[..end]
        })
    }
}

impl From<Vec<String>> for SettingsError {
    fn from(sentences: Vec<String>) -> Self {
        Self { sentences }
    }
}

impl fmt::Display for SettingsError {
    /// One sentence a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentences.join("\n"))
    }
}

impl std::error::Error for SettingsError {}
