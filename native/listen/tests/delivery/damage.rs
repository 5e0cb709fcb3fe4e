//! Each way in which a file system fails, through the seam between the file sink and the system; and a sink that
//! panics.

use super::{DELAY, Pair, TICK, named, names, reported};
use crate::support::{
    Intercepted, PATIENCE, append, dense, emit_each, listener_settings, numbers, open_producer, segment_lines,
    wait_until,
};
use listen::delivery::{Delivery, Sinks};
use listen::leader::{Leader, Round};
use listen::listener::Listener;
use listen::sink::file::{FileSink, FileSinkConfig};
use listen::sink::{Now, Os, RealOs, Sink};
use queue::control::Control;
use queue::published::sinks::{SinkErrorType, SinkState};
use serde_json::json;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The system, which refuses to write or to create with an error number while that is not zero.
#[derive(Clone, Default)]
struct Damaged {
    write: Arc<AtomicI32>,
    create: Arc<AtomicI32>,
}

fn refuse(errno: &AtomicI32) -> io::Result<()> {
    match errno.load(Ordering::Relaxed) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

impl Os for Damaged {
    fn create_dir(&mut self, dir: &Path) -> io::Result<()> {
        refuse(&self.create).and_then(|()| RealOs.create_dir(dir))
    }
    fn create_segment(&mut self, path: &Path) -> io::Result<File> {
        refuse(&self.create).and_then(|()| RealOs.create_segment(path))
    }
    fn write(&mut self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        // Half of a line goes through before a disk is full.
        match refuse(&self.write) {
            Err(error) if bytes.len() < 50 => Err(error),
            Err(_) => RealOs.write(file, &bytes[..bytes.len() / 2]),
            Ok(()) => RealOs.write(file, bytes),
        }
    }
}

/// A damage in the middle of the work, and its end: every record is in the segments once, and counted.
fn survives(errno: i32, expected: SinkErrorType, create: bool) {
    let (queues, segments) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let control = Control::open(queues.path()).unwrap();
    let os = Damaged::default();
    let config = FileSinkConfig::new(segments.path().join("s"), "test", "00000000000000aa");
    let sink = FileSink::open_with(config, os.clone()).unwrap();
    let mut now = Now { unix_nano: 1_000_000_000, monotonic: Duration::from_secs(1) };
    let delivery = Delivery::here(Box::new(sink) as Box<dyn Sink>, control, now);
    let mut leader = Leader::new(listener_settings(queues.path()), control, delivery, now);
    let (producer, event) = open_producer(queues.path());
    let in_queue = || producer.queue().unwrap().file.counts().in_queue;
    emit_each(&producer, event, 0, 0..10);
    if !create {
        assert_eq!(leader.round(now, true), Round::Wrote);
    }
    if create { &os.create } else { &os.write }.store(errno, Ordering::Relaxed);
    emit_each(&producer, event, 0, 10..20);
    let row = &control.page().sinks[0];
    for errors in 1..4 {
        let Round::Idle(pause) = leader.round(now, true) else { panic!("written through {expected:?}") };
        now.monotonic += pause;
        assert_eq!(row.state(), SinkState::Failing);
        assert_eq!(row.last_errno.load(Ordering::Relaxed), errno as u32);
        let counted: Vec<_> = row.errors().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(expected, errors)]);
    }
    assert!(in_queue() >= 10, "what is not written stays");
    [&os.create, &os.write].into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
    while in_queue() > 0 || leader.has_work() {
        leader.round(now, true);
        now.monotonic += TICK;
    }
    assert_eq!(row.state(), SinkState::Ok);
    let all = segment_lines(&segments.path().join("s"));
    assert_eq!(numbers(&all, 0), dense(20), "{expected:?}");
}

#[test]
fn a_full_disk_loses_nothing() {
    survives(libc::ENOSPC, SinkErrorType::Full, false);
    survives(libc::EDQUOT, SinkErrorType::Full, false);
    survives(libc::ENOSPC, SinkErrorType::Full, true);
}

#[test]
fn a_read_only_file_system_loses_nothing() {
    survives(libc::EROFS, SinkErrorType::ReadOnly, false);
    survives(libc::EROFS, SinkErrorType::ReadOnly, true);
}

