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

use queue::record::{Body, BodyKind, BodyText};
use std::sync::Arc;

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
pub const FIELDS: [&str; 6] =
    ["tenant.id", "enduser.id", "gen_ai.conversation.id", "api_key.hash", "user_agent.original", "server.address"];
/// The first of them.
pub const TENANT: &str = FIELDS[0];
/// The member of the body that stands for all of it.
pub const WHOLE_BODY: &str = "http.request.body";
/// The tools that the model may call.
pub const TOOLS: &str = "gen_ai.tool.definitions";
const API_KEY: &str = "api_key.hash";
const HEADER: &str = "http.request.header.";
const BODY_FIELD: &str = "openai.request.";
/// Parts of the names of headers that carry credentials.
const CREDENTIALS: [&str; 9] =
    ["authorization", "cookie", "api-key", "apikey", "api_key", "token", "secret", "password", "credential"];
/// The members of a body that `record_body_fields` can name.
pub const BODY_FIELDS: [&str; 4] = ["user", "metadata", "prompt_cache_key", "safety_identifier"];

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
    pub fn add(&mut self, kind: Kind, name: &str, value: &[u8]) {
        let is_known = members(&self.0).any(|member| member.name == name.as_bytes());
        let value = if kind == Kind::Text { &*cut(value) } else { value };
        let bytes = HEAD_BYTES + name.len() + value.len();
        let fits = self.0.len() + bytes <= MAX_MEMBERS_BYTES && value.len() <= MAX_HASHED_BYTES;
        if let (false, true, Ok(name_len)) = (is_known, fits, u8::try_from(name.len())) {
            self.0.extend_from_slice(&[kind as u8, name_len]);
            self.0.extend_from_slice(&(value.len() as u16).to_le_bytes());
            self.0.extend_from_slice(name.as_bytes());
            self.0.extend_from_slice(value);
        }
    }

    /// Adds all of `others` whose names are new.
    pub fn add_all(&mut self, others: &Self) {
        if self.0.is_empty() {
            self.0.extend_from_slice(&others.0);
            return;
        }
        for member in members(&others.0) {
            self.add(member.kind, std::str::from_utf8(member.name).unwrap_or_default(), member.value);
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

/// A header that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Header {
    /// In lower case.
    name: Box<str>,
    field: Box<str>,
    is_hashed: bool,
    /// Kind, length and name as they stand before a value whose length is not known yet.
    prefix: Box<[u8]>,
    /// A bit for the field, which other headers can have too.
    bit: u32,
}

/// The members of most requests: few enough for a slot of the flight recorder, which keeps them until the end.
#[derive(Debug)]
pub struct FewMembers {
    len: usize,
    /// The fields that are there, a bit each.
    taken: u32,
    /// Something had no room, or has to be cut: [`Members`] takes all of them.
    is_full: bool,
    bytes: [u8; FEW_BYTES],
}

/// Most bytes of [`FewMembers`].
pub const FEW_BYTES: usize = 248;

impl Default for FewMembers {
    #[inline]
    fn default() -> Self {
        Self { len: 0, taken: 0, is_full: false, bytes: [0; FEW_BYTES] }
    }
}

impl FewMembers {
    /// The bytes, for [`members`]; None: there are more.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        (!self.is_full).then(|| &self.bytes[..self.len])
    }

    #[inline]
    fn add(&mut self, header: &Header, value: &[u8]) {
        let name_len = header.prefix.len();
        let end = self.len + name_len + value.len();
        match self.bytes.get_mut(self.len..end) {
            Some(place) if header.is_hashed || value.len() <= MAX_TEXT_BYTES => {
                place[..name_len].copy_from_slice(&header.prefix);
                place[2..HEAD_BYTES].copy_from_slice(&(value.len() as u16).to_le_bytes());
                place[name_len..].copy_from_slice(value);
                (self.len, self.taken) = (end, self.taken | header.bit);
            }
            _ => self.is_full = true,
        }
    }
}

/// What the configuration adds to records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    headers: Arc<[Header]>,
    /// A bit for each length of a name.
    lengths: u64,
    /// The members that a request's body adds.
    of_bodies: Members,
}

impl Recorded {
    /// Reads the entries of `record_headers` (`name`, `name:hash`, each perhaps with `=field`) and of `record_body_fields`
    /// (`name`, `name:hash`). `has_key`: there is a key for hashes.
    ///
    /// # Errors
    /// A sentence for each entry that is wrong; it names parameter and value.
    pub fn parse(headers: &[String], body_fields: &[String], has_key: bool) -> Result<Self, Vec<String>> {
        let (mut found, mut recorded, mut sentences) = (Vec::new(), Self::default(), Vec::new());
        for entry in headers {
            match header(entry, has_key) {
                Ok(header) => found.push(header),
                Err(why) => sentences.push(format!("record_headers='{entry}': {why}")),
            }
        }
        for entry in body_fields {
            let (name, is_hashed) = hashed(entry);
            if is_hashed && !has_key {
                sentences.push(format!("record_body_fields='{entry}': {NEEDS_KEY}"));
            }
            let kind = if is_hashed { Kind::HashOfBody } else { Kind::OfBody };
            recorded.of_bodies.add(kind, &format!("{BODY_FIELD}{name}"), name.as_bytes());
        }
        for at in 0..found.len() {
            // Headers with the same field have the same bit.
            let first = found.iter().position(|header: &Header| header.field == found[at].field).unwrap_or(at);
            found[at].bit = 1 << first;
        }
        recorded.lengths = found.iter().fold(0, |lengths, header| lengths | length_bit(header.name.len()));
        recorded.headers = found.into();
        if sentences.is_empty() { Ok(recorded) } else { Err(sentences) }
    }

