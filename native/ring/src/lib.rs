//! The ring protocol: reserve → fill → commit by many producers, peek → release by one consumer.
//!
//! It works on borrowed words and knows nothing of files or processes, so that loom, proptest and the mapped queue file
//! all run this same code. So do the slots of requests in flight, in [`slots`]; [`sync`] chooses the atomics.
//!
//! ```text
//! head, tail  [ sequence:32 | closed:1 | position:31 ]   one compare-and-swap reserves space and numbers the record;
//!                                                        one store releases records and says how many
//! record      word 0  [ state:8 | severity:8 | event:16 | payload bytes:32 ]   the commit word
//!             word 1  time, Unix nanoseconds
//!             word 2  sequence (low 32 bits)
//!             word 3… payload, padded to 8 bytes
//! pad         word 0  [ PAD:8 | 0:24 | words:32 ]        fills the end of a lap; has no sequence
//! ```
//!
//! Invariants
//! * Positions count words modulo 2³¹; the index is `position % capacity`; the capacity is a power of two.
//! * Words from `tail + capacity` back to `head` are zero: the consumer zeroes what it read before it releases it. So a
//!   word 0 that is zero below `head` is a reservation whose owner has not yet written anything.
//! * At least one word is never reserved, so that a reader at the head finds that zero and not the oldest record again.
//! * Word 0 goes 0 → RESERVED → COMMITTED; only COMMITTED (stored with Release, loaded with Acquire) makes the rest of
//!   the record visible. A process that dies in between leaves RESERVED with its length, or zeroes.
//! * `accepted` is the sequence in the head word: there is no second counter that could disagree with the ring.

pub mod slots;
pub mod sync;

use crate::sync::{AtomicU64, Ordering, copy_in, view, zero};
use std::borrow::Cow;
use std::sync::atomic::fence;

/// Words of a record before its payload.
pub const RECORD_HEAD_WORDS: u32 = 3;
/// Largest capacity: positions have 31 bits and must distinguish a full ring from an empty one.
pub(crate) const MAX_CAPACITY_WORDS: u32 = 1 << 30;

const POSITION_MASK: u64 = (1 << 31) - 1;
const CLOSED: u64 = 1 << 31;
const RESERVED: u64 = 1;
const COMMITTED: u64 = 2;
const PAD: u64 = 3;

/// The shared words of one ring: control words and data, wherever they live.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    words: &'a [AtomicU64],
}

/// Why a reservation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The bytes in use would pass the limit that the caller gave for this severity.
    Full,
    /// The ring was closed; it takes nothing any more.
    Closed,
}

/// Space that belongs to one producer until it commits.
#[must_use = "a reservation that is not committed blocks the consumer"]
pub struct Reservation<'a> {
    words: &'a [AtomicU64],
    payload_len: u32,
    /// Low 32 bits of the record's sequence number.
    pub sequence: u32,
    /// Words in use after this reservation, for the caller's wake-up threshold.
    pub used_words: u32,
}

/// The content at a position of the ring.
#[derive(Debug, PartialEq, Eq)]
pub enum Peek<'a> {
    /// A committed record; `next` is the position behind it.
    Record { record: Record<'a>, next: u32 },
    /// The end of a lap; go on at `next`.
    Pad { next: u32 },
    /// Reserved with its length known, not yet committed; `next` is where it ends.
    Reserved { next: u32 },
    /// Reserved, nothing written yet.
    Untouched,
    /// Nothing was reserved here.
    Empty,
    /// The words here cannot be a record: a foreign or damaged file.
    Corrupt,
}

/// A committed record, still in the ring.
#[derive(Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub event: u16,
    pub severity: u8,
    pub time_unix_nano: u64,
    /// Low 32 bits of the sequence number.
    pub sequence: u32,
    pub payload: Cow<'a, [u8]>,
}

/// A place in the ring: how many records lie before it (modulo 2³²), and its position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    pub sequence: u32,
    /// In words, modulo 2³¹.
    pub position: u32,
}

impl Mark {
    /// Reads the stored form.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self { sequence: (word >> 32) as u32, position: (word & POSITION_MASK) as u32 }
    }

    /// The stored form.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        (self.sequence as u64) << 32 | self.position as u64
    }
}

