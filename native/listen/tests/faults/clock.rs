//! Clocks that are set: ages use the monotonic clock, names and timestamps the wall clock.

use crate::support::{self, INFO, dense, emit, listener_settings, numbers, open_producer};
use listen::delivery::{Delivery, Sinks};
use listen::leader::Leader;
use listen::sink::file::{FileSink, FileSinkConfig};
use listen::sink::{Now, Sink};
use queue::control::Control;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

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
