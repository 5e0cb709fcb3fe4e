//! The places of texts in a slot: how each is written, wiped and read.

use ring::slots::SLOT_WORDS;
use ring::sync::{copy_in, view};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// The place of a text, and of its length in the word of lengths. The length is the text's own, up to the largest that
/// fits there. A text that is too long for its place is cut.
pub struct Text {
    pub first: usize,
    pub bytes: usize,
    pub shift: u32,
    pub bits: u32,
}

impl Text {
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn write(&self, words: &[AtomicU64; SLOT_WORDS], text: &[u8]) -> u64 {
        copy_in(&words[self.first..self.first + self.bytes / 8], &text[..text.len().min(self.bytes)]);
        (text.len() as u64).min((1 << self.bits) - 1) << self.shift
    }

    /// As [`Text::write`], where a longer text may already stand. Usually the same text is written again, and a process
    /// that dies here must leave every byte of it.
    #[inline]
    pub fn replace(&self, words: &[AtomicU64; SLOT_WORDS], lengths: u64, text: &[u8]) -> u64 {
        if self.len(lengths) > text.len() {
            self.wipe(words, lengths);
        }
        self.write(words, text)
    }

    #[inline]
    pub const fn len(&self, lengths: u64) -> usize {
        (lengths >> self.shift & ((1 << self.bits) - 1)) as usize
    }

    /// Zeroes the words of a text.
    #[inline]
    pub fn wipe(&self, words: &[AtomicU64; SLOT_WORDS], lengths: u64) {
        wipe_words(&words[self.first..self.first + self.len(lengths).min(self.bytes).div_ceil(8)]);
    }

    #[inline]
    pub fn borrow<'a>(&self, words: &'a [AtomicU64; SLOT_WORDS], lengths: u64) -> &'a [u8] {
        match view(&words[self.first..self.first + self.bytes / 8], self.len(lengths).min(self.bytes)) {
            Cow::Borrowed(text) => text,
            Cow::Owned(_) => b"",
        }
    }

    pub fn read(&self, words: &[AtomicU64; SLOT_WORDS], lengths: u64) -> Vec<u8> {
        let len = self.len(lengths);
        let mut text = view(&words[self.first..self.first + self.bytes / 8], len.min(self.bytes)).into_owned();
        if len > self.bytes {
            const CUT: &[u8] = "…".as_bytes();
            let is_within_character = |at: &usize| text[*at] & 0xc0 == 0x80;
            let end = (0..=self.bytes - CUT.len()).rev().find(|at| !is_within_character(at)).unwrap_or(0);
            text.truncate(end);
            text.extend_from_slice(CUT);
        }
        text
    }
}

/// Zeroes a few words, store by store. Most texts have few words or none, for which a call of `memset` costs more.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
pub fn wipe_words(words: &[AtomicU64]) {
    words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
}
