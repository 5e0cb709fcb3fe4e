//! Reads ASGI scopes and messages: dictionaries, texts and bodies, all borrowed and never changed.
//!
//! What a request calls several times is not inlined: in a server its code has left the processor's caches by the next
//! request.

use super::content;
use super::value::{bytes_of, utf8};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// Interned names, so that a look-up compares pointers.
pub struct Keys {
    pub kind: Py<PyString>,
    pub http: Py<PyString>,
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
    pub extensions: Py<PyString>,
    pub trailers_extension: Py<PyString>,
    pub route: Py<PyString>,
    pub path_params: Py<PyString>,
    pub path_template: Py<PyString>,
    pub fastapi: Py<PyString>,
    pub effective_route_context: Py<PyString>,
    pub original_route: Py<PyString>,
    pub http_version: Py<PyString>,
    pub client: Py<PyString>,
    /// The empty text, of which CPython has one.
    pub empty: Py<PyString>,
}

impl Keys {
    pub fn intern(py: Python<'_>) -> Self {
        Self {
            kind: intern!(py, "type").clone().unbind(),
            http: intern!(py, "http").clone().unbind(),
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
            extensions: intern!(py, "extensions").clone().unbind(),
            trailers_extension: intern!(py, "http.response.trailers").clone().unbind(),
            route: intern!(py, "route").clone().unbind(),
            path_params: intern!(py, "path_params").clone().unbind(),
            path_template: intern!(py, "path_template").clone().unbind(),
            fastapi: intern!(py, "fastapi").clone().unbind(),
            effective_route_context: intern!(py, "effective_route_context").clone().unbind(),
            original_route: intern!(py, "original_route").clone().unbind(),
            http_version: intern!(py, "http_version").clone().unbind(),
            client: intern!(py, "client").clone().unbind(),
            empty: intern!(py, "").clone().unbind(),
        }
    }
}

/// Whether an object is `bytes`. The exact type is one comparison.
#[inline]
pub(super) unsafe fn is_bytes(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's promise: a live object, and the GIL is held.
    unsafe { ffi::PyBytes_CheckExact(object) != 0 || ffi::PyBytes_Check(object) != 0 }
}

/// The number of members of a list or tuple; 0 for anything else.
#[inline]
pub(super) unsafe fn length(sequence: *mut ffi::PyObject) -> isize {
    // SAFETY: the caller's promise: a live object, and the GIL is held.
    unsafe {
        if is_list(sequence) || ffi::PyTuple_CheckExact(sequence) != 0 || ffi::PyTuple_Check(sequence) != 0 {
            ffi::Py_SIZE(sequence)
        } else {
            0
        }
    }
}

/// Borrows a member of a list or tuple.
#[inline]
pub(super) unsafe fn member(sequence: *mut ffi::PyObject, position: isize) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise: a list or tuple with that many members.
    unsafe {
        if ffi::PyTuple_CheckExact(sequence) == 0 && is_list(sequence) {
            content::list_item(sequence, position)
        } else {
            content::tuple_item(sequence, position)
        }
    }
}

/// Whether an object is a list. The exact type is one comparison.
#[inline]
unsafe fn is_list(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's promise: a live object, and the GIL is held.
    unsafe {
        ffi::PyList_CheckExact(object) != 0 || (ffi::PyTuple_CheckExact(object) == 0 && ffi::PyList_Check(object) != 0)
    }
}

