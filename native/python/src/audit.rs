//! The Python face of the audit lane: records whose sequence the caller gets, and the wait for their commit.
//!
//! Each event loop has one thread, which sleeps on the queue's tail while the loop waits, and wakes the loop through an
//! descriptor. There is one wake-up for all records of a commit, from whatever process.

use super::emit::push_context;
use super::held::Held;
use super::service::PyService;
use super::value;
use super::{FunctionDef, bind};
use listen::service::Service;
use listen::sink::file::ChainSettings;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use queue::layout::Reason;
use queue::platform::Event;
use queue::producer::{NotRegistered, Producer};
use queue::queue_file::QueueFile;
use queue::record::Scratch;
use queue::system::mask_signals;
use segments::chain::{self, Algorithm, Chain, START};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// The longest sleep between two looks, so that the death of a leader between a release and its wake-up call is
/// noticed.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The flag in [`Watched::armed`] while the loop waits.
const ARMED: u64 = 1 << 32;

static EMIT: FunctionDef =
    FunctionDef::fast(c"emit", emit, c"Put one record into the queue; return its sequence, or -1 - reason.");

/// The state of a bound `emit` of the audit lane.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct AuditEvent {
    service: Arc<Service>,
    id: u16,
    fields: usize,
    severity: u8,
    context: Option<Held>,
    /// Every so many records, one asks for a commit.
    commit_records: u64,
}

#[pymethods]
impl AuditEvent {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.context.as_ref().map_or(Ok(()), |context| context.visit(&visit))
    }

    fn __clear__(&self, py: Python<'_>) {
        if let Some(context) = &self.context {
            context.clear(py);
        }
    }
}

/// The queue of the audit lane in this process.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct AuditQueue {
    service: Arc<Service>,
    commit_records: u64,
}

#[pymethods]
impl AuditQueue {
    /// Take the queue of the lane's open service. Every `audit_commit_records` records, one asks for a commit.
    #[new]
    fn new(service: &Bound<'_, PyService>) -> Self {
        Self { service: service.get().service(), commit_records: service.get().commit_records() }
    }

    /// Register an event and return its emit function. The function takes one value per field and returns the sequence
    /// of the record, or -1 minus the index of the reason in `reasons`; a refusal is not counted. The same name may be
    /// registered with other fields too. `context` as in `Service.event`.
    ///
    /// Raises ValueError naming the event or field at fault, OSError once the queue has no room for further events.
    #[pyo3(signature = (name, fields, severity, context = None))]
    fn event(
        &self,
        py: Python<'_>,
        name: &str,
        fields: Vec<String>,
        severity: u8,
        context: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        if fields.iter().any(|field| field == chain::NAME) {
            let text = format!("field {:?} is the hash chain's and cannot be redefined", chain::NAME);
            return Err(PyValueError::new_err(text));
        }
        let values = fields.len() - if context.is_some() { 2 } else { 0 };
        let id = self.service.producer.register_form(name, &fields, true).map_err(|error| match error {
            NotRegistered::Refused(why) => PyValueError::new_err(why),
            NotRegistered::NoRoom(why) => PyOSError::new_err(why),
        })?;
        let (service, commit_records) = (Arc::clone(&self.service), self.commit_records);
        let context = context.map(Held::new);
        let event = AuditEvent { service, id, fields: values, severity, context, commit_records };
        bind(&EMIT, Bound::new(py, event)?.as_any())
    }

    /// The share of the room for events that is taken. Each list of fields of an event takes its own part.
    #[getter]
    fn schemas_fill_ratio(&self) -> f64 {
        self.service.producer.queue().map_or(0.0, |queue| queue.file.schemas_fill_ratio())
    }

