//! Callables that put a record into the queue: registered events, and an application's log records.

use super::attributes::{self, Caller, LeastSeverity};
use super::context_variable;
use super::held::Held;
use super::request_ids::{PyRequestIds, trace_of_record};
use super::value::{self, BoundFields};
use super::{FunctionDef, bind, python_bool, waiting};
use listen::service::Service;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use queue::event::{LOG, WARN};
use queue::layout::{Reason, SampledOut};
use queue::record::{Scratch, Trace};
use queue::system::{now_monotonic_nano, now_unix_nano};
use request::budget::{self, Budget, CallSite};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

/// The service for application records: the last one that was opened and not closed. A reference that is put here is
/// never dropped, so that a record on its way always finds a service (a closed one refuses and counts it).
static CURRENT: AtomicPtr<Service> = AtomicPtr::new(std::ptr::null_mut());
/// The least severity of application records.
static LEAST_SEVERITY: AtomicU8 = AtomicU8::new(0);
/// Whether there is no service because logging is switched off.
static IS_OFF: AtomicBool = AtomicBool::new(false);

/// Makes `service` the one for application records; None: there is none.
pub fn set_current(service: Option<&Arc<Service>>, least_severity: u8) {
    LEAST_SEVERITY.store(least_severity, Ordering::Relaxed);
    let pointer = service.map_or(std::ptr::null(), |service| Arc::into_raw(Arc::clone(service)));
    IS_OFF.store(false, Ordering::Relaxed);
    CURRENT.store(pointer.cast_mut(), Ordering::Release);
}

/// Discard application records from now on, since logging is switched off; or, with False, keep them for a logger.
#[pyfunction]
pub fn switch_off(is_off: bool) {
    if is_off {
        set_current(None, 0);
    }
    IS_OFF.store(is_off, Ordering::Relaxed);
}

/// Whether application records go to `service`.
pub fn is_current(service: &Arc<Service>) -> bool {
    std::ptr::eq(CURRENT.load(Ordering::Acquire), Arc::as_ptr(service))
}

/// Marks the budgets of registered events, which are counted apart from those of messages.
const EVENTS: u64 = 0x6576_656e_7473_0000;

/// The state of a bound `emit` or `log` function.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct Event {
    target: Target,
    severity: u8,
    /// `ContextVar.get` of the variable that holds the request under way.
    context: Option<Held>,
}

enum Target {
    Registered {
        service: Arc<Service>,
        id: u16,
        fields: usize,
        site: Option<CallSite>,
    },
    /// `origin` identifies the logger and the severity among the call sites of a budget.
    Log {
        name: Box<str>,
        open: Held,
        origin: u64,
        calls: Calls,
    },
}

/// The part that all calls of one method of a logger share.
struct Calls {
    least: Option<Py<LeastSeverity>>,
    bound: Option<Py<BoundFields>>,
    /// Every keyword is a field, whatever its name is, and the caller has decided about the level.
    is_verbatim: bool,
}

impl Calls {
    #[inline]
    fn of<'a>(&'a self, name: &'a str) -> Caller<'a> {
        Caller { name, bound: self.bound.as_ref().map(|bound| bound.get()), is_verbatim: self.is_verbatim }
    }
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
    /// `thinned`: its schema has one more field, `adjusted_count`, for records that the budget has thinned.
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
        let context = context.map(Held::new);
        let event = Self { target: Target::Registered { service, id, fields, site }, severity, context };
        bind(&EMIT, Bound::new(py, event)?.as_any())
    }
}

#[pymethods]
impl Event {
    /// Makes the callable behind `log.info` and its siblings. `open_logger` is called when no service is open, and need
    /// not open one. Records have the `bound` fields; those below `least` are ignored. `verbatim` is for records of
    /// another library: every keyword is a field, whatever its name is, and that library's levels hold, not ours.
    #[staticmethod]
    #[pyo3(signature = (name, severity, context, open_logger, *, least = None, bound = None, verbatim = false))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only, one per property of a logger")]
    fn log(
        py: Python<'_>,
        name: String,
        severity: u8,
        context: Py<PyAny>,
        open_logger: Py<PyAny>,
        least: Option<Py<LeastSeverity>>,
        bound: Option<Py<BoundFields>>,
        verbatim: bool,
    ) -> PyResult<Py<PyAny>> {
        let origin = budget::origin(&name, severity);
        let calls = Calls { least, bound, is_verbatim: verbatim };
        let target = Target::Log { name: name.into(), open: Held::new(open_logger), origin, calls };
        bind(&LOG_DEF, Bound::new(py, Self { target, severity, context: Some(Held::new(context)) })?.as_any())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Target::Log { open, .. } = &self.target {
            open.visit(&visit)?;
        }
        self.context.as_ref().map_or(Ok(()), |context| context.visit(&visit))
    }

