//! The sampler: the decision at the beginning, the reasons at the end that override it, and the weight in the record.

use proptest::prelude::*;
use queue::layout::SampledOut;
use request::callers::Caller::{Nobody, Stranger, Trusted};
use request::callers::Parent;
use request::ratio::{R_END, Threshold, Way};
use request::sampler::{HeadDecision, SampledBy, Sampler, SamplerKind, SamplerSettings};

const LOW: u64 = 1;
const HIGH: u64 = 0x00ff_ffff_ffff_ffff;
const HALF: u64 = 1 << 55;
const SECOND: u64 = 1_000_000_000;

fn id(low: u64) -> [u8; 16] {
    let mut id = [0x5a; 16];
    id[8..].copy_from_slice(&low.to_be_bytes());
    id
}

fn sampler(settings: SamplerSettings) -> Sampler {
    Sampler::new(&settings).unwrap()
}

fn half(kind: SamplerKind) -> Sampler {
    sampler(SamplerSettings { kind, ratio: 0.5, ..Default::default() })
}

/// Kept, and the adjusted count (absent if unknown); or why it was left out.
fn reported(head: HeadDecision) -> Result<Option<f64>, SampledOut> {
    let count = (!head.adjusted_count.is_nan()).then_some(head.adjusted_count);
    if head.kept { Ok(count) } else { Err(head.left_out_by) }
}

#[test]
fn without_a_parent_the_ratio_decides_and_the_threshold_is_reported() {
    for kind in [SamplerKind::Parent, SamplerKind::Probability] {
        let sampler = half(kind);
        let kept = sampler.head(&id(HALF), Nobody, b"/", 0);
        assert_eq!((reported(kept), kept.th), (Ok(Some(2.0)), Some(HALF)));
        assert_eq!(reported(sampler.head(&id(HALF - 1), Nobody, b"/", 0)), Err(SampledOut::Head));
    }
}

#[test]
fn a_parent_decides_by_th_and_otherwise_by_its_flag() {
    let sampler = half(SamplerKind::Parent);
    let decide = |low, parent: Parent| reported(sampler.head(&id(low), Trusted(parent), b"/", 0));
    let quarter = Some(3 << 54);
    for sampled in [true, false] {
        assert_eq!(decide(3 << 54, Parent { sampled, th: quarter, rv: None }), Ok(Some(4.0)));
        assert_eq!(decide((3 << 54) - 1, Parent { sampled, th: quarter, rv: None }), Err(SampledOut::Parent));
    }
    let flag = |sampled| Parent { sampled, th: None, rv: None };
    assert_eq!([LOW, HIGH].map(|low| decide(low, flag(true))), [Ok(None); 2], "kept, for an unknown number");
    assert_eq!([LOW, HIGH].map(|low| decide(low, flag(false))), [Err(SampledOut::Parent); 2]);
    assert_eq!(sampler.head(&id(HIGH), Trusted(flag(true)), b"/", 0).th, None, "an unknown threshold is not sent");
}

#[test]
fn randomness_that_a_parent_reports_goes_before_the_trace_id() {
    for kind in [SamplerKind::Parent, SamplerKind::Probability] {
        let sampler = half(kind);
        let decide =
            |low, rv| sampler.head(&id(low), Trusted(Parent { sampled: true, th: Some(HALF), rv }), b"/", 0).kept;
        assert_eq!((decide(LOW, Some(HIGH)), decide(HIGH, Some(LOW))), (true, false));
        assert_eq!((decide(LOW, None), decide(HIGH, None)), (false, true));
    }
}

#[test]
fn only_the_kind_parent_asks_the_parent() {
    let asked = Parent { sampled: false, th: None, rv: None };
    for kind in [SamplerKind::Probability, SamplerKind::OtelLegacyJava, SamplerKind::OtelLegacyPython] {
        let sampler = half(kind);
        for low in [LOW, HALF, HIGH, 1 << 63] {
            let alone = reported(sampler.head(&id(low), Nobody, b"/", 0));
            assert_eq!(reported(sampler.head(&id(low), Trusted(asked), b"/", 0)), alone, "{kind:?} {low:x}");
        }
    }
    assert_eq!(half(SamplerKind::OtelLegacyPython).head(&id(0), Nobody, b"/", 0).th, None, "no th in a legacy way");
}

