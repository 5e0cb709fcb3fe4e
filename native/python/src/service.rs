//! `Service`: the queue and listener of one process, as `inference_logging.record.logger` opens it.

use super::commands::python_sink;
use super::emit::{self, Event};
use super::foreign::ACTIVE_SPAN;
use super::metrics;
use super::metrics::{counts_dict, queue_dicts};
use super::settings::PySettings;
use super::waiting;
use lines::series;
use listen::service::Service;
use listen::settings::{Lane, Role};
use listen::status;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use queue::control::Control;
use queue::event::ADJUSTED_COUNT;
use queue::inspect;
use queue::published::housekeeping::{HousekeepingWords, REASONS as REMOVAL_REASONS};
use queue::published::sinks::{SinkRole, SinkWords};
use queue::published::totals;
use queue::system::now_monotonic_nano;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The queue and, unless another process listens, the listener thread of this process.
#[pyclass(frozen, name = "Service", module = "inference_logging._native")]
pub struct PyService {
    service: Arc<Service>,
    directory: PathBuf,
    /// The control works also in a forked child that has no queue yet.
    control: Control,
    commit_records: u64,
}

impl PyService {
    /// The service itself.
    pub fn service(&self) -> Arc<Service> {
        Arc::clone(&self.service)
    }

    /// The number of audit records after which a commit is asked for.
    pub fn commit_records(&self) -> u64 {
        self.commit_records
    }

    /// The lane, as health and metrics look at it.
    pub fn lane(&self) -> status::lane::Lane {
        status::lane::Lane { service: self.service(), directory: self.directory.clone(), control: self.control }
    }
}

#[pymethods]
impl PyService {
    /// Create the queue of a lane (`fast` or `audit`) and start its listener.
    ///
    /// `writer` is the store of the audit lane if that is a database: it takes the lines of each batch, and None at the
    /// end.
    ///
    /// Raises OSError, naming the parameter, if the queue, the sink, a key or the thread is not available; ValueError
    /// for another lane.
    #[new]
    #[pyo3(signature = (settings, lane, *, writer = None))]
    fn new(py: Python<'_>, settings: &PySettings, lane: &str, writer: Option<Py<PyAny>>) -> PyResult<Self> {
        let named = Lane::named(lane);
        let lane = named.ok_or_else(|| PyValueError::new_err(format!("lane={lane:?}: must be fast or audit")))?;
        let store = writer.map(|writer| python_sink("sqlite", writer));
        let lane = settings.of().lane(lane, Role::Serves, true, store).map_err(PyOSError::new_err)?;
        let directory = lane.queue.directory.clone();
        let service = py.detach(|| lane.open()).map_err(PyOSError::new_err)?;
        let control = service.control().expect("an open service has a control page");
        Ok(Self { service, directory, control, commit_records: settings.of().values.audit_commit_records })
    }

    /// Register an event and return its emit function, which takes one value per field.
    ///
    /// `context` is the `get` of a ContextVar that holds RequestIds. Then `fields` must begin with `trace` and
    /// `request_id`, which emit fills in itself. Raises ValueError naming the event or field at fault.
    #[pyo3(signature = (name, fields, severity, context = None))]
    fn event(
        &self,
        py: Python<'_>,
        name: &str,
        fields: Vec<String>,
        severity: u8,
        context: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let values = fields.len() - if context.is_some() { 2 } else { 0 };
        // An event with a weight of its own is not thinned, since it would have two weights.
        let thinned = self.service.budget.get().is_some() && !fields.iter().any(|field| field == ADJUSTED_COUNT);
        let weight = thinned.then(|| ADJUSTED_COUNT.to_owned());
        let fields: Vec<String> = fields.into_iter().chain(weight).collect();
        let id = self.service.producer.register(name, &fields).map_err(PyValueError::new_err)?;
        Event::registered(py, self.service(), id, values, thinned, severity, context)
    }

    /// Name this process, so that its death is reported by name.
    fn set_producer_name(&self, name: &str) {
        self.service.producer.set_name(name);
        if let Some(queue) = self.service.producer.queue() {
            totals::forget_death(&self.directory, &queue.file.header().producer_name());
        }
    }

