//! The whole configuration: JSON or lines in, the settings of a producer out.

use crate::common::Common;
use crate::sources::gathered;
use crate::texts::{flat, of_lines};
use crate::values::{self, Values};
use crate::words::ParametersError;
use serde_json::{Map, Value};
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The parameters of a valid configuration, complete with defaults.
#[derive(Clone, Debug)]
pub struct Parameters {
    pub(crate) common: Common,
    pub values: Values,
    /// The names of those that were given.
    given: Vec<String>,
}

impl Parameters {
    /// Reads one JSON object: parameters by name, some of them perhaps under `advanced`, and perhaps the `version`; or lines
    /// of a name and a value.
    ///
    /// # Errors
    /// One sentence for each parameter that is unknown or wrong. If each is valid by itself: one for each rule that
    /// several parameters break together.
    pub fn from_json(json: &[u8]) -> Result<Self, ParametersError> {
        let refused = |why: String| ParametersError { sentences: vec![format!("the configuration: {why}")] };
        let parsed = serde_json::from_slice(json)
            .or_else(|error| of_lines(json).ok_or_else(|| refused(format!("is no JSON: {error}"))))?;
        let Value::Object(given) = parsed else { return Err(refused("must be a JSON object".to_owned())) };
        Self::from_values(&flat(given)?)
    }

    /// Reads a configuration: `keywords` by name, `config_file` perhaps among them, then the variables of `environment`
    /// whose names begin with `INFERENCE_LOGGING_`, then the file that either names.
    ///
    /// # Errors
    /// One sentence for each wrong parameter: where it comes from, the value, and what is allowed.
    pub fn from_sources(
        keywords: &[(&str, &str)],
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ParametersError> {
        Self::from_values(&gathered::<Value>(keywords, environment)?.into_iter().collect())
    }

    pub(crate) fn from_values(given: &Map<String, Value>) -> Result<Self, ParametersError> {
        let (common, values) = values::checked(given)?;
        Ok(Self { common, values, given: given.keys().cloned().collect() })
    }

    /// Whether the configuration gives a parameter, rather than leaves it to its default.
    #[must_use]
    pub fn gives(&self, name: &str) -> bool {
        self.given.iter().any(|given| given == name)
    }

    /// The directory of the audit lane's output.
    #[must_use]
    pub fn audit_directory(&self) -> PathBuf {
        self.beside(self.values.audit_directory.as_deref())
    }

    /// The same settings with this queue directory.
    #[must_use]
    pub fn with_queue_directory(&self, directory: &Path) -> Self {
        Self { common: self.common.with_queue_directory(directory), ..self.clone() }
    }
}

impl Deref for Parameters {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}
