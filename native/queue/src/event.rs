//! Event schemas: the name and the fixed field list of one kind of record. A schema is registered once, so that a
//! record carries values only.
//!
//! Stored form, little-endian; it stands in the queue file, so that any listener can read the records of any process:
//!
//! ```text
//! u16 id | u8 name length | name | u16 field count | field count × ( u8 length | name )
//! ```
//!
//! Invariants: names are UTF-8 of 1 to 128 bytes. An event has at most 256 fields, with different names, and no name
//! that the encoder itself writes into a line ([`RESERVED`]).

use crate::record::Malformed;
use std::fmt;

/// The listener's report of a gap: how many records were dropped, and why.
pub const LOG_DROPPED: u16 = 0;
/// A message of the application.
pub const LOG: u16 = 1;
/// The terminal record of a request over HTTP.
pub const REQUEST: u16 = 2;
/// The chunk timeline of a stream.
pub const REQUEST_CHUNK: u16 = 3;
/// The housekeeper's report of what it removed, and why.
pub const SEGMENTS_REMOVED: u16 = 4;
/// A change at run time, by an operator or by its expiry.
pub const CONTROL_CHANGED: u16 = 5;
/// The listener's last record about a process: how it ended, and its counts.
pub const PROCESS_ENDED: u16 = 6;
/// A listener has cut off the unfinished line of an earlier listener that died.
pub const SEGMENT_REPAIRED: u16 = 7;
/// The terminal record of a request that a model of Triton serves.
pub const MODEL_REQUEST: u16 = 8;
/// The first id of users' schemas; smaller ids are built in.
pub const FIRST_USER_ID: u16 = 16;

/// Longest event or field name in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Most fields of one event.
pub const MAX_FIELDS: usize = 256;

/// Keys that the encoder writes itself. A field of such a name would stand in the line twice.
pub const RESERVED: [&str; 10] = [
    "timestamp", "severity_text", "event_name", "boot_id", "seq", "pid", "trace_id", "span_id", "parent_span_id",
    "trace_flags",
];

/// Events that only listeners write: reports about segments, processes and sinks.
pub(crate) const OF_LISTENERS: [&str; 12] = [
    "segment.header", "segment.footer", "segment.repaired", "segment.kept", "segments.removed", "log.dropped",
    "process.ended", "control.changed", "sink.failed", "sink.recovered", "sink.fallback", "sink.dropped",
];

const REMOVED_FIELDS: [&str; 6] = ["reason", "segments", "bytes", "oldest", "newest", "spans"];
/// The number of records that one stands for, after sampling has thinned them.
pub const ADJUSTED_COUNT: &str = "adjusted_count";

/// The author of a change, what was changed, the old and the new value, and when it ends; `to` null: as configured
/// again.
const CONTROL_CHANGED_FIELDS: [&str; 5] = ["who", "what", "from", "to", "until"];

/// Begins the producer's name of a command, such as `inference-logging ctl`, which is not counted as a process.
pub const COMMAND: &str = "inference-logging ";

/// The way it ended (`closed`, `died`), its start, and the counts of its queue; `accepted` less `written` is torn or
/// corrupt. Then the process's name, if it has one.
const ENDED_FIELDS: [&str; 7] = ["how", "started", "accepted", "written", "reasons", "sampled_out", "producer_name"];
/// The segment's file name, the end of its whole lines, and the number of bytes of the unfinished line behind them.
const SEGMENT_REPAIRED_FIELDS: [&str; 3] = ["segment", "offset", "bytes"];

/// One kind of record: its id within a queue, its name, its fields in the order of their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSchema {
    /// Id that records refer to.
    pub id: u16,
    /// Event name as it stands in the line.
    pub name: String,
    /// Field names, in the order of the values.
    pub fields: Vec<String>,
}

/// Build the schemas that every queue begins with. The producer adds those of requests (`QueueSettings::events`).
pub fn builtin() -> Vec<EventSchema> {
    vec![
        EventSchema::log_dropped(),
        EventSchema::log(),
        EventSchema::segments_removed(),
        EventSchema::built_in(CONTROL_CHANGED, "control.changed", &CONTROL_CHANGED_FIELDS),
        EventSchema::process_ended(),
        EventSchema::segment_repaired(),
    ]
}

/// The reason why a schema is refused. A retry with the same names never helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventError {
    /// The event name is empty or longer than [`MAX_NAME_BYTES`].
    NameLength(String),
    /// A field name is empty or longer than [`MAX_NAME_BYTES`].
    FieldLength(String),
    /// There are more than [`MAX_FIELDS`] fields; holds their number.
    TooManyFields(usize),
    /// Two fields have this name.
    DuplicateField(String),
    /// The name is one of [`RESERVED`].
    ReservedField(String),
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameLength(name) => {
                write!(f, "event name {name:?} has {} bytes, must have 1 to {MAX_NAME_BYTES}", name.len())
            }
            Self::FieldLength(name) => {
                write!(f, "field name {name:?} has {} bytes, must have 1 to {MAX_NAME_BYTES}", name.len())
            }
            Self::TooManyFields(count) => {
                write!(f, "an event has at most {MAX_FIELDS} fields, not {count}")
            }
            Self::DuplicateField(name) => write!(f, "field {name:?} is named twice"),
            Self::ReservedField(name) => write!(f, "field {name:?} is part of every line and cannot be redefined"),
        }
    }
}

