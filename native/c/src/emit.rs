//! Records of an event: typed values, in an array or one after another.

use crate::Text;
use crate::guarded;
use crate::log::Log;
use inferlog::event::{offer, push_ids, push_json};
use queue::record::Scratch;
use request::ids::RequestIds;
use std::ffi::{CStr, c_char};
use std::mem::{MaybeUninit, align_of, size_of};

/// The kind of a value. An absent value leaves its key out of the line. A JSON value becomes a part of the line; what is
/// not valid JSON, or has line breaks, is recorded as text.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Absent = 0,
    Null = 1,
    Bool = 2,
    Int = 3,
    Uint = 4,
    Double = 5,
    Text = 6,
    Json = 7,
}

/// The content of a value, by its kind: `sint`, `uint` (also for a bool: 0 or 1), `real`, or `text`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Scalar<'a> {
    pub sint: i64,
    pub uint: u64,
    pub real: f64,
    pub text: Text<'a>,
}

/// One value of a record.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value<'a> {
    /// One of `inferlog_kind`; any other counts as absent.
    pub kind: u32,
    pub of: Scalar<'a>,
}

/// A registered event. `id` is 0 if it could not be registered. No log accepts records of an event that it has not
/// registered, so a handle must not be changed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Event {
    pub id: u16,
    /// The number of values of a record.
    pub fields: u16,
    /// Its records also carry the ids of a request: 0 or 1.
    pub in_request: u8,
}

impl From<Event> for inferlog::Event {
    #[inline]
    fn from(Event { id, fields, in_request }: Event) -> Self {
        Self { id, fields, in_request: in_request != 0 }
    }
}

/// Registers an event: its name, and the names of its fields in the order of their values. The same name with the same
/// fields gives the same event. With `in_request`, its records can carry the ids of a request. Takes a lock and allocates:
/// call it once, before the first record.
///
/// # Safety
/// `log` is NULL or an open log; `name` is a text that ends with a zero byte, and so are the `count` texts of `fields`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_register(
    log: *const Log,
    name: *const c_char,
    fields: *const *const c_char,
    count: usize,
    in_request: bool,
) -> Event {
    // SAFETY: the caller's promise.
    let log = unsafe { Log::at(log) };
    guarded(Event { id: 0, fields: 0, in_request: in_request.into() }, || {
        let log = log.ok_or("log=NULL: must be an open log")?;
        // SAFETY: the caller's promise.
        let text = |text: *const c_char, parameter: &str| {
            if text.is_null() {
                return Err(format!("{parameter}=NULL: must be a text"));
            }
            // SAFETY: the caller's promise.
            let text = unsafe { CStr::from_ptr(text) };
            text.to_str().map(str::to_owned).map_err(|_| format!("{parameter}={text:?}: must be UTF-8"))
        };
        if fields.is_null() && count > 0 {
            return Err(format!("fields=NULL: must be {count} texts"));
        }
        let name = text(name, "name")?;
        // SAFETY: the caller's promise.
        let given = (0..count).map(|at| text(unsafe { *fields.add(at) }, &format!("fields[{at}]")));
        let names = given.collect::<Result<Vec<String>, String>>()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let inferlog::Event { id, fields, in_request } = log.register(&name, &names, in_request)?;
        Ok(Event { id, fields, in_request: in_request.into() })
    })
}

/// Puts one record into the queue: as many values as the event has fields. `severity` is OpenTelemetry's number, 1 to 24
/// (9: info, 13: warn, 17: error). Returns whether it was accepted; never blocks. A refused record is counted.
///
/// # Safety
/// `log` is NULL or an open log; there are `count` values, whose texts live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_emit(
    log: *const Log,
    event: Event,
    severity: u8,
    values: *const Value<'_>,
    count: usize,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe { Log::at(log).is_some_and(|log| emit(log, None, event, severity, values, count)) }
}

/// Emits a record, with the ids of a request if the event has room for them.
///
/// # Safety
/// There are `count` values, whose texts live during the call.
pub unsafe fn emit(
    log: inferlog::Log,
    ids: Option<&RequestIds>,
    event: Event,
    severity: u8,
    values: *const Value<'_>,
    count: usize,
) -> bool {
    let pushed = if values.is_null() { 0 } else { count };
    let mut scratch = Scratch::new();
    push_ids(&mut scratch, ids, event.into());
    for at in 0..if pushed == usize::from(event.fields) { pushed } else { 0 } {
        // SAFETY: the caller's promise.
        unsafe { push(&mut scratch, &*values.add(at)) };
    }
    offer(&log, event.into(), severity, &scratch, pushed)
}

/// # Safety
/// A text of the value lives during the call.
#[inline]
pub unsafe fn push(scratch: &mut Scratch, value: &Value<'_>) {
    // SAFETY: the kind says which member was written; each takes its bytes as they are.
    unsafe {
        match value.kind {
            kind if kind == Kind::Null as u32 => scratch.push_null(),
            kind if kind == Kind::Bool as u32 => scratch.push_bool(value.of.uint != 0),
            kind if kind == Kind::Int as u32 => scratch.push_int(value.of.sint),
            kind if kind == Kind::Uint as u32 => scratch.push_uint(value.of.uint),
            kind if kind == Kind::Double as u32 => scratch.push_float(value.of.real),
            kind if kind == Kind::Text as u32 => scratch.push_bytes(value.of.text.bytes()),
            kind if kind == Kind::Json as u32 => push_json(scratch, value.of.text.bytes()),
            _ => scratch.push_absent(),
        }
    }
}

/// A record under construction, in memory of the caller's. One thread uses it at a time.
#[repr(C)]
pub struct Record {
    /// The library's own.
    pub opaque: [u64; 272],
}

struct Building {
    log: *const Log,
    event: Event,
    severity: u8,
    pushed: usize,
    scratch: Scratch,
}

const _: () = assert!(size_of::<Building>() <= size_of::<Record>() && align_of::<Building>() <= align_of::<Record>());

/// Begins a record: `inferlog_push` follows for each of the event's fields, then `inferlog_record_commit`. A record that is
/// given up needs nothing, unless it has more than 2,048 bytes: then its memory is lost.
///
/// # Safety
/// `log` is NULL or an open log; `record` can be written, and stays where it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_record_begin(record: *mut Record, log: *const Log, event: Event, severity: u8) {
    let mut building = Building { log, event, severity, pushed: 0, scratch: Scratch::new() };
    push_ids(&mut building.scratch, None, event.into());
    // SAFETY: the caller's promise; there is room for it.
    unsafe { record.cast::<MaybeUninit<Building>>().write(MaybeUninit::new(building)) };
}

/// Appends the value of the next field.
///
/// # Safety
/// `record` was begun and not committed; a text of the value lives during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_push(record: *mut Record, value: Value<'_>) {
    // SAFETY: the caller's promise.
    let building = unsafe { &mut *record.cast::<Building>() };
    building.pushed += 1;
    if building.pushed <= usize::from(building.event.fields) {
        // SAFETY: the caller's promise.
        unsafe { push(&mut building.scratch, &value) };
    }
}

/// Puts the record into the queue, as `inferlog_emit` does. It must be begun anew before it is used again.
///
/// # Safety
/// `record` was begun and not committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_record_commit(record: *mut Record) -> bool {
    // SAFETY: the caller's promise; the content is taken out once.
    let building = unsafe { record.cast::<Building>().read() };
    let Building { log, event, severity, pushed, scratch } = building;
    // SAFETY: the caller's promise.
    let log = unsafe { Log::at(log) };
    log.is_some_and(|log| offer(&log, event.into(), severity, &scratch, pushed))
}
