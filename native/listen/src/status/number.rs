//! Numbers in the texts of health and metrics: as Python, C and Go write them.

/// Writes a number as Python's `repr` does: the shortest text that is read back as the same number.
pub fn python(value: f64) -> String {
    let text = format!("{value:?}");
    match text.split_once('e') {
        Some((digits, exponent)) => with_exponent(digits, exponent),
        None => text,
    }
}

/// Writes a number as C's `%g` does: six digits, and no zeros behind them.
pub fn general(value: f64) -> String {
    let scientific = format!("{value:.5e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse() {
        Ok(places @ -4..6) => without_zeros(&format!("{value:.*}", (5 - places) as usize)).to_owned(),
        _ => with_exponent(without_zeros(digits), exponent),
    }
}

/// Writes a number as the samples of Prometheus have it: as Go does, which has exponents from a million on.
pub fn go(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = python(value);
    match text.split_once('.') {
        Some((whole, fraction)) if value > 0.0 && whole.len() > 6 => {
            let digits = format!("{}.{}{fraction}", &whole[..1], &whole[1..]);
            format!("{}e+{:02}", without_zeros(&digits), whole.len() - 1)
        }
        _ => text,
    }
}

/// Rounds to so many decimal places, as Python's `round` does.
pub fn rounded(value: f64, places: usize) -> f64 {
    format!("{value:.places$}").parse().unwrap_or(value)
}

fn with_exponent(digits: &str, exponent: &str) -> String {
    let (sign, places) = exponent.strip_prefix('-').map_or(('+', exponent), |places| ('-', places));
    format!("{digits}e{sign}{places:0>2}")
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::{general, go, python, rounded};

    #[test]
    fn a_number_has_the_shortest_text_that_python_reads_back() {
        let numbers = [0.0, 1.0, 0.1, 1e-4, 1e-5, 1.5e-7, 123_456_789.125, 1e15, 1e16, 1.25e16, 1e100, -2.5];
        let texts = [
            "0.0", "1.0", "0.1", "0.0001", "1e-05", "1.5e-07", "123456789.125", "1000000000000000.0", "1e+16",
            "1.25e+16", "1e+100", "-2.5",
        ];
        assert_eq!(numbers.map(python), texts);
    }

    #[test]
    fn a_threshold_has_six_digits_at_most() {
        let numbers = [0.0, 0.5, 30.0, 30.5, 10_000.0, 123_456.0, 1e6, 1_234_567.0, 999_999.5, 0.001, 0.00012, 1e-5];
        let texts =
            ["0", "0.5", "30", "30.5", "10000", "123456", "1e+06", "1.23457e+06", "1e+06", "0.001", "0.00012", "1e-05"];
        assert_eq!(numbers.map(general), texts);
    }

    #[test]
    fn a_sample_has_an_exponent_from_a_million_on() {
        let numbers = [0.0, 1.0, 999_999.0, 1e6, 1_048_576.0, 1_763_850_000.125, 1.25e16, -1e6, 0.0001];
        let texts = [
            "0.0", "1.0", "999999.0", "1e+06", "1.048576e+06", "1.763850000125e+09", "1.25e+16", "-1000000.0", "0.0001",
        ];
        assert_eq!(numbers.map(go), texts);
        assert_eq!([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(go), ["NaN", "+Inf", "-Inf"]);
    }

    #[test]
    fn what_lies_in_the_middle_is_rounded_to_the_even_digit() {
        assert_eq!([rounded(0.125, 2), rounded(0.375, 2), rounded(2.675, 2), rounded(7.0, 3)], [0.12, 0.38, 2.67, 7.0]);
    }
}