    /// The names of the reasons to refuse a record.
    #[getter]
    fn reasons(&self) -> Vec<&'static str> {
        queue::layout::REASONS.iter().map(|reason| reason.name()).collect()
    }

    /// Count a record that was refused for the reason with this index, once its caller gives up.
    fn count_refused(&self, reason: usize, severity: u8) {
        self.service.producer.refuse(queue::layout::REASONS[reason], severity);
    }

    /// Return the number of records that were accepted from this process.
    #[getter]
    fn accepted(&self) -> u64 {
        self.queue(|file| file.full_sequence(file.ring().head().sequence))
    }

    /// Return the end of the committed sequences: the first one that is not committed.
    #[getter]
    fn committed(&self) -> u64 {
        self.queue(|file| file.full_sequence(file.released()))
    }

    /// Ask the listener, in whatever process it runs, for a commit before its interval ends.
    fn request_commit(&self) {
        if let Some(queue) = self.service.producer.queue() {
            queue.control.request_flush();
        }
    }

    /// Wait, at most `deadline_s` seconds, until every record before `sequence` is committed; return whether it is.
    fn wait(&self, py: Python<'_>, sequence: u64, deadline_s: f64) -> bool {
        py.detach(|| self.service.wait_released(sequence as u32, Duration::from_secs_f64(deadline_s)))
    }

    /// Begin to watch the commits of this process's queue for one event loop.
    ///
    /// Raises OSError if there is no queue, no descriptor or no thread left.
    fn watch(&self) -> PyResult<CommitWatch> {
        let queue =
            self.service.producer.queue().ok_or_else(|| PyOSError::new_err("the process has no audit queue"))?;
        CommitWatch::start(Arc::clone(&queue.file)).map_err(PyOSError::new_err)
    }
}

impl AuditQueue {
    fn queue(&self, read: impl FnOnce(&QueueFile) -> u64) -> u64 {
        self.service.producer.queue().map_or(0, |queue| read(&queue.file))
    }
}

/// The commits of one queue, as an event loop sees them: a descriptor that becomes readable.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct CommitWatch {
    shared: Arc<Watched>,
    thread: Thread,
}

struct Watched {
    queue: Arc<QueueFile>,
    event: Event,
    /// 0: the loop does not wait. Else [`ARMED`] and the low 32 bits of the sequence that the loop has seen.
    armed: AtomicU64,
    ended: AtomicBool,
}

#[pymethods]
impl CommitWatch {
    /// Return the descriptor.
    fn fileno(&self) -> i32 {
        self.shared.event.descriptor()
    }

    /// Make the descriptor readable with every later commit beyond `seen`.
    fn arm(&self, seen: u64) {
        self.shared.armed.store(ARMED | u64::from(seen as u32), Ordering::Release);
        self.thread.unpark();
    }

    /// Let the thread sleep until `arm`.
    fn disarm(&self) {
        self.shared.armed.store(0, Ordering::Release);
    }

    /// Reset the descriptor; return the end of the committed sequences.
    ///
    /// Raises RuntimeError after a fork: the queue is the parent's.
    fn take(&self) -> PyResult<u64> {
        self.shared.event.reset();
        if self.shared.queue.header().pid != std::process::id() {
            return Err(PyRuntimeError::new_err("the queue is the parent's"));
        }
        Ok(self.shared.queue.full_sequence(self.shared.queue.released()))
    }

    /// End the thread. Idempotent.
    fn close(&self) {
        self.shared.ended.store(true, Ordering::Release);
        self.thread.unpark();
        self.shared.queue.wake_released();
    }
}

impl Drop for CommitWatch {
    fn drop(&mut self) {
        self.close();
    }
}

impl CommitWatch {
    fn start(queue: Arc<QueueFile>) -> io::Result<Self> {
        let event = Event::new()?;
        let shared = Arc::new(Watched { queue, event, armed: AtomicU64::new(0), ended: AtomicBool::new(false) });
        let run = Arc::clone(&shared);
        let handle = std::thread::Builder::new().name("inference-audit".into()).spawn(move || {
            mask_signals();
            run.watch();
        })?;
        Ok(Self { shared, thread: handle.thread().clone() })
    }
}

