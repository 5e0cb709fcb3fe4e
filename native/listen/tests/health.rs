//! The grading of a snapshot: each threshold, each way back, each reason in words; the memory between assessments; and
//! the answers to probes.

use listen::sink::Now;
use listen::status::health::{
    FailingSink, Health, HealthWatch, Limits, MEMORY_S, Reached, STATES, Snapshot, State, Watched, grade, liveness,
    producers, readiness,
};
use listen::status::lane::{LaneState, Source};
use proptest::prelude::*;
use queue::inspect::QueueSnapshot;
use queue::layout::{LEVELS, REASONS, Reason as DropReason, SAMPLED_OUT};
use queue::lock::Holder;
use queue::published::sinks::SinkState;
use queue::queue_file::QueueCounts;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

mod looks;

/// The defaults of the configuration.
const LIMITS: Limits = Limits {
    backlog_records: 10_000.0,
    backlog_ratio: 0.5,
    pressured_ratio: 0.5,
    clear_ratio: 0.5,
    oldest_age_s: 30.5,
    stuck_after_s: 30.0,
};

fn full() -> FailingSink {
    FailingSink { name: "file".to_owned(), state: SinkState::Failing, for_s: 12.0, error: "full".to_owned() }
}

fn seen(change: impl FnOnce(&mut Snapshot)) -> Snapshot {
    let mut snapshot = Snapshot::default();
    change(&mut snapshot);
    snapshot
}

fn graded(snapshot: Snapshot) -> Health {
    grade(snapshot, &LIMITS, &Reached::new())
}

/// One test for each snapshot: its state, and its reason; empty: there is none.
macro_rules! sights {
    ($($name:ident: $change:expr => $state:ident, $text:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let health = graded(seen($change));
                let texts: Vec<&str> = health.reasons.iter().map(|reason| reason.text.as_str()).collect();
                let expected: &[&str] = if $text.is_empty() { &[] } else { &[$text] };
                assert_eq!((health.state(), texts.as_slice()), (State::$state, expected));
            }
        )+
    };
}

