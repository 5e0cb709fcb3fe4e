//! A process's logging from open to close: threads, deadlines, several services in one directory, forks.

use crate::support::{
    Bench, INFO, Memory, PATIENCE, Place, child, child_directory, dense, die, emit, emit_each, listener_settings,
    numbers, open_service, register, registered, sequences, wait_until,
};
use listen::listener::Listener;
use listen::service::Service;
use queue::claim::is_before;
use queue::control::Control;
use queue::inspect;
use queue::layout::Reason;
use queue::queue_file::{QueueCounts, QueueFile};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The lines of all segments; headers and footers apart.
fn lines_and_ends(place: &Place) -> (Vec<Value>, Vec<Value>) {
    let is_end = |line: &Value| ["segment.header", "segment.footer"].contains(&line["event_name"].as_str().unwrap());
    place.lines().into_iter().partition(|line| !is_end(line))
}

fn emit_all(service: &Service, thread: u64, numbers: Range<u64>) {
    emit_each(&service.producer, register(&service.producer), thread, numbers);
}

fn left(books: &QueueCounts) -> u64 {
    books.dropped[Reason::ShutdownDeadline as usize].iter().sum()
}

#[test]
fn what_was_accepted_before_a_flush_is_in_the_segment_after_it() {
    let place = Place::new();
    let service = open_service(place.path(), true).unwrap();
    for flushes in 1..4 {
        let event = register(&service.producer);
        assert!(emit(&service.producer, event, INFO, 0, flushes - 1));
        assert!(service.flush(PATIENCE));
        assert_eq!(numbers(&lines_and_ends(&place).0, 0), dense(flushes));
    }
    assert!(service.close(PATIENCE));
    assert!(service.flush(Duration::ZERO), "nothing is left to wait for");
}

#[test]
fn a_close_drains_and_leaves_a_footer_that_balances_and_no_queue_file() {
    let place = Place::new();
    let service = open_service(place.path(), true).unwrap();
    let accepted = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let event = register(&service.producer);
            let emit_one = |accepted, _| accepted + u64::from(emit(&service.producer, event, INFO, thread, accepted));
            (0..5_000u64).fold(0, emit_one)
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<u64>>()
    });
    assert!(service.close(PATIENCE));
    assert!(service.close(PATIENCE), "idempotent");
    let event = register(&service.producer);
    assert!(!emit(&service.producer, event, INFO, 0, 0));

    let (lines, ends) = lines_and_ends(&place);
    let records: Vec<Value> = lines.iter().filter(|line| line["event_name"] == "test").cloned().collect();
    for (thread, accepted) in (0..).zip(&accepted) {
        assert_eq!(numbers(&records, thread), dense(*accepted));
    }
    let total: u64 = accepted.iter().sum();
    assert_eq!(sequences(&records), dense(total));
    let footer = ends.last().unwrap();
    assert_eq!((&footer["event_name"], &footer["records"]), (&"segment.footer".into(), &lines.len().into()));
    let process = &footer["processes"][0];
    assert_eq!(
        (&process["accepted"], &process["written"], &process["in_queue"]),
        (&total.into(), &total.into(), &0.into())
    );
    let reported: u64 = lines.iter().filter_map(|line| line["dropped"].as_u64()).sum();
    assert_eq!(reported, 20_000 - total);
    assert!(place.queue_files().is_empty());
    let books = service.counts().unwrap();
    assert_eq!((books.written, books.in_queue, left(&books)), (total, 0, 0));
}

#[test]
fn a_drain_past_its_deadline_is_counted_and_the_next_listener_writes_the_rest() {
    let place = Place::new();
    let first = open_service(place.path(), false).unwrap();
    emit_all(&first, 0, 0..50);
    assert!(!first.close(Duration::ZERO), "nobody listens");
    assert!(!first.close(Duration::ZERO));
    let books = first.counts().unwrap();
    assert_eq!((left(&books), books.in_queue, place.queue_files().len()), (50, 50, 1), "counted once, and still there");

    let second = open_service(place.path(), true).unwrap();
    emit_all(&second, 1, 0..5);
    assert!(second.close(PATIENCE));
    let (lines, ends) = lines_and_ends(&place);
    assert_eq!((numbers(&lines, 0), numbers(&lines, 1)), (dense(50), dense(5)));
    assert!(
        lines.iter().all(|line| line["event_name"] != "log.dropped"),
        "no gap to report: they were written after all"
    );
    assert!(place.queue_files().is_empty());
    assert_eq!(left(&first.counts().unwrap()), 0, "the count returns to zero");
    assert_eq!(ends.last().unwrap()["processes"].as_array().unwrap().len(), 2);
}