#[test]
fn the_first_route_that_matches_has_its_own_ratio() {
    let routes =
        [("/v1/models", 1.0), ("/v1/*", 0.25), ("/v1/chat", 1.0)].map(|(path, ratio)| (path.to_owned(), ratio));
    let sampler = sampler(SamplerSettings { ratio: 0.0, routes: routes.to_vec(), ..Default::default() });
    let decide = |path: &str, low| reported(sampler.head(&id(low), Nobody, path.as_bytes(), 0));
    assert_eq!(decide("/v1/models", LOW), Ok(Some(1.0)));
    assert_eq!((decide("/v1/chat", HIGH), decide("/v1/chat", HALF)), (Ok(Some(4.0)), Err(SampledOut::Head)));
    assert_eq!(decide("/v2/chat", HIGH), Err(SampledOut::Head));
    let all = sampler.head_at_ratio(1.0, &id(LOW), Nobody, b"/v2/chat", 0);
    assert_eq!(reported(all), Ok(Some(1.0)), "a ratio of the moment goes before all of them");
    let parent = Parent { sampled: false, th: None, rv: None };
    let refused = sampler.head_at_ratio(1.0, &id(LOW), Trusted(parent), b"/v2/chat", 0);
    assert_eq!(reported(refused), Err(SampledOut::Parent), "but not before the caller");
}

#[test]
fn the_tail_keeps_for_certain_what_failed_was_slow_was_aborted_or_is_wanted() {
    let sampler = sampler(SamplerSettings { ratio: 0.5, slow_nano: SECOND, ..Default::default() });
    let out = sampler.head(&id(LOW), Nobody, b"/", 0);
    let kept = sampler.head(&id(HIGH), Nobody, b"/", 0);
    let cases = [
        ((false, false, SECOND - 1, false), None),
        ((true, false, 0, false), Some(SampledBy::Error)),
        ((false, true, 0, false), Some(SampledBy::Abort)),
        ((false, false, SECOND, false), Some(SampledBy::Slow)),
        ((false, false, 0, true), Some(SampledBy::Forced)),
        ((true, true, SECOND, true), Some(SampledBy::Error)),
        ((false, true, SECOND, true), Some(SampledBy::Abort)),
        ((false, false, SECOND, true), Some(SampledBy::Slow)),
    ];
    for ((failed, aborted, duration, forced), by) in cases {
        let tail = |head: &HeadDecision| sampler.tail(head, failed, aborted, duration, forced);
        assert_eq!(tail(&out), by.map(|by| (by, 1.0)), "{by:?}");
        // A request that is kept for certain counts once, also if the head kept it: the others like it are recorded as
        // well.
        assert_eq!(tail(&kept), Some((SampledBy::Head, if by.is_some() { 1.0 } else { 2.0 })), "{by:?}");
    }
    assert_eq!(half(SamplerKind::Parent).tail(&out, false, false, u64::MAX - 1, false), None, "slow_s = 0: off");
}

#[test]
fn a_probe_is_recorded_only_where_it_fails_or_is_wanted_by_name() {
    let skip_paths = ["/ready", "/v2/health/*"].map(str::to_owned).to_vec();
    let sampler = sampler(SamplerSettings { skip_paths, slow_nano: 1, ..Default::default() });
    let parent = Parent { sampled: true, th: Some(0), rv: None };
    for path in [&b"/ready"[..], b"/v2/health/live"] {
        let head = sampler.head(&id(HIGH), Trusted(parent), path, 0);
        assert_eq!(reported(head), Err(SampledOut::Skipped));
        assert_eq!(reported(sampler.head_at_ratio(1.0, &id(HIGH), Nobody, path, 0)), Err(SampledOut::Skipped));
        assert_eq!(sampler.tail(&head, false, true, SECOND, false), None);
        assert_eq!(sampler.tail(&head, true, false, 0, false), Some((SampledBy::Error, 1.0)));
        assert_eq!(sampler.tail(&head, false, false, 0, true), Some((SampledBy::Forced, 1.0)));
    }
    assert!(!sampler.is_skipped(b"/ready/x"));
    assert!(sampler.head(&id(LOW), Nobody, b"/ready/x", 0).kept);
}

