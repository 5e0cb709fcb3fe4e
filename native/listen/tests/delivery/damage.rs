//! Each way in which a file system fails, through the seam between the file sink and the system; and a sink that
//! panics.

use super::{TICK, named};
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
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
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
