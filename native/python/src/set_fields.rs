//! The fields that an application sets of its request: few, small and of simple types.

use super::value::utf8;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};
use queue::record::Scratch;
use request::added::{AddedFields, FIELDS, Kind, MAX_TEXT_BYTES, Members};

/// Most fields of a request.
const MAX_FIELDS: usize = 32;
/// Longest name of a field, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Of [`FIELDS`], those that an application sets.
const OWN: usize = 3;

/// A value that a field can have.
#[derive(Clone, Debug)]
pub enum Set {
    Text(Box<str>),
    Int(i64),
    Uint(u64),
    Float(f64),
    Bool(bool),
}

/// A name and its value.
pub type Field = (Box<str>, Set);

/// All fields of a request, each name once.
#[derive(Clone, Debug, Default)]
pub struct SetFields(Vec<Field>);

/// Reads the fields of one call. Raises as `RequestIds.set` says.
pub fn read(fields: &Bound<'_, PyDict>) -> PyResult<Vec<Field>> {
    fields.iter().map(|(name, value)| field(&name, &value)).collect()
}

fn field(name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Field> {
    let name = name.cast::<PyString>()?;
    let name = text(name).ok_or_else(|| PyValueError::new_err("set: a name must be UTF-8"))?;
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        let bytes = name.len();
        return Err(PyValueError::new_err(format!(
            "set: the name {name:?} has {bytes} bytes, must have 1 to {MAX_NAME_BYTES}"
        )));
    }
    let is_id = FIELDS[..OWN].contains(&&*name);
    let set = if let Ok(value) = value.cast::<PyString>() {
        let value = text(value).ok_or_else(|| PyValueError::new_err(format!("set: {name} must be UTF-8")))?;
        if value.len() > MAX_TEXT_BYTES {
            let bytes = value.len();
            return Err(PyValueError::new_err(format!(
                "set: {name} has {bytes} bytes, must have at most {MAX_TEXT_BYTES}"
            )));
        }
        Set::Text(value)
    } else if is_id {
        return Err(wrong_type(&name, value, "str"));
    } else if let Ok(value) = value.cast::<PyBool>() {
        Set::Bool(value.is_true())
    } else if value.is_instance_of::<PyInt>() {
        let signed = value.extract().map(Set::Int);
        let number = signed.or_else(|_| value.extract().map(Set::Uint));
        number.map_err(|_| PyValueError::new_err(format!("set: {name} is no number of 64 bits")))?
    } else if let Ok(value) = value.cast::<PyFloat>() {
        Set::Float(value.value())
    } else {
        return Err(wrong_type(&name, value, "str, int, float or bool"));
    };
    Ok((name, set))
}

fn wrong_type(name: &str, value: &Bound<'_, PyAny>, allowed: &str) -> PyErr {
    let kind = value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("set: {name} is of type {kind}, must be {allowed}"))
}

fn text(text: &Bound<'_, PyString>) -> Option<Box<str>> {
    // SAFETY: a live text, and the GIL is held.
    unsafe { utf8(text.as_ptr()).map(Into::into) }
}

impl SetFields {
    /// Takes the fields of one call, which replace those of the same name. Raises ValueError if there are too many.
    pub fn take(&mut self, fields: Vec<Field>) -> PyResult<()> {
        let is_new = |name: &str| self.0.iter().all(|(known, _)| **known != *name);
        let count = self.0.len() + fields.iter().filter(|(name, _)| is_new(name)).count();
        if count > MAX_FIELDS {
            return Err(PyValueError::new_err(format!(
                "set: the request has {count} fields, must have at most {MAX_FIELDS}"
            )));
        }
        for (name, value) in fields {
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = value,
                None => self.0.push((name, value)),
            }
        }
        Ok(())
    }

    /// The same as a record takes them.
    pub fn added(&self) -> AddedFields {
        let (mut members, mut map) = (Members::default(), Scratch::new());
        let is_id = |name: &str| FIELDS[..OWN].contains(&name);
        let others = self.0.iter().filter(|(name, _)| !is_id(name));
        let count = others.clone().count();
        if count > 0 {
            map.push_map_begin(count as u32);
        }
        for (name, value) in others {
            map.push_map_key(name);
            match value {
                Set::Text(text) => map.push_str(text),
                Set::Int(number) => map.push_int(*number),
                Set::Uint(number) => map.push_uint(*number),
                Set::Float(number) => map.push_float(*number),
                Set::Bool(is_set) => map.push_bool(*is_set),
            }
        }
        for (name, value) in self.0.iter().filter(|(name, _)| is_id(name)) {
            if let Set::Text(text) = value {
                members.add(Kind::Text, name, text.as_bytes());
            }
        }
        AddedFields { members, attributes: map.as_slice().to_vec() }
    }
}