#[test]
fn the_sum_of_weights_estimates_all_requests_and_those_that_fail() {
    let sampler = sampler(SamplerSettings { ratio: 0.125, ..Default::default() });
    let mut random = 1_u64;
    let (mut all, mut failing) = (0.0, 0.0);
    for number in 0..80_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let failed = number % 10 == 0;
        let head = sampler.head(&id(random >> 8), Nobody, b"/", 0);
        if let Some((_, count)) = sampler.tail(&head, failed, false, 0, false) {
            all += count;
            failing += if failed { count } else { 0.0 };
        }
    }
    assert_eq!(failing, 8000.0, "every one that fails is there, and counts once");
    assert!((all / 80_000.0 - 1.0_f64).abs() < 0.03, "{all}");
}

#[test]
fn a_route_above_its_budget_is_thinned_by_trace_id_and_others_are_not() {
    let routes = vec![("/rare".to_owned(), 0.5)];
    let sampler = sampler(SamplerSettings { budget_records_s: 10, ratio: 0.5, routes, ..Default::default() });
    let decide = |path: &str, low, at| reported(sampler.head(&id(low), Nobody, path.as_bytes(), at));
    // 100 requests of the first second pass the ratio, so in the next one a tenth of those may stay.
    for number in 0..200 {
        let _ = decide("/flood", if number % 2 == 0 { HIGH } else { LOW }, 0);
    }
    let (least, width) = (HALF + HALF / 10 * 9, HALF / 10);
    assert_eq!(decide("/flood", least - width, SECOND), Err(SampledOut::Budget));
    assert_eq!(decide("/flood", LOW, SECOND), Err(SampledOut::Head));
    let Ok(Some(count)) = decide("/flood", least + width / 2, SECOND) else { panic!("left out") };
    assert!((count - 20.0).abs() < 1e-6, "{count}");
    assert_eq!(decide("/rare", HALF, SECOND), Ok(Some(2.0)));
    let tail = sampler.tail(&sampler.head(&id(HALF), Nobody, b"/flood", SECOND), true, false, 0, false);
    assert_eq!(tail, Some((SampledBy::Error, 1.0)), "errors are above every budget");
}

#[test]
fn a_caller_that_reports_no_threshold_is_thinned_too_and_its_weight_stays_unknown() {
    let sampler = sampler(SamplerSettings { budget_records_s: 1, ..Default::default() });
    let parent = Parent { sampled: true, th: None, rv: None };
    let decide = |low, at| reported(sampler.head(&id(low), Trusted(parent), b"/", at));
    for _ in 0..100 {
        let _ = decide(HIGH, 0);
    }
    assert_eq!(decide(HALF, SECOND), Err(SampledOut::Budget));
    assert_eq!(decide(HIGH, SECOND), Ok(None));
}

#[test]
fn a_decision_that_is_made_anew_counts_once_in_the_budget() {
    let routes = vec![("/never/seen".to_owned(), 1.0)];
    let sampler = sampler(SamplerSettings { budget_records_s: 10, routes, ..Default::default() });
    for number in 0..1000_u64 {
        let at = number / 10 * SECOND;
        let first = sampler.head(&id(LOW), Nobody, b"/a", at);
        sampler.take_back(&first, b"/a");
        assert_eq!(
            reported(sampler.head(&id(LOW), Nobody, b"/a", at)),
            Ok(Some(1.0)),
            "10 a second, as the budget has it"
        );
        sampler.take_back(&first, b"/never/seen");
    }
}

#[test]
fn a_wrong_setting_is_refused_by_name() {
    let refused = |settings: SamplerSettings, what: &str| {
        let error = Sampler::new(&settings).unwrap_err();
        assert!(error.contains(what), "{error}");
    };
    refused(SamplerSettings { ratio: 1.5, ..Default::default() }, "ratio=1.5");
    refused(SamplerSettings { ratio: f64::NAN, ..Default::default() }, "ratio=NaN");
    refused(SamplerSettings { precision: 15, ..Default::default() }, "precision=15");
    refused(SamplerSettings { routes: vec![("/a".into(), 2.0_f64.powi(-57))], ..Default::default() }, "ratio=");
    refused(SamplerSettings { routes: vec![("a".into(), 1.0)], ..Default::default() }, "\"a\"");
    refused(SamplerSettings { skip_paths: vec!["/*x".into()], ..Default::default() }, "\"/*x\"");
    refused(SamplerSettings { trusted_callers: vec!["me".into()], ..Default::default() }, "\"me\"");
}

