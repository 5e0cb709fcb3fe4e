//! The headers of a request that describe its trace, its id and its body.

use super::asgi::{Lengths, for_each_header};
use pyo3::prelude::*;
use request::added::{FewMembers, Recorded};
use request::capture::Content;

/// The lengths of the names that are looked at in any case.
const OWN: Lengths = Lengths::of(&[10, 11, 12, 16]);

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
        for_each_header(headers, &OWN, |name, value| head.note(name, value));
        head
    }

    /// As [`Self::read`]; also takes the headers that are recorded.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn read_recording(
        headers: Option<Borrowed<'a, '_, PyAny>>,
        recorded: &Recorded,
        members: &mut FewMembers,
    ) -> Self {
        let mut head = Self::default();
        for_each_header(headers, &OWN.and(recorded.lengths()), |name, value| {
            head.note(name, value);
            recorded.take_few(name, value, members);
        });
        head
    }

    #[inline(always)]
    fn note(&mut self, name: &'a [u8], value: &'a [u8]) {
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"tracestate") => self.tracestate.push(value),
            11 if name.eq_ignore_ascii_case(b"traceparent") => self.traceparent.push(value),
            // The first such header counts, as in frameworks.
            12 if self.request_id.is_none() && name.eq_ignore_ascii_case(b"x-request-id") => {
                self.request_id = Some(value);
            }
            12 if name.eq_ignore_ascii_case(b"content-type") => self.content = Some(Content::of_type(value)),
            16 if name.eq_ignore_ascii_case(b"content-encoding") => {
                self.is_encoded = !value.eq_ignore_ascii_case(b"identity");
            }
            _ => (),
        }
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