/// Words that a record with `payload_len` bytes takes.
#[inline]
#[must_use]
pub const fn record_words(payload_len: u32) -> u32 {
    RECORD_HEAD_WORDS + payload_len.div_ceil(8)
}

/// Words from one position on to another.
#[inline]
#[must_use]
pub const fn words_between(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & POSITION_MASK as u32
}

impl<'a> Ring<'a> {
    /// Joins the parts of a ring.
    ///
    /// # Panics
    /// If the capacity is not a power of two within [`MAX_CAPACITY_WORDS`].
    #[must_use]
    pub fn new(head: &'a AtomicU64, tail: &'a AtomicU64, words: &'a [AtomicU64]) -> Self {
        assert!(words.len().is_power_of_two() && words.len() <= MAX_CAPACITY_WORDS as usize);
        Self { head, tail, words }
    }

    #[inline]
    fn capacity(&self) -> u32 {
        // Fits: checked in `new`.
        self.words.len() as u32
    }

    /// Reserves space for `payload_len` bytes, if the words in use stay within `limit_words`.
    ///
    /// # Errors
    /// [`Refused`], and nothing has changed.
    #[inline]
    pub fn reserve(&self, payload_len: u32, limit_words: u32) -> Result<Reservation<'a>, Refused> {
        self.reserve_unless(CLOSED, payload_len, limit_words)
    }

    /// As [`Self::reserve`] with no limit, also in a closed ring, which stays closed: for the process that completes a
    /// dead producer's counts.
    ///
    /// # Errors
    /// [`Refused::Full`], and nothing has changed.
    pub(crate) fn reserve_even_closed(&self, payload_len: u32) -> Result<Reservation<'a>, Refused> {
        self.reserve_unless(0, payload_len, u32::MAX)
    }

    #[inline]
    fn reserve_unless(&self, refused: u64, payload_len: u32, limit_words: u32) -> Result<Reservation<'a>, Refused> {
        let need = record_words(payload_len);
        let capacity = self.capacity();
        let limit_words = limit_words.min(capacity - 1);
        loop {
            // Tail first: Acquire pairs with the Release in `release`, so the head read next is not older than it, and
            // the zeroes of the released words are visible.
            let tail = (self.tail.load(Ordering::Acquire) & POSITION_MASK) as u32;
            // Acquire pairs with the Release of the exchange below: a thread that sees a head also sees the tail that
            // made room for it.
            let head = self.head.load(Ordering::Acquire);
            if head & refused != 0 {
                return Err(Refused::Closed);
            }
            let position = (head & POSITION_MASK) as u32;
            let used = words_between(tail, position);
            let index = position & (capacity - 1);
            let pad = if need > capacity - index { capacity - index } else { 0 };
            let used = u64::from(used) + u64::from(pad) + u64::from(need);
            if used > u64::from(limit_words) {
                if self.tail.load(Ordering::Acquire) & POSITION_MASK == u64::from(tail) {
                    return Err(Refused::Full);
                }
                // The head was newer than the tail: the space that was given back in between is not in use.
                continue;
            }
            let sequence = (head >> 32) as u32;
            let next = u64::from(position.wrapping_add(pad).wrapping_add(need)) & POSITION_MASK;
            let new = u64::from(sequence.wrapping_add(1)) << 32 | head & CLOSED | next;
            // The commit word publishes the record; the head only hands out space.
            if self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed).is_ok() {
                return Ok(self.claim(index, pad, need, payload_len, sequence, used as u32));
            }
        }
    }

    #[inline]
    fn claim(&self, index: u32, pad: u32, need: u32, len: u32, sequence: u32, used_words: u32) -> Reservation<'a> {
        let mut start = index as usize;
        if pad > 0 {
            self.words[start].store(PAD << 56 | u64::from(pad), Ordering::Release);
            start = 0;
        }
        let words = &self.words[start..start + need as usize];
        // Before any payload byte: a process that dies from here on leaves a length behind.
        words[0].store(RESERVED << 56 | u64::from(len), Ordering::Relaxed);
        // The compiler must not move payload stores above this one. No processor fence is needed: a killed process
        // stops between two instructions, and what it stored before that point is stored.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        Reservation { words, payload_len: len, sequence, used_words }
    }

    /// Looks at `position`, without changing anything.
    #[must_use]
    pub fn peek(&self, position: u32) -> Peek<'a> {
        let index = (position & (self.capacity() - 1)) as usize;
        // Acquire pairs with the Release of `commit`: all of the record is visible behind it.
        let word = self.words[index].load(Ordering::Acquire);
        let len = (word & 0xffff_ffff) as u32;
        let room = self.words.len() - index;
        match word >> 56 {
            0 if word == 0 => {
                if position == self.head().position {
                    Peek::Empty
                } else {
                    Peek::Untouched
                }
            }
            PAD if len as usize == room => Peek::Pad { next: advance(position, len) },
            RESERVED | COMMITTED
                if len <= (self.capacity() - RECORD_HEAD_WORDS) * 8 && record_words(len) as usize <= room =>
            {
                let next = advance(position, record_words(len));
                if word >> 56 == RESERVED {
                    return Peek::Reserved { next };
                }
                Peek::Record { record: self.record(index, word, len), next }
            }
            _ => Peek::Corrupt,
        }
    }

    fn record(&self, index: usize, word: u64, len: u32) -> Record<'a> {
        let words = &self.words[index..index + record_words(len) as usize];
        Record {
            event: (word >> 32 & 0xffff) as u16,
            severity: (word >> 48 & 0xff) as u8,
            time_unix_nano: words[1].load(Ordering::Relaxed),
            sequence: words[2].load(Ordering::Relaxed) as u32,
            payload: view(&words[RECORD_HEAD_WORDS as usize..], len as usize),
        }
    }

    /// Finds the next word that is not zero between `position` and the head: where an untouched reservation of a dead
    /// producer ends. Returns the head's position if there is none.
    #[must_use]
    pub fn skip_untouched(&self, mut position: u32) -> u32 {
        let head = self.head().position;
        while position != head && self.words[(position & (self.capacity() - 1)) as usize].load(Ordering::Acquire) == 0 {
            position = advance(position, 1);
        }
        position
    }

    /// Zeroes the words from the tail up to `to` and gives them back to the producers.
    pub fn release(&self, to: Mark) {
        let from = self.tail().position;
        let count = words_between(from, to.position).min(self.capacity()) as usize;
        let first = (from & (self.capacity() - 1)) as usize;
        let until_end = count.min(self.words.len() - first);
        zero(&self.words[first..first + until_end]);
        zero(&self.words[..count - until_end]);
        // Release pairs with the Acquire in `reserve`: the next owner of this space sees the zeroes.
        self.tail.store(to.to_word(), Ordering::Release);
    }

    /// Refuses every reservation from now on; those already made can still commit. Idempotent.
    pub fn close(&self) {
        close_word(self.head);
    }

    /// Whether [`Self::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.head.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// The end of the reserved space.
    #[must_use]
    pub fn head(&self) -> Mark {
        Mark::from_word(self.head.load(Ordering::Acquire))
    }

    /// The end of the released space.
    #[must_use]
    pub fn tail(&self) -> Mark {
        Mark::from_word(self.tail.load(Ordering::Acquire))
    }

    /// Whether every reserved record is released.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.tail() == self.head()
    }

    /// Words between tail and head.
    #[must_use]
    pub fn used_words(&self) -> u32 {
        let tail = self.tail().position;
        words_between(tail, self.head().position)
    }
}

