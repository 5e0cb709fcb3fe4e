//! Which segments are compressed, and which properties of the plain form a compressed one keeps.

use super::{Bench, Failing, Fault, content, moment, name};
use listen::housekeeper::Compression;
use segments::compress::read_lines;
use segments::segment::{Form, SegmentName, footer_line};
use segments::segment_account::SegmentAccount;
use segments::segment_account::Span;
use segments::segment_store::RealStore;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::Ordering;

pub const KEEP_TWO: Option<Compression> = Some(Compression { level: 3, keep_segments: 2 });

fn compressed(number: u64) -> String {
    format!("{}.zst", name(number))
}

#[test]
fn sealed_segments_are_compressed_one_a_round_the_oldest_first_and_the_newest_stay_plain() {
    let mut bench = Bench::new();
    bench.segments(5);
    bench.compression = KEEP_TWO;
    let _live = bench.live(&name(5));
    assert!(bench.round(10));
    assert_eq!(bench.files(), [compressed(1), name(2), name(3), name(4), name(5)]);
    assert!(bench.round(10));
    assert!(!bench.round(10));
    assert_eq!(bench.files(), [compressed(1), compressed(2), name(3), name(4), name(5)]);
    assert_eq!(bench.words.segments_compressed.load(Ordering::Relaxed), 2);
    assert_eq!(bench.words.compressed_from_bytes.load(Ordering::Relaxed), 20);
}

#[test]
fn a_live_segment_is_not_compressed_however_old_it_is() {
    let mut bench = Bench::new();
    bench.segments(4);
    bench.compression = KEEP_TWO;
    let live = bench.live(&name(1));
    assert!(bench.round(10));
    assert!(!bench.round(10));
    assert_eq!(bench.files(), [name(1), compressed(2), name(3), name(4)]);
    drop(live);
    assert!(bench.round(10));
    assert_eq!(bench.files()[0], compressed(1));
}

#[test]
fn content_time_and_permissions_are_kept_and_a_checksum_is_there() {
    let mut bench = Bench::new();
    let path = bench.write(&name(1), &content(1), 1);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    bench.segments(3);
    let path = bench.write(&name(1), &content(1), 1);
    let before = fs::metadata(path).unwrap();
    bench.compression = KEEP_TWO;
    assert!(bench.round(10));
    let after = fs::metadata(bench.path(&compressed(1))).unwrap();
    assert_eq!(bench.decompressed(1), content(1));
    assert_eq!((after.mtime(), after.mtime_nsec()), (before.mtime(), before.mtime_nsec()));
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert!(after.len() < before.len() / 10);
    let mut bytes = fs::read(bench.path(&compressed(1))).unwrap();
    assert_ne!(bytes[4] & 4, 0, "the frame's checksum flag");
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(bench.path(&compressed(1)), bytes).unwrap();
    assert!(read_lines(&bench.path(&compressed(1)), 0, u64::MAX).is_err());
}

#[test]
fn a_dead_writers_unfinished_line_stays_behind() {
    let mut bench = Bench::new();
    bench.segments(3);
    let torn = [&content(1)[..], b"{\"unfinished\":"].concat();
    bench.write(&name(1), &torn, 1);
    bench.compression = KEEP_TWO;
    assert!(bench.round(10));
    assert_eq!(bench.decompressed(1), content(1));
    assert!(!bench.path(&name(1)).exists());
}

#[test]
fn a_segment_without_a_whole_line_is_left_to_retention() {
    let mut bench = Bench::new();
    bench.segments(3);
    bench.write(&name(1), b"{\"unfinished\":", 1);
    bench.compression = KEEP_TWO;
    let mut rounds = bench.rounds(RealStore);
    assert!(bench.round_of(&mut rounds, 10));
    assert!(!bench.round_of(&mut rounds, 10));
    assert_eq!((bench.files().len(), bench.errors()), (3, 0));
}

