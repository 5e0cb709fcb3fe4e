//! An adaptive budget: all call sites of a process together may keep about so many records per second.
//!
//! Invariants:
//! * While all call sites together offer no more than the budget, everything is kept. Above it, each origin (a logger
//!   at a severity, an event, a route) gets the same part, or what it offered if that is less; so does each call site
//!   of an origin.
//! * The share that a call site keeps is known before the record is examined: it follows from the offers of all sites
//!   in the last window, and is halved within a window when twice the budget is kept and the site has more than its
//!   part of it. So every kept record stands for `1 / share`, and the sum of these weights estimates the number of
//!   offered records, floods included.
//! * A share is applied by trace id if there is one, so kept sets nest: every record that a smaller share keeps, a
//!   larger one keeps too, in every process. Records without a trace are kept evenly.
//!
//! The table is of fixed size. A new site takes a free place or one that was not used in the last window; if there is
//! none (each message a text of its own, say), sites of one origin share a place and its budget. There is no lock; two
//! threads that meet may count a record too few, which no invariant above depends on.

use crate::ratio::{Threshold, Way};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Records are counted per window of this length.
pub const WINDOW_NANO: u64 = 1_000_000_000;
/// Call sites that have a place of their own at one time.
pub const PLACES: usize = 1024;
const SHARED_PLACES: usize = 64;
const PROBES: usize = 8;
/// Once a window has kept this many budgets, each further one halves the shares of all call sites.
const STRICT_FROM: u32 = 16;
/// A share is not halved below this.
const LEAST_SHARE: f64 = 1.0 / (1_u64 << 40) as f64;

/// The origin of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite {
    exact: u64,
    /// The origin whose place it uses if it has none of its own.
    origin: u64,
}

impl CallSite {
    /// The site numbered `number` among those of `origin`: a registered event, a configured route.
    #[inline]
    #[must_use]
    pub const fn numbered(origin: u64, number: u64) -> Self {
        let exact = mix(origin ^ mix(number));
        Self { exact, origin: exact }
    }

    /// The site of a text: a message of a logger. All words with a digit in them count as the same word, so `step 7`
    /// and `step 8` are one site; `v1` is a name.
    #[must_use]
    pub fn text(origin: u64, text: &[u8]) -> Self {
        Self { exact: mix(origin ^ folded(text)), origin: mix(origin) }
    }
}

/// The budget of all call sites of one process.
#[derive(Debug)]
pub struct Budget {
    per_window: u32,
    /// The window to which the shares belong.
    window: AtomicU64,
    /// Places that have been used in this window, and records kept.
    active: AtomicU32,
    kept: AtomicU32,
    /// The factor of all shares, as the bits of an f64; 1 at the beginning of a window.
    common: AtomicU64,
    places: Box<[SitePlace]>,
    shared: Box<[SitePlace]>,
}

#[derive(Debug)]
#[repr(align(64))]
struct SitePlace {
    /// The site's hash; 0 while free.
    site: AtomicU64,
    origin: AtomicU64,
    /// Number of the window to which the counts belong.
    window: AtomicU64,
    offered: AtomicU32,
    kept: AtomicU32,
    /// Share kept now, as the bits of an f64.
    share: AtomicU64,
    /// The state of the even distribution, in 2^-64 of a record.
    phase: AtomicU64,
}

/// The share that a call site keeps at the moment; asking for it has counted one record as offered.
#[derive(Debug)]
pub struct Share<'a> {
    budget: &'a Budget,
    place: &'a SitePlace,
    /// More than 0, at most 1.
    pub of_all: f64,
}

impl Budget {
    /// Makes the table for this many records per second, at least 1.
    #[must_use]
    pub fn new(records_s: u32) -> Self {
        let places = |count: usize| (0..count).map(|_| SitePlace::default()).collect();
        let per_window = records_s.max(1);
        let (window, active, kept) = Default::default();
        let common = AtomicU64::new(1.0_f64.to_bits());
        Self { per_window, window, active, kept, common, places: places(PLACES), shared: places(SHARED_PLACES) }
    }

    /// Decides by trace id, as consistent probability sampling does, or by `random` if the id does not count; returns
    /// the weight of a kept record.
    #[inline]
    #[must_use]
    pub fn keep_by_trace(
        &self,
        site: CallSite,
        now_nano: u64,
        trace_id: &[u8; 16],
        random: Option<u64>,
    ) -> Option<f64> {
        let share = self.share(site, now_nano);
        let threshold = Threshold::ALWAYS.thinned(share.of_all);
        threshold.keeps(Way::EXACT.position(trace_id, random)).then(|| {
            share.count_kept();
            threshold.adjusted_count()
        })
    }

