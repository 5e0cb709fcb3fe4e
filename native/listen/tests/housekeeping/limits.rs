//! Which segments are removed: by age, by quota, never a live segment, never a foreign file; and that removals are
//! reported.

use super::{Bench, Failing, Fault, PREFIX, moment, name, quota};
use crate::support::{INFO, PATIENCE, emit, listener_settings, queue_settings, register, wait_until};
use listen::housekeeper::HousekeepingSettings;
use listen::leader::ListenerSettings;
use listen::service::Service;
use listen::sink::{FileSinkConfig, SinkSettings};
use queue::lock::{Attempt, ProcessLock};
use segments::retention::Removed;
use segments::segment;
use segments::segment_store::RealStore;
use segments::verify::{Request, verify};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn removed(segments: u64, oldest: u64, newest: u64) -> Removed {
    Removed { segments, bytes: segments * 10, oldest: name(oldest), newest: name(newest), spans: Vec::new() }
}

#[test]
fn segments_go_once_their_last_line_is_too_old_and_it_is_reported() {
    let mut bench = Bench::new();
    bench.segments(4);
    bench.limits.retention = Duration::from_secs(60);
    bench.round(61);
    assert_eq!(bench.files().len(), 4, "none is older than a minute");
    bench.round(63);
    assert_eq!(bench.files(), [name(3), name(4)]);
    assert_eq!(bench.reported, [("age", removed(2, 1, 2))]);
    assert_eq!(bench.words.segments_removed[0].load(Ordering::Relaxed), 2);
    assert_eq!(bench.words.removed_bytes[0].load(Ordering::Relaxed), 20);
}