    fn __clear__(&self, py: Python<'_>) {
        if let Target::Log { open, .. } = &self.target {
            open.clear(py);
        }
        if let Some(context) = &self.context {
            context.clear(py);
        }
    }

    /// Return the least severity that is accepted now; 0 if no service is open.
    #[staticmethod]
    fn least_severity() -> u8 {
        open_service().map_or(0, least_severity)
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
            let why = format!("{count} values for an event of {fields} fields");
            return refused(py, service, Reason::SerializeError, event.severity, &why);
        }
        if service.runtime.is_off() {
            return python_bool(false);
        }
        let mut scratch = Scratch::new();
        let trace = event.context.as_ref().and_then(|get| push_context(py, get, &mut scratch));
        let Some(weight) = weight(service, event.severity, trace.as_ref(), || *site) else { return python_bool(false) };
        value::push_all(py, &mut scratch, arguments, count as usize, None);
        push_weight(&mut scratch, weight);
        offer(py, service, *id, event.severity, &scratch)
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
        let Target::Log { name, open, origin, calls } = &event.target else { return python_bool(false) };
        if calls.least.as_ref().is_some_and(|least| least.get().is_above(event.severity)) {
            return python_bool(false);
        }
        let Some(service) = current(py, open) else { return wait(py, event, arguments, count, keywords) };
        if event.severity < if calls.is_verbatim { least_of_others(service) } else { least_severity(service) } {
            return python_bool(false);
        }
        if count < 1 {
            return refused(py, service, Reason::SerializeError, event.severity, "it has no message");
        }
        let context = event.context.as_ref().and_then(|get| request(py, get));
        let trace = trace_of_record(py, context.as_ref().map(Bound::get));
        let site = || Some(CallSite::text(*origin, value::utf8(*arguments).unwrap_or("").as_bytes()));
        let Some(weight) = weight(service, event.severity, trace.as_ref(), site) else { return python_bool(false) };
        let ids = (trace.as_ref().map(|(trace, _)| trace), context.as_ref());
        let mut scratch = Scratch::new();
        match attributes::push_call(py, &mut scratch, ids, calls.of(name), (arguments, count, keywords)) {
            Ok(true) => (),
            Ok(false) => return python_bool(service.producer.refuse(Reason::SerializeError, event.severity)),
            Err(attributes::Raised) => return std::ptr::null_mut(),
        }
        push_weight(&mut scratch, weight);
        offer(py, service, LOG, event.severity, &scratch)
    }
}

/// Puts a record into the queue; returns a new reference to whether it was accepted.
///
/// # Safety
/// The GIL is held and no exception is set.
#[inline]
pub(super) unsafe fn offer(
    py: Python<'_>,
    service: &Service,
    id: u16,
    severity: u8,
    scratch: &Scratch,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        match service.producer.offer(id, severity, scratch.as_slice()) {
            Ok(_) => python_bool(true),
            Err(reason) => refused(py, service, reason, severity, "it is larger than max_record_bytes"),
        }
    }
}

/// Counts a refused record, and reports the call if that is at fault.
///
/// # Safety
/// As [`offer`].
#[cold]
unsafe fn refused(py: Python<'_>, service: &Service, reason: Reason, severity: u8, why: &str) -> *mut ffi::PyObject {
    service.producer.refuse(reason, severity);
    let is_fault = matches!(reason, Reason::Oversize | Reason::SerializeError);
    if is_fault && attributes::report(py, &format!("{}, {why}", reason.name())).is_err() {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    unsafe { python_bool(false) }
}

/// Keeps a record until a logger opens, unless logging is switched off; returns as [`log`] does.
///
/// # Safety
/// As [`log`].
#[cold]
unsafe fn wait(
    py: Python<'_>,
    event: &Event,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        let Target::Log { name, calls, .. } = &event.target else { return python_bool(false) };
        if IS_OFF.load(Ordering::Relaxed) || count < 1 {
            return python_bool(false);
        }
        let context = event.context.as_ref().and_then(|get| request(py, get));
        let trace = trace_of_record(py, context.as_ref().map(Bound::get)).map(|(trace, _)| trace);
        let ids = (trace.as_ref(), context.as_ref());
        let mut scratch = Scratch::new();
        match attributes::push_call(py, &mut scratch, ids, calls.of(name), (arguments, count, keywords)) {
            Ok(true) => (),
            Ok(false) => return python_bool(false),
            Err(attributes::Raised) => return std::ptr::null_mut(),
        }
        let obeys_level = !calls.is_verbatim;
        python_bool(waiting::hold(event.severity, obeys_level, now_unix_nano(), scratch.as_slice()))
    }
}

