//! Conversion of Python values to record values. Nothing here raises: a value that cannot be encoded becomes a text
//! that says so.

use super::content;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};
use queue::record::{KeysLeft, Room, Scratch};

/// JSON that is already encoded, and is copied into the line as it is.
///
/// The caller is responsible for its validity: it must be one JSON value without a line break.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct Json {
    encoded: Vec<u8>,
}

#[pymethods]
impl Json {
    #[new]
    fn new(encoded: &Bound<'_, PyAny>) -> PyResult<Self> {
        let encoded = if let Ok(text) = encoded.cast::<PyString>() {
            text.to_cow()?.into_owned().into_bytes()
        } else if let Ok(bytes) = encoded.cast::<PyBytes>() {
            bytes.as_bytes().to_vec()
        } else {
            let kind = encoded.get_type().name()?.to_string();
            return Err(PyTypeError::new_err(format!("encoded={kind}: must be str or bytes that hold JSON")));
        };
        Ok(Self { encoded })
    }
}

mod apart;

const TOO_MANY_DIGITS: &str = "<int with too many digits>";

/// `orjson.dumps` and its arguments.
struct Encoder {
    dumps: Py<PyAny>,
    default: Py<PyAny>,
    option: Py<PyAny>,
}

static ENCODER: PyOnceLock<Encoder> = PyOnceLock::new();

/// Appends any Python object as one value.
///
/// # Safety
/// `object` is a live object, the GIL is held and no exception is set.
#[inline]
pub unsafe fn push(py: Python<'_>, scratch: &mut Scratch, object: *mut ffi::PyObject) {
    // SAFETY: the caller's promise; the type objects are static.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        if kind == &raw mut ffi::PyUnicode_Type {
            push_text(scratch, object);
        } else if kind == &raw mut ffi::PyLong_Type {
            push_int(scratch, object);
        } else if kind == &raw mut ffi::PyFloat_Type {
            scratch.push_float(content::float(object));
        } else if object == ffi::Py_None() {
            scratch.push_null();
        } else if object == ffi::Py_True() {
            scratch.push_bool(true);
        } else if object == ffi::Py_False() {
            scratch.push_bool(false);
        } else {
            push_other(py, scratch, object);
        }
    }
}

/// Appends `count` objects, each behind the next of `keys` if there are keys.
///
/// # Safety
/// As [`push`] for each of the objects, which outlive the call.
#[inline(always)]
pub unsafe fn push_all(
    py: Python<'_>,
    scratch: &mut Scratch,
    objects: *const *mut ffi::PyObject,
    count: usize,
    mut keys: Option<KeysLeft<'_>>,
) {
    let mut at = 0;
    loop {
        let mut room = scratch.room();
        let has_key = loop {
            if at == count {
                return;
            }
            let has_key = keys.as_mut().is_none_or(|keys| room.push_key(keys));
            // SAFETY: the caller's promise.
            if !has_key || unsafe { !push_plain(&mut room, *objects.add(at)) } {
                break has_key;
            }
            at += 1;
        };
        drop(room);
        if let Some(keys) = keys.as_mut().filter(|_| !has_key) {
            keys.push_next(scratch);
        }
        // SAFETY: the caller's promise.
        unsafe { push(py, scratch, *objects.add(at)) };
        at += 1;
    }
}

/// Appends an object of a usual type, if that runs no Python code and there is room; else returns false.
///
/// # Safety
/// As [`push`].
#[inline(always)]
unsafe fn push_plain(room: &mut Room<'_>, object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's promise; the type objects are static.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        if kind == &raw mut ffi::PyUnicode_Type {
            utf8(object).is_some_and(|text| room.push_str(text))
        } else if kind == &raw mut ffi::PyLong_Type {
            let value = ffi::PyLong_AsLongLong(object);
            if value == -1 { clear_error() } else { room.push_int(value) }
        } else if kind == &raw mut ffi::PyFloat_Type {
            room.push_float(content::float(object))
        } else if object == ffi::Py_None() {
            room.push_null()
        } else if object == ffi::Py_True() {
            room.push_bool(true)
        } else {
            object == ffi::Py_False() && room.push_bool(false)
        }
    }
}

