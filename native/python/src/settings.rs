//! `Settings`: a configuration in the core's form, parsed once for everything that it opens.

use super::metrics::queue_dicts;
use listen::settings::{self, Settings};
use listener::application;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use queue::configuration;
use std::path::PathBuf;

/// A checked configuration.
#[pyclass(frozen, name = "Settings", module = "inference_logging._native")]
pub struct PySettings(Settings);

impl PySettings {
    /// The settings themselves.
    pub fn of(&self) -> &Settings {
        &self.0
    }
}

#[pymethods]
impl PySettings {
    /// Read a configuration: one JSON object of parameters by name.
    ///
    /// Raises ValueError with a line for each parameter that is unknown, wrong, or in conflict with another.
    #[new]
    fn new(json: &[u8]) -> PyResult<Self> {
        Settings::from_json(json).map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The parameters that decide where records go and what is redacted in them, one a line.
    #[getter]
    fn configuration(&self) -> String {
        self.0.configuration()
    }

    /// The directory of the queues: the configured one, or the default for this user, service and configuration.
    #[getter]
    fn queue_directory(&self) -> PathBuf {
        self.0.resolved_queue_directory()
    }

    /// Return a sentence about the default queue directory if another user owns it.
    fn passed_over(&self) -> Option<String> {
        self.0.passed_over()
    }

    /// Return a sentence for each queue directory of another configuration with records that nobody will write.
    fn left_by_others(&self) -> Vec<String> {
        let others = self.0.of_others(&self.0.resolved_queue_directory()).into_iter();
        others.filter(|other| !other.is_alive).map(|other| other.sentence).collect()
    }

    /// Read the key of the audit chain, 32 bytes; None: there is none.
    ///
    /// Raises OSError, naming the parameter, if its file cannot be used.
    fn audit_chain_key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = self.0.audit_chain_key().map_err(PyOSError::new_err)?;
        Ok(key.map(|key| PyBytes::new(py, &key)))
    }
}

/// Return the digits that identify a text in the names of directories and in the headers of segments.
#[pyfunction]
pub fn configuration_fingerprint(text: &str) -> String {
    configuration::fingerprint(text)
}

/// Return the text of a queue directory; None: it has none. Raises OSError if it can't be read.
#[pyfunction]
pub fn configuration_of(queue_directory: PathBuf) -> PyResult<Option<String>> {
    Ok(configuration::read(&queue_directory)?)
}

/// Return the differences between the text of a directory and another text, as sentences.
#[pyfunction]
pub fn configuration_differences(found: &str, wanted: &str) -> Vec<String> {
    configuration::differences(found, wanted)
}

/// Return the queues of a directory, as `Service.queues` does.
#[pyfunction]
pub fn queues_of(py: Python<'_>, queue_directory: PathBuf) -> PyResult<Vec<Bound<'_, PyDict>>> {
    queue_dicts(py, &queue_directory)
}

/// Return the queue directory of the application that a configuration means. With `by_name` the service may be in any
/// folder.
///
/// Raises ValueError with a sentence if it does not exist, or lists several.
#[pyfunction]
pub fn queue_directory(settings: &PySettings, by_name: bool) -> PyResult<PathBuf> {
    application::one(settings.of(), by_name).map_err(PyValueError::new_err)
}

/// Return the queue directories that this user has by default for a service, whatever their configurations are.
#[pyfunction]
pub fn queue_directories(service_name: &str) -> Vec<PathBuf> {
    settings::queue_directories(Some(service_name))
}