    /// Return the names of processes that have died and have not come back.
    fn dead_producers(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| totals::dead_producers(&self.directory))
    }

    /// Send application records to this service, from `least_severity` on, with the ids that `active_span` reads; with
    /// `takes_waiting` also the records that were made before a service was open.
    #[pyo3(signature = (least_severity, active_span = None, takes_waiting = true))]
    fn make_current(&self, least_severity: u8, active_span: Option<Bound<'_, PyAny>>, takes_waiting: bool) {
        ACTIVE_SPAN.set(active_span);
        emit::set_current(Some(&self.service), least_severity);
        if takes_waiting {
            waiting::release(&self.service, least_severity);
        }
    }

    /// Wait, at most `deadline_s` seconds, until everything accepted so far is written; return whether it is.
    fn flush(&self, py: Python<'_>, deadline_s: f64) -> bool {
        py.detach(|| self.service.flush(Duration::from_secs_f64(deadline_s)))
    }

    /// Refuse new records, drain within `deadline_s` seconds and end the listener; return whether all was written.
    fn close(&self, py: Python<'_>, deadline_s: f64) -> bool {
        if emit::is_current(&self.service) {
            emit::set_current(None, 0);
        }
        py.detach(|| self.service.close(Duration::from_secs_f64(deadline_s)))
    }

    /// Start anew in a forked child: it gets its own queue and listener at its first record.
    fn after_fork_in_child(&self) {
        self.service.after_fork_in_child();
    }

    /// Return this process's counts; None in a forked child that has not logged yet.
    fn books<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(books) = self.service.counts() else { return Ok(None) };
        let dict = counts_dict(py, &books)?;
        dict.set_item("bytes_in_queue", books.bytes_in_queue)?;
        Ok(Some(dict))
    }

    /// Return every queue of the directory: its counts, `used_bytes` of `capacity_bytes`, `oldest_unix_nano`, the time
    /// of the oldest record that waits (None: none does), `in_flight`, the requests that have a slot, its `producer`
    /// (`here`, `elsewhere`, or `nobody` once the producer has closed it or died), and whether the producer
    /// `only_listens`.
    fn queues<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        queue_dicts(py, &self.directory)
    }

    /// Return the counts of the queue directory since it was created, ended queues included. They never decrease.
    fn totals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let totals = py.detach(|| totals::of_directory(&self.control.page().totals, &self.directory));
        metrics::totals_dict(py, &totals)
    }

    /// Return the counts of requests, each weighted as its record says: all of them by outcome (`outcomes`); their
    /// `tokens`, one count for each type and combination of labels; and `histograms` over those for inference, one for
    /// each name and combination of labels. `buckets` are (upper bound in seconds, requests up to it, exemplar or
    /// None), an exemplar is (trace id, span id, seconds, Unix time). `routes` has the same of all requests over HTTP, one
    /// for each route, method and status (0: no answer began), without exemplars.
    ///
    /// Raises OSError if the listener's file cannot be read.
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counted = py.detach(|| series::read(&self.directory))?;
        metrics::requests_dict(py, &counted)
    }

    /// Return what the leading listener of the queue directory publishes, and its state: `leader` is `here`,
    /// `elsewhere` or `nobody`, `heartbeat_age_s` the time since its last round (None: no listener has led since the
    /// machine started). Two items concern this process: `queue_missing`, whether its queue is not where a listener
    /// finds it, and `queue_renewals`, how often another queue has replaced a missing one.
    fn listener_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = listener_dict(py, &self.control, &self.directory)?;
        stats.set_item("queue_missing", py.detach(|| self.service.producer.is_lost_sight_of()))?;
        stats.set_item("queue_renewals", self.service.producer.renewals())?;
        Ok(stats)
    }

    /// Return what the leading listener publishes about each of its sinks, the primary first.
    fn sinks<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        sink_dicts(py, &self.control)
    }
}

