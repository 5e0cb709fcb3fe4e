//! The configuration as the listener reads it: the parameters of the crate `parameters`, with the settings of listener,
//! sinks and servers.
//!
//! Reading a configuration opens nothing. The functions that return the settings of a lane or a sampler read the key files.

use lines::redact::{RedactionSettings, Rules};
use parameters::Parameters;
use parameters::values::Values;
use segments::retention::Limits;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

mod console;
mod health;
mod lanes;
mod others;
mod requests;
mod resource;
mod rules;

pub use console::has_colours;
pub use lanes::{Lane, LaneSettings, Role};
pub use others::Other;
pub use parameters::{ParametersError, entries, is_own, plain, queue_directories, user_name};
pub use resource::{Host, Resource, of_environment};

/// A valid configuration: its parameters, and what they say about redaction.
#[derive(Clone, Debug)]
pub struct Settings {
    parameters: Parameters,
    redaction: Option<Arc<Rules>>,
}

impl Settings {
    /// Reads one JSON object: parameters by name, some of them perhaps under `advanced`, and perhaps the `version`.
    ///
    /// # Errors
    /// One sentence for each parameter that is unknown or wrong. If each is valid by itself: one for each rule that
    /// several parameters break together.
    pub fn from_json(json: &[u8]) -> Result<Self, ParametersError> {
        Self::new(Parameters::from_json(json)?)
    }

    /// Reads a configuration: `keywords` by name, `config_file` perhaps among them, then the variables of `environment`
    /// whose names begin with `INFERENCE_LOGGING_`, then the JSON file that either names.
    ///
    /// # Errors
    /// One sentence for each wrong parameter: where it comes from, the value, and what is allowed.
    pub fn from_sources(
        keywords: &[(&str, &str)],
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ParametersError> {
        Self::new(Parameters::from_sources(keywords, environment)?)
    }

    fn new(parameters: Parameters) -> Result<Self, ParametersError> {
        let mut sentences = parameters.violations();
        sentences.extend(rules::violations(&parameters));
        sentences.extend(parameters.recorded().err().into_iter().flatten());
        let redaction =
            Rules::compile(&redaction(&parameters.values)).map_err(|refused| sentences.push(refused.to_string()));
        match redaction {
            Ok(redaction) if sentences.is_empty() => Ok(Self { parameters, redaction }),
            _ => Err(sentences.into()),
        }
    }

    /// The same settings with this queue directory.
    #[must_use]
    pub fn with_queue_directory(&self, directory: &Path) -> Self {
        Self { parameters: self.parameters.with_queue_directory(directory), redaction: self.redaction.clone() }
    }

    /// The settings for the records of one of many queue directories, whose producers have `noted` their configuration.
    /// Segments are written to `below` of these settings' directories; `resource` has further attributes.
    ///
    /// # Errors
    /// The text is no configuration, or its producers expect another listener than these settings make.
    pub fn of_directory(
        &self,
        noted: &str,
        places: (&Path, &Path),
        resource: &[(String, String)],
    ) -> Result<Self, ParametersError> {
        Self::new(self.parameters.of_directory(noted, places, resource)?)
    }

    /// How much of the segments of a queue directory is kept, and how long.
    #[must_use]
    pub fn limits_of_segments(&self) -> Limits {
        self.limits(Lane::Fast)
    }

    /// Whether records go to the standard output.
    #[must_use]
    pub fn writes_to_stdout(&self) -> bool {
        self.values.sink == "stdout"
    }
}

impl Deref for Settings {
    type Target = Parameters;

    fn deref(&self) -> &Parameters {
        &self.parameters
    }
}

fn redaction(values: &Values) -> RedactionSettings {
    RedactionSettings {
        fields: values.redact_fields.clone(),
        patterns: values.redact_patterns.clone(),
        custom: values.redact_custom.clone(),
        replacement: values.redact_replacement.clone(),
    }
}
