//! The ring and the slots against models; loom's tests are a program of their own.

#![cfg(not(loom))]

// By the name that the other crates of the workspace use.
extern crate inferlog_ring as ring;

mod slots;

use proptest::prelude::*;
use ring::{Mark, Peek, RECORD_HEAD_WORDS, Refused, Reservation, Ring, record_words};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

// The ring against a model: a queue of entries, each committed, half-written or untouched, and the words they take.
//
// Actions come in any order, from any starting position and sequence (both wrap). After each one the ring and the
// model agree on what is refused, what is read, how many words are in use, and that all other words are zero.

const EVENT: u16 = 16;
const CAPACITY: u32 = 64;
const POSITION_MASK: u32 = (1 << 31) - 1;

#[derive(Clone, Debug)]
enum Action {
    /// Emit a record with a payload of this many bytes, within a limit of words.
    Emit {
        len: u32,
        limit: u32,
    },
    /// Reserve, and keep the reservation open; `Commit` ends it, or never.
    Reserve {
        len: u32,
    },
    /// Commit one of the open reservations.
    Commit {
        which: usize,
    },
    /// A producer dies right after its exchange of the head word.
    DieUntouched {
        len: u32,
    },
    /// Read one entry, as the listener of a live queue does.
    Read,
    /// Release the records that were read.
    Release,
    Close,
    /// All producers are dead: read everything, skip uncommitted records, release all.
    Recover,
}

fn action() -> impl Strategy<Value = Action> {
    let len = || prop_oneof![0..40u32, 0..300u32];
    prop_oneof![
        6 => (len(), prop_oneof![Just(CAPACITY), 0..=CAPACITY]).prop_map(|(len, limit)| Action::Emit { len, limit }),
        2 => len().prop_map(|len| Action::Reserve { len }),
        2 => any::<usize>().prop_map(|which| Action::Commit { which }),
        1 => len().prop_map(|len| Action::DieUntouched { len }),
        6 => Just(Action::Read),
        4 => Just(Action::Release),
        1 => Just(Action::Recover),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Untouched,
    Reserved,
    Committed,
}

#[derive(Clone, Debug)]
struct Entry {
    sequence: u32,
    payload: Vec<u8>,
    state: State,
    pad: u32,
}

impl Entry {
    fn words(&self) -> u32 {
        self.pad + record_words(self.payload.len() as u32)
    }
}

struct Model {
    entries: VecDeque<Entry>,
    /// How many of the entries were read and not yet released.
    read: usize,
    tail: Mark,
    closed: bool,
}

fn advance(mark: Mark, records: u32, words: u32) -> Mark {
    let position = mark.position.wrapping_add(words) & POSITION_MASK;
    Mark { sequence: mark.sequence.wrapping_add(records), position }
}

impl Model {
    fn used(&self) -> u32 {
        self.entries.iter().map(Entry::words).sum()
    }

    fn head(&self) -> Mark {
        advance(self.tail, self.entries.len() as u32, self.used())
    }

    /// Up to where the records are read.
    fn read_mark(&self) -> Mark {
        advance(self.tail, self.read as u32, self.entries.iter().take(self.read).map(Entry::words).sum())
    }

    fn reserve(&mut self, len: u32, limit: u32, state: State) -> Result<(), Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        let head = self.head();
        let until_end = CAPACITY - head.position % CAPACITY;
        let pad = if record_words(len) > until_end { until_end } else { 0 };
        if self.used() + pad + record_words(len) > limit.min(CAPACITY - 1) {
            return Err(Refused::Full);
        }
        // Never zero, so that a byte that was not cleared shows.
        let payload = (0..len).map(|at| (head.sequence.wrapping_add(at) % 255 + 1) as u8).collect();
        self.entries.push_back(Entry { sequence: head.sequence, payload, state, pad });
        Ok(())
    }

    fn release(&mut self) {
        self.tail = self.read_mark();
        self.entries.drain(..self.read);
        self.read = 0;
    }
}

