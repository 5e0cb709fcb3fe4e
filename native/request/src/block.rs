//! A block of bytes in a register: 16 with SSE2 (part of every x86_64), 8 in a plain integer elsewhere.
//!
//! Both answer one question: how many leading bytes can be in a JSON string unescaped? A block loaded from fewer bytes
//! than its width is filled up with zeros, which count as bytes to escape; so the answer never passes the end of the
//! input by more than a block, and the caller takes the minimum.

#[cfg(target_arch = "x86_64")]
pub use sse2::{Block, WIDTH};
#[cfg(not(target_arch = "x86_64"))]
pub use swar::{Block, WIDTH};

/// How many bytes there are before the first one that cannot be in a JSON string unescaped.
#[inline(always)]
pub(crate) fn plain_length(bytes: &[u8]) -> usize {
    let clean = Block::load(bytes).clean_len::<false>();
    if clean < WIDTH { clean } else { plain_length_of_many(bytes) }
}

/// The same of a longer text: most are short.
#[inline(never)]
fn plain_length_of_many(bytes: &[u8]) -> usize {
    let (blocks, rest) = bytes.as_chunks::<WIDTH>();
    let cleans = blocks.iter().map(|block| Block::load(block).clean_len::<false>());
    let (at, clean) = cleans
        .enumerate()
        .find(|(_, clean)| *clean < WIDTH)
        .unwrap_or_else(|| (blocks.len(), Block::load(rest).clean_len::<false>()));
    at * WIDTH + clean
}

/// Whether the last `length` bytes, at least one, can all be in a JSON string unescaped; false also if it takes more than
/// a block to see that.
#[inline(always)]
pub fn ends_plain(bytes: &[u8], length: usize) -> bool {
    bytes.last_chunk::<WIDTH>().is_some_and(|block| length <= WIDTH && Block::load(block).ends_clean(length))
}

