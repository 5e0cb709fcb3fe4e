//! The table of sinks in the control page, as every process of the directory reads it.

use crate::support::{INFO, child, child_directory, die, emit, queue_settings, register};
use queue::control::Control;
use queue::layout::{LEVELS, REASONS, Reason, lost};
use queue::producer::{Producer, QueueSettings};
use queue::published::sinks::{SINK_ERROR_TYPES, SinkErrorType, SinkRole, SinkState, SinkWords};
use queue::{configuration, queue_file};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

fn row() -> &'static SinkWords {
    let directory = tempfile::tempdir().unwrap();
    &Control::open(directory.path()).unwrap().page().sinks[0]
}

#[test]
fn a_fresh_table_has_no_sinks() {
    assert!(row().role().is_none());
}

#[test]
fn what_one_process_writes_another_mapping_shows() {
    let directory = tempfile::tempdir().unwrap();
    let written = &Control::open(directory.path()).unwrap().page().sinks[7];
    written.assign("udp://127.0.0.1:9000", SinkRole::Additional, 5);
    written.set_state(SinkState::Hung, 6);
    written.set_state(SinkState::Hung, 7);
    let read = &Control::open(directory.path()).unwrap().page().sinks[7];
    assert_eq!((read.role(), read.name().as_str()), (Some(SinkRole::Additional), "udp://127.0.0.1:9000"));
    assert_eq!((read.state(), read.since_unix_nano()), (SinkState::Hung, 6), "since the change, not the last look");
}

#[test]
fn counts_outlive_a_leader_and_not_a_change_of_sinks() {
    let row = row();
    row.assign("file", SinkRole::Primary, 1);
    row.count_write(3, 100, Duration::from_micros(120));
    row.set_state(SinkState::Failing, 2);
    row.assign("file", SinkRole::Primary, 3);
    assert_eq!((row.records_written.load(Relaxed), row.bytes_written.load(Relaxed)), (3, 100));
    assert_eq!((row.state(), row.since_unix_nano()), (SinkState::Ok, 3), "a new leader begins in good faith");
    row.assign("stdout", SinkRole::Primary, 4);
    assert_eq!((row.name().as_str(), row.records_written.load(Relaxed), row.write_times().2), ("stdout", 0, 0));
}

#[test]
fn a_long_name_is_cut_between_characters() {
    let row = row();
    let name = format!("unix:///{}/{}.sock", "é".repeat(40), "ü".repeat(12));
    row.assign(&name, SinkRole::Additional, 1);
    assert_eq!(row.name(), "unix:///éééééé…ééééé/üüüüüüüüüüüü.sock");
    assert!(row.name().len() <= 63);
    row.assign(&"a".repeat(63), SinkRole::Additional, 1);
    assert_eq!(row.name(), "a".repeat(63));
}

#[test]
fn write_times_are_counted_up_to_each_bound() {
    let row = row();
    [0, 100, 101, 3_000, 60_000_000]
        .into_iter()
        .for_each(|micros| row.count_write(1, 10, Duration::from_micros(micros)));
    let (buckets, nano, writes) = row.write_times();
    assert_eq!((writes, nano), (5, 60_003_201_000));
    let counts: Vec<u64> = buckets.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5]);
    assert_eq!(buckets.last().unwrap().0, f64::INFINITY);
}

#[test]
fn errors_are_counted_by_type() {
    let row = row();
    let errors = [
        (libc::ENOSPC, "full"),
        (libc::EROFS, "read_only"),
        (libc::EACCES, "permission"),
        (libc::ENOENT, "gone"),
        (libc::EIO, "io"),
        (libc::EPIPE, "closed"),
        (libc::EFBIG, "too_large"),
        (libc::ETXTBSY, "other"),
    ];
    for (errno, name) in errors {
        let error = io::Error::from_raw_os_error(errno);
        assert_eq!(SinkErrorType::of(&error).name(), name);
        row.count_error(&error);
        assert_eq!(row.last_errno.load(Relaxed), errno as u32);
    }
    assert_eq!(
        row.errors().map(|(kind, count)| (kind.name(), count)).collect::<Vec<_>>(),
        errors.map(|(_, name)| (name, 1))
    );
    assert_eq!(SinkErrorType::of(&io::ErrorKind::NotFound.into()), SinkErrorType::Gone);
    assert_eq!(SINK_ERROR_TYPES.map(|kind| kind as usize), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn records_that_missed_the_deadline_are_not_lost() {
    let mut dropped = [[0; LEVELS.len()]; REASONS.len()];
    dropped[Reason::QueueFull as usize] = [1; LEVELS.len()];
    assert_eq!(lost(&dropped), LEVELS.len() as u64);
    dropped[Reason::ShutdownDeadline as usize] = [9; LEVELS.len()];
    assert_eq!(lost(&dropped), LEVELS.len() as u64);
}

// The configuration that a queue directory belongs to: no process of another configuration produces there.

const HERE: &str = "version: 1\ndirectory: \"/a\"\nsink: \"file\"\n# capture_hash_key: 12\n";
const THERE: &str = "version: 1\ndirectory: \"/b\"\nsink: \"file\"\n";

fn of(configuration: &str, directory: &Path) -> io::Result<Producer> {
    Producer::open(QueueSettings { configuration: Some(configuration.to_owned()), ..queue_settings(directory) })
}

#[test]
fn a_directory_of_another_configuration_takes_no_queue_and_says_what_differs() {
    let directory = tempfile::tempdir().unwrap();
    let first = of(HERE, directory.path()).unwrap();
    of(HERE, directory.path()).unwrap().close();
    let refused = of(THERE, directory.path()).err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    let text = refused.to_string();
    let differing = "capture_hash_key is 12 there and not set here; directory is \"/a\" there and \"/b\" here. Name";
    assert!(text.contains(differing), "{text}");
    assert!(first.queue().is_some());
}

#[test]
fn what_the_dead_of_another_configuration_left_is_moved_aside_whole() {
    if let Some(directory) = child_directory() {
        let producer = of(HERE, &directory).unwrap();
        let event = register(&producer);
        assert!(emit(&producer, event, INFO, 0, 0));
        die();
    }
    let directory = tempfile::tempdir().unwrap();
    let test = "configuration::what_the_dead_of_another_configuration_left_is_moved_aside_whole";
    child(test, directory.path()).output().unwrap();
    let _second = of(THERE, directory.path()).unwrap();
    let aside = directory.path().join(configuration::fingerprint(HERE));
    assert_eq!(queue_file::list(&aside).unwrap().len(), 1);
    assert!(aside.join("control-5").exists());
    assert_eq!(configuration::read(&aside).unwrap().as_deref(), Some(HERE));
    assert_eq!(configuration::read(directory.path()).unwrap().as_deref(), Some(THERE));
}