    /// Decides so that kept records are spread evenly among the offered ones; returns the weight of a kept record.
    #[inline]
    #[must_use]
    pub fn keep_evenly(&self, site: CallSite, now_nano: u64) -> Option<f64> {
        let share = self.share(site, now_nano);
        share.place.is_next(share.of_all).then(|| {
            share.count_kept();
            share.of_all.recip()
        })
    }

    /// Counts one record of `site` as offered, and returns the share to keep. `now_nano` is monotonic.
    #[inline]
    #[must_use]
    pub fn share(&self, site: CallSite, now_nano: u64) -> Share<'_> {
        // A place that was never used has window 0.
        let window = now_nano / WINDOW_NANO + 2;
        self.enter(window);
        let place = self.place(site, window);
        place.origin.store(site.origin, Relaxed);
        place.enter(window, self);
        place.offered.fetch_add(1, Relaxed);
        let common = f64::from_bits(self.common.load(Relaxed));
        Share { budget: self, place, of_all: (place.share() * common).max(LEAST_SHARE) }
    }

    /// Takes back a record of `site` that is decided again.
    pub fn take_back(&self, site: CallSite, was_kept: bool) {
        if let Some(place) = self.held(site) {
            // A window may have begun in between: nothing goes below 0.
            let less = |counter: &AtomicU32| counter.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
            let _ = less(&place.offered);
            let _ = was_kept.then(|| (less(&place.kept), less(&self.kept)));
        }
    }

    /// Advances to `window`, if that is a new one: shares follow from the offers of all sites in the one before.
    #[inline]
    fn enter(&self, window: u64) {
        let last = self.window.load(Relaxed);
        if last < window && self.window.compare_exchange(last, window, Relaxed, Relaxed).is_ok() {
            self.active.store(0, Relaxed);
            self.kept.store(0, Relaxed);
            self.common.store(1.0_f64.to_bits(), Relaxed);
            self.divide(window - 1);
        }
    }

    /// Sets the share of each place that was used in the window `last`. Runs once a window, over arrays that fit on the
    /// stack.
    #[cold]
    fn divide(&self, last: u64) {
        let mut used = [(0, 0_u32, &self.shared[0]); PLACES + SHARED_PLACES];
        let mut count = 0;
        for place in self.places.iter().chain(&self.shared).filter(|place| place.window.load(Relaxed) == last) {
            used[count] = (place.origin.load(Relaxed), place.offered.load(Relaxed), place);
            count += 1;
        }
        used[..count].sort_unstable_by_key(|(origin, ..)| *origin);
        let used = &used[..count];
        let origins = || used.chunk_by(|one, other| one.0 == other.0);
        let offered = |sites: &[(u64, u32, &SitePlace)]| sites.iter().map(|(_, offered, _)| f64::from(*offered)).sum();
        let part = level(f64::from(self.per_window), || origins().map(offered));
        for sites in origins() {
            let of_site = level(part, || sites.iter().map(|(_, offered, _)| f64::from(*offered)));
            for (_, offered, place) in sites {
                let share = (of_site / f64::from(*offered)).clamp(LEAST_SHARE, 1.0);
                place.share.store(share.to_bits(), Relaxed);
            }
        }
    }

    #[inline]
    fn place(&self, site: CallSite, window: u64) -> &SitePlace {
        self.held(site).unwrap_or_else(|| {
            self.probed(site)
                .find(|place| place.claim(site.exact | 1, window))
                .unwrap_or(&self.shared[site.origin as usize & (SHARED_PLACES - 1)])
        })
    }

    #[inline]
    fn held(&self, site: CallSite) -> Option<&SitePlace> {
        self.probed(site).find(|place| place.site.load(Relaxed) == site.exact | 1)
    }

    #[inline]
    fn probed(&self, site: CallSite) -> impl Iterator<Item = &SitePlace> {
        let first = (site.exact >> 32) as usize;
        (0..PROBES).map(move |distance| &self.places[(first + distance) & (PLACES - 1)])
    }
}

impl Share<'_> {
    /// Counts the record as kept.
    #[inline]
    pub(crate) fn count_kept(&self) {
        let all = self.budget.kept.fetch_add(1, Relaxed).wrapping_add(1);
        let kept = self.place.kept.fetch_add(1, Relaxed).wrapping_add(1);
        let budget = self.budget.per_window;
        if all < budget.saturating_mul(2) {
            return;
        }
        if all >= budget.saturating_mul(STRICT_FROM) && all.is_multiple_of(budget) {
            let half = f64::from_bits(self.budget.common.load(Relaxed)) / 2.0;
            self.budget.common.store(half.max(LEAST_SHARE).to_bits(), Relaxed);
        }
        let part = (budget / self.budget.active.load(Relaxed).max(1)).max(budget / 4).max(1);
        if kept >= part.saturating_mul(2) && kept.is_multiple_of(part) {
            let half = (self.place.share() / 2.0).max(LEAST_SHARE);
            self.place.share.store(half.to_bits(), Relaxed);
        }
    }
}

