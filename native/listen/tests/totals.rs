//! Counts of a queue directory: those of queues that have ended stay, each counts once, none ever goes back.

use crate::support::{
    Bench, INFO, PATIENCE, assert_books_balance, emit, emit_each, listener_settings, register, registered,
};
use listen::delivery::Delivery;
use listen::leader::{Leader, Round};
use queue::control::Control;
use queue::layout::{QueueHeader, Reason};
use queue::lock::{Attempt, ProcessLock};
use queue::published::totals::{self, Totals};
use queue::queue_file::QueueFile;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

fn read(directory: &Path) -> Totals {
    totals::of_directory(&Control::open(directory).unwrap().page().totals, directory)
}

/// A queue that has ended with `records` accepted and one refused.
fn ended(bench: &Bench, records: u64) -> Arc<QueueFile> {
    let (producer, event) = registered(bench.producer());
    emit_each(&producer, event, 0, 0..records);
    producer.close();
    assert!(!emit(&producer, event, INFO, 0, records));
    let file = Arc::clone(&producer.queue().unwrap().file);
    header(&file).hot_path_nano.store(records * 1000, Ordering::Relaxed);
    file
}

fn header(file: &QueueFile) -> &QueueHeader {
    file.header()
}

#[test]
fn counts_of_queues_that_ended_stay() {
    let mut bench = Bench::new();
    let alive = bench.producer();
    let event = register(&alive);
    emit_each(&alive, event, 0, 0..3);
    for records in [5, 7] {
        ended(&bench, records);
    }
    let before = read(bench.path());
    bench.drain();
    assert_eq!(bench.queue_files().len(), 1, "only the live queue is left");
    let after = read(bench.path());
    assert_eq!((before.accepted, after.accepted, after.written), (15, 15, 15));
    assert_eq!((after.queues, after.hot_path_nano), (3, 12_000));
    assert_eq!(after.dropped[Reason::AlreadyShutdown as usize], [0, 0, 2, 0, 0, 0]);
    assert_eq!(after.dropped, before.dropped);
}

#[test]
fn one_who_dies_before_the_mark_or_before_the_removal_leaves_a_queue_that_is_not_counted_again() {
    let bench = Bench::new();
    let control = Control::open(bench.path()).unwrap();
    let (first, second) = (ended(&bench, 5), ended(&bench, 7));
    assert!(totals::add_ended(&control.page().totals, &first));
    header(&first).added_to_totals.store(0, Ordering::Relaxed);
    assert_eq!(read(bench.path()).accepted, 12, "added, but not marked");
    assert!(totals::add_ended(&control.page().totals, &first));
    assert!(totals::add_ended(&control.page().totals, &second));
    assert_eq!(read(bench.path()).accepted, 12, "both are added, and none is removed");
    assert!(totals::add_ended(&control.page().totals, &first));
    assert_eq!(read(bench.path()).accepted, 12);
    bench.queue_files().iter().for_each(|path| std::fs::remove_file(path).unwrap());
    assert_eq!((read(bench.path()).accepted, read(bench.path()).queues), (12, 2));
}

#[test]
fn one_who_dies_before_the_mark_leaves_a_queue_that_is_not_counted_again_once_others_are_added() {
    for is_next_lost in [false, true] {
        let bench = Bench::new();
        let control = Control::open(bench.path()).unwrap();
        let totals = &control.page().totals;
        let (first, second) = (ended(&bench, 5), ended(&bench, 7));
        assert!(totals::add_ended(totals, &first));
        header(&first).added_to_totals.store(0, Ordering::Relaxed);
        if is_next_lost {
            let known = Totals::of(&second);
            assert!(totals::add_lost(totals, bench.path(), header(&second).boot_id, &known));
        } else {
            assert!(totals::add_ended(totals, &second));
        }
        assert_eq!(read(bench.path()).accepted, 12);
        assert!(totals::add_ended(totals, &first));
        assert_eq!(read(bench.path()).accepted, 12);
    }
}

#[test]
fn a_queue_whose_counts_cannot_be_added_now_keeps_its_file_until_they_are() {
    let mut bench = Bench::new();
    ended(&bench, 5);
    let lock = ProcessLock::try_acquire(&bench.path().join("totals.lock"), true).unwrap();
    let Attempt::Acquired(lock) = lock else { panic!("nobody else is here") };
    let rounds = |bench: &mut Bench| (0..3).for_each(|_| _ = bench.round(Duration::from_millis(1), true));
    rounds(&mut bench);
    assert_eq!(bench.queue_files().len(), 1);
    drop(lock);
    rounds(&mut bench);
    assert_eq!((bench.queue_files().len(), read(bench.path()).accepted), (0, 5));
}

#[test]
fn readers_never_see_counts_go_back_while_queues_end() {
    const QUEUES: u64 = 100;
    let mut bench = Bench::new();
    for _ in 0..QUEUES {
        ended(&bench, 2);
    }
    let directory = bench.path().to_owned();
    let reader = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while seen.len() < 50 || !queue::queue_file::list(&directory).unwrap().is_empty() {
            seen.push(read(&directory).accepted);
        }
        seen
    });
    bench.drain();
    let seen = reader.join().unwrap();
    assert!(seen.iter().all(|accepted| *accepted == 2 * QUEUES), "{seen:?}");
}

// The leader's count of the records that sinks took equals the queues' count of written records: at any end of a
// leader, on any page.

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
