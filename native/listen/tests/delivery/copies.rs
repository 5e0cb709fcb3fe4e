//! Additional sinks: each at its own pace, without delaying another sink or the queue.

use super::{named, reported};
use crate::support::{
    INFO, Memory, PATIENCE, dense, emit, emit_each, listener_settings, numbers, open_producer, wait_until,
};
use listen::delivery::{Delivery, Sinks};
use listen::leader::{Leader, ListenerSettings};
use listen::listener::Listener;
use listen::sink::Now;
use proptest::prelude::*;
use queue::control::Control;
use queue::producer::Producer;
use queue::published::sinks::{SinkRole, SinkState};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

struct Trio {
    directory: TempDir,
    primary: Memory,
    copies: [Memory; 2],
    leader: Leader,
    producer: Producer,
    event: u16,
    emitted: u64,
}

impl Trio {
    fn new(buffer_bytes: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (primary, copies) = (Memory::default(), [Memory::default(), Memory::default()]);
        let control = Control::open(directory.path()).unwrap();
        let now = listen::sink::Now::read();
        let additional = vec![named("first", copies[0].clone()), named("second", copies[1].clone())];
        let sinks = Sinks { additional, buffer_bytes, ..primary.sinks() };
        let leader =
            Leader::new(listener_settings(directory.path()), control, Delivery::here(sinks, control, now), now);
        let (producer, event) = open_producer(directory.path());
        Self { directory, primary, copies, leader, producer, event, emitted: 0 }
    }

    fn write(&mut self, count: u64) {
        for _ in 0..count {
            assert!(emit(&self.producer, self.event, INFO, 0, self.emitted));
            self.emitted += 1;
        }
        self.leader.round(listen::sink::Now::read(), true);
        assert_eq!(self.producer.queue().unwrap().file.counts().in_queue, 0, "the queue waits for no copy");
    }

    fn dropped(&self, row: usize) -> u64 {
        let page = Control::open(self.directory.path()).unwrap().page();
        page.sinks[row].records_dropped.load(Ordering::Relaxed)
    }
}

#[test]
fn every_sink_gets_every_line_in_order() {
    let mut trio = Trio::new(1 << 20);
    (0..5).for_each(|_| trio.write(3));
    for copy in &trio.copies {
        wait_until("the copy is there", || copy.taken().bytes.len() == trio.primary.taken().bytes.len());
        assert_eq!(copy.taken().bytes, trio.primary.taken().bytes);
    }
    let page = Control::open(trio.directory.path()).unwrap().page();
    let rows: Vec<_> = page.sinks[..4].iter().map(|row| (row.role(), row.name())).collect();
    let additional = Some(SinkRole::Additional);
    let expected = [(Some(SinkRole::Primary), "memory"), (additional, "first"), (additional, "second"), (None, "")];
    assert_eq!(rows, expected.map(|(role, name)| (role, name.to_owned())));
    assert_eq!(page.sinks[1].records_written.load(Ordering::Relaxed), 15);
}

#[test]
fn a_copy_that_hangs_drops_and_counts_for_itself_alone_and_is_reported_when_it_recovers() {
    let mut trio = Trio::new(2000);
    let (resume, wait) = channel::<()>();
    let (enter, entered) = channel();
    let wait = Mutex::new(wait);
    trio.copies[0].taken().before_write = Some(Box::new(move |_| {
        let _ = enter.send(());
        let _ = wait.lock().unwrap().recv();
    }));
    trio.write(1);
    entered.recv_timeout(PATIENCE).unwrap();
    for n in 1..41 {
        wait_until("the other has all so far", || numbers(&trio.copies[1].lines(), 0) == dense(n));
        trio.write(1);
    }
    assert_eq!(numbers(&trio.primary.lines(), 0), dense(41));
    let dropped = trio.dropped(1);
    assert!((1..41).contains(&dropped), "{dropped}");
    assert_eq!(trio.dropped(2), 0);

    drop(resume);
    wait_until("the gap is reported", || !reported(&trio.copies[0]).is_empty());
    trio.write(1);
    wait_until("it goes on", || numbers(&trio.copies[0].lines(), 0).last() == Some(&41));
    let lines = trio.copies[0].lines();
    let mut expected = dense(41 - dropped);
    expected.push(41);
    assert_eq!(numbers(&lines, 0), expected, "each line once, the newest dropped");
    let reported = reported(&trio.copies[0]);
    assert_eq!((&reported[0]["event_name"], &reported[0]["dropped"]), (&"sink.dropped".into(), &dropped.into()));
    assert_eq!(lines[lines.len() - 2], reported[0], "where the gap is");
    assert!(super::reported(&trio.primary).is_empty() && super::reported(&trio.copies[1]).is_empty());
}

#[test]
fn a_copy_that_fails_is_tried_again_and_has_each_line_once() {
    let mut trio = Trio::new(1 << 20);
    trio.copies[0].taken().faults.extend([0, 1, 0, 2]);
    trio.write(5);
    wait_until("all of it", || numbers(&trio.copies[0].lines(), 0).len() == 5);
    assert_eq!(numbers(&trio.copies[0].lines(), 0), dense(5));
    let row = &Control::open(trio.directory.path()).unwrap().page().sinks[1];
    wait_until("it is well", || row.state() == SinkState::Ok);
    assert_eq!(row.errors().map(|(_, count)| count).sum::<u64>(), 4);
    assert_eq!(row.records_written.load(Ordering::Relaxed), 5);
}

