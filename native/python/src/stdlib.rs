//! The methods of the standard library's loggers, for the class that `inference_logging.install_logger` installs.
//!
//! A call is answered here if the standard library would do nothing but make a record of it for one handler of ours;
//! then the call's content goes into the queue without a `LogRecord`. In every other case the standard library's own
//! method is called, so whatever an application has added or replaced finds its record as always. The conditions are
//! looked up in each call, and nothing about them is remembered.

mod attributes;
mod chain;
mod extra;
mod format;
mod handler;
mod handling;
mod layout;
mod level;
mod library;
mod place;
mod record;

pub use handler::{PUT_RECORD, prepare_records};
pub use handling::{HANDLED, forget_handled_records};
pub use place::find;

use super::calling::call_with_keywords;
use super::value;
use super::{FunctionDef, raised};
use attributes::{Attributes, Key};
use library::Library;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

static LIBRARY: PyOnceLock<Library> = PyOnceLock::new();

/// Add the methods to `logger`, a subclass of `logging.Logger`. `root` is that of the root logger, `handler` is the
/// handler whose records need no `LogRecord`, `attributes` are the names of a record's own attributes, and `context` reads
/// the request under way.
#[pyfunction]
pub fn add_logger_methods(
    logger: &Bound<'_, PyType>,
    root: &Bound<'_, PyType>,
    handler: &Bound<'_, PyAny>,
    attributes: &Bound<'_, PyAny>,
    context: &Bound<'_, PyAny>,
) -> PyResult<()> {
    METHODS.iter().try_for_each(|method| method.add_to(logger))?;
    // The methods look at what the library is once they are in the class.
    LIBRARY.get_or_try_init(logger.py(), || Library::new([logger, root], handler, attributes, context)).map(drop)
}

static METHODS: [FunctionDef; 6] = [
    FunctionDef::fast_with_keywords(c"debug", debug, c"Log 'msg % args' with severity 'DEBUG'."),
    FunctionDef::fast_with_keywords(c"info", info, c"Log 'msg % args' with severity 'INFO'."),
    FunctionDef::fast_with_keywords(c"warning", warning, c"Log 'msg % args' with severity 'WARNING'."),
    FunctionDef::fast_with_keywords(c"error", error, c"Log 'msg % args' with severity 'ERROR'."),
    FunctionDef::fast_with_keywords(c"critical", critical, c"Log 'msg % args' with severity 'CRITICAL'."),
    FunctionDef::fast_with_keywords(c"log", log, c"Log 'msg % args' with the integer severity 'level'."),
];

/// The position of `log` among the methods; those before it have the levels 10, 20 and so on.
const LOG: usize = METHODS.len() - 1;

/// A call: the logger, the arguments, the number of positional ones, and the names of the others.
#[derive(Clone, Copy)]
struct Call {
    logger: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
}

/// How a call ended here.
enum Ended {
    /// There is nothing more to do.
    Done,
    /// An exception that no call may swallow is set.
    Raised,
}

macro_rules! method {
    ($name:ident, $position:literal) => {
        /// # Safety
        /// Called by the interpreter only: `arguments` holds `count` live objects, then the values of `keywords`.
        unsafe extern "C" fn $name(
            logger: *mut ffi::PyObject,
            arguments: *const *mut ffi::PyObject,
            count: ffi::Py_ssize_t,
            keywords: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject {
            // SAFETY: the interpreter's promise.
            unsafe { answer($position, Call { logger, arguments, count: count as usize, keywords }) }
        }
    };
}

method!(debug, 0);
method!(info, 1);
method!(warning, 2);
method!(error, 3);
method!(critical, 4);
method!(log, 5);

#[inline(always)]
unsafe fn answer(method: usize, call: Call) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        match LIBRARY.get(py).and_then(|library| take(py, library, method, call)) {
            Some(Ended::Done) => py.None().into_ptr(),
            Some(Ended::Raised) => std::ptr::null_mut(),
            None => call_library(py, method, call),
        }
    }
}

/// Does what the call asks for; None: the standard library has to, and nothing is done.
#[inline(always)]
unsafe fn take(py: Python<'_>, library: &'static Library, method: usize, call: Call) -> Option<Ended> {
    // SAFETY: the interpreter's promise; nothing that is borrowed is used after other code may have run.
    unsafe {
        let before = usize::from(method == LOG);
        if call.count <= before || !library.is_ours(call.logger) || !library.decides(py, method) {
            return None;
        }
        let known = library.level(method);
        let level = known.map_or_else(|| *call.arguments, Key::as_ptr);
        let logger = Attributes::of(call.logger)?;
        if library.is_overridden(py, logger) {
            return None;
        }
        if is_enabled(py, library, logger, (known, level))? {
            let call = Call { arguments: call.arguments.add(before), count: call.count - before, ..call };
            return record::put(py, library, (method, level), logger, call);
        }
        (!names_parameter(call.keywords)).then_some(Ended::Done)
    }
}

/// Whether a keyword is a parameter that the call has by position already, which the standard library reports.
#[inline(always)]
unsafe fn names_parameter(keywords: *mut ffi::PyObject) -> bool {
    // SAFETY: the interpreter's promise: a tuple of `str`, or null.
    unsafe {
        let count = if keywords.is_null() { 0 } else { ffi::PyTuple_Size(keywords) };
        (0..count)
            .any(|at| matches!(value::utf8(ffi::PyTuple_GetItem(keywords, at)), Some("self" | "level" | "msg") | None))
    }
}

/// As `isEnabledFor`; None: it has not been asked since the levels have changed.
#[inline(always)]
unsafe fn is_enabled(
    py: Python<'_>,
    library: &Library,
    logger: Attributes,
    (known, level): (Option<&Key>, *mut ffi::PyObject),
) -> Option<bool> {
    // SAFETY: the caller's promise.
    unsafe {
        if logger.truth(py, &library.keys.disabled)? {
            return Some(false);
        }
        let cache = logger.get(py, &library.keys.cache)?;
        if ffi::Py_TYPE(cache) != &raw mut ffi::PyDict_Type || ffi::Py_TYPE(level) != &raw mut ffi::PyLong_Type {
            return None;
        }
        let decided = known.map_or_else(|| attributes::item(cache, level), |level| level.item(py, cache))?;
        if decided == ffi::Py_True() { Some(true) } else { (decided == ffi::Py_False()).then_some(false) }
    }
}

/// Calls the method that stands behind ours: the standard library's, or what has replaced it.
#[cold]
#[inline(never)]
unsafe fn call_library(py: Python<'_>, method: usize, call: Call) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise.
    unsafe {
        let Some(library) = LIBRARY.get(py) else { return std::ptr::null_mut() };
        match library.inherited(py, method, &Bound::from_borrowed_ptr(py, call.logger)) {
            Ok(inherited) => call_with_keywords(inherited.as_ptr(), call.arguments, call.count, call.keywords),
            Err(error) => raised(py, error),
        }
    }
}
