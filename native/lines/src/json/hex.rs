//! Lowercase hexadecimal, four bytes at a time in one integer.

const ONES: u64 = 0x0101_0101_0101_0101;

/// Append two digits for each byte; there are at most 32.
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
    #[test]
    fn every_byte_at_every_place_has_its_two_digits() {
        for byte in 0..=255u8 {
            for at in 0..9 {
                let mut bytes = [0x5A; 9];
                bytes[at] = byte;
                let mut out = Vec::new();
                super::push(&mut out, bytes);
                let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(out, expected.as_bytes());
            }
        }
    }
}
