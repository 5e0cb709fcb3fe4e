//! The spans in a report of removed segments.

use super::bench::{Bench, Failing, Fault, moment, name};
use segments::segment::footer_line;
use segments::segment_account::SegmentAccount;
use segments::segment_store::RealStore;
use segments::spans::Span;

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
