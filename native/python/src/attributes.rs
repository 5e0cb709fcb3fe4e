//! The message and the attributes of an application's record: the keywords of the call, and the fields of its bound
//! logger.
//!
//! A call with several message arguments, or with keywords that are no fields, is rearranged by Python code
//! (`inference_logging.record.application.arrange`). A plain call runs none of that code.

use super::keywords;
use super::request_ids::PyRequestIds;
use super::value::{self, BoundField, BoundFields};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};
use queue::record::{Scratch, Trace};
use std::sync::atomic::{AtomicU8, Ordering};

/// The least severity of a logger's records, besides the configured one.
#[pyclass(frozen, weakref, module = "inference_logging._native")]
pub struct LeastSeverity {
    value: AtomicU8,
}

#[pymethods]
impl LeastSeverity {
    #[new]
    fn new(value: u8) -> Self {
        Self { value: AtomicU8::new(value) }
    }

    #[getter]
    fn value(&self) -> u8 {
        self.value.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_value(&self, value: u8) {
        self.value.store(value, Ordering::Relaxed);
    }
}

impl LeastSeverity {
    /// Whether the least severity is above this one.
    #[inline]
    pub fn is_above(&self, severity: u8) -> bool {
        severity < self.value.load(Ordering::Relaxed)
    }
}

#[pymethods]
impl BoundFields {
    /// Take the fields of `before` and the new `fields`, which replace fields of the same name.
    #[new]
    fn new(before: Option<&Bound<'_, Self>>, fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut entries = before.map_or_else(Vec::new, |before| before.get().entries.clone());
        for (name, value) in fields {
            let field = bound_field(&name, &value)?;
            match entries.iter_mut().find(|known| known.name == field.name) {
                Some(known) => *known = field,
                None => entries.push(field),
            }
        }
        Ok(Self { entries })
    }
}

fn bound_field(name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<BoundField> {
    // SAFETY: live objects, and the GIL is held.
    let name = unsafe { value::utf8(name.cast::<PyString>()?.as_ptr()).unwrap_or("?") };
    let mut scratch = Scratch::new();
    scratch.push_map_key(name);
    // SAFETY: as above, and no exception is set.
    unsafe { value::push(value.py(), &mut scratch, value.as_ptr()) };
    Ok(BoundField { name: name.into(), encoded: scratch.as_slice().into() })
}

/// Trace context and request of a record.
pub type Ids<'a> = (Option<&'a Trace>, Option<&'a Bound<'a, PyRequestIds>>);
/// The arguments of a call, the number of positional ones, and the names of the others.
pub type Call = (*const *mut ffi::PyObject, ffi::Py_ssize_t, *mut ffi::PyObject);

/// The logger of a call.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    pub name: &'a str,
    pub bound: Option<&'a BoundFields>,
    /// Every keyword is a field, whatever its name is.
    pub is_verbatim: bool,
}

/// Appends the whole content of a call; false: it could not be appended, which was reported.
///
/// # Safety
/// The GIL is held, no exception is set; `call` comes from the interpreter, with at least one positional argument.
#[inline]
pub unsafe fn push_call(
    py: Python<'_>,
    scratch: &mut Scratch,
    ids: Ids<'_>,
    caller: Caller<'_>,
    call: Call,
) -> Called<bool> {
    let (arguments, count, keywords) = call;
    // SAFETY: the caller's promise.
    unsafe {
        if count == 1 {
            push_message(py, scratch, ids, caller.name, *arguments);
            if push_keywords(py, scratch, arguments.add(1), keywords, caller) {
                return Ok(true);
            }
        }
        push_arranged(py, scratch, ids, caller, call)
    }
}

#[cold]
#[inline(never)]
unsafe fn push_arranged(
    py: Python<'_>,
    scratch: &mut Scratch,
    ids: Ids<'_>,
    caller: Caller<'_>,
    (arguments, count, keywords): Call,
) -> Called<bool> {
    // SAFETY: the caller's promise.
    unsafe {
        let Some((message, fields)) = arrange(py, arguments, count as usize, keywords)? else { return Ok(false) };
        *scratch = Scratch::new();
        push_message(py, scratch, ids, caller.name, message.as_ptr());
        push_dict(scratch, &fields, caller.bound);
        Ok(true)
    }
}

/// Appends the part of a record before its attributes.
#[inline(always)]
unsafe fn push_message(
    py: Python<'_>,
    scratch: &mut Scratch,
    (trace, context): Ids<'_>,
    name: &str,
    message: *mut ffi::PyObject,
) {
    match trace {
        Some(trace) => scratch.push_trace(trace),
        None => scratch.push_absent(),
    }
    scratch.push_str(name);
    // SAFETY: the caller's promise.
    unsafe { value::push(py, scratch, message) };
    match context {
        Some(ids) => ids.get().with(py, |ids| ids.push_request_id(scratch)),
        None => scratch.push_absent(),
    }
}

