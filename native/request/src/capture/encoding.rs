//! How a body is compressed, as its `Content-Encoding` says. Its bytes are copied as they are; the listener reads as
//! much as it can of them.
//!
//! Only the beginning of such a body can be read, so nothing is kept of its end. Stored form, the head of a Body:
//! `u8` kind of the body within, `u8` encoding, `u32` most bytes of its text that may be written, then its first bytes.

use queue::record::BodyKind;

/// What a body is compressed by.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// One that is not known, or several.
    Other = 0,
    Gzip = 1,
    Deflate = 2,
    Brotli = 3,
    Zstd = 4,
}

impl Encoding {
    /// What a `Content-Encoding` names; None: the body is not compressed.
    #[must_use]
    pub fn of_header(value: &[u8]) -> Option<Self> {
        let is = |name: &[u8]| value.trim_ascii().eq_ignore_ascii_case(name);
        match value {
            _ if is(b"identity") || is(b"") => None,
            _ if is(b"gzip") || is(b"x-gzip") => Some(Self::Gzip),
            _ if is(b"deflate") => Some(Self::Deflate),
            _ if is(b"br") => Some(Self::Brotli),
            _ if is(b"zstd") => Some(Self::Zstd),
            _ => Some(Self::Other),
        }
    }

    fn of_byte(byte: u8) -> Self {
        let all = [Self::Gzip, Self::Deflate, Self::Brotli, Self::Zstd];
        all.into_iter().find(|encoding| *encoding as u8 == byte).unwrap_or(Self::Other)
    }
}

/// What is in front of the first bytes of a compressed body.
pub(super) fn mark(within: BodyKind, encoding: Encoding, limit: usize) -> [u8; 6] {
    let [a, b, c, d] = u32::try_from(limit).unwrap_or(u32::MAX).to_le_bytes();
    [within as u8, encoding as u8, a, b, c, d]
}

/// A compressed body as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded<'a> {
    pub within: BodyKind,
    pub encoding: Encoding,
    /// Most bytes of its text that may be written.
    pub text_bytes: usize,
    /// Its first bytes.
    pub bytes: &'a [u8],
}

/// The head of a compressed body; None for noise.
#[must_use]
pub fn encoded(stored: &[u8]) -> Option<Encoded<'_>> {
    let ([within, encoding, limit @ ..], bytes) = stored.split_first_chunk::<6>()?;
    let text_bytes = u32::from_le_bytes(*limit) as usize;
    let within = BodyKind::from_byte(*within)?;
    let is_plain = matches!(
        within,
        BodyKind::Request | BodyKind::RequestText | BodyKind::Response | BodyKind::Stream | BodyKind::ResponseText
    );
    is_plain.then_some(Encoded { within, encoding: Encoding::of_byte(*encoding), text_bytes, bytes })
}
