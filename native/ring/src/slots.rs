//! The slots of requests in flight: how far each has come, readable after its process's death (P5).
//!
//! Beside the protocol's own words, a slot holds the facts of its request, whose meaning is up to the user of this
//! crate.
//!
//! ```text
//! slot    word 0      [ state:32 | sequence:32 ]    0 FREE, OPEN, CLAIMED, ENDING (with the terminal record's sequence)
//!         word 1      chunks so far                 publishes the progress at `chunks % 2`
//!         word 2, 4   bytes of the answer           progress of an even, an odd number of chunks
//!         word 3, 5   time of the last chunk        monotonic nanoseconds; the other half's may be later
//!         word 6…     facts
//! ```
//!
//! A request's life: FREE → (facts) → OPEN → (chunks) → CLAIMED → (record reserved) → ENDING s → (record s committed) →
//! FREE. Every step is one store, and a process can die between any two.
//!
//! Invariants
//! * One process at a time changes a slot: the owner while it lives, then the process that holds the lock of the queue
//!   file.
//! * Within the owner, the thread that turns OPEN into CLAIMED ends the request; no other thread does.
//! * A slot that is not FREE belongs to a request whose terminal record is not in the ring, or is there under the
//!   sequence that ENDING names: [`Slot::settle_end`] distinguishes the two. It must run before the dead owner's
//!   reservations are given back, since only then is a sequence below the tail one that was committed.
//! * The two halves of the progress take turns, so that a death within a chunk leaves the chunk before it intact.

use crate::sync::{AtomicU64, Ordering};
use crate::{Peek, Ring, words_between};

/// Words of one slot. Loom models each of them, so there a slot has the protocol's own and few more.
pub const SLOT_WORDS: usize = if cfg!(loom) { 8 } else { 256 };
pub const SLOT_BYTES: usize = SLOT_WORDS * 8;

const STATE: usize = 0;
const CHUNKS: usize = 1;
const PROGRESS: usize = 2;
/// The first word that this protocol does not use.
pub const FACTS: usize = 6;

const FREE: u64 = 0;
const OPEN: u64 = tag(*b"OPEN");
const CLAIMED: u64 = tag(*b"CLAI");
const ENDING: u64 = tag(*b"ENDS");

/// Four letters in the upper half: random bytes of a damaged file are very unlikely to match a state.
const fn tag(name: [u8; 4]) -> u64 {
    (u32::from_le_bytes(name) as u64) << 32
}

/// All slots of a queue, wherever their words lie.
#[derive(Clone, Copy)]
pub struct Slots<'a>(&'a [[AtomicU64; SLOT_WORDS]]);

impl<'a> Slots<'a> {
    /// Divides words into slots.
    #[inline]
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Self(words.as_chunks().0)
    }

    /// The slot at a place, if there is one.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Slot<'a>> {
        self.0.get(index).map(|words| Slot { words })
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Slot<'a>> + use<'a> {
        self.0.iter().map(|words| Slot { words })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The number of requests in flight.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.iter().filter(|slot| slot.is_taken()).count()
    }
}

/// How far an answer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub chunks: u64,
    pub bytes: u64,
    /// Monotonic nanoseconds; 0 before the first chunk.
    pub last_chunk: u64,
}

/// One request's place.
#[derive(Clone, Copy)]
pub struct Slot<'a> {
    words: &'a [AtomicU64; SLOT_WORDS],
}

