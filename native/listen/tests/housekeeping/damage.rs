//! Compression that is interrupted or fails at any call: a reader finds the whole segment, and the next round repairs
//! it.

use super::bench::{Bench, Failing, Fault, content, name};
use super::compression::KEEP_TWO;
use std::fs;

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
