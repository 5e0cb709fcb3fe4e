//! `RequestIds`: the part of a request that the context holds, for every record that is made while it is handled.

use super::foreign::{ACTIVE_SPAN, ActiveSpan, with_correlation_id};
use super::gil_cell::GilCell;
use super::set_fields::SetFields;
use super::{FunctionDef, python_bool, raised};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use queue::hex;
use queue::record::{Scratch, Trace};
use request::added::{AddedFields, Members};
use request::ids::{RequestIds, parse_span_id, traceparent};
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering};

/// The application wants the record kept.
const FORCED: u8 = 1;
/// The application has set fields, which nobody has taken.
const HAS_FIELDS: u8 = 2;
/// The record is made.
const ENDED: u8 = 4;
/// These are the ids of a WebSocket connection.
const CONNECTION: u8 = 8;

/// The ids of a request.
///
/// A context that outlives the request (a timer that was started in it) keeps only this part of it alive.
#[pyclass(frozen, name = "RequestIds", module = "inference_logging._native")]
pub struct PyRequestIds {
    cell: IdsCell,
    /// The recorded headers of a WebSocket connection's handshake; those of a request are in its observer.
    headers: Members,
}

impl PyRequestIds {
    pub fn new(ids: RequestIds, settled: bool) -> Self {
        Self { cell: IdsCell::new(ids, settled), headers: Members::default() }
    }

    /// The ids of a connection whose handshake had these headers.
    pub fn of_connection(ids: RequestIds, settled: bool, headers: Members) -> Self {
        let cell = IdsCell::new(ids, settled);
        cell.flags.fetch_or(CONNECTION, Ordering::Relaxed);
        Self { cell, headers }
    }

    /// What is added to the record of a connection: fields of the application go before headers of the same name.
    pub fn added(&self, py: Python<'_>) -> AddedFields {
        let mut added = self.take_fields(py).map(|fields| *fields).unwrap_or_default();
        added.members.add_all(self.headers.as_bytes());
        added
    }
}

impl Deref for PyRequestIds {
    type Target = IdsCell;

    #[inline]
    fn deref(&self) -> &IdsCell {
        &self.cell
    }
}

/// The ids of a request, and how far they are known.
pub struct IdsCell {
    state: GilCell<State>,
    /// What is special about the request: [`FORCED`], [`HAS_FIELDS`], [`ENDED`], [`CONNECTION`].
    flags: AtomicU8,
}

#[derive(Clone)]
struct State {
    ids: RequestIds,
    /// The ids come from a tracer's span, and stay.
    settled: bool,
    /// The trace has changed since the sampler was asked.
    moved: bool,
    /// What the application has set, and nobody has taken.
    fields: Option<Box<AddedFields>>,
}

impl IdsCell {
    pub const fn new(ids: RequestIds, settled: bool) -> Self {
        let state = State { ids, settled, moved: false, fields: None };
        Self { state: GilCell::new(state), flags: AtomicU8::new(0) }
    }

    /// A copy as an object, which replaces this one.
    pub fn object(&self, py: Python<'_>) -> PyResult<Py<PyRequestIds>> {
        let state = GilCell::new(self.state.with(py, |state| state.clone()));
        let flags = AtomicU8::new(self.flags.load(Ordering::Relaxed));
        Py::new(py, PyRequestIds { cell: Self { state, flags }, headers: Members::default() })
    }

    /// Whether the application wants the record kept.
    #[inline]
    pub fn is_forced(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & FORCED != 0
    }

    /// Whether the application has asked for anything.
    #[inline]
    pub fn is_special(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & (FORCED | HAS_FIELDS) != 0
    }

    /// Calls `work` with the fields that the application has set, if it has.
    #[inline]
    pub fn with_fields(&self, py: Python<'_>, work: impl FnOnce(&AddedFields)) {
        self.state.with(py, |state| {
            if let Some(fields) = &state.fields {
                work(fields);
            }
        });
    }

    /// Takes the fields that the application has set. The limit of their number counts none that was taken, so call it just
    /// before the record is made.
    #[inline]
    pub fn take_fields(&self, py: Python<'_>) -> Option<Box<AddedFields>> {
        if self.flags.load(Ordering::Relaxed) & HAS_FIELDS == 0 {
            return None;
        }
        self.flags.fetch_and(!HAS_FIELDS, Ordering::Relaxed);
        self.state.with(py, |state| state.fields.take())
    }

