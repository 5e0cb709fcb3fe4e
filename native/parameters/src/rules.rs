//! The rules that several parameters of a producer must fulfil together.

use crate::ParametersError;
use crate::parameters::Parameters;
use crate::texts::of_lines;
use crate::values::Values;
use queue::configuration::differences;
use serde_json::{Map, Value};
use std::path::Path;

/// Bytes of a request record besides captures and timeline: ids, method, route, counters, tags, the engine's facts.
const REQUEST_RECORD_OVERHEAD_BYTES: i64 = 5120;
const GAP_BYTES: i64 = 4;

impl Parameters {
    /// Returns a sentence for each rule that several parameters of a producer break together; it begins with the parameter
    /// to change.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let found = [self.record_in_queue(), facts_in_text(&self.values), record_of_request(self)];
        found.into_iter().flatten().chain(hashes_without_key(self)).collect()
    }

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

/// Most bytes of a request's body and of an answer's that are copied. The modes `full` and `hash` share what
/// `max_record_bytes` leaves, which is negative where that is too small.
pub fn captured_bytes(of: &Parameters) -> [i64; 2] {
    let values = &of.values;
    let fixed = [&values.capture_input, &values.capture_output].map(|mode| match mode.as_str() {
        "off" => Some(facts_bytes(values)),
        "truncated" => Some(facts_bytes(values).max(values.capture_text_bytes as i64)),
        _ => None,
    });
    let taken: i64 = fixed.iter().flatten().sum::<i64>() + body_bytes(values);
    let sharing = fixed.iter().filter(|size| size.is_none()).count() as i64;
    let room = of.max_record_bytes.cast_signed() - least_record_bytes(values) - taken;
    fixed.map(|size| size.unwrap_or_else(|| room.div_euclid(sharing)))
}

/// Most bytes of a request's body that are kept to be written as they are.
pub fn body_bytes(values: &Values) -> i64 {
    if values.capture_body == "raw" { values.capture_text_bytes as i64 } else { 0 }
}

fn facts_bytes(values: &Values) -> i64 {
    (values.capture_head_bytes + values.capture_tail_bytes) as i64
}

/// Of a request record without its captures.
fn least_record_bytes(values: &Values) -> i64 {
    REQUEST_RECORD_OVERHEAD_BYTES + GAP_BYTES * values.chunk_timeline_limit as i64
}

fn facts_in_text(values: &Values) -> Option<String> {
    let (text, head, tail) = (values.capture_text_bytes, values.capture_head_bytes, values.capture_tail_bytes);
    let least = 2 * head.max(tail);
    (is_cut(values) && text < least).then(|| {
        format!(
            "capture_text_bytes={text}: must be at least {least}, twice the larger of capture_head_bytes={head} and \
             capture_tail_bytes={tail}, which are copied in any case; raise it or lower those"
        )
    })
}

fn is_cut(values: &Values) -> bool {
    values.capture_input == "truncated" || values.capture_output == "truncated" || body_bytes(values) > 0
}

fn hashes_without_key(of: &Parameters) -> impl Iterator<Item = String> {
    let modes = [("capture_input", &of.values.capture_input), ("capture_output", &of.values.capture_output)];
    let is_missing = of.capture_hash_key_file.is_none();
    let hashed = modes.into_iter().filter(move |(_, mode)| is_missing && *mode == "hash");
    hashed.map(|(name, _)| format!("{name}='hash': needs capture_hash_key_file"))
}

fn record_of_request(of: &Parameters) -> Option<String> {
    let (values, record) = (&of.values, of.max_record_bytes.cast_signed());
    let captures: i64 = captured_bytes(of).map(|size| size.max(facts_bytes(values))).iter().sum();
    let least = least_record_bytes(values) + captures + body_bytes(values);
    let text =
        if is_cut(values) { format!(" and capture_text_bytes={}", values.capture_text_bytes) } else { String::new() };
    (record < least).then(|| {
        format!(
            "max_record_bytes={record}: must be at least {least} to hold a request record with \
             chunk_timeline_limit={}, capture_head_bytes={} and capture_tail_bytes={}{text}; raise it or lower those",
            values.chunk_timeline_limit, values.capture_head_bytes, values.capture_tail_bytes,
        )
    })
}

// The configuration of one of many queue directories, for a listener that serves all of them.
//
// What producers alone know comes from the text in their directory: which service they are, and what is redacted. All
// else is the listener's own, so the content of shared memory decides neither where nor how much is written.

/// The parameters of producers.
const OF_PRODUCERS: [&str; 5] =
    ["service_name", "redact_fields", "redact_patterns", "redact_custom", "redact_replacement"];
