//! Callables that put a record into the queue: registered events, and an application's log records.

use super::request_ids::{PyRequestIds, trace_of_record};
use super::value;
use super::{FunctionDef, bind, python_bool};
use crate::budget::{self, Budget, CallSite};
use crate::event::LOG;
use crate::layout::{Reason, SampledOut};
use crate::record::{Scratch, Trace};
use crate::service::Service;
use crate::system::now_monotonic_nano;
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// The service that application records go to: the last one opened and not closed. References put here are never
/// dropped, so that a record on its way always finds a service (a closed one refuses it, counted).
static CURRENT: AtomicPtr<Service> = AtomicPtr::new(std::ptr::null_mut());
/// Least severity of application records.
static LEAST_SEVERITY: AtomicU8 = AtomicU8::new(0);

/// Makes `service` the one that application records go to; None: none.
pub fn set_current(service: Option<&Arc<Service>>, least_severity: u8) {
    LEAST_SEVERITY.store(least_severity, Ordering::Relaxed);
    let pointer = service.map_or(std::ptr::null(), |service| Arc::into_raw(Arc::clone(service)));
    CURRENT.store(pointer.cast_mut(), Ordering::Release);
}

/// Whether `service` is the one that application records go to.
pub fn is_current(service: &Arc<Service>) -> bool {
    std::ptr::eq(CURRENT.load(Ordering::Acquire), Arc::as_ptr(service))
}

/// Budgets of registered events are counted apart from those of messages.
const EVENTS: u64 = 0x6576_656e_7473_0000;

/// What a bound `emit` or `log` function carries.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct Event {
    target: Target,
    severity: u8,
    /// `ContextVar.get` of the variable that holds the request under way.
    context: Option<Py<PyAny>>,
}

enum Target {
    Registered {
        service: Arc<Service>,
        id: u16,
        fields: usize,
        site: Option<CallSite>,
    },
    /// `origin` stands for the logger and the severity among the call sites of a budget.
    Log {
        name: Box<str>,
        open: Py<PyAny>,
        origin: u64,
    },
}

static EMIT: FunctionDef =
    FunctionDef::fast(c"emit", emit, c"Put one record into the queue; return whether it was accepted.");
static LOG_DEF: FunctionDef = FunctionDef::fast_with_keywords(
    c"log",
    log,
    c"Record a message and its attributes; return whether it was accepted.",
);

impl Event {
    /// Makes the callable of a registered event; with `context`, each record carries the ids of the request under way.
    /// `thinned`: its schema has one field more, `adjusted_count`, for records that the budget has thinned.
    pub fn registered(
        py: Python<'_>,
        service: Arc<Service>,
        id: u16,
        fields: usize,
        thinned: bool,
        severity: u8,
        context: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let site = thinned.then(|| CallSite::numbered(EVENTS, u64::from(id)));
        let event = Self { target: Target::Registered { service, id, fields, site }, severity, context };
        bind(&EMIT, Bound::new(py, event)?.as_any())
    }
}

#[pymethods]
impl Event {
    /// Makes the callable behind `log.info` and its kin. `open_logger` is called when no service is open.
    #[staticmethod]
    fn log(
        py: Python<'_>,
        name: String,
        severity: u8,
        context: Py<PyAny>,
        open_logger: Py<PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let origin = budget::origin(&name, severity);
        let target = Target::Log { name: name.into(), open: open_logger, origin };
        bind(&LOG_DEF, Bound::new(py, Self { target, severity, context: Some(context) })?.as_any())
    }
}

/// # Safety
/// Called by the interpreter only: `this` is an [`Event`], `arguments` holds `count` live objects.
unsafe extern "C" fn emit(
    this: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        let event = this_event(py, this);
        let Target::Registered { service, id, fields, site } = &event.target else { return python_bool(false) };
        if count as usize != *fields {
            return python_bool(service.producer.refuse(Reason::SerializeError, event.severity));
        }
        let mut scratch = Scratch::new();
        let trace = event.context.as_ref().and_then(|get| push_context(py, get, &mut scratch));
        let Some(weight) = weight(service, trace.as_ref(), || *site) else { return python_bool(false) };
        for position in 0..count as usize {
            value::push(py, &mut scratch, *arguments.add(position));
        }
        push_weight(&mut scratch, weight);
        python_bool(service.producer.emit(*id, event.severity, scratch.as_slice()))
    }
}

