//! Bodies that are no plain text: the facts about one without text (its number of bytes, its hash and its type, never the
//! bytes themselves), and the beginning of a compressed one.
//!
//! Hashed as it passes (BLAKE3, 1 to 3 GB/s on one core), so that the state has one size for any upload (P12), and
//! nothing binary takes room in the queue. Stored form, the head of a Body whose tail is empty: `u64` bytes, 32 bytes
//! hash, `u8` 1 if the hash is keyed, else 0, and the type from the header.

use queue::record::{Body, BodyKind, BodyText, Scratch};

/// Longest type that is kept.
const MAX_TYPE_BYTES: usize = 128;

/// Number, hash and type of a body's bytes.
#[derive(Debug)]
pub struct Media {
    kind: BodyKind,
    text: BodyText,
    bytes: u64,
    hasher: blake3::Hasher,
    is_keyed: bool,
    media_type: Vec<u8>,
}

impl Media {
    /// Begins with no bytes; a keyed hash reveals nothing without the key.
    #[must_use]
    pub fn new(kind: BodyKind, text: BodyText, media_type: &[u8], key: Option<&[u8; 32]>) -> Self {
        let hasher = key.map_or_else(blake3::Hasher::new, blake3::Hasher::new_keyed);
        let media_type = media_type[..media_type.len().min(MAX_TYPE_BYTES)].to_vec();
        Self { kind, text, bytes: 0, hasher, is_keyed: key.is_some(), media_type }
    }

    /// Takes note of the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hasher.update(bytes);
    }

    /// Appends the facts as one value; absent if no byte came.
    pub fn push_value(&self, scratch: &mut Scratch) {
        if self.bytes == 0 {
            return scratch.push_absent();
        }
        let known = MediaFacts {
            bytes: self.bytes,
            hash: *self.hasher.finalize().as_bytes(),
            is_keyed: self.is_keyed,
            media_type: &self.media_type,
        };
        let head = known.to_bytes();
        scratch.push_body(&Body { kind: self.kind, head: &head, tail: &[], complete: true, text: self.text });
    }
}

/// A record's facts about a body without text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaFacts<'a> {
    pub bytes: u64,
    pub hash: [u8; 32],
    pub is_keyed: bool,
    pub media_type: &'a [u8],
}

impl<'a> MediaFacts<'a> {
    fn to_bytes(self) -> Vec<u8> {
        let keyed = [u8::from(self.is_keyed)];
        [&self.bytes.to_le_bytes()[..], &self.hash, &keyed, self.media_type].concat()
    }

    /// Reads the stored form; None if it is too short.
    #[must_use]
    pub fn from_bytes(stored: &'a [u8]) -> Option<Self> {
        let (bytes, rest) = stored.split_first_chunk()?;
        let (hash, rest) = rest.split_first_chunk()?;
        let (keyed, media_type) = rest.split_first()?;
        Some(Self { bytes: u64::from_le_bytes(*bytes), hash: *hash, is_keyed: *keyed != 0, media_type })
    }
}

/// What a body is compressed by, as its `Content-Encoding` says.
///
/// Its bytes are copied as they are; the listener reads as much as it can of them. Only the beginning of such a body can be
/// read, so nothing is kept of its end. Stored form, the head of a Body: `u8` kind of the body within, `u8` encoding, `u32`
/// most bytes of its text that may be written, then its first bytes.
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