impl<'a> Slot<'a> {
    /// All of its words. The owner writes those from [`FACTS`] on, freely until [`Self::open`].
    #[inline]
    #[must_use]
    pub fn words(&self) -> &'a [AtomicU64; SLOT_WORDS] {
        self.words
    }

    /// Makes a free slot, whose facts are written, a request in flight.
    #[inline]
    pub fn open(&self) {
        self.words[CHUNKS].store(0, Ordering::Relaxed);
        for word in &self.words[PROGRESS..FACTS] {
            word.store(0, Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `claim` and `settle_end`; a killed process leaves its stores in the same
        // order.
        self.words[STATE].store(OPEN, Ordering::Release);
    }

    /// A chunk has passed.
    #[inline]
    pub fn progress(&self, progress: Progress) {
        let half = PROGRESS + (progress.chunks as usize & 1) * 2;
        self.words[half].store(progress.bytes, Ordering::Relaxed);
        self.words[half + 1].store(progress.last_chunk, Ordering::Relaxed);
        // Release: a reader that sees the number sees its progress (x86: a plain store).
        self.words[CHUNKS].store(progress.chunks, Ordering::Release);
    }

    /// Bytes of the answer have passed at `now` that end no chunk: `bytes` in all, after so many chunks. The time goes
    /// into the half that the next chunk overwrites.
    #[inline]
    pub fn bytes_pass(&self, chunks: u64, bytes: u64, now: u64) {
        let half = |chunks: u64| PROGRESS + (chunks as usize & 1) * 2;
        self.words[half(chunks)].store(bytes, Ordering::Relaxed);
        self.words[half(chunks + 1) + 1].store(now, Ordering::Relaxed);
    }

    /// Reads how far the answer has come.
    #[must_use]
    pub fn read_progress(&self) -> Progress {
        let chunks = self.words[CHUNKS].load(Ordering::Acquire);
        let half = PROGRESS + (chunks as usize & 1) * 2;
        let word = |at: usize| self.words[at].load(Ordering::Relaxed);
        Progress { chunks, bytes: word(half), last_chunk: word(half + 1) }
    }

    /// The last monotonic time at which a part of an answer passed.
    #[must_use]
    pub fn last_passed(&self) -> u64 {
        let word = |at: usize| self.words[at].load(Ordering::Relaxed);
        word(PROGRESS + 1).max(word(PROGRESS + 3))
    }

    /// Takes the right to end the request; returns whether the caller has it now.
    #[inline]
    pub fn claim(&self) -> bool {
        let claimed = self.words[STATE].compare_exchange(OPEN, CLAIMED, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok()
    }

    /// Gives a claim back: there was no room for the terminal record.
    pub fn unclaim(&self) {
        self.words[STATE].store(OPEN, Ordering::Release);
    }

    /// The terminal record is reserved under this sequence, and about to be committed. The caller has claimed the slot,
    /// or is the only process that can.
    #[inline]
    pub fn end_with(&self, sequence: u32) {
        self.words[STATE].store(ENDING | u64::from(sequence), Ordering::Relaxed);
        // No store of the commit may come before this one. No processor fence is needed: a killed process stops between
        // two instructions, and no other process reads the slot while it lives.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// The request has ended, and its record is in the ring or was refused.
    #[inline]
    pub fn free(&self) {
        // Release: after the commit, and after the last read of the facts.
        self.words[STATE].store(FREE, Ordering::Release);
    }

    /// Whether a request has it.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        let state = self.words[STATE].load(Ordering::Relaxed);
        state == OPEN || state == CLAIMED || state & TAG == ENDING
    }

    /// The sequence of the terminal record, if it was reserved and perhaps committed.
    #[must_use]
    pub fn ending(&self) -> Option<u32> {
        let state = self.words[STATE].load(Ordering::Acquire);
        (state & TAG == ENDING).then_some(state as u32)
    }

    /// After the owner's death: decides whether the request has its terminal record. One store, and idempotent: a
    /// process that dies here leaves it to the next one.
    pub fn settle_end(&self, is_committed: impl FnOnce(u32) -> bool) {
        match self.ending() {
            Some(sequence) if is_committed(sequence) => self.free(),
            Some(_) => self.unclaim(),
            None if self.words[STATE].load(Ordering::Acquire) == CLAIMED => self.unclaim(),
            None => (),
        }
    }

    /// Whether it holds a request without a terminal record, once it is settled.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.words[STATE].load(Ordering::Acquire) == OPEN
    }
}

const TAG: u64 = 0xffff_ffff << 32;

/// A terminal record that another process makes for the request.
pub struct LastRecord {
    pub event: u16,
    pub severity: u8,
    pub time_unix_nano: u64,
    pub payload: Vec<u8>,
}

/// The steps of a request's end: a process can die between any two of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndStep {
    Reserved,
    Noted,
    Committed,
    Freed,
}