sights! {
    nothing_to_say: |_| {} => Ok, "";
    records_below_the_first_threshold: |seen| seen.records = 4_999 => Ok, "";
    records_at_the_first_threshold: |seen| seen.records = 5_000 => Pressured,
        "5000 records wait for the listener; pressured from 5000, cleared at 2500";
    records_below_the_second_threshold: |seen| seen.records = 9_999 => Pressured,
        "9999 records wait for the listener; pressured from 5000, cleared at 2500";
    records_at_the_second_threshold: |seen| seen.records = 10_000 => Degraded,
        "10000 records wait for the listener; degraded from 10000, cleared at 5000";
    bytes_below_the_first_threshold: |seen| seen.fill = 0.249 => Ok, "";
    bytes_at_the_first_threshold: |seen| seen.fill = 0.25 => Pressured,
        "25% of a queue's bytes are in use; pressured from 25%, cleared at 12%";
    bytes_at_the_second_threshold: |seen| seen.fill = 0.5 => Degraded,
        "50% of a queue's bytes are in use; degraded from 50%, cleared at 25%";
    a_record_that_is_not_old_yet: |seen| seen.oldest_age_s = Some(30.4) => Ok, "";
    a_record_that_is_old: |seen| seen.oldest_age_s = Some(30.5) => Pressured,
        "the oldest record has waited 30.5 s; pressured from 30.5 s";
    a_record_that_is_a_day_old: |seen| seen.oldest_age_s = Some(86_400.0) => Pressured,
        "the oldest record has waited 86400.0 s; pressured from 30.5 s";
    a_sink_that_fails: |seen| seen.failing = vec![full()] => Pressured, "sink file is failing for 12.0 s (full)";
    a_sink_that_fails_without_a_text: |seen| seen.failing = vec![FailingSink { error: String::new(), ..full() }] =>
        Pressured, "sink file is failing for 12.0 s";
    a_named_producer_that_has_died: |seen| seen.dead_producers = vec!["m_0_1".to_owned()] => ProducerDied,
        "m_0_1 has died and has not come back";
    a_fallback_that_writes: |seen| seen.fallback = true => Pressured, "the fallback writes in the place of the sink";
    a_queue_that_is_missing: |seen| seen.queue_missing = true => Degraded,
        "the queue directory was deleted or moved, and a new queue cannot be created there yet";
    a_queue_that_has_no_room: |seen| seen.queue_refused = Some("no room".to_owned()) => Degraded,
        "no room; until one can, records that find no queue are refused and counted";
    a_queue_that_was_replaced: |seen| (seen.recent_renewals, seen.recent_s) = (1, 10.2) => Pressured,
        "the queue was replaced once within the last 10 s: its directory was deleted or moved, or its file cut";
    a_queue_that_was_replaced_again: |seen| (seen.recent_renewals, seen.recent_s) = (2, 10.2) => Pressured,
        "the queue was replaced 2 times within the last 10 s: its directory was deleted or moved, or its file cut";
    writes_that_failed: |seen| seen.recent_errors = 3 => Pressured, "3 writes failed within the last 60 s";
    records_that_were_lost: |seen| (seen.recent_drops, seen.recent_s) = (7, 10.2) => Pressured,
        "7 records were lost within the last 10 s";
    a_listener_that_hangs_not_long_enough: |seen| (seen.records, seen.stalled_s) = (1, 29.9) => Ok, "";
    a_listener_that_hangs: |seen| (seen.records, seen.stalled_s) = (1, 30.0) => Stuck,
        "the listener (here) makes no rounds for 30.0 s; stuck from 30 s, and 1 record waits";
    a_listener_that_hangs_elsewhere: |seen| {
        (seen.records, seen.stalled_s, seen.leader) = (1, 30.0, Holder::AnotherProcess);
    } => Stuck, "the listener (elsewhere) makes no rounds for 30.0 s; stuck from 30 s, and 1 record waits";
    nobody_who_listens: |seen| (seen.records, seen.stalled_s, seen.leader) = (1, 30.0, Holder::Nobody) => Stuck,
        "no process listens for 30.0 s; stuck from 30 s, and 1 record waits";
    a_listener_that_hangs_while_nothing_waits: |seen| seen.stalled_s = 31.0 => Pressured,
        "the listener (here) makes no rounds for 31.0 s; stuck from 30 s with records waiting, and none waits";
    an_external_listener_that_is_not_there_yet: |seen| {
        (seen.stalled_s, seen.leader, seen.listens) = (99.0, Holder::Nobody, false);
    } => Pressured, "listener is external and no process listens; none waits yet";
    an_external_listener_that_records_wait_for: |seen| {
        (seen.records, seen.leader, seen.listens) = (3, Holder::Nobody, false);
    } => Pressured, "listener is external and no process listens; 3 records wait until one does";
    an_external_listener_that_hangs: |seen| {
        (seen.records, seen.stalled_s, seen.leader, seen.listens) = (3, 99.0, Holder::AnotherProcess, false);
    } => Stuck, "the listener (elsewhere) makes no rounds for 99.0 s; stuck from 30 s, and 3 records wait";
}

/// One test for each snapshot: whether the process is ready, and whether it is alive.
macro_rules! readiness {
    ($($name:ident: $change:expr => $ready:literal, $alive:literal;)+) => {
        $(
            #[test]
            fn $name() {
                let health = graded(seen($change));
                assert_eq!((health.is_ready(), health.is_alive()), ($ready, $alive));
                let statuses = (readiness(&health).status, liveness(&health).status);
                assert_eq!(statuses, (if $ready { 200 } else { 503 }, if $alive { 200 } else { 503 }));
            }
        )+
    };
}

