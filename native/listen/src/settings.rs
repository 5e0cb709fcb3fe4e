//! The configuration as the listener reads it: the parameters of the crate `parameters`, with the settings of listener,
//! sinks and servers.
//!
//! Reading a configuration opens nothing. The functions that return the settings of a lane or a sampler read the key files.

use crate::service::Service;
use crate::sink::SinkSettings;
use crate::status::health;
use lines::redact::{RedactionSettings, Rules};
use parameters::Parameters;
use parameters::values::Values;
use queue::lock::Holder;
use queue::{configuration, hex, inspect};
use request::observer::ObserverSettings;
use rules::routes;
use segments::retention::Limits;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use lanes::{Lane, LaneSettings, Role};
pub use parameters::{ParametersError, entries, is_own, plain, queue_directories, user_name};
pub use resource::{Host, Resource, of_environment};

mod lanes;
mod resource;
mod rules;

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

    // The thresholds of health, and how long a process drains: further settings for a process that only listens.

    /// The thresholds of a lane's health.
    #[must_use]
    pub fn health_limits(&self, lane: Lane) -> health::Limits {
        let values = &self.values;
        let interval = match lane {
            Lane::Fast => values.flush_interval_s,
            Lane::Audit => values.audit_commit_interval_s,
        };
        health::Limits {
            backlog_records: values.health_backlog_records,
            backlog_ratio: values.health_backlog_ratio,
            pressured_ratio: values.health_pressured_ratio,
            clear_ratio: values.health_clear_ratio,
            oldest_age_s: interval.as_secs_f64() + values.health_oldest_age_s,
            stuck_after_s: values.stuck_after_s,
        }
    }

    /// Whether processes with this configuration listen themselves.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.values.listener == "thread"
    }

    /// The lanes that are on.
    #[must_use]
    pub fn lanes(&self) -> &'static [Lane] {
        if self.audit.is_some() { &[Lane::Fast, Lane::Audit] } else { &[Lane::Fast] }
    }

    /// Whether a program outside of the core writes the audit lane.
    #[must_use]
    pub fn has_foreign_store(&self) -> bool {
        self.audit.as_ref().is_some_and(|audit| audit.sink != "file")
    }

    /// Returns the settings of a middleware's requests, which count against the budget of `service`.
    ///
    /// # Errors
    /// A sentence that names the parameter: the file of the key cannot be used.
    pub fn observer(&self, service: &Service) -> Result<ObserverSettings, String> {
        self.parameters.observer(service.budget.get())
    }

    /// As [`Self::observer`], for a model, whose requests have no bodies, and parameters in place of headers.
    ///
    /// # Errors
    /// As [`Self::observer`].
    pub fn model_observer(&self, service: &Service) -> Result<ObserverSettings, String> {
        self.parameters.model_observer(service.budget.get())
    }

    /// Whether the ids of other libraries in the process take precedence over those of the request's headers.
    #[must_use]
    pub fn asks_other_libraries(&self) -> bool {
        self.values.trace_source == "auto"
    }

    /// Whether the application gets this package's trace and request id in headers, if the client sent none.
    /// `server_traces`: its own tracing is known to be on.
    #[must_use]
    pub fn forwards(&self, server_traces: bool) -> (bool, bool) {
        match self.values.forward_ids.as_str() {
            "on" => (true, true),
            "auto" => (server_traces, false),
            _ => (false, false),
        }
    }

    /// The path of one of those routes, if it is configured.
    #[must_use]
    pub fn route(&self, parameter: &str) -> Option<&str> {
        routes(&self.values).into_iter().find_map(|(name, path)| path.filter(|_| name == parameter))
    }

    /// Whether the server's own health route also gets the status of the logging.
    #[must_use]
    pub fn wraps_status(&self) -> bool {
        self.values.wrap_health == "status"
    }

    /// Paths at which the middleware answers itself, or adds to the answer.
    #[must_use]
    pub fn routes(&self) -> Box<[String]> {
        routes(&self.values).into_iter().filter_map(|(_, path)| path.map(str::to_owned)).collect()
    }

    /// Returns each queue directory with such records. The queue directory of these settings is `own`.
    #[must_use]
    pub fn of_others(&self, own: &Path) -> Vec<Other> {
        let mine = self.configuration();
        self.beside(own).into_iter().filter_map(|path| look(path, &mine)).collect()
    }

    fn beside(&self, own: &Path) -> Vec<PathBuf> {
        if self.configured_queue_directory().is_none() {
            let all = queue_directories(Some(self.service_name()));
            return all.into_iter().filter(|path| path != own).collect();
        }
        let inside = if is_own(own) { entries(own) } else { Vec::new() };
        inside.into_iter().filter(|path| is_set_aside(path) && is_own(path)).collect()
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

/// Returns the console that the parameter `console` asks for, where standard error is a terminal or is none. The variables are those
/// that terminal programs share: `NO_COLOR`, `FORCE_COLOR` and `TERM`.
fn console(wish: &str, is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Option<SinkSettings> {
    let is_wanted = match wish {
        "on" => true,
        "auto" => is_terminal,
        _ => false,
    };
    is_wanted.then(|| SinkSettings::Console { colours: has_colours(is_terminal, variable) })
}

/// Whether text for people has colours: on a terminal, unless a variable says otherwise.
#[must_use]
pub fn has_colours(is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let is_forced = || is_set("FORCE_COLOR") && variable("FORCE_COLOR").as_deref() != Some("0");
    let is_dumb = || variable("TERM").as_deref() == Some("dumb");
    !is_set("NO_COLOR") && (is_forced() || (is_terminal && !is_dumb()))
}

// Records of other configurations of a service that no running listener writes.

/// A queue directory of another configuration, with records that wait.
pub struct Other {
    pub path: PathBuf,
    /// What waits where, why, and which program writes it.
    pub sentence: String,
    /// Whether a process still produces there.
    pub is_alive: bool,
}

/// Whether a directory has the name of one that was moved aside: a fingerprint, and perhaps a number.
fn is_set_aside(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (digits, number) = name.split_once('-').unwrap_or((&name, "0"));
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    is_number && hex::read::<6>(digits.as_bytes()).is_some()
}

fn look(path: PathBuf, mine: &str) -> Option<Other> {
    let noted = configuration::read(&path).ok()??;
    if noted == mine || inspect::leader(&path) != Holder::Nobody {
        return None;
    }
    let queues = inspect::queues(&path);
    let records = queues.iter().map(|queue| queue.counts.in_queue).sum::<u64>();
    let is_alive = queues.iter().any(|queue| queue.producer != Holder::Nobody);
    let (file, directory) = (path.join(configuration::NAME), path.display());
    let (what, how) = if is_alive {
        ("waiting for a listener", format!("listen --config {} --queue-directory {directory}", file.display()))
    } else {
        ("left", format!("recover --config {} {directory}", file.display()))
    };
    let differences = configuration::differences(&noted, mine).join("; ");
    let noun = if records == 1 { "record" } else { "records" };
    let sentence = format!(
        "{records} {noun} of another configuration {what} in {directory} ({differences}); \
         `inference-logging {how}` writes what its producers said, where they said"
    );
    (records > 0).then_some(Other { path, sentence, is_alive })
}

#[cfg(test)]
mod tests {
    use super::has_colours;

    fn colours(is_terminal: bool, variables: &[(&str, &str)]) -> bool {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        has_colours(is_terminal, find)
    }

    #[test]
    fn a_terminal_has_colours_unless_a_variable_says_otherwise() {
        assert!(colours(true, &[("TERM", "xterm")]) && !colours(false, &[]));
        assert!(!colours(true, &[("NO_COLOR", "1")]) && colours(true, &[("NO_COLOR", "")]));
        assert!(!colours(true, &[("TERM", "dumb")]) && colours(false, &[("FORCE_COLOR", "1"), ("TERM", "dumb")]));
        assert!(!colours(true, &[("FORCE_COLOR", "1"), ("NO_COLOR", "1")]), "a user who wants none gets none");
        assert!(!colours(false, &[("FORCE_COLOR", "0")]) && colours(true, &[("FORCE_COLOR", "0")]));
    }
}
