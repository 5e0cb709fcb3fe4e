//! `Comparison`: recording switched off and on in slices on running servers, for the command `ab`.

use listener::comparison::Comparison;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use request::runtime::comparison::ArmCounts;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

/// A comparison under way in a queue directory.
#[pyclass(frozen, name = "Comparison", module = "inference_logging._native")]
pub struct PyComparison(Mutex<Comparison>);

impl PyComparison {
    fn inner(&self) -> PyResult<MutexGuard<'_, Comparison>> {
        self.0.lock().map_err(|_| PyRuntimeError::new_err("a call has panicked"))
    }
}

#[pymethods]
impl PyComparison {
    /// Begin a comparison of at most `for_s` seconds; everything is recorded until the first slice.
    ///
    /// Raises OSError with a sentence if the directory cannot be used, another process compares there, nothing is
    /// recorded at the moment, or the beginning could not be put on record.
    #[new]
    fn new(py: Python<'_>, queue_directory: PathBuf, for_s: f64) -> PyResult<Self> {
        let begun = py.detach(|| Comparison::begin(&queue_directory, for_s));
        begun.map(|comparison| Self(Mutex::new(comparison))).map_err(PyOSError::new_err)
    }

    /// Begin a slice, or go on with it for at most a second; nothing is recorded while it `is_off`.
    ///
    /// Raises OSError with a sentence if the comparison was ended by another command or its time, or recording is
    /// switched off.
    fn hold(&self, is_off: bool) -> PyResult<()> {
        self.inner()?.hold(is_off).map_err(PyOSError::new_err)
    }

    /// Return the counts since the beginning, off and on: `requests`, `first_chunks` and `first_chunks_nano`,
    /// `later_chunks` and `later_chunks_nano`.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let [off, on] = self.inner()?.counts();
        Ok((counts_dict(py, &off)?, counts_dict(py, &on)?))
    }

    /// End the comparison: everything is recorded, and the end is on record; further calls do nothing.
    ///
    /// Raises OSError with a sentence if the record was refused; recording is on all the same.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner()?.end().map_err(PyOSError::new_err))
    }
}

fn counts_dict<'py>(py: Python<'py>, counts: &ArmCounts) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("requests", counts.requests)?;
    dict.set_item("first_chunks", counts.first_chunks)?;
    dict.set_item("first_chunks_nano", counts.first_chunks_nano)?;
    dict.set_item("later_chunks", counts.later_chunks)?;
    dict.set_item("later_chunks_nano", counts.later_chunks_nano)?;
    Ok(dict)
}
