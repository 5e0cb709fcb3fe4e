//! `Settings`: a configuration in the core's form, parsed once for everything that it opens.

use listen::settings::Settings;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
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
