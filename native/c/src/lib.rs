//! The C library `libinferlog`: the functions of `inferlog.h`, over the same producer, observer and listener as the Python
//! module's.
//!
//! Rules of every function: no panic leaves it; a null pointer where an object is expected is refused; a text is a pointer
//! with a length. An emit takes no lock, and allocates nothing for a record of up to 2,048 bytes.
//!
//! An open log is never freed: a thread may still hold it when another one closes it. A closed log refuses records and
//! counts them.

mod emit;
mod log;
mod message;
#[cfg(feature = "requests")]
mod request;

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

pub use emit::{
    Event, Kind, Record, Scalar, Value, inferlog_emit, inferlog_push, inferlog_record_begin, inferlog_record_commit,
    inferlog_register,
};
pub use log::{
    ABI_VERSION, Log, Stats, inferlog_abi_version, inferlog_close, inferlog_flush, inferlog_open, inferlog_open_file,
    inferlog_stats,
};
#[cfg(not(feature = "requests"))]
pub use message::Request;
pub use message::{Attribute, inferlog_message};
#[cfg(feature = "requests")]
pub use request::{
    End, Ids, Model, Request, RequestStart, Tensor, inferlog_request_answer, inferlog_request_begin,
    inferlog_request_body, inferlog_request_chunk, inferlog_request_disconnect, inferlog_request_emit,
    inferlog_request_end, inferlog_request_header, inferlog_request_ids, inferlog_request_tensors,
};

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Returns why the last function that failed in this thread did so, one sentence a line; NULL: none has failed. The text
/// stays until the next function fails in this thread. `inferlog_emit`, `inferlog_record_commit` and
/// `inferlog_request_emit` leave no text: what they refuse is counted, see `inferlog_stats`.
#[unsafe(no_mangle)]
pub extern "C" fn inferlog_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ref().map_or(ptr::null(), |text| text.as_ptr())).unwrap_or(ptr::null())
}

/// Keeps the text of an error.
#[cold]
fn note(why: &str) {
    let text = CString::new(why.replace('\0', "\u{fffd}")).ok();
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Runs `work`. Of an error or a panic the text is kept, and `failed` is returned.
fn guarded<T>(failed: T, work: impl FnOnce() -> Result<T, String>) -> T {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => done,
        Ok(Err(why)) => {
            note(&why);
            failed
        }
        Err(_) => {
            note("a fault of the library, which is reported on stderr");
            failed
        }
    }
}

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
