//! Producers that leave the writing to others, and whose queue directory is deleted or moved while they live.

use super::{emit_span, open};
use crate::support::{PATIENCE, Place, begun, child, child_directory, dense, numbers, open_service, wait_until};
use listen::service::Service;
use queue::event::REQUEST;
use queue::queue_file;
use queue::record::{Scratch, Trace};
use queue::system::now_monotonic_nano;
use request::fields::HttpRecord;
use request::ids::RequestIds;
use request::in_flight::InFlight;
use segments::verify::{Request, verify};
use serde_json::{Value, json};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What `verify` finds of the segments alone.
fn balance(place: &Place) -> Value {
    let request = Request { directories: vec![place.path().join("segments")], ..Request::default() };
    verify(&request).unwrap()
}

fn assert_all_is_written(place: &Place, count: u64) {
    place.assert_written(0, count);
    let report = balance(place);
    assert!(report["balanced"].as_bool().unwrap(), "{}", report["problems"]);
}

fn queue_of(service: &Service) -> PathBuf {
    service.producer.queue().unwrap().file.path.clone()
}

#[test]
fn a_producer_whose_listener_is_elsewhere_goes_on_in_a_new_queue_when_its_directory_is_deleted() {
    let place = Place::new();
    let (listener, producer) = (open(place.path()), open_service(place.path(), false).unwrap());
    emit_span(&producer, 0, 0..10);
    assert!(producer.flush(PATIENCE));
    remove(&place.queues());
    emit_span(&producer, 0, 10..20);
    wait_until("the producer has a queue that others can find", || queue_of(&producer).exists());
    emit_span(&producer, 0, 20..30);
    assert_eq!(producer.producer.renewals(), 1);
    wait_until("the new listener leads", || producer.flush(PATIENCE));
    assert!(producer.close(PATIENCE));
    assert!(listener.close(PATIENCE));
    assert_all_is_written(&place, 30);
}

#[test]
fn a_producer_notices_that_its_directory_is_gone_though_nobody_listens_and_it_emits_nothing() {
    let place = Place::new();
    let producer = open_service(place.path(), false).unwrap();
    let before = queue_of(&producer);
    remove(&place.queues());
    wait_until("the producer has another queue", || queue_of(&producer) != before && queue_of(&producer).exists());
    emit_span(&producer, 0, 0..10);
    let listener = open(place.path());
    assert!(producer.close(PATIENCE));
    assert!(listener.close(PATIENCE));
    assert_all_is_written(&place, 10);
}

#[test]
fn records_in_a_queue_that_no_listener_had_seen_are_written_though_its_directory_is_deleted_again_and_again() {
    let place = Place::new();
    let producer = open_service(place.path(), false).unwrap();
    for life in 0..3 {
        emit_span(&producer, 0, life * 10..life * 10 + 10);
        remove(&place.queues());
        let queues = life as usize + 2;
        wait_until("each of its queues has a name again", || place.queue_files().len() == queues);
    }
    let listener = open(place.path());
    assert!(producer.flush(PATIENCE) && producer.close(PATIENCE) && listener.close(PATIENCE));
    assert_all_is_written(&place, 30);
    assert!(place.queue_files().is_empty());
}

#[test]
fn a_producer_that_ends_right_after_its_directory_was_deleted_leaves_its_records_to_the_next_listener() {
    let place = Place::new();
    let producer = open_service(place.path(), false).unwrap();
    emit_span(&producer, 0, 0..10);
    remove(&place.queues());
    assert!(!producer.close(Duration::from_millis(300)), "nobody listens");
    let listener = open(place.path());
    wait_until("its queue is written", || listener.flush(PATIENCE) && place.queue_files().len() == 1);
    assert!(listener.close(PATIENCE));
    assert_all_is_written(&place, 10);
}

#[test]
fn a_producer_whose_directory_is_moved_away_and_replaced_by_an_empty_one_loses_nothing() {
    let place = Place::new();
    let (listener, producer) = (open(place.path()), open_service(place.path(), false).unwrap());
    emit_span(&producer, 0, 0..10);
    assert!(producer.flush(PATIENCE));
    fs::rename(place.queues(), place.path().join("moved")).unwrap();
    emit_span(&producer, 0, 10..20);
    wait_until("the producer has a queue that others can find", || queue_of(&producer).exists());
    emit_span(&producer, 0, 20..30);
    wait_until("the new listener leads", || producer.flush(PATIENCE));
    assert!(producer.close(PATIENCE));
    assert!(listener.close(PATIENCE));
    assert_all_is_written(&place, 30);
    for path in queue_file::list(&place.path().join("moved")).unwrap() {
        assert!(queue_file::QueueFile::open(&path).unwrap().ring().is_drained(), "nothing is left in the moved one");
    }
}

#[test]
fn a_request_in_flight_while_the_directory_is_deleted_has_one_record_and_both_queues_have_their_ends() {
    for listens in [true, false] {
        let place = Place::new();
        let (listener, producer) = (open(place.path()), open_service(place.path(), listens).unwrap());
        emit_span(&producer, 0, 0..10);
        assert!(producer.flush(PATIENCE));
        let ids = RequestIds::new(Trace { span_id: [7; 8], ..Trace::default() }, None, None);
        let (method, path) = (&b"POST"[..], &b"/"[..]);
        let begun = begun(&ids, method, path);
        let request = InFlight::begin(&producer.producer, &begun).unwrap();
        remove(&place.queues());
        wait_until("the producer has a queue that others can find", || queue_of(&producer).exists());
        emit_span(&producer, 0, 10..20);
        let mut payload = Scratch::new();
        for field in HttpRecord::fields() {
            match field.name {
                "request_id" => ids.push_request_id(&mut payload),
                "outcome" => payload.push_str("ok"),
                _ => payload.push_absent(),
            }
        }
        assert!(request.end().unwrap().record(
            &producer.producer,
            now_monotonic_nano(),
            REQUEST,
            9,
            payload.as_slice()
        ));
        wait_until("the first queue's end is on record", || {
            place.lines().iter().any(|line| line["event_name"] == "process.ended" && line["accepted"] == 10)
        });
        assert!(producer.flush(PATIENCE) && producer.close(PATIENCE) && listener.close(PATIENCE));
        assert_all_is_written(&place, 20);
        let requests: Vec<Value> = place.lines().into_iter().filter(|line| line["event_name"] == "request").collect();
        assert_eq!((requests.len(), &requests[0]["outcome"]), (1, &json!("ok")), "{REQUEST}");
    }
}