/// Closes the ring whose head word this is, as [`Ring::close`] does.
pub fn close_word(head: &AtomicU64) {
    head.fetch_or(CLOSED, Ordering::Relaxed);
}

/// Goes on by `words`.
const fn advance(position: u32, words: u32) -> u32 {
    position.wrapping_add(words) & POSITION_MASK as u32
}

impl Reservation<'_> {
    /// Fills the reservation and makes it visible to the consumer.
    ///
    /// # Panics
    /// If `payload` has not the reserved length.
    #[inline]
    pub fn commit(self, event: u16, severity: u8, time_unix_nano: u64, payload: &[u8]) {
        self.fill(time_unix_nano, payload);
        let word = COMMITTED << 56 | u64::from(severity) << 48 | u64::from(event) << 32 | u64::from(self.payload_len);
        // Release pairs with the Acquire in `peek`.
        self.words[0].store(word, Ordering::Release);
    }

    /// Writes everything but the commit word; on its own only for tests of what a dying producer leaves behind.
    #[inline]
    pub fn fill(&self, time_unix_nano: u64, payload: &[u8]) {
        assert_eq!(payload.len(), self.payload_len as usize);
        self.words[1].store(time_unix_nano, Ordering::Relaxed);
        self.words[2].store(u64::from(self.sequence), Ordering::Relaxed);
        copy_in(&self.words[RECORD_HEAD_WORDS as usize..], payload);
    }
}

