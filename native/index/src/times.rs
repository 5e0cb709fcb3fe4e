//! Times of records: the text in their lines, and nanoseconds since the Unix epoch.

use lines::json::timestamp::{SecondCache, TIMESTAMP_BYTES, date};

const NANOS: u64 = 1_000_000_000;
const DAY_SECONDS: u64 = 86_400;

/// Reads the one form that lines have: `2026-11-21T05:00:00.123456789Z`, always of an existing day.
#[inline]
#[must_use]
pub fn read(text: &[u8]) -> Option<u64> {
    let text: &[u8; TIMESTAMP_BYTES] = text.try_into().ok()?;
    let shape = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (29, b'Z')];
    if shape.iter().any(|(at, byte)| text[*at] != *byte) {
        return None;
    }
    let part = |from: usize, to: usize| -> Option<u64> {
        text[from..to]
            .iter()
            .try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + u64::from(byte - b'0')))
    };
    let days = day(part(0, 4)?, part(5, 7)?, part(8, 10)?)?;
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days * DAY_SECONDS + hour * 3600 + minute * 60 + second;
    seconds.checked_mul(NANOS)?.checked_add(part(20, 29)?)
}

/// The day since 1970-01-01, if it exists.
fn day(year: u64, month: u64, day: u64) -> Option<u64> {
    let year_of_march = year.checked_sub(u64::from(month <= 2))?;
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let (era, year_of_era) = (year_of_march / 400, year_of_march % 400);
    let of_year = (153 * march_month + 2) / 5 + day.checked_sub(1)?;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    let days = (era * 146_097 + of_era).checked_sub(719_468)?;
    (date(days) == (year as u32, month as u32, day as u32)).then_some(days)
}

/// Returns the text of a time.
#[must_use]
pub fn text(unix_nano: u64) -> String {
    let mut out = Vec::with_capacity(TIMESTAMP_BYTES);
    SecondCache::default().push_timestamp(&mut out, unix_nano);
    String::from_utf8(out).unwrap_or_default()
}
