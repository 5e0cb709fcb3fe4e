//! Damage from outside while everything runs: files cut short, removed or overwritten, clocks that jump. The name of
//! each test states the property that still holds.

mod external;
mod readers;

use crate::support::{
    self, Bench, INFO, PATIENCE, Place, SIZES, dense, emit, emit_each, listener_settings, numbers, open_producer,
    open_service, payload, register, registered, wait_until,
};
use lines::series;
use listen::delivery::{Delivery, Sinks};
use listen::leader::Leader;
use listen::service::Service;
use listen::sink::file::{FileSink, FileSinkConfig};
use listen::sink::{Now, Sink};
use queue::control::Control;
use queue::inspect;
use queue::layout::data_offset;
use queue::memory::page_bytes;
use queue::published::totals;
use queue::queue_file::QueueFile;
use request::runtime::Runtime;
use request::runtime::settings::CHUNKS_MODES;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A process's logging that also listens.
fn open(path: &Path) -> Arc<Service> {
    open_service(path, true).unwrap()
}

fn emit_span(service: &Service, thread: u64, span: std::ops::Range<u64>) {
    let event = register(&service.producer);
    // A record that comes while another thread replaces the queue is refused, and counted, where that takes long.
    span.for_each(|n| wait_until("the record is accepted", || emit(&service.producer, event, INFO, thread, n)));
}

