//! Run-time control: the page's bytes, which process may write it and when, the overrides that a request finds in it,
//! and their end.

use crate::support::{child, child_directory};
use listen::overrides::{Change, Writer, checked_route, has_over};
use proptest::prelude::*;
use request::route_pattern::RoutePattern;
use request::runtime::settings::{CaptureRule, CaptureTarget, Settings, Timed, Until, route_matches};
use request::runtime::{Overrides, Runtime};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

const TRACE: [u8; 16] = [0xab; 16];
const SECOND: u64 = 1_000_000_000;

fn at(second: u64) -> Until {
    Until { monotonic_nano: second * SECOND, unix_nano: (1_000_000 + second) * SECOND }
}

fn writer(directory: &Path) -> Writer {
    Writer::try_lock(directory).unwrap().expect("nobody else writes")
}

/// Changes something until second 100, and drops the record.
fn change(directory: &Path, change: &Change) {
    writer(directory).change(change, at(100), "test", |_| true).unwrap();
}

fn found(runtime: Runtime, path: &str) -> Overrides {
    runtime.of_request(&TRACE, path.as_bytes(), SECOND)
}

#[test]
fn nothing_is_overridden_on_a_new_page() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::open(directory.path()).unwrap();
    assert!(!runtime.is_active());
    assert_eq!(found(runtime, "/"), Overrides::default());
    assert_eq!((runtime.level(0), runtime.take_error(0), runtime.settings()), (None, false, Settings::default()));
}

#[test]
fn a_page_has_these_bytes() {
    let directory = tempfile::tempdir().unwrap();
    change(directory.path(), &Change::Level(5));
    change(directory.path(), &Change::Ratio(0.5));
    change(directory.path(), &Change::Chunks(3));
    change(directory.path(), &Change::Capture(CaptureTarget::Trace(TRACE)));
    change(directory.path(), &Change::Capture(checked_route("/v1/{id}/x").unwrap()));
    change(directory.path(), &Change::Capture(CaptureTarget::Errors(50)));
    change(directory.path(), &Change::Compared);
    change(directory.path(), &Change::Disabled);
    let runtime = Runtime::open(directory.path()).unwrap();
    runtime.begin_comparison();
    let bytes = std::fs::read(directory.path().join("runtime-3")).unwrap();
    assert_eq!(bytes.len(), 4096);
    let (monotonic, unix) = ((100 * SECOND).to_le_bytes(), (1_000_100 * SECOND).to_le_bytes());
    // Generation 8 is in copy 0.
    let expected: &[(usize, &[u8])] = &[
        (0, b"INFLOGR\0"),
        (8, &[3, 0, 0, 0]),
        (16, &[0b11_1111, 8, 0, 0, 0, 0, 0, 0]),
        (64 + 2 * 8, &[50, 0, 0, 0, 6, 0, 0, 0]),
        (128, &[5, 0, 0, 0, 0, 0, 0, 0]),
        (136, &monotonic),
        (144, &unix),
        (152, &0.5f64.to_le_bytes()),
        (160, &monotonic),
        (168, &unix),
        (176, &[3, 0, 0, 0, 0, 0, 0, 0]),
        (184, &monotonic),
        (192, &unix),
        (200, &[1, 0, 0, 0, 4, 0, 0, 0]),
        (208, &monotonic),
        (216, &unix),
        (224, &TRACE),
        (200 + 168, &[2, 10, 0, 0, 5, 0, 0, 0]),
        (208 + 168, &monotonic),
        (216 + 168, &unix),
        (240 + 168, b"/v1/{id}/x"),
        (200 + 2 * 168, &[3, 0, 0, 0, 6, 0, 0, 0]),
        (208 + 2 * 168, &monotonic),
        (216 + 2 * 168, &unix),
        (128 + 177 * 8, &monotonic),
        (128 + 178 * 8, &unix),
        (128 + 179 * 8, &monotonic),
        (128 + 180 * 8, &unix),
        (3072, &[1, 0, 0, 0, 0, 0, 0, 0]),
    ];
    let mut rest = bytes[..128 + 181 * 8].to_vec();
    rest.resize(3072, 0);
    rest.extend(&bytes[3072..]);
    for (offset, golden) in expected {
        assert_eq!(&rest[*offset..offset + golden.len()], *golden, "at {offset}");
        rest[*offset..offset + golden.len()].fill(0);
    }
    assert_eq!(rest.iter().position(|byte| *byte != 0), None, "a byte that is not documented");
}

#[test]
fn a_page_that_says_another_version_than_its_name_is_not_opened() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("runtime-3"), b"INFLOGR\0\x02\0\0\0").unwrap();
    let error = Runtime::open(directory.path()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("is not a runtime file of version 3"), "{error}");
}

