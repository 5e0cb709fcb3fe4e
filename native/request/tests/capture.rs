//! The capped capture of a body, against a naive model that keeps everything.

use proptest::prelude::*;
use queue::record::{Body, BodyKind, BodyText, Scratch, Value, Values};
use request::capture::{Capture, Captured, Content, Encoded, Encoding, Plain, TextCapture, encoded};

/// The captured value of `parts` in a record: head, tail, complete; nothing if no byte came.
fn captured(parts: &[&[u8]], head: usize, tail: usize) -> Option<(Vec<u8>, Vec<u8>, bool)> {
    let mut capture = Capture::new(BodyKind::Response, head, tail);
    parts.iter().for_each(|part| capture.push(part));
    let mut scratch = Scratch::new();
    capture.push_value(&mut scratch);
    let values: Vec<Value<'_>> = Values::new(scratch.as_slice()).map(Result::unwrap).collect();
    match values[..] {
        [Value::Absent] => None,
        [Value::Body(Body { kind: BodyKind::Response, head, tail, complete, .. })] => {
            Some((head.to_vec(), tail.to_vec(), complete))
        }
        ref other => panic!("{other:?}"),
    }
}

fn model(body: &[u8], head: usize, tail: usize) -> Option<(Vec<u8>, Vec<u8>, bool)> {
    let (first, rest) = body.split_at(head.min(body.len()));
    let last = &rest[rest.len() - tail.min(rest.len())..];
    match (body.len() <= head + tail, first.is_empty() && last.is_empty()) {
        (_, true) => None,
        (true, _) => Some((body.to_vec(), vec![], true)),
        (false, _) => Some((first.to_vec(), last.to_vec(), false)),
    }
}

#[test]
fn every_split_of_a_short_body_at_every_pair_of_limits_agrees_with_the_model() {
    let body = b"0123456789ab";
    for len in 0..=body.len() {
        for first in 0..=len {
            for second in first..=len {
                let parts = [&body[..first], &body[first..second], &body[second..len]];
                for (head, tail) in (0..7).flat_map(|head| (0..7).map(move |tail| (head, tail))) {
                    let expected = model(&body[..len], head, tail);
                    assert_eq!(captured(&parts, head, tail), expected, "{parts:?} head {head} tail {tail}");
                }
            }
        }
    }
}

#[test]
fn without_a_mode_nothing_is_kept_but_the_ends_of_json() {
    let off = TextCapture::default();
    assert!(!off.is_on());
    for content in [Content::Text, Content::Media(b"image/png")] {
        assert!(off.request(content, false, (9, 9)).is_none() && off.response(content, false, (9, 9)).is_none());
    }
    assert!(off.request(Content::Json, false, (0, 0)).is_none());
    for (content, expected) in [(Content::Json, (&b"0123"[..], &b"cdef"[..])), (Content::Stream, (b"", b"cdef"))] {
        let mut captured = off.response(content, false, (4, 4)).unwrap();
        captured.push(b"0123456789abcdef");
        let mut scratch = Scratch::new();
        captured.push_value(&mut scratch);
        let Some(Ok(Value::Body(body))) = Values::new(scratch.as_slice()).next() else { panic!("a body") };
        assert_eq!(((body.head, body.tail), body.text), (expected, BodyText::Withheld));
    }
}

/// The only value that a capture has stored.
fn stored(mut captured: Captured) -> Vec<u8> {
    let mut scratch = Scratch::new();
    captured.push_value(&mut scratch);
    scratch.as_slice().to_vec()
}

fn body(stored: &[u8]) -> Body<'_> {
    let Some(Ok(Value::Body(body))) = Values::new(stored).next() else { panic!("a body") };
    body
}

#[test]
fn an_event_that_was_noted_stands_for_the_beginning_if_that_is_lost() {
    for (bytes, head, tail) in [("0123", "0123", ""), ("01234", "noted", "1234")] {
        let mut captured = TextCapture::default().response(Content::Stream, false, (9, 4)).unwrap();
        captured.push(bytes.as_bytes());
        captured.note(b"noted");
        let stored = stored(captured);
        let found = body(&stored);
        assert_eq!((found.kind, found.head, found.tail), (BodyKind::Stream, head.as_bytes(), tail.as_bytes()));
        assert_eq!(found.complete, tail.is_empty());
    }
}

#[test]
fn a_compressed_body_keeps_its_beginning_only_and_says_what_it_is() {
    let gzip = Content::of_type(b"application/json").encoded(b"GZip");
    assert_eq!(gzip, Content::Encoded(Encoding::Gzip, Plain::Json));
    assert_eq!(Content::Json.encoded(b"identity"), Content::Json);
    assert_eq!(Content::Stream.encoded(b"gzip, br"), Content::Encoded(Encoding::Other, Plain::Stream));
    assert_eq!(Content::Form.encoded(b"br"), Content::Media(b"multipart/form-data"));
    let mut captured = TextCapture::default().request(gzip, false, (4, 2)).unwrap();
    captured.push(b"0123");
    captured.push(b"456789");
    let stored = stored(captured);
    let found = body(&stored);
    assert_eq!((found.kind, found.complete), (BodyKind::RequestEncoded, false));
    let (within, encoding, bytes) = (BodyKind::Request, Encoding::Gzip, &b"012345"[..]);
    assert_eq!(encoded(found.head), Some(Encoded { within, encoding, text_bytes: 6, bytes }));
    assert_eq!(found.head, b"\x01\x01\x06\x00\x00\x00012345", "its stored form");
    for noise in [&b""[..], b"\x01\x01", b"\x0a\x01\0\0\0\0", b"\xff\x01\0\0\0\0"] {
        assert_eq!(encoded(noise), None);
    }
    assert!(TextCapture::default().request(Content::Text.encoded(b"gzip"), false, (4, 2)).is_none());
}

#[test]
fn lines_of_json_are_a_stream_when_they_are_answered_and_a_text_when_they_are_asked() {
    let lines = Content::of_type(b"application/x-ndjson");
    assert_eq!(lines, Content::Stream);
    assert!(TextCapture::default().request(lines, false, (4, 4)).is_none());
    let mut captured = TextCapture::default().response(lines, false, (4, 4)).unwrap();
    captured.push(b"{}\n");
    assert_eq!(body(&stored(captured)).kind, BodyKind::Stream);
}

proptest! {
    #[test]
    fn any_parts_at_any_limits_agree_with_the_model(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..40),
        head in 0..200usize,
        tail in 0..200usize,
    ) {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(captured(&parts, head, tail), model(&parts.concat(), head, tail));
    }
}
