//! A queue directory from outside, for `view`: it takes no part, and changes nothing.

use super::inspect::queue_dicts;
use super::metrics::{requests_dict, totals_dict};
use super::service::{listener_dict, sink_dicts};
use super::status::PyHealth;
use lines::series;
use listen::sink::Now;
use listen::status::health::{HealthWatch, Limits, Watched};
use listen::status::outside::Outside;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use queue::published::totals;
use std::path::PathBuf;

/// Looks at the logging of a queue directory from a process that neither produces nor listens there.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct DirectoryWatch(HealthWatch<Outside>);

impl DirectoryWatch {
    fn outside(&self) -> &Outside {
        &self.0.fast.source
    }
}

#[pymethods]
impl DirectoryWatch {
    /// Begin to look. Ages and times are in seconds, the backlog in records. Raises OSError if no process of this
    /// version has used the directory.
    #[new]
    #[pyo3(signature = (queue_directory, *, backlog_records, backlog_ratio, pressured_ratio, clear_ratio, oldest_age_s,
                        stuck_after_s))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only, one per threshold")]
    fn new(
        py: Python<'_>,
        queue_directory: PathBuf,
        backlog_records: f64,
        backlog_ratio: f64,
        pressured_ratio: f64,
        clear_ratio: f64,
        oldest_age_s: f64,
        stuck_after_s: f64,
    ) -> PyResult<Self> {
        let limits =
            Limits { backlog_records, backlog_ratio, pressured_ratio, clear_ratio, oldest_age_s, stuck_after_s };
        let made = py.detach(|| {
            let source = Outside::open(&queue_directory)?;
            Ok::<_, std::io::Error>(HealthWatch::new(Watched { source, limits, listens: false }, None, Now::read()))
        });
        made.map(Self).map_err(|error| PyOSError::new_err(format!("{}: {error}", queue_directory.display())))
    }

    /// Look now, and grade the findings.
    fn look(&self, py: Python<'_>) -> PyHealth {
        PyHealth::of(py.detach(|| self.0.assess(Now::read())))
    }

    /// Return every queue of the directory, as `Service.queues` does.
    fn queues<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        queue_dicts(py, &self.outside().directory)
    }

    /// Return the counts of the queue directory since it was created, as `Service.totals` does.
    fn totals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let lane = self.outside();
        let totals = py.detach(|| totals::of_directory(&lane.control.page().totals, &lane.directory));
        totals_dict(py, &totals)
    }

    /// Return the counts of requests, as `Service.requests` does. Raises OSError if the listener's file cannot be read.
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counted = py.detach(|| series::read(&self.outside().directory))?;
        requests_dict(py, &counted)
    }

    /// Return what the leading listener publishes, and its state.
    fn listener_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        listener_dict(py, &self.outside().control, &self.outside().directory)
    }

    /// Return what the leading listener publishes about each of its sinks, the primary first.
    fn sinks<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        sink_dicts(py, &self.outside().control)
    }
}
