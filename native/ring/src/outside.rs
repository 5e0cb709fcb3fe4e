//! What a process that is neither producer nor consumer sees of a ring: words that may be given back while they are
//! read.

use super::{COMMITTED, Mark, PAD, RECORD_HEAD_WORDS, RESERVED, Ring, advance, record_words, words_between};
use crate::sync::{AtomicU64, Ordering};
use std::sync::atomic::fence;

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