#[test]
fn a_sink_that_fails_until_the_deadline_loses_nothing() {
    let place = Place::new();
    let first = open_service(place.path(), true).unwrap();
    let segments = place.path().join("segments");
    fs::remove_dir(&segments).unwrap();
    fs::write(&segments, b"a file where the directory should be").unwrap();
    emit_all(&first, 0, 0..50);
    assert!(!first.flush(Duration::from_millis(20)));
    assert!(!first.close(Duration::from_millis(20)));
    assert_eq!(left(&first.counts().unwrap()), 50);
    assert!(first.control().unwrap().page().sink_errors.load(std::sync::atomic::Ordering::Relaxed) > 0);

    fs::remove_file(&segments).unwrap();
    let second = open_service(place.path(), true).unwrap();
    assert!(second.close(PATIENCE));
    assert_eq!(numbers(&lines_and_ends(&place).0, 0), dense(50));
    assert_eq!(left(&first.counts().unwrap()), 0);
}

#[test]
fn a_listener_that_hangs_in_its_sink_does_not_hold_up_the_stop() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _lock) = QueueFile::create(directory.path(), crate::support::SIZES, 1, 0).unwrap();
    let sink = Memory::default();
    let (resume, hang) = channel::<()>();
    let hang = Mutex::new(hang);
    sink.taken().before_write = Some(Box::new(move |_| assert!(hang.lock().unwrap().recv().is_err())));
    file.append_schema(&queue::event::EventSchema::new(16, "test", &["n"]).unwrap().to_bytes()).unwrap();
    let sinks = sink.sinks();
    let mut sinks = Some(sinks);
    let open = Box::new(move || sinks.take().ok_or_else(|| "once".to_owned()));
    let own = (Arc::clone(&file), Control::open(directory.path()).unwrap());
    let listener = Listener::start(listener_settings(directory.path()), open, own, Box::new(|| ())).unwrap();
    file.ring().reserve(0, u32::MAX).unwrap().commit(16, INFO, 0, b"");
    file.ring().close();
    assert!(listener.stop(Duration::from_millis(20)), "only the sink's own thread hangs");
    assert_eq!(file.counts().in_queue, 1, "kept for the next listener");
    drop(resume);
    wait_until("the write ends after all", || !sink.lines().is_empty());
    assert_eq!(sequences(&sink.lines()), [0]);
}

#[test]
fn a_stop_does_not_wait_for_what_others_still_emit() {
    let place = Place::new();
    let other = open_service(place.path(), false).unwrap();
    // A reservation that stays open as long as the other process wants.
    let open_reservation = other.producer.queue().unwrap().file.ring().reserve(8, u32::MAX).unwrap();
    emit_all(&other, 1, 0..3);
    let service = open_service(place.path(), true).unwrap();
    emit_all(&service, 0, 0..3);
    // The deadline is longer than any test may take.
    assert!(service.close(Duration::from_secs(100_000)));
    assert_eq!((numbers(&lines_and_ends(&place).0, 0), numbers(&lines_and_ends(&place).0, 1)), (dense(3), vec![]));
    open_reservation.commit(99, INFO, 0, &[0; 8]);
    let next = open_service(place.path(), true).unwrap();
    assert!(other.close(PATIENCE));
    assert!(next.close(PATIENCE));
    assert_eq!(numbers(&lines_and_ends(&place).0, 1), dense(3));
}

#[test]
fn of_two_services_one_leads_and_the_other_takes_over() {
    let place = Place::new();
    let first = open_service(place.path(), true).unwrap();
    emit_all(&first, 0, 0..10);
    assert!(first.flush(PATIENCE));
    let second = open_service(place.path(), true).unwrap();
    emit_all(&second, 1, 0..10);
    assert!(second.flush(PATIENCE), "the first one writes it");
    assert_eq!(lines_and_ends(&place).1.len(), 1, "one segment");
    let queues = inspect::queues(&place.path().join("queues"));
    assert_eq!(
        queues.iter().map(|queue| (queue.counts.accepted, queue.counts.written)).collect::<Vec<_>>(),
        [(10, 10), (10, 10)]
    );
    assert!(first.close(PATIENCE));
    let event = register(&second.producer);
    assert!(emit(&second.producer, event, INFO, 1, 10));
    assert!(second.flush(PATIENCE), "now the second one leads");
    assert!(second.close(PATIENCE));
    let lines = lines_and_ends(&place).0;
    assert_eq!((numbers(&lines, 0), numbers(&lines, 1)), (dense(10), dense(11)));
}

