//! `SegmentIndex`: the index of directories of segments, questions and answers as JSON.

use index::catalog::Catalog;
use index::export::Refused;
use index::query::Wrong;
use index::{face, rows};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::time::Duration;

/// Most seconds of a refresh.
const MOST_BUDGET_S: f64 = 3600.0;

/// The index of the segments of directories.
#[pyclass(frozen, name = "SegmentIndex", module = "inference_logging._native")]
pub struct PySegmentIndex(Catalog);

#[pymethods]
impl PySegmentIndex {
    /// Begin, with nothing indexed. `prefixes`: only these; `cache_directory`: where index files are, by default
    /// `$XDG_CACHE_HOME/inference-logging`.
    ///
    /// Raises OSError naming a directory that cannot be read.
    #[new]
    fn new(
        py: Python<'_>,
        directories: Vec<PathBuf>,
        prefixes: Option<Vec<String>>,
        cache_directory: Option<PathBuf>,
    ) -> PyResult<Self> {
        let prefixes = prefixes.unwrap_or_default();
        let begun = py.detach(|| Catalog::new(&directories, prefixes, cache_directory.as_deref()));
        Ok(Self(begun?))
    }

    /// Look for segments and index them for about `budget_s` seconds, the newest first; return the progress.
    ///
    /// Raises ValueError if `budget_s` is not from 0 to 3600.
    fn refresh<'py>(&self, py: Python<'py>, budget_s: f64) -> PyResult<Bound<'py, PyBytes>> {
        if !(0.0..=MOST_BUDGET_S).contains(&budget_s) {
            return Err(PyValueError::new_err(format!("budget_s={budget_s}: must be from 0 to {MOST_BUDGET_S}")));
        }
        let progress = py.detach(|| face::progress(&self.0.refresh(Duration::from_secs_f64(budget_s))));
        Ok(PyBytes::new(py, &progress))
    }

    /// Return the first records of a query.
    ///
    /// Raises ValueError naming what is wrong in the query.
    fn rows<'py>(&self, py: Python<'py>, query: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        answer(py, py.detach(|| face::rows(&self.0, query)))
    }

    /// Return counts over time, distributions and groups.
    ///
    /// Raises ValueError naming what is wrong in the query.
    fn aggregate<'py>(&self, py: Python<'py>, query: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        answer(py, py.detach(|| face::aggregate(&self.0, query)))
    }

    /// Return the values of a field with their counts, the most frequent first.
    ///
    /// Raises ValueError naming what is wrong in the query.
    fn values<'py>(&self, py: Python<'py>, query: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        answer(py, py.detach(|| face::values(&self.0, query)))
    }

    /// Return the JSON line of a record.
    ///
    /// Raises KeyError if it is gone.
    fn line<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyBytes>> {
        let line = py.detach(|| rows::line(&self.0.snapshot(), key));
        line.map(|line| PyBytes::new(py, &line)).ok_or_else(|| PyKeyError::new_err(key.to_owned()))
    }

    /// Return whole records by a list of keys: a list with null for each that is gone.
    ///
    /// Raises ValueError if it is no list of texts.
    fn lines<'py>(&self, py: Python<'py>, keys: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        answer(py, py.detach(|| face::lines(&self.0, keys)))
    }

    /// Write fields of the records of an event, or of all, as CSV into a new file; return how many records.
    ///
    /// Raises ValueError with the reason if columns do not have it all, OSError if the file cannot be written.
    fn export(&self, py: Python<'_>, fields: Vec<String>, event: Option<String>, path: PathBuf) -> PyResult<u64> {
        let written = py.detach(|| face::export(&self.0, &fields, event.as_deref(), &path));
        written.map_err(|refused| match refused {
            Refused::NotEnough(why) => PyValueError::new_err(why),
            Refused::System(error) => error.into(),
        })
    }

    /// Return the indexed fields with their types.
    #[staticmethod]
    fn fields(py: Python<'_>) -> Bound<'_, PyBytes> {
        PyBytes::new(py, &face::fields())
    }
}

fn answer(py: Python<'_>, answer: Result<Vec<u8>, Wrong>) -> PyResult<Bound<'_, PyBytes>> {
    answer.map(|answer| PyBytes::new(py, &answer)).map_err(|Wrong(sentence)| PyValueError::new_err(sentence))
}
