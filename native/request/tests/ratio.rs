//! Ratios as thresholds: the specification's table, the edges of each way, and properties of all of them.

use proptest::prelude::*;
use request::ratio::{R_END, Threshold, Way};

const PRECISION_4: Way = Way::Consistent { precision: 4 };
const WAYS: [Way; 4] = [PRECISION_4, Way::Consistent { precision: 14 }, Way::LegacyPython, Way::LegacyJava];

fn id(low: u64) -> [u8; 16] {
    let mut id = [0x5a; 16];
    id[8..].copy_from_slice(&low.to_be_bytes());
    id
}

fn keeps(way: Way, ratio: f64, low: u64) -> bool {
    way.threshold(ratio).keeps(way.position(&id(low), None))
}

#[test]
fn thresholds_of_precision_4_are_those_of_the_specification() {
    for (ratio, th) in [
        (1.0, "0"),
        (1.0 / 2.0, "8"),
        (1.0 / 3.0, "aaab"),
        (1.0 / 4.0, "c"),
        (1.0 / 5.0, "cccd"),
        (1.0 / 8.0, "e"),
        (1.0 / 10.0, "e666"),
        (1.0 / 16.0, "f"),
        (1.0 / 100.0, "fd70a"),
        (1.0 / 1000.0, "ffbe77"),
        (1.0 / 10_000.0, "fff9724"),
        (1e-5, "ffff583a"),
        (1e-6, "ffffef39"),
    ] {
        let t = u64::from_str_radix(&format!("{th:0<14}"), 16).unwrap();
        assert_eq!(PRECISION_4.threshold(ratio).t(), t, "{ratio}");
    }
    let exact = Way::Consistent { precision: 14 };
    assert_eq!([0.45, 0.2].map(|ratio| exact.threshold(ratio).t()), [39_631_676_720_860_364, 57_646_075_230_342_348]);
    for precision in 1..=14 {
        assert_eq!(Way::Consistent { precision }.threshold(2.0_f64.powi(-56)).t(), R_END - 1);
    }
    assert_eq!(Way::Consistent { precision: 1 }.threshold(1.0 - 2.0_f64.powi(-53)).t(), 8);
}

#[test]
fn a_random_value_equal_to_the_threshold_is_kept_and_the_high_bits_do_not_count() {
    assert!(keeps(PRECISION_4, 0.5, 0xff80_0000_0000_0000));
    assert!(!keeps(PRECISION_4, 0.5, 0xff7f_ffff_ffff_ffff));
    assert_eq!(PRECISION_4.position(&id(0), Some(7)), 7 << 8, "rv goes before the trace id");
    assert_eq!(Way::LegacyPython.position(&id(9), Some(7)), !9, "but not where nobody knows it");
}

#[test]
fn python_keeps_the_ids_below_its_bound() {
    assert!(keeps(Way::LegacyPython, 0.5, (1 << 63) - 1));
    assert!(!keeps(Way::LegacyPython, 0.5, 1 << 63));
    assert!(keeps(Way::LegacyPython, 1.0, u64::MAX));
    assert!(keeps(Way::LegacyPython, 2.0_f64.powi(-56), 255));
    assert!(!keeps(Way::LegacyPython, 2.0_f64.powi(-56), 256));
}

#[test]
fn java_keeps_both_ends_of_the_range_and_the_number_without_an_absolute_value() {
    let java = |ratio, low: i64| keeps(Way::LegacyJava, ratio, low.cast_unsigned());
    let bound = 1_i64 << 62;
    assert_eq!([bound - 1, bound, 1 - bound, -bound].map(|low| java(0.5, low)), [true, false, true, false]);
    assert!(java(1e-9, i64::MIN), "its absolute value stays negative, below every bound");
    assert!(!java(0.0, i64::MIN));
    assert_eq!([i64::MAX, -i64::MAX, i64::MAX - 1].map(|low| java(1.0, low)), [false, false, true], "even at ratio 1");
}

#[test]
fn each_kept_trace_stands_for_as_many_as_its_ratio_says() {
    for way in WAYS {
        assert_eq!(way.threshold(0.25).adjusted_count(), 4.0, "{way:?}");
        assert_eq!(way.threshold(0.0).adjusted_count(), 0.0);
    }
    assert_eq!(Threshold::ALWAYS.adjusted_count(), 1.0);
    assert_eq!(Threshold::from_th(R_END - 1).adjusted_count(), 2.0_f64.powi(56));
    assert_eq!(Threshold::from_th(R_END), Threshold::Never);
}

#[test]
fn a_threshold_is_thinned_to_nothing_less_than_its_highest_value() {
    assert_eq!(Threshold::from_th(R_END - 1).thinned(0.1), Threshold::from_th(R_END - 1));
    assert_eq!(Threshold::ALWAYS.thinned(0.25).t(), R_END / 4 * 3);
    assert_eq!(Threshold::Never.thinned(0.5), Threshold::Never);
    assert_eq!(Way::LegacyJava.threshold(1.0).thinned(1.0), Way::LegacyJava.threshold(1.0));
}

proptest! {
    #[test]
    fn a_lower_ratio_keeps_a_subset(low: u64, one in 0.0..=1.0_f64, other in 0.0..=1.0_f64) {
        for way in WAYS {
            prop_assert!(!keeps(way, one.min(other), low) || keeps(way, one.max(other), low), "{:?}", way);
        }
    }

    #[test]
    fn a_smaller_share_keeps_a_subset_and_the_weight_follows(
        position: u64, ratio in 1e-9..=1.0_f64, one in 1e-6..=1.0_f64, other in 1e-6..=1.0_f64,
    ) {
        let threshold = PRECISION_4.threshold(ratio);
        let (less, more) = (threshold.thinned(one.min(other)), threshold.thinned(one.max(other)));
        prop_assert!(!less.keeps(position) || more.keeps(position));
        prop_assert!(!more.keeps(position) || threshold.keeps(position));
        let expected = threshold.adjusted_count() / one.min(other);
        prop_assert!((less.adjusted_count() / expected - 1.0).abs() < 1e-6);
        prop_assert_eq!(Threshold::from_th(less.t()), less, "it can be reported as th");
    }
}