readiness! {
    ok_is_ready_and_alive: |_| {} => true, true;
    pressured_is_ready: |seen| seen.records = 5_000 => true, true;
    degraded_is_not_ready: |seen| seen.records = 10_000 => false, true;
    a_disk_that_is_full_for_a_day_and_a_queue_that_is_full_of_it_is_repaired_by_no_restart: |seen| {
        (seen.records, seen.fill, seen.oldest_age_s) = (1_000_000, 1.0, Some(86_400.0));
        (seen.failing, seen.recent_drops) = (vec![full()], 1_000_000);
    } => false, true;
    stuck_is_not_alive: |seen| (seen.records, seen.stalled_s) = (1, 30.0) => false, false;
    stuck_elsewhere_is_not_alive: |seen| {
        (seen.records, seen.stalled_s, seen.leader) = (1, 30.0, Holder::AnotherProcess);
    } => false, false;
    a_listener_that_hangs_in_a_sidecar_is_repaired_by_no_restart_of_this_process: |seen| {
        (seen.records, seen.stalled_s, seen.leader, seen.listens) = (1, 30.0, Holder::AnotherProcess, false);
    } => false, true;
    a_backlog_without_a_listener_is_ready_below_the_threshold: |seen| {
        (seen.records, seen.stalled_s, seen.leader, seen.listens) = (9_999, 30.0, Holder::Nobody, false);
    } => true, true;
    a_backlog_without_a_listener_is_not_ready_at_the_threshold: |seen| {
        (seen.records, seen.stalled_s, seen.leader, seen.listens) = (10_000, 30.0, Holder::Nobody, false);
    } => false, true;
}

/// One test for each snapshot: after how many seconds to ask again, the time in which the measured rate clears the
/// backlog.
macro_rules! retries {
    ($($name:ident: $change:expr => $seconds:literal;)+) => {
        $(
            #[test]
            fn $name() {
                assert_eq!(graded(seen($change)).retry_after_s, $seconds);
            }
        )+
    };
}

retries! {
    a_rate_that_is_not_known_is_asked_for_soon: |seen| seen.records = 10_000 => 1;
    half_of_the_backlog_takes_five_seconds: |seen| (seen.records, seen.records_per_s) = (10_000, Some(1_000.0)) => 5;
    a_part_of_a_second_counts_as_one: |seen| (seen.records, seen.records_per_s) = (10_000, Some(999.0)) => 6;
    a_high_rate_takes_a_second: |seen| (seen.records, seen.records_per_s) = (10_000, Some(1e9)) => 1;
    a_low_rate_takes_a_minute_at_most: |seen| (seen.records, seen.records_per_s) = (10_000, Some(1.0)) => 60;
    no_rate_takes_a_minute_at_most: |seen| (seen.records, seen.records_per_s) = (10_000, Some(0.0)) => 60;
    half_of_the_bytes_is_half_of_the_records_as_far_as_anyone_knows: |seen| {
        (seen.records, seen.fill, seen.records_per_s) = (100, 0.5, Some(10.0));
    } => 5;
    a_queue_that_is_not_full_takes_no_time: |seen| {
        (seen.records, seen.fill, seen.records_per_s) = (100, 0.1, Some(10.0));
    } => 1;
}

#[test]
fn the_worst_reason_decides_and_all_are_reported() {
    let health = graded(seen(|seen| {
        (seen.records, seen.fill, seen.failing, seen.fallback) = (10_000, 0.3, vec![full()], true);
    }));
    assert_eq!(health.state(), State::Degraded);
    let kinds: Vec<&str> = health.reasons.iter().map(|reason| reason.kind.as_ref()).collect();
    assert_eq!(kinds, ["records", "bytes", "sink", "fallback"]);
}

#[test]
fn the_states_stand_from_well_to_worst() {
    assert!(STATES.is_sorted());
    let names = STATES.map(State::name);
    assert_eq!(names, ["ok", "pressured", "producer_died", "degraded", "stuck"]);
}

