//! The reader of a queue when names are removed: the lock's, the queue's, and that of the page that all share.

use super::external::remove;
use super::{emit_span, open};
use crate::support::{
    INFO, Memory, PATIENCE, Place, dense, emit, emit_each, listener_settings, numbers, open_producer, wait_until,
};
use listen::delivery::Delivery;
use listen::leader::{Leader, Leadership};
use listen::listener::Listener;
use listen::sink::Now;
use queue::control::{Control, PRIMARY_SLOT};
use queue::lock::{Attempt, ProcessLock};
use queue::producer::Producer;
use queue::queue_file::prepare_directory;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Leads a directory that has no other leader by its name.
fn lead(queues: &Path, sink: &Memory, now: Now) -> Leader {
    prepare_directory(queues).unwrap();
    let path = queues.join("leader.lock");
    let Attempt::Acquired(lock) = ProcessLock::try_acquire(&path, true).unwrap() else { panic!("somebody leads") };
    let control = Control::open(queues).unwrap();
    let leader = Leader::new(listener_settings(queues), control, sink.delivery(control, now), now);
    leader.leading(Leadership::Directory { lock, path })
}

/// A process's queue with the records 0 to 9.
fn filled(queues: &Path) -> (Producer, u16) {
    let (producer, event) = open_producer(queues);
    emit_each(&producer, event, 0, 0..10);
    (producer, event)
}

fn later(now: Now, by: Duration) -> Now {
    Now { unix_nano: now.unix_nano + by.as_nanos() as u64, monotonic: now.monotonic + by }
}

#[test]
fn a_queue_that_is_removed_before_the_leader_has_seen_it_is_written_by_its_own_process_while_that_leader_lives() {
    let place = Place::new();
    let sink = Memory::default();
    let mut other = lead(&place.queues(), &sink, Now::read());
    other.round(Now::read(), true);
    let service = open(place.path());
    emit_span(&service, 0, 0..10);
    fs::remove_file(&place.queue_files()[0]).unwrap();
    let closed = std::thread::scope(|scope| {
        let closing = scope.spawn(|| service.close(PATIENCE));
        while !closing.is_finished() {
            other.round(Now::read(), true);
            other.wait(Duration::from_millis(50));
        }
        closing.join().unwrap()
    });
    assert!(closed);
    assert_eq!((numbers(&place.lines(), 0), numbers(&sink.lines(), 0)), (dense(10), vec![]));
}

#[test]
fn a_removed_queue_whose_reader_lives_has_no_other_one_also_where_they_share_no_page() {
    let place = Place::new();
    let sink = Memory::default();
    let mut other = lead(&place.queues(), &sink, Now::read());
    fs::remove_file(place.file("control")).unwrap();
    let service = open(place.path());
    emit_span(&service, 0, 0..10);
    let queues = place.queues();
    let old = place.queue_files();
    sink.taken().before_write = Some(Box::new(move |_| {
        if old[0].exists() {
            remove(&queues);
            let has_new = || queue::queue_file::list(&queues).is_ok_and(|files| !files.is_empty());
            wait_until("the process has another queue", has_new);
        }
    }));
    other.round(Now::read(), true);
    wait_until("the other leader is done", || {
        other.round(Now::read(), true);
        other.has_handed_over()
    });
    assert!(service.close(PATIENCE));
    assert_eq!(numbers(&sink.lines(), 0), dense(10));
    assert!(!place.path().join("segments").exists() || numbers(&place.lines(), 0).is_empty());
}

#[test]
fn a_listener_that_begins_when_its_directory_is_gone_already_writes_what_its_queue_has() {
    let place = Place::new();
    let queues = place.queues();
    let (producer, _) = filled(&queues);
    fs::remove_dir_all(&queues).unwrap();
    let (sink, queue) = (Memory::default(), producer.queue().unwrap());
    let theirs = sink.clone();
    let open = Box::new(move || Ok(theirs.sinks()));
    let own = (Arc::clone(&queue.file), queue.control);
    let listener = Listener::start(listener_settings(&queues), open, own, Box::new(|| ())).unwrap();
    producer.close();
    assert!(listener.stop(PATIENCE));
    assert_eq!(numbers(&sink.lines(), 0), dense(10));
}