// Directories and files that are removed while in use.

/// Removes a directory in which another process may be creating a file.
pub fn remove(directory: &Path) {
    wait_until("the directory can be removed", || match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => false,
        other => other.map(|()| true).unwrap(),
    });
}

/// Another process, which does not outlive the test.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_queue_directory_that_is_deleted_is_made_anew_and_loses_nothing() {
    let place = Place::new();
    let service = open(place.path());
    emit_span(&service, 0, 0..10);
    remove(&place.queues());
    emit_span(&service, 0, 10..20);
    wait_until("there is a queue that others can find", || !place.queue_files().is_empty());
    emit_span(&service, 0, 20..30);
    wait_until("what the old queue had is written", || {
        let _ = service.flush(PATIENCE);
        numbers(&place.lines(), 0).len() == 30
    });
    assert!(service.close(PATIENCE));
    place.assert_written(0, 30);
    assert!(place.queue_files().is_empty());
}

#[test]
fn a_process_that_ends_right_after_its_queue_directory_was_deleted_has_written_all_of_it() {
    let place = Place::new();
    // No process can lead, and the queue's header shows a recent reader.
    fs::create_dir_all(place.queues().join("leader.lock")).unwrap();
    fs::set_permissions(place.queues(), PermissionsExt::from_mode(0o700)).unwrap();
    let service = open(place.path());
    emit_span(&service, 0, 0..10);
    let now = (now_monotonic_nano() / 1_000_000) & u64::from(u32::MAX);
    service.producer.queue().unwrap().file.header().reader.store(1 << 32 | now, Ordering::Relaxed);
    remove(&place.queues());
    wait_until("there is a queue that others can find", || !place.queue_files().is_empty());
    emit_span(&service, 0, 10..20);
    assert!(service.close(PATIENCE));
    place.assert_written(0, 20);
}

#[test]
fn two_processes_whose_queue_directory_is_deleted_go_on_in_a_new_one_and_lose_nothing() {
    if let Some(path) = child_directory() {
        let service = open(&path);
        emit_span(&service, 1, 0..10);
        fs::write(path.join("ready"), "").unwrap();
        let mut n = 10;
        while !path.join("stop").exists() {
            emit_span(&service, 1, n..n + 1);
            n += 1;
            std::thread::yield_now();
            // The queue is small, and this test is not about a full one.
            let _ = service.flush(PATIENCE);
        }
        fs::write(path.join("accepted"), n.to_string()).unwrap();
        assert!(service.close(PATIENCE));
        return;
    }
    let place = Place::new();
    let test = "faults::gone::two_processes_whose_queue_directory_is_deleted_go_on_in_a_new_one_and_lose_nothing";
    let mut process = Other(child(test, place.path()).stdout(Stdio::null()).spawn().unwrap());
    wait_until("the child leads", || place.path().join("ready").exists());
    let service = open(place.path());
    emit_span(&service, 0, 0..10);
    remove(&place.queues());
    emit_span(&service, 0, 10..20);
    wait_until("both have queues in a new directory", || place.queue_files().len() == 2);
    emit_span(&service, 0, 20..30);
    fs::write(place.path().join("stop"), "").unwrap();
    assert!(process.0.wait().unwrap().success());
    let accepted: u64 = fs::read_to_string(place.path().join("accepted")).unwrap().parse().unwrap();
    assert!(service.close(PATIENCE));
    wait_until("what the old queues had is written", || numbers(&place.lines(), 0).len() >= 30);
    for (thread, count) in [(0, 30), (1, accepted)] {
        place.assert_written(thread, count);
    }
}

#[test]
fn a_leader_whose_lock_file_is_removed_makes_room_for_the_next_and_nothing_is_doubled() {
    let place = Place::new();
    let service = open(place.path());
    emit_span(&service, 0, 0..10);
    let lock = place.queues().join("leader.lock");
    wait_until("somebody leads", || lock.exists());
    fs::remove_file(&lock).unwrap();
    wait_until("somebody leads by a lock that others can see", || lock.exists());
    emit_span(&service, 0, 10..20);
    assert!(service.flush(PATIENCE));
    assert!(service.close(PATIENCE));
    assert_eq!(numbers(&place.lines(), 0), dense(20));
}

#[test]
fn a_leader_lock_that_cannot_be_a_lock_keeps_everything_in_the_queue_until_it_can() {
    let place = Place::new();
    fs::create_dir_all(place.queues().join("leader.lock")).unwrap();
    fs::set_permissions(place.queues(), PermissionsExt::from_mode(0o700)).unwrap();
    let service = open(place.path());
    emit_span(&service, 0, 0..10);
    assert_eq!(service.counts().unwrap().in_queue, 10);
    fs::remove_dir(place.queues().join("leader.lock")).unwrap();
    assert!(service.flush(PATIENCE));
    assert!(service.close(PATIENCE));
    assert_eq!(numbers(&place.lines(), 0), dense(10));
}
