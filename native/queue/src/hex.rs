//! Lowercase hexadecimal of a fixed length. Digits are written four bytes at a time in one integer.

const ONES: u64 = 0x0101_0101_0101_0101;

/// The bytes of exactly `2 * N` lowercase digits; None: the text is something else.
#[must_use]
pub fn read<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    (digits.len() == 2 * N).then_some(bytes)
}

/// The digits of an id of 8 bytes.
#[must_use]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
pub fn of_id(id: [u8; 8]) -> [u8; 16] {
    let mut digits = [0; 16];
    for (eight, four) in digits.as_chunks_mut().0.iter_mut().zip(id.as_chunks().0) {
        *eight = eight_digits(*four);
    }
    digits
}

/// Appends two digits for each byte; there are at most 32.
#[inline]
pub fn push<const N: usize>(out: &mut Vec<u8>, bytes: [u8; N]) {
    const { assert!(N <= 32, "the digits below have room for these") };
    let mut digits = [[0; 8]; 8];
    let (fours, rest) = bytes.as_chunks::<4>();
    for (eight, four) in digits.iter_mut().zip(fours) {
        *eight = eight_digits(*four);
    }
    for (eight, byte) in digits[fours.len()..].iter_mut().zip(rest) {
        *eight = eight_digits([*byte, 0, 0, 0]);
    }
    out.extend_from_slice(&digits.as_flattened()[..2 * N]);
}

#[inline(always)]
fn eight_digits(bytes: [u8; 4]) -> [u8; 8] {
    // Spread the nibbles over the bytes, the high one of each byte first.
    let word = u64::from(u32::from_le_bytes(bytes));
    let word = (word | word << 16) & 0x0000_FFFF_0000_FFFF;
    let word = (word | word << 8) & 0x00FF_00FF_00FF_00FF;
    let nibbles = (word >> 4 | word << 8) & 0x0F0F_0F0F_0F0F_0F0F;
    // 6 more lifts a nibble of 10 to 15 to 16 or more: its bit 4 says "letter".
    let letters = (nibbles + ONES * 6) >> 4 & ONES;
    (nibbles + ONES * u64::from(b'0') + letters * u64::from(b'a' - b'0' - 10)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::{of_id, push, read};

    #[test]
    fn every_byte_at_every_place_has_its_two_digits() {
        for byte in 0..=255u8 {
            for at in 0..9 {
                let mut bytes = [0x5A; 9];
                bytes[at] = byte;
                let mut out = Vec::new();
                push(&mut out, bytes);
                let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(out, expected.as_bytes());
                assert_eq!(read(&out), Some(bytes));
                let id = bytes.first_chunk().unwrap();
                assert_eq!(of_id(*id), expected.as_bytes()[..16]);
            }
        }
    }

    #[test]
    fn another_length_or_another_digit_is_refused() {
        for text in ["", "0", "00f", "00ff0", "00ff00", "00FF", "00fg", "+0ff", "0x0f", " 0ff"] {
            assert_eq!(read::<2>(text.as_bytes()), None, "{text}");
        }
    }
}
