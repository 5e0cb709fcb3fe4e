//! Nested values that `orjson` refuses as a whole, since one of them is a number beyond 64 bits, a text with lone
//! surrogates or an object that raises: that one becomes a text, and its neighbours are what they are.

use super::{Encoder, TOO_MANY_DIGITS, bytes_of, clear_error, digits, not_encoded, utf8};
use lines::json::escape;
use pyo3::ffi;
use pyo3::prelude::*;

/// `orjson`'s own limit.
const MOST_LEVELS: usize = 254;
/// A structure of more values, or one that contains itself, is given up as a whole: this runs in a request.
const MOST_VALUES: usize = 1 << 14;

/// Return the JSON of a list, tuple or dict; None: it is something else, too deep, or too large.
#[cold]
pub fn encoded(encoder: &Encoder, object: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    let mut apart = Apart { encoder, out: Vec::new(), values_left: MOST_VALUES };
    apart.container(object, MOST_LEVELS)?.then_some(apart.out)
}

struct Apart<'a> {
    encoder: &'a Encoder,
    out: Vec<u8>,
    values_left: usize,
}

impl Apart<'_> {
    fn value(&mut self, object: &Bound<'_, PyAny>, levels: usize) -> Option<()> {
        self.values_left = self.values_left.checked_sub(1)?;
        if !self.container(object, levels)? {
            self.single(object);
        }
        Some(())
    }

    /// Append a container; return whether it is one.
    fn container(&mut self, object: &Bound<'_, PyAny>, levels: usize) -> Option<bool> {
        let (py, of) = (object.py(), object.as_ptr());
        // Copies: what is encoded on the way may run Python code that changes the original.
        // SAFETY: `of` is live and the GIL is held; the new reference is owned.
        let (is_map, items) = unsafe {
            let is_map = ffi::PyDict_Check(of) != 0;
            if !is_map && ffi::PyList_Check(of) == 0 && ffi::PyTuple_CheckExact(of) == 0 {
                return Some(false);
            }
            let list = if is_map { ffi::PyDict_Items(of) } else { ffi::PySequence_List(of) };
            if list.is_null() {
                clear_error();
                return None;
            }
            (is_map, Bound::from_owned_ptr(py, list))
        };
        let levels = levels.checked_sub(1)?;
        self.out.push(if is_map { b'{' } else { b'[' });
        // SAFETY: `items` is a list, which nothing else has; each item is borrowed while it is there.
        let item = |at| unsafe { Borrowed::from_ptr_or_opt(py, ffi::PyList_GetItem(items.as_ptr(), at)) };
        for at in 0.. {
            // SAFETY: as above.
            if at >= unsafe { ffi::PyList_Size(items.as_ptr()) } {
                break;
            }
            if at > 0 {
                self.out.push(b',');
            }
            let item = item(at)?.to_owned();
            if is_map {
                // SAFETY: an item of a dict is a tuple of two, which lives as long as `item`.
                let part = |at| unsafe { Borrowed::from_ptr(py, ffi::PyTuple_GetItem(item.as_ptr(), at)).to_owned() };
                self.key(&part(0));
                self.out.push(b':');
                self.value(&part(1), levels)?;
            } else {
                self.value(&item, levels)?;
            }
        }
        self.out.push(if is_map { b'}' } else { b']' });
        Some(true)
    }

    fn key(&mut self, object: &Bound<'_, PyAny>) {
        let start = self.out.len();
        self.single(object);
        if self.out[start] != b'"' {
            self.out.insert(start, b'"');
            self.out.push(b'"');
        }
    }

    /// Append what is no container, as a text if it cannot be encoded.
    fn single(&mut self, object: &Bound<'_, PyAny>) {
        let of = object.as_ptr();
        if let Some(encoded) = self.encoder.encode(object) {
            // SAFETY: `orjson` returns bytes, which live as long as `encoded`.
            return self.out.extend_from_slice(unsafe { bytes_of(encoded.as_ptr()) });
        }
        // SAFETY: `of` is live, the GIL is held and no exception is set; new references are owned.
        unsafe {
            clear_error();
            if ffi::PyLong_Check(of) != 0 {
                let digits = digits(object);
                return match digits.as_ref().and_then(|digits| utf8(digits.as_ptr())) {
                    Some(digits) => self.out.extend_from_slice(digits.as_bytes()),
                    None => escape::push_string(&mut self.out, TOO_MANY_DIGITS.as_bytes()),
                };
            }
            if ffi::PyUnicode_Check(of) != 0 {
                let text = ffi::PyUnicode_AsEncodedString(of, c"utf-8".as_ptr(), c"backslashreplace".as_ptr());
                if let Some(text) = Bound::from_owned_ptr_or_opt(object.py(), text) {
                    return escape::push_string(&mut self.out, bytes_of(text.as_ptr()));
                }
                clear_error();
            }
        }
        escape::push_string(&mut self.out, not_encoded(object).as_bytes());
    }
}