    /// The same with the whole body of each request.
    #[must_use]
    pub fn with_bodies(mut self) -> Self {
        self.of_bodies.add(Kind::Body, WHOLE_BODY, b"");
        self
    }

    /// The same with the tools of each request, whole. A listener of an earlier version does not know this member, and reads
    /// none behind it: call this last.
    #[must_use]
    pub fn with_tools(mut self) -> Self {
        self.of_bodies.add(Kind::Tools, TOOLS, b"tools");
        self
    }

    /// Whether any header is recorded.
    #[inline]
    #[must_use]
    pub fn has_headers(&self) -> bool {
        self.lengths != 0
    }

    /// The members that a body adds, if its client does not forbid it.
    #[inline]
    #[must_use]
    pub const fn of_bodies(&self) -> &Members {
        &self.of_bodies
    }

    /// The lengths of the names of headers, a bit each; the highest one stands for all longer names.
    #[inline]
    #[must_use]
    pub const fn lengths(&self) -> u64 {
        self.lengths
    }

    /// Takes a header of a request, if it is one of those that are recorded.
    #[inline]
    pub fn take_few(&self, name: &[u8], value: &[u8], to: &mut FewMembers) {
        for header in self.headers.iter().filter(|header| header.is(name)) {
            if let Some(value) = header.value(name, value).filter(|_| to.taken & header.bit == 0) {
                to.add(header, value);
            }
        }
    }

    /// As [`Self::take_few`], for requests with more of them.
    pub fn take(&self, name: &[u8], value: &[u8], to: &mut Members) {
        for header in self.headers.iter().filter(|header| header.is(name)) {
            if let Some(value) = header.value(name, value) {
                to.add(header.kind(), &header.field, value);
            }
        }
    }
}

impl Header {
    const fn kind(&self) -> Kind {
        if self.is_hashed { Kind::Hash } else { Kind::Text }
    }

    /// Whether it has this name; servers send names in lower case.
    #[inline]
    fn is(&self, name: &[u8]) -> bool {
        let own = self.name.as_bytes();
        own.len() == name.len() && (own == name || own.eq_ignore_ascii_case(name))
    }

    /// The part of the value that is recorded; None: there is nothing to hash.
    #[inline]
    fn value<'a>(&self, name: &[u8], value: &'a [u8]) -> Option<&'a [u8]> {
        let value = value.trim_ascii();
        if self.is_hashed { Some(without_scheme(name, value)).filter(|key| !key.is_empty()) } else { Some(value) }
    }
}

const NEEDS_KEY: &str = "a hash needs capture_hash_key_file";

/// The bit of a length in [`Recorded::lengths`].
#[must_use]
pub const fn length_bit(length: usize) -> u64 {
    1 << if length < 63 { length } else { 63 }
}

fn hashed(entry: &str) -> (&str, bool) {
    entry.strip_suffix(":hash").map_or((entry, false), |name| (name, true))
}

fn header(entry: &str, has_key: bool) -> Result<Header, String> {
    let (source, field) = entry.split_once('=').map_or((entry, None), |(source, field)| (source, Some(field)));
    let (name, is_hashed) = hashed(source);
    let name = name.to_ascii_lowercase();
    if !is_hashed && CREDENTIALS.iter().any(|part| name.contains(part)) {
        return Err(format!("the header carries credentials, so only {name}:hash is allowed"));
    }
    if !is_hashed && field == Some(API_KEY) {
        return Err(format!("{API_KEY} is a hash: write {name}:hash={API_KEY}"));
    }
    if is_hashed && !has_key {
        return Err(NEEDS_KEY.to_owned());
    }
    if let Some(field) = field.filter(|field| !FIELDS.contains(field)) {
        return Err(format!("{field} must be one of {}", FIELDS.join(", ")));
    }
    let field = field.map_or_else(|| format!("{HEADER}{name}"), str::to_owned);
    let kind = if is_hashed { Kind::Hash } else { Kind::Text };
    let prefix = [&[kind as u8, field.len() as u8, 0, 0], field.as_bytes()].concat();
    Ok(Header { name: name.into(), field: field.into(), is_hashed, prefix: prefix.into(), bit: 0 })
}

/// A key is the same whether it comes as `Authorization: Bearer KEY` or as `X-API-Key: KEY`.
fn without_scheme<'a>(name: &[u8], value: &'a [u8]) -> &'a [u8] {
    const BEARER: &[u8] = b"bearer ";
    let is_authorization = name.len() >= 13 && name[name.len() - 13..].eq_ignore_ascii_case(b"authorization");
    match value.split_at_checked(BEARER.len()) {
        Some((scheme, key)) if is_authorization && scheme.eq_ignore_ascii_case(BEARER) => key.trim_ascii_start(),
        _ => value,
    }
}

/// The members of a request, and the attributes that its application has set: a map as values of a record have it.
#[derive(Clone, Debug, Default)]
pub struct AddedFields {
    pub members: Members,
    pub attributes: Vec<u8>,
}