#[test]
fn every_change_is_seen_by_who_has_mapped_the_page_and_is_over_when_its_time_is() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::open(directory.path()).unwrap();
    for (level, ratio, chunks) in [(5, 0.25, 3), (13, 1.0, 0)] {
        change(directory.path(), &Change::Level(level));
        change(directory.path(), &Change::Ratio(ratio));
        change(directory.path(), &Change::Chunks(chunks));
        assert!(runtime.is_active());
        for (second, is_over) in [(0, false), (99, false), (100, true), (1000, true)] {
            let now = second * SECOND;
            assert_eq!(runtime.level(now), (!is_over).then_some(level));
            let found = runtime.of_request(&TRACE, b"/", now);
            assert_eq!((found.ratio, found.chunks), ((!is_over).then_some(ratio), (!is_over).then_some(chunks)));
        }
    }
}

#[test]
fn a_capture_is_for_its_trace_or_its_route_and_for_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::open(directory.path()).unwrap();
    change(directory.path(), &Change::Capture(CaptureTarget::Trace(TRACE)));
    let captured = |trace: [u8; 16], path: &str, second: u64| {
        runtime.of_request(&trace, path.as_bytes(), second * SECOND).is_captured
    };
    assert!(captured(TRACE, "/", 1));
    assert!(!captured([0xac; 16], "/", 1));
    assert!(!captured(TRACE, "/", 100));
    change(directory.path(), &Change::Capture(checked_route("/v1/*").unwrap()));
    assert!(captured([0; 16], "/v1/chat", 1));
    assert!(!captured([0; 16], "/v2/chat", 1));
    assert!(!captured([0; 16], "/v1/chat", 100));
}

#[test]
fn the_errors_that_are_wanted_are_counted_down_once_by_all_threads_together() {
    let directory = tempfile::tempdir().unwrap();
    change(directory.path(), &Change::Capture(CaptureTarget::Errors(1000)));
    let taken = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let runtime = Runtime::open(directory.path()).unwrap();
                let mine = (0..600).filter(|_| runtime.take_error(SECOND)).count();
                taken.fetch_add(mine as u32, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(taken.into_inner(), 1000);
    let runtime = Runtime::open(directory.path()).unwrap();
    assert!(!found(runtime, "/").watches_errors, "no more are wanted");
}

#[test]
fn errors_are_not_taken_after_the_end_and_another_change_keeps_the_count() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::open(directory.path()).unwrap();
    change(directory.path(), &Change::Capture(CaptureTarget::Errors(2)));
    assert!(!runtime.take_error(100 * SECOND), "its time is over");
    assert!(runtime.take_error(SECOND));
    change(directory.path(), &Change::Level(5));
    assert!(found(runtime, "/").watches_errors);
    assert!(runtime.take_error(SECOND));
    assert!(!runtime.take_error(SECOND));
}

#[test]
fn a_change_without_a_record_is_no_change_and_the_record_comes_before_the_effect() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::open(directory.path()).unwrap();
    let writer = writer(directory.path());
    let refused = writer.change(&Change::Level(5), at(100), "test", |_| false).unwrap_err();
    assert!(refused.contains("nothing is changed"), "{refused}");
    assert!(!runtime.is_active());
    let reported = |_: &[u8]| {
        assert!(!runtime.is_active(), "reported before it takes effect");
        true
    };
    writer.change(&Change::Level(5), at(100), "test", reported).unwrap();
    assert_eq!(writer.reset("test", |_| false).unwrap_err(), refused);
    assert!(runtime.is_active());
    assert_eq!(writer.reset("test", |_| true), Ok(1));
    assert!(!runtime.is_active());
    assert_eq!(writer.reset("test", |_| panic!("there is nothing to report")), Ok(0));
}

#[test]
fn what_is_over_by_either_clock_or_exhausted_is_cleared_and_reported_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::open(directory.path()).unwrap();
    let writer = writer(directory.path());
    let change = |change: Change, until: Until| writer.change(&change, until, "test", |_| true).unwrap();
    change(Change::Level(5), at(10));
    change(Change::Ratio(0.5), at(20));
    // After a restart of the machine, the monotonic clock means nothing.
    change(Change::Chunks(1), Until { monotonic_nano: u64::MAX, ..at(10) });
    change(Change::Capture(CaptureTarget::Errors(1)), at(20));
    let clear = |second: u64| {
        let mut reported = 0;
        let cleared = writer.clear_over(at(second), "the leader", |_| {
            reported += 1;
            true
        });
        assert_eq!(cleared, Ok(reported));
        reported
    };
    assert!(!has_over(&runtime.settings(), at(9)));
    assert_eq!(clear(9), 0);
    assert!(has_over(&runtime.settings(), at(10)));
    assert_eq!(clear(10), 2);
    assert!(runtime.take_error(SECOND));
    assert_eq!(clear(10), 1, "the one error that was wanted has come");
    assert_eq!((runtime.settings().level, runtime.settings().ratio.is_some()), (None, true));
    assert_eq!(clear(20), 1);
    assert!(!runtime.is_active());
}

