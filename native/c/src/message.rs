//! Messages of an application, as Python's `get_logger` records them.

use crate::emit::{Value, push};
use crate::log::Log;
use crate::request::Request;
use crate::text::Text;
use queue::event::LOG;
use queue::record::Scratch;
use std::slice;

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
        let Some(log) = log.as_ref() else { return false };
        if severity < log.least_severity() {
            return false;
        }
        let mut scratch = Scratch::new();
        let ids = request.as_ref().map(Request::ids);
        match ids {
            Some(ids) => scratch.push_trace(&ids.trace),
            None => scratch.push_absent(),
        }
        scratch.push_bytes(logger.bytes());
        scratch.push_bytes(message.bytes());
        match ids {
            Some(ids) => ids.push_request_id(&mut scratch),
            None => scratch.push_absent(),
        }
        let attributes = if attributes.is_null() { &[] } else { slice::from_raw_parts(attributes, count) };
        let named = || attributes.iter().filter_map(|one| Some((str::from_utf8(one.name.bytes()).ok()?, &one.value)));
        match named().count() {
            0 => scratch.push_absent(),
            count => scratch.push_map_begin(count as u32),
        }
        for (name, value) in named() {
            scratch.push_map_key(name);
            push(&mut scratch, value);
        }
        log.service.producer.emit(LOG, severity, scratch.as_slice())
    }
}
