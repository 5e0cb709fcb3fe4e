//! Bodies that have to be put together before they can be read: compressed ones, packed streams, and events on several
//! lines.

use brotli_decompressor::Decompressor;
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use queue::record::{Body, BodyKind, BodyText};
use request::capture::packed::Unpacked;
use request::capture::{Encoding, encoded};
use std::io::{self, Read};
use std::ops::Range;

/// Most bytes that a body is decompressed to.
const MAX_DECODED: usize = 16 << 20;
/// Largest window that RFC 9659 allows: 8 MiB.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Bytes that are decompressed at once.
const STEP: usize = 16 << 10;

/// What stands for the captured body.
#[derive(Debug)]
pub struct Readable {
    kind: BodyKind,
    head: Vec<u8>,
    tail: Vec<u8>,
    complete: bool,
    text: BodyText,
    /// A part of it is still compressed, so facts may be missing.
    pub is_compressed: bool,
    /// Most bytes of its text that may be written.
    text_bytes: usize,
}

impl Readable {
    /// Put `body` together; None if it can be read as it is.
    #[must_use]
    pub fn of(body: &Body<'_>) -> Option<Self> {
        match body.kind {
            BodyKind::PackedStream => {
                let unpacked = Unpacked::of(body);
                let unpacked = unpacked.body();
                Some(Self::joined(&unpacked).unwrap_or_else(|| Self::copy(&unpacked)))
            }
            BodyKind::Stream => Self::joined(body),
            BodyKind::RequestEncoded | BodyKind::ResponseEncoded => Self::decoded(body),
            _ => None,
        }
    }

    /// As much of a compressed body as can be read.
    #[cold]
    fn decoded(body: &Body<'_>) -> Option<Self> {
        let encoded = encoded(body.head)?;
        let (head, is_whole) = decode(encoded.encoding, encoded.bytes);
        let (kind, complete) = (encoded.within, is_whole && body.complete);
        let body = Body { kind, head: &head, tail: &[], complete, text: body.text };
        let joined = if kind == BodyKind::Stream { Self::joined(&body) } else { None };
        let read = joined.unwrap_or_else(|| Self::copy(&body));
        Some(Self { is_compressed: !complete, text_bytes: encoded.text_bytes, ..read })
    }

    /// The body that it stands for.
    #[must_use]
    pub fn body(&self) -> Body<'_> {
        let Self { kind, head, tail, complete, text, .. } = self;
        Body { kind: *kind, head, tail, complete: *complete, text: *text }
    }

    /// The same, as much of it as may be written.
    #[must_use]
    pub fn text(&self) -> Body<'_> {
        let body = self.body();
        let limit = self.text_bytes;
        if body.head.len() <= limit {
            return body;
        }
        let tail = if body.complete { &body.head[body.head.len() - limit / 2..] } else { body.tail };
        Body { head: &body.head[..limit - limit / 2], tail, complete: false, ..body }
    }

    fn copy(body: &Body<'_>) -> Self {
        let Body { kind, head, tail, complete, text } = *body;
        let (head, tail) = (head.to_vec(), tail.to_vec());
        Self { kind, head, tail, complete, text, is_compressed: false, text_bytes: usize::MAX }
    }

    /// Events on several lines, each on one; None if there are no such events.
    fn joined(body: &Body<'_>) -> Option<Self> {
        let mut joined =
            Dividers::new(body.head).next().or_else(|| Dividers::new(body.tail).next()).map(|_| Self::copy(body))?;
        for (end, events) in [(&mut joined.head, body.head), (&mut joined.tail, body.tail)] {
            // Blanks mean the same between the tokens of JSON.
            Dividers::new(events).for_each(|divider| end[divider].fill(b' '));
        }
        Some(joined)
    }
}

/// What divides a line of data from the next one of its event: a line end, and `data:`.
struct Dividers<'a> {
    events: &'a [u8],
    /// The next line begins here.
    at: usize,
    /// The line before it is one of data, whose document ends with this byte.
    last: Option<u8>,
}

impl<'a> Dividers<'a> {
    const DATA: &'static [u8] = b"data:";

    fn new(events: &'a [u8]) -> Self {
        Self { events, at: 0, last: None }
    }
}

impl Iterator for Dividers<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        while self.at < self.events.len() {
            let rest = &self.events[self.at..];
            let length = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            let (line, start) = (&rest[..length], self.at);
            self.at += length + if rest[length..].starts_with(b"\r\n") { 2 } else { 1 };
            let Some(data) = line.strip_prefix(Self::DATA) else {
                self.last = None;
                continue;
            };
            let data = data.trim_ascii();
            let before = self.last;
            self.last = data.last().copied().or(before).or(Some(b' '));
            // Where one document ends and another begins, a server has left out the empty line between two events.
            if before.is_some_and(|last| last != b'}' || data.first() != Some(&b'{')) {
                let end = if self.events[..start].ends_with(b"\r\n") { 2 } else { 1 };
                return Some(start - end..start + Self::DATA.len());
            }
        }
        None
    }
}

/// What `bytes` begin with, and whether that is all.
fn decode(encoding: Encoding, bytes: &[u8]) -> (Vec<u8>, bool) {
    match encoding {
        Encoding::Other => (Vec::new(), false),
        Encoding::Gzip => read(MultiGzDecoder::new(bytes)),
        // The name means zlib's format, but some send the bare one.
        Encoding::Deflate if is_zlib(bytes) => read(ZlibDecoder::new(bytes)),
        Encoding::Deflate => read(DeflateDecoder::new(bytes)),
        Encoding::Brotli => read(Decompressor::new(bytes, STEP)),
        Encoding::Zstd => match zstd() {
            Ok(decoder) => read(zstd::stream::zio::Reader::new(bytes, decoder)),
            Err(_) => (Vec::new(), false),
        },
    }
}

fn zstd() -> io::Result<zstd::stream::raw::Decoder<'static>> {
    let mut decoder = zstd::stream::raw::Decoder::new()?;
    decoder.set_parameter(zstd::stream::raw::DParameter::WindowLogMax(ZSTD_WINDOW_LOG))?;
    Ok(decoder)
}

fn is_zlib(bytes: &[u8]) -> bool {
    matches!(bytes, [first, second, ..] if first & 15 == 8 && u16::from_be_bytes([*first, *second]) % 31 == 0)
}

fn read(mut from: impl Read) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    let mut step = vec![0; STEP];
    while out.len() < MAX_DECODED {
        match from.read(&mut step) {
            Ok(0) => return (out, true),
            Ok(length) => out.extend_from_slice(&step[..length]),
            Err(_) => break,
        }
    }
    (out, false)
}
