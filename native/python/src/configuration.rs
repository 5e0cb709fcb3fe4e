//! The configuration text of a queue directory, as Python shows and compares it.

use super::inspect::queue_dicts;
use super::settings::PySettings;
use listen::settings;
use listener::application;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use queue::configuration;
use std::path::PathBuf;

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