#[test]
fn the_end_of_a_replaced_queue_is_on_record_also_where_its_name_goes_before_a_leader_has_reported_it() {
    let place = Place::new();
    let queues = place.queues();
    let (producer, _) = filled(&queues);
    let (sink, theirs) = (Memory::default(), Memory::default());
    let mut other = lead(&queues, &theirs, Now::read());
    wait_until("the records are written", || {
        other.round(Now::read(), true);
        numbers(&theirs.lines(), 0).len() == 10
    });
    let (own, queue) = (sink.clone(), producer.queue().unwrap());
    let open = Box::new(move || Ok(own.sinks()));
    let own = (Arc::clone(&queue.file), queue.control);
    let listener = Listener::start(listener_settings(&queues), open, own, Box::new(|| ())).unwrap();
    // Pages that all share were lost, so there is another queue. The leader does nothing meanwhile, and then dies.
    queue.file.ring().close();
    listener.retire();
    std::thread::sleep(Duration::from_millis(200));
    fs::remove_dir_all(&queues).unwrap();
    drop(other);
    wait_until("its thread has ended", || listener.has_ended());
    assert!(queue.file.is_end_reported());
    assert!(numbers(&sink.lines(), 0).is_empty());
}

#[test]
fn a_batch_under_way_of_a_leader_whose_lock_file_is_removed_is_not_written_by_the_next_one_too() {
    let place = Place::new();
    let queues = place.queues();
    let (producer, event) = filled(&queues);
    let now = Now { unix_nano: 1_000_000_000, monotonic: Duration::from_secs(1) };
    let (first, second) = (Memory::default(), Memory::default());
    let mut leader = lead(&queues, &first, now);
    let (theirs, from) = (second.clone(), queues.clone());
    first.taken().before_write = Some(Box::new(move |_| {
        fs::remove_file(from.join("leader.lock")).unwrap();
        lead(&from, &theirs, now).round(now, true);
    }));
    leader.round(now, true);
    first.taken().before_write = None;
    emit_each(&producer, event, 0, 10..20);
    let mut next = lead(&queues, &second, now);
    leader.round(now, true);
    next.round(now, true);
    assert_eq!((numbers(&first.lines(), 0), numbers(&second.lines(), 0)), (dense(10), (10..20).collect()));
}

#[test]
fn a_leader_writes_also_where_the_one_before_takes_its_place_back_while_that_is_just_looked_at() {
    let place = Place::new();
    let queues = place.queues();
    let (producer, event) = open_producer(&queues);
    assert!(emit(&producer, event, INFO, 0, 0));
    let control = Control::open(&queues).unwrap();
    let (sink, now, alive) = (Memory::default(), Now::read(), std::sync::mpsc::channel().0);
    control.publish_write(PRIMARY_SLOT, Some((&place.path().join("segment"), 0)));
    let delivery = Delivery::start(sink.sinks(), control, now, &alive);
    let mut leader = Leader::new(listener_settings(&queues), control, delivery, now);
    leader.round(now, true);
    control.publish_write(PRIMARY_SLOT, None);
    wait_until("the record is written", || {
        leader.round(Now::read(), true);
        numbers(&sink.lines(), 0) == [0]
    });
    leader.close(Now::read());
}

#[test]
fn a_reader_that_was_taken_for_dead_releases_nothing_when_it_comes_back() {
    let place = Place::new();
    let queues = place.queues();
    let (producer, event) = filled(&queues);
    let now = Now { unix_nano: 1_000_000_000, monotonic: Duration::from_secs(1) };
    let (first, second) = (Memory::default(), Memory::default());
    let mut leader = lead(&queues, &first, now);
    let (theirs, from) = (second.clone(), queues.clone());
    first.taken().before_write = Some(Box::new(move |_| {
        fs::remove_file(from.join("leader.lock")).unwrap();
        let mut next = lead(&from, &theirs, now);
        next.round(later(now, Duration::from_secs(2)), true);
        assert!(theirs.lines().is_empty(), "it may come back");
        next.round(later(now, Duration::from_secs(4)), true);
        assert_eq!(numbers(&theirs.lines(), 0), dense(10));
    }));
    leader.round(now, true);
    first.taken().before_write = None;
    emit_each(&producer, event, 0, 10..20);
    let mut next = lead(&queues, &second, now);
    leader.round(later(now, Duration::from_secs(4)), true);
    next.round(later(now, Duration::from_secs(4)), true);
    assert_eq!(numbers(&second.lines(), 0), dense(20));
    assert_eq!(numbers(&first.lines(), 0), dense(10), "what it was just writing");
}
