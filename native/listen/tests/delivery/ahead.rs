//! Additional sinks continue while the primary takes nothing, and still get each record once.

use super::named;
use crate::support::{INFO, Memory, dense, emit, listener_settings, numbers, open_producer, wait_until};
use listen::delivery::{Delivery, Sinks};
use listen::leader::{Leader, ListenerSettings};
use listen::sink::Now;
use proptest::prelude::*;
use queue::control::Control;
use queue::producer::Producer;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tempfile::TempDir;

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
