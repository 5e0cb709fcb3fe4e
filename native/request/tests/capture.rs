//! The capped capture of a body, against a naive model that keeps everything.

use proptest::prelude::*;
use queue::record::{Body, BodyKind, BodyText, Scratch, Value, Values};
use request::capture::{Capture, Content, TextCapture};

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
