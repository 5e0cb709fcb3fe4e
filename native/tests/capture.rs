//! The capped capture of a body, against a naive model that keeps everything.

use _native::capture::Capture;
use _native::record::{Body, BodyKind, Scratch, Value, Values};
use proptest::prelude::*;

/// What the capture of `parts` puts into a record: head, tail, complete; nothing if no byte came.
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
