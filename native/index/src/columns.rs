//! The columns: the fields of records that are indexed, and how a key of a line finds its column.
//!
//! A key that would make a field of the index ambiguous makes its record *odd*: an object on the way to a dotted name
//! (`"gen_ai": {…}`), a name that the segment's header gives, a column's key a second time, a value of another type than
//! the column's. Odd records are read from their lines.

use lines::catalogue::{self, Source};
use std::sync::LazyLock;

/// The form of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers of 64 bits with sign.
    Int,
    /// Numbers with a point or an exponent.
    Float,
    /// Texts, by their place in the segment's dictionary.
    Text,
    /// Lowercase hexadecimal digits: so many bytes.
    Hex(usize),
}

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind }
}

/// The columns of the file format; a change of this table is another version of it.
pub const COLUMNS: &[Column] = &[
    column("event_name", Kind::Text),
    column("severity_text", Kind::Text),
    column("boot_id", Kind::Text),
    column("pid", Kind::Int),
    column("seq", Kind::Int),
    column("trace_id", Kind::Hex(16)),
    column("span_id", Kind::Hex(8)),
    column("request_id", Kind::Hex(8)),
    column("client_request_id", Kind::Text),
    column("outcome", Kind::Text),
    column("error.type", Kind::Text),
    column("http.request.method", Kind::Text),
    column("url.path", Kind::Text),
    column("http.route", Kind::Text),
    column("client.address", Kind::Text),
    column("http.response.status_code", Kind::Int),
    column("http.request.body.size", Kind::Int),
    column("http.response.body.size", Kind::Int),
    column("duration_s", Kind::Float),
    column("chunks", Kind::Int),
    column("gen_ai.response.time_to_first_chunk", Kind::Float),
    column("gen_ai.operation.name", Kind::Text),
    column("gen_ai.request.model", Kind::Text),
    column("gen_ai.response.model", Kind::Text),
    column("gen_ai.conversation.id", Kind::Text),
    column("gen_ai.usage.input_tokens", Kind::Int),
    column("gen_ai.usage.output_tokens", Kind::Int),
    column("gen_ai.usage.cache_read.input_tokens", Kind::Int),
    column("gen_ai.response.time_per_output_token", Kind::Float),
    column("gen_ai.response.output_tokens_per_second", Kind::Float),
    column("tenant.id", Kind::Text),
    column("enduser.id", Kind::Text),
    column("sampled_by", Kind::Text),
    column("adjusted_count", Kind::Float),
    column("usage_source", Kind::Text),
    column("engine.queued_s", Kind::Float),
    column("engine.prefill_s", Kind::Float),
    column("engine.decode_s", Kind::Float),
    column("exception.type", Kind::Text),
    column("triton.model_name", Kind::Text),
    column("rpc.method", Kind::Text),
    column("rpc.response.status_code", Kind::Text),
    column("logger", Kind::Text),
];

/// Names that the header of a segment gives to each of its records.
pub static RESOURCE: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let all = catalogue::fields().into_iter();
    all.filter(|entry| entry.source == Source::Resource).map(|entry| entry.name).collect()
});

pub const EVENT: usize = 0;
pub const SEVERITY_TEXT: usize = 1;
pub const TRACE: usize = 5;

/// The record's time as text; the index has it as nanoseconds.
pub const TIMESTAMP: &str = "timestamp";
/// The number of `severity_text`, which no record has.
pub const SEVERITY: &str = "severity";

/// Returns the column of a field.
#[must_use]
pub fn of(field: &str) -> Option<usize> {
    COLUMNS.iter().position(|column| column.name == field)
}

/// Returns the number of a severity: 1 to 24.
#[must_use]
pub fn severity_number(text: &str) -> Option<i64> {
    let name = text.trim_end_matches(|character: char| character.is_ascii_digit());
    let first = match name {
        "TRACE" => 1,
        "DEBUG" => 5,
        "INFO" => 9,
        "WARN" => 13,
        "ERROR" => 17,
        "FATAL" => 21,
        _ => return None,
    };
    match &text[name.len()..] {
        "" => Some(first),
        "2" => Some(first + 1),
        "3" => Some(first + 2),
        "4" => Some(first + 3),
        _ => None,
    }
}

/// The meaning of a key at the top of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Timestamp,
    Column(usize),
    /// Odd if its value is an object.
    Way,
    /// Odd whatever its value is.
    Shadow,
    Other,
}

const BUCKETS: usize = 512;

/// Finds the meaning of a key by a hash of its ends.
pub struct Keys {
    buckets: [Vec<(Vec<u8>, Key)>; BUCKETS],
}

/// The keys of all columns.
pub static KEYS: LazyLock<Keys> = LazyLock::new(Keys::new);

impl Keys {
    fn new() -> Self {
        let mut keys = Self { buckets: [const { Vec::new() }; BUCKETS] };
        keys.add(TIMESTAMP, Key::Timestamp);
        for (at, column) in COLUMNS.iter().enumerate() {
            keys.add(column.name, Key::Column(at));
        }
        keys.add(SEVERITY, Key::Shadow);
        RESOURCE.iter().for_each(|name| keys.add(name, Key::Shadow));
        for name in COLUMNS.iter().map(|column| column.name).chain(RESOURCE.iter().copied()) {
            name.match_indices('.').for_each(|(at, _)| keys.add(&name[..at], Key::Way));
        }
        keys
    }

    /// The first meaning of a name stays.
    fn add(&mut self, name: &str, key: Key) {
        if self.find(name.as_bytes()) == Key::Other {
            self.buckets[bucket(name.as_bytes())].push((name.into(), key));
        }
    }

    /// Returns the meaning of a key without escapes.
    #[inline]
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Key {
        let found = self.buckets[bucket(key)].iter().find(|(name, _)| name == key);
        found.map_or(Key::Other, |(_, key)| *key)
    }
}

#[inline]
fn bucket(key: &[u8]) -> usize {
    (ends(key) >> 55) as usize % BUCKETS
}

/// A hash of the first and the last eight bytes, and of the length.
#[inline]
#[must_use]
pub fn ends(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    let (first, last) = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => (word(bytes), 0),
    };
    let mixed = first.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ last.rotate_left(29).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed ^ bytes.len() as u64).wrapping_mul(0xA076_1D64_78BD_642F)
}
