//! Sinks that hang: a write that returns only when the test lets it.

use super::{DELAY, Pair, TICK, names, reported};
use crate::support::{PATIENCE, dense, numbers, wait_until};
use listen::delivery::Delivery;
use listen::leader::Round;
use queue::control::Control;
use queue::published::sinks::SinkState;
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A pair whose sinks have threads of their own.
fn threaded() -> (Pair, Receiver<()>) {
    let (alive, ended) = channel();
    (Pair::new(|sinks, control, now| Delivery::start(sinks, control, now, &alive)), ended)
}

/// The next writes of the sink hang, each until something is sent, or all until the sender is dropped.
fn hang(sink: &super::Memory) -> (Sender<()>, Receiver<()>) {
    let ((resume, wait), (enter, entered)) = (channel::<()>(), channel());
    let wait = Mutex::new(wait);
    sink.taken().before_write = Some(Box::new(move |_| {
        let _ = enter.send(());
        let _ = wait.lock().unwrap().recv();
    }));
    (resume, entered)
}

impl Pair {
    /// Rounds at a standing clock until `reached`; answers of threads come when they like.
    fn rounds_until(&mut self, what: &str, mut reached: impl FnMut(&Self) -> bool) {
        wait_until(what, || {
            self.round(Duration::ZERO);
            reached(self)
        });
    }
}

#[test]
fn the_leader_goes_round_while_its_sink_hangs() {
    let (mut pair, _ended) = threaded();
    let (resume, entered) = hang(&pair.primary);
    pair.emit(1);
    assert!(matches!(pair.round(TICK), Round::Idle(_)));
    entered.recv_timeout(PATIENCE).unwrap();
    let page = Control::open(pair.directory.path()).unwrap().page();
    for _ in 0..3 {
        assert!(matches!(pair.round(Duration::from_millis(900)), Round::Idle(_)));
        assert_eq!(page.heartbeat_unix_nano.load(Ordering::Relaxed), pair.now.unix_nano);
    }
    assert_eq!(pair.rows()[0].state(), SinkState::Hung);
    assert_eq!(pair.in_queue(), 1);
    drop(resume);
    pair.rounds_until("written", |pair| pair.in_queue() == 0);
    assert_eq!(pair.rows()[0].state(), SinkState::Ok);
    assert_eq!(numbers(&pair.primary.lines(), 0), [0]);
    assert!(pair.fallback.lines().is_empty());
}

#[test]
fn the_fallback_takes_a_batch_that_hangs_and_the_log_says_which_records_can_stand_in_both() {
    let (mut pair, _ended) = threaded();
    let (resume, entered) = hang(&pair.primary);
    pair.emit(3);
    pair.round(TICK);
    entered.recv_timeout(PATIENCE).unwrap();
    pair.round(DELAY - TICK);
    assert!(pair.fallback.lines().is_empty(), "not before the delay");
    pair.round(TICK);
    pair.rounds_until("the fallback has them", |pair| pair.in_queue() == 0);
    assert_eq!(numbers(&pair.fallback.lines(), 0), dense(3));
    pair.emit(2);
    pair.rounds_until("more of them", |pair| pair.in_queue() == 0);
    pair.rounds_until("the notices", |pair| reported(&pair.fallback).len() == 2);
    let lines = reported(&pair.fallback);
    assert_eq!(names(&lines), ["sink.failed", "sink.fallback"]);
    assert_eq!((&lines[0]["error.type"], &lines[1]["reason"]), (&json!("hung"), &json!("hung")));
    let boot_id = format!("{:016x}", pair.producer.queue().unwrap().file.header().boot_id);
    let span = json!([{"boot_id": boot_id, "pid": std::process::id(), "first": 0, "last": 2, "records": 3}]);
    assert_eq!(lines[1]["in_both"], span);

    drop(resume);
    pair.rounds_until("it comes back", |pair| !pair.fallback_active());
    pair.emit(2);
    pair.rounds_until("the primary has the rest", |pair| pair.in_queue() == 0);
    assert_eq!(numbers(&pair.fallback.lines(), 0), dense(5));
    assert_eq!(numbers(&pair.primary.lines(), 0), [0, 1, 2, 5, 6], "the first three in both, as was said");
    assert_eq!(names(&reported(&pair.primary)), ["sink.recovered"]);
}

#[test]
fn a_fallback_that_hangs_gives_the_batch_back_to_a_primary_that_recovered() {
    let (mut pair, _ended) = threaded();
    let (resume_primary, entered) = hang(&pair.primary);
    let (resume_fallback, fallback_entered) = hang(&pair.fallback);
    pair.emit(1);
    pair.round(TICK);
    entered.recv_timeout(PATIENCE).unwrap();
    pair.round(DELAY);
    fallback_entered.recv_timeout(PATIENCE).unwrap();
    drop(resume_primary);
    pair.rounds_until("the primary is back", |pair| pair.rows()[0].state() == SinkState::Ok);
    assert_eq!(pair.in_queue(), 1);
    pair.round(DELAY);
    pair.rounds_until("the primary has it", |pair| pair.in_queue() == 0);
    assert_eq!(numbers(&pair.primary.lines(), 0), [0, 0], "the hung write, and the one after it");
    drop(resume_fallback);
}

#[test]
fn a_leader_ends_while_its_sink_hangs_and_the_next_one_has_the_records() {
    let (mut pair, ended) = threaded();
    let (resume, entered) = hang(&pair.primary);
    pair.emit(2);
    pair.round(TICK);
    entered.recv_timeout(PATIENCE).unwrap();
    pair.primary = super::Memory::default();
    pair.change_leader(true);
    assert_eq!(pair.in_queue(), 2);
    pair.drain();
    assert_eq!(numbers(&pair.primary.lines(), 0), dense(2));
    drop(resume);
    assert!(ended.recv_timeout(PATIENCE).is_err());
}