/// Grades one snapshot after the other.
fn states(all: impl IntoIterator<Item = Snapshot>) -> Vec<State> {
    let mut reached = Reached::new();
    let grade_next = |snapshot| {
        let health = grade(snapshot, &LIMITS, &reached);
        reached = health.reached();
        health.state()
    };
    all.into_iter().map(grade_next).collect()
}

fn waiting(records: u64) -> Snapshot {
    seen(|seen| seen.records = records)
}

#[test]
fn a_threshold_that_was_reached_is_left_at_half_of_it() {
    use State::{Degraded, Ok, Pressured};
    let records = [0, 4_999, 5_000, 4_999, 2_501, 2_500, 5_000, 10_000, 9_999, 5_001, 5_000, 2_501, 2_500, 0];
    let expected = [
        [Ok, Ok, Pressured, Pressured, Pressured, Ok, Pressured],
        [Degraded, Degraded, Degraded, Pressured, Pressured, Ok, Ok],
    ];
    assert_eq!(states(records.map(waiting)), expected.concat());
    let fills = [0.5, 0.26, 0.25, 0.13, 0.125, 0.24].map(|fill| seen(|seen| seen.fill = fill));
    assert_eq!(states(fills), [Degraded, Degraded, Pressured, Pressured, Ok, Ok]);
    let ages = [31.0, 16.0, 15.25, 30.0].map(|age| seen(|seen| seen.oldest_age_s = Some(age)));
    assert_eq!(states(ages), [Pressured, Pressured, Ok, Ok]);
}

#[test]
fn a_backlog_that_swings_around_a_threshold_turns_the_answer_once() {
    let swinging = std::iter::repeat_n([10_001, 9_999], 50).flatten();
    let found = states([9_000].into_iter().chain(swinging).chain([5_001]).map(waiting));
    assert_eq!(found, [vec![State::Pressured], vec![State::Degraded; 101]].concat());
}

proptest! {
    #[test]
    fn the_state_follows_its_two_thresholds_and_nothing_between_them_turns_it(
        limit in 1u64..=1000,
        clear in 0.0..=1.0,
        pressured in 0.01..=1.0,
        backlogs in prop::collection::vec(0u64..=2000, 0..30),
    ) {
        let limits =
            Limits { backlog_records: limit as f64, clear_ratio: clear, pressured_ratio: pressured, ..LIMITS };
        let (mut reached, mut was_ready) = (Reached::new(), true);
        for records in backlogs {
            let health = grade(waiting(records), &limits, &reached);
            let is_ready = match (records >= limit, records as f64 <= limit as f64 * clear) {
                (true, false) => false,
                (false, true) => true,
                (false, false) => was_ready,
                // Reached and cleared at once, with a clear_ratio of 1.
                (true, true) => health.is_ready(),
            };
            prop_assert_eq!(health.is_ready(), is_ready, "{} records", records);
            (reached, was_ready) = (health.reached(), health.is_ready());
        }
    }

    #[test]
    fn the_state_is_the_worst_of_the_reasons(found in prop::collection::vec(prop::sample::select(&STATES), 0..4)) {
        let health = graded(seen(|seen| {
            seen.records = if found.contains(&State::Degraded) { 10_000 } else { 1 };
            seen.fallback = found.contains(&State::Pressured);
            seen.dead_producers = found.iter().filter(|state| **state == State::ProducerDied).map(|_| "m".into()).collect();
            seen.stalled_s = if found.contains(&State::Stuck) { 30.0 } else { 0.0 };
        }));
        prop_assert_eq!(health.state(), found.into_iter().max().unwrap_or(State::Ok));
    }
}

// The bodies of the answers: as Python's `json.dumps` writes them.

