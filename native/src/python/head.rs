//! What the headers of a request say about its trace, its id and its body.

use super::asgi::{for_each_header, is_json};
use pyo3::prelude::*;

/// The headers that are looked at, borrowed from the scope.
#[derive(Default)]
pub struct RequestHead<'a> {
    pub traceparent: Lines<'a>,
    pub tracestate: Lines<'a>,
    pub request_id: Option<&'a [u8]>,
    pub is_json: bool,
}

impl<'a> RequestHead<'a> {
    #[inline]
    pub fn read(headers: Option<Borrowed<'a, '_, PyAny>>) -> Self {
        let mut head = Self::default();
        for_each_header(headers, |name, value| match name.len() {
            10 if name.eq_ignore_ascii_case(b"tracestate") => head.tracestate.push(value),
            11 if name.eq_ignore_ascii_case(b"traceparent") => head.traceparent.push(value),
            // As frameworks have it, which return the first one.
            12 if head.request_id.is_none() && name.eq_ignore_ascii_case(b"x-request-id") => {
                head.request_id = Some(value);
            }
            12 if name.eq_ignore_ascii_case(b"content-type") => head.is_json = is_json(value),
            _ => (),
        });
        head
    }
}

/// The lines of one header. One line, the usual case, takes no allocation.
#[derive(Default)]
pub struct Lines<'a> {
    first: Option<&'a [u8]>,
    more: Vec<&'a [u8]>,
}

impl<'a> Lines<'a> {
    #[inline]
    fn push(&mut self, line: &'a [u8]) {
        if self.first.is_none() {
            self.first = Some(line);
        } else {
            self.more.push(line);
        }
    }

    /// The line, if there is exactly one.
    #[inline]
    pub fn single(&self) -> Option<&'a [u8]> {
        self.first.filter(|_| self.more.is_empty())
    }

    /// All lines in their order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.first.into_iter().chain(self.more.iter().copied())
    }
}
