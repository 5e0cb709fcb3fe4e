//! Numbers in JSON's form.

use queue::record::append_short as put;

const MILLION: u64 = 1_000_000;
/// "000000".
const ZEROS: u64 = 0x3030_3030_3030;
/// Up to 15 digits a decimal number and its float determine each other.
const MOST_MICROS: i64 = 1_000_000_000_000_000;

#[inline]
pub fn push_integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    put(out, itoa::Buffer::new().format(value).as_bytes());
}

/// Append a float as the shortest text that reads back as the same float.
#[inline]
pub fn push_float(out: &mut Vec<u8>, value: f64) {
    match whole_micros(value) {
        Some(micros) => push_micros(out, micros),
        None => push_any_float(out, value),
    }
}

/// Return the millionths that `value` is, if it is a whole number of them: most floats here are seconds, cut to
/// microseconds.
#[inline]
fn whole_micros(value: f64) -> Option<u64> {
    // What is negative fails the comparison of bits, and -0.0 too.
    let micros = (value * MILLION as f64 + 0.5) as i64;
    let is_whole = (micros as f64 / MILLION as f64).to_bits() == value.to_bits();
    (is_whole && (0..MOST_MICROS).contains(&micros)).then_some(micros.cast_unsigned())
}

/// Append millionths in the form of [`push_any_float`]; less than ten of them have an exponent there.
#[inline]
fn push_micros(out: &mut Vec<u8>, micros: u64) {
    if (1..10).contains(&micros) {
        return out.extend_from_slice(&[b'0' + micros as u8, b'e', b'-', b'6']);
    }
    let (whole, rest) = (micros / MILLION, (micros % MILLION) as u32);
    if whole < 10 {
        out.push(b'0' + whole as u8);
    } else {
        push_integer(out, whole);
    }
    if rest == 0 {
        return out.extend_from_slice(b".0");
    }
    let digits = six_digits(rest);
    // The zeros at the end go.
    let shown = (u64::BITS - digits.leading_zeros()).div_ceil(8) as usize;
    let end = out.len() + 1 + shown;
    out.extend_from_slice(&((digits | ZEROS) << 8 | u64::from(b'.')).to_le_bytes());
    out.truncate(end);
}

/// Return the digits of a number below a million, a byte each, the first one lowest.
#[inline]
fn six_digits(number: u32) -> u64 {
    let (high, low) = (u64::from(number / 10_000), u64::from(number % 10_000));
    let pairs = high | (low / 100) << 16 | (low % 100) << 32;
    // 103 / 1024 is a tenth, near enough for each number of two digits.
    let tens = (pairs * 103) >> 10 & 0x000F_000F_000F;
    tens | (pairs - tens * 10) << 8
}

#[inline(never)]
fn push_any_float(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        put(out, ryu::Buffer::new().format_finite(value).as_bytes());
    } else if value.is_nan() {
        out.extend_from_slice(br#""NaN""#);
    } else if value > 0.0 {
        out.extend_from_slice(br#""Infinity""#);
    } else {
        out.extend_from_slice(br#""-Infinity""#);
    }
}

#[cfg(test)]
mod tests {
    use super::{push_any_float, push_float, whole_micros};
    use proptest::prelude::*;

    fn text(value: f64) -> String {
        let (mut out, mut any) = (Vec::new(), Vec::new());
        push_float(&mut out, value);
        push_any_float(&mut any, value);
        assert_eq!(out, any, "{value:e}");
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn whole_microseconds_have_the_shortest_text() {
        for (value, shortest) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-1.0, "-1.0"),
            (1e-6, "1e-6"),
            (9e-6, "9e-6"),
            (1e-5, "0.00001"),
            (1.2e-5, "0.000012"),
            (0.1, "0.1"),
            (12.003_4, "12.0034"),
            (86_400.000_001, "86400.000001"),
            (999_999_999.999_999, "999999999.999999"),
        ] {
            assert_eq!(text(value), shortest);
        }
    }

    #[test]
    fn every_count_of_microseconds_below_a_fifth_of_a_second_has_the_shortest_text() {
        for micros in 0..200_000u32 {
            let value = f64::from(micros) / 1e6;
            assert_eq!(whole_micros(value), Some(micros.into()));
            text(value);
        }
    }

    #[test]
    fn numbers_at_the_limits_have_the_shortest_text() {
        for power in -30..=30 {
            for near in [10f64.powi(power), 2f64.powi(power), 10f64.powi(power) - 1e-6] {
                for value in [near.next_down(), near, near.next_up(), -near] {
                    text(value);
                }
            }
        }
        for value in [f64::MAX, f64::MIN, f64::MIN_POSITIVE, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324] {
            text(value);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn any_count_of_microseconds_has_the_shortest_text(digits in 0..17u32, part in 0..10_000_000_000_000_000u64) {
            let micros = part % 10u64.pow(digits);
            let value = micros as f64 / 1e6;
            for value in [value, -value, value.next_up(), value.next_down()] {
                text(value);
            }
        }

        #[test]
        fn any_decimal_and_any_float_have_the_shortest_text(
            mantissa in any::<i32>(), power in -12..6i32, bits in any::<u64>(),
        ) {
            text(format!("{mantissa}e{power}").parse().unwrap());
            text(f64::from_bits(bits));
        }
    }
}
