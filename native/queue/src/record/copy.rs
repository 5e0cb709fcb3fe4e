//! Copies pieces that are mostly a few bytes long, without a call and without a loop.

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