#[test]
fn callers_are_asked_for_only_where_somebody_is_trusted() {
    let trusting = sampler(SamplerSettings { trusted_callers: vec!["10.0.0.0/8".into()], ..Default::default() });
    assert!(trusting.trusts("10.1.1.1") && !trusting.trusts("192.0.2.1"));
    assert!(!sampler(SamplerSettings::default()).trusts("127.0.0.1"));
}

#[test]
fn a_strangers_trace_id_is_weighed_by_a_hash_whose_key_it_does_not_know() {
    let kinds =
        [SamplerKind::Parent, SamplerKind::Probability, SamplerKind::OtelLegacyPython, SamplerKind::OtelLegacyJava];
    for kind in kinds {
        let settings = SamplerSettings { kind, ratio: 0.25, key: Some([7; 32]), ..Default::default() };
        let (one, same) = (sampler(settings.clone()), sampler(settings.clone()));
        let other = sampler(SamplerSettings { key: Some([8; 32]), ..settings });
        // The highest ids and the lowest: in each way one half of them would all be kept, the other left out.
        let ids = (0..2000).flat_map(|number| [id(number), id(HIGH - number), id(u64::MAX - number)]);
        let kept: Vec<[bool; 3]> =
            ids.map(|id| [&one, &same, &other].map(|sampler| sampler.head(&id, Stranger, b"/", 0).kept)).collect();
        let share = |at: usize| kept.iter().filter(|kept| kept[at]).count() as f64 / kept.len() as f64;
        assert!((share(0) - 0.25).abs() < 0.02 && (share(2) - 0.25).abs() < 0.02, "{kind:?}");
        assert!(kept.iter().all(|kept| kept[0] == kept[1]), "one key, one decision");
        assert!(kept.iter().any(|kept| kept[0] != kept[2]), "another key, other decisions");
        let weight: f64 = (0..8000).map(|low| one.head(&id(low), Stranger, b"/", 0).adjusted_count).sum();
        assert!((weight / 8000.0 - 1.0).abs() < 0.1, "{weight}");
    }
}

#[test]
fn what_decided_about_a_stranger_decides_in_the_services_that_trust_us_and_is_stated_to_them() {
    let sampler = half(SamplerKind::Parent);
    let rv = |low| sampler.head(&id(low), Stranger, b"/", 0).rv.unwrap();
    for low in 0..100 {
        let head = sampler.head(&id(low), Stranger, b"/", 0);
        assert_eq!((head.kept, head.th), (rv(low) >= HALF, (rv(low) >= HALF).then_some(HALF)));
        let parent = Parent { sampled: head.kept, th: head.th, rv: head.rv };
        assert_eq!(reported(sampler.head(&id(low), Trusted(parent), b"/", 0)).is_ok(), head.kept);
    }
    assert_eq!(sampler.head(&id(HIGH), Nobody, b"/", 0).rv, None, "our own id says it already");
}

#[test]
fn paths_of_no_route_share_one_budget_however_many_a_client_makes_up() {
    let sampler = sampler(SamplerSettings { budget_records_s: 10, ..Default::default() });
    for second in 0..5 {
        let word = |number: u64| char::from(b'a' + (number % 26) as u8);
        let kept = (0..10_000_u64).filter(|number| {
            let path = format!("/{}{}{}", word(*number), word(number / 26), word(number / 676));
            let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sampler.head(&id(random), Nobody, path.as_bytes(), second * SECOND + number).kept
        });
        let kept = kept.count();
        assert!(kept <= if second == 0 { 150 } else { 40 }, "second {second}: {kept}");
    }
}

// Ratios as thresholds: the specification's table, the edges of each way, and properties of all of them.

const PRECISION_4: Way = Way::Consistent { precision: 4 };
const WAYS: [Way; 4] = [PRECISION_4, Way::Consistent { precision: 14 }, Way::LegacyPython, Way::LegacyJava];

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