/// Forgets an error, if there is one; returns false.
#[cold]
#[inline(never)]
unsafe fn clear_error() -> bool {
    // SAFETY: the GIL is held (callers).
    unsafe { ffi::PyErr_Clear() };
    false
}

/// Appends a `str`.
///
/// # Safety
/// As [`push`], and `object` is a `str`.
#[inline]
pub unsafe fn push_text(scratch: &mut Scratch, object: *mut ffi::PyObject) {
    // SAFETY: the caller's promise.
    match unsafe { utf8(object) } {
        Some(text) => scratch.push_str(text),
        None => push_surrogates(scratch, object),
    }
}

/// Borrows a `str` as UTF-8, or returns None if it has lone surrogates (or is no `str`).
///
/// # Safety
/// As [`push`]; the text must not be used longer than the object lives.
#[inline]
pub unsafe fn utf8<'a>(object: *mut ffi::PyObject) -> Option<&'a str> {
    let mut len: ffi::Py_ssize_t = 0;
    // SAFETY: the caller's promise; Python guarantees valid UTF-8 of that length.
    unsafe {
        if let Some(text) = content::ascii(object) {
            return Some(text);
        }
        let text = ffi::PyUnicode_AsUTF8AndSize(object, &mut len);
        if text.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Some(std::str::from_utf8_unchecked(std::slice::from_raw_parts(text.cast(), len as usize)))
    }
}

#[cold]
fn push_surrogates(scratch: &mut Scratch, object: *mut ffi::PyObject) {
    // SAFETY: `object` is live, the GIL is held (callers); the new reference is released below.
    unsafe {
        let bytes = ffi::PyUnicode_AsEncodedString(object, c"utf-8".as_ptr(), c"backslashreplace".as_ptr());
        if bytes.is_null() {
            ffi::PyErr_Clear();
            return scratch.push_str("<text that cannot be encoded>");
        }
        scratch.push_bytes(bytes_of(bytes));
        ffi::Py_DECREF(bytes);
    }
}

#[inline]
unsafe fn push_int(scratch: &mut Scratch, object: *mut ffi::PyObject) {
    // SAFETY: the caller's promise.
    unsafe {
        let value = ffi::PyLong_AsLongLong(object);
        if value == -1 && !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
            push_large_int(scratch, object);
        } else {
            scratch.push_int(value);
        }
    }
}

#[cold]
fn push_large_int(scratch: &mut Scratch, object: *mut ffi::PyObject) {
    // SAFETY: `object` is a live int, the GIL is held (callers); the digits outlive their text.
    unsafe {
        match digits(&Borrowed::from_ptr(Python::assume_attached(), object)) {
            Some(digits) => scratch.push_json(utf8(digits.as_ptr()).unwrap_or("null").as_bytes()),
            None => scratch.push_str(TOO_MANY_DIGITS),
        }
    }
}

/// Return the digits of an int as text; None: it has more than Python is willing to print.
///
/// `str` does not serve here, since a class may define its own: an enumeration's is a name.
fn digits<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: `object` is live and the GIL is held; the new reference is owned.
    let digits = unsafe { Bound::from_owned_ptr_or_opt(object.py(), ffi::PyNumber_ToBase(object.as_ptr(), 10)) };
    if digits.is_none() {
        // SAFETY: the GIL is held.
        unsafe { clear_error() };
    }
    digits
}

/// Borrows the content of a `bytes` object.
///
/// # Safety
/// As [`push`], and `object` is a `bytes`; the slice must not be used longer than the object lives.
#[inline]
pub unsafe fn bytes_of<'a>(object: *mut ffi::PyObject) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe {
        let len = ffi::Py_SIZE(object) as usize;
        std::slice::from_raw_parts(content::bytes(object).cast(), len)
    }
}

