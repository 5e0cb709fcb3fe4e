//! What the configuration adds to records: the entries of `record_headers` and `record_body_fields`.
//!
//! The headers are a table that is made at the start. A header of a request finds its entries by the length of its name,
//! and is compared with them by the first and last eight bytes; most of those that are not recorded go no further.

use super::{
    API_KEY, BLOCK, BODY_FIELD, FIELDS, FewMembers, HEAD_BYTES, Kind, MAX_HEADERS, Members, TOOLS, WHOLE_BODY,
};
use std::sync::Arc;

const HEADER: &str = "http.request.header.";
/// Parts of the names of headers that carry credentials.
const CREDENTIALS: [&str; 9] =
    ["authorization", "cookie", "api-key", "apikey", "api_key", "token", "secret", "password", "credential"];
const NEEDS_KEY: &str = "a hash needs capture_hash_key_file";
const AUTHORIZATION: &str = "authorization";
const BEARER: u64 = u64::from_le_bytes(*b"bearer \0");
/// The bytes of [`BEARER`], and its letters.
const SCHEME_BYTES: usize = 7;
const LETTERS: u64 = CASES >> 16;
/// In a letter of ASCII, the bit of its case.
const CASES: u64 = 0x2020_2020_2020_2020;
/// The lengths of names that are distinguished; the highest one stands for all longer names.
const LENGTHS: usize = 64;

/// What the configuration adds to records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// A bit for each length of a name.
    lengths: u64,
    headers: Option<Arc<Headers>>,
    /// The members that a request's body adds.
    of_bodies: Members,
}

/// The headers that are recorded.
#[derive(Debug, PartialEq, Eq)]
struct Headers {
    /// For each length of a name, where its entries begin.
    firsts: [u8; LENGTHS],
    /// In the order of the lengths of their names.
    entries: Box<[Entry]>,
    /// Prefixes and names, and a block of [`FewMembers`] behind them.
    texts: Box<[u8]>,
}

/// A header that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Both ends of its name, as [`ends`] has them.
    ends: [u64; 2],
    /// Where its prefix stands: kind, length and name of the member as they are before a value whose length is not known
    /// yet. The header's name in lower case follows.
    at: u16,
    prefix_len: u8,
    name_len: u8,
    /// The place of its name's length.
    bucket: u8,
    secret: Secret,
    /// Its field, a bit; other headers can have the same.
    field: u16,
}

/// How much of a value may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secret {
    /// All of it.
    No,
    /// Its hash.
    Key,
    /// The same, without a scheme before it.
    KeyWithScheme,
}

impl Recorded {
    /// Reads the entries of `record_headers` (`name`, `name:hash`, each perhaps with `=field`) and of `record_body_fields`
    /// (`name`, `name:hash`). `has_key`: there is a key for hashes.
    ///
    /// # Errors
    /// A sentence for each entry that is wrong; it names parameter and value.
    pub fn parse(headers: &[String], body_fields: &[String], has_key: bool) -> Result<Self, Vec<String>> {
        let (mut found, mut of_bodies, mut sentences) = (Vec::new(), Members::default(), Vec::new());
        for entry in headers {
            match Given::parse(entry, has_key) {
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
            of_bodies.add(kind, format!("{BODY_FIELD}{name}").as_bytes(), name.as_bytes());
        }
        if found.len() > MAX_HEADERS {
            sentences.push(format!("record_headers: has {} entries, must have at most {MAX_HEADERS}", found.len()));
        }
        if !sentences.is_empty() {
            return Err(sentences);
        }
        let lengths = found.iter().fold(0, |lengths, header| lengths | length_bit(header.name.len()));
        let headers = (!found.is_empty()).then(|| Arc::new(Headers::new(found)));
        Ok(Self { lengths, headers, of_bodies })
    }

    /// The same with the whole body of each request.
    #[must_use]
    pub fn with_bodies(mut self) -> Self {
        self.of_bodies.add(Kind::Body, WHOLE_BODY.as_bytes(), b"");
        self
    }

    /// The same with the tools of each request, whole. A listener of an earlier version does not know this member, and reads
    /// none behind it: call this last.
    #[must_use]
    pub fn with_tools(mut self) -> Self {
        self.of_bodies.add(Kind::Tools, TOOLS.as_bytes(), b"tools");
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

    /// Takes a header of a request, if it is one of those that are recorded. Not inlined, as a request calls it for each of
    /// them.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn take_few(&self, name: &[u8], value: &[u8], to: &mut FewMembers) {
        self.for_each_named(name, |headers, entry| {
            if !to.has(entry.field.into())
                && let Some(value) = entry.value(value)
            {
                to.add(entry.field.into(), headers.texts_of(entry), entry.prefix_len.into(), value);
            }
        });
    }

    /// What is recorded of these headers.
    #[must_use]
    pub fn of_headers(&self, headers: &[(&[u8], &[u8])]) -> Members {
        let mut members = Members::default();
        headers.iter().for_each(|(name, value)| self.take(name, value, &mut members));
        members
    }

    /// As [`Self::take_few`], for requests with more of them.
    pub fn take(&self, name: &[u8], value: &[u8], to: &mut Members) {
        self.for_each_named(name, |headers, entry| {
            if let Some(value) = entry.value(value) {
                to.add(entry.kind(), &headers.texts_of(entry)[HEAD_BYTES..entry.prefix_len.into()], value);
            }
        });
    }

    /// Calls `visit` with each entry for a header.
    #[inline(always)]
    fn for_each_named(&self, name: &[u8], mut visit: impl FnMut(&Headers, &Entry)) {
        let Some(headers) = &self.headers else { return };
        let bucket = bucket(name.len());
        let (mut at, ends) = (usize::from(headers.firsts[bucket]), ends(name));
        while let Some(entry) = headers.entries.get(at).filter(|entry| usize::from(entry.bucket) == bucket) {
            if headers.is_named(entry, name, ends) {
                visit(headers, entry);
            }
            at += 1;
        }
    }
}

impl Headers {
    fn new(mut given: Vec<Given>) -> Self {
        let fields: Vec<String> = given.iter().map(|header| header.field.clone()).collect();
        given.sort_by_key(|header| header.name.len());
        let mut texts = Vec::new();
        let entries = given.iter().map(|header| {
            let at = texts.len() as u16;
            texts.extend([header.kind() as u8, header.field.len() as u8, 0, 0]);
            texts.extend(header.field.as_bytes());
            texts.extend(header.name.as_bytes());
            let first = fields.iter().position(|field| *field == header.field).unwrap_or_default();
            Entry {
                ends: ends(header.name.as_bytes()),
                at,
                prefix_len: (HEAD_BYTES + header.field.len()) as u8,
                name_len: header.name.len() as u8,
                bucket: bucket(header.name.len()) as u8,
                secret: match (header.is_hashed, header.name.ends_with(AUTHORIZATION)) {
                    (false, _) => Secret::No,
                    (true, false) => Secret::Key,
                    (true, true) => Secret::KeyWithScheme,
                },
                field: 1 << first,
            }
        });
        let entries: Box<[Entry]> = entries.collect();
        texts.extend([0; BLOCK]);
        let first = |length| entries.iter().position(|entry| usize::from(entry.bucket) == length);
        let firsts = std::array::from_fn(|length| first(length).unwrap_or(entries.len()) as u8);
        Self { firsts, entries, texts: texts.into() }
    }