#[test]
fn the_lines_from_an_offset_on_can_be_read() {
    let mut bench = Bench::new();
    bench.segments(3);
    bench.write(&name(1), &content(1), 1);
    bench.compression = KEEP_TWO;
    assert!(bench.round(10));
    let lines = read_lines(&bench.path(&compressed(1)), 1000, 500).unwrap();
    assert_eq!(lines, content(1)[1000..1500]);
}

#[test]
fn work_that_is_ended_leaves_the_segment_as_it_was() {
    let mut bench = Bench::new();
    bench.segments(3);
    bench.write(&name(1), &content(1), 1);
    bench.compression = KEEP_TWO;
    let steps = |bench: &Bench, most: usize| {
        let mut steps = 0;
        let mut pace = |_| {
            steps += 1;
            steps <= most
        };
        bench.rounds(RealStore).round(moment(10), &mut pace, &mut |_, _| true);
        steps
    };
    assert_eq!(steps(&bench, 1), 2, "it went on after the first step, and ended after the second");
    assert_eq!((bench.files(), bench.errors()), (vec![name(1), name(2), name(3)], 0));
}

#[test]
fn names_in_every_form_are_read_as_they_are_written() {
    let segment = SegmentName::parse(&name(7)).unwrap();
    for form in [Form::Plain, Form::Compressed, Form::Temporary] {
        assert_eq!(SegmentName::parse_file(&segment.file_name(form)), Some((segment.clone(), form)));
    }
    for file in [format!(".{}", name(7)), format!("{}.zst.tmp", name(7)), format!("{}.zst.zst", name(7))] {
        assert_eq!(SegmentName::parse_file(&file), None, "{file}");
    }
}

// Compression that is interrupted or fails at any call: a reader finds the whole segment, and the next round repairs
// it.

/// More than a minute later, when the rest after an error is over.
const LATER_S: u64 = 100;

/// Lets a call of a round fail, calls `check`, and goes on with the next call until none is left.
fn at_every_call(fault: impl Fn(usize) -> Fault, check: impl Fn(&mut Bench, usize)) -> usize {
    for call in 1.. {
        let mut bench = Bench::new();
        bench.segments(3);
        bench.write(&name(1), &content(1), 1);
        bench.compression = KEEP_TWO;
        let store = Failing::new(fault(call));
        let mut rounds = bench.rounds(store.clone());
        bench.round_of(&mut rounds, 10);
        drop(rounds);
        assert_eq!(bench.found(1), content(1), "call {call}: what a reader finds");
        if *store.calls.borrow() < call {
            return call;
        }
        check(&mut bench, call);
    }
    unreachable!()
}

fn assert_repaired(bench: &mut Bench, call: usize) {
    while bench.round(LATER_S) {}
    assert_eq!(bench.files(), [format!("{}.zst", name(1)), name(2), name(3)], "call {call}");
    assert_eq!(bench.decompressed(1), content(1), "call {call}");
}

#[test]
fn a_process_that_dies_at_any_call_leaves_a_complete_copy_and_the_next_round_ends_its_work() {
    let calls = at_every_call(Fault::From, assert_repaired);
    assert!(calls > 20, "only {calls} calls: the test does not reach what it is about");
}

#[test]
fn a_call_that_fails_leaves_a_complete_copy_and_no_unfinished_file() {
    at_every_call(Fault::Once, |bench, call| {
        let unfinished = bench.files().iter().any(|file| file.ends_with(".tmp"));
        assert!(!unfinished, "call {call}: {:?}", bench.files());
        assert_repaired(bench, call);
    });
}

#[test]
fn after_an_error_nothing_is_compressed_for_a_minute() {
    let mut bench = Bench::new();
    bench.segments(3);
    bench.compression = KEEP_TWO;
    let mut rounds = bench.rounds(Failing::new(Fault::Once(12)));
    assert!(!bench.round_of(&mut rounds, 10));
    assert_eq!(bench.errors(), 1, "the fault must fall into the compression");
    assert!(!bench.round_of(&mut rounds, 69));
    assert_eq!(bench.files(), [name(1), name(2), name(3)]);
    assert!(bench.round_of(&mut rounds, 70));
}