#[test]
fn only_so_many_captures_at_one_time_are_possible_and_each_keeps_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let writer = writer(directory.path());
    for second in 10..18 {
        writer.change(&Change::Capture(CaptureTarget::Errors(7)), at(second), "test", |_| true).unwrap();
    }
    let refused = writer.change(&Change::Capture(CaptureTarget::Errors(7)), at(18), "test", |_| true).unwrap_err();
    assert!(refused.starts_with("8 captures are in force"), "{refused}");
    assert_eq!(writer.clear_over(at(12), "test", |_| true), Ok(3));
    let rules = Runtime::open(directory.path()).unwrap().settings().rules;
    assert_eq!(rules.iter().filter(|rule| rule.is_none()).count(), 3);
    assert!(rules[..3].iter().all(Option::is_none) && rules[3..].iter().all(Option::is_some));
}

#[test]
fn a_writer_that_dies_before_it_publishes_has_changed_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::open(directory.path()).unwrap();
    change(directory.path(), &Change::Level(13));
    let before = runtime.settings();
    let rule = CaptureRule { id: 77, target: CaptureTarget::Route(b"/half"[..].into()) };
    let half = Settings {
        level: Some(Timed { value: 5, until: at(999) }),
        rules: std::array::from_fn(|_| Some(Timed { value: rule.clone(), until: at(999) })),
        ..Settings::default()
    };
    runtime.fill(&half, &[0; 8]);
    assert_eq!((runtime.settings(), runtime.level(SECOND)), (before, Some(13)));
    change(directory.path(), &Change::Ratio(0.5));
    assert_eq!((runtime.level(SECOND), found(runtime, "/half").is_captured), (Some(13), false));
}

#[test]
fn one_process_writes_at_a_time_and_one_that_is_killed_leaves_a_whole_change_and_no_lock() {
    if let Some(path) = child_directory() {
        let writer = writer(&path);
        for turn in 0u64.. {
            // The pair belongs together: see below.
            writer.change(&Change::Level(5 + (turn % 2) as u8), at(100 + turn), "child", |_| true).unwrap();
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::open(directory.path()).unwrap();
    let name = "runtime::one_process_writes_at_a_time_and_one_that_is_killed_leaves_a_whole_change_and_no_lock";
    for _ in 0..10 {
        let mut writing = child(name, directory.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let first = runtime.settings().level.map(|level| level.until);
        let mut seen = 0;
        while seen < 200 {
            let Some(Timed { value, until }) = runtime.settings().level else { continue };
            assert_eq!(u64::from(value - 5), (until.monotonic_nano / SECOND - 100) % 2, "half of a change");
            seen += u32::from(Some(until) != first);
        }
        assert!(Writer::try_lock(directory.path()).unwrap().is_none(), "the child has the lock");
        writing.kill().unwrap();
        writing.wait().unwrap();
        assert_eq!(writer(directory.path()).reset("test", |_| true), Ok(1));
    }
}

#[test]
fn a_reader_never_sees_a_copy_that_is_refilled_while_it_reads() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::open(directory.path()).unwrap();
    let writing = AtomicU32::new(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let writer = writer(directory.path());
            for turn in 0..6_000u32 {
                // Two changes a turn, so that each route comes into the copy of the route before.
                let letter = ["a", "b", "c"][turn as usize % 3];
                let route = checked_route(&format!("/{}", letter.repeat(127))).unwrap();
                writer.change(&Change::Capture(route), at(100), "test", |_| true).unwrap();
                writer.reset("test", |_| true).unwrap();
            }
            writing.store(0, Ordering::Relaxed);
        });
        // More readers than cores: some are suspended in the middle of a route.
        for _ in 0..4 {
            scope.spawn(|| {
                while writing.load(Ordering::Relaxed) == 1 {
                    for rule in runtime.settings().rules.into_iter().flatten() {
                        let CaptureTarget::Route(route) = rule.value.target else {
                            panic!("nobody captures anything else")
                        };
                        assert!(route.len() == 128 && route[2..].iter().all(|byte| *byte == route[1]), "{route:?}");
                    }
                }
            });
        }
    });
}

proptest! {
    #[test]
    fn a_route_is_matched_as_the_configurations_patterns_are(
        pattern in "(/(a|bb|\\{id\\})){0,3}(/\\*|/)?",
        path in "(/(a|bb|c|)){0,4}/?",
    ) {
        if let Ok(compiled) = RoutePattern::parse(&pattern) {
            prop_assert_eq!(
                route_matches(pattern.as_bytes(), path.as_bytes()),
                compiled.matches(path.as_bytes()),
                "{} against {}", pattern, path
            );
        }
    }
}
