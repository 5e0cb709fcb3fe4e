//! The slots of requests in flight as a protocol, on memory of the test's own: a death after any step of the owner,
//! then after any step of a recovering process, leaves each request with exactly one terminal record.

use proptest::prelude::*;
use ring::slots::{self, EndStep, FACTS, FreeSlots, LastRecord, Progress, SLOT_WORDS, Slot, Slots};
use ring::{Mark, Peek, Reservation, Ring};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

const REQUEST: u16 = 2;
const OTHER: u16 = 16;
const CAPACITY: usize = 256;
const REQUESTS: usize = 4;

/// The steps of one request; the chunk can come several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Facts,
    Open,
    Chunk,
    Claim,
    Reserve,
    Fill,
    Note,
    Commit,
    Free,
}

const LIFE: [Act; 10] = [
    Act::Facts,
    Act::Open,
    Act::Chunk,
    Act::Chunk,
    Act::Claim,
    Act::Reserve,
    Act::Note,
    Act::Fill,
    Act::Commit,
    Act::Free,
];

/// A queue's words, and the records that came out of it.
struct World {
    head: AtomicU64,
    tail: AtomicU64,
    data: Vec<AtomicU64>,
    slots: Vec<AtomicU64>,
}

/// Names of the requests whose records were written, each with the process that made it.
type Written = Vec<(u64, &'static str)>;

impl World {
    fn new(start: Mark) -> Self {
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            head: AtomicU64::new(start.to_word()),
            tail: AtomicU64::new(start.to_word()),
            data: words(CAPACITY),
            slots: words(REQUESTS * SLOT_WORDS),
        }
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.head, &self.tail, &self.data)
    }

    fn slot(&self, index: usize) -> Slot<'_> {
        Slots::new(&self.slots).get(index).unwrap()
    }

    /// Takes the committed records; skips the uncommitted ones of a dead owner.
    fn consume(&self, is_orphan: bool, written: &mut Written) {
        let (ring, head) = (self.ring(), self.ring().head());
        let mut read = ring.tail();
        while read.position != head.position {
            let next = match ring.peek(read.position) {
                Peek::Record { record, next } => {
                    read.sequence = record.sequence.wrapping_add(1);
                    if record.event == REQUEST {
                        let (name, by) = record.payload.split_at(8);
                        let by = if by == b"owner" { "owner" } else { "recovery" };
                        written.push((u64::from_le_bytes(name.try_into().unwrap()), by));
                    }
                    next
                }
                Peek::Pad { next } => next,
                Peek::Reserved { next } if is_orphan => next,
                Peek::Untouched if is_orphan => ring.skip_untouched(read.position),
                _ => break,
            };
            read.position = next;
        }
        if is_orphan {
            assert_eq!(read.position, head.position, "all of it can be read");
            read.sequence = head.sequence;
        }
        ring.release(read);
    }
}

fn payload(name: u64, by: &str) -> Vec<u8> {
    [&name.to_le_bytes()[..], by.as_bytes()].concat()
}

/// The owner's requests, and where each of them is.
struct Owner<'a> {
    world: &'a World,
    at: [usize; REQUESTS],
    reserved: BTreeMap<usize, Reservation<'a>>,
    opened: Vec<u64>,
    lives: u64,
}

impl<'a> Owner<'a> {
    fn new(world: &'a World) -> Self {
        Self { world, at: [0; REQUESTS], reserved: BTreeMap::new(), opened: Vec::new(), lives: 0 }
    }

    /// Does the next step of the request in a slot; after its last one the slot gets another.
    fn step(&mut self, index: usize) {
        let (slot, ring) = (self.world.slot(index), self.world.ring());
        let name = slot.words()[FACTS..][0].load(Ordering::Relaxed);
        match LIFE[self.at[index]] {
            Act::Facts => {
                self.lives += 1;
                slot.words()[FACTS..][0].store(self.lives, Ordering::Relaxed);
            }
            Act::Open => {
                slot.open();
                self.opened.push(name);
            }
            Act::Chunk => {
                let chunks = slot.read_progress().chunks + 1;
                slot.progress(Progress { chunks, bytes: chunks * 10, last_chunk: chunks * 100 });
            }
            Act::Claim => assert!(slot.claim() && !slot.claim()),
            // No room now: it waits.
            Act::Reserve => match ring.reserve(payload(name, "owner").len() as u32, u32::MAX) {
                Ok(reservation) => drop(self.reserved.insert(index, reservation)),
                Err(_) => return,
            },
            Act::Note => slot.end_with(self.reserved[&index].sequence),
            Act::Fill => self.reserved[&index].fill(1, &payload(name, "owner")),
            Act::Commit => {
                self.reserved.remove(&index).unwrap().commit(REQUEST, 9, 1, &payload(name, "owner"));
            }
            Act::Free => slot.free(),
        }
        self.at[index] = (self.at[index] + 1) % LIFE.len();
    }
}

