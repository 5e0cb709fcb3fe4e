//! The handlers that a record would reach.

use super::attributes::Attributes;
use super::library::Library;
use pyo3::ffi;
use pyo3::prelude::*;

/// More loggers above each other are a circle.
const MOST_LOGGERS: usize = 256;

/// Returns the handler of ours that alone would take a record of this level; None: there is none, or another one would
/// take the record too, or something decides about it.
///
/// # Safety
/// The GIL is held; the attributes are those of a live logger of ours.
#[inline(always)]
pub unsafe fn only_handler<'py>(
    py: Python<'py>,
    library: &Library,
    first: Attributes,
    level: i64,
) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the caller's promise; nothing here runs Python code, so what is borrowed stays alive.
    unsafe {
        let keys = &library.keys;
        if ffi::PyList_Size(first.list(py, &keys.filters)?) != 0 {
            return None;
        }
        let mut found = None;
        let mut logger = first;
        for _ in 0..MOST_LOGGERS {
            let handlers = logger.list(py, &keys.handlers)?;
            for at in 0..ffi::PyList_Size(handlers) {
                let handler = ffi::PyList_GetItem(handlers, at);
                if takes(py, library, handler, level)? && found.replace(handler).is_some() {
                    return None;
                }
            }
            let parent = logger.get(py, &keys.parent)?;
            if parent == ffi::Py_None() || !logger.truth(py, &keys.propagate)? {
                return found.map(|handler| Bound::from_borrowed_ptr(py, handler));
            }
            if !library.is_ordinary(parent) {
                return None;
            }
            logger = Attributes::of(parent)?;
        }
        None
    }
}

/// Whether a handler takes a record of this level, which is ours then; None: another handler might take it.
#[inline(always)]
unsafe fn takes(py: Python<'_>, library: &Library, handler: *mut ffi::PyObject, level: i64) -> Option<bool> {
    // SAFETY: the caller's promise.
    unsafe {
        if library.handler.address.is_of(handler) {
            let handler = Attributes::of(handler)?;
            let is_plain = handler.size() == library.handler.attributes
                && ffi::PyList_Size(handler.list(py, &library.keys.handler_filters)?) == 0;
            return if is_plain { Some(level >= handler.int(py, &library.keys.handler_level)?) } else { None };
        }
        let attributes = Attributes::of(handler)?;
        if library.null_handler.address.is_of(handler) {
            return (attributes.size() == library.null_handler.attributes && library.ignores(py)).then_some(false);
        }
        // Its level is an ordinary attribute unless its class says otherwise; then it is not in this dictionary.
        (level < attributes.int(py, &library.keys.handler_level)?).then_some(false)
    }
}
