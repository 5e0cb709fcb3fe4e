//! Properties of the record layout and of stored schemas: every written value is read back, and noise is read without a
//! panic.

use proptest::prelude::*;
use queue::event::EventSchema;
use queue::record::{Body, BodyKind, BodyText, Scratch, Value, Values};

fn payload(push: impl FnOnce(&mut Scratch)) -> Vec<u8> {
    let mut scratch = Scratch::new();
    push(&mut scratch);
    scratch.as_slice().to_vec()
}

fn body<'a>(head: &'a [u8], tail: &'a [u8]) -> Body<'a> {
    Body { kind: BodyKind::Stream, head, tail, complete: false, text: BodyText::Withheld }
}

/// A value that owns its bytes, to write and to compare.
#[derive(Clone, Debug)]
enum Owned {
    Absent,
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(String),
    Bytes(Vec<u8>),
    Gaps(Vec<u32>),
    Body(Vec<u8>, Vec<u8>),
    Map(Vec<(String, Owned)>),
}

fn push(scratch: &mut Scratch, value: &Owned) {
    match value {
        Owned::Absent => scratch.push_absent(),
        Owned::Null => scratch.push_null(),
        Owned::Bool(value) => scratch.push_bool(*value),
        Owned::Int(value) => scratch.push_int(*value),
        Owned::Uint(value) => scratch.push_uint(*value),
        Owned::Float(value) => scratch.push_float(*value),
        Owned::Str(value) => scratch.push_str(value),
        Owned::Bytes(value) => scratch.push_bytes(value),
        Owned::Gaps(value) => scratch.push_gaps(value),
        Owned::Body(head, tail) => scratch.push_body(&body(head, tail)),
        Owned::Map(entries) => {
            scratch.push_map_begin(entries.len() as u32);
            for (key, value) in entries {
                scratch.push_map_key(key);
                push(scratch, value);
            }
        }
    }
}

fn same(read: Value<'_>, written: &Owned) -> bool {
    match (read, written) {
        (Value::Absent, Owned::Absent) | (Value::Null, Owned::Null) => true,
        (Value::Bool(a), Owned::Bool(b)) => a == *b,
        (Value::Int(a), Owned::Int(b)) => a == *b,
        (Value::Uint(a), Owned::Uint(b)) => a == *b,
        (Value::Float(a), Owned::Float(b)) => a.to_bits() == b.to_bits(),
        (Value::Str(a), Owned::Str(b)) => a == b.as_bytes(),
        (Value::Bytes(a), Owned::Bytes(b)) => a == b,
        (Value::Gaps(a), Owned::Gaps(b)) => a.iter().eq(b.iter().copied()),
        (Value::Body(a), Owned::Body(head, tail)) => a == body(head, tail),
        (Value::Map(a), Owned::Map(b)) => {
            a.iter().count() == b.len()
                && a.iter().zip(b).all(|((key, value), (k, v))| key == k.as_bytes() && same(value, v))
        }
        _ => false,
    }
}

fn scalar() -> impl Strategy<Value = Owned> {
    prop_oneof![
        Just(Owned::Absent),
        Just(Owned::Null),
        any::<bool>().prop_map(Owned::Bool),
        any::<i64>().prop_map(Owned::Int),
        any::<u64>().prop_map(Owned::Uint),
        any::<f64>().prop_map(Owned::Float),
        ".{0,40}".prop_map(Owned::Str),
        proptest::collection::vec(any::<u8>(), 0..600).prop_map(Owned::Bytes),
        proptest::collection::vec(any::<u32>(), 0..40).prop_map(Owned::Gaps),
    ]
}

fn value() -> impl Strategy<Value = Owned> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    let nested = scalar()
        .prop_recursive(4, 24, 6, |inner| proptest::collection::vec((".{0,12}", inner), 0..6).prop_map(Owned::Map));
    prop_oneof![4 => nested, 1 => (bytes(), bytes()).prop_map(|(head, tail)| Owned::Body(head, tail))]
}

/// Use every byte that a value refers to, so that a wrong bound would show.
fn touch(value: Value<'_>) -> usize {
    match value {
        Value::Str(piece) | Value::Bytes(piece) | Value::Json(piece) => piece.iter().map(|b| usize::from(*b)).sum(),
        Value::Map(map) => map.iter().map(|(key, value)| key.len() + touch(value)).sum(),
        Value::Gaps(gaps) => gaps.iter().map(|gap| gap as usize).sum(),
        Value::Body(body) => body.head.iter().chain(body.tail).map(|b| usize::from(*b)).sum(),
        _ => 1,
    }
}

proptest! {
    #[test]
    fn what_was_pushed_is_read(values in proptest::collection::vec(value(), 0..12)) {
        let written = payload(|s| values.iter().for_each(|value| push(s, value)));
        let read: Vec<_> = Values::new(&written).map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), values.len());
        for (read, written) in read.into_iter().zip(&values) {
            prop_assert!(same(read, written), "{:?} is not {:?}", read, written);
        }
    }

    #[test]
    fn noise_is_read_without_a_panic(mut noise in proptest::collection::vec(any::<u8>(), 0..400), tag in 0..16u8) {
        let _ = Values::new(&noise).filter_map(Result::ok).map(touch).sum::<usize>();
        if let Some(first) = noise.first_mut() {
            *first = tag;
        }
        let _ = Values::new(&noise).filter_map(Result::ok).map(touch).sum::<usize>();
        let _ = EventSchema::from_bytes(&noise);
    }

    #[test]
    fn a_changed_byte_is_read_without_a_panic(
        values in proptest::collection::vec(value(), 1..8), at in any::<prop::sample::Index>(), to in any::<u8>(),
    ) {
        let mut written = payload(|s| values.iter().for_each(|value| push(s, value)));
        let at = at.index(written.len());
        written[at] = to;
        let _ = Values::new(&written).filter_map(Result::ok).map(touch).sum::<usize>();
    }

    #[test]
    fn a_schema_is_read_as_it_was_stored(
        id in any::<u16>(), name in ".{1,20}", fields in proptest::collection::hash_set("[a-z.\"é]{1,12}", 0..20),
    ) {
        let fields: Vec<String> = fields.into_iter().collect();
        if let Ok(schema) = EventSchema::new(id, &name, &fields) {
            let bytes = schema.to_bytes();
            prop_assert_eq!(EventSchema::from_bytes(&bytes), Ok((schema, bytes.len())));
        }
    }
}
