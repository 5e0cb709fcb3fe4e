//! The models that loom explores: every interleaving of the ring and of the slots, as one program.
//!
//! The ring protocol under every interleaving and every value that a weak memory model allows.
//!
//! Run with `make test-loom`. These tests fail when an ordering is made Relaxed:
//! * the store in `commit` or the load in `peek`: every test that reads a payload while producers write;
//! * the store in `release`: `two_producers_and_a_consumer_lose_and_double_nothing`, `a_queue_with_room_refuses_nobody`;
//! * the exchange or the load of the head in `reserve`: `a_queue_with_room_refuses_nobody`.

#![cfg(loom)]

mod slots;

use inferlog_ring::{Mark, Peek, Refused, Reservation, Ring};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

const EVENT: u16 = 16;
const INFO: u8 = 9;

struct Words {
    head: AtomicU64,
    tail: AtomicU64,
    words: Vec<AtomicU64>,
}

impl Words {
    /// An empty ring that begins at `start`, as if it had been in use before.
    fn new(capacity: usize, start: Mark) -> Arc<Self> {
        let words = (0..capacity).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { head: AtomicU64::new(start.to_word()), tail: AtomicU64::new(start.to_word()), words })
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.head, &self.tail, &self.words)
    }

    fn reserve(&self) -> Result<Reservation<'_>, Refused> {
        self.ring().reserve(8, self.words.len() as u32)
    }

    /// Emits a record of 4 words that holds the same number three times.
    fn emit(&self, name: u64) -> Result<(), Refused> {
        self.reserve().map(|reservation| reservation.commit(EVENT, INFO, name, &name.to_le_bytes()))
    }
}

/// Takes at most one record and gives its space back; its sequence and name.
fn take(ring: Ring<'_>, read: &mut Mark) -> Option<(u32, u64)> {
    loop {
        match ring.peek(read.position) {
            Peek::Pad { next } => read.position = next,
            Peek::Record { record, next } => {
                let name = u64::from_le_bytes(record.payload.as_ref().try_into().expect("the whole payload"));
                assert_eq!((record.event, record.severity, record.time_unix_nano), (EVENT, INFO, name), "torn");
                assert_eq!(record.sequence, read.sequence, "sequences follow the ring's order, without a gap");
                let taken = (record.sequence, name);
                *read = Mark { sequence: read.sequence.wrapping_add(1), position: next };
                ring.release(*read);
                return Some(taken);
            }
            Peek::Corrupt => panic!("corrupt at {read:?}"),
            Peek::Reserved { .. } | Peek::Untouched | Peek::Empty => return None,
        }
    }
}

/// Takes `count` records, however long that takes.
fn take_all(ring: Ring<'_>, read: &mut Mark, count: usize) -> Vec<(u32, u64)> {
    let mut taken = Vec::new();
    while taken.len() < count {
        match take(ring, read) {
            Some(record) => taken.push(record),
            None => thread::yield_now(),
        }
    }
    taken
}

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

fn names(mut taken: Vec<(u32, u64)>) -> Vec<u64> {
    taken.sort_unstable_by_key(|(_, name)| *name);
    taken.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn two_producers_and_a_consumer_lose_and_double_nothing() {
    model(3, || {
        // Two words are left of the lap, and of the sequence: the first record is preceded by a pad.
        let start = Mark { sequence: u32::MAX, position: 14 };
        let words = Words::new(16, start);
        let producers = [7, 8].map(|name| {
            let words = Arc::clone(&words);
            thread::spawn(move || words.emit(name).unwrap())
        });
        let mut read = start;
        let taken = take_all(words.ring(), &mut read, 2);
        for producer in producers {
            producer.join().unwrap();
        }
        assert_eq!(names(taken), [7, 8]);
        assert_eq!(words.ring().peek(read.position), Peek::Empty);
        assert!(words.ring().is_drained());
        assert_eq!(read, Mark { sequence: 1, position: 24 });
    });
}

#[test]
fn space_that_is_given_back_holds_the_next_record() {
    model(3, || {
        // Room for one record at a time: the second one waits until the first one's words are free.
        let words = Words::new(8, Mark::default());
        let producer = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                for name in [7, 8] {
                    while let Err(refused) = words.emit(name) {
                        assert_eq!(refused, Refused::Full);
                        thread::yield_now();
                    }
                }
            })
        };
        let taken = take_all(words.ring(), &mut Mark::default(), 2);
        producer.join().unwrap();
        assert_eq!(taken, [(0, 7), (1, 8)]);
        assert!(words.ring().is_drained());
    });
}

#[test]
fn of_two_producers_only_one_gets_the_last_space() {
    model(4, || {
        let words = Words::new(8, Mark::default());
        let other = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.emit(7))
        };
        let here = words.emit(8);
        let there = other.join().unwrap();
        let expected = match (there, here) {
            (Ok(()), Err(Refused::Full)) => 7,
            (Err(Refused::Full), Ok(())) => 8,
            both => panic!("{both:?}"),
        };
        let mut read = Mark::default();
        assert_eq!(take(words.ring(), &mut read), Some((0, expected)));
        assert_eq!(take(words.ring(), &mut read), None);
        assert!(words.ring().is_drained(), "the refused one left no trace");
    });
}

#[test]
fn a_queue_with_room_refuses_nobody() {
    model(3, || {
        // Never more than two records are in the ring, and it holds three; the second thread releases the records that
        // it emits.
        let words = Words::new(16, Mark::default());
        let other = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.emit(7))
        };
        let mut read = Mark::default();
        let mut taken = Vec::new();
        for name in 8..11 {
            assert_eq!(words.emit(name), Ok(()));
            while !taken.iter().any(|(_, taken)| *taken == name) {
                match take(words.ring(), &mut read) {
                    Some(record) => taken.push(record),
                    None => thread::yield_now(),
                }
            }
        }
        assert_eq!(other.join().unwrap(), Ok(()), "refused though there was room all the time");
        taken.extend(take(words.ring(), &mut read));
        assert_eq!(names(taken), [7, 8, 9, 10]);
    });
}

#[test]
fn after_a_close_a_record_is_either_refused_or_readable() {
    model(4, || {
        let words = Words::new(16, Mark::default());
        let producer = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.emit(7))
        };
        words.ring().close();
        assert_eq!(words.emit(8), Err(Refused::Closed));
        let emitted = producer.join().unwrap();
        assert!(words.ring().is_closed());
        let mut read = Mark::default();
        let taken = take(words.ring(), &mut read);
        match emitted {
            Ok(()) => assert_eq!(taken, Some((0, 7))),
            Err(refused) => assert_eq!((refused, taken), (Refused::Closed, None)),
        }
        assert!(words.ring().is_drained());
    });
}

#[test]
fn a_record_that_is_not_committed_is_never_seen() {
    model(4, || {
        let words = Words::new(16, Mark::default());
        let dying = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.reserve().unwrap().fill(7, &[7; 8]))
        };
        assert_eq!(take(words.ring(), &mut Mark::default()), None);
        dying.join().unwrap();
        assert_eq!(words.ring().peek(0), Peek::Reserved { next: 4 });
        assert_eq!(words.ring().head(), Mark { sequence: 1, position: 4 });
    });
}
