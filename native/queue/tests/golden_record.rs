//! Golden bytes of the record layout and of stored schemas, as another process, or an older version, writes them.

use queue::event::{self, EventError, EventSchema};
use queue::record::{Body, BodyKind, BodyText, INLINE_BYTES, MAX_DEPTH, Malformed, Scratch, Tag, Trace, Value, Values};

fn payload(push: impl FnOnce(&mut Scratch)) -> Vec<u8> {
    let mut scratch = Scratch::new();
    push(&mut scratch);
    scratch.as_slice().to_vec()
}

fn trace() -> Trace {
    Trace { trace_id: *b"0123456789abcdef", span_id: *b"ABCDEFGH", parent_span_id: *b"abcdefgh", flags: 3 }
}

fn body<'a>(head: &'a [u8], tail: &'a [u8], complete: bool) -> Body<'a> {
    Body { kind: BodyKind::Stream, head, tail, complete, text: BodyText::Withheld }
}

fn shown(text: BodyText, complete: bool) -> Body<'static> {
    Body { text, ..body(b"ab", b"c", complete) }
}

#[test]
fn every_tag_has_its_golden_bytes() {
    let golden: [(Vec<u8>, &[u8]); 19] = [
        (payload(Scratch::push_absent), &[0]),
        (payload(Scratch::push_null), &[1]),
        (payload(|s| s.push_bool(false)), &[2]),
        (payload(|s| s.push_bool(true)), &[3]),
        (payload(|s| s.push_int(-2)), b"\x04\xfe\xff\xff\xff\xff\xff\xff\xff"),
        (payload(|s| s.push_float(1.5)), b"\x05\0\0\0\0\0\0\xf8\x3f"),
        (payload(|s| s.push_str("h\u{e9}")), b"\x06\x03\0\0\0h\xc3\xa9"),
        (payload(|s| s.push_bytes(b"\xff\0")), b"\x07\x02\0\0\0\xff\0"),
        (payload(|s| s.push_json(b"[1]")), b"\x08\x03\0\0\0[1]"),
        (payload(|s| s.push_trace(&trace())), b"\x090123456789abcdefABCDEFGHabcdefgh\x03"),
        (
            payload(|s| {
                s.push_map_begin(2);
                s.push_map_key("k");
                s.push_null();
                s.push_map_key("");
                s.push_bool(true);
            }),
            b"\x0a\x02\0\0\0\x01\0\0\0k\x01\0\0\0\0\x03",
        ),
        (payload(|s| s.push_gaps(&[1, 0x0102_0304])), b"\x0b\x02\0\0\0\x01\0\0\0\x04\x03\x02\x01"),
        (payload(|s| s.push_gaps(&[])), b"\x0b\0\0\0\0"),
        (payload(|s| s.push_body(&body(b"ab", b"c", false))), b"\x0c\x03\x02\0\0\0ab\x01\0\0\0c\0"),
        (payload(|s| s.push_body(&body(b"ab", b"", true))), b"\x0c\x03\x02\0\0\0ab\0\0\0\0\x01"),
        (payload(|s| s.push_body(&shown(BodyText::Written, false))), b"\x0c\x03\x02\0\0\0ab\x01\0\0\0c\x02"),
        (payload(|s| s.push_body(&shown(BodyText::Hashed, true))), b"\x0c\x03\x02\0\0\0ab\0\0\0\0\x05"),
        // A complete body has no tail: one that a caller passes is dropped.
        (payload(|s| s.push_body(&body(b"ab", b"c", true))), b"\x0c\x03\x02\0\0\0ab\0\0\0\0\x01"),
        (payload(|s| s.push_uint(u64::MAX)), b"\x0d\xff\xff\xff\xff\xff\xff\xff\xff"),
    ];
    for (written, expected) in &golden {
        assert_eq!(written, expected);
        assert!(Values::new(written).all(|value| value.is_ok()), "{written:?}");
    }
    assert_eq!(Tag::Uint as u8, 13);
    assert_eq!(BodyKind::Request as u8, 1);
    assert_eq!(BodyKind::Response as u8, 2);
    let more = [BodyKind::RequestText, BodyKind::ResponseText, BodyKind::RequestMedia, BodyKind::ResponseMedia];
    assert_eq!(more.map(|kind| kind as u8), [4, 5, 6, 7]);
    assert_eq!(BodyKind::PackedStream as u8, 8);
    let last = [BodyKind::RequestForm, BodyKind::RequestEncoded, BodyKind::ResponseEncoded];
    assert_eq!(last.map(|kind| kind as u8), [9, 10, 11]);
    assert!((1..=11).all(|byte| BodyKind::from_byte(byte).is_some_and(|kind| kind as u8 == byte)));
    assert_eq!(BodyKind::from_byte(12), None);
}

#[test]
fn a_schema_has_its_golden_bytes() {
    let schema = EventSchema::new(0x0110, "ev", &["a", "b\"c"]).unwrap();
    assert_eq!(schema.to_bytes(), b"\x10\x01\x02ev\x02\0\x01a\x03b\"c");
    assert_eq!(EventSchema::log_dropped().to_bytes(), b"\0\0\x0blog.dropped\x03\0\x07dropped\x07reasons\x04lost");
    assert_eq!(EventSchema::log().id, event::LOG);
}