// What a process that is neither producer nor consumer sees of a ring: words that may be given back while they are
// read.

/// How often a read is repeated while the consumer moves on, and how far it goes for a committed record.
const ATTEMPTS: u32 = 8;

impl Ring<'_> {
    /// When the oldest record that is committed and not released was made. None if nothing waits, if the first waiting
    /// record is not committed, or if the consumer is releasing it right now.
    #[must_use]
    pub fn oldest_time(&self) -> Option<u64> {
        let mut tail = self.tail();
        for _ in 0..ATTEMPTS {
            let found = self.first_time(tail.position);
            // The words under it are zeroed, and may be used again, only when the tail moves on. The fence keeps the read
            // of the time before that of the tail.
            fence(std::sync::atomic::Ordering::Acquire);
            let now = self.tail();
            if now == tail {
                return found.filter(|time| *time != 0);
            }
            tail = now;
        }
        None
    }

    /// The time of the first committed record from `position` on. Reads words only: the payload may change meanwhile.
    fn first_time(&self, mut position: u32) -> Option<u64> {
        for _ in 0..ATTEMPTS {
            let index = self.index(position);
            let word = self.words[index].load(Ordering::Acquire);
            if word >> 56 == COMMITTED {
                return self.words.get(index + 1).map(|time| time.load(Ordering::Relaxed));
            }
            position = advance(position, words_of(word)?);
        }
        None
    }

    /// Copies the payloads of one event that are committed and wait, the oldest first. A record that is released
    /// meanwhile is left out: the consumer has it. `releasing` holds the position up to which a release has begun to
    /// zero words.
    #[must_use]
    pub fn copy_waiting(&self, event: u16, releasing: &AtomicU64) -> Vec<Vec<u8>> {
        let (begin, end) = (self.tail().position, self.head().position);
        let (mut found, mut position) = (Vec::new(), begin);
        while position != end {
            let index = self.index(position);
            let word = self.words[index].load(Ordering::Acquire);
            let room = words_between(position, end).min(self.capacity() - index as u32);
            let words = words_of(word).filter(|words| (1..=room).contains(words));
            let is_wanted = word >> 56 == COMMITTED && word >> 32 & 0xffff == u64::from(event);
            let copy = words.filter(|_| is_wanted).map(|words| self.copy(index, words, word as u32 as usize));
            // The words that were read are valid unless a release has come this far: it is published before a word is
            // zeroed.
            fence(std::sync::atomic::Ordering::Acquire);
            let released = Mark::from_word(releasing.load(Ordering::Relaxed)).position;
            if words_between(begin, released) > words_between(begin, position) {
                if words_between(begin, released) >= words_between(begin, end) {
                    break;
                }
                position = released;
                continue;
            }
            found.extend(copy);
            let Some(words) = words else { break };
            position = advance(position, words);
        }
        found
    }

    fn copy(&self, index: usize, words: u32, len: usize) -> Vec<u8> {
        let payload = &self.words[index + RECORD_HEAD_WORDS as usize..index + words as usize];
        let mut bytes: Vec<u8> = payload.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    fn index(&self, position: u32) -> usize {
        (position & (self.capacity() - 1)) as usize
    }
}

/// The number of words of the record that begins with this word; None if the word has no length.
fn words_of(word: u64) -> Option<u32> {
    let len = (word & 0xffff_ffff) as u32;
    match word >> 56 {
        COMMITTED | RESERVED => Some(record_words(len)),
        PAD => Some(len),
        _ => None,
    }
}
