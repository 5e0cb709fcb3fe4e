//! The payload of one record: a sequence of tagged values, written by the request path and read by the listener.
//!
//! Guards two things: writing costs a few nanoseconds per value and never fails, and reading never trusts a byte
//! (the payload lies in shared memory, so it may be noise).
//!
//! Layout: values follow each other without padding. A value is one tag byte and its body; every integer is
//! little-endian and unaligned. *piece* = `u32` length + that many bytes.
//!
//! | tag | name   | body |
//! |-----|--------|------|
//! | 0   | Absent | – (the key is left out of the line) |
//! | 1   | Null   | – |
//! | 2   | False  | – |
//! | 3   | True   | – |
//! | 4   | Int    | `i64` |
//! | 5   | Float  | `f64` |
//! | 6   | Str    | piece, UTF-8 by promise of the writer, not checked by the reader |
//! | 7   | Bytes  | piece, text that may be invalid UTF-8 |
//! | 8   | Json   | piece, valid JSON without raw line breaks by promise of the writer |
//! | 9   | Trace  | 16 bytes trace id, 8 bytes span id, 8 bytes parent span id (zero = none), 1 byte flags |
//! | 10  | Map    | `u32` count, then count × (piece: key, one value) |
//! | 11  | Gaps   | `u32` count, then count × `u32` microseconds |
//! | 12  | Body   | `u8` kind, piece: head, piece: tail, `u8` complete (0 or 1) + 2 × what is written of its text (0 to 2) |
//! | 13  | Uint   | `u64` |
//!
//! Invariants: Trace and Body stand at the top level only; maps nest at most [`MAX_DEPTH`] deep; a complete Body has
//! an empty tail. `tests/golden_record.rs` holds the golden bytes of every tag.

use std::fmt;

pub use room::{KeysLeft, LONGEST_KEY, MapKeys, Room, append_short, copy_short};
pub use values::{Gaps, GapsIter, Map, MapIter, Value, Values};
pub use writer::{INLINE_BYTES, Scratch};

mod room;
mod values;
mod writer;

/// How deep maps may nest; a deeper payload is refused as [`Malformed::TooDeep`].
pub const MAX_DEPTH: usize = 16;

/// The first byte of each value.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// The value is not there: its key is left out.
    Absent = 0,
    /// JSON `null`.
    Null = 1,
    /// JSON `false`.
    False = 2,
    /// JSON `true`.
    True = 3,
    /// A signed 64-bit integer.
    Int = 4,
    /// A 64-bit float; NaN and infinities are allowed.
    Float = 5,
    /// UTF-8 text.
    Str = 6,
    /// Text that may be invalid UTF-8.
    Bytes = 7,
    /// Encoded JSON, copied into the line as it is.
    Json = 8,
    /// A W3C trace context.
    Trace = 9,
    /// Keys and values.
    Map = 10,
    /// A chunk timeline.
    Gaps = 11,
    /// A capped capture of a request or response body.
    Body = 12,
    /// An unsigned 64-bit integer.
    Uint = 13,
}

/// A W3C trace context as it is stored; an all-zero `parent_span_id` means that there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Trace id, most significant byte first.
    pub trace_id: [u8; 16],
    /// Id of the span that the record belongs to.
    pub span_id: [u8; 8],
    /// Id of that span's parent, or zeros.
    pub parent_span_id: [u8; 8],
    /// W3C trace flags.
    pub flags: u8,
}

/// What a captured body holds, and so how `extract` reads it.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// JSON of a request.
    Request = 1,
    /// JSON of a response.
    Response = 2,
    /// Server-sent events of a streamed response.
    Stream = 3,
    /// Text of a request that is not JSON.
    RequestText = 4,
    /// Text of a response that is not JSON.
    ResponseText = 5,
    /// Content of a request that is not text: not its bytes but their number, hash and type (`capture`).
    RequestMedia = 6,
    /// The same of a response.
    ResponseMedia = 7,
    /// A stream whose text is wanted, each event as a difference from another (`capture::packed`).
    PackedStream = 8,
    /// Parts of a form that a request uploads: `multipart/form-data`.
    RequestForm = 9,
    /// A compressed body of a request: what it is, how it is compressed, then its first bytes (`capture::media`).
    RequestEncoded = 10,
    /// The same of a response.
    ResponseEncoded = 11,
}

impl BodyKind {
    /// Return the kind of a stored byte, or `None` where there is no such kind.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Request),
            2 => Some(Self::Response),
            3 => Some(Self::Stream),
            4 => Some(Self::RequestText),
            5 => Some(Self::ResponseText),
            6 => Some(Self::RequestMedia),
            7 => Some(Self::ResponseMedia),
            8 => Some(Self::PackedStream),
            9 => Some(Self::RequestForm),
            10 => Some(Self::RequestEncoded),
            11 => Some(Self::ResponseEncoded),
            _ => None,
        }
    }

    /// Return whether it belongs to the request.
    pub const fn is_request(self) -> bool {
        matches!(
            self,
            Self::Request | Self::RequestText | Self::RequestMedia | Self::RequestForm | Self::RequestEncoded
        )
    }
}

/// What the listener may write of a body's text (P11).
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyText {
    /// Nothing: the body is there for its facts only.
    #[default]
    Withheld = 0,
    /// The text.
    Written = 1,
    /// Its length and keyed hash.
    Hashed = 2,
}

impl BodyText {
    /// Return the choice of a stored number, or `None` where there is no such choice.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Withheld, Self::Written, Self::Hashed].get(usize::from(byte)).copied()
    }
}

/// A capped capture of a body: the whole of it in `head`, or its first and last bytes with something missing between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body<'a> {
    /// What the bytes are.
    pub kind: BodyKind,
    /// The first bytes, or all of them.
    pub head: &'a [u8],
    /// The last bytes; empty where `complete`.
    pub tail: &'a [u8],
    /// `head` is the whole body.
    pub complete: bool,
    /// What may be written of its text.
    pub text: BodyText,
}

/// Why a payload or a stored schema cannot be read. Retrying never helps: the bytes are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A length or a count points past the end.
    Cut,
    /// A tag, a body kind or a flag that this version does not know.
    Unknown,
    /// Maps nest deeper than [`MAX_DEPTH`].
    TooDeep,
    /// A Trace or a Body inside a map, or a complete Body that has a tail.
    Misplaced,
    /// A stored event schema that breaks a rule of `event`.
    Schema,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cut => "a length points past the end of the record",
            Self::Unknown => "a tag or kind that this version does not know",
            Self::TooDeep => "maps nest too deep",
            Self::Misplaced => "a value stands where it must not",
            Self::Schema => "not a valid event schema",
        })
    }
}

impl std::error::Error for Malformed {}
