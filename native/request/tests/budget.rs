//! The adaptive budget: what floods keep, what rare call sites keep, and that the weights add up to the offered
//! records.

use proptest::prelude::*;
use request::budget::{Budget, CallSite, PLACES, WINDOW_NANO, origin};

const BUDGET: u32 = 10;
const FLOOD: CallSite = CallSite::numbered(1, 1);
const RARE: CallSite = CallSite::numbered(1, 2);

/// SplitMix64, as trace ids.
struct Ids(u64);

impl Ids {
    fn next(&mut self) -> [u8; 16] {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mut id = [0x77; 16];
        id[8..].copy_from_slice(&(z ^ (z >> 31)).to_be_bytes());
        id
    }
}

#[derive(Default, Debug)]
struct Kept {
    records: u32,
    sum: f64,
}

impl Kept {
    fn count(&mut self, weight: Option<f64>) {
        self.records += u32::from(weight.is_some());
        self.sum += weight.unwrap_or(0.0);
    }
}

/// Offers `rate` records in each of `windows`, by trace or evenly; returns the kept ones of each window.
fn offered(budget: &Budget, site: CallSite, rate: u64, windows: u64, mut ids: Option<Ids>) -> Vec<Kept> {
    let offer = |window: u64, number: u64, ids: &mut Option<Ids>| {
        let now = window * WINDOW_NANO + number * WINDOW_NANO / rate;
        match ids {
            Some(ids) => budget.keep_by_trace(site, now, &ids.next(), None),
            None => budget.keep_evenly(site, now),
        }
    };
    let window = |window: u64| {
        let mut kept = Kept::default();
        (0..rate).for_each(|number| kept.count(offer(window, number, &mut ids)));
        kept
    };
    (0..windows).map(window).collect()
}

#[test]
fn a_rare_call_site_beside_a_flood_is_kept_entirely_with_weight_1() {
    let budget = Budget::new(BUDGET);
    let mut ids = Ids(7);
    for number in 0..500_000 {
        let now = number * 10_000;
        let _ = budget.keep_by_trace(FLOOD, now, &ids.next(), None);
        if number % 25_000 == 0 {
            assert_eq!(budget.keep_by_trace(RARE, now, &ids.next(), None), Some(1.0), "4 a second, less than half");
        }
    }
}

#[test]
fn a_flood_keeps_about_its_budget_from_its_second_window_on_and_little_more_in_its_first() {
    for rate in [100, 10_000, 200_000] {
        for ids in [Some(Ids(rate)), None] {
            let evenly = ids.is_none();
            let windows = offered(&Budget::new(BUDGET), FLOOD, rate, 6, ids);
            // Each halving lets about one budget more pass.
            let most = BUDGET * (3 + (rate / u64::from(BUDGET)).ilog2());
            assert!((BUDGET..=most).contains(&windows[0].records), "{rate} {windows:?}");
            for later in &windows[1..] {
                let range = if evenly { 9..=11 } else { 0..=3 * BUDGET };
                assert!(range.contains(&later.records), "{rate} {windows:?}");
            }
        }
    }
}

