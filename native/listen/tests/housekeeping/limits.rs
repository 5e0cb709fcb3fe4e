//! Which segments are removed: by age, by quota, never a live segment, never a foreign file; and that removals are
//! reported.

use super::bench::{Bench, Failing, Fault, moment, name};
use queue::lock::{Attempt, ProcessLock};
use segments::retention::Removed;
use segments::segment_lock;
use segments::segment_store::RealStore;
use std::fs;
use std::os::unix::fs::symlink;
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
    assert!(segment_lock::try_lock(&reader).unwrap());
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