    /// The texts from an entry's prefix on.
    #[inline(always)]
    fn texts_of(&self, entry: &Entry) -> &[u8] {
        self.texts.get(usize::from(entry.at)..).unwrap_or_default()
    }

    /// Whether a header with this name, and its `ends`, is the entry's. Servers send names in lower case.
    #[inline(always)]
    fn is_named(&self, entry: &Entry, name: &[u8], ends: [u64; 2]) -> bool {
        let differences = entry.ends[0] ^ ends[0] | entry.ends[1] ^ ends[1];
        if usize::from(entry.name_len) != name.len() || differences & !CASES != 0 {
            return false;
        }
        (differences == 0 && name.len() <= 16) || self.is_same_name(entry, name)
    }

    #[inline(never)]
    fn is_same_name(&self, entry: &Entry, name: &[u8]) -> bool {
        let at = usize::from(entry.at) + usize::from(entry.prefix_len);
        self.texts[at..at + usize::from(entry.name_len)].eq_ignore_ascii_case(name)
    }
}

impl Entry {
    const fn kind(&self) -> Kind {
        if matches!(self.secret, Secret::No) { Kind::Text } else { Kind::Hash }
    }

    /// The part of the value that is recorded; None: there is nothing to hash.
    #[inline(always)]
    fn value<'a>(&self, value: &'a [u8]) -> Option<&'a [u8]> {
        let value = trimmed(value);
        let key = match self.secret {
            Secret::No => return Some(value),
            Secret::Key => value,
            Secret::KeyWithScheme => without_scheme(value),
        };
        (!key.is_empty()).then_some(key)
    }
}

/// The first and the last bytes of a name, at most eight; with the length they say all of a name of at most sixteen.
#[inline(always)]
fn ends(name: &[u8]) -> [u64; 2] {
    let word = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes));
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        [u64::from_le_bytes(*first), u64::from_le_bytes(*last)]
    } else if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        [word(first), word(last)]
    } else {
        [name.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0]
    }
}

/// The place of a length among those that are distinguished.
#[inline(always)]
const fn bucket(length: usize) -> usize {
    if length < LENGTHS { length } else { LENGTHS - 1 }
}

/// The bit of a length in [`Recorded::lengths`].
#[inline]
#[must_use]
pub const fn length_bit(length: usize) -> u64 {
    1 << bucket(length)
}

/// A key is the same whether it comes as `Authorization: Bearer KEY` or as `X-API-Key: KEY`.
#[inline(always)]
fn without_scheme(value: &[u8]) -> &[u8] {
    // Without blanks around it, a value with a scheme has at least a byte behind that.
    let first = value.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    let is_scheme = (first | LETTERS) << 8 == BEARER << 8;
    if is_scheme { value[SCHEME_BYTES..].trim_ascii_start() } else { value }
}

/// A value without the blanks around it, which most do not have.
#[inline(always)]
fn trimmed(value: &[u8]) -> &[u8] {
    match value {
        [first, .., last] if *first > b' ' && *last > b' ' => value,
        _ => value.trim_ascii(),
    }
}

fn hashed(entry: &str) -> (&str, bool) {
    entry.strip_suffix(":hash").map_or((entry, false), |name| (name, true))
}

/// An entry of `record_headers`.
struct Given {
    /// In lower case.
    name: String,
    field: String,
    is_hashed: bool,
}

impl Given {
    const fn kind(&self) -> Kind {
        if self.is_hashed { Kind::Hash } else { Kind::Text }
    }

    fn parse(entry: &str, has_key: bool) -> Result<Self, String> {
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
        Ok(Self { name, field, is_hashed })
    }
}