impl std::error::Error for EventError {}

impl EventSchema {
    /// Check the names and build the schema.
    ///
    /// # Errors
    /// [`EventError`] names the rule and the name that breaks it.
    pub fn new<S: AsRef<str>>(id: u16, name: &str, fields: &[S]) -> Result<Self, EventError> {
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            return Err(EventError::NameLength(name.to_owned()));
        }
        if fields.len() > MAX_FIELDS {
            return Err(EventError::TooManyFields(fields.len()));
        }
        let mut known: Vec<String> = Vec::with_capacity(fields.len());
        for field in fields {
            let field = checked_field(field.as_ref(), &known)?;
            known.push(field);
        }
        Ok(Self { id, name: name.to_owned(), fields: known })
    }

    /// Build the schema of [`LOG_DROPPED`].
    pub fn log_dropped() -> Self {
        Self::built_in(LOG_DROPPED, "log.dropped", &["dropped", "reasons", "lost"])
    }

    /// Build the schema of [`PROCESS_ENDED`].
    pub fn process_ended() -> Self {
        Self::built_in(PROCESS_ENDED, "process.ended", &ENDED_FIELDS)
    }

    /// Build the schema of [`SEGMENT_REPAIRED`].
    pub fn segment_repaired() -> Self {
        Self::built_in(SEGMENT_REPAIRED, "segment.repaired", &SEGMENT_REPAIRED_FIELDS)
    }

    /// Build the schema of [`SEGMENTS_REMOVED`].
    pub fn segments_removed() -> Self {
        Self::built_in(SEGMENTS_REMOVED, "segments.removed", &REMOVED_FIELDS)
    }

    /// Build the schema of [`LOG`].
    pub fn log() -> Self {
        Self::built_in(LOG, "log", &["trace", "logger", "message", "request_id", "attributes", ADJUSTED_COUNT])
    }

    /// Return the stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.id.to_le_bytes());
        push_name(&mut out, &self.name);
        out.extend_from_slice(&(self.fields.len() as u16).to_le_bytes());
        for field in &self.fields {
            push_name(&mut out, field);
        }
        out
    }

    /// Read a stored schema from the start of `bytes`; return it and its length.
    ///
    /// # Errors
    /// [`Malformed::Cut`] where `bytes` end early, [`Malformed::Schema`] where the names break a rule.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let mut rest = bytes;
        let id = take_u16(&mut rest)?;
        let name = take_name(&mut rest)?;
        let count = usize::from(take_u16(&mut rest)?);
        if count > MAX_FIELDS {
            return Err(Malformed::Schema);
        }
        let fields = (0..count).map(|_| take_name(&mut rest)).collect::<Result<Vec<&str>, _>>()?;
        let schema = Self::new(id, name, &fields).map_err(|_| Malformed::Schema)?;
        Ok((schema, bytes.len() - rest.len()))
    }

    fn built_in(id: u16, name: &str, fields: &[&str]) -> Self {
        Self::new(id, name, fields).expect("built-in names keep the rules")
    }
}

fn checked_field(field: &str, known: &[String]) -> Result<String, EventError> {
    let field = field.to_owned();
    if !(1..=MAX_NAME_BYTES).contains(&field.len()) {
        return Err(EventError::FieldLength(field));
    }
    if RESERVED.contains(&field.as_str()) {
        return Err(EventError::ReservedField(field));
    }
    if known.contains(&field) {
        return Err(EventError::DuplicateField(field));
    }
    Ok(field)
}

fn push_name(out: &mut Vec<u8>, name: &str) {
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
}

fn take_u16(from: &mut &[u8]) -> Result<u16, Malformed> {
    let (taken, rest) = from.split_first_chunk().ok_or(Malformed::Cut)?;
    *from = rest;
    Ok(u16::from_le_bytes(*taken))
}

fn take_name<'a>(from: &mut &'a [u8]) -> Result<&'a str, Malformed> {
    let (len, rest) = from.split_first().ok_or(Malformed::Cut)?;
    let (name, rest) = rest.split_at_checked(usize::from(*len)).ok_or(Malformed::Cut)?;
    *from = rest;
    std::str::from_utf8(name).map_err(|_| Malformed::Schema)
}

pub const INFO: u8 = 9;
pub const WARN: u8 = 13;
pub const ERROR: u8 = 17;
