//! Records of a registered event: typed values.

use crate::Error;
use crate::log::{Inner, Log};
use queue::json::is_json;
use queue::layout::Reason;
use queue::record::Scratch;
use request::ids::RequestIds;

/// Fields that this crate fills in, of an event whose records belong to requests.
const OF_REQUEST: [&str; 2] = ["trace", "request_id"];

/// Events that a log with requests has registered itself.
#[cfg(not(feature = "requests"))]
const OF_REQUESTS: [&str; 2] = ["request", "request.chunk"];

/// A registered event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// 0: nothing accepts its records, as of any event that the log has not registered.
    pub id: u16,
    /// The number of values of a record.
    pub fields: u16,
    /// Its records also carry the ids of a request.
    pub in_request: bool,
}

impl Event {
    /// All but the id in one word, which is never 0.
    const fn form(self) -> u32 {
        1 << 31 | (self.in_request as u32) << 16 | self.fields as u32
    }
}

/// One value of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// The line has no such key.
    Absent,
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(&'a str),
    /// A part of the line; recorded as text if it is not valid JSON or has line breaks.
    Json(&'a str),
}

impl Value<'_> {
    pub(crate) fn push(&self, scratch: &mut Scratch) {
        match *self {
            Self::Absent => scratch.push_absent(),
            Self::Null => scratch.push_null(),
            Self::Bool(value) => scratch.push_bool(value),
            Self::Int(value) => scratch.push_int(value),
            Self::Uint(value) => scratch.push_uint(value),
            Self::Double(value) => scratch.push_float(value),
            Self::Text(text) => scratch.push_bytes(text.as_bytes()),
            Self::Json(text) => push_json(scratch, text.as_bytes()),
        }
    }
}

macro_rules! values {
    ($($kind:ty => $variant:ident as $wide:ty),+ $(,)?) => {
        $(impl From<$kind> for Value<'_> {
            fn from(value: $kind) -> Self {
                Self::$variant(<$wide>::from(value))
            }
        })+
    };
}

values!(
    bool => Bool as bool,
    i8 => Int as i64, i16 => Int as i64, i32 => Int as i64, i64 => Int as i64,
    u8 => Uint as u64, u16 => Uint as u64, u32 => Uint as u64, u64 => Uint as u64,
    f32 => Double as f64, f64 => Double as f64,
);

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

/// Appends JSON, or text if it is no JSON of one line.
pub fn push_json(scratch: &mut Scratch, bytes: &[u8]) {
    let is_line = !bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    if is_line && is_json(bytes) { scratch.push_json(bytes) } else { scratch.push_bytes(bytes) }
}

impl Log {
    /// Registers an event: its name, and the names of its fields in the order of their values. The same name with the same
    /// fields gives the same event. With `in_request`, its records can carry the ids of a request. Takes a lock and
    /// allocates: call it once, before the first record.
    ///
    /// # Errors
    /// A name breaks the rules, or the queue has no room for another event.
    pub fn register(self, name: &str, fields: &[&str], in_request: bool) -> Result<Event, Error> {
        #[cfg(not(feature = "requests"))]
        if OF_REQUESTS.contains(&name) {
            return Err(Error::new(format!("event {name:?} is that of requests and cannot be registered")));
        }
        let own = in_request.then_some(OF_REQUEST).into_iter().flatten();
        let names: Vec<String> = own.chain(fields.iter().copied()).map(str::to_owned).collect();
        let id = self.service.producer.register(name, &names)?;
        let event = Event { id, fields: fields.len() as u16, in_request };
        self.events.note(event.id, event.form());
        Ok(event)
    }

    /// Puts one record into the queue: as many values as the event has fields. `severity` is OpenTelemetry's number, 1 to
    /// 24. Returns whether it was accepted; never blocks. A refused record is counted.
    pub fn emit(self, event: Event, severity: u8, values: &[Value<'_>]) -> bool {
        emit(&self, None, event, severity, values)
    }
}

pub(crate) fn emit(log: &Inner, ids: Option<&RequestIds>, event: Event, severity: u8, values: &[Value<'_>]) -> bool {
    let mut scratch = Scratch::new();
    push_ids(&mut scratch, ids, event);
    values.iter().for_each(|value| value.push(&mut scratch));
    offer(log, event, severity, &scratch, values.len())
}

/// Begins a record: with the ids of its request, if the event has room for them.
#[inline]
pub fn push_ids(scratch: &mut Scratch, ids: Option<&RequestIds>, event: Event) {
    match ids {
        _ if !event.in_request => (),
        Some(ids) => {
            scratch.push_trace(&ids.trace);
            ids.push_request_id(scratch);
        }
        None => scratch.push_absents(OF_REQUEST.len()),
    }
}

/// Puts a record of `values` values into the queue, unless the number is not that of the event, or the log has not
/// registered this event.
#[inline]
pub fn offer(log: &Inner, event: Event, severity: u8, scratch: &Scratch, values: usize) -> bool {
    let service = &log.service;
    if values != usize::from(event.fields) || !log.events.has(event.id, event.form()) {
        return service.producer.refuse(Reason::SerializeError, severity);
    }
    if service.runtime.is_off() {
        return false;
    }
    service.producer.emit(event.id, severity, scratch.as_slice())
}
