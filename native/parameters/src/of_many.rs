//! The configuration of one of many queue directories, for a listener that serves all of them.
//!
//! What producers alone know comes from the text in their directory: which service they are, and what is redacted. All
//! else is the listener's own, so the content of shared memory decides neither where nor how much is written.

use crate::texts::of_lines;
use crate::{Parameters, ParametersError};
use queue::configuration::differences;
use serde_json::{Map, Value};
use std::path::Path;

/// The parameters of producers.
const OF_PRODUCERS: [&str; 5] =
    ["service_name", "redact_fields", "redact_patterns", "redact_custom", "redact_replacement"];

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
    ) -> Result<Self, ParametersError> {
        let Some(Value::Object(given)) = of_lines(noted.as_bytes()) else {
            return Err(vec!["the text in the queue directory is none of a configuration".to_owned()].into());
        };
        let given: Map<_, _> = given.into_iter().filter(|(name, _)| OF_PRODUCERS.contains(&name.as_str())).collect();
        let theirs = Self::from_values(&given)?;
        let mut own = self.clone();
        own.common.service_name = theirs.common.service_name;
        own.values.redact_fields = theirs.values.redact_fields;
        own.values.redact_patterns = theirs.values.redact_patterns;
        own.values.redact_custom = theirs.values.redact_custom;
        own.values.redact_replacement = theirs.values.redact_replacement;
        let compared = own.common.compared.iter_mut().zip(theirs.common.compared);
        let of_producers = compared.filter(|((name, _), _)| OF_PRODUCERS.contains(name));
        of_producers.for_each(|(own, theirs)| *own = theirs);
        let text = own.configuration();
        if text != noted {
            let sentence = format!("another configuration: {}", differences(noted, &text).join("; "));
            return Err(vec![sentence].into());
        }
        own.common.noted = Some(text);
        own.common.queue_directory = Some(queue_directory.to_owned());
        own.common.directory = self.directory().join(below);
        own.values.audit_directory = own.values.audit_directory.map(|audit| audit.join(below));
        own.add_resource(resource);
        Ok(own)
    }

    /// Adds attributes to the resource, those that are not configured.
    fn add_resource(&mut self, attributes: &[(String, String)]) {
        let own = &mut self.values.resource;
        for (name, value) in attributes {
            if own.iter().all(|(known, _)| known != name) {
                own.push((name.clone(), value.clone()));
            }
        }
    }
}