/// What the leading listener of a queue directory publishes, and its state.
pub fn listener_dict<'py>(py: Python<'py>, control: &Control, directory: &Path) -> PyResult<Bound<'py, PyDict>> {
    let stats = PyDict::new(py);
    let page = control.page();
    stats.set_item("leader", py.detach(|| inspect::leader(directory)).name())?;
    stats.set_item("heartbeat_age_s", control.heartbeat_age_s(now_monotonic_nano()))?;
    stats.set_item("leader_pid", page.leader_pid.load(Ordering::Relaxed))?;
    stats.set_item("leaders", page.leaders.load(Ordering::Relaxed))?;
    stats.set_item("heartbeat_unix_nano", page.heartbeat_unix_nano.load(Ordering::Relaxed))?;
    stats.set_item("records_written", page.records_written.load(Ordering::Relaxed))?;
    stats.set_item("taken_from_queues", page.taken_from_queues.load(Ordering::Acquire))?;
    stats.set_item("bytes_written", page.bytes_written.load(Ordering::Relaxed))?;
    stats.set_item("batches_written", page.batches_written.load(Ordering::Relaxed))?;
    stats.set_item("sink_errors", page.sink_errors.load(Ordering::Relaxed))?;
    stats.set_item("restarts", page.listener_restarts.load(Ordering::Relaxed))?;
    stats.set_item("fallback_active", page.fallback_active.load(Ordering::Relaxed) != 0)?;
    stats.set_item("listener_cpu_s", page.listener_cpu_nano.load(Ordering::Relaxed) as f64 / 1e9)?;
    housekeeping_items(&stats, &page.housekeeping)?;
    Ok(stats)
}

/// What the leading listener publishes about each of its sinks, the primary first.
pub fn sink_dicts<'py>(py: Python<'py>, control: &Control) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let rows = control.page().sinks.iter();
    rows.filter_map(|row| row.role().map(|role| sink_dict(py, row, role))).collect()
}

/// Adds the removed segments by reason, and the compressed ones.
fn housekeeping_items(stats: &Bound<'_, PyDict>, words: &HousekeepingWords) -> PyResult<()> {
    for (name, counters) in [("segments_removed", &words.segments_removed), ("removed_bytes", &words.removed_bytes)] {
        let by_reason = PyDict::new(stats.py());
        for reason in REMOVAL_REASONS {
            by_reason.set_item(reason.name(), counters[reason as usize].load(Ordering::Relaxed))?;
        }
        stats.set_item(name, by_reason)?;
    }
    stats.set_item("segments_compressed", words.segments_compressed.load(Ordering::Relaxed))?;
    stats.set_item("compressed_from_bytes", words.compressed_from_bytes.load(Ordering::Relaxed))?;
    stats.set_item("compressed_to_bytes", words.compressed_to_bytes.load(Ordering::Relaxed))?;
    stats.set_item("housekeeping_errors", words.errors.load(Ordering::Relaxed))
}

fn sink_dict<'py>(py: Python<'py>, row: &SinkWords, role: SinkRole) -> PyResult<Bound<'py, PyDict>> {
    let errors = PyDict::new(py);
    for (kind, count) in row.errors() {
        errors.set_item(kind.name(), count)?;
    }
    let (buckets, nano, writes) = row.write_times();
    let write_seconds = PyDict::new(py);
    write_seconds.set_item("buckets", buckets)?;
    write_seconds.set_item("sum", nano as f64 / 1e9)?;
    write_seconds.set_item("count", writes)?;
    let dict = PyDict::new(py);
    dict.set_item("name", row.name())?;
    dict.set_item("role", role.name())?;
    dict.set_item("state", row.state().name())?;
    dict.set_item("since_unix_nano", row.since_unix_nano())?;
    dict.set_item("last_error", row.last_error())?;
    dict.set_item("records_written", row.records_written.load(Ordering::Relaxed))?;
    dict.set_item("bytes_written", row.bytes_written.load(Ordering::Relaxed))?;
    dict.set_item("records_dropped", row.records_dropped.load(Ordering::Relaxed))?;
    dict.set_item("errors", errors)?;
    dict.set_item("write_seconds", write_seconds)?;
    Ok(dict)
}
