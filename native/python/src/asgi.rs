//! Reads ASGI scopes and messages: dictionaries, header lists, texts and bodies, all borrowed and never changed.

use super::value::{bytes_of, utf8};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use request::capture::Content;

/// Interned names, so that a look-up compares pointers.
pub struct Keys {
    pub kind: Py<PyString>,
    pub body: Py<PyString>,
    pub more_body: Py<PyString>,
    pub trailers: Py<PyString>,
    pub more_trailers: Py<PyString>,
    pub count: Py<PyString>,
    pub status: Py<PyString>,
    pub headers: Py<PyString>,
    pub method: Py<PyString>,
    pub path: Py<PyString>,
    pub root_path: Py<PyString>,
    pub app_root_path: Py<PyString>,
    pub route: Py<PyString>,
    pub fastapi: Py<PyString>,
    pub effective_route_context: Py<PyString>,
    pub original_route: Py<PyString>,
    pub http_version: Py<PyString>,
    pub client: Py<PyString>,
}

impl Keys {
    pub fn intern(py: Python<'_>) -> Self {
        Self {
            kind: intern!(py, "type").clone().unbind(),
            body: intern!(py, "body").clone().unbind(),
            more_body: intern!(py, "more_body").clone().unbind(),
            trailers: intern!(py, "trailers").clone().unbind(),
            more_trailers: intern!(py, "more_trailers").clone().unbind(),
            count: intern!(py, "count").clone().unbind(),
            status: intern!(py, "status").clone().unbind(),
            headers: intern!(py, "headers").clone().unbind(),
            method: intern!(py, "method").clone().unbind(),
            path: intern!(py, "path").clone().unbind(),
            root_path: intern!(py, "root_path").clone().unbind(),
            app_root_path: intern!(py, "app_root_path").clone().unbind(),
            route: intern!(py, "route").clone().unbind(),
            fastapi: intern!(py, "fastapi").clone().unbind(),
            effective_route_context: intern!(py, "effective_route_context").clone().unbind(),
            original_route: intern!(py, "original_route").clone().unbind(),
            http_version: intern!(py, "http_version").clone().unbind(),
            client: intern!(py, "client").clone().unbind(),
        }
    }
}

/// The largest number of headers that are read in a message.
const MAX_HEADERS: isize = 256;

/// Calls `visit` with each header of a list of pairs of `bytes`, as ASGI defines it, up to [`MAX_HEADERS`]. Other
/// members are skipped.
#[inline]
pub fn for_each_header<'a>(headers: Option<Borrowed<'a, '_, PyAny>>, visit: impl FnMut(&'a [u8], &'a [u8])) {
    for_each_header_up_to(MAX_HEADERS, headers, visit);
}

#[inline]
fn for_each_header_up_to<'a>(
    most: isize,
    headers: Option<Borrowed<'a, '_, PyAny>>,
    mut visit: impl FnMut(&'a [u8], &'a [u8]),
) {
    let Some(headers) = headers else { return };
    // SAFETY: every object is checked for its kind before its content is borrowed; the borrows live as long as the
    // header list, which the scope or message keeps.
    unsafe {
        for position in 0..length(headers.as_ptr()).min(most) {
            let pair = member(headers.as_ptr(), position);
            if length(pair) == 2 {
                let (name, value) = (member(pair, 0), member(pair, 1));
                if ffi::PyBytes_Check(name) != 0 && ffi::PyBytes_Check(value) != 0 {
                    visit(bytes_of(name), bytes_of(value));
                }
            }
        }
    }
}

/// The number of members of a list or tuple; 0 for anything else.
#[inline]
unsafe fn length(sequence: *mut ffi::PyObject) -> isize {
    // SAFETY: the caller's promise: a live object, and the GIL is held.
    unsafe {
        if ffi::PyList_Check(sequence) != 0 {
            ffi::PyList_Size(sequence)
        } else if ffi::PyTuple_Check(sequence) != 0 {
            ffi::PyTuple_Size(sequence)
        } else {
            0
        }
    }
}