/// Recovers as a listener does, and dies after this many steps.
fn recover(world: &World, steps: &mut usize, written: &mut Written) {
    let mut step = || {
        *steps = steps.checked_sub(1).unwrap_or_else(|| std::panic::resume_unwind(Box::new("died")));
    };
    for slot in Slots::new(&world.slots).iter() {
        slot.settle_end(|sequence| slots::is_committed(&world.ring(), sequence));
        step();
    }
    world.consume(true, written);
    step();
    for slot in Slots::new(&world.slots).iter().filter(Slot::is_open) {
        let payload = payload(slot.words()[FACTS..][0].load(Ordering::Relaxed), "recovery");
        let record = LastRecord { event: REQUEST, severity: 17, time_unix_nano: 1, payload };
        assert!(slots::end_request(slot, world.ring(), &record, |_: EndStep| step()));
        world.consume(true, written);
        step();
    }
}

/// Runs recoveries that die after these numbers of steps, then one that does not; each request has one record.
fn check(world: &World, opened: &[u64], mut written: Written, deaths: &[usize]) {
    world.ring().close();
    for steps in deaths.iter().chain([&usize::MAX]) {
        let mut left = *steps;
        let _ = catch_unwind(AssertUnwindSafe(|| recover(world, &mut left, &mut written)));
    }
    let mut names: Vec<u64> = written.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(names, opened, "written: {written:?}");
    assert_eq!(Slots::new(&world.slots).taken(), 0);
    assert!(world.ring().is_drained());
}

#[test]
fn one_request_has_one_record_wherever_its_owner_and_two_recoveries_die() {
    for owner_steps in 0..=LIFE.len() {
        for is_consumed in [false, true] {
            for first in 0..12 {
                for second in 0..12 {
                    let world = World::new(Mark { sequence: u32::MAX, position: 250 });
                    let mut owner = Owner::new(&world);
                    (0..owner_steps).for_each(|_| owner.step(1));
                    let opened = std::mem::take(&mut owner.opened);
                    std::mem::forget(owner);
                    let mut written = Vec::new();
                    if is_consumed {
                        world.consume(false, &mut written);
                    }
                    check(&world, &opened, written, &[first, second]);
                }
            }
        }
    }
}

#[test]
fn a_record_that_was_committed_is_its_owners_and_any_other_the_recoverys() {
    for owner_steps in 2..=LIFE.len() {
        let world = World::new(Mark::default());
        let mut owner = Owner::new(&world);
        (0..owner_steps).for_each(|_| owner.step(0));
        std::mem::forget(owner);
        let mut written = Vec::new();
        recover(&world, &mut usize::MAX.clone(), &mut written);
        let committed = owner_steps > LIFE.iter().position(|act| *act == Act::Commit).unwrap();
        assert_eq!(written, [(1, if committed { "owner" } else { "recovery" })], "after {owner_steps} steps");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_request_has_one_record_whatever_the_order_of_steps_and_deaths(
        acts in proptest::collection::vec(0..REQUESTS + 2, 0..200),
        start in 0u32..256,
        deaths in proptest::collection::vec(0usize..30, 0..4),
    ) {
        let world = World::new(Mark { sequence: u32::MAX - 3, position: start });
        let mut owner = Owner::new(&world);
        let mut written = Vec::new();
        for act in acts {
            match act {
                REQUESTS => world.consume(false, &mut written),
                act if act > REQUESTS => {
                    if let Ok(other) = world.ring().reserve(8, u32::MAX) {
                        other.commit(OTHER, 9, 1, &[7; 8]);
                    }
                }
                index => owner.step(index),
            }
        }
        let opened = std::mem::take(&mut owner.opened);
        std::mem::forget(owner);
        let mut sorted = opened;
        sorted.sort_unstable();
        check(&world, &sorted, written, &deaths);
    }

    #[test]
    fn a_free_slot_is_given_to_one_at_a_time(acts in proptest::collection::vec(any::<bool>(), 0..200), count in 0u32..5) {
        let free = FreeSlots::all(count);
        let mut held: Vec<u32> = Vec::new();
        for takes in acts {
            if takes {
                match free.take() {
                    Some(index) => {
                        assert!(index < count && !held.contains(&index));
                        held.push(index);
                    }
                    None => assert_eq!(held.len() as u32, count, "all are taken"),
                }
            } else if let Some(index) = held.pop() {
                free.give_back(index);
            }
        }
    }
}

#[test]
fn a_death_within_a_chunk_leaves_the_chunk_before_it_whole() {
    let world = World::new(Mark::default());
    let slot = world.slot(0);
    slot.open();
    assert_eq!(slot.read_progress(), Progress::default());
    for chunks in 1..5 {
        let progress = Progress { chunks, bytes: chunks * 10, last_chunk: chunks * 100 };
        slot.progress(progress);
        // All stores of the next chunk but the last one.
        let half = 2 + ((chunks as usize + 1) & 1) * 2;
        world.slots[half].store(77, Ordering::Relaxed);
        world.slots[half + 1].store(77, Ordering::Relaxed);
        assert_eq!(slot.read_progress(), progress);
    }
}

#[test]
fn threads_never_hold_the_same_slot() {
    let free = FreeSlots::all(3);
    let held: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    // Two, given back in the order in which they were taken: so the stack changes, and changes back.
                    let taken = [free.take(), free.take()];
                    for index in taken.into_iter().flatten() {
                        assert_eq!(held[index as usize].swap(1, Ordering::AcqRel), 0);
                    }
                    for index in taken.into_iter().flatten() {
                        held[index as usize].store(0, Ordering::Release);
                        free.give_back(index);
                    }
                }
            });
        }
    });
    let mut all: Vec<u32> = std::iter::from_fn(|| free.take()).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2], "none is lost");
}