/// The level up to which each may go, so that all together reach `budget`; infinite if none goes beyond it.
fn level<I: Iterator<Item = f64>>(budget: f64, all: impl Fn() -> I) -> f64 {
    let mut level = f64::INFINITY;
    if all().sum::<f64>() <= budget {
        return level;
    }
    level = budget / all().count() as f64;
    loop {
        let below: f64 = all().filter(|offered| *offered <= level).sum();
        let above = all().filter(|offered| *offered > level).count();
        let next = (budget - below) / above.max(1) as f64;
        if next <= level {
            return level;
        }
        level = next;
    }
}

impl Default for SitePlace {
    fn default() -> Self {
        Self {
            site: AtomicU64::new(0),
            origin: AtomicU64::new(0),
            window: AtomicU64::new(0),
            offered: AtomicU32::new(0),
            kept: AtomicU32::new(0),
            share: AtomicU64::new(1.0_f64.to_bits()),
            phase: AtomicU64::new(0),
        }
    }
}

impl SitePlace {
    #[inline]
    fn share(&self) -> f64 {
        f64::from_bits(self.share.load(Relaxed))
    }

    /// Advances to `window`, if that is a new one. A site of the last window has its share already; if there are more
    /// new sites than the budget has records, each keeps its part.
    #[inline]
    fn enter(&self, window: u64, budget: &Budget) {
        let last = self.window.load(Relaxed);
        if last >= window || self.window.compare_exchange(last, window, Relaxed, Relaxed).is_err() {
            return;
        }
        self.offered.store(0, Relaxed);
        self.kept.store(0, Relaxed);
        let active = budget.active.fetch_add(1, Relaxed).saturating_add(1);
        if last + 1 != window {
            let share = (f64::from(budget.per_window) / f64::from(active)).min(1.0);
            self.share.store(share.to_bits(), Relaxed);
        }
    }

    /// Takes a place that is free, or that was not used in this window or the last.
    #[inline]
    fn claim(&self, site: u64, window: u64) -> bool {
        let held = self.site.load(Relaxed);
        let unused = held == 0 || self.window.load(Relaxed) + 1 < window;
        unused && self.site.compare_exchange(held, site, Relaxed, Relaxed).is_ok()
    }

    /// Whether the even distribution reaches its next whole record with this one.
    #[inline]
    fn is_next(&self, share: f64) -> bool {
        if share >= 1.0 {
            return true;
        }
        let step = (share * (1_u128 << 64) as f64) as u64;
        self.phase.fetch_add(step, Relaxed).checked_add(step).is_none()
    }
}

/// Only the beginning of a longer text counts.
const LOOKED_AT_BYTES: usize = 128;

/// The origin of a logger's messages of one severity.
#[must_use]
pub fn origin(logger: &str, severity: u8) -> u64 {
    let mut hasher = DefaultHasher::new();
    (logger, severity).hash(&mut hasher);
    hasher.finish()
}

/// FNV-1a over the words of a text; every word with a digit is replaced by the same word. Characters between words do
/// not count.
fn folded(text: &[u8]) -> u64 {
    const BEGIN: u64 = 0xcbf2_9ce4_8422_2325;
    const NUMBER: u64 = 0x0123;
    let step = |hash: u64, value: u64| (hash ^ value).wrapping_mul(0x0000_0100_0000_01b3);
    let text = &text[..text.len().min(LOOKED_AT_BYTES)];
    let (mut all, mut at) = (BEGIN, 0);
    while at < text.len() {
        let begin = at;
        let (mut word, mut has_digit) = (BEGIN, false);
        while let Some(byte) = text.get(at)
            && KINDS[usize::from(*byte)] != Kind::Between
        {
            word = step(word, u64::from(*byte));
            has_digit |= KINDS[usize::from(*byte)] == Kind::Digit;
            at += 1;
        }
        if at > begin {
            let is_version = text[begin] == b'v' && at - begin <= 3;
            all = step(all, if has_digit && !is_version { NUMBER } else { word });
        }
        at += 1;
    }
    all
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Between,
    Letter,
    Digit,
}

const KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Between; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = match byte as u8 {
            b'0'..=b'9' => Kind::Digit,
            b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => Kind::Letter,
            _ => Kind::Between,
        };
        byte += 1;
    }
    kinds
};

/// SplitMix64's finish: spreads the bits.
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
