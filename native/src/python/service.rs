//! `Service`: the queue and listener of one process, as `inference_logging.logger` opens it.

use super::audit::chain_settings;
use super::emit::{self, Event};
use super::foreign::ACTIVE_SPAN;
use super::inspect::{counts_dict, holder_name, queue_dicts};
use super::metrics;
use super::redaction::Redaction;
use super::writer::python_sink;
use crate::budget::Budget;
use crate::control::Control;
use crate::event::ADJUSTED_COUNT;
use crate::housekeeper::{Compression, HousekeepingSettings};
use crate::housekeeping_words::HousekeepingWords;
use crate::inspect;
use crate::leader::ListenerSettings;
use crate::producer::QueueSettings;
use crate::retention::{Limits, REASONS as REMOVAL_REASONS};
use crate::series;
use crate::service::Service;
use crate::sink::file::{DurableSettings, FileSinkConfig};
use crate::sink::{DeliverySettings, SinkSettings};
use crate::sink_words::{SinkRole, SinkWords};
use crate::system::now_monotonic_nano;
use crate::totals;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The queue and, unless another process listens, the listener thread of this process.
#[pyclass(frozen, name = "Service", module = "inference_logging._native")]
pub struct PyService {
    service: Arc<Service>,
    directory: PathBuf,
    /// Also valid in a forked child that has no queue yet.
    control: Control,
}

impl PyService {
    /// The service itself.
    pub fn service(&self) -> Arc<Service> {
        Arc::clone(&self.service)
    }
}

#[pymethods]
impl PyService {
    /// Create the queue and start the listener.
    ///
    /// Raises OSError if the queue, the sink or the thread cannot be had, naming the parameter.
    #[new]
    #[pyo3(signature = (*, queue_directory, queue_bytes, in_flight_slots, max_record_bytes, overflow_info_ratio, listener, sink, fallback, fallback_delay_s,
                        additional_sinks, sink_buffer_bytes, directory,
                        segment_prefix, flush_interval_s, flush_records, flush_bytes, rotate_bytes, rotate_interval_s,
                        writeback_bytes, retention_s, quota_bytes, retention_waits_for, compress_level, compress_keep_segments, redaction, hash_key = None,
                        durable = false, chain = None, chain_key = None, writer = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only, one per setting")]
    fn new(
        py: Python<'_>,
        queue_directory: PathBuf,
        queue_bytes: u64,
        in_flight_slots: u32,
        max_record_bytes: u32,
        overflow_info_ratio: f64,
        listener: bool,
        sink: &str,
        fallback: Option<&str>,
        fallback_delay_s: f64,
        additional_sinks: Vec<String>,
        sink_buffer_bytes: usize,
        directory: PathBuf,
        segment_prefix: String,
        flush_interval_s: f64,
        flush_records: u64,
        flush_bytes: usize,
        rotate_bytes: u64,
        rotate_interval_s: f64,
        writeback_bytes: u64,
        retention_s: f64,
        quota_bytes: u64,
        retention_waits_for: Vec<String>,
        compress_level: Option<i32>,
        compress_keep_segments: usize,
        redaction: &Redaction,
        hash_key: Option<[u8; 32]>,
        durable: bool,
        chain: Option<&str>,
        chain_key: Option<&[u8]>,
        writer: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let sink_text = sink;
        let segments = FileSinkConfig {
            dir: directory,
            prefix: segment_prefix,
            boot_id: String::new(),
            rotate_bytes,
            rotate_interval: Duration::from_secs_f64(rotate_interval_s),
            writeback_bytes,
            durable: durable_settings(durable, chain, chain_key)?,
        };
        let sink = |parameter: &str, text: &str| {
            let refused = || PyValueError::new_err(format!("{parameter}={text:?}: names no sink"));
            SinkSettings::parse(text, &segments).ok_or_else(refused)
        };
        let sinks = DeliverySettings {
            primary: writer.map_or_else(|| sink("sink", sink_text), |writer| Ok(python_sink(sink_text, writer)))?,
            fallback: fallback.map(|text| sink("fallback", text)).transpose()?,
            fallback_delay: Duration::from_secs_f64(fallback_delay_s),
            additional: additional_sinks.iter().map(|text| sink("additional_sinks", text)).collect::<PyResult<_>>()?,
            buffer_bytes: sink_buffer_bytes,
        };
        let limits = Limits { retention: Duration::from_secs_f64(retention_s), quota_bytes };
        let compression = compress_level.map(|level| Compression { level, keep_segments: compress_keep_segments });
        let waits_for = (retention_waits_for, segments.dir.clone());
        let housekeeping =
            HousekeepingSettings::new(sinks.directories(), &segments.prefix, limits, compression, waits_for);
        let queue = QueueSettings {
            directory: queue_directory.clone(),
            queue_bytes,
            in_flight_slots,
            max_record_bytes,
            overflow_info_ratio,
            wake_bytes: flush_bytes as u64,
        };
        let listening = ListenerSettings {
            queue_directory: queue_directory.clone(),
            flush_interval: Duration::from_secs_f64(flush_interval_s),
            flush_records,
            flush_bytes,
            housekeeping,
            redaction: redaction.rules(),
            hash_key,
        };
        let service = py.detach(|| Service::open(queue, listening, sinks, listener)).map_err(PyOSError::new_err)?;
        let control = service.control().expect("an open service has a control page");
        Ok(Self { service, directory: queue_directory, control })
    }

