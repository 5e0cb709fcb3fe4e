//! `TextCapture`: what a middleware does with the texts of requests and responses.

use crate::capture::{TextCapture, TextLimit};
use crate::record::BodyText;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Modes of both directions, their limits in bytes, and the key of hashes.
#[pyclass(frozen, name = "TextCapture", module = "inference_logging._native")]
pub struct PyTextCapture {
    pub settings: TextCapture,
}

#[pymethods]
impl PyTextCapture {
    /// Take the modes (`off`, `truncated`, `full` or `hash`), the bytes copied of a body, and 32 bytes of a key or None.
    #[new]
    #[pyo3(signature = (*, input_mode, input_bytes, output_mode, output_bytes, hash_key))]
    fn new(
        input_mode: &str,
        input_bytes: usize,
        output_mode: &str,
        output_bytes: usize,
        hash_key: Option<[u8; 32]>,
    ) -> PyResult<Self> {
        let input = TextLimit { text: mode("input_mode", input_mode)?, bytes: input_bytes };
        let output = TextLimit { text: mode("output_mode", output_mode)?, bytes: output_bytes };
        Ok(Self { settings: TextCapture { input, output, hash_key } })
    }
}

fn mode(name: &str, mode: &str) -> PyResult<BodyText> {
    match mode {
        "off" => Ok(BodyText::Withheld),
        "truncated" | "full" => Ok(BodyText::Written),
        "hash" => Ok(BodyText::Hashed),
        other => Err(PyValueError::new_err(format!("{name}={other:?}: must be off, truncated, full or hash"))),
    }
}