#[test]
fn a_stop_writes_what_the_copies_still_have_and_counts_what_it_cannot() {
    let directory = tempfile::tempdir().unwrap();
    let (producer, event) = open_producer(directory.path());
    let (primary, well, hung) = (Memory::default(), Memory::default(), Memory::default());
    let (resume, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    hung.taken().before_write = Some(Box::new(move |_| {
        let _ = wait.lock().unwrap().recv();
    }));
    let additional = vec![named("well", well.clone()), named("hung", hung.clone())];
    let mut sinks = Some(Sinks { additional, ..primary.sinks() });
    let open = Box::new(move || sinks.take().ok_or_else(String::new));
    let queue = Arc::clone(&producer.queue().unwrap().file);
    let own = (queue, Control::open(directory.path()).unwrap());
    let listener = Listener::start(listener_settings(directory.path()), open, own, Box::new(|| ())).unwrap();
    emit_each(&producer, event, 0, 0..9);
    producer.close();
    assert!(listener.stop(PATIENCE), "a copy that hangs does not hold up the end");
    assert_eq!(numbers(&primary.lines(), 0), dense(9));
    assert_eq!(numbers(&well.lines(), 0), dense(9));
    let page = Control::open(directory.path()).unwrap().page();
    assert_eq!(page.sinks[1].records_dropped.load(Ordering::Relaxed), 0);
    drop(resume);
}

// Additional sinks continue while the primary takes nothing, and still get each record once.

/// A primary without a fallback, and one additional sink; time goes by hand.
struct Bench {
    directory: TempDir,
    primary: Memory,
    copy: Memory,
    leader: Option<Leader>,
    now: Now,
    producer: Producer,
    event: u16,
    emitted: u64,
}

fn lead(directory: &Path, primary: &Memory, copy: &Memory, now: Now) -> Leader {
    let control = Control::open(directory).unwrap();
    let sinks = Sinks { additional: vec![named("copy", copy.clone())], ..primary.sinks() };
    let settings = ListenerSettings { flush_bytes: 600, ..listener_settings(directory) };
    Leader::new(settings, control, Delivery::here(sinks, control, now), now)
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let now = Now { unix_nano: 1_000_000_000, monotonic: Duration::from_secs(1) };
        let (primary, copy) = (Memory::default(), Memory::default());
        let leader = Some(lead(directory.path(), &primary, &copy, now));
        let (producer, event) = open_producer(directory.path());
        Self { directory, primary, copy, leader, now, producer, event, emitted: 0 }
    }

    fn emit(&mut self, count: u64) {
        for _ in 0..count {
            assert!(emit(&self.producer, self.event, INFO, 0, self.emitted));
            self.emitted += 1;
        }
    }

    fn round(&mut self, later: Duration) {
        self.now.monotonic += later;
        self.now.unix_nano += later.as_nanos() as u64;
        self.leader.as_mut().unwrap().round(self.now, true);
    }

    /// The copy's thread writes its lines first: a leader that closes waits for it only for a limited real time.
    fn change_leader(&mut self) {
        let given = self.producer.queue().unwrap().file.header().copied_sequence.load(Ordering::Relaxed);
        wait_until("the copy has what it was given", || self.copied().len() as u64 >= given);
        self.leader.take().unwrap().close(self.now);
        self.leader = Some(lead(self.directory.path(), &self.primary, &self.copy, self.now));
    }

    /// Lets the primary take everything; the copy's thread needs real time.
    fn drain(&mut self) {
        self.primary.taken().faults.clear();
        while !self.is_drained() {
            self.round(Duration::from_secs(6));
        }
        let emitted = self.emitted;
        wait_until("the copy has as many", || self.copied().len() as u64 >= emitted);
    }

    fn is_drained(&self) -> bool {
        self.producer.queue().unwrap().file.counts().in_queue == 0
    }

    fn copied(&self) -> Vec<u64> {
        numbers(&self.copy.lines(), 0)
    }
}

#[test]
fn an_additional_sink_goes_on_while_the_primary_fails() {
    let mut bench = Bench::new();
    bench.primary.taken().faults.extend([0; 100]);
    bench.emit(3);
    bench.round(Duration::ZERO);
    bench.emit(40);
    for _ in 0..40 {
        bench.round(Duration::from_millis(50));
    }
    wait_until("the copy has what came since", || bench.copied() == dense(43));
    assert!(bench.primary.lines().is_empty() && !bench.is_drained());
    bench.emit(5);
    bench.drain();
    assert_eq!(numbers(&bench.primary.lines(), 0), dense(48));
    assert_eq!(bench.copied(), dense(48), "each record once");
}

#[test]
fn the_next_leader_does_not_copy_again_what_the_last_one_did() {
    let mut bench = Bench::new();
    bench.primary.taken().faults.extend([0; 100]);
    bench.emit(3);
    bench.round(Duration::ZERO);
    bench.emit(10);
    (0..20).for_each(|_| bench.round(Duration::from_millis(50)));
    wait_until("the copy has what came since", || bench.copied() == dense(13));
    bench.change_leader();
    bench.emit(2);
    bench.drain();
    assert_eq!(bench.copied(), dense(15));
    assert_eq!(numbers(&bench.primary.lines(), 0), dense(15));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn primary_and_additional_sink_have_each_record_once_each_whatever_fails(
        faults in prop::collection::vec(0..6usize, 0..60),
        rounds in prop::collection::vec((0..12u64, 0..2000u64, 0..8u8), 1..25),
    ) {
        let mut bench = Bench::new();
        bench.primary.taken().faults.extend(faults);
        for (count, later, change) in rounds {
            bench.emit(count);
            bench.round(Duration::from_millis(later));
            if change == 0 {
                bench.change_leader();
            }
        }
        bench.drain();
        prop_assert_eq!(numbers(&bench.primary.lines(), 0), dense(bench.emitted));
        prop_assert_eq!(bench.copied(), dense(bench.emitted));
    }
}