#[test]
fn an_answer_has_the_state_its_reasons_and_what_was_seen() {
    let health = graded(seen(|seen| {
        (seen.records, seen.fill, seen.oldest_age_s) = (10_000, 0.123_45, Some(1.234_56));
        (seen.stalled_s, seen.leader, seen.listens) = (2.0, Holder::AnotherProcess, false);
        (seen.failing, seen.fallback, seen.dead_producers) = (vec![full()], true, vec!["m_0_1".to_owned()]);
        seen.records_per_s = Some(1_000.0);
    }));
    let answer = readiness(&health);
    assert_eq!((answer.status, answer.retry_after_s), (503, 5));
    let expected = concat!(
        r#"{"status": "degraded", "reasons": ["10000 records wait for the listener; degraded from 10000, cleared at 5000", "#,
        r#""sink file is failing for 12.0 s (full)", "the fallback writes in the place of the sink", "#,
        r#""m_0_1 has died and has not come back"], "backlog_records": 10000, "fill_ratio": 0.1235, "#,
        r#""oldest_age_s": 1.235, "listener": {"configured": "external", "leader": "elsewhere", "#,
        r#""since_last_round_s": 2.0}, "failing_sinks": [{"name": "file", "state": "failing", "for_s": 12.0, "#,
        r#""error": "full"}], "fallback_active": true, "dead_producers": ["m_0_1"]}"#,
    );
    assert_eq!(answer.body, expected);
    assert_eq!(liveness(&health).body, expected);
}

#[test]
fn an_answer_where_nothing_is_to_be_said_has_the_same_keys() {
    let answer = readiness(&graded(Snapshot::default()));
    let expected = concat!(
        r#"{"status": "ok", "reasons": [], "backlog_records": 0, "fill_ratio": 0.0, "oldest_age_s": null, "#,
        r#""listener": {"configured": "thread", "leader": "here", "since_last_round_s": 0.0}, "failing_sinks": [], "#,
        r#""fallback_active": false, "dead_producers": []}"#,
    );
    assert_eq!((answer.status, answer.body.as_str(), answer.retry_after_s), (200, expected, 1));
}

#[test]
fn the_answer_for_who_starts_processes_again_names_those_that_have_died() {
    let answer = producers(&graded(Snapshot::default()));
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"status": "ok", "dead_producers": []}"#));
    let answer = producers(&graded(seen(|seen| seen.dead_producers = vec!["a".to_owned(), "b".to_owned()])));
    let expected = r#"{"status": "producer_died", "dead_producers": ["a", "b"]}"#;
    assert_eq!((answer.status, answer.body.as_str()), (503, expected));
}

proptest! {
    #[test]
    fn any_name_and_any_number_is_valid_json_in_ascii(name in any::<String>(), for_s in 0.0..1e9, fill in 0.0..1.0) {
        let sink = FailingSink { name: name.clone(), for_s, error: name.clone(), ..full() };
        let health = graded(seen(|seen| {
            (seen.failing, seen.fill, seen.dead_producers) = (vec![sink], fill, vec![name.clone()]);
        }));
        let body = readiness(&health).body;
        prop_assert!(body.is_ascii());
        let value: Value = serde_json::from_str(&body).unwrap();
        prop_assert_eq!(value["failing_sinks"][0]["name"].as_str(), Some(name.as_str()));
        prop_assert_eq!(value["failing_sinks"][0]["for_s"].as_f64(), Some(for_s));
        prop_assert_eq!(value["dead_producers"][0].as_str(), Some(name.as_str()));
    }
}

#[test]
fn what_is_not_ascii_is_escaped_as_python_escapes_it() {
    let name = "a\"\\\n\r\t\u{8}\u{c}\u{1}\u{7f}é…😀".to_owned();
    let body = producers(&graded(seen(|seen| seen.dead_producers = vec![name]))).body;
    let escaped = "a\\\"\\\\\\n\\r\\t\\b\\f\\u0001\u{7f}\\u00e9\\u2026\\ud83d\\ude00";
    assert_eq!(body, format!(r#"{{"status": "producer_died", "dead_producers": ["{escaped}"]}}"#));
}