    /// Register an event and return its emit function, which takes one value per field.
    ///
    /// `context` is the `get` of a ContextVar that holds RequestIds: then `fields` must begin with `trace` and
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
        // An event that has a weight of its own is not thinned: it would have two.
        let thinned = self.service.budget.get().is_some() && !fields.iter().any(|field| field == ADJUSTED_COUNT);
        let weight = thinned.then(|| ADJUSTED_COUNT.to_owned());
        let fields: Vec<String> = fields.into_iter().chain(weight).collect();
        let id = self.service.producer.register(name, &fields).map_err(PyValueError::new_err)?;
        Event::registered(py, self.service(), id, values, thinned, severity, context)
    }

    /// Say that this process serves nothing: no other listener need go on for its sake.
    fn set_only_listens(&self) {
        if let Some(queue) = self.service.producer.queue() {
            queue.file.header().only_listens.store(1, Ordering::Relaxed);
        }
    }

    /// Name this process, whose death is then told by name.
    fn set_producer_name(&self, name: &str) {
        self.service.producer.set_name(name);
        if let Some(queue) = self.service.producer.queue() {
            totals::forget_death(&self.directory, &queue.file.header().producer_name());
        }
    }

    /// Return the names of processes that have died, had a name, and are not there again.
    fn dead_producers(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| totals::dead_producers(&self.directory))
    }

    /// Limit application records to so many per second and call site, from now on; call it before any is registered.
    fn set_budget(&self, records_s: u32) {
        let _ = self.service.budget.set(Budget::new(records_s));
    }

    /// Make application records go to this service, from `least_severity` on, with the ids that `active_span` reads.
    #[pyo3(signature = (least_severity, active_span = None))]
    fn make_current(&self, least_severity: u8, active_span: Option<Bound<'_, PyAny>>) {
        ACTIVE_SPAN.set(active_span);
        emit::set_current(Some(&self.service), least_severity);
    }

    /// Wait until everything accepted so far is written, at most `deadline_s` seconds; return whether it is.
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

    /// Start anew in a forked child: its own queue, its own listener, at its first record.
    fn after_fork_in_child(&self) {
        self.service.after_fork_in_child();
    }

    /// Return this process's counts; None in a forked child that has not logged yet.
    fn books<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(books) = self.service.books() else { return Ok(None) };
        let dict = counts_dict(py, &books)?;
        dict.set_item("bytes_in_queue", books.bytes_in_queue)?;
        Ok(Some(dict))
    }

    /// Return every queue of the directory: its counts, `used_bytes` of `capacity_bytes`, `oldest_unix_nano`, the time of
    /// the oldest record that waits (None: none does), `in_flight`, the requests that have a slot, its `producer`
    /// (`here`, `elsewhere`, or `nobody` once that has closed it or died), and whether that one `only_listens`.
    fn queues<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        queue_dicts(py, &self.directory)
    }

    /// Return the counts of the queue directory since it was created, those of queues that have ended included: none
    /// ever goes back.
    fn totals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let totals = py.detach(|| totals::of_directory(&self.control.page().totals, &self.directory));
        metrics::totals_dict(py, &totals)
    }

    /// Return what is counted of requests, each as many times as its record says: all of them by outcome (`outcomes`);
    /// what they took of `tokens`, one for each type and combination of labels; and `histograms` over those for inference,
    /// one for each name and combination of labels. `buckets` are (upper bound in seconds, requests up to it, exemplar or
    /// None), an exemplar is (trace id, span id, seconds, Unix time).
    ///
    /// Raises OSError if the listener's file cannot be read.
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counted = py.detach(|| series::read(&self.directory))?;
        metrics::requests_dict(py, &counted)
    }

    /// Return what the leading listener of the queue directory publishes, and about it: `leader` is `here`, `elsewhere` or
    /// `nobody`, `heartbeat_age_s` the time since its last round (None: none led since the machine started).
    fn listener_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = PyDict::new(py);
        let page = self.control.page();
        stats.set_item("leader", holder_name(py.detach(|| inspect::leader(&self.directory))))?;
        stats.set_item("heartbeat_age_s", self.control.heartbeat_age_s(now_monotonic_nano()))?;
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

    /// Return what the leading listener publishes about each of its sinks, the primary first.
    fn sinks<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let rows = self.control.page().sinks.iter();
        rows.filter_map(|row| row.role().map(|role| sink_dict(py, row, role))).collect()
    }
}

/// Adds what was removed, by reason, and compressed.
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

fn durable_settings(durable: bool, chain: Option<&str>, key: Option<&[u8]>) -> PyResult<Option<DurableSettings>> {
    let chain = chain.map(|name| chain_settings(name, key)).transpose()?;
    Ok(durable.then_some(DurableSettings { chain }))
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
    let errno = row.last_errno.load(Ordering::Relaxed).cast_signed();
    let last_error = (errno != 0).then(|| std::io::Error::from_raw_os_error(errno).to_string());
    let dict = PyDict::new(py);
    dict.set_item("name", row.name())?;
    dict.set_item("role", role.name())?;
    dict.set_item("state", row.state().name())?;
    dict.set_item("since_unix_nano", row.since_unix_nano())?;
    dict.set_item("last_error", last_error)?;
    dict.set_item("records_written", row.records_written.load(Ordering::Relaxed))?;
    dict.set_item("bytes_written", row.bytes_written.load(Ordering::Relaxed))?;
    dict.set_item("records_dropped", row.records_dropped.load(Ordering::Relaxed))?;
    dict.set_item("errors", errors)?;
    dict.set_item("write_seconds", write_seconds)?;
    Ok(dict)
}
