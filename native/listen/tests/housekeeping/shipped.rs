//! A segment that is not shipped yet stays, however old it is; only the quota removes it earlier.

use super::bench::{Bench, name};
use std::sync::atomic::Ordering;
use std::time::Duration;

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
    bench.limits = super::bench::quota(10);
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
