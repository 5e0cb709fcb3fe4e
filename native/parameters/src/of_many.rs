//! The configuration of one of many queue directories, for a listener that serves all of them.
//!
//! What producers alone know comes from the text in their directory: which service they are, and what is redacted. All
//! else is the listener's own, so the content of shared memory decides neither where nor how much is written.

use crate::json::{Map, Value};
use crate::sources::lines_of_json;
use crate::values::Values;
use crate::{Parameters, ParametersError, Schema};
use queue::configuration::differences;
use std::path::Path;

/// The parameters of producers.
const OF_PRODUCERS: [&str; 5] =
    ["service_name", "redact_fields", "redact_patterns", "redact_custom", "redact_replacement"];
const RESOURCE: &str = "resource";

impl Parameters {
    /// Returns the parameters for the records of a queue directory whose producers have `noted` this configuration.
    /// Segments are written to `below` of this configuration's own directories; `resource` has further attributes.
    ///
    /// # Errors
    /// The text is none of a queue directory, or a parameter of producers is wrong; or the producers expect something
    /// else of a listener than this configuration has, and then one sentence names the differences.
    pub fn of_directory(
        &self,
        noted: &str,
        (queue_directory, below): (&Path, &Path),
        resource: &[(String, String)],
        schema: Schema,
    ) -> Result<Self, ParametersError> {
        let Some(Value::Object(given)) = lines_of_json(noted.as_bytes()) else {
            return Err(vec!["the text in the queue directory is none of a configuration".to_owned()].into());
        };
        let given: Map = given.into_iter().filter(|(name, _)| OF_PRODUCERS.contains(&name.as_str())).collect();
        let theirs = Values::checked(given, schema)?;
        let mut own = self.clone();
        OF_PRODUCERS.iter().for_each(|name| own.values.set(name, theirs.json(name).clone()));
        let text = own.configuration();
        if text != noted {
            let sentence = format!("another configuration: {}", differences(noted, &text).join("; "));
            return Err(vec![sentence].into());
        }
        let audit = own.values.maybe_path("audit_directory").map(|audit| audit.join(below));
        own.noted = Some(text);
        own.values.set_path("queue_directory", queue_directory);
        own.values.set_path("directory", &self.directory().join(below));
        audit.iter().for_each(|audit| own.values.set_path("audit_directory", audit));
        own.add_resource(resource);
        Ok(own)
    }

    /// Adds attributes to the resource, those that are not configured.
    fn add_resource(&mut self, attributes: &[(String, String)]) {
        let Value::Object(mut resource) = self.values.json(RESOURCE).clone() else { return };
        for (name, value) in attributes {
            if !resource.contains_key(name) {
                resource.insert(name.clone(), Value::from(value.as_str()));
            }
        }
        self.values.set(RESOURCE, Value::Object(resource));
    }
}
