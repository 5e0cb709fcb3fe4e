//! Decimal numbers of a configuration. A library for small machines does without the tables of the standard library's
//! reader, which take 13 KB.

/// Powers of ten that a float holds exactly.
const EXACT: i32 = 22;
/// Beyond it every number is zero or infinite.
const LARGEST_EXPONENT: i32 = 400;
/// Digits that are counted; more are too small to matter.
const DIGITS: u64 = 1_000_000_000_000_000_000;

/// Reads a number of JSON: the nearest float. None: it is infinite.
pub fn float(text: &str) -> Option<f64> {
    let number = if cfg!(feature = "small") { by_powers(text) } else { text.parse().ok()? };
    number.is_finite().then_some(number)
}

/// The nearest float if there are at most 15 digits and an exponent of at most 22; else off by 1e-14 of it at most.
fn by_powers(text: &str) -> f64 {
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    // An exponent that is no number here has too many digits.
    let is_small = exponent.starts_with('-');
    let given = exponent.parse().unwrap_or(if is_small { -LARGEST_EXPONENT } else { LARGEST_EXPONENT });
    let (mut mantissa, mut shift, mut is_fraction) = (0_u64, 0, false);
    for digit in digits.bytes() {
        match digit {
            b'0'..=b'9' if mantissa < DIGITS => {
                mantissa = mantissa * 10 + u64::from(digit - b'0');
                shift -= i32::from(is_fraction);
            }
            b'0'..=b'9' => shift += i32::from(!is_fraction),
            b'.' => is_fraction = true,
            _ => {}
        }
    }
    let number =
        scaled(mantissa as f64, given.clamp(-2 * LARGEST_EXPONENT, 2 * LARGEST_EXPONENT).saturating_add(shift));
    if digits.starts_with('-') { -number } else { number }
}

/// `number` times ten to `exponent`, by as few roundings as there are powers beyond the exact ones.
fn scaled(mut number: f64, mut exponent: i32) -> f64 {
    while exponent != 0 && number != 0.0 && number.is_finite() {
        let step = exponent.clamp(-EXACT, EXACT);
        let power = (0..step.abs()).fold(1.0, |power, _| power * 10.0);
        number = if step < 0 { number / power } else { number * power };
        exponent -= step;
    }
    number
}

/// Whether a text is digits, perhaps with a sign, a point and an exponent.
pub fn is_decimal(text: &str) -> bool {
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let (whole, exponent) = (without_sign(whole), without_sign(exponent));
    let has_digits = whole.len() + fraction.len() > 0 && !exponent.is_empty();
    has_digits && [whole, fraction, exponent].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
}

fn without_sign(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::by_powers;

    #[test]
    fn the_reader_without_tables_is_exact_up_to_fifteen_digits() {
        for text in ["0", "-0.0", "0.1", "1e22", "1e-22", "123456789012345", "0.000123456789012345", "-2.5E3", "1e400"]
        {
            assert_eq!(by_powers(text), text.parse::<f64>().expect("a number"), "{text}");
        }
        for text in
            ["0.12345678901234567890", "3.141592653589793238", "1.7976931348623157e308", "2.2250738585072014e-308"]
        {
            let (found, nearest) = (by_powers(text), text.parse::<f64>().expect("a number"));
            assert!((found - nearest).abs() <= nearest * 1e-14, "{text}: {found} and {nearest}");
        }
    }
}
