//! Counts of a queue directory: those of queues that have ended stay, each counts once, none ever goes back.

use crate::support::{Bench, INFO, emit, emit_each, register, registered};
use queue::control::Control;
use queue::layout::{QueueHeader, Reason};
use queue::lock::{Attempt, ProcessLock};
use queue::published::totals::{self, Totals};
use queue::queue_file::QueueFile;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
