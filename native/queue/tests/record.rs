//! Properties of the record layout and of stored schemas: every written value is read back, and noise is read without a
//! panic.

use proptest::prelude::*;
use queue::event::EventSchema;
use queue::record::{Body, BodyKind, BodyText, INLINE_BYTES, LONGEST_KEY, MapKeys, Room, Scratch, Value, Values};

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

// Values that are pushed in a row, and keys that are encoded once, stand in a record as the scratch itself pushes them.

const KEYS: [&str; 5] = ["", "k", "h\u{e9}", "abcdefghijklmnopqrstuvwxyz01", "last"];

/// Pushes a value; false: there was no room.
type InRoom = fn(&mut Room<'_>) -> bool;
type InScratch = fn(&mut Scratch);

const TEXTS: [&str; 7] =
    ["", "a", "abc", "abcdefg", "0123456789", "0123456789abcdef0123", "more than thirty-two bytes of text"];

fn kinds() -> [(InRoom, InScratch); 5] {
    [
        (|r| r.push_int(-2), |s| s.push_int(-2)),
        (|r| r.push_float(1.5), |s| s.push_float(1.5)),
        (|r| r.push_null(), Scratch::push_null),
        (|r| r.push_bool(true), |s| s.push_bool(true)),
        (|r| TEXTS.iter().all(|text| r.push_str(text)), |s| TEXTS.iter().for_each(|text| s.push_str(text))),
    ]
}

fn expected(push: impl FnOnce(&mut Scratch)) -> Vec<u8> {
    let mut scratch = Scratch::new();
    push(&mut scratch);
    scratch.as_slice().to_vec()
}

#[test]
fn a_room_pushes_what_the_scratch_pushes() {
    for (in_room, in_scratch) in kinds() {
        let mut scratch = Scratch::new();
        scratch.push_absent();
        assert!(in_room(&mut scratch.room()));
        scratch.push_absent();
        let same = expected(|scratch| {
            scratch.push_absent();
            in_scratch(scratch);
            scratch.push_absent();
        });
        assert_eq!(scratch.as_slice(), same);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    for used in INLINE_BYTES - 100..=INLINE_BYTES {
        for (in_room, in_scratch) in &kinds()[..4] {
            let mut scratch = Scratch::new();
            scratch.push_absents(used);
            let same = expected(|scratch| {
                scratch.push_absents(used);
                in_scratch(scratch);
            });
            let fits = in_room(&mut scratch.room());
            assert_eq!(fits, same.len() <= INLINE_BYTES);
            if !fits {
                assert_eq!(scratch.as_slice(), vec![0; used]);
                in_scratch(&mut scratch);
                assert!(!in_room(&mut scratch.room()), "a record that was spilled has no room");
            }
            assert_eq!(scratch.as_slice(), same);
        }
    }
}

#[test]
fn a_text_that_fits_exactly_fills_the_room() {
    for spare in 0..2 {
        let text = "x".repeat(INLINE_BYTES - 5 - 100 + 1 - spare);
        let mut scratch = Scratch::new();
        scratch.push_absents(100);
        assert_eq!(scratch.room().push_str(&text), spare == 1);
        assert_eq!(scratch.as_slice().len(), if spare == 1 { INLINE_BYTES } else { 100 });
    }
}

#[test]
fn keys_that_are_encoded_once_are_those_of_a_map() {
    let keys = MapKeys::new(&KEYS).unwrap();
    let same = expected(|scratch| {
        for (at, key) in KEYS.iter().enumerate() {
            scratch.push_map_key(key);
            scratch.push_int(at as i64);
        }
    });
    // From each key on, the scratch pushes in place of the room.
    for by_room in 0..=KEYS.len() {
        let (mut scratch, mut left) = (Scratch::new(), keys.all());
        for at in 0..KEYS.len() {
            if at < by_room {
                assert!(scratch.room().push_key(&mut left));
            } else {
                left.push_next(&mut scratch);
            }
            assert!(scratch.room().push_int(at as i64));
        }
        assert_eq!(scratch.as_slice(), same);
        assert!(!scratch.room().push_key(&mut left), "there is no key behind the last one");
        left.push_next(&mut scratch);
        assert_eq!(scratch.as_slice(), same);
    }
}

#[test]
fn a_key_without_room_is_still_the_next_one() {
    let keys = MapKeys::new(&KEYS[1..]).unwrap();
    for used in INLINE_BYTES - 40..=INLINE_BYTES {
        let (mut scratch, mut left) = (Scratch::new(), keys.all());
        scratch.push_absents(used);
        if !scratch.room().push_key(&mut left) {
            assert_eq!(scratch.as_slice().len(), used);
            left.push_next(&mut scratch);
        }
        left.push_next(&mut scratch);
        let same = expected(|scratch| {
            scratch.push_absents(used);
            KEYS[1..3].iter().for_each(|key| scratch.push_map_key(key));
        });
        assert_eq!(scratch.as_slice(), same);
    }
}

#[test]
fn a_key_that_is_too_long_is_not_encoded_once() {
    assert!(MapKeys::new(&["a", &"k".repeat(LONGEST_KEY)]).is_some());
    assert!(MapKeys::new(&["a", &"k".repeat(LONGEST_KEY + 1)]).is_none());
    assert!(MapKeys::new(&[]).is_some_and(|keys| !Scratch::new().room().push_key(&mut keys.all())));
}