#[test]
fn the_sum_of_weights_estimates_what_was_offered() {
    let (rate, windows) = (5000, 100);
    for (ids, tolerance) in [(Some(Ids(3)), 0.1), (None, 0.01)] {
        let windows = offered(&Budget::new(100), FLOOD, rate, windows, ids);
        let sum: f64 = windows.iter().map(|kept| kept.sum).sum();
        let all = (rate * windows.len() as u64) as f64;
        assert!((sum / all - 1.0).abs() < tolerance, "{sum} of {all}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn weights_kept_evenly_add_up_whatever_the_rates(rates in prop::collection::vec(1_u64..3000, 2..12)) {
        let budget = Budget::new(BUDGET);
        let (mut sum, mut offered, mut largest) = (0.0, 0.0, 1.0_f64);
        for (window, rate) in rates.iter().enumerate() {
            for number in 0..*rate {
                let now = window as u64 * WINDOW_NANO + number * WINDOW_NANO / rate;
                let weight = budget.keep_evenly(FLOOD, now).unwrap_or(0.0);
                (sum, offered, largest) = (sum + weight, offered + 1.0, largest.max(weight));
            }
        }
        // A record still owed when the share changes is counted at the new weight.
        prop_assert!((sum - offered).abs() <= largest * (rates.len() as f64 + 12.0), "{} {}", sum, offered);
    }

    #[test]
    fn what_all_offer_is_kept_while_it_is_within_the_budget(rates in prop::collection::vec(0_u32..=BUDGET / 2, 1..20), seed: u64) {
        let (budget, mut ids) = (Budget::new(BUDGET), Ids(seed));
        for (window, rate) in rates.iter().enumerate() {
            for number in 0..u64::from(*rate) {
                let now = window as u64 * WINDOW_NANO + number;
                prop_assert_eq!(budget.keep_by_trace(FLOOD, now, &ids.next(), None), Some(1.0));
                prop_assert_eq!(budget.keep_evenly(RARE, now), Some(1.0));
            }
        }
    }

    #[test]
    fn what_a_higher_rate_keeps_a_lower_one_keeps_too(one in 20_u64..2000, other in 20_u64..2000, seed: u64) {
        let kept = |rate: u64| {
            let (budget, mut ids) = (Budget::new(BUDGET), Ids(seed));
            (0..rate).for_each(|_| drop(budget.share(FLOOD, 0)));
            let id = ids.next();
            (budget.keep_by_trace(FLOOD, WINDOW_NANO, &id, None), id)
        };
        let ((less, _), (more, _)) = (kept(one.max(other)), kept(one.min(other)));
        prop_assert!(less.is_none() || more.is_some());
    }
}

#[test]
fn a_flood_that_ends_is_forgotten_after_one_quiet_window() {
    let after = |windows: u64| {
        let budget = Budget::new(BUDGET);
        offered(&budget, FLOOD, 10_000, 2, None);
        budget.keep_by_trace(FLOOD, (1 + windows) * WINDOW_NANO, &[0xff; 16], None)
    };
    assert!(after(1).is_some_and(|weight| (weight - 1000.0).abs() < 1e-3), "{:?}", after(1));
    assert_eq!((after(2), after(50)), (Some(1.0), Some(1.0)));
}

#[test]
fn new_call_sites_do_not_take_the_place_of_one_that_was_used_in_the_last_window() {
    let budget = Budget::new(BUDGET);
    offered(&budget, FLOOD, 10_000, 1, None);
    for number in 0..20 * PLACES as u64 {
        let _ = budget.share(CallSite::numbered(2, number), WINDOW_NANO);
    }
    assert_eq!(budget.share(FLOOD, WINDOW_NANO).of_all, 0.001);
}

#[test]
fn places_that_nobody_uses_any_more_are_given_to_others() {
    let budget = Budget::new(BUDGET);
    for number in 0..20 * PLACES as u64 {
        let _ = budget.share(CallSite::numbered(2, number), 0);
    }
    // In the few shared places they would have smaller shares than in their own.
    let sites = || (0..PLACES as u64 / 2).map(|number| CallSite::numbered(3, number));
    for site in sites().flat_map(|site| [site; BUDGET as usize / 2]) {
        let _ = budget.share(site, 8 * WINDOW_NANO);
    }
    let shares: Vec<f64> = sites().map(|site| budget.share(site, 9 * WINDOW_NANO).of_all).collect();
    let equal = f64::from(BUDGET) / (shares.len() * BUDGET as usize / 2) as f64;
    assert!(shares.iter().all(|share| (share - equal).abs() < 1e-9), "{shares:?}");
}

#[test]
fn numbers_in_a_text_do_not_make_a_call_site_of_its_own() {
    let message = |text: &str| CallSite::text(origin("model", 9), text.as_bytes());
    for (one, other) in [
        ("loaded 7 layers in 0.31 s", "loaded 81 layers in 12.5 s"),
        ("request 3f2a-99ab done", "request 77cc-12ef done"),
    ] {
        assert_eq!(message(one), message(other));
    }
    assert_ne!(message("to v1"), message("to v2"), "a version is a name");
    assert_ne!(message("loaded"), message("failed"));
    assert_ne!(origin("model", 9), origin("model", 13));
    assert_ne!(CallSite::numbered(1, 1), CallSite::numbered(2, 1));
    let _ = (message(""), message(&"/x".repeat(1 << 16)));
}

#[test]
fn more_call_sites_than_there_are_places_share_one_by_origin_and_others_keep_theirs() {
    let budget = Budget::new(BUDGET);
    let quiet = CallSite::text(origin("quiet", 9), b"started");
    let mut kept = 0;
    for number in 0..100_000_u64 {
        // Words without digits: each a call site of its own.
        let word: Vec<u8> =
            number.to_le_bytes().iter().flat_map(|byte| [b'a' + (byte >> 4), b'a' + (byte & 15)]).collect();
        let now = number * 20_000;
        kept += u32::from(budget.keep_evenly(CallSite::text(origin("flood", 9), &word), now).is_some());
        if number % 20_000 == 0 {
            assert_eq!(budget.keep_evenly(quiet, now), Some(1.0));
        }
    }
    // Of new texts the budget, and a little more for each power of their number.
    assert!((BUDGET..20 * BUDGET).contains(&kept), "{kept}");
}

#[test]
fn threads_that_meet_keep_no_more_than_one_alone() {
    let budget = Budget::new(BUDGET);
    let _ = offered(&budget, FLOOD, 40_000, 1, None);
    let kept: u32 = std::thread::scope(|scope| {
        let work = || (0..10_000).filter(|_| budget.keep_evenly(FLOOD, WINDOW_NANO).is_some()).count() as u32;
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!((5..=2 * BUDGET).contains(&kept), "{kept}");
}

#[test]
fn all_call_sites_together_keep_about_the_budget() {
    for sites in [2, 7, 40, 500] {
        let (budget, mut sum) = (Budget::new(100), 0.0);
        for window in 0..10_u64 {
            let mut kept = Kept::default();
            for number in 0..20_000 {
                let site = CallSite::numbered(5, number % sites);
                kept.count(budget.keep_evenly(site, window * WINDOW_NANO + number * 50_000));
            }
            sum += kept.sum;
            let most = if window == 0 { 2500 } else { 600 };
            assert!(kept.records <= most, "{sites} sites, window {window}: {kept:?}");
        }
        assert!((sum / 200_000.0 - 1.0).abs() < 0.2, "{sites} sites: {sum}");
    }
}

#[test]
fn what_some_do_not_need_is_given_to_the_others() {
    let budget = Budget::new(100);
    let [one, two, three] = [1, 2, 3].map(|number| CallSite::numbered(6, number));
    for (site, offered) in [(one, 10), (two, 40), (three, 1000)] {
        (0..offered).for_each(|_| drop(budget.share(site, 0)));
    }
    let shares = [one, two, three].map(|site| budget.share(site, WINDOW_NANO).of_all);
    assert_eq!(shares, [1.0, 1.0, 0.05]);
}
