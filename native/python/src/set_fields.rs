//! The fields that an application sets of its request: few, small and of simple types.

use super::content;
use super::value::utf8;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use queue::record::Scratch;
use request::added::{AddedFields, FIELDS, MAX_TEXT_BYTES, members};

/// Most fields of a request.
const MAX_FIELDS: usize = 32;
/// Longest name of a field, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Of [`FIELDS`], those that an application sets.
const OWN: usize = 3;

/// The fields of one call, borrowed from its caller; those that are attributes are only counted here.
#[derive(Default)]
pub struct SetFields<'a> {
    ids: [Option<&'a str>; OWN],
    attributes: usize,
}

impl<'a> SetFields<'a> {
    /// Reads the fields of one call, and appends those that are attributes to `encoded` as the entries of a map. Raises as
    /// `RequestIds.set` says. Runs no Python code.
    ///
    /// # Safety
    /// `names` is null or a tuple of `str`, and there is a value for each of them; all live for `'a`.
    #[inline]
    pub unsafe fn read(
        py: Python<'_>,
        names: *mut ffi::PyObject,
        values: *const *mut ffi::PyObject,
        encoded: &mut Scratch,
    ) -> PyResult<Self> {
        let mut found = Self::default();
        if names.is_null() {
            return Ok(found);
        }
        // SAFETY: the caller's promise; names and values are borrowed.
        unsafe {
            for at in 0..ffi::Py_SIZE(names) {
                let (name, value) = (content::tuple_item(names, at), *values.offset(at));
                found.take(Borrowed::from_ptr(py, name), Borrowed::from_ptr(py, value), encoded)?;
            }
        }
        Ok(found)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.attributes == 0 && self.ids.iter().all(Option::is_none)
    }

    fn take(
        &mut self,
        name: Borrowed<'a, '_, PyAny>,
        value: Borrowed<'a, '_, PyAny>,
        to: &mut Scratch,
    ) -> PyResult<()> {
        let name = text(name).ok_or_else(|| PyValueError::new_err("set: a name must be UTF-8"))?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(wrong_name(name));
        }
        let id = FIELDS[..OWN].iter().position(|field| *field == name);
        if value.is_instance_of::<PyString>() {
            let text = text(value).ok_or_else(|| PyValueError::new_err(format!("set: {name} must be UTF-8")))?;
            if text.len() > MAX_TEXT_BYTES {
                return Err(too_long(name, text));
            }
            if let Some(id) = id {
                self.ids[id] = Some(text);
                return Ok(());
            }
            to.push_map_key(name);
            to.push_str(text);
        } else if id.is_some() {
            return Err(wrong_type(name, value, "str"));
        } else {
            to.push_map_key(name);
            push_other(name, value, to)?;
        }
        self.attributes += 1;
        Ok(())
    }

    /// Adds them to those of earlier calls, of which they replace those of the same name; `encoded` is what was read. Raises
    /// ValueError if they are too many, and then changes nothing.
    #[inline]
    pub fn add_to(&self, fields: &mut AddedFields, encoded: &Scratch) -> PyResult<()> {
        let encoded = encoded.as_slice();
        let is_new = |at: usize| members(fields.members.as_bytes()).all(|known| known.name != FIELDS[at].as_bytes());
        let new = (0..OWN).filter(|at| self.ids[*at].is_some() && is_new(*at)).count();
        let attributes = fields.count_with(self.attributes, encoded);
        let count = members(fields.members.as_bytes()).count() + new + attributes;
        if count > MAX_FIELDS {
            return Err(too_many(count));
        }
        for (field, text) in FIELDS.iter().zip(self.ids) {
            if let Some(text) = text {
                fields.members.set(field.as_bytes(), text.as_bytes());
            }
        }
        fields.put(self.attributes, encoded);
        Ok(())
    }
}

/// Appends a value that is no text.
fn push_other(name: &str, value: Borrowed<'_, '_, PyAny>, to: &mut Scratch) -> PyResult<()> {
    if let Ok(value) = value.cast::<PyBool>() {
        to.push_bool(value.is_true());
    } else if value.is_instance_of::<PyInt>() {
        match value.extract::<i64>() {
            Ok(number) => to.push_int(number),
            Err(_) => to.push_uint(value.extract().map_err(|_| too_large(name))?),
        }
    } else if let Ok(value) = value.cast::<PyFloat>() {
        to.push_float(value.value());
    } else {
        return Err(wrong_type(name, value, "str, int, float or bool"));
    }
    Ok(())
}

#[cold]
fn wrong_name(name: &str) -> PyErr {
    let bytes = name.len();
    PyValueError::new_err(format!("set: the name {name:?} has {bytes} bytes, must have 1 to {MAX_NAME_BYTES}"))
}

#[cold]
fn too_long(name: &str, text: &str) -> PyErr {
    let bytes = text.len();
    PyValueError::new_err(format!("set: {name} has {bytes} bytes, must have at most {MAX_TEXT_BYTES}"))
}

#[cold]
fn too_large(name: &str) -> PyErr {
    PyValueError::new_err(format!("set: {name} is no number of 64 bits"))
}

#[cold]
fn too_many(count: usize) -> PyErr {
    PyValueError::new_err(format!("set: the request has {count} fields, must have at most {MAX_FIELDS}"))
}

#[cold]
fn wrong_type(name: &str, value: Borrowed<'_, '_, PyAny>, allowed: &str) -> PyErr {
    let kind = value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("set: {name} is of type {kind}, must be {allowed}"))
}

/// Borrows a `str`; None if it is none, or has lone surrogates.
fn text<'a>(text: Borrowed<'a, '_, PyAny>) -> Option<&'a str> {
    // SAFETY: a live object, and the GIL is held; the kind is checked before.
    unsafe { if ffi::PyUnicode_Check(text.as_ptr()) != 0 { utf8(text.as_ptr()) } else { None } }
}
