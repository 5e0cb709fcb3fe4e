//! The one place that chooses between real and loom atomics, and how bytes pass in and out of ring words.
//!
//! Under `cfg(loom)` a word is a model object without a fixed layout, so payload bytes travel word by word through
//! relaxed atomics; loom then proves that the commit word alone publishes them. In a real build the same words are
//! plain shared memory and the payload is one `memcpy`.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, Ordering};

/// The upper 32 bits of a word, to sleep on: a futex has 32.
#[cfg(not(loom))]
#[must_use]
pub fn upper_half(word: &AtomicU64) -> &std::sync::atomic::AtomicU32 {
    let halves: *const AtomicU64 = word;
    // SAFETY: within the word, and as long as it; both are atomics.
    unsafe { &*halves.cast::<std::sync::atomic::AtomicU32>().add(usize::from(cfg!(target_endian = "little"))) }
}

/// Copies `bytes` to the start of `words`, which the caller owns through a reservation.
#[cfg(not(loom))]
#[inline]
pub fn copy_in(words: &[AtomicU64], bytes: &[u8]) {
    assert!(bytes.len() <= words.len() * 8);
    // SAFETY: the destination holds at least `bytes.len()` bytes (asserted); `AtomicU64` allows writes through a shared
    // reference; the reservation makes this thread the only one that touches these words until the commit word is
    // stored with Release.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), words.as_ptr().cast::<u8>().cast_mut(), bytes.len()) }
}

/// Views the first `len` bytes of committed `words`.
#[cfg(not(loom))]
#[inline]
pub fn view(words: &[AtomicU64], len: usize) -> std::borrow::Cow<'_, [u8]> {
    assert!(len <= words.len() * 8);
    // SAFETY: in bounds (asserted); the words belong to a committed record, which no producer writes again before the
    // consumer releases it, and the borrow ends before that.
    std::borrow::Cow::Borrowed(unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), len) })
}

/// Zeroes words that have served: no stale byte can ever look like a commit word, and no text stays.
#[cfg(not(loom))]
#[inline]
pub fn zero(words: &[AtomicU64]) {
    // SAFETY: the caller owns the words: the consumer those between the cursor and the release, which producers may not
    // reserve before the cursor is stored with Release; a request those of its slot until it is given back.
    unsafe { std::ptr::write_bytes(words.as_ptr().cast::<u8>().cast_mut(), 0, words.len() * 8) }
}

#[cfg(loom)]
pub fn copy_in(words: &[AtomicU64], bytes: &[u8]) {
    assert!(bytes.len() <= words.len() * 8);
    for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
        let mut raw = [0; 8];
        raw[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(raw), Ordering::Relaxed);
    }
}

#[cfg(loom)]
pub fn view(words: &[AtomicU64], len: usize) -> std::borrow::Cow<'_, [u8]> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    bytes.truncate(len);
    std::borrow::Cow::Owned(bytes)
}

#[cfg(loom)]
pub fn zero(words: &[AtomicU64]) {
    for word in words {
        word.store(0, Ordering::Relaxed);
    }
}
