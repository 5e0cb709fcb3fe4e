//! Records while sinks fail, hang, recover, and replace each other.

mod copies;
mod damage;

use crate::support::{INFO, Memory, dense, emit, listener_settings, numbers, open_producer};
use listen::delivery::{Delivery, NamedSink, Sinks};
use listen::leader::{Leader, ListenerSettings, Round};
use listen::sink::{Now, Sink};
use proptest::prelude::*;
use queue::control::Control;
use queue::producer::Producer;
use queue::published::sinks::{SinkState, SinkWords};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tempfile::TempDir;

const DELAY: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(1);

/// A queue directory with a leader that has a primary and a fallback, driven by hand.
struct Pair {
    directory: TempDir,
    primary: Memory,
    fallback: Memory,
    leader: Leader,
    now: Now,
    producer: Producer,
    event: u16,
    emitted: u64,
}

fn named(name: &str, sink: impl Sink + 'static) -> NamedSink {
    NamedSink { name: name.to_owned(), sink: Box::new(sink) }
}

fn sinks(primary: &Memory, fallback: &Memory) -> Sinks {
    let fallback = Some(named("fallback", fallback.clone()));
    Sinks { fallback, fallback_delay: DELAY, ..primary.sinks() }
}

fn settings(directory: &Path) -> ListenerSettings {
    // Small batches, so that they differ from each other.
    ListenerSettings { flush_bytes: 600, ..listener_settings(directory) }
}

impl Pair {
    fn new(deliver: impl FnOnce(Sinks, Control, Now) -> Delivery) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (primary, fallback) = (Memory::default(), Memory::default());
        let now = Now { unix_nano: 1_000_000_000, monotonic: Duration::from_secs(1) };
        let control = Control::open(directory.path()).unwrap();
        let delivery = deliver(sinks(&primary, &fallback), control, now);
        let leader = Leader::new(settings(directory.path()), control, delivery, now);
        let (producer, event) = open_producer(directory.path());
        Self { directory, primary, fallback, leader, now, producer, event, emitted: 0 }
    }

    fn here() -> Self {
        Self::new(Delivery::here)
    }

    fn emit(&mut self, count: u64) {
        for _ in 0..count {
            assert!(emit(&self.producer, self.event, INFO, 0, self.emitted));
            self.emitted += 1;
        }
    }

    fn round(&mut self, later: Duration) -> Round {
        self.now.monotonic += later;
        self.now.unix_nano += later.as_nanos() as u64;
        self.leader.round(self.now, true)
    }

    /// Rounds until nothing is left, retries included.
    fn drain(&mut self) {
        let mut later = TICK;
        while self.in_queue() > 0 || self.leader.has_work() {
            match self.round(later) {
                Round::Idle(pause) => later = pause,
                Round::Wrote => later = TICK,
            }
        }
    }

    fn in_queue(&self) -> u64 {
        self.producer.queue().unwrap().file.counts().in_queue
    }

    fn rows(&self) -> &'static [SinkWords] {
        &Control::open(self.directory.path()).unwrap().page().sinks
    }

    fn fallback_active(&self) -> bool {
        Control::open(self.directory.path()).unwrap().page().fallback_active.load(Ordering::Relaxed) != 0
    }

    fn change_leader(&mut self, settle: bool) {
        let control = Control::open(self.directory.path()).unwrap();
        let delivery = Delivery::here(sinks(&self.primary, &self.fallback), control, self.now);
        let next = Leader::new(settings(self.directory.path()), control, delivery, self.now);
        let last = std::mem::replace(&mut self.leader, next);
        if settle {
            last.close(self.now);
        }
    }
}

/// The named events of a sink, in order.
fn reported(sink: &Memory) -> Vec<Value> {
    let lines = sink.lines().into_iter();
    lines.filter(|line| line["event_name"].as_str().unwrap().starts_with("sink.")).collect()
}

fn names(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["event_name"].as_str().unwrap()).collect()
}

#[test]
fn the_fallback_takes_over_after_the_delay_and_not_before() {
    let mut pair = Pair::here();
    pair.emit(3);
    pair.primary.taken().faults.extend([0; 100]);
    while pair.now.monotonic < Duration::from_secs(4) - TICK {
        let Round::Idle(pause) = pair.round(TICK) else { panic!("too early, at {:?}", pair.now.monotonic) };
        assert!(!pair.fallback_active() && pair.fallback.lines().is_empty());
        // As the listener does: it checks again when it is woken, or when the sink is ready.
        pair.now.monotonic +=
            pause.min(Duration::from_secs(4).saturating_sub(pair.now.monotonic)).saturating_sub(TICK * 2);
    }
    while pair.now.monotonic < Duration::from_secs(4) + TICK * 3 {
        pair.round(TICK);
    }
    assert_eq!(numbers(&pair.fallback.lines(), 0), dense(3));
    assert!(pair.fallback_active());
    assert_eq!(pair.in_queue(), 0, "its success frees the queue");
    assert_eq!(pair.rows()[0].state(), SinkState::Failing);
}

