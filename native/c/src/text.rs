//! Texts of the caller: a pointer and a length.

use std::ffi::c_char;
use std::marker::PhantomData;

/// A text of `length` bytes, without an end of its own. NULL with length 0: there is none.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text<'a> {
    pub data: *const c_char,
    pub length: usize,
    /// cbindgen leaves it out.
    pub(crate) borrowed: PhantomData<&'a [u8]>,
}

impl<'a> Text<'a> {
    /// The bytes; empty for null.
    ///
    /// # Safety
    /// `data` is null, or points to `length` bytes that live as long as the text.
    pub unsafe fn bytes(self) -> &'a [u8] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.length) }
    }

    /// As [`Text::bytes`]; None for an empty text.
    ///
    /// # Safety
    /// As [`Text::bytes`].
    pub unsafe fn given(self) -> Option<&'a [u8]> {
        // SAFETY: the caller's promise.
        Some(unsafe { self.bytes() }).filter(|bytes| !bytes.is_empty())
    }
}