/// Borrows a member of a list or tuple.
#[inline]
unsafe fn member(sequence: *mut ffi::PyObject, position: isize) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise: a list or tuple with that many members.
    unsafe {
        if ffi::PyList_Check(sequence) != 0 {
            ffi::PyList_GetItem(sequence, position)
        } else {
            ffi::PyTuple_GetItem(sequence, position)
        }
    }
}

/// The kind of content that a body of this type holds.
#[inline]
pub fn content_of(content_type: &[u8]) -> Content<'_> {
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let begins = |with: &[u8]| kind.len() >= with.len() && kind[..with.len()].eq_ignore_ascii_case(with);
    if kind.eq_ignore_ascii_case(b"application/json")
        || (kind.len() > 5 && kind[kind.len() - 5..].eq_ignore_ascii_case(b"+json"))
    {
        Content::Json
    } else if kind.eq_ignore_ascii_case(b"text/event-stream") {
        Content::Stream
    } else if begins(b"text/") || TEXTS.iter().any(|text| kind.eq_ignore_ascii_case(text)) {
        Content::Text
    } else {
        Content::Media(kind)
    }
}

/// Types that hold text, although they do not begin with `text/`.
const TEXTS: [&[u8]; 4] =
    [b"application/x-www-form-urlencoded", b"application/x-ndjson", b"application/jsonl", b"application/xml"];

/// The kind of content of a body, by its headers. An encoded (compressed) body cannot be read.
#[inline]
pub fn content_of_headers<'a>(headers: Borrowed<'a, '_, PyAny>) -> Content<'a> {
    let (mut content, mut is_encoded) = (Content::Media(b""), false);
    for_each_header(Some(headers), |name, value| {
        if name.len() == 12 && name.eq_ignore_ascii_case(b"content-type") {
            content = content_of(value);
        } else if name.len() == 16 && name.eq_ignore_ascii_case(b"content-encoding") {
            is_encoded = !value.eq_ignore_ascii_case(b"identity");
        }
    });
    if is_encoded { Content::Media(b"application/octet-stream") } else { content }
}

/// Whether the opt-out header forbids the capture of text: it is present, and its value does not mean no.
pub fn is_private(headers: Option<Borrowed<'_, '_, PyAny>>, opt_out_header: &[u8]) -> bool {
    let mut is_private = false;
    // All headers are read: a request for privacy counts wherever it stands.
    for_each_header_up_to(isize::MAX, headers, |name, value| {
        if name.eq_ignore_ascii_case(opt_out_header) {
            let value = value.trim_ascii();
            is_private |= ![&b"0"[..], b"false", b"no", b"off"].iter().any(|no| value.eq_ignore_ascii_case(no));
        }
    });
    is_private
}

pub fn has_body(method: Borrowed<'_, '_, PyAny>) -> bool {
    matches!(text(method), "POST" | "PUT" | "PATCH")
}

/// The path template of the route.
///
/// FastAPI from 0.165 on keeps the declared route, and the path with the prefixes of all its routers, in
/// `scope["fastapi"]["effective_route_context"]`.
pub fn template<'py>(scope: &Bound<'py, PyDict>, route: &Bound<'py, PyAny>, keys: &Keys) -> Option<Bound<'py, PyAny>> {
    let fastapi = item(scope, &keys.fastapi).map(Borrowed::to_owned);
    let fastapi = fastapi.as_ref().and_then(|fastapi| fastapi.cast::<PyDict>().ok());
    let context = fastapi.and_then(|fastapi| item(fastapi, &keys.effective_route_context)).map(Borrowed::to_owned);
    let taken =
        context.filter(|context| context.getattr(&keys.original_route).is_ok_and(|original| original.is(route)));
    taken.as_ref().unwrap_or(route).getattr(&keys.path).ok()
}

/// The mount point of the application that took the route, seen from the outermost one (Starlette's `Mount`).
pub fn mount_prefix<'a>(outermost: &Option<Bound<'_, PyAny>>, inner: &'a Option<Bound<'_, PyAny>>) -> &'a str {
    if outermost.is_none() {
        return "";
    }
    text_of(inner).strip_prefix(text_of(outermost)).unwrap_or("")
}

