//! The leader's count of the records that sinks took equals the queues' count of written records: at any end of a
//! leader, on any page.

use crate::support::{Bench, INFO, PATIENCE, assert_books_balance, emit, emit_each, listener_settings, registered};
use listen::delivery::Delivery;
use listen::leader::{Leader, Round};
use queue::control::Control;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Records that sinks took: all, and those of queues.
fn taken(directory: &Path) -> (u64, u64) {
    let page = Control::open(directory).unwrap().page();
    (page.records_written.load(Ordering::Relaxed), page.taken_from_queues.load(Ordering::Relaxed))
}

#[test]
fn the_listeners_own_lines_are_taken_and_come_from_no_queue() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    emit_each(&producer, event, 0, 0..3);
    assert!(!producer.emit(event, INFO, &[0; 10_000]), "too large");
    producer.close();
    bench.drain();
    assert_eq!(bench.sink.events("log.dropped").len() + bench.sink.events("process.ended").len(), 2);
    assert_eq!(taken(bench.path()), (5, 3));
    assert_books_balance(bench.path(), "after the end");
}

#[test]
fn what_a_leader_has_written_of_a_batch_is_counted_when_it_gives_the_rest_back() {
    for written in 0..6 {
        let mut bench = Bench::new();
        let (producer, event) = registered(bench.producer());
        assert!(!producer.emit(event, INFO, &[0; 10_000]), "too large");
        emit_each(&producer, event, 0, 0..4);
        bench.sink.taken().faults.push_back(written);
        bench.round(Duration::from_millis(1), true);
        bench.change_leader();
        let message = format!("{written} lines written");
        assert_eq!(taken(bench.path()).0, written.min(5) as u64, "{message}");
        assert_books_balance(bench.path(), &message);
        bench.drain();
        assert_books_balance(bench.path(), &message);
        assert_eq!(taken(bench.path()), (5, 4), "{message}");
    }
}

#[test]
fn a_batch_that_is_written_while_its_leader_ends_is_counted() {
    let bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    emit_each(&producer, event, 0, 0..4);
    let (has_begun, begun) = channel();
    let (go_on, wait) = channel();
    bench.sink.taken().before_write = Some(Box::new(move |_| {
        has_begun.send(()).unwrap();
        wait.recv().unwrap();
    }));
    let (alive, ended) = channel();
    let control = Control::open(bench.path()).unwrap();
    let delivery = Delivery::start(bench.sink.sinks(), control, bench.now, &alive);
    let mut leader = Leader::new(listener_settings(bench.path()), control, delivery, bench.now);
    assert!(matches!(leader.round(bench.now, true), Round::Idle(_)));
    begun.recv_timeout(PATIENCE).unwrap();
    assert!(leader.has_work());
    go_on.send(()).unwrap();
    leader.close(bench.now);
    drop(alive);
    assert!(ended.recv_timeout(PATIENCE).is_err());
    assert_books_balance(bench.path(), "at its end");
}

#[test]
fn a_page_that_is_new_begins_with_what_the_queues_have_released() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    for n in 0..3 {
        assert!(emit(&producer, event, INFO, 0, n));
        bench.drain();
    }
    std::fs::remove_file(bench.path().join("control-5")).unwrap();
    bench.next_leader();
    assert_books_balance(bench.path(), "before the first batch");
    assert!(emit(&producer, event, INFO, 0, 3));
    bench.drain();
    assert_books_balance(bench.path(), "behind it");
    assert_eq!(taken(bench.path()), (1, 4));
}