fn cut(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

// Clocks that are set: ages use the monotonic clock, names and timestamps the wall clock.

const HOUR_S: i64 = 3600;
const AGE: Duration = Duration::from_secs(100);

fn leader(queues: &Path, segments: &Path, now: Now) -> Leader {
    let mut config = FileSinkConfig::new(segments, "test", "00000000000000aa");
    config.rotate_interval = AGE;
    let control = Control::open(queues).unwrap();
    let sink: Box<dyn Sink> = Box::new(FileSink::open(config).unwrap());
    Leader::new(listener_settings(queues), control, Delivery::here(Sinks::from(sink), control, now), now)
}

/// The lines of each segment, by their numbers.
fn segments(directory: &Path) -> Vec<Vec<Value>> {
    let paths = support::segments(directory);
    let read = |text: String| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut all: Vec<Vec<Value>> = paths.iter().map(|path| read(std::fs::read_to_string(path).unwrap())).collect();
    all.sort_by_key(|lines| lines[0]["segment"].as_u64());
    all
}

#[test]
fn a_clock_that_is_set_back_or_forward_loses_nothing_and_rotates_nothing_early_or_late() {
    let (queues, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut now = Now { unix_nano: 1_795_237_200_000_000_000, monotonic: Duration::from_secs(1) };
    let mut leader = leader(queues.path(), directory.path(), now);
    let (producer, event) = open_producer(queues.path());
    // The same instant comes back twice, and the beginning of time comes once.
    for (n, jump_s) in (0..).zip([0, HOUR_S, -2 * HOUR_S, HOUR_S, -i64::MAX / 1_000_000_000, 1_000_000_000]) {
        now.unix_nano = now.unix_nano.saturating_add_signed(jump_s * 1_000_000_000);
        now.monotonic += Duration::from_secs(1);
        assert!(emit(&producer, event, INFO, 0, n));
        leader.round(now, true);
    }
    assert_eq!(segments(directory.path()).len(), 1, "six seconds have passed");
    now.monotonic += AGE;
    assert!(emit(&producer, event, INFO, 0, 6));
    leader.round(now, true);
    assert_eq!(segments(directory.path()).len(), 2, "set back by years, it is old nevertheless");
    leader.close(now);
    let lines: Vec<Value> = segments(directory.path()).concat();
    assert_eq!(numbers(&lines, 0), dense(7));
}

#[test]
fn segments_that_begin_at_the_same_time_on_a_clock_that_was_set_back_have_names_of_their_own() {
    let (queues, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut now = Now { unix_nano: 1_795_237_200_000_000_000, monotonic: Duration::from_secs(1) };
    let mut leader = leader(queues.path(), directory.path(), now);
    let (producer, event) = open_producer(queues.path());
    for n in 0..5 {
        assert!(emit(&producer, event, INFO, 0, n));
        leader.round(now, true);
        now.monotonic += AGE;
    }
    leader.close(now);
    let all = segments(directory.path());
    assert_eq!(all.len(), 5);
    assert_eq!(numbers(&all.concat(), 0), dense(5), "in the order of their numbers");
}

#[test]
fn a_heartbeat_does_not_age_or_grow_young_with_the_clock_on_the_wall() {
    let (queues, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut now = Now { unix_nano: 1_795_237_200_000_000_000, monotonic: Duration::from_secs(1000) };
    let mut leader = leader(queues.path(), directory.path(), now);
    let control = Control::open(queues.path()).unwrap();
    for jump_s in [0, HOUR_S, -3 * HOUR_S] {
        now.unix_nano = now.unix_nano.saturating_add_signed(jump_s * 1_000_000_000);
        leader.round(now, true);
        let later = (now.monotonic + Duration::from_secs(2)).as_nanos() as u64;
        assert_eq!(control.heartbeat_age_s(later), Some(2.0));
        let before = now.monotonic.as_nanos() as u64 - 1;
        assert_eq!(control.heartbeat_age_s(before), Some(0.0), "it went round after the clock was read");
    }
}

// Mapped files that are cut short: an access to a missing page is a SIGBUS, which must not end the process.

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

// Shared files full of noise, while they are mapped: nothing in them is trusted further than it can be checked.

/// The magic number and the version.
const STAMP: usize = 12;

/// Overwrites everything behind the stamp of the file whose name begins so, without cutting it.
fn overwrite(directory: &Path, prefix: &str, seed: u32) {
    let paths: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    let named = |path: &&PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(prefix);
    let path = paths.iter().find(named).unwrap();
    let mut bytes = vec![0u8; fs::metadata(path).unwrap().len() as usize - STAMP];
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    for byte in &mut bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = if seed == 0 { 0xff } else { (state >> 24) as u8 };
    }
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(&bytes, STAMP as u64).unwrap();
}

#[test]
fn noise_in_the_pages_that_processes_share_stops_neither_the_listener_nor_its_successor() {
    for seed in 0..8 {
        let mut bench = Bench::new();
        let (producer, event) = registered(bench.producer());
        emit_each(&producer, event, 0, 0..5);
        bench.drain();
        overwrite(bench.path(), "control", seed);
        overwrite(bench.path(), "metrics", seed);
        emit_each(&producer, event, 0, 5..10);
        bench.drain();
        drop(bench.next_leader());
        emit_each(&producer, event, 0, 10..15);
        bench.drain();
        assert_eq!(numbers(&bench.sink.events("test"), 0), dense(15), "seed {seed}");
        read_all(bench.path());
    }
}

/// Reads everything that is published to its end, whatever it contains.
fn read_all(directory: &Path) {
    let control = Control::open(directory).unwrap();
    let page = control.page();
    for row in &page.sinks {
        let _ = (row.name(), row.role(), row.state(), row.errors().count());
    }
    let _ = (control.published_write(0), control.published_write(1), control.heartbeat_age_s(1));
    let _ = totals::of_directory(&page.totals, directory);
    let _ = (series::read(directory).is_ok(), inspect::queues(directory).len());
}

#[test]
fn noise_in_the_page_of_run_time_control_changes_no_more_than_an_operator_could() {
    for seed in 0..64 {
        let directory = tempfile::tempdir().unwrap();
        let runtime = Runtime::open(directory.path()).unwrap();
        overwrite(directory.path(), "runtime", seed);
        for now in [0, 1, u64::MAX / 2, u64::MAX] {
            let _ = (runtime.is_active(), runtime.level(now), runtime.take_error(now));
            let found = runtime.of_request(&[7; 16], b"/v1/chat/completions", now);
            assert!(found.ratio.is_none_or(|ratio| (0.0..=1.0).contains(&ratio)), "seed {seed}: {:?}", found.ratio);
            assert!(found.chunks.is_none_or(|code| usize::from(code) < CHUNKS_MODES.len()), "seed {seed}");
        }
        let _ = format!("{:?}", runtime.settings());
    }
}
