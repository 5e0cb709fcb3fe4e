//! `Redaction`: the rules of a configuration, compiled once; to check them, and for the listeners of a service.

use crate::redact::{RedactionSettings, Rules};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// What is replaced in lines; `custom` are pairs of name and regular expression.
///
/// Raises ValueError naming the parameter and value that cannot be used.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct Redaction {
    rules: Option<Arc<Rules>>,
}

impl Redaction {
    /// The rules, if there are any.
    pub fn rules(&self) -> Option<Arc<Rules>> {
        self.rules.clone()
    }
}

#[pymethods]
impl Redaction {
    #[new]
    fn new(
        fields: Vec<String>,
        patterns: Vec<String>,
        custom: Vec<(String, String)>,
        replacement: String,
    ) -> PyResult<Self> {
        let settings = RedactionSettings { fields, patterns, custom, replacement };
        let rules = Rules::compile(&settings).map_err(|refused| PyValueError::new_err(refused.to_string()))?;
        Ok(Self { rules })
    }
}