#[test]
fn a_failing_device_loses_nothing() {
    survives(libc::EIO, SinkErrorType::Io, false);
    survives(libc::EIO, SinkErrorType::Io, true);
}

#[test]
fn a_directory_that_is_gone_or_forbidden_loses_nothing() {
    survives(libc::ESTALE, SinkErrorType::Gone, false);
    survives(libc::ESTALE, SinkErrorType::Gone, true);
    survives(libc::EACCES, SinkErrorType::Permission, true);
    survives(libc::EPERM, SinkErrorType::Permission, false);
}

#[test]
fn a_limit_of_file_sizes_loses_nothing() {
    survives(libc::EFBIG, SinkErrorType::TooLarge, false);
}

#[test]
fn a_panic_in_the_middle_of_a_write_is_counted_and_followed_by_a_leader_that_goes_on_exactly_there() {
    let (queues, segments) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let armed = Arc::new(AtomicBool::new(true));
    let (directory, fuse, mut opened) = (segments.path().to_owned(), Arc::clone(&armed), 0);
    let open = Box::new(move || {
        opened += 1;
        let inner = FileSink::open(FileSinkConfig::new(&directory, "test", format!("{opened:016x}"))).unwrap();
        let fuse = Arc::clone(&fuse);
        let panics_once = move |inner: &mut FileSink, path: &Path, lines: &[u8], records, now| {
            if fuse.swap(false, Ordering::Relaxed) {
                append(path, &lines[..lines.len() * 2 / 3]);
                // Without the message of a real panic.
                std::panic::resume_unwind(Box::new("on command"));
            }
            inner.write(lines, records, now)
        };
        let primary = named("file", Intercepted::new(inner, panics_once));
        Ok(Sinks { primary, ..Sinks::from(Box::new(listen::sink::NullSink::new()) as Box<dyn Sink>) })
    });
    let (producer, event) = open_producer(queues.path());
    emit_each(&producer, event, 0, 0..50);
    let queue = Arc::clone(&producer.queue().unwrap().file);
    let own = (queue, Control::open(queues.path()).unwrap());
    let listener = Listener::start(listener_settings(queues.path()), open, own, Box::new(|| ())).unwrap();
    let control = Control::open(queues.path()).unwrap();
    wait_until("it begins anew", || {
        control.request_flush();
        producer.queue().unwrap().file.counts().in_queue == 0
    });
    assert_eq!(control.page().listener_restarts.load(Ordering::Relaxed), 1);
    producer.close();
    assert!(listener.stop(PATIENCE));
    assert_eq!(numbers(&segment_lines(segments.path()), 0), dense(50));
}

// Sinks that hang: a write that returns only when the test lets it.

/// A pair whose sinks have threads of their own.
fn threaded() -> (Pair, Receiver<()>) {
    let (alive, ended) = channel();
    (Pair::new(|sinks, control, now| Delivery::start(sinks, control, now, &alive)), ended)
}

/// The next writes of the sink hang, each until something is sent, or all until the sender is dropped.
fn hang(sink: &crate::delivery::Memory) -> (Sender<()>, Receiver<()>) {
    let ((resume, wait), (enter, entered)) = (channel::<()>(), channel());
    let wait = Mutex::new(wait);
    sink.taken().before_write = Some(Box::new(move |_| {
        let _ = enter.send(());
        let _ = wait.lock().unwrap().recv();
    }));
    (resume, entered)
}

impl Pair {
    /// Rounds at a standing clock until `reached`; answers of threads come when they like.
    fn rounds_until(&mut self, what: &str, mut reached: impl FnMut(&Self) -> bool) {
        wait_until(what, || {
            self.round(Duration::ZERO);
            reached(self)
        });
    }
}

