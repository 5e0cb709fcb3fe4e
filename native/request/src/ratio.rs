//! The share of traces that is kept, decided by trace id alone: one threshold per ratio, in each of OpenTelemetry's
//! ways.
//!
//! All ways use one scale of 64 bits, so that one comparison serves them all: a trace has a *position*, and is kept if
//! that is at or above the ratio's *threshold*. A lower ratio has a higher threshold, so its kept set lies within that
//! of a higher one. On the scale:
//!
//! | way | position | threshold |
//! |---|---|---|
//! | [`Way::Consistent`] (`th`/`rv`) | R, 56 bits, times 2^8 | T times 2^8 |
//! | [`Way::LegacyPython`] (`x < bound`) | 2^64 − 1 − x, x the low 64 bits | 2^64 − bound |
//! | [`Way::LegacyJava`] (`abs(x) < bound`, 63 bits) | 2 · (2^63 − 1 − abs(x)) | 2 · (2^63 − bound) |
//!
//! Legacy ways are those of `TraceIdRatioBased` in the SDKs of Python 1.45 and Java 1.65, with all their edges; Go's
//! `x >> 1 < uint64(ratio · 2^63)` is Python's for every ratio from 2^-11 on, and differs below by less than 2^-62 of
//! traces.

/// One more than the largest R: 2^56, the end of the scale of `th` and `rv`.
pub const R_END: u64 = 1 << 56;
/// All hex digits of a 56-bit threshold.
pub(crate) const MAX_PRECISION: u8 = 14;

const SCALE_END: u128 = 1 << 64;
const BITS_PER_DIGIT: i32 = 4;

/// How a ratio becomes a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Consistent probability sampling; the threshold is rounded to this many significant hex digits (1 to 14).
    Consistent { precision: u8 },
    /// `TraceIdRatioBased` of the SDKs of Python and Go.
    LegacyPython,
    /// `TraceIdRatioBased` of the Java SDK.
    LegacyJava,
}

/// The least position that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    At(u64),
    /// Ratio 0: no position is kept.
    Never,
}

impl Threshold {
    pub const ALWAYS: Self = Self::At(0);

    /// The threshold of a T from `th`, below [`R_END`].
    #[inline]
    #[must_use]
    pub const fn from_th(t: u64) -> Self {
        if t < R_END { Self::At(t << 8) } else { Self::Never }
    }

    /// T of consistent probability sampling; rounded up to 56 bits.
    #[inline]
    #[must_use]
    pub const fn t(self) -> u64 {
        match self {
            Self::At(threshold) => (threshold >> 8) + (threshold & 0xff != 0) as u64,
            Self::Never => R_END,
        }
    }

    #[inline]
    #[must_use]
    pub const fn keeps(self, position: u64) -> bool {
        match self {
            Self::At(threshold) => position >= threshold,
            Self::Never => false,
        }
    }

    /// How many traces one kept trace stands for; 0 if none is kept.
    #[inline]
    #[must_use]
    pub fn adjusted_count(self) -> f64 {
        match self {
            Self::At(0) => 1.0,
            Self::At(threshold) => SCALE_END as f64 / (SCALE_END - u128::from(threshold)) as f64,
            Self::Never => 0.0,
        }
    }

    /// The threshold that keeps this `share` (0 to 1) of the traces that this one keeps.
    #[inline]
    #[must_use]
    pub fn thinned(self, share: f64) -> Self {
        let Self::At(threshold) = self else { return self };
        if share >= 1.0 {
            return self;
        }
        let width = (SCALE_END - u128::from(threshold)) as f64 * share;
        // Whole 56-bit values only, so that it can be sent as `th`; at least the highest of them stays.
        let width = (width as u128 & !0xff).clamp(1 << 8, SCALE_END);
        Self::At((SCALE_END - width) as u64)
    }
}

impl Way {
    /// Consistent probability sampling with thresholds that are not rounded.
    pub const EXACT: Self = Self::Consistent { precision: MAX_PRECISION };

    /// The position of a trace; in consistent sampling, and only there, a caller's `rv` takes precedence over the trace
    /// id.
    #[inline]
    #[must_use]
    pub fn position(self, trace_id: &[u8; 16], rv: Option<u64>) -> u64 {
        let low = low_bits(trace_id);
        match self {
            Self::Consistent { .. } => rv.unwrap_or(low) << 8,
            Self::LegacyPython => !low,
            // The one value whose absolute value Java cannot express stays negative, below every bound.
            Self::LegacyJava if low == 1 << 63 => u64::MAX,
            Self::LegacyJava => (i64::MAX as u64 - low.cast_signed().unsigned_abs()) << 1,
        }
    }

    /// The threshold of a `ratio`, which is 0 or from 2^-56 to 1.
    #[must_use]
    pub fn threshold(self, ratio: f64) -> Threshold {
        if ratio <= 0.0 {
            return Threshold::Never;
        }
        match self {
            Self::Consistent { precision } => Threshold::from_th(consistent(ratio, precision)),
            Self::LegacyPython => {
                let bound = (ratio * SCALE_END as f64).round_ties_even() as u128;
                Threshold::At((SCALE_END - bound.clamp(1, SCALE_END)) as u64)
            }
            Self::LegacyJava => {
                // The conversion saturates at the largest value, as Java's: ratio 1 leaves out the two ids of that
                // value.
                let bound = (ratio * i64::MAX as f64) as i64;
                Threshold::At(((1 << 63) - bound as u64) << 1)
            }
        }
    }
}

/// T of a ratio above 0, rounded to `precision` significant hex digits: leading `f` or `0` digits do not count.
fn consistent(ratio: f64, precision: u8) -> u64 {
    if ratio >= 1.0 {
        return 0;
    }
    let exact = R_END - (ratio * R_END as f64).round_ties_even() as u64;
    let insignificant = leading_zero_digits(ratio).max(leading_zero_digits(1.0 - ratio));
    let digits = (i32::from(precision) + insignificant).min(i32::from(MAX_PRECISION));
    let shift = BITS_PER_DIGIT * (i32::from(MAX_PRECISION) - digits);
    let half = (1_u64 << shift) >> 1;
    (exact + half) >> shift << shift
}

/// Counts the hex digits 0 between the point and the first other digit of a fraction below 1.
fn leading_zero_digits(fraction: f64) -> i32 {
    // The biased exponent of a normal number: 1022 for 0.5 to 1.
    let exponent = (fraction.to_bits() >> 52) as i32 - 1022;
    (-exponent).div_euclid(BITS_PER_DIGIT)
}

#[inline]
fn low_bits(trace_id: &[u8; 16]) -> u64 {
    let mut low = [0; 8];
    low.copy_from_slice(&trace_id[8..]);
    u64::from_be_bytes(low)
}
