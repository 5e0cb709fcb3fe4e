//! The configuration: JSON in, the settings of a producer out. The crate `listen` adds those of listener and sinks.
//!
//! Names, limits and defaults come from the published schema (`schema.json`, written by `inference-logging config
//! schema`), so that each is stated once. The rules about several parameters are in `rules`. All problems are reported at
//! once.
//!
//! Reading a configuration opens nothing. The functions that return the settings of a sampler read the key files.
//!
//! A library for small machines contains all of this: it uses neither a general reader of JSON nor one of regular
//! expressions.

mod error;
pub mod json;
pub mod keys;
mod of_many;
mod origin;
pub mod pattern;
mod place;
mod requests;
mod rules;
mod schema;
mod sources;
pub mod values;

use json::{Map, Value};
use queue::producer::QueueSettings;
use queue::severity::{ERROR, INFO, WARN};
use std::path::{Path, PathBuf};
use values::Values;

pub use error::ParametersError;
pub use origin::ascii_json;
pub use place::{entries, is_own, plain, queue_directories, user_name};
pub use schema::Schema;

/// The key of an object with parameters that only experts need; they count like those beside it.
const ADVANCED: &str = "advanced";

/// The parameters of a valid configuration, complete with defaults.
#[derive(Clone, Debug)]
pub struct Parameters {
    pub values: Values,
    /// The names of those that were given.
    given: Vec<String>,
    /// The text of the queue directory's producers, if this is the configuration of one of many directories.
    noted: Option<String>,
}

impl Parameters {
    /// Reads one JSON object: parameters by name, some of them perhaps under `advanced`, and perhaps the `version`.
    ///
    /// # Errors
    /// One sentence for each parameter that is unknown or wrong. If each is valid by itself: one for each rule that
    /// several parameters break together.
    pub fn from_json(json: &[u8], schema: Schema) -> Result<Self, ParametersError> {
        Self::from_values(flat(parsed(json)?)?, schema)
    }

    fn from_values(given: Map, schema: Schema) -> Result<Self, ParametersError> {
        let names = given.keys().map(str::to_owned).collect();
        let values = Values::checked(given, schema)?;
        Ok(Self { values, given: names, noted: None })
    }

    /// Returns a sentence for each rule that several parameters of a producer break together.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        rules::violations(&self.values)
    }

    /// Whether the configuration gives a parameter, rather than leaves it to its default.
    #[must_use]
    pub fn gives(&self, name: &str) -> bool {
        self.given.iter().any(|given| given == name)
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

    /// The directory of the audit lane's output.
    #[must_use]
    pub fn audit_directory(&self) -> PathBuf {
        let beside = || Path::new(self.values.text("directory")).join("audit");
        self.values.maybe_path("audit_directory").unwrap_or_else(beside)
    }

    /// The settings of the queue of a process that serves, in this directory; of any configuration, and without events of its
    /// own.
    #[must_use]
    pub fn queue(&self, directory: PathBuf) -> QueueSettings {
        let values = &self.values;
        let queue_bytes = values.whole("queue_bytes");
        QueueSettings {
            directory,
            queue_bytes,
            in_flight_slots: values.whole("in_flight_slots") as u32,
            max_record_bytes: values.whole("max_record_bytes").min(queue_bytes / 4) as u32,
            overflow_info_ratio: values.number("overflow_info_ratio"),
            wake_bytes: values.whole("flush_bytes"),
            configuration: None,
            events: Vec::new(),
        }
    }
}

/// Parses a JSON object.
fn parsed(json: &[u8]) -> Result<Map, ParametersError> {
    let refused = |why: String| ParametersError { sentences: vec![format!("the configuration: {why}")] };
    let parsed = Value::parse(json).map_err(|error| refused(format!("is no JSON: {error}")))?;
    let Value::Object(given) = parsed else { return Err(refused("must be a JSON object".to_owned())) };
    Ok(given)
}

/// Moves the parameters under `advanced` beside the others.
fn flat(mut given: Map) -> Result<Map, ParametersError> {
    let Some(advanced) = given.remove(ADVANCED) else { return Ok(given) };
    let Value::Object(advanced) = advanced else {
        return Err(vec![format!("{ADVANCED}: must be an object of parameters")].into());
    };
    let twice = advanced.keys().filter(|name| given.contains_key(name));
    let twice: Vec<String> = twice.map(|name| format!("{name}: stands twice, also under {ADVANCED}")).collect();
    if !twice.is_empty() {
        return Err(twice.into());
    }
    for (name, value) in advanced {
        given.insert(name, value);
    }
    Ok(given)
}
