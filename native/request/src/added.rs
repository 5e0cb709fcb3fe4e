//! What the configuration and the application add to a request's record: values of headers, members of its body, and fields
//! that the application sets.
//!
//! They pass the queue as [`Members`], one after another:
//!
//! ```text
//! u8 kind | u8 length of the name | u16 length of the value, little-endian | name | value
//! ```
//!
//! Headers can hold credentials, so the list says of each value what the listener may write: the value itself, or only a keyed
//! hash of it, which the listener computes. It stands in the record as a body without text ([`Members::body`]): a listener of
//! an earlier version, which does not know it, writes nothing of it.

pub use fields::AddedFields;
use queue::record::{Body, BodyKind, BodyText, copy_short};
pub use recorded::{Recorded, length_bit};
use std::mem::MaybeUninit;

mod fields;
mod recorded;

/// Most headers of `record_headers`.
pub const MAX_HEADERS: usize = 16;
/// Longest value that is written; a longer one is cut.
pub const MAX_TEXT_BYTES: usize = 256;
/// Longest value that is hashed; of a longer one there is no hash, as the hash of its beginning would be another's too.
pub const MAX_HASHED_BYTES: usize = 4096;
/// Most bytes of a request's members; what goes beyond is left out.
pub const MAX_MEMBERS_BYTES: usize = 8192;
const HEAD_BYTES: usize = 4;
const CUT: &[u8] = "…".as_bytes();

/// Fields that a header can have in place of `http.request.header.<name>`; an application sets the first three.
pub const FIELDS: [&str; 6] = [TENANT, USER, CONVERSATION, API_KEY, USER_AGENT, SERVER_ADDRESS];
pub const TENANT: &str = "tenant.id";
pub const USER: &str = "enduser.id";
pub const CONVERSATION: &str = "gen_ai.conversation.id";
pub const API_KEY: &str = "api_key.hash";
pub const USER_AGENT: &str = "user_agent.original";
pub const SERVER_ADDRESS: &str = "server.address";
/// The member of the body that stands for all of it.
pub const WHOLE_BODY: &str = "http.request.body";
/// The tools that the model may call.
pub const TOOLS: &str = "gen_ai.tool.definitions";
/// What stands before such a member's name in the line.
pub(crate) const BODY_FIELD: &str = "openai.request.";

/// What the listener does with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Writes the value.
    Text = 0,
    /// Writes a keyed hash of the value.
    Hash = 1,
    /// Writes the member of the request's body that the value names.
    OfBody = 2,
    /// Writes a keyed hash of that.
    HashOfBody = 3,
    /// Writes the request's body.
    Body = 4,
    /// Writes the tools of the request's body, whole.
    Tools = 5,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Text, Self::Hash, Self::OfBody, Self::HashOfBody, Self::Body, Self::Tools]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// One member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    pub kind: Kind,
    /// Its key in the line.
    pub name: &'a [u8],
    pub value: &'a [u8],
}

/// Members in their order, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members(Vec<u8>);

impl Members {
    /// Adds a member, unless there is one of this name, or no room.
    pub fn add(&mut self, kind: Kind, name: &[u8], value: &[u8]) {
        let is_known = members(&self.0).any(|member| member.name == name);
        let value = if kind == Kind::Text { &*cut(value) } else { value };
        let bytes = HEAD_BYTES + name.len() + value.len();
        let fits = self.0.len() + bytes <= MAX_MEMBERS_BYTES && value.len() <= MAX_HASHED_BYTES;
        if let (false, true, Ok(name_len)) = (is_known, fits, u8::try_from(name.len())) {
            self.0.reserve(bytes);
            self.0.extend_from_slice(&[kind as u8, name_len]);
            self.0.extend_from_slice(&(value.len() as u16).to_le_bytes());
            self.0.extend_from_slice(name);
            self.0.extend_from_slice(value);
        }
    }

    /// Adds all of `others` whose names are new.
    pub fn add_all(&mut self, others: &[u8]) {
        if self.0.is_empty() {
            self.0.extend_from_slice(others);
            return;
        }
        for member in members(others) {
            self.add(member.kind, member.name, member.value);
        }
    }

