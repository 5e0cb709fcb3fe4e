//! Messages of an application, as Python's `get_logger` records them.

#[cfg(feature = "requests")]
use crate::event::Value;
use crate::log::Inner;
#[cfg(feature = "requests")]
use crate::log::Log;
#[cfg(feature = "requests")]
use crate::request::Request;
use queue::event::LOG;
use queue::record::Scratch;
use request::ids::RequestIds;

#[cfg(feature = "requests")]
impl Log {
    /// Puts a message of an application into the queue: the name of its logger, its text, and any number of fields. With
    /// `request`, it carries the request's ids. Returns whether it was accepted; false also if `severity` is below the
    /// parameter `level`.
    pub fn message(
        self,
        request: Option<&Request>,
        severity: u8,
        logger: &str,
        message: &str,
        attributes: &[(&str, Value<'_>)],
    ) -> bool {
        if severity < self.least_severity() {
            return false;
        }
        let fill = |scratch: &mut Scratch| {
            for (name, value) in attributes {
                scratch.push_map_key(name);
                value.push(scratch);
            }
        };
        let (logger, message) = (logger.as_bytes(), message.as_bytes());
        offer(&self, request.map(Request::ids), severity, logger, message, attributes.len(), fill)
    }
}

/// Puts a message into the queue; `fill` appends the `count` names and values of its fields.
#[inline]
pub fn offer(
    log: &Inner,
    ids: Option<&RequestIds>,
    severity: u8,
    logger: &[u8],
    message: &[u8],
    count: usize,
    fill: impl FnOnce(&mut Scratch),
) -> bool {
    let mut scratch = Scratch::new();
    match ids {
        Some(ids) => scratch.push_trace(&ids.trace),
        None => scratch.push_absent(),
    }
    scratch.push_bytes(logger);
    scratch.push_bytes(message);
    match ids {
        Some(ids) => ids.push_request_id(&mut scratch),
        None => scratch.push_absent(),
    }
    match count {
        0 => scratch.push_absent(),
        count => scratch.push_map_begin(count as u32),
    }
    fill(&mut scratch);
    log.service.producer.emit(LOG, severity, scratch.as_slice())
}
