//! RFC 3339 timestamps in UTC with nanoseconds: `2026-11-21T05:00:00.123456789Z`, always 30 bytes.
//!
//! The date is computed once per second of log time; a line only fills in the nanoseconds. A `u64` of nanoseconds ends
//! in the year 2554, so that the year has four digits.

const NANOS: u64 = 1_000_000_000;
const DAY_SECONDS: u64 = 86_400;

/// Bytes of a timestamp.
pub const TIMESTAMP_BYTES: usize = 30;

/// The text of the second formatted last.
#[derive(Clone, Debug)]
pub(crate) struct SecondCache {
    second: u64,
    text: [u8; TIMESTAMP_BYTES],
}

impl Default for SecondCache {
    fn default() -> Self {
        Self { second: 0, text: *b"1970-01-01T00:00:00.000000000Z" }
    }
}

impl SecondCache {
    /// Append the timestamp of `unix_nano`.
    #[inline]
    pub(crate) fn push_timestamp(&mut self, out: &mut Vec<u8>, unix_nano: u64) {
        let second = unix_nano / NANOS;
        if second != self.second {
            self.format_second(second);
        }
        let mut text = self.text;
        let nanos = (unix_nano % NANOS) as u32;
        let (high, low) = (nanos / 10_000, nanos % 10_000);
        put_two(&mut text, 20, high / 1000);
        put_two(&mut text, 22, high / 10 % 100);
        text[24] = b'0' + (high % 10) as u8;
        put_two(&mut text, 25, low / 100);
        put_two(&mut text, 27, low % 100);
        out.extend_from_slice(&text);
    }

    #[cold]
    fn format_second(&mut self, second: u64) {
        let (year, month, day) = date(second / DAY_SECONDS);
        let of_day = (second % DAY_SECONDS) as u32;
        self.second = second;
        put_two(&mut self.text, 0, year / 100);
        put_two(&mut self.text, 2, year % 100);
        put_two(&mut self.text, 5, month);
        put_two(&mut self.text, 8, day);
        put_two(&mut self.text, 11, of_day / 3600);
        put_two(&mut self.text, 14, of_day / 60 % 60);
        put_two(&mut self.text, 17, of_day % 60);
    }
}

#[inline(always)]
fn put_two(text: &mut [u8; TIMESTAMP_BYTES], at: usize, value: u32) {
    text[at] = b'0' + (value / 10) as u8;
    text[at + 1] = b'0' + (value % 10) as u8;
}

/// Return (year, month, day) of a day since 1970-01-01: `civil_from_days` of Howard Hinnant's "chrono-Compatible
/// Low-Level Date Algorithms". Its years begin in March, so that the leap day is the last one.
pub fn date(days: u64) -> (u32, u32, u32) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year as u32, month as u32, day as u32)
}

#[cfg(test)]
mod tests {
    use super::{DAY_SECONDS, NANOS, SecondCache, date};

    fn text(unix_nano: u64) -> String {
        let mut out = Vec::new();
        SecondCache::default().push_timestamp(&mut out, unix_nano);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_instants_have_their_text() {
        assert_eq!(text(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(text(951_782_400 * NANOS + 1), "2000-02-29T00:00:00.000000001Z");
        assert_eq!(text(1_795_237_200 * NANOS + 123_456_789), "2026-11-21T05:00:00.123456789Z");
        assert_eq!(text(4_107_542_399 * NANOS + 999_999_999), "2100-02-28T23:59:59.999999999Z");
        assert_eq!(text(u64::MAX), "2554-07-21T23:34:33.709551615Z");
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..=u64::MAX / NANOS / DAY_SECONDS {
            assert_eq!(date(days), (year, month, day));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 => 28 + u32::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day == last) {
                (12, true) => (year + 1, 1, 1),
                (_, true) => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
    }

    #[test]
    fn the_cache_follows_time_that_goes_back() {
        let mut cache = SecondCache::default();
        for unix_nano in [5 * NANOS, 4 * NANOS + 7, 5 * NANOS + 1, 0] {
            let mut out = Vec::new();
            cache.push_timestamp(&mut out, unix_nano);
            assert_eq!(out, text(unix_nano).as_bytes());
        }
    }
}
