//! What values of fields look like, and how long their texts may be.
//!
//! The texts of a request that clients choose stay together below what `settings/rules.rs` sets aside for them
//! (`REQUEST_RECORD_OVERHEAD_BYTES`), so that no client can make a record too long for the queue (P5).

use super::Field;
use crate::added::Members;
use crate::capture::Captured;
use crate::outcome::Outcome;
use crate::sampler::SampledBy;
use queue::record::{Scratch, Trace};

/// Most bytes of a path; more are cut.
pub const MAX_PATH_BYTES: usize = 2048;
/// Most bytes of a route; more are cut.
pub const MAX_ROUTE_BYTES: usize = 512;
/// Most bytes of another text; more are cut.
pub const MAX_TEXT_BYTES: usize = 256;
/// Stands at the end of a text that was cut.
const CUT: &str = "…";
/// Tag and length before each text.
const TEXT_OVERHEAD_BYTES: usize = 5;

/// Says how values of a type are appended, and which type their column has; none: the line has other keys.
macro_rules! field {
    ($(#[$note:meta])* $kind:ty: $column:literal, |$value:ident, $to:ident| $push:expr) => {
        $(#[$note])*
        impl Field for $kind {
            const COLUMN: &'static str = $column;

            #[inline(always)]
            fn push(self, $to: &mut Scratch) {
                let $value = self;
                $push
            }
        }
    };
}

field!(u64: "BIGINT", |value, to| to.push_uint(value));
field!(bool: "BOOLEAN", |value, to| to.push_bool(value));
field!(f64: "DOUBLE", |value, to| to.push_float(value));
field!(
    /// A short text; absent if it is empty.
    &str: "VARCHAR",
    |text, to| match text.len() {
        0 => to.push_absent(),
        1..=MAX_TEXT_BYTES => to.push_str(text),
        _ => push_cut(to, text.as_bytes(), MAX_TEXT_BYTES),
    }
);
field!(
    /// Text whose length was checked before.
    &[u8]: "VARCHAR",
    |text, to| to.push_bytes(text)
);
field!(
    /// An id in hexadecimal digits.
    [u8; 16]: "VARCHAR",
    |digits, to| to.push_bytes(&digits)
);
field!(
    /// Stands in the line under its own keys.
    &Trace: "",
    |trace, to| to.push_trace(trace)
);
field!(
    /// The line has what the listener reads from it.
    &mut Captured: "",
    |body, to| body.push_value(to)
);
field!(Outcome: "VARCHAR", |outcome, to| to.push_str(outcome.name()));
field!(SampledBy: "VARCHAR", |by, to| to.push_str(by.name()));

/// The path of a request.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a>(pub &'a [u8]);

field!(Path<'_>: "VARCHAR", |path, to| {
    if path.0.len() <= MAX_PATH_BYTES { to.push_bytes(path.0) } else { push_cut(to, path.0, MAX_PATH_BYTES) }
});

/// The path template of a route behind that of its mount; absent if there is none.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// Of the mounts.
    pub prefix: &'a str,
    /// Of the route itself.
    pub template: &'a str,
}

field!(Route<'_>: "VARCHAR", |route, to| {
    let Route { prefix, template } = route;
    match prefix.len() + template.len() {
        0 => to.push_absent(),
        1..=MAX_ROUTE_BYTES if prefix.is_empty() => to.push_str(template),
        1..=MAX_ROUTE_BYTES => to.push_str(&[prefix, template].concat()),
        _ => push_cut(to, [prefix, template].concat().as_bytes(), MAX_ROUTE_BYTES),
    }
});

/// The gaps between chunks, microseconds; absent if there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gaps<'a>(pub &'a [u32]);

