//! Records that are being handled: what is logged meanwhile by the same thread is ignored, so that logging cannot recurse.
//!
//! The handler notes for each thread whether it handles a record. The number of records under way in all threads spares
//! the other calls that question: while it is not 0, calls go to the standard library, and so to the handler.

use super::attributes::Attributes;
use crate::calling::call;
use crate::gil_cell::GilCell;
use crate::{FunctionDef, ffi, raised};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;

static UNDER_WAY: GilCell<u32> = GilCell::new(0);

pub static HANDLED: FunctionDef =
    FunctionDef::fast(c"handled", handled, c"Call the function with the record, as one that is being handled.");

/// Whether no record is being handled, in any thread.
#[inline(always)]
pub fn is_idle(py: Python<'_>) -> bool {
    UNDER_WAY.with(py, |records| *records == 0)
}

/// In a forked child: forget the records that other threads of the parent were handling.
#[pyfunction]
pub fn forget_handled_records(py: Python<'_>) {
    UNDER_WAY.with(py, |records| *records = 0);
}

/// # Safety
/// Called by the interpreter only: `arguments` holds `count` live objects.
unsafe extern "C" fn handled(
    _: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL; the number is checked.
    unsafe {
        let py = Python::assume_attached();
        if count != 2 {
            return raised(py, PyTypeError::new_err("handled takes a function and a record"));
        }
        counted(py, || call(*arguments, [std::ptr::null_mut(), *arguments.add(1)]))
    }
}

fn counted<R>(py: Python<'_>, work: impl FnOnce() -> R) -> R {
    UNDER_WAY.with(py, |records| *records += 1);
    let result = work();
    // A fork in between has set the number to 0.
    UNDER_WAY.with(py, |records| *records = records.saturating_sub(1));
    result
}

/// Does `work`, which may run any code, as a record that `handler` handles; None: the handler itself has to decide.
///
/// # Safety
/// The GIL is held and no exception is set.
pub unsafe fn handle<R>(handler: &Bound<'_, PyAny>, work: impl FnOnce() -> R) -> Option<R> {
    let py = handler.py();
    // SAFETY: the caller's promise; a live object.
    let under_way = unsafe {
        let found = Attributes::of(handler.as_ptr())?.item(intern!(py, "_under_way").as_ptr())?;
        Bound::from_borrowed_ptr(py, found)
    };
    let name = intern!(py, "record");
    if !under_way.getattr(name).is_ok_and(|record| record.is_none()) || under_way.setattr(name, true).is_err() {
        return None;
    }
    let result = counted(py, work);
    drop(under_way.setattr(name, py.None()));
    Some(result)
}