#[test]
fn a_leftover_of_an_interrupted_compression_is_removed() {
    let mut bench = Bench::new();
    bench.segments(3);
    bench.write(&format!(".{}.zst.tmp", name(1)), b"half", 0);
    bench.limits.quota_bytes = 1000;
    bench.round(10);
    assert_eq!(bench.files(), [name(1), name(2), name(3)]);
}

#[test]
fn two_copies_that_hold_the_same_become_one_even_if_compression_is_off_by_now() {
    let mut bench = Bench::new();
    bench.segments(3);
    bench.write(&name(1), &content(1), 1);
    bench.write(&format!("{}.zst", name(1)), &zstd::encode_all(&content(1)[..], 1).unwrap(), 1);
    bench.limits.quota_bytes = 1 << 30;
    assert!(bench.round(10));
    assert_eq!(bench.files(), [format!("{}.zst", name(1)), name(2), name(3)]);
}

#[test]
fn two_copies_that_differ_both_stay_and_that_is_counted_once() {
    let less = &content(1)[..1000];
    let more = [&content(1)[..], b"{}\n"].concat();
    let cut = &zstd::encode_all(&content(1)[..], 1).unwrap()[..100];
    for other in [&zstd::encode_all(less, 1).unwrap(), &zstd::encode_all(&more[..], 1).unwrap(), cut, b"junk", b""] {
        let mut bench = Bench::new();
        bench.segments(3);
        bench.write(&name(1), &content(1), 1);
        bench.write(&format!("{}.zst", name(1)), other, 1);
        bench.compression = KEEP_TWO;
        let mut rounds = bench.rounds(segments::segment_store::RealStore);
        assert!(!bench.round_of(&mut rounds, 10));
        assert!(!bench.round_of(&mut rounds, LATER_S));
        assert_eq!((bench.files().len(), bench.errors()), (4, 1), "{} bytes", other.len());
        assert_eq!(fs::read(bench.path(&name(1))).unwrap(), content(1));
    }
}

// The spans in a report of removed segments.

fn lines(boot_id: u64, sequences: std::ops::RangeInclusive<u64>) -> Vec<u8> {
    let line = |seq| {
        format!(
            "{{\"timestamp\":\"2026-11-21T05:00:00.000000000Z\",\"event_name\":\"a\",\"boot_id\":\"{boot_id:016x}\",\
             \"pid\":7,\"seq\":{seq}}}\n"
        )
    };
    sequences.flat_map(|seq| line(seq).into_bytes()).collect()
}

fn sealed(lines: Vec<u8>) -> Vec<u8> {
    let mut account = SegmentAccount::default();
    account.add(&lines, lines.iter().filter(|byte| **byte == b'\n').count() as u64);
    let footer = footer_line(0, 1, 1, lines.len() as u64, account.members().as_bytes());
    [lines, footer].concat()
}

fn span(boot_id: u64, first: u64, last: u64) -> Span {
    Span { boot_id, pid: 7, first, last, records: last + 1 - first }
}

/// Removes everything but the newest segment.
fn remove(bench: &mut Bench) -> Vec<Span> {
    bench.limits.quota_bytes = 1;
    let held = bench.live(&name(9));
    bench.round(10);
    drop(held);
    bench.reported.iter().flat_map(|(_, removed)| removed.spans.clone()).collect()
}

#[test]
fn removed_segments_are_reported_with_the_records_in_them_whether_sealed_cut_off_or_compressed() {
    let mut bench = Bench::new();
    bench.write(&name(1), &sealed([lines(1, 0..=9), lines(2, 5..=6)].concat()), 1);
    bench.write(&name(2), &[&lines(1, 10..=19)[..], b"{\"timestamp\":\"20"].concat(), 2);
    let compressed = zstd::encode_all(&sealed(lines(1, 20..=29))[..], 1).unwrap();
    bench.write(&format!("{}.zst", name(3)), &compressed, 3);
    bench.write(&name(4), &sealed(lines(1, 40..=41)), 4);
    bench.write(&name(9), b"{}\n", 9);
    assert_eq!(remove(&mut bench), [span(1, 0, 29), span(2, 5, 6), span(1, 40, 41)]);
    assert_eq!((bench.reported.len(), bench.reported[0].1.segments), (1, 4));
}