/// Borrows a dictionary's value; None if it is missing or its look-up fails.
///
/// The value must be used or owned at once: foreign code (a key's comparison in the next look-up, an attribute, a truth
/// value) may empty the dictionary.
#[inline]
pub fn item<'a, 'py>(dict: &'a Bound<'py, PyDict>, key: &Py<PyString>) -> Option<Borrowed<'a, 'py, PyAny>> {
    // SAFETY: live objects, the GIL is held; a borrowed reference, kept by the dictionary until foreign code runs.
    unsafe {
        let found = ffi::PyDict_GetItemWithError(dict.as_ptr(), key.as_ptr());
        if found.is_null() {
            if !ffi::PyErr_Occurred().is_null() {
                ffi::PyErr_Clear();
            }
            return None;
        }
        Some(Borrowed::from_ptr(dict.py(), found))
    }
}

/// Borrows a `str`; empty for anything else.
#[inline]
pub fn text<'a>(object: Borrowed<'a, '_, PyAny>) -> &'a str {
    // SAFETY: a live object; the kind is checked before.
    unsafe { if ffi::PyUnicode_Check(object.as_ptr()) != 0 { utf8(object.as_ptr()).unwrap_or("") } else { "" } }
}

/// As [`text`]; empty for None.
#[inline]
pub fn text_of<'a>(object: &'a Option<Bound<'_, PyAny>>) -> &'a str {
    object.as_ref().map_or("", |object| text(object.as_borrowed()))
}

/// The value of a non-negative `int`; None for anything else. Runs no foreign code.
#[inline]
pub fn whole_number(object: Borrowed<'_, '_, PyAny>) -> Option<u64> {
    // SAFETY: a live object, the GIL is held; the kind is checked before.
    unsafe {
        if ffi::PyLong_Check(object.as_ptr()) == 0 {
            return None;
        }
        let number = ffi::PyLong_AsLongLong(object.as_ptr());
        if number < 0 && !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
        }
        u64::try_from(number).ok()
    }
}

/// Copies a body that servers accept but that cannot be borrowed: a `memoryview`. None for anything else.
#[inline]
pub fn copied<'py>(body: Borrowed<'_, 'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: a live object, the GIL is held; the kind is checked before, and null is not used.
    unsafe {
        if ffi::PyMemoryView_Check(body.as_ptr()) == 0 {
            return None;
        }
        let bytes = Bound::from_owned_ptr_or_opt(body.py(), ffi::PyBytes_FromObject(body.as_ptr()));
        if bytes.is_none() {
            ffi::PyErr_Clear();
        }
        bytes
    }
}

/// Borrows the bytes of a body; empty for anything that is neither `bytes` nor `bytearray`.
#[inline]
pub fn content<'a>(object: Borrowed<'a, '_, PyAny>) -> &'a [u8] {
    // SAFETY: the kinds are checked; nothing runs that could change a bytearray while it is borrowed.
    unsafe {
        if ffi::PyBytes_Check(object.as_ptr()) != 0 {
            return bytes_of(object.as_ptr());
        }
        if ffi::PyByteArray_Check(object.as_ptr()) != 0 {
            let len = ffi::PyByteArray_Size(object.as_ptr()) as usize;
            return std::slice::from_raw_parts(ffi::PyByteArray_AsString(object.as_ptr()).cast(), len);
        }
    }
    b""
}

#[inline]
pub fn is_true(object: Borrowed<'_, '_, PyAny>) -> bool {
    // SAFETY: the GIL is held.
    let (yes, no) = unsafe { (ffi::Py_True(), ffi::Py_False()) };
    // The object is owned while foreign code runs, which may remove it.
    object.as_ptr() == yes || (object.as_ptr() != no && object.to_owned().is_truthy().unwrap_or(false))
}

/// The first member of a tuple or list: the host of an ASGI `client`.
pub fn first<'py>(pair: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: a live object, the GIL is held; there is a first member, which the pair keeps.
    unsafe { (length(pair.as_ptr()) > 0).then(|| Borrowed::from_ptr(pair.py(), member(pair.as_ptr(), 0)).to_owned()) }
}
