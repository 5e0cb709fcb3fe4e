//! `Settings`: a configuration as the core reads it, parsed once for all that it opens.

use listen::settings::Settings;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A configuration that was checked.
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
    /// Raises ValueError with a line for each parameter that is unknown or wrong, or does not fit to another.
    #[new]
    fn new(json: &[u8]) -> PyResult<Self> {
        Settings::from_json(json).map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// What decides where records go and what is replaced in them: a parameter a line.
    #[getter]
    fn configuration(&self) -> String {
        self.0.configuration()
    }

    /// Read the key of the audit chain, 32 bytes; None: there is none.
    ///
    /// Raises OSError, naming the parameter, if its file cannot be used.
    fn audit_chain_key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = self.0.audit_chain_key().map_err(PyOSError::new_err)?;
        Ok(key.map(|key| PyBytes::new(py, &key)))
    }
}