#[cold]
unsafe fn push_other(py: Python<'_>, scratch: &mut Scratch, object: *mut ffi::PyObject) {
    // SAFETY: the caller's promise.
    unsafe {
        if ffi::PyBytes_Check(object) != 0 {
            return scratch.push_bytes(bytes_of(object));
        }
        let object = Borrowed::from_ptr(py, object);
        if let Ok(json) = object.cast::<Json>() {
            return scratch.push_json(&json.get().encoded);
        }
        if let Ok(fields) = object.cast::<BoundFields>() {
            return fields.get().push(scratch);
        }
        if ffi::PyUnicode_Check(object.as_ptr()) != 0 {
            return push_text(scratch, object.as_ptr());
        }
        if ffi::PyLong_Check(object.as_ptr()) != 0 {
            return push_int(scratch, object.as_ptr());
        }
        if push_encoded(&object, scratch).is_none() {
            ffi::PyErr_Clear();
            scratch.push_str(&not_encoded(&object));
        }
    }
}

/// What is written in place of a value.
#[cold]
fn not_encoded(object: &Bound<'_, PyAny>) -> String {
    let kind = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    format!("<{kind} that cannot be encoded>")
}

/// Appends nested values, and the many types that orjson knows; any other type as its `str()`.
fn push_encoded(object: &Bound<'_, PyAny>, scratch: &mut Scratch) -> Option<()> {
    let encoder = ENCODER.get_or_try_init(object.py(), || Encoder::import(object.py())).ok()?;
    if let Some(encoded) = encoder.encode(object) {
        scratch.push_json(encoded.cast::<PyBytes>().ok()?.as_bytes());
        return Some(());
    }
    // SAFETY: the GIL is held.
    unsafe { clear_error() };
    scratch.push_json(&apart::encoded(encoder, object)?);
    Some(())
}

/// The text of an object that orjson does not know. Bytes are decoded: redaction and readers see the text in them.
#[pyfunction]
fn text_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    // SAFETY: the object is live and the GIL is held.
    let is_binary = unsafe { ffi::PyBytes_Check(object.as_ptr()) != 0 || ffi::PyByteArray_Check(object.as_ptr()) != 0 };
    if is_binary { PyString::from_encoded_object(object, Some(c"utf-8"), Some(c"replace")) } else { object.str() }
}

impl Encoder {
    /// Returns the JSON of an object as bytes; None, with an exception: it has none.
    fn encode<'py>(&self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        // SAFETY: live objects, the GIL is held; the new reference is owned. Null leaves an exception, which the caller
        // clears: a `PyErr` dropped in a plain C function would keep its traceback until some other call gets into PyO3.
        unsafe {
            let end: *mut ffi::PyObject = std::ptr::null_mut();
            let (dumps, default, option) = (self.dumps.as_ptr(), self.default.as_ptr(), self.option.as_ptr());
            let encoded = ffi::PyObject_CallFunctionObjArgs(dumps, object.as_ptr(), default, option, end);
            Bound::from_owned_ptr_or_opt(object.py(), encoded)
        }
    }

    fn import(py: Python<'_>) -> PyResult<Self> {
        let orjson = py.import("orjson")?;
        let option = |name: &str| -> PyResult<u32> { orjson.getattr(name)?.extract() };
        let option = option("OPT_NON_STR_KEYS")? | option("OPT_SERIALIZE_NUMPY")?;
        Ok(Self {
            dumps: orjson.getattr("dumps")?.unbind(),
            default: wrap_pyfunction!(text_of, py)?.into_any().unbind(),
            option: option.into_pyobject(py)?.into_any().unbind(),
        })
    }
}

/// Fields that are encoded once: of every record of a logger, or of one record as a map.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct BoundFields {
    pub entries: Vec<BoundField>,
}

#[derive(Clone)]
pub struct BoundField {
    pub name: Box<str>,
    /// Key and value, as they stand in a map.
    pub encoded: Box<[u8]>,
}

impl BoundFields {
    /// Appends all of them as one map.
    pub fn push(&self, scratch: &mut Scratch) {
        scratch.push_map_begin(self.entries.len() as u32);
        self.entries.iter().for_each(|field| scratch.push_values(&field.encoded));
    }
}
