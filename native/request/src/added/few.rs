//! The members of most requests: few enough for a slot of the flight recorder, which keeps them until the end.

use super::{HEAD_BYTES, MAX_TEXT_BYTES};
use queue::record::copy_short;
use std::mem::MaybeUninit;

/// Most bytes of [`FewMembers`].
pub const FEW_BYTES: usize = 248;
// A text that has to be cut has no room here.
const _: () = assert!(FEW_BYTES <= MAX_TEXT_BYTES);
/// What stands before a value is copied in a block of so many bytes, most of them whole.
pub(super) const BLOCK: usize = 32;

/// Members as they pass a queue, on the caller's stack.
///
/// Invariant: `len <= FEW_BYTES`, and `bytes[..len]` is initialised.
pub struct FewMembers {
    len: usize,
    /// The fields that are there, a bit each.
    taken: u32,
    /// Something had no room: [`Members`](super::Members) takes all of them.
    is_full: bool,
    bytes: [MaybeUninit<u8>; FEW_BYTES + BLOCK],
}

impl Default for FewMembers {
    #[inline]
    fn default() -> Self {
        Self { len: 0, taken: 0, is_full: false, bytes: [const { MaybeUninit::uninit() }; FEW_BYTES + BLOCK] }
    }
}

impl FewMembers {
    /// The bytes, for [`members`](super::members); None: there are more.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        // SAFETY: `len <= FEW_BYTES`, and `bytes[..len]` was initialised by the additions that advanced `len`.
        (!self.is_full).then(|| unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len) })
    }

    /// Whether a field is there.
    #[inline]
    pub(super) const fn has(&self, field: u32) -> bool {
        self.taken & field != 0
    }

    /// Adds a member. `texts` begins with its prefix, what stands before the value: its head and the name, then goes on for
    /// at least [`BLOCK`] bytes in all. The value's length is written over that in the head.
    #[inline(always)]
    pub(super) fn add(&mut self, field: u32, texts: &[u8], prefix_len: usize, value: &[u8]) {
        let need = prefix_len + value.len();
        let is_prefix = HEAD_BYTES <= prefix_len && prefix_len.max(BLOCK) <= texts.len();
        if !is_prefix || need > FEW_BYTES - self.len {
            self.is_full = true;
            return;
        }
        // SAFETY: `len + need <= FEW_BYTES`, and there is a block behind that, so all of it stays inside `bytes`, which neither
        // slice overlaps since it is borrowed mutably. The texts have a block and the prefix, and that has a head, of which the
        // length are two bytes.
        unsafe {
            let to = self.bytes.as_mut_ptr().cast::<u8>().add(self.len);
            to.cast::<[u8; BLOCK]>().write_unaligned(texts.as_ptr().cast::<[u8; BLOCK]>().read_unaligned());
            if prefix_len > BLOCK {
                to.add(BLOCK).copy_from_nonoverlapping(texts.as_ptr().add(BLOCK), prefix_len - BLOCK);
            }
            to.add(2).cast::<[u8; 2]>().write_unaligned((value.len() as u16).to_le_bytes());
            copy_short(value.as_ptr(), to.add(prefix_len), value.len());
        }
        self.len += need;
        self.taken |= field;
    }
}
