//! Reading of a context variable, without the call of a method.
//!
//! Each interpreter exports `PyContextVar_Get` without having it in the stable ABI: it is looked up at run time. Python
//! code passes the variable's method `get`; that is called where the function is missing, or where it is another method.

use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

type Read = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject, *mut *mut ffi::PyObject) -> c_int;

static READ: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The class of context variables, which is never dropped.
static CLASS: AtomicPtr<ffi::PyObject> = AtomicPtr::new(null_mut());

/// Looks the interpreter's function and class up; until then the method is called.
pub fn find(py: Python<'_>) -> PyResult<()> {
    CLASS.store(py.import("contextvars")?.getattr("ContextVar")?.into_ptr(), Ordering::Relaxed);
    // SAFETY: the name is a C string; the symbol is looked up in what is loaded, and nothing is called.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyContextVar_Get".as_ptr()) };
    READ.store(found, Ordering::Relaxed);
    Ok(())
}

/// Returns what `get` returns: a new reference, or null, perhaps with an exception set.
///
/// # Safety
/// The GIL is held and no exception is set; `get` is live. If it is a method of a context variable, it is `get`.
#[inline]
pub unsafe fn value(get: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let read = READ.load(Ordering::Relaxed);
    // SAFETY: the caller's promise; what was found under this name has this signature in every version that exports it,
    // and is given an object of the class that it is for.
    unsafe {
        if !read.is_null() && ffi::Py_TYPE(get) == &raw mut ffi::PyCFunction_Type {
            let variable = ffi::PyCFunction_GetSelf(get);
            if !variable.is_null() && ffi::Py_TYPE(variable).cast() == CLASS.load(Ordering::Relaxed) {
                let mut value = null_mut();
                transmute::<*mut c_void, Read>(read)(variable, null_mut(), &mut value);
                return value;
            }
        }
        ffi::PyObject_CallNoArgs(get)
    }
}
