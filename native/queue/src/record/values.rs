//! The reading half of `record`: an iterator over tagged values that trusts no byte.
//!
//! Invariants: no byte sequence makes it panic or read outside of its slice; work is linear in the payload (a map is
//! walked once when it is met, and its entries once more when they are asked for, per level of at most `MAX_DEPTH`);
//! after the first error the iterator is at its end.

use super::{Body, BodyKind, BodyText, MAX_DEPTH, Malformed, Tag, Trace};

/// One value of a record, borrowed from its payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value: the key is left out.
    Absent,
    /// JSON `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A float, possibly NaN or infinite.
    Float(f64),
    /// Text. Its writer promises UTF-8; a reader that needs certainty checks.
    Str(&'a [u8]),
    /// Text that may be invalid UTF-8.
    Bytes(&'a [u8]),
    /// Encoded JSON.
    Json(&'a [u8]),
    /// A trace context.
    Trace(Trace),
    /// Keys and values.
    Map(Map<'a>),
    /// A chunk timeline.
    Gaps(Gaps<'a>),
    /// A captured body.
    Body(Body<'a>),
}

/// The values of one payload, in order; `None` after the last one or after an error.
#[derive(Clone, Debug)]
pub struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    /// Read the values of `payload`.
    #[inline]
    pub fn new(payload: &'a [u8]) -> Self {
        Self(payload)
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<Value<'a>, Malformed>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let value = take_value(&mut self.0, 0);
        if value.is_err() {
            self.0 = &[];
        }
        Some(value)
    }
}

impl std::iter::FusedIterator for Values<'_> {}

/// The entries of a map, walked and found well-formed when the map was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Map<'a>(&'a [u8]);

impl<'a> Map<'a> {
    /// Iterate over (key, value). Only the writer promises that keys are UTF-8.
    pub fn iter(&self) -> MapIter<'a> {
        MapIter(self.0)
    }
}

impl<'a> IntoIterator for Map<'a> {
    type Item = (&'a [u8], Value<'a>);
    type IntoIter = MapIter<'a>;

    fn into_iter(self) -> MapIter<'a> {
        self.iter()
    }
}

/// Iterator over the entries of a [`Map`].
#[derive(Clone, Debug)]
pub struct MapIter<'a>(&'a [u8]);

impl<'a> Iterator for MapIter<'a> {
    type Item = (&'a [u8], Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        // Empty bytes end the iteration as `Cut`; no other error can come, since the map was walked when it was read.
        let key = take_piece(&mut self.0).ok()?;
        Some((key, take_nested(&mut self.0, 1).ok()?))
    }
}

/// A chunk timeline: the microseconds between chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps<'a>(&'a [[u8; 4]]);

impl<'a> Gaps<'a> {
    /// Iterate over the gaps in microseconds.
    pub fn iter(&self) -> GapsIter<'a> {
        self.0.iter().map(|gap| u32::from_le_bytes(*gap))
    }
}

/// Iterator over [`Gaps`].
pub type GapsIter<'a> = std::iter::Map<std::slice::Iter<'a, [u8; 4]>, fn(&[u8; 4]) -> u32>;