/// Appends the keywords of a call; false: one of them cannot stand in a record, and what was appended is unusable.
#[inline]
unsafe fn push_keywords(
    py: Python<'_>,
    scratch: &mut Scratch,
    values: *const *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
    Caller { bound, is_verbatim, .. }: Caller<'_>,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let count = if keywords.is_null() { 0 } else { ffi::PyTuple_Size(keywords) as usize };
        let entry = |at: usize| {
            let name = value::utf8(ffi::PyTuple_GetItem(keywords, at as ffi::Py_ssize_t)).unwrap_or("?");
            (name, *values.add(at))
        };
        begin_map(scratch, count, entry, bound);
        if count == 0 {
            return true;
        }
        let Some(known) = keywords::keys(py, keywords) else {
            return push_entries(py, scratch, count, entry, is_verbatim);
        };
        value::push_all(py, scratch, values, count, Some(known.all()));
        true
    }
}

/// Appends the items of a dictionary.
unsafe fn push_dict(scratch: &mut Scratch, fields: &Bound<'_, PyDict>, bound: Option<&BoundFields>) {
    let items: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)> = fields.iter().collect();
    // SAFETY: the caller's promise; the items live as long as the vector.
    unsafe {
        let entry = |at: usize| (value::utf8(items[at].0.as_ptr()).unwrap_or("?"), items[at].1.as_ptr());
        begin_map(scratch, items.len(), entry, bound);
        push_entries(fields.py(), scratch, items.len(), entry, true);
    }
}

/// Begins the map of the attributes: with the bound fields that no entry names. No map without any field.
#[inline(always)]
fn begin_map<'a>(
    scratch: &mut Scratch,
    count: usize,
    entry: impl Fn(usize) -> (&'a str, *mut ffi::PyObject),
    bound: Option<&BoundFields>,
) {
    match bound {
        Some(bound) => push_bound(scratch, count, entry, bound),
        None if count == 0 => scratch.push_absent(),
        None => scratch.push_map_begin(count as u32),
    }
}

#[inline(never)]
fn push_bound<'a>(
    scratch: &mut Scratch,
    count: usize,
    entry: impl Fn(usize) -> (&'a str, *mut ffi::PyObject),
    bound: &BoundFields,
) {
    let is_kept = |field: &&BoundField| (0..count).all(|at| entry(at).0 != &*field.name);
    let kept = bound.entries.iter().filter(is_kept).count();
    if kept + count == 0 {
        return scratch.push_absent();
    }
    scratch.push_map_begin((kept + count) as u32);
    bound.entries.iter().filter(is_kept).for_each(|field| scratch.push_values(&field.encoded));
}

#[inline(never)]
unsafe fn push_entries<'a>(
    py: Python<'_>,
    scratch: &mut Scratch,
    count: usize,
    entry: impl Fn(usize) -> (&'a str, *mut ffi::PyObject),
    is_verbatim: bool,
) -> bool {
    for at in 0..count {
        let (name, object) = entry(at);
        if !is_verbatim && keywords::is_no_field(name) {
            return false;
        }
        scratch.push_map_key(name);
        // SAFETY: the caller's promise.
        unsafe { value::push(py, scratch, object) };
    }
    true
}

/// The return value of a Python function; [`Raised`]: it raised an exception that no call may swallow, and that is
/// still set.
pub type Called<T> = Result<T, Raised>;
pub struct Raised;

/// Rearranges a call into one message and fields; None: that is not possible, which was reported.
///
/// # Safety
/// As [`push_call`]: `arguments` holds `count` live objects, at least one, and the keywords' values behind them.
#[cold]
unsafe fn arrange<'py>(
    py: Python<'py>,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> Called<Option<(Bound<'py, PyAny>, Bound<'py, PyDict>)>> {
    static ARRANGE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    // SAFETY: the caller's promise.
    let object = |at: usize| unsafe { Bound::from_borrowed_ptr(py, *arguments.add(at)) };
    let fields = PyDict::new(py);
    if !keywords.is_null() {
        // SAFETY: the caller's promise.
        let names = unsafe { Bound::from_borrowed_ptr(py, keywords) };
        for (at, name) in names.cast::<PyTuple>().map_err(|_| Raised)?.iter().enumerate() {
            fields.set_item(name, object(count + at)).map_err(|error| raise(py, error))?;
        }
    }
    let more = PyTuple::new(py, (1..count).map(object)).map_err(|error| raise(py, error))?;
    let arranged = function(py, &ARRANGE, "arrange").and_then(|arrange| arrange.call1((object(0), more, fields)));
    arranged.and_then(|arranged| arranged.extract()).map_err(|error| raise(py, error))
}

/// Reports a refused call on stderr, once per call site.
#[cold]
pub fn report(py: Python<'_>, why: &str) -> Called<()> {
    static REPORT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let reported = function(py, &REPORT, "report_refusal").and_then(|report| report.call1((why,)));
    reported.map(drop).map_err(|error| raise(py, error))
}

fn function<'py>(py: Python<'py>, kept: &'py PyOnceLock<Py<PyAny>>, name: &str) -> PyResult<&'py Bound<'py, PyAny>> {
    kept.get_or_try_init(py, || Ok(py.import("inference_logging.record.application")?.getattr(name)?.unbind()))
        .map(|function| function.bind(py))
}

/// Sets the error again. Only errors that are no `Exception` (an interrupt) come here.
fn raise(py: Python<'_>, error: PyErr) -> Raised {
    error.restore(py);
    Raised
}
