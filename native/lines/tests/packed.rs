//! A packed stream: the unpacked stream equals the original, and the limits are kept.

use proptest::prelude::*;
use queue::record::{Body, BodyText, Scratch, Value, Values};
use request::capture::packed::{PackedStream, Unpacked};
use serde_json::json;

/// Head, tail and whether that is all, of a stream that came in `parts`; and the bytes that it took.
fn packed(parts: &[&[u8]], head: usize, tail: usize) -> Option<(Vec<u8>, Vec<u8>, bool, usize)> {
    let mut stream = PackedStream::new(BodyText::Written, head, tail);
    parts.iter().for_each(|part| stream.push(part));
    let mut scratch = Scratch::new();
    stream.push_value(&mut scratch);
    match Values::new(scratch.as_slice()).next().unwrap().unwrap() {
        Value::Absent => None,
        Value::Body(body) => {
            let unpacked = Unpacked::of(&body);
            let stored = body.head.len() + body.tail.len();
            let Body { head, tail, complete, .. } = unpacked.body();
            Some((head.to_vec(), tail.to_vec(), complete, stored))
        }
        other => panic!("{other:?}"),
    }
}

fn check(parts: &[&[u8]], head: usize, tail: usize) {
    let whole = parts.concat();
    let Some((first, last, complete, stored)) = packed(parts, head, tail) else {
        assert!(whole.is_empty() || head + tail < 40, "nothing of {} bytes in {head} and {tail}", whole.len());
        return;
    };
    if complete {
        assert_eq!((String::from_utf8_lossy(&first), last.len()), (String::from_utf8_lossy(&whole), 0));
    } else {
        assert!(whole.starts_with(&first), "the head is a beginning");
        assert!(whole.ends_with(&last), "the tail is an end");
        assert!(first.len() + last.len() <= whole.len());
    }
    assert!(stored <= head + tail + 1, "{stored} bytes in {head} and {tail}");
}

fn chat(words: &[String]) -> Vec<Vec<u8>> {
    let chunk = |delta| {
        json!({"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1_763_000_000,
            "model": "meta/llama-3-8b", "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]})
    };
    let first = std::iter::once(chunk(json!({"role": "assistant", "content": ""})));
    let events = first.chain(words.iter().map(|word| chunk(json!({"content": word}))));
    events.map(|event| format!("data: {event}\n\n").into_bytes()).collect()
}

#[test]
fn a_stream_takes_little_more_than_what_is_new_in_its_events() {
    let words: Vec<String> = (0..1000).map(|number| format!(" word{}", number % 37)).collect();
    let events = chat(&words);
    let parts: Vec<&[u8]> = events.iter().map(Vec::as_slice).collect();
    let (raw, text) = (parts.concat().len(), words.concat().len());
    let (first, last, complete, stored) = packed(&parts, 8192, 8192).unwrap();
    assert_eq!((first, last.len(), complete), (parts.concat(), 0, true), "{raw} bytes fit into 16 KiB");
    assert!(stored < text + 6 * words.len() && raw > 15 * stored, "{raw} bytes took {stored}, their text has {text}");
    let together = parts.concat();
    let (_, _, _, as_one) = packed(&[&together], 8192, 8192).unwrap();
    assert_eq!(as_one, stored, "also where all events come at once");
}

#[test]
fn the_end_of_a_long_stream_is_kept() {
    let words: Vec<String> = (0..20_000).map(|number| format!(" word{number}")).collect();
    let events = chat(&words);
    let parts: Vec<&[u8]> = events.iter().map(Vec::as_slice).collect();
    let (first, last, complete, stored) = packed(&parts, 4096, 4096).unwrap();
    assert!(!complete && stored <= 8193);
    assert!(parts.concat().starts_with(&first) && parts.concat().ends_with(&last));
    assert!(first.len() > 40_000 && last.len() > 40_000, "{} and {}", first.len(), last.len());
    let huge = [&b"data: "[..], &vec![b'x'; 100_000], b"end\n\n"].concat();
    let (_, last, complete, _) = packed(&[parts[0], &huge], 1000, 1000).unwrap();
    assert!(!complete && last.len() > 900 && last.ends_with(b"xend\n\n"));
}

proptest! {
    #[test]
    fn any_stream_comes_out_as_it_went_in(
        words in prop::collection::vec(".{0,30}", 0..60),
        noise in prop::collection::vec(any::<u8>(), 0..300),
        step in 1..700usize,
        head in 0..3000usize,
        tail in 0..3000usize,
    ) {
        let events = chat(&words);
        check(&events.iter().map(Vec::as_slice).collect::<Vec<_>>(), head, tail);
        let bytes = [events.concat(), noise].concat();
        check(&bytes.chunks(step).collect::<Vec<_>>(), head, tail);
    }

    #[test]
    fn noise_unpacks_to_something_without_a_panic(
        head in prop::collection::vec(any::<u8>(), 0..200),
        tail in prop::collection::vec(0..9u8, 0..200),
    ) {
        use queue::record::BodyKind;
        for (head, tail) in [(&head, &tail), (&tail, &head)] {
            let kind = BodyKind::PackedStream;
            let unpacked = Unpacked::of(&Body { kind, head, tail, complete: false, text: BodyText::Written });
            prop_assert!(unpacked.body().head.len() < 300_000);
        }
    }
}
