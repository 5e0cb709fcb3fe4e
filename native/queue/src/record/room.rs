//! Pushing of many small values in a row: the place of the next one is kept in a register, which it cannot be in a
//! [`Scratch`](super::Scratch) behind a reference.

use super::Tag;
use super::copy::copy_short;
use super::keys::{BLOCK, KeysLeft};
use std::marker::PhantomData;

/// The rest of a scratch's inline bytes. Each method pushes one value and returns true, or does nothing and returns
/// false: there is no room for it, and the scratch itself takes it.
pub struct Room<'a> {
    /// Bytes in use of those from `start` on; written when the room is dropped.
    len: &'a mut usize,
    start: *mut u8,
    at: *mut u8,
    end: *mut u8,
    bytes: PhantomData<&'a mut [u8]>,
}

impl<'a> Room<'a> {
    /// # Safety
    /// `start` points to `limit` writable bytes that nothing else uses for `'a`, and `*len <= limit`.
    #[inline(always)]
    pub(super) unsafe fn new(len: &'a mut usize, start: *mut u8, limit: usize) -> Self {
        // SAFETY: the caller's promise.
        let (at, end) = unsafe { (start.add(*len), start.add(limit)) };
        Self { len, start, at, end, bytes: PhantomData }
    }

    /// Push text.
    #[inline(always)]
    pub fn push_str(&mut self, value: &str) -> bool {
        let Some(to) = self.claim(5 + value.len(), 5 + value.len()) else { return false };
        // SAFETY: `claim` returned so many writable bytes, exclusively ours, so `value` does not overlap.
        unsafe {
            to.write(Tag::Str as u8);
            // Fits: the text is shorter than the room.
            to.add(1).cast::<[u8; 4]>().write_unaligned((value.len() as u32).to_le_bytes());
            copy_short(value.as_ptr(), to.add(5), value.len());
        }
        true
    }

    /// Push a signed integer.
    #[inline(always)]
    pub fn push_int(&mut self, value: i64) -> bool {
        self.word(Tag::Int, value.to_le_bytes())
    }

    /// Push a float.
    #[inline(always)]
    pub fn push_float(&mut self, value: f64) -> bool {
        self.word(Tag::Float, value.to_le_bytes())
    }

    /// Push JSON `null`.
    #[inline(always)]
    pub fn push_null(&mut self) -> bool {
        self.byte(Tag::Null as u8)
    }

    /// Push a boolean.
    #[inline(always)]
    pub fn push_bool(&mut self, value: bool) -> bool {
        self.byte(Tag::False as u8 + u8::from(value))
    }

    /// Push the next of `keys`, unless there is none.
    #[inline(always)]
    pub fn push_key(&mut self, keys: &mut KeysLeft<'_>) -> bool {
        let mut left = *keys;
        let Some((block, len)) = left.next_block() else { return false };
        let Some(to) = self.claim(BLOCK, len.min(BLOCK)) else { return false };
        // SAFETY: `claim` found room for a block there, exclusively ours.
        unsafe { to.cast::<[u8; BLOCK]>().write_unaligned(*block) };
        *keys = left;
        true
    }

    #[inline(always)]
    fn word(&mut self, tag: Tag, value: [u8; 8]) -> bool {
        let Some(to) = self.claim(9, 9) else { return false };
        // SAFETY: `claim` returned 9 writable bytes, exclusively ours.
        unsafe {
            to.write(tag as u8);
            to.add(1).cast::<[u8; 8]>().write_unaligned(value);
        }
        true
    }

    #[inline(always)]
    fn byte(&mut self, byte: u8) -> bool {
        let Some(to) = self.claim(1, 1) else { return false };
        // SAFETY: `claim` returned a writable byte, exclusively ours.
        unsafe { to.write(byte) };
        true
    }

    /// Count `used` bytes as written if there is room for `need`, which are not fewer; the caller fills them at once.
    #[inline(always)]
    fn claim(&mut self, need: usize, used: usize) -> Option<*mut u8> {
        debug_assert!(used <= need);
        let to = self.at;
        if need > self.end as usize - to as usize {
            return None;
        }
        // SAFETY: `used <= need` bytes from here on are within the room.
        self.at = unsafe { to.add(used) };
        Some(to)
    }
}

impl Drop for Room<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.len = self.at as usize - self.start as usize;
    }
}