field!(Gaps<'_>: "BIGINT[]", |gaps, to| if gaps.0.is_empty() { to.push_absent() } else { to.push_gaps(gaps.0) });

/// Seconds that the listener needs and writes into no line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwritten(pub Option<f64>);

field!(Unwritten: "", |seconds, to| seconds.0.push(to));

/// A text that was cut before; it may be empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exact<'a>(pub &'a str);

field!(Exact<'_>: "VARCHAR", |text, to| to.push_str(text.0));

/// A list of texts, encoded by a [`Scratch`].
#[derive(Clone, Copy, Debug)]
pub struct TextList<'a>(pub &'a [u8]);

field!(TextList<'_>: "VARCHAR[]", |list, to| to.push_values(list.0));

/// Encoded JSON.
#[derive(Clone, Copy, Debug)]
pub struct Json<'a>(pub &'a [u8]);

field!(Json<'_>: "JSON", |json, to| to.push_json(json.0));

/// Members that the listener expands.
#[derive(Clone, Copy, Debug)]
pub struct MembersValue<'a> {
    /// Absent if they are empty, or have no room.
    pub members: &'a [u8],
    /// Others, of other names.
    pub more: &'a [u8],
    /// Most bytes of the record.
    pub record_bytes: usize,
}

field!(MembersValue<'_>: "", |value, to| {
    let bytes = value.members.len() + value.more.len();
    if bytes == 0 || !has_room(to, bytes + BODY_OVERHEAD_BYTES, value.record_bytes) {
        to.push_absent();
    } else {
        to.push_body_in_two(&Members::body(value.members), value.more);
    }
});

/// What an application has set: a map as a [`Scratch`] encodes it.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Absent if it is empty, or has no room.
    pub map: &'a [u8],
    /// Most bytes of the record.
    pub record_bytes: usize,
}

field!(Attributes<'_>: "JSON", |value, to| {
    if value.map.is_empty() || !has_room(to, value.map.len(), value.record_bytes) {
        to.push_absent();
    } else {
        to.push_values(value.map);
    }
});

/// Tag, kind, two lengths and flags of a body.
const BODY_OVERHEAD_BYTES: usize = 11;

/// Whether so many bytes have room in a record, with some left for what is always behind them.
fn has_room(to: &Scratch, bytes: usize, record_bytes: usize) -> bool {
    const REST: usize = 512;
    to.as_slice().len() + bytes + REST <= record_bytes
}

/// Triton's id of a sequence; 0 and the empty name are none.
#[derive(Clone, Copy, Debug)]
pub enum Correlation<'a> {
    /// A number.
    Number(u64),
    /// A name that was cut before.
    Name(&'a str),
}

field!(Correlation<'_>: "VARCHAR", |correlation, to| match correlation {
    Correlation::Number(0) | Correlation::Name("") => to.push_absent(),
    Correlation::Number(number) => to.push_uint(number),
    Correlation::Name(name) => to.push_str(name),
});

/// A text that takes the room that the values before it have left, so that the record always fits (P5).
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a> {
    /// Absent if it is empty, or nothing of it has room.
    pub text: &'a str,
    /// Most bytes of the record.
    pub record_bytes: usize,
}

field!(Rest<'_>: "VARCHAR", |rest, to| push_rest(to, rest));

#[cold]
fn push_rest(to: &mut Scratch, Rest { text, record_bytes }: Rest<'_>) {
    let room = record_bytes.saturating_sub(to.as_slice().len() + TEXT_OVERHEAD_BYTES);
    match text.len() {
        0 => to.push_absent(),
        len if len <= room => to.push_bytes(text.as_bytes()),
        _ if room <= CUT.len() => to.push_absent(),
        _ => push_cut(to, text.as_bytes(), room),
    }
}

#[cold]
fn push_cut(to: &mut Scratch, text: &[u8], limit: usize) {
    let is_within_character = |at: &usize| text[*at] & 0xc0 == 0x80;
    let end = (0..=limit - CUT.len()).rev().find(|at| !is_within_character(at)).unwrap_or(0);
    to.push_bytes(&[&text[..end], CUT.as_bytes()].concat());
}