#[test]
fn a_clock_that_steps_forward_makes_no_segment_older_and_time_that_passes_does() {
    const STEP_S: u64 = 30 * 86_400;
    let mut bench = Bench::new();
    bench.segments(4);
    bench.limits.retention = Duration::from_secs(3600);
    bench.round(10);
    bench.stepped_s = STEP_S;
    bench.write(&name(5), b"{\"n\":123}\n", STEP_S + 15);
    bench.round(STEP_S + 20);
    assert_eq!(bench.files().len(), 5, "the next housekeeper knows it too");
    bench.round(STEP_S + 3603);
    assert_eq!(bench.files(), [name(3), name(4), name(5)], "an hour has passed for the first two");
    bench.round(STEP_S + 3614);
    assert_eq!(bench.files(), [name(5)]);
    bench.round(STEP_S + 3700);
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn a_clock_that_steps_forward_and_back_again_makes_no_segment_older() {
    const STEP_S: u64 = 30 * 86_400;
    let mut bench = Bench::new();
    bench.segments(4);
    bench.limits.retention = Duration::from_secs(3600);
    bench.round(10);
    bench.stepped_s = STEP_S;
    bench.round(STEP_S + 20);
    bench.stepped_s = 0;
    bench.round(30);
    assert_eq!(bench.files().len(), 4);
    bench.round(3612);
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn above_the_quota_the_oldest_go_first_and_no_more_than_needed() {
    let mut bench = Bench::new();
    bench.segments(5);
    bench.limits.quota_bytes = 30;
    bench.round(10);
    bench.round(10);
    assert_eq!(bench.files(), [name(3), name(4), name(5)]);
    assert_eq!(bench.reported, [("quota", removed(2, 1, 2))]);
    assert_eq!(bench.words.segments_removed[1].load(Ordering::Relaxed), 2);
}

#[test]
fn live_segments_stay_however_old_but_count_for_the_quota() {
    let mut bench = Bench::new();
    bench.segments(4);
    let held = [bench.live(&name(1)), bench.live(&name(4))];
    bench.limits.quota_bytes = 10;
    bench.round(10);
    assert_eq!(bench.files(), [name(1), name(4)]);
    bench.limits.retention = Duration::from_secs(1);
    bench.round(1000);
    assert_eq!(bench.files(), [name(1), name(4)]);
    drop(held);
    bench.round(1000);
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn a_reader_that_looks_for_the_writer_does_not_pass_for_one() {
    let mut bench = Bench::new();
    bench.segments(3);
    let reader = fs::File::open(bench.path(&name(1))).unwrap();
    assert!(segment::try_lock(&reader).unwrap());
    bench.limits.quota_bytes = 20;
    bench.round(10);
    assert_eq!(bench.files(), [name(2), name(3)], "else a younger one would go in its place");
}

#[test]
fn an_empty_segment_is_being_begun_until_it_has_been_empty_for_long() {
    let mut bench = Bench::new();
    bench.write(&name(1), b"", 1);
    bench.limits.retention = Duration::from_secs(10);
    bench.round(50);
    assert_eq!(bench.files(), [name(1)]);
    bench.round(62);
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn foreign_files_links_directories_and_other_services_segments_are_neither_removed_nor_counted() {
    let mut bench = Bench::new();
    let other = name(1).replace("svc", "svc-2");
    let foreign = ["notes.jsonl", "latest.zst", ".svc.zst.tmp", &other, &format!("{}.gz", name(2)), &name(3)[1..]];
    for file in foreign {
        bench.write(file, &[b'x'; 1000], 0);
    }
    symlink(bench.path("notes.jsonl"), bench.path(&name(4))).unwrap();
    symlink(bench.path("notes.jsonl"), bench.path(&format!(".{}.zst.tmp", name(5)))).unwrap();
    fs::create_dir(bench.path(&name(6))).unwrap();
    let before = bench.files();
    bench.segments(1);
    bench.limits.quota_bytes = 10;
    bench.round(10);
    assert_eq!(bench.files().len(), before.len() + 1, "their bytes count for nobody");
    bench.limits.retention = Duration::from_secs(1);
    bench.round(1_000_000);
    assert_eq!(bench.files(), before);
    assert_eq!(bench.errors(), 0);
}

#[test]
fn compressed_segments_are_removed_by_the_same_limits() {
    let mut bench = Bench::new();
    bench.segments(3);
    fs::rename(bench.path(&name(1)), bench.path(&format!("{}.zst", name(1)))).unwrap();
    bench.limits.quota_bytes = 20;
    bench.round(10);
    assert_eq!(bench.files(), [name(2), name(3)]);
    assert_eq!(bench.reported, [("quota", removed(1, 1, 1))]);
}

#[test]
fn a_segment_of_another_user_is_left_alone_and_holds_up_nothing() {
    let mut bench = Bench::new();
    bench.segments(4);
    bench.limits.quota_bytes = 20;
    let mut store = Failing::new(Fault::Once(usize::MAX));
    store.foreign = Some(name(1));
    let mut rounds = bench.rounds(store);
    bench.round_of(&mut rounds, 10);
    assert_eq!((bench.files(), bench.errors()), (vec![name(1), name(4)], 0));
}

#[test]
fn a_file_set_back_in_time_is_as_old_as_its_name_says() {
    let mut bench = Bench::new();
    bench.write(&name(30), b"{}\n", 0);
    bench.limits.retention = Duration::from_secs(60);
    bench.round(89);
    assert_eq!(bench.files().len(), 1);
    bench.round(91);
    assert_eq!(bench.files().len(), 0);
}

#[test]
fn what_cannot_be_reported_yet_is_reported_later_all_of_it_at_once() {
    let mut bench = Bench::new();
    bench.segments(4);
    bench.limits.quota_bytes = 30;
    let mut rounds = bench.rounds(RealStore);
    rounds.round(moment(10), &mut |_| true, &mut |_, _| false);
    bench.write(&name(5), b"{\"n\":123}\n", 5);
    rounds.round(moment(10), &mut |_| true, &mut |_, _| false);
    assert_eq!(bench.files(), [name(3), name(4), name(5)], "removal waits for nothing: the disk may be full");
    bench.round_of(&mut rounds, 10);
    bench.round_of(&mut rounds, 10);
    assert_eq!(bench.reported, [("quota", removed(2, 1, 2))]);
}

#[test]
fn what_a_process_removed_and_did_not_live_to_report_is_reported_by_the_next() {
    let mut bench = Bench::new();
    bench.segments(4);
    bench.limits.quota_bytes = 30;
    bench.rounds(RealStore).round(moment(10), &mut |_| true, &mut |_, _| false);
    bench.round(10);
    bench.round(10);
    let unreported = Removed { segments: 1, bytes: 10, ..Removed::default() };
    assert_eq!(bench.reported, [("quota", unreported)]);
    assert!(bench.words.unreported().iter().all(|left| *left == (0, 0)));
}

#[test]
fn removal_ends_when_the_work_is_ended_and_what_was_removed_until_then_is_reported() {
    let mut bench = Bench::new();
    bench.segments(4);
    bench.limits.quota_bytes = 10;
    let mut steps = 0;
    let mut pace = |_| {
        steps += 1;
        steps <= 2
    };
    let (mut rounds, mut reported) = (bench.rounds(RealStore), Vec::new());
    rounds.round(moment(10), &mut pace, &mut |reason, gone| {
        reported.push((reason.name(), gone.clone()));
        true
    });
    assert_eq!(bench.files(), [name(3), name(4)]);
    assert_eq!(reported, [("quota", removed(2, 1, 2))]);
}

#[test]
fn a_directory_whose_housekeeper_is_another_one_is_left_alone() {
    let mut bench = Bench::new();
    bench.segments(4);
    bench.limits.quota_bytes = 10;
    let lock = ProcessLock::try_acquire(&bench.path(".svc.housekeeping.lock"), true).unwrap();
    assert!(matches!(lock, Attempt::Acquired(_)));
    bench.round(10);
    assert_eq!((bench.files().len(), bench.errors()), (4, 0));
    drop(lock);
    bench.round(10);
    assert_eq!(bench.files().len(), 1);
}

#[test]
fn each_directory_has_the_quota_for_itself_and_one_that_fails_holds_up_no_other() {
    let (mut bench, other) = (Bench::new(), Bench::new());
    bench.segments(4);
    other.segments(4);
    bench.limits.quota_bytes = 20;
    bench.other_directories = vec![bench.path("no directory"), other.dir.path().to_owned()];
    fs::write(bench.path("no directory"), b"").unwrap();
    bench.round(10);
    assert_eq!(other.files(), [name(3), name(4)]);
    assert_eq!(bench.files()[1..], [name(3), name(4)]);
    assert_eq!((bench.reported.len(), bench.errors()), (2, 1));
}

#[test]
fn a_directory_that_does_not_exist_yet_is_no_error() {
    let mut bench = Bench::new();
    bench.limits.quota_bytes = 10;
    fs::remove_dir(&bench.dir).unwrap();
    bench.round(10);
    assert_eq!(bench.errors(), 0);
}

#[test]
fn whatever_call_fails_what_is_removed_is_counted_and_reported_and_the_next_round_goes_on() {
    for call in 1.. {
        let mut bench = Bench::new();
        bench.segments(4);
        bench.limits.quota_bytes = 20;
        let store = Failing::new(Fault::Once(call));
        let mut rounds = bench.rounds(store.clone());
        bench.round_of(&mut rounds, 10);
        let reached = *store.calls.borrow() >= call;
        let gone = 4 - bench.files().len() as u64;
        assert_eq!(bench.words.segments_removed[1].load(Ordering::Relaxed), gone, "call {call}");
        bench.round_of(&mut rounds, 10);
        assert_eq!(bench.files(), [name(3), name(4)], "call {call}");
        assert_eq!(bench.reported.iter().map(|(_, removed)| removed.segments).sum::<u64>(), 2, "call {call}");
        if !reached {
            break;
        }
    }
}

// The end of a listener: the quota holds after its last drain, and the record of the removal is in the log.

const ROTATE_BYTES: u64 = 1200;
const QUOTA_BYTES: u64 = 4 * ROTATE_BYTES;
const RECORDS: u64 = 200;

fn open(path: &Path) -> Arc<Service> {
    let (queues, segments) = (path.join("queues"), path.join("segments"));
    let directories = (vec![segments.clone()], (vec![], segments.clone()));
    let housekeeping = HousekeepingSettings::new(directories.0, PREFIX, quota(QUOTA_BYTES), None, directories.1);
    let listener = ListenerSettings { housekeeping, flush_bytes: 300, ..listener_settings(&queues) };
    let sink =
        FileSinkConfig { rotate_bytes: ROTATE_BYTES, ..FileSinkConfig::new(segments, PREFIX, "0000000000000000") };
    Service::open(queue_settings(&queues), listener, SinkSettings::File(sink), true).unwrap()
}

#[test]
fn the_quota_holds_after_a_close_that_drained_more_and_the_books_balance() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("queues")).unwrap();
    // Until the queue is closed another process leads: nothing is drained before, and no housekeeper removes anything.
    let lock = ProcessLock::try_acquire(&place.path().join("queues/leader.lock"), true).unwrap();
    let Attempt::Acquired(other) = lock else { panic!("nobody else leads") };
    let service = open(place.path());
    let event = register(&service.producer);
    (0..RECORDS).for_each(|n| assert!(emit(&service.producer, event, INFO, 0, n)));
    let closing = {
        let service = Arc::clone(&service);
        std::thread::spawn(move || service.close(PATIENCE))
    };
    wait_until("the queue is closed", || service.producer.queue().unwrap().file.ring().is_closed());
    drop(other);
    assert!(closing.join().unwrap());

    let files = std::fs::read_dir(place.path().join("segments")).unwrap().map(|entry| entry.unwrap());
    let segments = files.filter(|file| file.path().extension().is_some_and(|it| it == "jsonl"));
    let bytes: u64 = segments.map(|file| file.metadata().unwrap().len()).sum();
    // The report and the last footer come after the removal.
    assert!(bytes <= QUOTA_BYTES + ROTATE_BYTES, "{bytes} bytes");
    let request = Request {
        directories: vec![place.path().join("segments")],
        queue_directories: vec![place.path().join("queues")],
        ..Request::default()
    };
    let report = verify(&request).unwrap();
    assert_eq!(report["problems"], serde_json::json!([]), "{report}");
    assert_eq!(report["totals"]["accepted"], RECORDS, "{report}");
    let removed = report["totals"]["removed"].as_u64().unwrap();
    assert!(removed > RECORDS / 2, "{report}");
}

// A segment that is not shipped yet stays, however old it is; only the quota removes it earlier.

fn waiting_for(shippers: &[&str]) -> Bench {
    let mut bench = Bench::new();
    bench.segments(3);
    bench.limits.retention = Duration::from_secs(60);
    bench.waits_for = shippers.iter().map(|&name| name.to_owned()).collect();
    bench
}

fn mark(bench: &Bench, number: u64, shipper: &str) {
    bench.write(&format!("{}.shipped-{shipper}", name(number)), b"", number);
}

#[test]
fn an_old_segment_stays_until_every_shipper_has_marked_it() {
    let mut bench = waiting_for(&["kafka", "otlp"]);
    mark(&bench, 1, "kafka");
    mark(&bench, 2, "kafka");
    mark(&bench, 2, "otlp");
    mark(&bench, 3, "other");
    bench.round(1000);
    let marks = [format!("{}.shipped-kafka", name(1)), format!("{}.shipped-other", name(3))];
    assert_eq!(bench.files(), [name(1), marks[0].clone(), name(3), marks[1].clone()], "2 is gone, with its marks");
    mark(&bench, 1, "otlp");
    bench.round(1000);
    assert_eq!(bench.files(), [name(3), marks[1].clone()]);
}

#[test]
fn the_quota_removes_what_is_not_shipped_and_says_so() {
    let mut bench = waiting_for(&["kafka"]);
    mark(&bench, 1, "kafka");
    bench.limits = crate::housekeeping::quota(10);
    bench.round(10);
    assert_eq!(bench.files(), [name(3)]);
    let reasons: Vec<&str> = bench.reported.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(reasons, ["quota", "unshipped"]);
    assert_eq!(bench.words.segments_removed.each_ref().map(|word| word.load(Ordering::Relaxed)), [0, 1, 1]);
}

#[test]
fn a_mark_of_a_segment_that_is_gone_is_removed() {
    let mut bench = waiting_for(&[]);
    mark(&bench, 7, "kafka");
    bench.round(10);
    assert_eq!(bench.files(), [name(1), name(2), name(3)]);
}

#[test]
fn other_directories_wait_for_nobody() {
    let mut bench = waiting_for(&["kafka"]);
    let other = tempfile::TempDir::new().unwrap();
    bench.other_directories.push(other.path().to_owned());
    let path = bench.write(&name(1), b"{}\n", 1);
    std::fs::copy(&path, other.path().join(name(1))).unwrap();
    let then = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::File::options().write(true).open(other.path().join(name(1))).unwrap().set_modified(then).unwrap();
    bench.round(1000);
    assert!(!other.path().join(name(1)).exists());
    assert_eq!(bench.files().len(), 3);
}