#[test]
fn a_schema_refuses_what_would_break_a_line() {
    let long = "n".repeat(129);
    assert_eq!(EventSchema::new::<&str>(16, "", &[]), Err(EventError::NameLength(String::new())));
    assert_eq!(EventSchema::new::<&str>(16, &long, &[]), Err(EventError::NameLength(long.clone())));
    assert_eq!(EventSchema::new(16, "e", &[""]), Err(EventError::FieldLength(String::new())));
    assert_eq!(EventSchema::new(16, "e", &[&long]), Err(EventError::FieldLength(long.clone())));
    assert_eq!(EventSchema::new(16, "e", &["a", "a"]), Err(EventError::DuplicateField("a".into())));
    for name in event::RESERVED {
        assert_eq!(EventSchema::new(16, "e", &[name]), Err(EventError::ReservedField(name.into())));
    }
    let many: Vec<String> = (0..257).map(|i| format!("f{i}")).collect();
    assert_eq!(EventSchema::new(16, "e", &many), Err(EventError::TooManyFields(257)));
    assert!(EventSchema::new(16, &"n".repeat(128), &many[..256]).is_ok());
}

#[test]
fn a_cut_or_wrong_stored_schema_is_refused() {
    let bytes = EventSchema::log().to_bytes();
    for len in 0..bytes.len() {
        assert_eq!(EventSchema::from_bytes(&bytes[..len]), Err(Malformed::Cut));
    }
    let mut followed = bytes.clone();
    followed.extend_from_slice(b"more");
    assert_eq!(EventSchema::from_bytes(&followed), Ok((EventSchema::log(), bytes.len())));
    for wrong in [&b"\0\0\x01\xff\0\0"[..], b"\0\0\0\0\0", b"\0\0\x01e\x01\x01", b"\0\0\x01e\x01\0\x03seq"] {
        assert_eq!(EventSchema::from_bytes(wrong), Err(Malformed::Schema));
    }
}

#[test]
fn a_cut_payload_is_refused_at_every_length() {
    let whole = payload(|s| {
        s.push_map_begin(1);
        s.push_map_key("key");
        s.push_gaps(&[1, 2, 3]);
    });
    for len in 1..whole.len() {
        assert_eq!(Values::new(&whole[..len]).next(), Some(Err(Malformed::Cut)));
    }
    let captured = payload(|s| s.push_body(&body(b"head", b"tail", false)));
    for len in 1..captured.len() {
        assert_eq!(Values::new(&captured[..len]).next(), Some(Err(Malformed::Cut)));
    }
}

#[test]
fn values_that_stand_where_they_must_not_are_refused() {
    let refused: [(&[u8], Malformed); 6] = [
        (b"\x0e", Malformed::Unknown),
        (b"\x0c\x0c\0\0\0\0\0\0\0\0\x01", Malformed::Unknown),
        (b"\x0c\x01\0\0\0\0\0\0\0\0\x06", Malformed::Unknown),
        (b"\x0c\x01\0\0\0\0\x01\0\0\0x\x01", Malformed::Misplaced),
        (b"\x0a\x01\0\0\0\0\0\0\0\x09", Malformed::Misplaced),
        (b"\x0a\xff\xff\xff\xff", Malformed::Cut),
    ];
    for (bytes, why) in refused {
        let read: Vec<_> = Values::new(bytes).collect();
        assert_eq!(read, [Err(why)], "an error is the last item");
    }
}

#[test]
fn maps_nest_to_the_limit_and_no_deeper() {
    let nested = |depth: usize| {
        payload(|s| {
            for _ in 0..depth {
                s.push_map_begin(1);
                s.push_map_key("k");
            }
            s.push_int(1);
        })
    };
    assert!(Values::new(&nested(MAX_DEPTH)).next().unwrap().is_ok());
    assert_eq!(Values::new(&nested(MAX_DEPTH + 1)).next(), Some(Err(Malformed::TooDeep)));
    assert_eq!(Values::new(&nested(100_000)).next(), Some(Err(Malformed::TooDeep)));
}

#[test]
fn values_keep_their_bytes_when_the_scratch_spills() {
    for filler in INLINE_BYTES - 40..INLINE_BYTES + 8 {
        let mut scratch = Scratch::new();
        for _ in 0..2 {
            scratch.clear();
            scratch.push_bytes(&vec![b'f'; filler]);
            scratch.push_str("after");
            scratch.push_int(7);
            scratch.push_bytes(&[b'g'; 5000]);
            let read: Vec<_> = Values::new(scratch.as_slice()).map(Result::unwrap).collect();
            assert_eq!(read[0], Value::Bytes(&vec![b'f'; filler]));
            assert_eq!(read[1..3], [Value::Str(b"after"), Value::Int(7)]);
            assert_eq!(read[3], Value::Bytes(&[b'g'; 5000]));
        }
    }
}

#[test]
fn pieces_of_every_short_length_are_copied_whole() {
    let text: String = ('!'..='~').collect();
    for len in 0..text.len() {
        let written = payload(|s| s.push_str(&text[..len]));
        assert_eq!(Values::new(&written).next(), Some(Ok(Value::Str(&text.as_bytes()[..len]))));
    }
}
