//! What is inside of Python objects: read in place by a build for one version of Python, through functions by one for
//! the stable ABI, which knows no other way.

use pyo3::ffi;

#[cfg(not(Py_LIMITED_API))]
pub use ffi::{
    PyBytes_AS_STRING as bytes, PyFloat_AS_DOUBLE as float, PyList_GET_ITEM as list_item,
    PyTuple_GET_ITEM as tuple_item, PyTuple_SET_ITEM as set_tuple_item,
};
#[cfg(Py_LIMITED_API)]
pub use ffi::{
    PyBytes_AsString as bytes, PyFloat_AsDouble as float, PyList_GetItem as list_item, PyTuple_GetItem as tuple_item,
    PyTuple_SetItem as set_tuple_item,
};

/// Borrows a `str` of ASCII characters. None: it has others, or a function has to look.
///
/// # Safety
/// `object` is live and the GIL is held; the text must not be used longer than the object lives.
#[cfg(not(Py_LIMITED_API))]
#[inline]
pub unsafe fn ascii<'a>(object: *mut ffi::PyObject) -> Option<&'a str> {
    // SAFETY: the caller's promise; a `str` with this mark has as many bytes of ASCII as characters.
    unsafe {
        if ffi::PyUnicode_Check(object) == 0 || !is_ascii(object) {
            return None;
        }
        let len = ffi::PyUnicode_GET_LENGTH(object) as usize;
        Some(std::str::from_utf8_unchecked(std::slice::from_raw_parts(ffi::PyUnicode_1BYTE_DATA(object), len)))
    }
}

/// Whether a `str` has the mark of ASCII characters, which then follow the object's head.
///
/// # Safety
/// `object` is a live `str`, and the GIL is held.
#[cfg(all(not(Py_LIMITED_API), not(Py_3_14)))]
#[inline]
unsafe fn is_ascii(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's promise.
    unsafe { ffi::PyUnicode_IS_COMPACT_ASCII(object) != 0 }
}

/// Whether a `str` has ASCII characters, which then follow the object's head. From 3.14 on the mark is no other's to
/// read, but where the characters lie says the same: those of another `str` follow a longer head, or lie elsewhere.
///
/// # Safety
/// `object` is a live `str`, and the GIL is held.
#[cfg(all(not(Py_LIMITED_API), Py_3_14))]
#[inline]
unsafe fn is_ascii(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's promise; the end of the head is only compared.
    unsafe { ffi::PyUnicode_DATA(object) == object.cast::<ffi::PyASCIIObject>().add(1).cast() }
}

/// Borrows a `str` of ASCII characters. None: it has others, or a function has to look.
///
/// # Safety
/// None is needed.
#[cfg(Py_LIMITED_API)]
#[inline]
pub unsafe fn ascii<'a>(_object: *mut ffi::PyObject) -> Option<&'a str> {
    None
}
