//! Rows of records for a table of DuckDB's, which reads them by Arrow's C stream interface.

use crate::arrow::{Batch, Stream};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyCapsule;
use segments::rows::{Rows, Shape};
use std::sync::Arc;

/// Reads lines as rows.
#[pyclass(frozen)]
pub struct RowReader(Shape);

#[pymethods]
impl RowReader {
    /// `columns`: name and SQL type of each. `texts`: members that must be texts in a plain line; `refused`: those that
    /// none has. Raises ValueError.
    #[new]
    fn new(columns: Vec<(String, String)>, texts: Vec<String>, refused: Vec<String>) -> PyResult<Self> {
        let shape = Shape::new(&columns, texts, refused);
        shape.map(Self).ok_or_else(|| PyValueError::new_err("columns: of unknown types, or without timestamp or pid"))
    }

    /// Return the rows of the records among lines, given the offset of each and the time of the record before.
    ///
    /// `judge` returns the text of the time of a record which is not plain, and None for a line that has no row. Raises
    /// what it does.
    fn read(
        &self,
        py: Python<'_>,
        lines: Vec<PyBackedBytes>,
        offsets: Vec<u64>,
        last_ns: u64,
        judge: Py<PyAny>,
    ) -> PyResult<PyRows> {
        py.detach(|| {
            let mut rows = Rows::new(&self.0, last_ns);
            for (line, offset) in lines.iter().zip(offsets) {
                if rows.take(line, offset) {
                    continue;
                }
                let time: Option<String> = Python::attach(|py| judge.call1(py, (line,))?.extract(py))?;
                if let Some(time) = time {
                    rows.take_odd(&time, line.len(), offset);
                }
            }
            let (len, odd, times, last_ns) = (rows.len, rows.odd, rows.times, rows.last_ns);
            let batch = Arc::new(Batch::new(self.0.columns(), rows.finish()));
            Ok(PyRows { rows: len, odd, times, last_ns, batch })
        })
    }
}

/// Rows of some lines, with their number.
#[pyclass(frozen, name = "Rows")]
pub struct PyRows {
    #[pyo3(get)]
    rows: usize,
    #[pyo3(get)]
    odd: usize,
    /// The earliest and the latest, in nanoseconds since the Unix epoch.
    #[pyo3(get)]
    times: Option<(u64, u64)>,
    #[pyo3(get)]
    last_ns: u64,
    batch: Arc<Batch>,
}

#[pymethods]
impl PyRows {
    /// Return a stream of the rows, as Arrow has it.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema; // a wish, which need not be granted
        PyCapsule::new_with_value(py, Stream::new(self.batch.clone()), c"arrow_array_stream")
    }
}