struct Bench<'a> {
    ring: Ring<'a>,
    head: &'a AtomicU64,
    words: &'a [AtomicU64],
    open: Vec<(u32, Reservation<'a>)>,
    model: Model,
}

impl Bench<'_> {
    fn apply(&mut self, action: &Action) {
        match *action {
            Action::Emit { len, limit } => {
                let expected = self.model.reserve(len, limit, State::Committed);
                let reserved = self.ring.reserve(len, limit);
                assert_eq!(reserved.as_ref().err(), expected.err().as_ref());
                if let Ok(reservation) = reserved {
                    let entry = self.model.entries.back().unwrap();
                    assert_eq!(reservation.used_words, self.model.used());
                    reservation.commit(EVENT, 9, u64::from(entry.sequence), &entry.payload);
                }
            }
            Action::Reserve { len } => {
                let expected = self.model.reserve(len, CAPACITY, State::Reserved);
                let reserved = self.ring.reserve(len, CAPACITY);
                assert_eq!(reserved.as_ref().err(), expected.err().as_ref());
                self.open.extend(reserved.ok().map(|reserved| (self.model.entries.back().unwrap().sequence, reserved)));
            }
            Action::Commit { which } => self.commit(which),
            Action::DieUntouched { len } => {
                if self.model.reserve(len, CAPACITY, State::Untouched).is_ok() {
                    self.head.store(self.model.head().to_word(), Ordering::Release);
                }
            }
            Action::Read => self.read(),
            Action::Release => {
                self.model.release();
                self.ring.release(self.model.tail);
            }
            Action::Close => {
                self.model.closed = true;
                self.ring.close();
            }
            Action::Recover => self.recover(),
        }
    }

    fn commit(&mut self, which: usize) {
        if self.open.is_empty() {
            return;
        }
        let (sequence, reservation) = self.open.swap_remove(which % self.open.len());
        let entry = self.model.entries.iter_mut().find(|entry| entry.sequence == sequence).unwrap();
        entry.state = State::Committed;
        reservation.commit(EVENT, 9, u64::from(sequence), &entry.payload);
    }

    fn read(&mut self) {
        let mut position = self.model.read_mark().position;
        let Some(entry) = self.model.entries.get(self.model.read) else {
            return assert_eq!(self.ring.peek(position), Peek::Empty);
        };
        if entry.pad > 0 && entry.state != State::Untouched {
            let next = (position + entry.pad) & POSITION_MASK;
            assert_eq!(self.ring.peek(position), Peek::Pad { next });
            position = next;
        }
        let end = (position + record_words(entry.payload.len() as u32)) & POSITION_MASK;
        match (entry.state, self.ring.peek(position)) {
            (State::Untouched, Peek::Untouched) => {}
            (State::Reserved, Peek::Reserved { next }) => assert_eq!(next, end),
            (State::Committed, Peek::Record { record, next }) => {
                assert_eq!((record.event, record.severity), (EVENT, 9));
                assert_eq!((record.sequence, record.time_unix_nano), (entry.sequence, u64::from(entry.sequence)));
                assert_eq!((record.payload.as_ref(), next), (entry.payload.as_slice(), end));
                self.model.read += 1;
            }
            (state, peek) => panic!("{state:?}, but {peek:?}"),
        }
    }

    /// Reads as the listener does once the owner is dead, and compares with the committed records of the model.
    fn recover(&mut self) {
        self.open.clear();
        let mut position = self.model.read_mark().position;
        let mut recovered = Vec::new();
        loop {
            match self.ring.peek(position) {
                Peek::Record { record, next } => {
                    recovered.push((record.sequence, record.payload.to_vec()));
                    position = next;
                }
                Peek::Pad { next } | Peek::Reserved { next } => position = next,
                Peek::Untouched => position = self.ring.skip_untouched(position),
                Peek::Empty => break,
                Peek::Corrupt => panic!("corrupt at {position}"),
            }
        }
        let committed = self.model.entries.iter().skip(self.model.read).filter(|entry| entry.state == State::Committed);
        let expected: Vec<_> = committed.map(|entry| (entry.sequence, entry.payload.clone())).collect();
        assert_eq!(recovered, expected);
        assert_eq!(position, self.model.head().position);
        self.model.read = self.model.entries.len();
        self.model.release();
        self.ring.release(self.model.tail);
    }

    fn check(&self) {
        assert_eq!((self.ring.head(), self.ring.tail()), (self.model.head(), self.model.tail));
        assert_eq!(self.ring.used_words(), self.model.used());
        assert_eq!((self.ring.is_closed(), self.ring.is_drained()), (self.model.closed, self.model.entries.is_empty()));
        let unused = self.model.used()..CAPACITY;
        for at in unused {
            let index = (self.model.tail.position.wrapping_add(at) % CAPACITY) as usize;
            assert_eq!(self.words[index].load(Ordering::Relaxed), 0, "word {index} is not in use");
        }
    }
}