#[test]
fn the_leader_goes_round_while_its_sink_hangs() {
    let (mut pair, _ended) = threaded();
    let (resume, entered) = hang(&pair.primary);
    pair.emit(1);
    assert!(matches!(pair.round(TICK), Round::Idle(_)));
    entered.recv_timeout(PATIENCE).unwrap();
    let page = Control::open(pair.directory.path()).unwrap().page();
    for _ in 0..3 {
        assert!(matches!(pair.round(Duration::from_millis(900)), Round::Idle(_)));
        assert_eq!(page.heartbeat_unix_nano.load(Ordering::Relaxed), pair.now.unix_nano);
    }
    assert_eq!(pair.rows()[0].state(), SinkState::Hung);
    assert_eq!(pair.in_queue(), 1);
    drop(resume);
    pair.rounds_until("written", |pair| pair.in_queue() == 0);
    assert_eq!(pair.rows()[0].state(), SinkState::Ok);
    assert_eq!(numbers(&pair.primary.lines(), 0), [0]);
    assert!(pair.fallback.lines().is_empty());
}

#[test]
fn the_fallback_takes_a_batch_that_hangs_and_the_log_says_which_records_can_stand_in_both() {
    let (mut pair, _ended) = threaded();
    let (resume, entered) = hang(&pair.primary);
    pair.emit(3);
    pair.round(TICK);
    entered.recv_timeout(PATIENCE).unwrap();
    pair.round(DELAY - TICK);
    assert!(pair.fallback.lines().is_empty(), "not before the delay");
    pair.round(TICK);
    pair.rounds_until("the fallback has them", |pair| pair.in_queue() == 0);
    assert_eq!(numbers(&pair.fallback.lines(), 0), dense(3));
    pair.emit(2);
    pair.rounds_until("more of them", |pair| pair.in_queue() == 0);
    pair.rounds_until("the notices", |pair| reported(&pair.fallback).len() == 2);
    let lines = reported(&pair.fallback);
    assert_eq!(names(&lines), ["sink.failed", "sink.fallback"]);
    assert_eq!((&lines[0]["error.type"], &lines[1]["reason"]), (&json!("hung"), &json!("hung")));
    let boot_id = format!("{:016x}", pair.producer.queue().unwrap().file.header().boot_id);
    let span = json!([{"boot_id": boot_id, "pid": std::process::id(), "first": 0, "last": 2, "records": 3}]);
    assert_eq!(lines[1]["in_both"], span);

    drop(resume);
    pair.rounds_until("it comes back", |pair| !pair.fallback_active());
    pair.emit(2);
    pair.rounds_until("the primary has the rest", |pair| pair.in_queue() == 0);
    assert_eq!(numbers(&pair.fallback.lines(), 0), dense(5));
    assert_eq!(numbers(&pair.primary.lines(), 0), [0, 1, 2, 5, 6], "the first three in both, as was said");
    assert_eq!(names(&reported(&pair.primary)), ["sink.recovered"]);
}

#[test]
fn a_fallback_that_hangs_gives_the_batch_back_to_a_primary_that_recovered() {
    let (mut pair, _ended) = threaded();
    let (resume_primary, entered) = hang(&pair.primary);
    let (resume_fallback, fallback_entered) = hang(&pair.fallback);
    pair.emit(1);
    pair.round(TICK);
    entered.recv_timeout(PATIENCE).unwrap();
    pair.round(DELAY);
    fallback_entered.recv_timeout(PATIENCE).unwrap();
    drop(resume_primary);
    pair.rounds_until("the primary is back", |pair| pair.rows()[0].state() == SinkState::Ok);
    assert_eq!(pair.in_queue(), 1);
    pair.round(DELAY);
    pair.rounds_until("the primary has it", |pair| pair.in_queue() == 0);
    assert_eq!(numbers(&pair.primary.lines(), 0), [0, 0], "the hung write, and the one after it");
    drop(resume_fallback);
}

#[test]
fn a_leader_ends_while_its_sink_hangs_and_the_next_one_has_the_records() {
    let (mut pair, ended) = threaded();
    let (resume, entered) = hang(&pair.primary);
    pair.emit(2);
    pair.round(TICK);
    entered.recv_timeout(PATIENCE).unwrap();
    pair.primary = crate::delivery::Memory::default();
    pair.change_leader(true);
    assert_eq!(pair.in_queue(), 2);
    pair.drain();
    assert_eq!(numbers(&pair.primary.lines(), 0), dense(2));
    drop(resume);
    assert!(ended.recv_timeout(PATIENCE).is_err());
}