#[test]
fn the_primary_is_handed_back_the_first_batch_that_it_takes_and_the_log_says_all_of_it() {
    let mut pair = Pair::here();
    pair.emit(2);
    pair.primary.taken().faults.extend([0; 10]);
    pair.drain();
    assert!(pair.fallback_active());
    pair.emit(1);
    pair.drain();
    assert!(names(&reported(&pair.fallback)).starts_with(&["sink.failed", "sink.fallback"]));
    assert_eq!(reported(&pair.fallback)[0]["error.message"], "on command");
    assert_eq!(reported(&pair.fallback)[1]["reason"], "failing");
    assert!(reported(&pair.fallback)[1].get("in_both").is_none(), "nothing can stand in both");
    pair.primary.taken().faults.clear();
    pair.now.monotonic += Duration::from_secs(6);
    pair.emit(2);
    pair.drain();
    pair.round(TICK);
    assert!(!pair.fallback_active());
    assert_eq!(numbers(&pair.fallback.lines(), 0), [0, 1, 2]);
    assert_eq!(numbers(&pair.primary.lines(), 0), [3, 4]);
    let last = reported(&pair.primary).pop().unwrap();
    assert_eq!((&last["event_name"], &last["sink"]), (&json!("sink.recovered"), &json!("memory")));
    assert!(last["failed_s"].as_f64().unwrap() > 6.0 && last["errors"].as_u64().unwrap() >= 5);
    assert_eq!(last["fallback_records"], 5, "three records, and two about the sink");
    assert_eq!(pair.rows()[0].state(), SinkState::Ok);
}

#[test]
fn of_a_batch_that_failed_in_the_middle_the_fallback_gets_the_rest_only() {
    let mut pair = Pair::here();
    pair.emit(4);
    pair.primary.taken().faults.extend([2]);
    pair.primary.taken().faults.extend([0; 50]);
    pair.drain();
    assert_eq!(numbers(&pair.primary.lines(), 0), [0, 1]);
    assert_eq!(numbers(&pair.fallback.lines(), 0), [2, 3]);
}

#[test]
fn a_fallback_that_fails_too_keeps_everything_in_the_queue() {
    let mut pair = Pair::here();
    pair.emit(3);
    pair.primary.taken().faults.extend([0; 10_000]);
    pair.fallback.taken().faults.extend([0; 10_000]);
    for _ in 0..50 {
        let Round::Idle(pause) = pair.round(TICK) else { panic!("neither takes anything") };
        pair.now.monotonic += pause;
    }
    assert_eq!(pair.in_queue(), 3);
    assert_eq!([0, 1].map(|row| pair.rows()[row].state()), [SinkState::Failing; 2]);
    pair.fallback.taken().faults.clear();
    pair.drain();
    assert_eq!(numbers(&pair.fallback.lines(), 0), dense(3));
}

#[test]
fn a_shutdown_does_not_wait_for_the_delay() {
    let mut pair = Pair::here();
    pair.emit(3);
    pair.primary.taken().faults.extend([0; 100]);
    pair.round(TICK);
    assert_eq!(pair.in_queue(), 3);
    pair.leader.hurry(Duration::from_millis(100));
    pair.round(Duration::from_millis(51));
    assert_eq!(numbers(&pair.fallback.lines(), 0), dense(3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Two sinks that stop after any number of lines at any time, and leaders that end in between.
    #[test]
    fn primary_and_fallback_together_have_each_record_once(
        primary in prop::collection::vec(0..6usize, 0..40),
        fallback in prop::collection::vec(0..6usize, 0..10),
        rounds in prop::collection::vec((0..6u64, 0..4000u64, any::<bool>()), 1..25),
    ) {
        let mut pair = Pair::here();
        pair.primary.taken().faults.extend(primary);
        pair.fallback.taken().faults.extend(fallback);
        for (count, later, change) in rounds {
            pair.emit(count);
            pair.round(Duration::from_millis(later));
            if change {
                pair.change_leader(true);
            }
        }
        pair.drain();
        let mut found = numbers(&pair.primary.lines(), 0);
        found.extend(numbers(&pair.fallback.lines(), 0));
        found.sort_unstable();
        prop_assert_eq!(found, dense(pair.emitted));
        let rows = pair.rows();
        let written: u64 = rows[..2].iter().map(|row| row.records_written.load(Ordering::Relaxed)).sum();
        prop_assert_eq!(written as usize, pair.primary.lines().len() + pair.fallback.lines().len());
    }
}
