//! Durations for people: three significant digits, and the unit that fits.

/// Return `35.3 ms` for 0.0353 seconds.
pub(super) fn duration(seconds: f64) -> String {
    // What rounds to a thousand has the next unit.
    let (value, unit) = match seconds {
        s if s >= 0.9995 => (s, "s"),
        s if s >= 0.000_999_5 => (s * 1e3, "ms"),
        s if s > 0.0 => (s * 1e6, "µs"),
        _ => (0.0, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Return a number with three significant digits, without zeroes at the end.
pub(super) fn three_digits(value: f64) -> String {
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}
