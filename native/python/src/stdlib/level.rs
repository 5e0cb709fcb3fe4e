//! The standard library's levels: their own names, and what severity they are.

use crate::value;
use pyo3::ffi;

/// Whether a level has the name that the standard library gives it.
///
/// # Safety
/// `name` is a live `str`.
#[inline(always)]
pub unsafe fn is_own_level(number: i64, name: *mut ffi::PyObject) -> bool {
    let own = match number {
        10 => "DEBUG",
        20 => "INFO",
        30 => "WARNING",
        40 => "ERROR",
        50 => "CRITICAL",
        _ => return false,
    };
    // SAFETY: the caller's promise.
    unsafe { value::utf8(name) == Some(own) }
}

/// The severity of a level, as `inference_logging.record.application.severity_of` has it.
#[inline(always)]
pub fn severity_of(level: i64) -> u8 {
    match level {
        50.. => 21,
        40.. => 17,
        30.. => 13,
        20.. => 9,
        _ => 5,
    }
}
