//! `%s` and `%d` with values whose text is known without Python's help, which most messages are made of.

use crate::value;
use pyo3::ffi;
use std::mem::MaybeUninit;

/// Longer texts are made by the interpreter.
const MOST_BYTES: usize = 512;

/// A message with its values.
pub struct Text {
    bytes: [MaybeUninit<u8>; MOST_BYTES],
    len: usize,
}

impl Text {
    #[inline(always)]
    pub const fn new() -> Self {
        Self { bytes: [const { MaybeUninit::uninit() }; MOST_BYTES], len: 0 }
    }

    #[inline(always)]
    pub fn as_str(&self) -> &str {
        // SAFETY: `push` has written that many bytes, which are whole texts.
        unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len)) }
    }

    /// Appends a text, if there is room.
    #[inline(always)]
    fn push(&mut self, text: &str) -> Option<()> {
        let room = self.bytes.get_mut(self.len..self.len + text.len())?;
        // SAFETY: the room has this length, and is not part of the text.
        unsafe { room.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        self.len += text.len();
        Some(())
    }

    /// Appends `format % values`; None: it takes the interpreter to do it, or to find what is wrong.
    ///
    /// # Safety
    /// The GIL is held and no exception is set; there are `count` live values.
    #[inline(always)]
    pub unsafe fn format(&mut self, format: &str, values: *const *mut ffi::PyObject, count: usize) -> Option<()> {
        let mut rest = format;
        let mut taken = 0;
        while let Some(at) = rest.find('%') {
            self.push(&rest[..at])?;
            let kind = *rest.as_bytes().get(at + 1)?;
            // Both bytes are ASCII, so the rest begins with a whole character.
            rest = &rest[at + 2..];
            if kind == b'%' {
                self.push("%")?;
                continue;
            }
            if taken == count {
                return None;
            }
            // SAFETY: the caller's promise, and the position is one of them.
            unsafe { self.push_value(kind, *values.add(taken))? };
            taken += 1;
        }
        if taken != count {
            return None;
        }
        self.push(rest)
    }

    #[inline(always)]
    unsafe fn push_value(&mut self, kind: u8, value: *mut ffi::PyObject) -> Option<()> {
        // SAFETY: the caller's promise.
        unsafe {
            let class = ffi::Py_TYPE(value);
            if class == &raw mut ffi::PyLong_Type && matches!(kind, b's' | b'd') {
                return self.push(itoa::Buffer::new().format(super::attributes::int(value)?));
            }
            if kind != b's' {
                return None;
            }
            if class == &raw mut ffi::PyUnicode_Type {
                return self.push(value::utf8(value)?);
            }
            if value == ffi::Py_None() {
                return self.push("None");
            }
            (class == &raw mut ffi::PyBool_Type).then_some(())?;
            self.push(if value == ffi::Py_True() { "True" } else { "False" })
        }
    }
}
