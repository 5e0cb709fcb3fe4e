//! The settings of requests as a service has them, and the headers with ids.

use super::Settings;
use super::rules::routes;
use crate::service::Service;
use request::observer::ObserverSettings;

impl Settings {
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
}