/// Load up to 8 bytes little-endian, filled up with zeros, without a loop and without reading past the end.
#[inline(always)]
fn load_word(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if let Some(word) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*word);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        // Where the two halves overlap they agree, so that `|` joins them.
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (len - 4));
    }
    match *bytes {
        [] => 0,
        [a] => u64::from(a),
        [a, b] => u64::from(a) | u64::from(b) << 8,
        [a, b, c, ..] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
    }
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_cmplt_epi8, _mm_loadu_si128, _mm_max_epu8, _mm_movemask_epi8, _mm_or_si128,
        _mm_set_epi64x, _mm_set1_epi8, _mm_storeu_si128,
    };

    /// Bytes of a block.
    pub const WIDTH: usize = 16;

    /// 16 bytes.
    #[derive(Clone, Copy)]
    pub struct Block(__m128i);

    impl Block {
        /// Load the first 16 bytes, or all and zeros.
        #[inline(always)]
        pub fn load(bytes: &[u8]) -> Self {
            if let Some(full) = bytes.first_chunk::<WIDTH>() {
                // SAFETY: `full` is 16 readable bytes; the load needs no alignment. SSE2 is part of x86_64.
                return Self(unsafe { _mm_loadu_si128(full.as_ptr().cast()) });
            }
            let low = super::load_word(bytes);
            let high = match (bytes.len(), bytes.last_chunk::<8>()) {
                (9.., Some(last)) => u64::from_le_bytes(*last) >> (8 * (WIDTH - bytes.len())),
                _ => 0,
            };
            // SAFETY: SSE2 is part of x86_64.
            Self(unsafe { _mm_set_epi64x(high.cast_signed(), low.cast_signed()) })
        }

        /// Write all 16 bytes.
        ///
        /// # Safety
        /// `to` is writable for 16 bytes.
        #[inline(always)]
        pub unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller vouches for `to`; the store needs no alignment. SSE2 is part of x86_64.
            unsafe { _mm_storeu_si128(to.cast(), self.0) }
        }

        /// Count the leading bytes that need no escape, at most 16; with `ASCII` a byte of 0x80 or more ends them too.
        #[inline(always)]
        pub fn clean_len<const ASCII: bool>(self) -> usize {
            (self.stops::<ASCII>() | 1 << WIDTH).trailing_zeros() as usize
        }

        /// Whether the last `length` bytes, 1 to 16, need no escape.
        #[inline(always)]
        pub fn ends_clean(self, length: usize) -> bool {
            self.stops::<false>() >> (WIDTH - length) == 0
        }

        /// The bytes that need an escape, a bit each; with `ASCII` those of 0x80 or more too.
        #[inline(always)]
        fn stops<const ASCII: bool>(self) -> u32 {
            // SAFETY: SSE2 is part of x86_64; nothing here touches memory.
            unsafe {
                let quote = _mm_cmpeq_epi8(self.0, _mm_set1_epi8(0x22));
                let backslash = _mm_cmpeq_epi8(self.0, _mm_set1_epi8(0x5C));
                let low = if ASCII {
                    // Signed: bytes from 0x80 are negative, so that one comparison finds both ends.
                    _mm_cmplt_epi8(self.0, _mm_set1_epi8(0x20))
                } else {
                    let last_control = _mm_set1_epi8(0x1F);
                    _mm_cmpeq_epi8(_mm_max_epu8(self.0, last_control), last_control)
                };
                _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, backslash), low)) as u32
            }
        }
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod swar {
    /// Bytes of a block.
    pub const WIDTH: usize = 8;

    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;

    /// 8 bytes, the first one lowest.
    #[derive(Clone, Copy)]
    pub struct Block(u64);

    impl Block {
        /// Load the first 8 bytes, or all and zeros.
        #[inline(always)]
        pub fn load(bytes: &[u8]) -> Self {
            Self(super::load_word(bytes))
        }

        /// Write all 8 bytes.
        ///
        /// # Safety
        /// `to` is writable for 8 bytes.
        #[inline(always)]
        pub unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller vouches for `to`; an array of bytes needs no alignment.
            unsafe { to.cast::<[u8; 8]>().write(self.0.to_le_bytes()) }
        }

        /// Count the leading bytes that need no escape, at most 8; with `ASCII` a byte of 0x80 or more ends them too.
        #[inline(always)]
        pub fn clean_len<const ASCII: bool>(self) -> usize {
            // A borrow can mark bytes above a true hit, never below it, and only the lowest mark is used.
            let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & TOPS;
            let quote = below(self.0 ^ (ONES * 0x22), 1);
            let backslash = below(self.0 ^ (ONES * 0x5C), 1);
            let high = if ASCII { self.0 & TOPS } else { 0 };
            ((quote | backslash | below(self.0, 0x20) | high).trailing_zeros() / 8) as usize
        }

        /// Whether the last `length` bytes, 1 to 8, need no escape.
        #[inline(always)]
        pub fn ends_clean(self, length: usize) -> bool {
            Self(self.0 >> (8 * (WIDTH - length))).clean_len::<false>() >= length
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{WIDTH, ends_plain, load_word, plain_length, swar};
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_oneof, proptest};
    use proptest::sample::select;

    fn expected(bytes: &[u8], ascii: bool, width: usize) -> usize {
        let stays = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\' && !(ascii && *byte >= 0x80);
        bytes.iter().take(width).take_while(|byte| stays(byte)).count()
    }

    /// Walks through all bytes block by block, to the first that cannot stay.
    fn walk(bytes: &[u8], width: usize, clean_len: impl Fn(&[u8]) -> usize) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let clean = clean_len(&bytes[at..]).min(bytes.len() - at);
            at += clean;
            if clean < width {
                break;
            }
        }
        at
    }

    proptest! {
        #[test]
        fn blocks_of_either_width_end_at_the_same_byte(
            bytes in vec(
                prop_oneof![30 => b' '..=b'~', 1 => select(b"\x1f\x7f\x80\xff".to_vec()), 1 => any::<u8>()],
                0..100,
            ),
        ) {
            let (ascii, any) = (expected(&bytes, true, bytes.len()), expected(&bytes, false, bytes.len()));
            let swar = |bytes: &[u8]| swar::Block::load(bytes);
            assert_eq!(walk(&bytes, swar::WIDTH, |rest| swar(rest).clean_len::<true>()), ascii);
            assert_eq!(walk(&bytes, swar::WIDTH, |rest| swar(rest).clean_len::<false>()), any);
            #[cfg(target_arch = "x86_64")]
            {
                let sse2 = |bytes: &[u8]| super::sse2::Block::load(bytes);
                assert_eq!(walk(&bytes, 16, |rest| sse2(rest).clean_len::<true>()), ascii);
                assert_eq!(walk(&bytes, 16, |rest| sse2(rest).clean_len::<false>()), any);
            }
        }
    }

    #[test]
    fn the_plain_length_is_up_to_the_first_byte_that_cannot_stay_in_a_text_of_any_length() {
        for length in 0..70 {
            for special in [b'"', b'\\', 0, b'\n', 0x1F, b' ', 0x7F, 0x80, 0xFF] {
                for at in 0..length {
                    let mut bytes = vec![b'x'; length];
                    (bytes[at], bytes[at.midpoint(length)]) = (special, b'"');
                    assert_eq!(plain_length(&bytes), expected(&bytes, false, length), "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn the_end_of_a_block_is_plain_if_each_of_its_bytes_is() {
        for special in 0..=255u8 {
            for at in 0..16 {
                let mut bytes = [b'"'; 16];
                bytes[8..].fill(b'x');
                bytes[at] = special;
                for length in 1..=8 {
                    let is_plain = expected(&bytes[16 - length..], false, length) == length;
                    let is_read = swar::Block::load(&bytes[8..]).ends_clean(length);
                    assert_eq!(is_read, is_plain, "{bytes:?}, {length}");
                }
                for length in 1..=17 {
                    let is_plain =
                        length <= WIDTH && expected(&bytes[16.max(length) - length..], false, length) == length;
                    assert_eq!(ends_plain(&bytes, length), is_plain, "{bytes:?}, {length}");
                }
            }
        }
    }

    #[test]
    fn both_blocks_find_the_first_byte_that_cannot_stay() {
        for len in 0..=17 {
            for special in 0..=255u8 {
                for at in 0..len {
                    let mut bytes = vec![b'x'; len];
                    bytes[at] = special;
                    let swar = swar::Block::load(&bytes);
                    assert_eq!(swar.clean_len::<true>(), expected(&bytes, true, swar::WIDTH));
                    assert_eq!(swar.clean_len::<false>(), expected(&bytes, false, swar::WIDTH));
                    #[cfg(target_arch = "x86_64")]
                    {
                        let sse2 = super::sse2::Block::load(&bytes);
                        assert_eq!(sse2.clean_len::<true>(), expected(&bytes, true, 16));
                        assert_eq!(sse2.clean_len::<false>(), expected(&bytes, false, 16));
                    }
                }
            }
        }
    }

    #[test]
    fn a_stored_block_is_what_was_loaded_and_zeros() {
        for len in 0..=17usize {
            let bytes: Vec<u8> = (1..=len as u8).collect();
            let mut padded = bytes.clone();
            padded.resize(32, 0);
            let mut out = [0xFFu8; 16];
            // SAFETY: `out` has 16 bytes, and the block is 8 wide.
            unsafe { swar::Block::load(&bytes).store(out.as_mut_ptr()) };
            assert_eq!(out[..8], padded[..8]);
            assert_eq!(load_word(&bytes).to_le_bytes(), padded[..8]);
            #[cfg(target_arch = "x86_64")]
            {
                // SAFETY: `out` has 16 bytes.
                unsafe { super::sse2::Block::load(&bytes).store(out.as_mut_ptr()) };
                assert_eq!(out[..], padded[..16]);
            }
        }
    }
}
