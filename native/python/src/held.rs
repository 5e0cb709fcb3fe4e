//! References to Python objects that the garbage collector can see and clear.
//!
//! An application may tie anything to the objects that it gets (`request.state.service = Service(request)`), so our
//! objects can be members of reference cycles. A class with such members shows each of them in `__traverse__` and gives
//! it up in `__clear__`. After that the member is missing, and whatever needs it refuses to work.

use super::gil_cell::GilCell;
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::{ffi, types::PyAnyMethods};

/// A reference that the collector can clear.
pub struct Held<T = PyAny>(GilCell<Option<Py<T>>>);

impl<T> Held<T> {
    pub const fn new(object: Py<T>) -> Self {
        Self(GilCell::new(Some(object)))
    }

    pub const fn maybe(object: Option<Py<T>>) -> Self {
        Self(GilCell::new(object))
    }

    /// The object's address; null: there is none. The address is valid while the owner of this reference is in use,
    /// since the collector clears only unreachable objects.
    #[inline]
    pub fn as_ptr(&self, py: Python<'_>) -> *mut ffi::PyObject {
        self.0.with(py, |held| held.as_ref().map_or(std::ptr::null_mut(), Py::as_ptr))
    }

    /// Whether there is no object.
    #[inline]
    pub fn is_none(&self, py: Python<'_>) -> bool {
        self.0.with(py, |held| held.is_none())
    }

    /// The object, owned.
    #[inline]
    pub fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, T>> {
        // A new reference runs no Python code.
        self.0.with(py, |held| held.as_ref().map(|object| object.clone_ref(py))).map(|object| object.into_bound(py))
    }

    /// Holds another object.
    pub fn set(&self, py: Python<'_>, object: Py<T>) {
        // As in `clear`.
        drop(self.0.with(py, |held| held.replace(object)));
    }

    /// Shows the object to the collector.
    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // SAFETY: the collector holds the GIL, and reads only.
        visit.call(unsafe { self.0.peek() })
    }

    /// Gives the object up.
    pub fn clear(&self, py: Python<'_>) {
        // The object is dropped outside of the cell, since its end may run Python code.
        drop(self.0.with(py, Option::take));
    }
}

impl Held {
    /// Calls the object.
    ///
    /// # Errors
    /// The exception of the call; RuntimeError, once the collector has cleared the reference.
    pub fn call1<'py>(
        &self,
        py: Python<'py>,
        arguments: impl pyo3::call::PyCallArgs<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.get(py).ok_or_else(ended)?.call1(arguments)
    }
}

/// The error of a call to an object that the collector has cleared.
#[cold]
pub fn ended() -> PyErr {
    PyRuntimeError::new_err("the garbage collector has taken this object apart")
}
