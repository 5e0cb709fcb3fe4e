//! Directories and files that are removed while in use.

use super::{emit_span, open};
use crate::support::{PATIENCE, Place, child, child_directory, dense, numbers, wait_until};
use queue::system::now_monotonic_nano;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;

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