fn run(start: Mark, actions: &[Action]) {
    let (head, tail) = (AtomicU64::new(start.to_word()), AtomicU64::new(start.to_word()));
    let words: Vec<AtomicU64> = (0..CAPACITY).map(|_| AtomicU64::new(0)).collect();
    let model = Model { entries: VecDeque::new(), read: 0, tail: start, closed: false };
    let ring = Ring::new(&head, &tail, &words);
    let mut bench = Bench { ring, head: &head, words: &words, open: Vec::new(), model };
    for action in actions {
        bench.apply(action);
        bench.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_sequence_of_actions_agrees_with_the_model(
        sequence in prop_oneof![Just(0), Just(u32::MAX - 3), any::<u32>()],
        position in prop_oneof![Just(0), Just(POSITION_MASK - 20), 0..=POSITION_MASK],
        mut actions in prop::collection::vec(action(), 1..120),
        close_at in prop::option::of(0..120usize),
    ) {
        if let Some(at) = close_at {
            actions.insert(at.min(actions.len()), Action::Close);
        }
        // A recovery must leave the ring empty in any case.
        actions.push(Action::Recover);
        run(Mark { sequence, position }, &actions);
    }

    #[test]
    fn noise_never_panics_and_never_leads_outside_of_the_ring(
        noise in prop::collection::vec(prop_oneof![3 => any::<u64>(), 2 => (0..4u64, 0..600u64).prop_map(|(state, len)| state << 56 | len)], 64),
        head in any::<u64>(),
        tail in any::<u64>(),
        position in any::<u32>(),
    ) {
        let (head, tail) = (AtomicU64::new(head), AtomicU64::new(tail));
        let words: Vec<AtomicU64> = noise.into_iter().map(AtomicU64::new).collect();
        let ring = Ring::new(&head, &tail, &words);
        match ring.peek(position) {
            Peek::Record { record, next } => {
                let words = next.wrapping_sub(position) & POSITION_MASK;
                prop_assert_eq!(words, RECORD_HEAD_WORDS + (record.payload.len() as u32).div_ceil(8));
                prop_assert!(position % CAPACITY + words <= CAPACITY);
            }
            Peek::Reserved { next } | Peek::Pad { next } => prop_assert!(next.wrapping_sub(position) & POSITION_MASK <= CAPACITY),
            Peek::Untouched | Peek::Empty | Peek::Corrupt => {}
        }
        ring.release(Mark::from_word(head.load(Ordering::Relaxed)));
        prop_assert!(ring.is_drained());
    }
}

/// Equal records that fit exactly: the reader stops at the head, and does not read the oldest record a second time.
#[test]
fn a_full_ring_is_read_once() {
    let mut actions = vec![Action::Emit { len: 40, limit: CAPACITY }; 9];
    actions.extend(vec![Action::Read; 9]);
    actions.push(Action::Recover);
    run(Mark::default(), &actions);
}
