//! `Settings`: a configuration in the core's form, parsed once for everything that it opens.

use listen::settings::Settings;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

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

    /// Read the key of the audit chain, 32 bytes; None: there is none.
    ///
    /// Raises OSError, naming the parameter, if its file cannot be used.
    fn audit_chain_key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = self.0.audit_chain_key().map_err(PyOSError::new_err)?;
        Ok(key.map(|key| PyBytes::new(py, &key)))
    }
}
