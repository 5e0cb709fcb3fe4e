//! The headers of a request that describe its trace, its id and its body.

use super::headers::{Header, Lengths, for_each_header};
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
    /// How the body is compressed.
    pub encoding: Option<&'a [u8]>,
}

impl<'a> RequestStart<'a> {
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn read(headers: Option<Borrowed<'a, '_, PyAny>>) -> Self {
        let mut head = Self::default();
        for_each_header(headers, OWN, |header| head.note(header));
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
        let lengths = Lengths::of_bits(recorded.lengths());
        for_each_header(headers, OWN.and(lengths), |header| {
            if OWN.has(header.name.len()) {
                head.note(header);
            }
            if lengths.has(header.name.len())
                && let Some(value) = header.value()
            {
                recorded.take_few(header.name, value, members);
            }
        });
        head
    }

    #[inline(always)]
    fn note(&mut self, header: Header<'a>) {
        let is = |name: &[u8]| header.name.eq_ignore_ascii_case(name);
        match header.name.len() {
            10 if is(b"tracestate") => self.tracestate.extend(header.value()),
            11 if is(b"traceparent") => self.traceparent.extend(header.value()),
            // The first such header counts, as in frameworks.
            12 if is(b"x-request-id") => self.request_id = self.request_id.or_else(|| header.value()),
            12 if is(b"content-type") => self.content = header.value().map(Content::of_type).or(self.content),
            16 if is(b"content-encoding") => {
                self.encoding = header.value().or(self.encoding);
            }
            _ => (),
        }
    }

    /// The content of the body.
    #[inline]
    pub fn content(&self) -> Content<'a> {
        let content = self.content.unwrap_or(Content::Media(b""));
        self.encoding.map_or(content, |encoding| content.encoded(encoding))
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
    fn extend(&mut self, line: Option<&'a [u8]>) {
        if self.first.is_none() {
            self.first = line;
        } else {
            self.more.extend(line);
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
