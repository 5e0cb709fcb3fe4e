//! Calls of Triton's methods, which take the object alone.
//!
//! Triton's classes are pybind11's, whose methods take a tuple of arguments. A tuple for each call would cost more than
//! the rest of the call, so those of a batch share one.

use pyo3::ffi;
use pyo3::prelude::*;
use std::ptr;

/// The tuple that the calls of a batch share.
pub struct Calls<'py> {
    py: Python<'py>,
    arguments: Option<Bound<'py, PyAny>>,
    /// The object in the tuple, which keeps it alive.
    object: *mut ffi::PyObject,
}

impl<'py> Calls<'py> {
    pub const fn new(py: Python<'py>) -> Self {
        Self { py, arguments: None, object: ptr::null_mut() }
    }

    /// Calls `method(object)`.
    #[inline]
    pub fn call(&mut self, method: &Py<PyAny>, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let arguments = self.with(object)?;
        // SAFETY: live objects, and the GIL is held; the result is a new reference, or null and an exception.
        unsafe {
            let result = ffi::PyObject_Call(method.as_ptr(), arguments, ptr::null_mut());
            Bound::from_owned_ptr_or_err(self.py, result)
        }
    }

    /// The tuple with `object` in it.
    #[inline]
    fn with(&mut self, object: &Bound<'py, PyAny>) -> PyResult<*mut ffi::PyObject> {
        if let Some(arguments) = &self.arguments {
            if self.object == object.as_ptr() {
                return Ok(arguments.as_ptr());
            }
            // SAFETY: a tuple with one item; the call takes over the reference to `object`. It refuses a tuple that
            // somebody else has a reference to, such as a method that keeps its arguments.
            if unsafe { ffi::PyTuple_SetItem(arguments.as_ptr(), 0, object.clone().into_ptr()) } == 0 {
                self.object = object.as_ptr();
                return Ok(arguments.as_ptr());
            }
        }
        self.renew(object)
    }

    #[cold]
    #[inline(never)]
    fn renew(&mut self, object: &Bound<'py, PyAny>) -> PyResult<*mut ffi::PyObject> {
        // That of a refused tuple.
        drop(PyErr::take(self.py));
        let arguments = (object,).into_pyobject(self.py)?.into_any();
        self.object = object.as_ptr();
        Ok(self.arguments.insert(arguments).as_ptr())
    }
}