/// # Safety
/// As [`emit`]; the keywords' values follow the `count` positional arguments, their names are in the tuple `keywords`.
unsafe extern "C" fn log(
    this: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        let event = this_event(py, this);
        let Target::Log { name, open, origin } = &event.target else { return python_bool(false) };
        let Some(service) = current(py, open) else { return python_bool(false) };
        if event.severity < least_severity(service) {
            return python_bool(false);
        }
        if count != 1 {
            return python_bool(service.producer.refuse(Reason::SerializeError, event.severity));
        }
        let mut scratch = Scratch::new();
        let context = event.context.as_ref().and_then(|get| request(py, get));
        let trace = trace_of_record(py, context.as_ref().map(Bound::get));
        let site = || Some(CallSite::text(*origin, value::utf8(*arguments).unwrap_or("").as_bytes()));
        let Some(weight) = weight(service, trace.as_ref(), site) else { return python_bool(false) };
        match &trace {
            Some(trace) => scratch.push_trace(trace),
            None => scratch.push_absent(),
        }
        scratch.push_str(name);
        value::push(py, &mut scratch, *arguments);
        match &context {
            Some(ids) => ids.get().with(py, |ids| ids.push_request_id(&mut scratch)),
            None => scratch.push_absent(),
        }
        push_attributes(py, &mut scratch, arguments.add(1), keywords);
        push_weight(&mut scratch, weight);
        python_bool(service.producer.emit(LOG, event.severity, scratch.as_slice()))
    }
}

/// What is accepted now: as configured, or as an operator wants it for a while.
#[inline]
fn least_severity(service: &Service) -> u8 {
    let configured = LEAST_SEVERITY.load(Ordering::Relaxed);
    if service.runtime.is_active() {
        return service.runtime.level(now_monotonic_nano()).unwrap_or(configured);
    }
    configured
}

#[inline]
unsafe fn push_attributes(
    py: Python<'_>,
    scratch: &mut Scratch,
    values: *const *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) {
    // SAFETY: the caller's promise: `keywords` is null or a tuple of str, with as many values.
    unsafe {
        let count = if keywords.is_null() { 0 } else { ffi::PyTuple_Size(keywords) };
        if count == 0 {
            return scratch.push_absent();
        }
        scratch.push_map_begin(count as u32);
        for position in 0..count {
            scratch.push_map_key(value::utf8(ffi::PyTuple_GetItem(keywords, position)).unwrap_or("?"));
            value::push(py, scratch, *values.offset(position));
        }
    }
}

/// Appends trace and request id of the request under way, each absent where there is none; returns the trace.
#[inline]
pub(super) fn push_context(py: Python<'_>, get: &Py<PyAny>, scratch: &mut Scratch) -> Option<Trace> {
    let context = request(py, get);
    let trace = trace_of_record(py, context.as_ref().map(Bound::get));
    match &trace {
        Some(trace) => scratch.push_trace(trace),
        None => scratch.push_absent(),
    }
    match &context {
        Some(ids) => ids.get().with(py, |ids| ids.push_request_id(scratch)),
        None => scratch.push_absent(),
    }
    trace
}

/// How many records the one to be made stands for; None: it is above the budget of its call site, and left out.
#[inline]
fn weight(service: &Service, trace: Option<&Trace>, site: impl FnOnce() -> Option<CallSite>) -> Option<f64> {
    match service.budget.get() {
        None => Some(1.0),
        Some(budget) => site().map_or(Some(1.0), |site| thinned(service, budget, trace, site)),
    }
}

#[inline(never)]
fn thinned(service: &Service, budget: &Budget, trace: Option<&Trace>, site: CallSite) -> Option<f64> {
    let now = now_monotonic_nano();
    let weight = match trace {
        Some(trace) => budget.keep_by_trace(site, now, &trace.trace_id),
        None => budget.keep_evenly(site, now),
    };
    if weight.is_none()
        && let Some(queue) = service.producer.queue()
    {
        queue.file.header().count_sampled_out(SampledOut::Budget);
    }
    weight
}

/// Appends the last field, which only records have that the budget thinned.
#[inline]
fn push_weight(scratch: &mut Scratch, weight: f64) {
    if weight > 1.0 {
        scratch.push_float(weight);
    }
}

/// The request under way in the caller's context.
#[inline]
fn request<'py>(py: Python<'py>, get: &Py<PyAny>) -> Option<Bound<'py, PyRequestIds>> {
    // SAFETY: `get` is live and the GIL is held; the result is a new reference or null with an exception set.
    let value = unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyObject_CallNoArgs(get.as_ptr())) };
    let Some(value) = value else {
        // SAFETY: the GIL is held.
        unsafe { ffi::PyErr_Clear() };
        return None;
    };
    value.cast_into::<PyRequestIds>().ok()
}

/// The current service; opened from the environment if there is none.
#[inline]
fn current(py: Python<'_>, open: &Py<PyAny>) -> Option<&'static Service> {
    // SAFETY: references put into CURRENT are never dropped. Acquire pairs with the Release in `set_current`.
    let service = unsafe { CURRENT.load(Ordering::Acquire).as_ref() };
    service.or_else(|| open_current(py, open))
}

#[cold]
fn open_current(py: Python<'_>, open: &Py<PyAny>) -> Option<&'static Service> {
    if let Err(error) = open.bind(py).call0() {
        error.write_unraisable(py, Some(open.bind(py)));
    }
    // SAFETY: as in `current`.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

#[inline]
unsafe fn this_event<'a>(py: Python<'a>, this: *mut ffi::PyObject) -> &'a Event {
    // SAFETY: bound functions of this file always carry an Event, which the running call keeps alive.
    unsafe { Borrowed::from_ptr(py, this).cast_unchecked::<Event>().get() }
}