pub fn has_body(method: &[u8]) -> bool {
    matches!(method, b"POST" | b"PUT" | b"PATCH")
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

/// Borrows a dictionary; None for anything else. The exact type is one comparison.
#[inline]
pub fn dict<'a, 'py>(object: Borrowed<'a, 'py, PyAny>) -> Option<Borrowed<'a, 'py, PyDict>> {
    // SAFETY: a live object; its exact type is that of dictionaries.
    unsafe {
        if ffi::PyDict_CheckExact(object.as_ptr()) != 0 {
            return Some(object.cast_unchecked());
        }
    }
    object.cast().ok()
}

/// Borrows a dictionary's value; None if it is missing or its look-up fails.
///
/// The value must be used or owned at once: foreign code (a key's comparison in the next look-up, an attribute, a truth
/// value) may empty the dictionary.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
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

/// A part of a body as most applications send it, borrowed from its message.
pub struct BodyPart<'a, 'py> {
    pub body: Borrowed<'a, 'py, PyAny>,
    pub more_body: bool,
}

impl<'a, 'py> BodyPart<'a, 'py> {
    /// Reads a message of this kind in one walk that runs no foreign code. None if anything is unusual: a key or a kind
    /// that is not one of the interned names, a flag that is no `bool`, no body.
    #[inline(always)]
    pub fn read(message: &'a Bound<'py, PyDict>, keys: &Keys, body_kind: *mut ffi::PyObject) -> Option<Self> {
        let (mut body, mut more_body, mut has_kind) = (std::ptr::null_mut(), false, false);
        let (mut position, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: live objects, the GIL is held, and the dictionary does not change; the body is borrowed from it.
        unsafe {
            // The call that says that there is no other costs more than to count.
            for _ in 0..ffi::PyDict_Size(message.as_ptr()) {
                if ffi::PyDict_Next(message.as_ptr(), &raw mut position, &raw mut key, &raw mut value) == 0 {
                    return None;
                }
                if key == keys.body.as_ptr() {
                    body = value;
                } else if key == keys.kind.as_ptr() && value == body_kind {
                    has_kind = true;
                } else if key == keys.more_body.as_ptr() && (value == ffi::Py_True() || value == ffi::Py_False()) {
                    more_body = value == ffi::Py_True();
                } else {
                    return None;
                }
            }
            if !has_kind || body.is_null() {
                return None;
            }
            Some(Self { body: Borrowed::from_ptr(message.py(), body), more_body })
        }
    }
}

/// The members of a message about an answer, borrowed from it.
#[derive(Default)]
pub struct Message<'a, 'py> {
    pub kind: Option<Borrowed<'a, 'py, PyAny>>,
    pub status: Option<Borrowed<'a, 'py, PyAny>>,
    pub trailers: bool,
    pub body: Option<Borrowed<'a, 'py, PyAny>>,
    pub more_body: bool,
}

impl<'a, 'py> Message<'a, 'py> {
    /// Reads a message in one walk that runs no foreign code, as long as every key is one of the interned names and every
    /// flag is a `bool`: the messages of most applications. None for any other.
    #[inline]
    pub fn read(message: &'a Bound<'py, PyDict>, keys: &Keys) -> Option<Self> {
        let mut found = Self::default();
        let (mut position, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: live objects, the GIL is held, and the dictionary does not change; the values are borrowed from it.
        unsafe {
            let (yes, mut left) = (ffi::Py_True(), ffi::PyDict_Size(message.as_ptr()));
            // The call that says that there is no other costs more than to count.
            while left > 0 && ffi::PyDict_Next(message.as_ptr(), &raw mut position, &raw mut key, &raw mut value) != 0 {
                left -= 1;
                let member = Some(Borrowed::from_ptr(message.py(), value));
                if key == keys.body.as_ptr() {
                    found.body = member;
                } else if key == keys.kind.as_ptr() {
                    found.kind = member;
                } else if key == keys.more_body.as_ptr() || key == keys.trailers.as_ptr() {
                    if value != yes && value != ffi::Py_False() {
                        return None;
                    }
                    let flag = if key == keys.trailers.as_ptr() { &mut found.trailers } else { &mut found.more_body };
                    *flag = value == yes;
                } else if key == keys.status.as_ptr() {
                    found.status = member;
                } else if key != keys.headers.as_ptr() {
                    return None;
                }
            }
        }
        Some(found)
    }

    /// As [`Self::read`], for any message. The body is looked up last, since each look-up can run foreign code that empties
    /// the message; kind and status are owned by `kept`.
    #[cold]
    #[inline(never)]
    pub fn look_up(message: &'a Bound<'py, PyDict>, keys: &Keys, kept: &'a mut [Option<Bound<'py, PyAny>>; 2]) -> Self {
        let own = |key| item(message, key).map(Borrowed::to_owned);
        *kept = [own(&keys.kind), own(&keys.status)];
        let is_set = |key| item(message, key).is_some_and(is_true);
        let (trailers, more_body) = (is_set(&keys.trailers), is_set(&keys.more_body));
        let [kind, status] = kept.each_ref().map(|kept| kept.as_ref().map(Bound::as_borrowed));
        Self { kind, status, trailers, body: item(message, &keys.body), more_body }
    }
}

/// Borrows a `str`; empty for anything else.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
pub fn text<'a>(object: Borrowed<'a, '_, PyAny>) -> &'a str {
    // SAFETY: a live object; the kind is checked before.
    unsafe { if is_text(object.as_ptr()) { utf8(object.as_ptr()).unwrap_or("") } else { "" } }
}

/// Whether an object is `str`. The exact type is one comparison.
#[inline]
unsafe fn is_text(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's promise: a live object, and the GIL is held.
    unsafe { ffi::PyUnicode_CheckExact(object) != 0 || ffi::PyUnicode_Check(object) != 0 }
}

/// As [`text`]; empty for None.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
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

/// Borrows the bytes of a body that is exactly `bytes`, which most bodies are; None for any other.
#[inline]
pub fn exact_bytes<'a>(body: Borrowed<'a, '_, PyAny>) -> Option<&'a [u8]> {
    // SAFETY: a live object; the kind is checked before its content is borrowed.
    unsafe { (ffi::PyBytes_CheckExact(body.as_ptr()) != 0).then(|| bytes_of(body.as_ptr())) }
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
        if is_bytes(object.as_ptr()) {
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

/// The first member of a tuple or list as a text; empty if it is none.
#[inline]
pub fn first_text<'a>(pair: &'a Bound<'_, PyAny>) -> &'a str {
    // SAFETY: a live object, the GIL is held; there is a first member, which the pair keeps while no foreign code runs.
    unsafe {
        if length(pair.as_ptr()) > 0 { text(Borrowed::from_ptr(pair.py(), member(pair.as_ptr(), 0))) } else { "" }
    }
}

/// The first member of a tuple or list: the host of an ASGI `client`.
pub fn first<'py>(pair: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: a live object, the GIL is held; there is a first member, which the pair keeps.
    unsafe { (length(pair.as_ptr()) > 0).then(|| Borrowed::from_ptr(pair.py(), member(pair.as_ptr(), 0)).to_owned()) }
}
