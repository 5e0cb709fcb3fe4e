//! The attributes that a call adds by `extra`.

use super::Call;
use super::attributes::{each, int};
use super::library::Library;
use crate::keywords::{self, SharedKeys, Values};
use crate::value;
use pyo3::prelude::*;
use pyo3::{ffi, intern};
use queue::record::Scratch;

/// The attributes that a call adds.
pub struct Extra<'a> {
    /// A dictionary that nothing changes meanwhile, or null.
    pub dictionary: *mut ffi::PyObject,
    /// Its names, where they are known already, and its values in the same order. Only while no Python code runs.
    pub known: Option<(SharedKeys, &'a [*mut ffi::PyObject])>,
}

impl Extra<'_> {
    const NONE: Self = Self { dictionary: std::ptr::null_mut(), known: None };

    #[inline(always)]
    pub unsafe fn has_plain_values(&self) -> bool {
        // SAFETY: the caller's promise: the dictionary and its values are live.
        unsafe {
            match &self.known {
                Some((_, values)) => values.iter().all(|value| is_plain(*value)),
                None => self.dictionary.is_null() || each(self.dictionary, |_, value| is_plain(value)),
            }
        }
    }

    #[inline(always)]
    pub unsafe fn push(&self, py: Python<'_>, scratch: &mut Scratch) {
        // SAFETY: the caller's promise: the dictionary and its values are live.
        unsafe {
            if let Some((keys, values)) = &self.known {
                return value::push_all(py, scratch, values.as_ptr(), values.len(), Some(keys.all()));
            }
            if !self.dictionary.is_null() {
                each(self.dictionary, |name, object| {
                    scratch.push_map_key(value::utf8(name).unwrap_or("?"));
                    value::push(py, scratch, object);
                    true
                });
            }
        }
    }
}

/// The attributes that a call adds; None: the keywords ask for more, or for something impossible.
#[inline(always)]
pub unsafe fn of_call<'a>(py: Python<'_>, library: &Library, call: Call, values: &'a mut Values) -> Option<Extra<'a>> {
    // SAFETY: the caller's promise.
    unsafe {
        if call.keywords.is_null() {
            return Some(Extra::NONE);
        }
        let mut extra = std::ptr::null_mut();
        for at in 0..ffi::PyTuple_Size(call.keywords) {
            let name = ffi::PyTuple_GetItem(call.keywords, at);
            let value = *call.arguments.add(call.count + at as usize);
            let is_off = value == ffi::Py_None() || value == ffi::Py_False();
            // Names of keywords are interned; any other goes to the standard library.
            if name == intern!(py, "extra").as_ptr() {
                extra = if value == ffi::Py_None() { std::ptr::null_mut() } else { value };
            } else if name == intern!(py, "exc_info").as_ptr() || name == intern!(py, "stack_info").as_ptr() {
                is_off.then_some(())?;
            } else {
                (name == intern!(py, "stacklevel").as_ptr() && int(value) == Some(1)).then_some(())?;
            }
        }
        if extra.is_null() {
            return Some(Extra::NONE);
        }
        if ffi::Py_TYPE(extra) != &raw mut ffi::PyDict_Type {
            return None;
        }
        let is_field = |name| name_of(&library.record_attributes, name).is_some();
        let known = keywords::keys_of_dict(py, extra, 0, ffi::PyDict_Size(extra) as usize, values, is_field);
        let is_usable = known.is_some() || each(extra, |name, _| is_field(name));
        is_usable.then_some(Extra { dictionary: extra, known })
    }
}

/// The text of a name that may stand beside a record's own ones, and beside the place of the call; None: it is no such
/// name.
///
/// # Safety
/// The GIL is held; a live object, which the text must not outlive.
#[inline(always)]
pub unsafe fn name_of<'a>(own: &Py<PyAny>, name: *mut ffi::PyObject) -> Option<&'a str> {
    // SAFETY: the caller's promise.
    unsafe {
        let is_text = ffi::Py_TYPE(name) == &raw mut ffi::PyUnicode_Type;
        let text = if is_text { value::utf8(name) } else { None };
        text.filter(|text| !text.starts_with("code.") && ffi::PySet_Contains(own.as_ptr(), name) == 0)
    }
}

pub fn copy<'py>(py: Python<'py>, dictionary: *mut ffi::PyObject) -> Option<Bound<'py, PyAny>> {
    // SAFETY: a live dictionary, and the GIL is held.
    unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyDict_Copy(dictionary)) }
}

/// Whether an object becomes text without running any Python code.
#[inline(always)]
pub unsafe fn is_plain(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller passes a live object.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        kind == &raw mut ffi::PyUnicode_Type
            || kind == &raw mut ffi::PyLong_Type
            || kind == &raw mut ffi::PyFloat_Type
            || kind == &raw mut ffi::PyBool_Type
            || object == ffi::Py_None()
    }
}