/// Puts the terminal record of an open or claimed slot into the ring, closed or not, and frees the slot; calls `at`
/// after each step. Returns false, and nothing has changed, if there is no room.
pub fn end_request(slot: Slot<'_>, ring: Ring<'_>, record: &LastRecord, mut at: impl FnMut(EndStep)) -> bool {
    let Ok(reservation) = ring.reserve_even_closed(record.payload.len() as u32) else { return false };
    at(EndStep::Reserved);
    slot.end_with(reservation.sequence);
    at(EndStep::Noted);
    reservation.commit(record.event, record.severity, record.time_unix_nano, &record.payload);
    at(EndStep::Committed);
    slot.free();
    at(EndStep::Freed);
    true
}

/// Whether the record of this sequence was committed. The consumer asks before it releases a dead producer's records:
/// at that time, every record below the tail was committed.
#[must_use]
pub fn is_committed(ring: &Ring<'_>, sequence: u32) -> bool {
    let (tail, head) = (ring.tail(), ring.head());
    if sequence.wrapping_sub(tail.sequence) >= head.sequence.wrapping_sub(tail.sequence) {
        return true;
    }
    let (mut position, all) = (tail.position, words_between(tail.position, head.position));
    while position != head.position {
        let next = match ring.peek(position) {
            Peek::Record { record, .. } if record.sequence == sequence => return true,
            Peek::Record { next, .. } | Peek::Pad { next } | Peek::Reserved { next } => next,
            Peek::Untouched => ring.skip_untouched(position),
            Peek::Empty | Peek::Corrupt => return false,
        };
        if words_between(tail.position, next) > all {
            return false;
        }
        position = next;
    }
    false
}

/// The free slots of one process: a stack, so that few slots are used and stay in the cache. It lies in the process's
/// own memory: no other process needs it, and a damaged file cannot damage it.
pub struct FreeSlots {
    /// `[ turns:32 | first free slot + 1:32 ]`; the turns distinguish a stack that was changed and changed back from an
    /// unchanged one.
    top: AtomicU64,
    /// For each slot, the next free one + 1.
    next: Box<[AtomicU64]>,
}

impl FreeSlots {
    /// All of so many slots are free.
    #[must_use]
    pub fn all(count: u32) -> Self {
        let next = (1..=u64::from(count)).map(|at| AtomicU64::new((at + 1) % (u64::from(count) + 1))).collect();
        Self { top: AtomicU64::new(u64::from(count > 0)), next }
    }

    /// Takes a slot out.
    #[inline]
    pub fn take(&self) -> Option<u32> {
        // Acquire pairs with the Release in `give_back`: the next slot's number, and the writes in the slot, are
        // visible.
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let index = (top as u32).checked_sub(1)?;
            let next = self.next[index as usize].load(Ordering::Relaxed);
            let taken = turn(top) | next;
            match self.top.compare_exchange_weak(top, taken, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(now) => top = now,
            }
        }
    }

    /// Puts a slot back.
    #[inline]
    pub fn give_back(&self, index: u32) {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            self.next[index as usize].store(top & u64::from(u32::MAX), Ordering::Relaxed);
            let given = turn(top) | (u64::from(index) + 1);
            match self.top.compare_exchange_weak(top, given, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }
}

/// The next turn, without a slot.
#[inline]
const fn turn(top: u64) -> u64 {
    (top & !(u32::MAX as u64)).wrapping_add(1 << 32)
}
