//! Decimal numbers of a configuration, without the tables of the standard library's reader, which take 13 KB.

/// Powers of ten that a float holds exactly.
const EXACT: i32 = 22;
/// Beyond it every number is zero or infinite.
const LARGEST_EXPONENT: i32 = 400;
/// Digits that are counted; more are too small to matter.
const DIGITS: u64 = 1_000_000_000_000_000_000;

/// Reads a number of JSON. It is the nearest float if it has at most 15 digits, and one of the nearest three otherwise. None:
/// it is infinite.
pub fn float(text: &str) -> Option<f64> {
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
    let number = if digits.starts_with('-') { -number } else { number };
    number.is_finite().then_some(number)
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