/// The least severity that is accepted now: the configured one, or an operator's temporary one.
#[inline]
pub(super) fn least_severity(service: &Service) -> u8 {
    let configured = LEAST_SEVERITY.load(Ordering::Relaxed);
    if service.runtime.is_active() {
        let now = now_monotonic_nano();
        let level = service.runtime.level(now).unwrap_or(configured);
        return if service.runtime.is_disabled(now) { u8::MAX } else { level };
    }
    configured
}

/// As [`least_severity`], for records of other libraries, which have levels of their own.
#[inline]
pub(super) fn least_of_others(service: &Service) -> u8 {
    if service.runtime.is_off() { u8::MAX } else { 0 }
}

/// Appends trace and request id of the request under way. Each is absent if there is none. Returns the same as
/// [`trace_of_record`].
#[inline]
pub(super) fn push_context(py: Python<'_>, get: &Held, scratch: &mut Scratch) -> Option<(Trace, Option<u64>)> {
    let context = request(py, get);
    let trace = trace_of_record(py, context.as_ref().map(Bound::get));
    match &trace {
        Some((trace, _)) => scratch.push_trace(trace),
        None => scratch.push_absent(),
    }
    match &context {
        Some(ids) => ids.get().with(py, |ids| ids.push_request_id(scratch)),
        None => scratch.push_absent(),
    }
    trace
}

/// The number of records that the next one stands for; None: it is above the budget of its call site, and is left out.
/// Warnings and errors are never thinned.
#[inline]
pub(super) fn weight(
    service: &Service,
    severity: u8,
    trace: Option<&(Trace, Option<u64>)>,
    site: impl FnOnce() -> Option<CallSite>,
) -> Option<f64> {
    match service.budget.get() {
        None => Some(1.0),
        Some(_) if severity >= WARN => Some(1.0),
        Some(budget) => site().map_or(Some(1.0), |site| thinned(service, budget, trace, site)),
    }
}

#[inline(never)]
fn thinned(service: &Service, budget: &Budget, trace: Option<&(Trace, Option<u64>)>, site: CallSite) -> Option<f64> {
    let now = now_monotonic_nano();
    let weight = match trace {
        Some((trace, random)) => budget.keep_by_trace(site, now, &trace.trace_id, *random),
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
pub(super) fn push_weight(scratch: &mut Scratch, weight: f64) {
    if weight > 1.0 {
        scratch.push_float(weight);
    }
}

/// The request under way in the caller's context.
#[inline]
pub(super) fn request<'py>(py: Python<'py>, get: &Held) -> Option<Bound<'py, PyRequestIds>> {
    let get = get.as_ptr(py);
    if get.is_null() {
        return None;
    }
    // SAFETY: `get` is live and the GIL is held; the result is a new reference or null with an exception set.
    let value = unsafe { Bound::from_owned_ptr_or_opt(py, context_variable::value(get)) };
    let Some(value) = value else {
        // SAFETY: the GIL is held.
        unsafe { ffi::PyErr_Clear() };
        return None;
    };
    if value.is_none() {
        return None;
    }
    value.cast_into::<PyRequestIds>().ok()
}

/// The current service. If there is none, `open` may open one; otherwise the record waits.
#[inline]
fn current(py: Python<'_>, open: &Held) -> Option<&'static Service> {
    open_service().or_else(|| open_current(py, open))
}

/// The current service, if there is one.
#[inline]
pub(super) fn open_service() -> Option<&'static Service> {
    // SAFETY: references put into CURRENT are never dropped. Acquire pairs with the Release in `set_current`.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

#[cold]
fn open_current(py: Python<'_>, open: &Held) -> Option<&'static Service> {
    if IS_OFF.load(Ordering::Relaxed) {
        return None;
    }
    let open = open.get(py)?;
    if let Err(error) = open.call0() {
        error.write_unraisable(py, Some(&open));
    }
    open_service()
}

#[inline]
unsafe fn this_event<'a>(py: Python<'a>, this: *mut ffi::PyObject) -> &'a Event {
    // SAFETY: bound functions of this file always carry an Event, which the running call keeps alive.
    unsafe { Borrowed::from_ptr(py, this).cast_unchecked::<Event>().get() }
}
