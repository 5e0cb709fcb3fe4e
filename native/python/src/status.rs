//! Health and metrics for Python: the watch, its findings, and the metrics as text or as plain tuples.

use super::metrics::{exemplar_tuple, queue_dicts, requests_dict, totals_dict};
use super::service::{PyService, listener_dict, sink_dicts};
use lines::series;
use listen::sink::Now;
use listen::status::health::{Answer, Health, HealthWatch, Limits, Reason, Watched, liveness, producers, readiness};
use listen::status::lane::Outside;
use listen::status::metrics::Metrics;
use listen::status::metrics::family::{Family, Sample};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use queue::published::totals;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Status, body, and the seconds until the next request.
type PyAnswer<'py> = (u16, Bound<'py, PyBytes>, u32);
type PyExemplar = (String, String, f64, f64);
/// The suffix of the family's name, the labels, the value and the exemplar.
type PySample = (&'static str, Vec<(&'static str, String)>, f64, Option<PyExemplar>);
/// Name, kind, unit, help and samples.
type PyFamily = (&'static str, &'static str, &'static str, &'static str, Vec<PySample>);

/// One problem, in words and numbers.
#[pyclass(frozen, get_all, module = "inference_logging._native")]
pub struct HealthReason {
    state: &'static str,
    kind: String,
    text: String,
}

impl From<&Reason> for HealthReason {
    fn from(reason: &Reason) -> Self {
        Self { state: reason.state.name(), kind: reason.kind.to_string(), text: reason.text.clone() }
    }
}

/// A state with every reason for it; the worst reason decides.
#[pyclass(frozen, name = "Health", module = "inference_logging._native")]
pub struct PyHealth(Arc<Health>);

impl PyHealth {
    /// What an assessment has found.
    pub fn of(found: Arc<Health>) -> Self {
        Self(found)
    }
}

#[pymethods]
impl PyHealth {
    /// The worst of the reasons' states.
    #[getter]
    fn state(&self) -> &'static str {
        self.0.state().name()
    }

    #[getter]
    fn reasons(&self) -> Vec<HealthReason> {
        self.0.reasons.iter().map(HealthReason::from).collect()
    }

    /// The kind and state of each threshold that counts as reached.
    #[getter]
    fn reached(&self) -> HashSet<(String, &'static str)> {
        self.0.reached().into_iter().map(|(kind, state)| (kind.into_owned(), state.name())).collect()
    }

    /// Whether this process should get requests, as far as its logging is concerned.
    #[getter]
    fn ready(&self) -> bool {
        self.0.is_ready()
    }

    /// Whether the process is alive; False: a restart would help.
    #[getter]
    fn alive(&self) -> bool {
        self.0.is_alive()
    }

    /// The seconds until the next request, if not ready.
    #[getter]
    fn retry_after_s(&self) -> u32 {
        self.0.retry_after_s
    }

    /// Return the answer to a readiness probe: status, JSON body, and the seconds until the next request.
    fn readiness<'py>(&self, py: Python<'py>) -> PyAnswer<'py> {
        answer(py, readiness(&self.0))
    }

    /// Return the answer to a liveness probe.
    fn liveness<'py>(&self, py: Python<'py>) -> PyAnswer<'py> {
        answer(py, liveness(&self.0))
    }

    /// Return the answer for a supervisor that can restart a dead process.
    fn producers<'py>(&self, py: Python<'py>) -> PyAnswer<'py> {
        answer(py, producers(&self.0))
    }
}

fn answer(py: Python<'_>, answer: Answer) -> PyAnswer<'_> {
    (answer.status, PyBytes::new(py, answer.body.as_bytes()), answer.retry_after_s)
}

/// Looks at the logging of a queue directory, and of the audit lane if there is one.
#[pyclass(frozen, name = "HealthWatch", module = "inference_logging._native")]
pub struct PyHealthWatch(Arc<HealthWatch>);

#[pymethods]
impl PyHealthWatch {
    /// Begin to look. Ages and times are in seconds, the backlog in records.
    #[new]
    #[pyo3(signature = (service, audit = None, *, listens, backlog_records, backlog_ratio, pressured_ratio, clear_ratio,
                        oldest_age_s, audit_oldest_age_s, stuck_after_s))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only, one per threshold")]
    fn new(
        py: Python<'_>,
        service: &Bound<'_, PyService>,
        audit: Option<&Bound<'_, PyService>>,
        listens: bool,
        backlog_records: f64,
        backlog_ratio: f64,
        pressured_ratio: f64,
        clear_ratio: f64,
        oldest_age_s: f64,
        audit_oldest_age_s: f64,
        stuck_after_s: f64,
    ) -> Self {
        let watched = |service: &Bound<'_, PyService>, oldest_age_s| {
            let limits =
                Limits { backlog_records, backlog_ratio, pressured_ratio, clear_ratio, oldest_age_s, stuck_after_s };
            Watched { source: service.get().lane(), limits, listens }
        };
        let (fast, audit) = (watched(service, oldest_age_s), audit.map(|audit| watched(audit, audit_oldest_age_s)));
        Self(Arc::new(py.detach(|| HealthWatch::new(fast, audit, Now::read()))))
    }

    /// Look now, and grade the findings.
    fn look(&self, py: Python<'_>) -> PyHealth {
        PyHealth(py.detach(|| self.0.assess(Now::read())))
    }

    /// Return the findings of the last look, or look again if that is a quarter of a second old.
    fn recent(&self, py: Python<'_>) -> PyHealth {
        PyHealth(py.detach(|| self.0.recent(Now::read())))
    }
}

/// The metrics of the queue directory that a watch looks at.
#[pyclass(frozen, name = "Metrics", module = "inference_logging._native")]
pub struct PyMetrics(Metrics);

#[pymethods]
impl PyMetrics {
    /// Show the metrics together with this version of Python.
    #[new]
    fn new(watch: &Bound<'_, PyHealthWatch>, python_version: String) -> Self {
        Self(Metrics::new(Arc::clone(&watch.get().0), Some(python_version)))
    }

    /// Return every family as it is now: name, kind, unit, help and samples. A sample has the suffix of the name, the
    /// labels, the value, and the exemplar or None: trace id, span id, seconds, Unix time.
    ///
    /// Raises OSError if the listener's file cannot be read.
    fn families(&self, py: Python<'_>) -> PyResult<Vec<PyFamily>> {
        let families = py.detach(|| self.0.families(Now::read())).map_err(PyOSError::new_err)?;
        Ok(families.into_iter().map(family_tuple).collect())
    }

    /// Return the metrics and their content type in the best format that the `Accept` header names. They are collected
    /// at most once in a quarter of a second.
    ///
    /// Raises OSError if the listener's file cannot be read.
    fn render<'py>(&self, py: Python<'py>, accept: &str) -> PyResult<(Bound<'py, PyBytes>, String)> {
        let (text, kind) = py.detach(|| self.0.render(accept, Now::read())).map_err(PyOSError::new_err)?;
        Ok((PyBytes::new(py, &text), kind))
    }
}

fn family_tuple(family: Family) -> PyFamily {
    let samples = family.samples.into_iter().map(sample_tuple).collect();
    (family.name, family.kind.name(), family.unit, family.help, samples)
}

fn sample_tuple(sample: Sample) -> PySample {
    let exemplar = sample.exemplar.as_ref().map(exemplar_tuple);
    (sample.suffix, sample.labels, sample.value, exemplar)
}

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
