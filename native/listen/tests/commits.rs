//! Waiting for a release: by the word of the ring itself, through any mapping of the queue file, woken by the leader.

use crate::support::{Bench, INFO, PATIENCE, emit, registered};
use queue::commits::is_before;
use queue::queue_file::QueueFile;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Longer than any test: only a wake-up ends such a wait.
const FOR_EVER: Duration = Duration::from_secs(100_000);

#[test]
fn a_process_that_waits_for_a_release_is_woken_by_it_through_any_mapping() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    let own = std::sync::Arc::clone(&producer.queue().unwrap().file);
    let other = QueueFile::open(&own.path).unwrap();
    let (reported, woken) = channel();
    for file in [own, other] {
        let reported = reported.clone();
        std::thread::spawn(move || {
            while file.released() == 0 {
                file.wait_released(0, FOR_EVER);
            }
            reported.send(file.released()).unwrap();
        });
    }
    assert!(emit(&producer, event, INFO, 0, 0));
    let early = woken.recv_timeout(Duration::from_millis(50));
    assert_eq!(early, Err(RecvTimeoutError::Timeout), "nothing is released yet");
    bench.drain();
    for _ in 0..2 {
        assert_eq!(woken.recv_timeout(PATIENCE), Ok(1));
    }
}

#[test]
fn a_wait_for_what_is_released_already_returns_at_once() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    assert!(emit(&producer, event, INFO, 0, 0));
    bench.drain();
    producer.queue().unwrap().file.wait_released(0, FOR_EVER);
}

#[test]
fn sequences_are_compared_across_their_wrap() {
    assert!(is_before(0, 1));
    assert!(!is_before(1, 1));
    assert!(is_before(u32::MAX, 0));
    assert!(!is_before(0, u32::MAX));
}
