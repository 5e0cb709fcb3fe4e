//! The slots of requests in flight under every interleaving and every value that a weak memory model allows.
//!
//! Run with `make test-loom`. These tests fail when an ordering is made Relaxed:
//! * the store in `open` or the exchange in `claim`: `of_two_who_end_a_request_one_does_and_sees_its_facts`;
//! * the store in `progress` or the load in `read_progress`: `a_number_of_chunks_is_seen_with_its_progress`;
//! * the exchange in `give_back` or in `take`: `a_slot_that_is_given_back_is_seen_as_it_was_left`.

use inferlog_ring::slots::{FACTS, FreeSlots, LastRecord, Progress, SLOT_WORDS, Slot, Slots, end_request};
use inferlog_ring::{Peek, Ring};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

struct Words {
    head: AtomicU64,
    tail: AtomicU64,
    ring: Vec<AtomicU64>,
    slots: Vec<AtomicU64>,
}

impl Words {
    fn new(slots: usize) -> Arc<Self> {
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        let (head, tail) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { head, tail, ring: words(16), slots: words(slots * SLOT_WORDS) })
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.head, &self.tail, &self.ring)
    }

    fn slot(&self, index: u32) -> Slot<'_> {
        Slots::new(&self.slots).get(index as usize).unwrap()
    }
}

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

/// Ends the request in a slot if it is open and no other thread does; returns its fact.
fn end(words: &Words) -> bool {
    let slot = words.slot(0);
    if !slot.claim() {
        return false;
    }
    let payload = slot.words()[FACTS..][0].load(Ordering::Relaxed).to_le_bytes().to_vec();
    let record = LastRecord { event: 2, severity: 9, time_unix_nano: 1, payload };
    assert!(end_request(slot, words.ring(), &record, |_| ()));
    true
}

#[test]
fn of_two_who_end_a_request_one_does_and_sees_its_facts() {
    model(4, || {
        let words = Words::new(1);
        let other = {
            let words = Arc::clone(&words);
            thread::spawn(move || end(&words))
        };
        words.slot(0).words()[FACTS..][0].store(7, Ordering::Relaxed);
        words.slot(0).open();
        let (here, there) = (end(&words), other.join().unwrap());
        assert!(here != there, "exactly one: {here} {there}");
        let Peek::Record { record, next } = words.ring().peek(0) else { panic!("no record") };
        assert_eq!(record.payload.as_ref(), 7u64.to_le_bytes());
        assert_eq!(words.ring().peek(next), Peek::Empty);
        assert!(!words.slot(0).is_taken());
    });
}

#[test]
fn a_number_of_chunks_is_seen_with_its_progress() {
    model(4, || {
        let words = Words::new(1);
        words.slot(0).open();
        let writer = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.slot(0).progress(Progress { chunks: 1, bytes: 10, last_chunk: 100 }))
        };
        let seen = words.slot(0).read_progress();
        assert_eq!((seen.bytes, seen.last_chunk), (seen.chunks * 10, seen.chunks * 100));
        writer.join().unwrap();
        assert_eq!(words.slot(0).read_progress(), Progress { chunks: 1, bytes: 10, last_chunk: 100 });
    });
}

#[test]
fn a_slot_that_is_given_back_is_seen_as_it_was_left() {
    model(3, || {
        let words = Words::new(1);
        let free = Arc::new(FreeSlots::all(1));
        let run = |words: Arc<Words>, free: Arc<FreeSlots>| {
            let Some(index) = free.take() else { return 0 };
            let fact = &words.slot(index).words()[FACTS..][0];
            let before = fact.load(Ordering::Relaxed);
            fact.store(before + 1, Ordering::Relaxed);
            free.give_back(index);
            1
        };
        let other = {
            let (words, free) = (Arc::clone(&words), Arc::clone(&free));
            thread::spawn(move || run(words, free))
        };
        let here = run(Arc::clone(&words), Arc::clone(&free));
        let there = other.join().unwrap();
        assert_eq!(words.slot(0).words()[FACTS..][0].load(Ordering::Relaxed), here + there, "nobody's change is lost");
        assert_eq!(free.take(), Some(0));
        assert_eq!(free.take(), None);
    });
}

#[test]
fn two_threads_never_hold_the_same_slot() {
    model(3, || {
        let free = Arc::new(FreeSlots::all(2));
        let held = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let run = |free: &FreeSlots, held: &[AtomicU64; 2]| {
            for _ in 0..2 {
                let index = free.take().expect("there are two slots for two threads");
                assert_eq!(held[index as usize].fetch_add(1, Ordering::Relaxed), 0);
                held[index as usize].fetch_sub(1, Ordering::Relaxed);
                free.give_back(index);
            }
        };
        let other = {
            let (free, held) = (Arc::clone(&free), Arc::clone(&held));
            thread::spawn(move || run(&free, &held))
        };
        run(&free, &held);
        other.join().unwrap();
    });
}

#[test]
fn a_stack_that_changed_and_changed_back_is_not_taken_for_the_same_one() {
    model(3, || {
        let free = Arc::new(FreeSlots::all(3));
        let other = {
            let free = Arc::clone(&free);
            thread::spawn(move || free.take())
        };
        let (first, second) = (free.take().expect("there are three"), free.take().expect("there are three"));
        free.give_back(first);
        let there = other.join().unwrap().expect("there are three");
        let mut all = vec![there, second];
        all.extend(std::iter::from_fn(|| free.take()));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2], "each is held once");
    });
}