impl Watched {
    fn watch(&self) {
        while !self.ended.load(Ordering::Acquire) {
            let armed = self.armed.load(Ordering::Acquire);
            if armed == 0 {
                std::thread::park();
                continue;
            }
            let released = self.queue.released();
            if released == armed as u32 {
                self.queue.wait_released(released, LOOK_INTERVAL);
                continue;
            }
            // The watch stays armed, so that in a steady stream of commits the loop need not arm it again.
            let next = ARMED | u64::from(released);
            if self.armed.compare_exchange(armed, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.event.signal();
            }
        }
    }
}

/// A hash chain over lines, for a store that is not a segment.
#[pyclass(module = "inference_logging._native")]
pub struct LineChain {
    chain: Chain,
    /// The chain behind the line that `next` returned last.
    ahead: Chain,
}

#[pymethods]
impl LineChain {
    /// Continue behind the line `last`; None: begin a chain. `key` has 32 bytes.
    ///
    /// Raises ValueError naming the algorithm, key or line at fault.
    #[new]
    #[pyo3(signature = (algorithm, key, last))]
    fn new(algorithm: &str, key: Option<&[u8]>, last: Option<&[u8]>) -> PyResult<Self> {
        let ChainSettings { algorithm, key } = chain_settings(algorithm, key)?;
        let end = last.map_or(Some(START), chain::value_of);
        let end = end.ok_or_else(|| PyValueError::new_err("last: carries no value of a chain"))?;
        let chain = Chain::new(algorithm, key, end);
        Ok(Self { ahead: chain.clone(), chain })
    }

    /// Return `line` with its chain value; `keep` makes it the end of the chain.
    fn next(&mut self, line: Vec<u8>) -> PyResult<std::borrow::Cow<'static, [u8]>> {
        let mut line = line;
        if line.last() != Some(&b'}') {
            return Err(PyValueError::new_err("line: no JSON object"));
        }
        self.ahead = self.chain.clone();
        self.ahead.append(&mut line);
        Ok(line.into())
    }

    /// Continue behind the line that `next` returned last.
    fn keep(&mut self) {
        self.chain = self.ahead.clone();
    }

    /// Return whether `line` is the next of the chain; if so, continue behind it.
    fn check(&mut self, line: &[u8]) -> bool {
        self.chain.check(line).is_ok()
    }
}

/// Reads the settings of a hash chain.
///
/// # Errors
/// ValueError naming the setting that is wrong.
fn chain_settings(name: &str, key: Option<&[u8]>) -> PyResult<ChainSettings> {
    let unknown = || PyValueError::new_err(format!("chain={name:?}: names no hash function"));
    let algorithm = Algorithm::named(name).ok_or_else(unknown)?;
    let key = key.map(<[u8; 32]>::try_from).transpose();
    let key = key.map_err(|_| PyValueError::new_err("chain_key: must have 32 bytes"))?;
    Ok(ChainSettings { algorithm, key })
}

/// # Safety
/// Called by the interpreter only: `this` is an [`AuditEvent`], `arguments` holds `count` live objects.
unsafe extern "C" fn emit(
    this: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        let event = Borrowed::from_ptr(py, this).cast_unchecked::<AuditEvent>().get();
        if count as usize != event.fields {
            return ffi::PyLong_FromLongLong(refused(Reason::SerializeError));
        }
        let mut scratch = Scratch::new();
        if let Some(get) = &event.context {
            push_context(py, get, &mut scratch);
        }
        value::push_all(py, &mut scratch, arguments, count as usize, None);
        ffi::PyLong_FromLongLong(event.offer(&event.service.producer, scratch.as_slice()))
    }
}

impl AuditEvent {
    fn offer(&self, producer: &Producer, payload: &[u8]) -> i64 {
        match producer.offer(self.id, self.severity, payload) {
            Ok((queue, sequence)) => {
                let sequence = queue.file.full_sequence(sequence);
                if (sequence + 1).is_multiple_of(self.commit_records) {
                    queue.control.request_flush();
                }
                sequence.cast_signed()
            }
            Err(reason) => refused(reason),
        }
    }
}

const fn refused(reason: Reason) -> i64 {
    -1 - reason as i64
}