#[test]
fn a_killed_leader_is_followed_by_a_living_one() {
    if let Some(path) = child_directory() {
        let service = open_service(&path, true).unwrap();
        emit_all(&service, 0, 0..10);
        assert!(service.flush(PATIENCE));
        let event = register(&service.producer);
        assert!(emit(&service.producer, event, INFO, 0, 10));
        die();
    }
    let place = Place::new();
    let status = child("service::a_killed_leader_is_followed_by_a_living_one", place.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    let service = open_service(place.path(), true).unwrap();
    emit_all(&service, 1, 0..10);
    assert!(service.close(PATIENCE));
    let lines = lines_and_ends(&place).0;
    assert_eq!((numbers(&lines, 0), numbers(&lines, 1)), (dense(11), dense(10)));
    assert!(place.queue_files().is_empty());
}

#[test]
fn a_forked_child_has_its_own_queue_and_both_arrive_once() {
    if let Some(path) = child_directory() {
        let service = open_service(&path, true).unwrap();
        emit_all(&service, 0, 0..10);
        // SAFETY: this process has no threads but the test's and the listener's, and neither holds a lock of the allocator
        // for long; the child closes its own logging and leaves without running destructors.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            service.after_fork_in_child();
            emit_all(&service, 1, 0..10);
            let drained = service.close(PATIENCE);
            // SAFETY: plain call.
            unsafe { libc::_exit(i32::from(!drained)) };
        }
        emit_all(&service, 0, 10..20);
        let mut status = -1;
        // SAFETY: the pointer lives for the call.
        assert_eq!(unsafe { libc::waitpid(forked, &mut status, 0) }, forked);
        assert_eq!(status, 0, "the child has drained its queue");
        assert!(service.close(PATIENCE));
        return;
    }
    let place = Place::new();
    let test = "service::a_forked_child_has_its_own_queue_and_both_arrive_once";
    let output = child(test, place.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = lines_and_ends(&place).0;
    assert_eq!((numbers(&lines, 0), numbers(&lines, 1)), (dense(20), dense(10)));
    let boot_ids = |thread: u64| lines.iter().find(|line| line["thread"] == thread).unwrap()["boot_id"].clone();
    assert_ne!(boot_ids(0), boot_ids(1));
    assert!(place.queue_files().is_empty());
}

#[test]
fn a_producer_wakes_the_listener_when_the_queue_fills() {
    let place = Place::new();
    let service = open_service(place.path(), true).unwrap();
    let event = register(&service.producer);
    assert!(service.flush(PATIENCE));
    // The interval is an hour: only the threshold can wake the listener. Each record tries again, as in a busy server.
    let mut n = 0;
    wait_until("a record is written", || {
        n += u64::from(emit(&service.producer, event, INFO, 0, n));
        service.counts().unwrap().written > 0
    });
    assert!(service.close(PATIENCE));
    let lines: Vec<Value> = lines_and_ends(&place).0.into_iter().filter(|line| line["event_name"] == "test").collect();
    assert_eq!(numbers(&lines, 0), dense(n));
}

#[test]
fn what_cannot_be_opened_is_named() {
    let place = Place::new();
    fs::write(place.path().join("queues"), b"").unwrap();
    let error = open_service(place.path(), true).err().unwrap();
    assert!(error.contains("queue_directory=") && error.contains("65536 bytes"), "{error}");
    fs::remove_file(place.path().join("queues")).unwrap();
    fs::write(place.path().join("segments"), b"").unwrap();
    let error = open_service(place.path(), true).err().unwrap();
    assert!(error.contains("directory="), "{error}");
}

#[test]
fn a_control_page_reports_who_leads_and_that_it_is_alive() {
    let place = Place::new();
    let service = open_service(place.path(), true).unwrap();
    emit_all(&service, 0, 0..1);
    assert!(service.flush(PATIENCE));
    let page = Control::open(&place.path().join("queues")).unwrap().page();
    let load = |word: &std::sync::atomic::AtomicU64| word.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(page.leader_pid.load(std::sync::atomic::Ordering::Relaxed), std::process::id());
    assert!(load(&page.heartbeat_unix_nano) > 1_700_000_000_000_000_000);
    assert_eq!((load(&page.records_written), load(&page.sink_errors)), (1, 0));
    let mut segment = String::new();
    let latest = fs::File::open(place.path().join("segments/latest")).unwrap().read_to_string(&mut segment);
    assert!(latest.is_ok() && segment.lines().count() == 2, "header and record");
    assert!(service.close(PATIENCE));
}

#[test]
fn a_directory_that_is_opened_again_and_again_has_its_pages_mapped_once() {
    let place = Place::new();
    let mapped = || {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains(place.path().to_str().unwrap()) && !line.contains(".queue")).count()
    };
    let cycle = || {
        let service = open_service(place.path(), true).unwrap();
        let event = register(&service.producer);
        assert!(emit(&service.producer, event, INFO, 0, 0));
        assert!(service.flush(PATIENCE) && service.close(PATIENCE));
    };
    cycle();
    let once = mapped();
    (0..5).for_each(|_| cycle());
    assert!(once > 0);
    assert_eq!(mapped(), once);
}

// Waiting for a release: by the word of the ring itself, through any mapping of the queue file, woken by the leader.

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
