//! Messages of an application, as Python's `get_logger` records them.

use crate::Text;
use crate::emit::{Value, push};
use crate::log::Log;
#[cfg(feature = "requests")]
use crate::request::Request;
use inferlog::message::offer;
use queue::record::Scratch;
use std::slice;

/// Nothing makes one in a library without requests: it is always NULL.
///
/// cbindgen:ignore
#[cfg(not(feature = "requests"))]
pub struct Request {
    _opaque: [u8; 0],
}

#[cfg(not(feature = "requests"))]
impl Request {
    const fn ids(&self) -> &inferlog::RequestIds {
        unreachable!()
    }
}

/// A field of a message.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Attribute<'a> {
    pub name: Text<'a>,
    pub value: Value<'a>,
}

/// Puts a message of an application into the queue, as Python's `get_logger` does: the name of its logger, its text, and any
/// number of fields. With `request`, it carries the request's ids. Returns whether it was accepted; false also if `severity`
/// is below the parameter `level`. Of a name that is not UTF-8 the field is left out.
///
/// # Safety
/// `log` is NULL or an open log; `request` is NULL or under way; there are `count` attributes, and all texts live during
/// the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_message(
    log: *const Log,
    request: *const Request,
    severity: u8,
    logger: Text<'_>,
    message: Text<'_>,
    attributes: *const Attribute<'_>,
    count: usize,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(log) = Log::at(log) else { return false };
        if severity < log.least_severity() {
            return false;
        }
        let ids = request.as_ref().map(Request::ids);
        let attributes = if attributes.is_null() { &[] } else { slice::from_raw_parts(attributes, count) };
        let named = attributes.iter().filter(|one| is_text(one.name.bytes())).count();
        offer(&log, ids, severity, logger.bytes(), message.bytes(), named, |scratch: &mut Scratch| {
            for one in attributes.iter().filter(|one| named == attributes.len() || is_text(one.name.bytes())) {
                // It is UTF-8, as was just checked.
                scratch.push_map_key(str::from_utf8_unchecked(one.name.bytes()));
                push(scratch, &one.value);
            }
        })
    }
}

/// Whether bytes are UTF-8; names are ASCII nearly always.
#[inline]
fn is_text(bytes: &[u8]) -> bool {
    bytes.is_ascii() || str::from_utf8(bytes).is_ok()
}