#[inline(always)]
fn take_value<'a>(from: &mut &'a [u8], depth: usize) -> Result<Value<'a>, Malformed> {
    let [tag] = take_array(from)?;
    const ABSENT: u8 = Tag::Absent as u8;
    const NULL: u8 = Tag::Null as u8;
    const FALSE: u8 = Tag::False as u8;
    const TRUE: u8 = Tag::True as u8;
    const INT: u8 = Tag::Int as u8;
    const FLOAT: u8 = Tag::Float as u8;
    const STR: u8 = Tag::Str as u8;
    const BYTES: u8 = Tag::Bytes as u8;
    const JSON: u8 = Tag::Json as u8;
    const TRACE: u8 = Tag::Trace as u8;
    const MAP: u8 = Tag::Map as u8;
    const GAPS: u8 = Tag::Gaps as u8;
    const BODY: u8 = Tag::Body as u8;
    const UINT: u8 = Tag::Uint as u8;
    Ok(match tag {
        ABSENT => Value::Absent,
        NULL => Value::Null,
        FALSE => Value::Bool(false),
        TRUE => Value::Bool(true),
        INT => Value::Int(i64::from_le_bytes(take_array(from)?)),
        UINT => Value::Uint(u64::from_le_bytes(take_array(from)?)),
        FLOAT => Value::Float(f64::from_le_bytes(take_array(from)?)),
        STR => Value::Str(take_piece(from)?),
        BYTES => Value::Bytes(take_piece(from)?),
        JSON => Value::Json(take_piece(from)?),
        MAP => Value::Map(take_map(from, depth)?),
        GAPS => Value::Gaps(take_gaps(from)?),
        TRACE | BODY if depth > 0 => return Err(Malformed::Misplaced),
        TRACE => Value::Trace(take_trace(from)?),
        BODY => Value::Body(take_body(from)?),
        _ => return Err(Malformed::Unknown),
    })
}

/// [`take_value`] as a call: it is inlined where the top level is read, and recursion needs a function.
#[inline(never)]
fn take_nested<'a>(from: &mut &'a [u8], depth: usize) -> Result<Value<'a>, Malformed> {
    take_value(from, depth)
}

#[inline(always)]
fn take<'a>(from: &mut &'a [u8], len: usize) -> Result<&'a [u8], Malformed> {
    let (taken, rest) = from.split_at_checked(len).ok_or(Malformed::Cut)?;
    *from = rest;
    Ok(taken)
}

#[inline(always)]
fn take_array<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (taken, rest) = from.split_first_chunk::<N>().ok_or(Malformed::Cut)?;
    *from = rest;
    Ok(*taken)
}

#[inline(always)]
fn take_u32(from: &mut &[u8]) -> Result<u32, Malformed> {
    Ok(u32::from_le_bytes(take_array(from)?))
}

#[inline(always)]
fn take_piece<'a>(from: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = take_u32(from)?;
    take(from, len as usize)
}

#[inline]
fn take_trace(from: &mut &[u8]) -> Result<Trace, Malformed> {
    Ok(Trace {
        trace_id: take_array(from)?,
        span_id: take_array(from)?,
        parent_span_id: take_array(from)?,
        flags: take_array::<1>(from)?[0],
    })
}

/// Walk a map to find its end. A wrong count costs nothing: each entry takes five bytes or more.
fn take_map<'a>(from: &mut &'a [u8], depth: usize) -> Result<Map<'a>, Malformed> {
    if depth >= MAX_DEPTH {
        return Err(Malformed::TooDeep);
    }
    let count = take_u32(from)?;
    let start = *from;
    for _ in 0..count {
        take_piece(from)?;
        take_nested(from, depth + 1)?;
    }
    Ok(Map(&start[..start.len() - from.len()]))
}

fn take_gaps<'a>(from: &mut &'a [u8]) -> Result<Gaps<'a>, Malformed> {
    let count = take_u32(from)? as usize;
    let bytes = take(from, count.checked_mul(4).ok_or(Malformed::Cut)?)?;
    Ok(Gaps(bytes.as_chunks().0))
}

fn take_body<'a>(from: &mut &'a [u8]) -> Result<Body<'a>, Malformed> {
    let [kind] = take_array(from)?;
    let kind = BodyKind::from_byte(kind).ok_or(Malformed::Unknown)?;
    let head = take_piece(from)?;
    let tail = take_piece(from)?;
    let [flags] = take_array(from)?;
    let complete = flags & 1 == 1;
    let text = BodyText::from_byte(flags >> 1).ok_or(Malformed::Unknown)?;
    if complete && !tail.is_empty() {
        return Err(Malformed::Misplaced);
    }
    Ok(Body { kind, head, tail, complete, text })
}
