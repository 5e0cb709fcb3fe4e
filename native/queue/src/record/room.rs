//! Pushing of many small values in a row: the place of the next one is kept in a register, which it cannot be in a
//! [`Scratch`](super::Scratch) behind a reference.

use super::{Scratch, Tag};
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

// Keys of a map that stands in many records: encoded once, then copied.

/// Bytes that are copied of every key, whatever its length: no branch, and no call of `memcpy`.
pub(super) const BLOCK: usize = 32;
/// The longest key, in bytes: with its length it is one block.
pub const LONGEST_KEY: usize = BLOCK - 4;

/// The keys of a map, encoded, in their order.
pub struct MapKeys {
    /// Pieces one after another, and [`BLOCK`] bytes more, so that each can be read as a whole block.
    encoded: Box<[u8]>,
}

/// The keys that are not pushed yet.
#[derive(Clone, Copy)]
pub struct KeysLeft<'a>(&'a [u8]);

impl MapKeys {
    /// Encode `keys`; None if one of them is longer than [`LONGEST_KEY`].
    pub fn new(keys: &[&str]) -> Option<Self> {
        let mut scratch = Scratch::new();
        keys.iter().for_each(|key| scratch.push_map_key(key));
        scratch.push_absents(BLOCK);
        keys.iter().all(|key| key.len() <= LONGEST_KEY).then(|| Self { encoded: scratch.as_slice().into() })
    }

    /// All keys.
    #[inline(always)]
    #[must_use]
    pub fn all(&self) -> KeysLeft<'_> {
        KeysLeft(&self.encoded)
    }
}

impl<'a> KeysLeft<'a> {
    /// The block that begins with the next key, and the length of that key as it is encoded. None behind the last key.
    #[inline(always)]
    pub(super) fn next_block(&mut self) -> Option<(&'a [u8; BLOCK], usize)> {
        let (block, behind) = self.0.split_first_chunk::<BLOCK>()?;
        if behind.is_empty() {
            return None;
        }
        let len = 4 + u32::from_le_bytes([block[0], block[1], block[2], block[3]]) as usize;
        self.0 = self.0.get(len..)?;
        Some((block, len))
    }

    /// Push the next key, as [`Scratch::push_map_key`] does; nothing behind the last one.
    pub fn push_next(&mut self, scratch: &mut Scratch) {
        if let Some((block, len)) = self.next_block() {
            scratch.push_values(&block[..len.min(BLOCK)]);
        }
    }
}

/// Append `bytes` to `out`; meant for short ones.
#[inline(always)]
pub fn append_short(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len());
    let len = out.len();
    // SAFETY: `reserve` made room for `bytes.len()` bytes behind `len`, which the copy initialises; `out` is borrowed
    // mutably, so that `bytes` cannot overlap it.
    unsafe {
        copy_short(bytes.as_ptr(), out.as_mut_ptr().add(len), bytes.len());
        out.set_len(len + bytes.len());
    }
}

/// Copy `len` bytes; most values are short, and a call of `memcpy` costs more than their copy.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[inline(always)]
pub unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: each branch copies `[0, n)` and `[len - n, len)` with `n <= len <= 2 * n`: inside both ranges, nothing left out.
    unsafe {
        match len {
            0 => {}
            1 => to.write(from.read()),
            2..4 => copy_both_ends::<2>(from, to, len),
            4..8 => copy_both_ends::<4>(from, to, len),
            8..16 => copy_both_ends::<8>(from, to, len),
            16..=32 => copy_both_ends::<16>(from, to, len),
            _ => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

/// # Safety
/// As [`copy_short`], with `N <= len`.
#[inline(always)]
unsafe fn copy_both_ends<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: both N-byte windows lie inside `[0, len)`, which the caller vouches for.
    unsafe {
        let last = from.add(len - N).cast::<[u8; N]>().read_unaligned();
        to.cast::<[u8; N]>().write_unaligned(from.cast::<[u8; N]>().read_unaligned());
        to.add(len - N).cast::<[u8; N]>().write_unaligned(last);
    }
}