    /// The record is made: nothing can be set any more.
    #[inline]
    pub fn end(&self) {
        self.flags.fetch_or(ENDED, Ordering::Relaxed);
    }

    /// Calls `work`, which may read or change the ids and must not run Python code.
    #[inline]
    pub fn with<R>(&self, py: Python<'_>, work: impl FnOnce(&mut RequestIds) -> R) -> R {
        self.state.with(py, |state| work(&mut state.ids))
    }

    /// Takes note of a span that is active while the request is handled: the first one gives the request its ids.
    pub fn meet(&self, py: Python<'_>, span: &ActiveSpan) {
        self.state.with(py, |state| {
            if !std::mem::replace(&mut state.settled, true) {
                state.moved =
                    state.ids.follow(span.trace_id, span.request_span_id().unwrap_or(span.span_id), span.flags);
                state.ids.set_remote(span.has_remote_parent);
            }
        });
    }

    /// Looks for a span, if none was found yet. Within `a_part` of the request, a span must not be taken for the
    /// request's own, so a span whose request span is unknown is skipped.
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn look_for_span(&self, py: Python<'_>, a_part: bool) {
        if ACTIVE_SPAN.is_missing() || self.state.with(py, |state| state.settled) {
            return;
        }
        if let Some(span) = ActiveSpan::read(py).filter(|span| !a_part || span.request_span_id().is_some()) {
            self.meet(py, &span);
        }
    }

    /// Whether the trace has changed since the last call.
    #[inline]
    pub fn take_moved(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| std::mem::take(&mut state.moved))
    }

    /// Takes the correlation id, if asgi-correlation-id is mounted around or inside of us.
    #[inline]
    pub fn take_correlation_id(&self, py: Python<'_>) {
        with_correlation_id(py, |id| self.with(py, |ids| ids.set_client(id)));
    }

    /// The trace context of a record that is made now: the active span's, else the request's.
    #[inline]
    pub fn trace(&self, py: Python<'_>) -> Trace {
        let span = ActiveSpan::read(py);
        if let Some(span) = &span {
            self.meet(py, span);
        }
        self.with(py, |ids| within(ids.trace, span))
    }
}

/// The trace context of a record that an application makes now: the active span's, in whatever trace, else the
/// request's, else none. R comes with it if the request's trace id does not count as random.
#[inline]
pub fn trace_of_record(py: Python<'_>, request: Option<&PyRequestIds>) -> Option<(Trace, Option<u64>)> {
    let span = ActiveSpan::read(py);
    let Some(request) = request else { return span.map(|span| (span.trace(), None)) };
    if let Some(span) = &span {
        request.meet(py, span);
    }
    let (own, random) = request.with(py, |ids| (ids.trace, ids.random()));
    let trace = span.filter(|span| span.span_id != own.span_id).map_or(own, |span| span.trace());
    Some((trace, random.filter(|_| trace.trace_id == own.trace_id)))
}

/// The request's trace context, at the active span if the span belongs to the trace.
#[inline]
fn within(trace: Trace, span: Option<ActiveSpan>) -> Trace {
    match span {
        Some(span) if span.trace_id == trace.trace_id && span.span_id != trace.span_id => span.trace(),
        _ => trace,
    }
}

#[pymethods]
impl PyRequestIds {
    /// The trace id, 32 lowercase hex digits.
    #[getter]
    fn trace_id(&self, py: Python<'_>) -> String {
        format!("{:032x}", u128::from_be_bytes(self.trace(py).trace_id))
    }

    /// The id of the active span, 16 lowercase hex digits: this request's, or a tracer's within it.
    #[getter]
    fn span_id(&self, py: Python<'_>) -> String {
        text(&hex::of_id(self.trace(py).span_id))
    }

    /// Our id of the request, 16 lowercase hex digits.
    #[getter]
    fn request_id(&self, py: Python<'_>) -> String {
        self.with(py, |ids| text(&ids.request_id()))
    }

    /// The client's id of the request, or None if it sent no valid one.
    #[getter]
    fn client_request_id(&self, py: Python<'_>) -> Option<String> {
        self.take_correlation_id(py);
        self.with(py, |ids| ids.client().map(text))
    }

