//! What a killed process's slot says of a stream is what the record of its end would say.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use request::in_flight::InFlight;
use request::in_flight::facts::Begun;

/// Messages of a stream, each with so many chunks; without one, it keeps the connection alive.
fn message(chunks: usize) -> Vec<u8> {
    if chunks == 0 { b": ping\n\n".to_vec() } else { b"data: {\"response\":\"a\"}\n\n".repeat(chunks) }
}

fn stream(messages: &[usize], settings: &ObserverSettings, enter: impl FnOnce(&mut Observer)) -> Observer {
    let mut observer = begin(settings);
    enter(&mut observer);
    observer.response_start(200, Some(Content::Stream), settings);
    for (at, chunks) in (1..).zip(messages) {
        observer.response_body(&message(*chunks), true, STARTED + at * 10 * MS, settings);
    }
    observer
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_slot_of_a_stream_says_of_its_chunks_what_the_record_says(messages in vec(0_usize..4, 0..6)) {
        let settings = ObserverSettings { chunks: Chunks::Summary, ..settings() };
        let whole = finished(stream(&messages, &settings, |_| ()), Ending::Returned, &settings);
        let (mut bench, ids) = (Bench::new(), ids());
        let producer = bench.producer();
        let begun = Begun { started: STARTED, ..crate::support::begun(&ids, b"POST", b"/") };
        let enter = |observer: &mut Observer| observer.enter(InFlight::begin(&producer, &begun).unwrap(), true);
        std::mem::forget(stream(&messages, &settings, enter));
        producer.close();
        bench.drain();
        let left = bench.sink.events("request");
        prop_assert_eq!(left.len(), 1);
        let fields = ["chunks", "gen_ai.response.time_to_first_chunk", "chunk_gap_mean_us", "http.response.body.size"];
        for field in fields {
            prop_assert_eq!(left[0].get(field), whole.get(field), "{}", field);
        }
    }
}
