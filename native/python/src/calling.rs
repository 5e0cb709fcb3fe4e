//! Calls of Python functions with a few positional arguments.
//!
//! `PyObject_Vectorcall` belongs to the stable ABI from Python 3.12 on, and is exported by Python 3.11 as well. It is
//! looked up at run time; where it is missing, the stable ABI's other call takes its place, which costs more code.

use super::raised;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

type Vectorcall = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    usize,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// `PY_VECTORCALL_ARGUMENTS_OFFSET`: the called function may use the place before the first argument meanwhile.
const HAS_ROOM: usize = 1 << (usize::BITS - 1);

static VECTORCALL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Looks the interpreter's function up; until then calls go the other way.
pub fn find() {
    // SAFETY: the name is a C string; the symbol is looked up in what is loaded, and nothing is called.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyObject_Vectorcall".as_ptr()) };
    VECTORCALL.store(found, Ordering::Relaxed);
}

/// Calls `function` with the arguments that follow the first place, which is room for the called function.
///
/// # Safety
/// The GIL is held; all but the first place are live objects, and so is `function`.
#[inline]
pub unsafe fn call<const PLACES: usize>(
    function: *mut ffi::PyObject,
    mut places: [*mut ffi::PyObject; PLACES],
) -> *mut ffi::PyObject {
    const { assert!(PLACES == 2 || PLACES == 3) };
    let found = VECTORCALL.load(Ordering::Relaxed);
    // SAFETY: the caller's promise; what was found under this name has this signature in every version that exports it.
    unsafe {
        if found.is_null() {
            return call_otherwise(function, places[1], if PLACES == 3 { places[2] } else { null_mut() });
        }
        let vectorcall = transmute::<*mut c_void, Vectorcall>(found);
        vectorcall(function, places.as_mut_ptr().add(1), (PLACES - 1) | HAS_ROOM, null_mut())
    }
}

/// Calls `function` with `count` positional arguments; the values of the `keywords` (names in a tuple, or null) follow them.
///
/// # Safety
/// The GIL is held; all are live objects.
#[cold]
pub unsafe fn call_with_keywords(
    function: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let found = VECTORCALL.load(Ordering::Relaxed);
    // SAFETY: as in [`call`]; without the room that it names.
    unsafe {
        if found.is_null() {
            return call_by_tuple(function, arguments, count, keywords);
        }
        transmute::<*mut c_void, Vectorcall>(found)(function, arguments, count, keywords)
    }
}

unsafe fn call_by_tuple(
    function: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise.
    unsafe {
        let py = Python::assume_attached();
        let object = |at: usize| Bound::from_borrowed_ptr(py, *arguments.add(at));
        let called = || {
            let named = PyDict::new(py);
            if !keywords.is_null() {
                for at in 0..ffi::PyTuple_Size(keywords) {
                    let name = Bound::from_borrowed_ptr(py, ffi::PyTuple_GetItem(keywords, at));
                    named.set_item(name, object(count + at as usize))?;
                }
            }
            let positional = PyTuple::new(py, (0..count).map(object))?;
            Bound::from_borrowed_ptr(py, function).call(positional, Some(&named))
        };
        called().map_or_else(|error| raised(py, error), Bound::into_ptr)
    }
}

/// As [`call`], by the stable ABI of Python 3.10; `second` may be null.
#[cold]
unsafe fn call_otherwise(
    function: *mut ffi::PyObject,
    first: *mut ffi::PyObject,
    second: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise; the list of arguments ends with the first null.
    unsafe { ffi::PyObject_CallFunctionObjArgs(function, first, second, null_mut::<ffi::PyObject>()) }
}