    /// Adds a text, in the place of a member of this name if there is one.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        if members(&self.0).any(|member| member.name == name) {
            let before = std::mem::take(&mut self.0);
            for member in members(&before) {
                let value = if member.name == name { value } else { member.value };
                self.add(member.kind, member.name, value);
            }
        } else {
            self.add(Kind::Text, name, value);
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes, for [`members`].
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes of as many members as have room in `limit`, those that are too long left out.
    #[must_use]
    pub fn within(&self, limit: usize) -> Self {
        if self.0.len() <= limit {
            return self.clone();
        }
        let mut kept = Vec::new();
        let mut rest = &self.0[..];
        while let Some(member) = members(rest).next() {
            let bytes = HEAD_BYTES + member.name.len() + member.value.len();
            if kept.len() + bytes <= limit {
                kept.extend_from_slice(&rest[..bytes]);
            }
            rest = &rest[bytes..];
        }
        Self(kept)
    }

    /// The value that stands in a record.
    #[must_use]
    pub fn body(bytes: &[u8]) -> Body<'_> {
        Body { kind: BodyKind::RequestMedia, head: bytes, tail: &[], complete: true, text: BodyText::Withheld }
    }
}

impl From<&[u8]> for Members {
    /// Takes what [`Members::as_bytes`] or [`FewMembers::as_bytes`] gave.
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

/// Iterates over members; ends at the first byte that is wrong.
pub fn members(mut bytes: &[u8]) -> impl Iterator<Item = Member<'_>> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let (name, rest) = rest.split_at_checked(usize::from(head[1]))?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([head[2], head[3]])))?;
        bytes = rest;
        Some(Member { kind: Kind::of(head[0])?, name, value })
    })
}

fn cut(value: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if value.len() <= MAX_TEXT_BYTES {
        return value.into();
    }
    let is_within_character = |at: &usize| value[*at] & 0xc0 == 0x80;
    let end = (0..=MAX_TEXT_BYTES - CUT.len()).rev().find(|at| !is_within_character(at)).unwrap_or(0);
    [&value[..end], CUT].concat().into()
}

/// Most bytes of [`FewMembers`].
pub const FEW_BYTES: usize = 248;
// A text that has to be cut has no room here.
const _: () = assert!(FEW_BYTES <= MAX_TEXT_BYTES);
/// What stands before a value is copied in a block of so many bytes, most of them whole.
const BLOCK: usize = 32;

/// The members of most requests, as they pass a queue: few enough for a slot of the flight recorder, on the caller's stack.
///
/// Invariant: `len <= FEW_BYTES`, and `bytes[..len]` is initialised.
pub struct FewMembers {
    len: usize,
    /// The fields that are there, a bit each.
    taken: u32,
    /// Something had no room: [`Members`] takes all of them.
    is_full: bool,
    bytes: [MaybeUninit<u8>; FEW_BYTES + BLOCK],
}

impl Default for FewMembers {
    #[inline]
    fn default() -> Self {
        Self { len: 0, taken: 0, is_full: false, bytes: [const { MaybeUninit::uninit() }; FEW_BYTES + BLOCK] }
    }
}

impl FewMembers {
    /// The bytes, for [`members`]; None: there are more.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        // SAFETY: `len <= FEW_BYTES`, and `bytes[..len]` was initialised by the additions that advanced `len`.
        (!self.is_full).then(|| unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len) })
    }

    /// Whether a field is there.
    #[inline]
    const fn has(&self, field: u32) -> bool {
        self.taken & field != 0
    }

    /// Adds a member. `texts` begins with its prefix, what stands before the value: its head and the name, then goes on for
    /// at least [`BLOCK`] bytes in all. The value's length is written over that in the head.
    #[inline(always)]
    fn add(&mut self, field: u32, texts: &[u8], prefix_len: usize, value: &[u8]) {
        let need = prefix_len + value.len();
        let is_prefix = HEAD_BYTES <= prefix_len && prefix_len.max(BLOCK) <= texts.len();
        if !is_prefix || need > FEW_BYTES - self.len {
            self.is_full = true;
            return;
        }
        // SAFETY: `len + need <= FEW_BYTES`, and there is a block behind that, so all of it stays inside `bytes`, which neither
        // slice overlaps since it is borrowed mutably. The texts have a block and the prefix, and that has a head, of which the
        // length are two bytes.
        unsafe {
            let to = self.bytes.as_mut_ptr().cast::<u8>().add(self.len);
            to.cast::<[u8; BLOCK]>().write_unaligned(texts.as_ptr().cast::<[u8; BLOCK]>().read_unaligned());
            if prefix_len > BLOCK {
                to.add(BLOCK).copy_from_nonoverlapping(texts.as_ptr().add(BLOCK), prefix_len - BLOCK);
            }
            to.add(2).cast::<[u8; 2]>().write_unaligned((value.len() as u16).to_le_bytes());
            copy_short(value.as_ptr(), to.add(prefix_len), value.len());
        }
        self.len += need;
        self.taken |= field;
    }
}