    /// Whether this is an HTTP request whose record is not made yet, so that an engine's numbers can join it.
    #[getter]
    fn awaits_engine(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & (ENDED | CONNECTION) == 0
    }

    /// Keep the record of this request, whatever the sampler decided.
    fn keep(&self) {
        self.flags.fetch_or(FORCED, Ordering::Relaxed);
    }

    /// Return the headers that make a call to another service a child of this request.
    ///
    /// `traceparent`, and `tracestate` if there is one (W3C Trace Context Level 2). The parent is the active span of
    /// OpenTelemetry, else this request's span, or `span_id` (16 lowercase hex digits, not all zero) for an application
    /// that gives each of its calls a span of its own. Raises ValueError for another `span_id`.
    #[pyo3(signature = (*, span_id = None))]
    fn outgoing_headers<'py>(&self, py: Python<'py>, span_id: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
        let (mut trace, state) = self.outgoing(py);
        if let Some(digits) = span_id {
            trace.span_id = parse_span_id(digits.as_bytes()).ok_or_else(|| {
                PyValueError::new_err(format!("span_id={digits:?}: must be 16 lowercase hex digits, not all zero"))
            })?;
        }
        let headers = PyDict::new(py);
        headers.set_item("traceparent", traceparent(&trace))?;
        if let Some(state) = state {
            headers.set_item("tracestate", state)?;
        }
        Ok(headers)
    }
}

/// A method of [`PyRequestIds`] that takes keywords as they are passed, without a dictionary of them.
pub static SET: FunctionDef = FunctionDef::fast_with_keywords(
    c"set",
    set,
    c"set($self, /, **fields)\n--\n\n\
Set fields of the request's record, by name; return whether they will be in it: False after its end.\n\n\
`tenant.id`, `enduser.id` and `gen_ai.conversation.id` (`set(**{\"tenant.id\": \"acme\"})`) stand in the line under these\n\
names, in place of what a header gave; all others in `attributes`. Values are str, int, float or bool. A later value\n\
replaces an earlier one. Raises TypeError for another type; ValueError for a name that is empty or longer than 64\n\
bytes, a text above 256 bytes, and more than 32 fields. Then none of the call's fields is set.",
);

/// # Safety
/// Called by the interpreter only: `this` is a [`PyRequestIds`]; `arguments` holds `count` live objects, and behind them a
/// value for each name of `keywords`, which is a tuple of `str` or null.
unsafe extern "C" fn set(
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        if count != 0 {
            return raised(
                py,
                PyTypeError::new_err(format!("RequestIds.set() takes 0 positional arguments but {count} were given")),
            );
        }
        let ids = Borrowed::from_ptr(py, this).cast_unchecked::<PyRequestIds>().get();
        let mut encoded = Scratch::new();
        match SetFields::read(py, keywords, arguments, &mut encoded).and_then(|read| ids.set(py, &read, &encoded)) {
            Ok(is_set) => python_bool(is_set),
            Err(error) => raised(py, error),
        }
    }
}

impl IdsCell {
    /// Sets the fields of one call; returns whether the record is not made yet.
    #[inline]
    fn set(&self, py: Python<'_>, read: &SetFields<'_>, encoded: &Scratch) -> PyResult<bool> {
        if self.flags.load(Ordering::Relaxed) & ENDED != 0 {
            return Ok(false);
        }
        if !read.is_empty() {
            self.state.with(py, |state| read.add_to(state.fields.get_or_insert_default(), encoded))?;
            self.flags.fetch_or(HAS_FIELDS, Ordering::Relaxed);
        }
        Ok(true)
    }

    fn outgoing(&self, py: Python<'_>) -> (Trace, Option<String>) {
        if let Some((span, state)) = ActiveSpan::read_with_state(py) {
            self.meet(py, &span);
            if self.with(py, |ids| ids.trace.trace_id == span.trace_id) {
                return (span.trace(), Some(state).filter(|state| !state.is_empty()));
            }
        }
        self.with(py, |ids| (ids.trace, ids.outgoing_state()))
    }
}

fn text(ascii: &[u8]) -> String {
    String::from_utf8_lossy(ascii).into_owned()
}
