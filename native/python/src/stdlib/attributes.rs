//! The attributes of loggers and handlers, read from their dictionaries.

use crate::gil_cell::GilCell;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::ptr::null_mut;

/// A name that is looked up in dictionaries of the same kind, where it usually has the same position.
///
/// To look whether the entry at a position has this very name costs a third of a search. A position that is wrong, or
/// out of date, is harmless: the name is compared, and searched for if it is another.
pub struct Key {
    name: Py<PyAny>,
    position: GilCell<ffi::Py_ssize_t>,
}

impl Key {
    pub fn new(py: Python<'_>, name: &str) -> Self {
        Self::of(PyString::intern(py, name).into_any())
    }

    /// A key of any kind whose comparison runs no Python code.
    pub fn of(name: Bound<'_, PyAny>) -> Self {
        Self { name: name.unbind(), position: GilCell::new(0) }
    }

    /// The name itself, borrowed.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut ffi::PyObject {
        self.name.as_ptr()
    }

    /// Where this name was last found.
    #[inline(always)]
    pub fn position(&self, py: Python<'_>) -> ffi::Py_ssize_t {
        self.position.with(py, |position| *position)
    }

    /// The borrowed value of this name in a live dictionary; None: it is missing.
    #[inline(always)]
    pub unsafe fn item(&self, py: Python<'_>, dictionary: *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
        let mut position = self.position(py);
        let (mut name, mut value) = (null_mut(), null_mut());
        // SAFETY: the caller's promise; any position is allowed, and what is out of range is no entry.
        unsafe {
            if ffi::PyDict_Next(dictionary, &mut position, &mut name, &mut value) != 0 && name == self.name.as_ptr() {
                return Some(value);
            }
            self.search(py, dictionary)
        }
    }

    #[inline(never)]
    unsafe fn search(&self, py: Python<'_>, dictionary: *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
        let (mut position, mut before) = (0, 0);
        let (mut name, mut value) = (null_mut(), null_mut());
        // SAFETY: the caller's promise.
        unsafe {
            let found = item(dictionary, self.name.as_ptr())?;
            while ffi::PyDict_Next(dictionary, &mut position, &mut name, &mut value) != 0 {
                if name == self.name.as_ptr() {
                    self.position.with(py, |position| *position = before);
                    break;
                }
                before = position;
            }
            Some(found)
        }
    }
}

/// The attributes that each call reads.
pub struct Keys {
    pub cache: Key,
    pub disabled: Key,
    pub filters: Key,
    pub handlers: Key,
    pub manager: Key,
    pub name: Key,
    pub parent: Key,
    pub propagate: Key,
    pub handler_filters: Key,
    pub handler_level: Key,
}

impl Keys {
    pub fn new(py: Python<'_>) -> Self {
        let key = |name| Key::new(py, name);
        Self {
            cache: key("_cache"),
            disabled: key("disabled"),
            filters: key("filters"),
            handlers: key("handlers"),
            manager: key("manager"),
            name: key("name"),
            parent: key("parent"),
            propagate: key("propagate"),
            handler_filters: key("filters"),
            handler_level: key("level"),
        }
    }
}

/// The dictionary of an object's attributes.
#[derive(Clone, Copy)]
pub struct Attributes(*mut ffi::PyObject);

impl Attributes {
    /// The attributes of a live object, which keeps them as long as no other code runs.
    #[inline(always)]
    pub unsafe fn of(object: *mut ffi::PyObject) -> Option<Self> {
        // SAFETY: the caller's promise; the object holds its dictionary, so the new reference is not needed.
        unsafe {
            let dictionary = ffi::PyObject_GenericGetDict(object, null_mut());
            if dictionary.is_null() {
                ffi::PyErr_Clear();
                return None;
            }
            ffi::Py_DECREF(dictionary);
            Some(Self(dictionary))
        }
    }

    #[inline(always)]
    pub unsafe fn get(self, py: Python<'_>, key: &Key) -> Option<*mut ffi::PyObject> {
        // SAFETY: the caller's promise.
        unsafe { key.item(py, self.0) }
    }

    /// The attribute of a name that is rarely there.
    pub unsafe fn item(self, name: *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
        // SAFETY: the caller's promise.
        unsafe { item(self.0, name) }
    }

    /// The dictionary itself, borrowed.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut ffi::PyObject {
        self.0
    }

    #[inline(always)]
    pub unsafe fn size(self) -> isize {
        // SAFETY: the caller's promise.
        unsafe { ffi::PyDict_Size(self.0) }
    }

    /// An attribute that is true or false; None: it is missing, or is neither a `bool` nor an `int`.
    #[inline(always)]
    pub unsafe fn truth(self, py: Python<'_>, key: &Key) -> Option<bool> {
        // SAFETY: the caller's promise; the truth of an `int` runs no Python code.
        unsafe {
            let value = self.get(py, key)?;
            if value == ffi::Py_True() {
                Some(true)
            } else if value == ffi::Py_False() {
                Some(false)
            } else {
                (ffi::Py_TYPE(value) == &raw mut ffi::PyLong_Type).then(|| ffi::PyObject_IsTrue(value) == 1)
            }
        }
    }

    /// An attribute that is an `int`.
    #[inline(always)]
    pub unsafe fn int(self, py: Python<'_>, key: &Key) -> Option<i64> {
        // SAFETY: the caller's promise.
        unsafe { int(self.get(py, key)?) }
    }

    /// An attribute that is a `list`.
    #[inline(always)]
    pub unsafe fn list(self, py: Python<'_>, key: &Key) -> Option<*mut ffi::PyObject> {
        // SAFETY: the caller's promise.
        unsafe { self.get(py, key).filter(|list| ffi::Py_TYPE(*list) == &raw mut ffi::PyList_Type) }
    }
}

/// The value of an exact `int` that is not too large.
#[inline(always)]
pub unsafe fn int(object: *mut ffi::PyObject) -> Option<i64> {
    // SAFETY: the caller passes a live object and holds the GIL.
    unsafe {
        if ffi::Py_TYPE(object) != &raw mut ffi::PyLong_Type {
            return None;
        }
        let value = ffi::PyLong_AsLongLong(object);
        if value == -1 && !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Some(value)
    }
}

/// The borrowed value of a key; None: it is missing.
#[inline(always)]
pub unsafe fn item(dictionary: *mut ffi::PyObject, key: *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
    // SAFETY: the caller passes live objects and holds the GIL; the key is a `str` or an `int`, so that no error is possible.
    let value = unsafe { ffi::PyDict_GetItemWithError(dictionary, key) };
    (!value.is_null()).then_some(value)
}

/// Whether `accept` is true for each name and value of a dictionary, which must not change meanwhile.
#[inline(always)]
pub unsafe fn each(
    dictionary: *mut ffi::PyObject,
    accept: impl FnMut(*mut ffi::PyObject, *mut ffi::PyObject) -> bool,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe { each_from(dictionary, 0, accept) }
}

/// The same for the entries from a position on.
#[inline(always)]
pub unsafe fn each_from(
    dictionary: *mut ffi::PyObject,
    mut position: ffi::Py_ssize_t,
    mut accept: impl FnMut(*mut ffi::PyObject, *mut ffi::PyObject) -> bool,
) -> bool {
    let (mut name, mut value) = (null_mut(), null_mut());
    // SAFETY: the caller's promise.
    while unsafe { ffi::PyDict_Next(dictionary, &mut position, &mut name, &mut value) } != 0 {
        if !accept(name, value) {
            return false;
        }
    }
    true
}
