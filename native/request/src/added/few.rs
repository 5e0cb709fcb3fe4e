//! The members of most requests: few enough for a slot of the flight recorder, which keeps them until the end.

use super::{HEAD_BYTES, MAX_TEXT_BYTES};
use queue::record::copy_short;
use std::mem::MaybeUninit;

/// Most bytes of [`FewMembers`].
pub const FEW_BYTES: usize = 248;
// A text that has to be cut has no room here.
const _: () = assert!(FEW_BYTES <= MAX_TEXT_BYTES);

/// Members as they pass a queue, on the caller's stack.
///
/// Invariant: `len <= FEW_BYTES`, and `bytes[..len]` is initialised.
pub struct FewMembers {
    len: usize,
    /// The fields that are there, a bit each.
    taken: u32,
    /// Something had no room: [`Members`](super::Members) takes all of them.
    is_full: bool,
    bytes: [MaybeUninit<u8>; FEW_BYTES],
}

impl Default for FewMembers {
    #[inline]
    fn default() -> Self {
        Self { len: 0, taken: 0, is_full: false, bytes: [const { MaybeUninit::uninit() }; FEW_BYTES] }
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

    /// Adds a member whose `prefix` is what stands before the value: its head, and the name. The value's length is written
    /// over that in the head.
    #[inline(always)]
    pub(super) fn add(&mut self, field: u32, prefix: &[u8], value: &[u8]) {
        let need = prefix.len() + value.len();
        if prefix.len() < HEAD_BYTES || need > FEW_BYTES - self.len {
            self.is_full = true;
            return;
        }
        // SAFETY: `len + need <= FEW_BYTES`, so all of it stays inside `bytes`, which neither slice overlaps since it is
        // borrowed mutably; the prefix has a head, of which the length are two bytes.
        unsafe {
            let to = self.bytes.as_mut_ptr().cast::<u8>().add(self.len);
            copy_short(prefix.as_ptr(), to, prefix.len());
            to.add(2).cast::<[u8; 2]>().write_unaligned((value.len() as u16).to_le_bytes());
            copy_short(value.as_ptr(), to.add(prefix.len()), value.len());
        }
        self.len += need;
        self.taken |= field;
    }
}
