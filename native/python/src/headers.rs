//! Reads the header lists of ASGI scopes and messages: pairs of `bytes`, borrowed and never changed.
//!
//! A request's list is walked once before anything else of it is known. Most headers are passed over by the length of their
//! name, and a value is looked at only if its name is wanted.

use super::asgi::{is_bytes, length, member};
use super::content;
use super::value::bytes_of;
use pyo3::ffi;
use pyo3::prelude::*;
use request::added::{FewMembers, Members, Recorded, length_bit};
use request::capture::Content;
use std::marker::PhantomData;

/// The largest number of headers that are read in a message.
const MAX_HEADERS: isize = 256;

/// The lengths of header names, a bit each.
#[derive(Clone, Copy)]
pub struct Lengths(u64);

impl Lengths {
    /// Every length.
    pub const ALL: Self = Self(u64::MAX);

    /// The lengths whose bits are set, as `request::added` counts them.
    pub const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Those of a set and of another one.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These lengths, and perhaps more.
    pub const fn of(lengths: &[usize]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < lengths.len() {
            bits |= length_bit(lengths[at]);
            at += 1;
        }
        Self(bits)
    }

    #[inline(always)]
    pub const fn has(self, length: usize) -> bool {
        self.0 & length_bit(length) != 0
    }
}

/// A header of a list.
#[derive(Clone, Copy)]
pub struct Header<'a> {
    pub name: &'a [u8],
    pair: *mut ffi::PyObject,
    list: PhantomData<&'a ()>,
}

impl<'a> Header<'a> {
    /// Its value; None if that is no `bytes`.
    #[inline(always)]
    pub fn value(&self) -> Option<&'a [u8]> {
        // SAFETY: a pair of the list, which has two members and is kept by it; the kind is checked before the content is
        // borrowed.
        unsafe {
            let value = member(self.pair, 1);
            is_bytes(value).then(|| bytes_of(value))
        }
    }
}

/// Calls `visit` with each header of a list of pairs of `bytes`, as ASGI defines it, up to [`MAX_HEADERS`], whose name has
/// one of these lengths. Other members are skipped.
#[inline(always)]
pub fn for_each_header<'a>(headers: Option<Borrowed<'a, '_, PyAny>>, lengths: Lengths, visit: impl FnMut(Header<'a>)) {
    for_each_header_up_to(MAX_HEADERS, headers, lengths, visit);
}

#[inline(always)]
fn for_each_header_up_to<'a>(
    most: isize,
    headers: Option<Borrowed<'a, '_, PyAny>>,
    lengths: Lengths,
    mut visit: impl FnMut(Header<'a>),
) {
    let Some(headers) = headers else { return };
    let list = headers.as_ptr();
    // SAFETY: every object is checked for its kind before its content is borrowed; the borrows live as long as the
    // header list, which the scope or message keeps.
    unsafe {
        let is_plain_list = ffi::PyList_CheckExact(list) != 0;
        let count = if is_plain_list { ffi::Py_SIZE(list) } else { length(list) };
        for position in 0..count.min(most) {
            let pair = if is_plain_list { content::list_item(list, position) } else { member(list, position) };
            let name = name_of(pair);
            if !name.is_null() && lengths.has(ffi::Py_SIZE(name) as usize) {
                visit(Header { name: bytes_of(name), pair, list: PhantomData });
            }
        }
    }
}

/// Borrows the name of a pair; null if this is no pair, or the name is no `bytes`.
///
/// # Safety
/// A live object, and the GIL is held.
#[inline(always)]
unsafe fn name_of(pair: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise; the kinds are checked.
    unsafe {
        if ffi::PyTuple_CheckExact(pair) != 0 && ffi::Py_SIZE(pair) == 2 {
            let name = content::tuple_item(pair, 0);
            if ffi::PyBytes_CheckExact(name) != 0 {
                return name;
            }
        }
        name_of_unusual(pair)
    }
}

/// As [`name_of`], for pairs that are lists, and for subclasses.
#[cold]
#[inline(never)]
unsafe fn name_of_unusual(pair: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise; the kinds are checked.
    unsafe { if length(pair) == 2 && is_bytes(member(pair, 0)) { member(pair, 0) } else { std::ptr::null_mut() } }
}

/// The kind of content of a body, by its headers.
#[inline(never)]
pub fn content_of_headers<'a>(headers: Borrowed<'a, '_, PyAny>) -> Content<'a> {
    let (mut content, mut encoding) = (Content::Media(b""), None);
    for_each_header(Some(headers), const { Lengths::of(&[12, 16]) }, |header| {
        let Some(value) = header.value() else { return };
        if header.name.len() == 12 && header.name.eq_ignore_ascii_case(b"content-type") {
            content = Content::of_type(value);
        } else if header.name.len() == 16 && header.name.eq_ignore_ascii_case(b"content-encoding") {
            encoding = Some(value);
        }
    });
    encoding.map_or(content, |encoding| content.encoded(encoding))
}

/// The headers of a request that are recorded.
#[cold]
#[inline(never)]
pub fn recorded_headers(headers: Option<Borrowed<'_, '_, PyAny>>, recorded: &Recorded) -> Members {
    let mut members = Members::default();
    for_each_header(headers, Lengths::of_bits(recorded.lengths()), |header| {
        if let Some(value) = header.value() {
            recorded.take(header.name, value, &mut members);
        }
    });
    members
}

/// Whether the opt-out header forbids the capture of text: it is present, and its value does not mean no.
pub fn is_private(headers: Option<Borrowed<'_, '_, PyAny>>, opt_out_header: &[u8]) -> bool {
    let mut is_private = false;
    // All headers are read: a request for privacy counts wherever it stands.
    for_each_header_up_to(isize::MAX, headers, Lengths::of(&[opt_out_header.len()]), |header| {
        if header.name.eq_ignore_ascii_case(opt_out_header)
            && let Some(value) = header.value()
        {
            let value = value.trim_ascii();
            is_private |= ![&b"0"[..], b"false", b"no", b"off"].iter().any(|no| value.eq_ignore_ascii_case(no));
        }
    });
    is_private
}

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
