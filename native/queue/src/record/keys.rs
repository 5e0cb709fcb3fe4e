//! Keys of a map that stands in many records: encoded once, then copied.

use super::Scratch;

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
