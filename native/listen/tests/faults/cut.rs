//! Mapped files that are cut short: an access to a missing page is a SIGBUS, which must not end the process.

use super::{cut, emit_span, open};
use crate::support::{
    Bench, INFO, PATIENCE, Place, SIZES, dense, emit, emit_each, numbers, payload, register, registered, wait_until,
};
use queue::layout::data_offset;
use queue::memory::page_bytes;
use queue::queue_file::QueueFile;
use std::fs;
use std::sync::atomic::Ordering;

const RECORD_BYTES: u64 = 6 * 8;

#[test]
fn a_process_whose_queue_file_is_cut_to_nothing_takes_a_new_one_and_goes_on() {
    let place = Place::new();
    let service = open(place.path());
    emit_span(&service, 0, 0..10);
    assert!(service.flush(PATIENCE));
    let before = place.queue_files();
    cut(&before[0], 0);
    emit_span(&service, 0, 10..200);
    assert!(service.flush(PATIENCE));
    assert_eq!(numbers(&place.lines(), 0), dense(200));
    wait_until("the file that nobody can read is removed", || !before[0].exists());
    assert_eq!(place.queue_files().len(), 1);
    assert!(service.close(PATIENCE));
    assert!(place.queue_files().is_empty());
    let boot_ids: std::collections::BTreeSet<String> =
        place.lines().iter().filter(|line| line["thread"] == 0).map(|line| line["boot_id"].to_string()).collect();
    assert_eq!(boot_ids.len(), 2, "sequences begin anew, under a new boot id");
}

#[test]
fn a_queue_file_that_is_cut_within_its_records_costs_what_stood_behind_the_cut_and_that_is_counted() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    emit_each(&producer, event, 0, 0..200);
    cut(&bench.queue_files()[0], data_offset(SIZES.slot_count, page_bytes().unwrap()) as u64 + 4096);
    bench.drain();
    let whole = 4096 / RECORD_BYTES;
    assert_eq!(numbers(&bench.sink.events("test"), 0), dense(whole));
    let reported = &bench.sink.events("log.dropped")[0];
    assert_eq!(reported["reasons"].to_string(), format!("{{\"corrupt\":{{\"INFO\":{}}}}}", 200 - whole));
    (0..10).for_each(|n| assert!(emit(&producer, event, INFO, 1, n), "the process has another queue"));
    bench.drain();
    assert_eq!(numbers(&bench.sink.events("test"), 1), dense(10));
}

#[test]
fn a_leader_writes_on_when_a_queue_of_another_process_is_cut_to_nothing_under_it() {
    let mut bench = Bench::new();
    let alive = bench.producer();
    let event = register(&alive);
    // A copy is a queue that this process does not own.
    let path = bench.path().join("0000000000000001.queue");
    let own = &alive.queue().unwrap().file;
    fs::copy(&own.path, &path).unwrap();
    let other = QueueFile::open(&path).unwrap();
    for n in 0..5 {
        let bytes = payload(1, n);
        let reserved = other.ring().reserve(bytes.as_slice().len() as u32, u32::MAX).unwrap();
        reserved.commit(event, INFO, 1, bytes.as_slice());
    }
    drop(other);
    let target = path.clone();
    // While the batch is on its way, and three more records come.
    bench.sink.taken().before_write = Some(Box::new(move |_| {
        if target.exists() {
            cut(&target, 0);
        }
    }));
    emit_each(&alive, event, 0, 0..5);
    bench.drain();
    emit_each(&alive, event, 0, 5..10);
    bench.drain();
    let lines = bench.sink.events("test");
    assert_eq!((numbers(&lines, 0), numbers(&lines, 1)), (dense(10), dense(5)));
    assert!(!path.exists(), "what nobody can read is removed");
}

#[test]
fn pages_that_all_processes_share_are_made_anew_when_somebody_cuts_them() {
    let place = Place::new();
    let service = open(place.path());
    emit_span(&service, 0, 0..10);
    assert!(service.flush(PATIENCE));
    let names = ["control", "runtime", "metrics"];
    let sizes = names.map(|name| fs::metadata(place.file(name)).unwrap().len());
    names.iter().for_each(|name| cut(&place.file(name), 0));
    emit_span(&service, 0, 10..20);
    wait_until("the process has shared pages again", || {
        let control = fs::metadata(place.file("control")).unwrap().len();
        control == sizes[0] && service.control().is_some_and(|it| it.page().leaders.load(Ordering::Relaxed) > 0)
    });
    emit_span(&service, 0, 20..30);
    assert!(service.flush(PATIENCE));
    assert!(service.close(PATIENCE));
    assert_eq!(numbers(&place.lines(), 0), dense(30));
}
