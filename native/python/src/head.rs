//! The headers of a request that describe its trace, its id and its body.

use super::asgi::{Lengths, for_each_header};
use pyo3::prelude::*;
use request::capture::Content;

/// The headers that matter, borrowed from the scope.
#[derive(Default)]
pub struct RequestStart<'a> {
    pub traceparent: Lines<'a>,
    pub tracestate: Lines<'a>,
    pub request_id: Option<&'a [u8]>,
    pub content: Option<Content<'a>>,
    /// The body is compressed or otherwise encoded.
    pub is_encoded: bool,
}

impl<'a> RequestStart<'a> {
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn read(headers: Option<Borrowed<'a, '_, PyAny>>) -> Self {
        let mut head = Self::default();
        for_each_header(headers, const { &Lengths::of(&[10, 11, 12, 16]) }, |name, value| match name.len() {
            10 if name.eq_ignore_ascii_case(b"tracestate") => head.tracestate.push(value),
            11 if name.eq_ignore_ascii_case(b"traceparent") => head.traceparent.push(value),
            // The first such header counts, as in frameworks.
            12 if head.request_id.is_none() && name.eq_ignore_ascii_case(b"x-request-id") => {
                head.request_id = Some(value);
            }
            12 if name.eq_ignore_ascii_case(b"content-type") => head.content = Some(Content::of_type(value)),
            16 if name.eq_ignore_ascii_case(b"content-encoding") => {
                head.is_encoded = !value.eq_ignore_ascii_case(b"identity");
            }
            _ => (),
        });
        head
    }

    /// The content of the body, as far as it is read; an encoded body has no text.
    #[inline]
    pub fn content(&self, reads_text: bool) -> Content<'a> {
        match self.content {
            Some(content) if !(self.is_encoded && reads_text) => content,
            Some(_) => Content::Media(b"application/octet-stream"),
            None => Content::Media(b""),
        }
    }
}

/// The lines of one header. A single line, the usual case, takes no allocation.
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