#[test]
fn a_segment_that_cannot_be_read_is_removed_all_the_same_and_reported_without_its_records() {
    let mut bench = Bench::new();
    bench.write(&format!("{}.zst", name(1)), b"no zstd", 1);
    bench.write(&name(9), b"{}\n", 9);
    assert_eq!(remove(&mut bench), []);
    assert_eq!(bench.reported[0].1.segments, 1);
}

#[test]
fn a_report_that_would_be_too_long_is_reported_in_parts_that_count_each_segment_once() {
    let mut bench = Bench::new();
    let records: Vec<u8> = (0..150).flat_map(|boot_id| lines(boot_id, 3..=4)).collect();
    bench.write(&name(1), &sealed(records), 1);
    bench.write(&name(9), b"{}\n", 9);
    assert_eq!(remove(&mut bench), (0..150).map(|boot_id| span(boot_id, 3, 4)).collect::<Vec<_>>());
    let parts: Vec<_> = bench.reported.iter().map(|(_, part)| (part.segments, part.spans.len())).collect();
    assert_eq!(parts, [(1, 64), (0, 64), (0, 22)]);
}

#[test]
fn a_part_that_is_refused_comes_again_and_none_twice() {
    let mut bench = Bench::new();
    let records: Vec<u8> = (0..150).flat_map(|boot_id| lines(boot_id, 3..=4)).collect();
    bench.write(&name(1), &sealed(records), 1);
    bench.limits.quota_bytes = 1;
    let mut rounds = bench.rounds(RealStore);
    let (mut reported, mut calls) = (Vec::new(), 0);
    for round in 0..3 {
        rounds.round(moment(10 + round), &mut |_| true, &mut |_, part| {
            calls += 1;
            let taken = calls != 2 && calls != 4;
            reported.extend(part.spans.iter().filter(|_| taken).copied());
            taken
        });
    }
    assert_eq!(reported, (0..150).map(|boot_id| span(boot_id, 3, 4)).collect::<Vec<_>>());
}

#[test]
fn whenever_the_process_dies_all_that_is_gone_was_reported_before() {
    for call in (1..).step_by(5) {
        let mut bench = Bench::new();
        (1..=40).for_each(|number| drop(bench.write(&name(number), &sealed(lines(1, number..=number)), number)));
        bench.limits.quota_bytes = 1000;
        let store = Failing::new(Fault::From(call));
        let mut reported = Vec::new();
        bench.rounds(store.clone()).round(moment(60), &mut |_| true, &mut |_, removed| {
            let lives = *store.calls.borrow() < call;
            reported.extend(removed.spans.iter().filter(|_| lives).copied());
            lives
        });
        let (gone, left) = (40 - bench.files().len() as u64, *store.calls.borrow() < call);
        let reported = reported.iter().map(|span| span.records).sum::<u64>();
        assert!(reported >= gone, "call {call}: {gone} are gone, {reported} are reported");
        if left {
            assert_eq!((reported, gone > 32), (gone, true), "more than one group");
            break;
        }
    }
}

#[test]
fn a_queue_that_closes_before_it_took_the_report_keeps_the_segments() {
    let mut bench = Bench::new();
    bench.write(&name(1), &sealed(lines(1, 0..=9)), 1);
    bench.write(&name(2), &sealed(lines(1, 10..=19)), 2);
    bench.limits.quota_bytes = 1;
    let closed = std::cell::Cell::new(false);
    bench.rounds(RealStore).round(moment(10), &mut |_| !closed.get(), &mut |_, _| {
        closed.set(true);
        false
    });
    assert_eq!(bench.files(), [name(1), name(2)]);
    bench.round(10);
    assert_eq!(bench.reported.iter().map(|(_, removed)| removed.segments).sum::<u64>(), 2);
    assert_eq!(bench.files(), [""; 0]);
}
