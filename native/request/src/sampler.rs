//! Decides which requests are recorded: at the beginning (the *head*) by trace id, and at the end (the *tail*) for
//! reasons to record one anyway.
//!
//! A trace id counts as random if the trace begins here or comes from a trusted caller. From any other caller neither
//! id nor `th`, `rv` and flag count: a keyed hash of the id decides instead ([`Caller::Stranger`]).
//!
//! Weights: the `adjusted_count` of a record is one over the probability that it is kept, so that the sum of it over
//! any set of records estimates how many requests there were. The tail keeps a request for certain: each such request
//! counts 1, also if the head had kept it (an error kept by a head of 10 % does not stand for 10 errors, since the
//! other 9 are recorded too). If a caller samples a request but does not send its threshold, the weight is unknown:
//! [`UNKNOWN_COUNT`], and the record has no `adjusted_count`.

use crate::budget::{Budget, CallSite};
use crate::callers::{Caller, Callers, Parent, Strangers};
use crate::ratio::{Threshold, Way};
use crate::route_pattern::{PathSet, RoutePattern};
use queue::layout::SampledOut;
use std::sync::{Arc, OnceLock};

/// NaN, the adjusted count of a request that its caller sampled with an unknown probability.
pub(crate) const UNKNOWN_COUNT: f64 = f64::NAN;

/// Keeps the call sites of requests apart from those of application records.
const REQUESTS: u64 = 0x7265_7175_6573_7473;

/// How the beginning decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerKind {
    /// The caller decides, if it is trusted and sent a trace; else as `Probability`.
    Parent,
    /// Consistent probability sampling (`th`, `rv`).
    Probability,
    /// `TraceIdRatioBased` of the SDKs of Python and Go, by trace id alone.
    OtelLegacyPython,
    /// `TraceIdRatioBased` of the Java SDK, by trace id alone.
    OtelLegacyJava,
}

/// The decision at the beginning.
#[derive(Clone, Copy, Debug)]
pub struct HeadDecision {
    pub kept: bool,
    /// How many requests this one stands for; [`UNKNOWN_COUNT`], or 0 if it is not kept.
    pub adjusted_count: f64,
    /// Why it is left out; without meaning if it is kept.
    pub left_out_by: SampledOut,
    /// T to send to others as `ot=th:…`: only if the request is kept by consistent sampling with a known threshold.
    pub th: Option<u64>,
    /// R to send to others as `ot=rv:…`: only for an untrusted caller's trace, whose id is not trusted to be random.
    pub rv: Option<u64>,
}

/// Why a request is recorded: the field `sampled_by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledBy {
    Head,
    Error,
    Slow,
    Abort,
    Forced,
}

impl SampledBy {
    /// The value of the field.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Error => "error",
            Self::Slow => "slow",
            Self::Abort => "abort",
            Self::Forced => "forced",
        }
    }
}

/// The sampler's part of the configuration.
#[derive(Clone, Debug)]
pub struct SamplerSettings {
    pub kind: SamplerKind,
    /// Share of traces kept: 0, or from 2^-56 to 1.
    pub ratio: f64,
    /// Significant hex digits of a threshold, 1 to 14.
    pub precision: u8,
    /// Path patterns and their own ratios; the first that matches counts.
    pub routes: Vec<(String, f64)>,
    /// Path patterns of requests that are recorded only if they fail.
    pub skip_paths: Vec<String>,
    /// Networks of callers whose decision counts; `*`: all callers.
    pub trusted_callers: Vec<String>,
    /// Requests that take at least as long are kept; 0: off.
    pub slow_nano: u64,
    /// Records per second; 0: without limit.
    pub budget_records_s: u32,
    /// Key of the hash that decides for callers that are not trusted; None: the host's.
    pub key: Option<[u8; 32]>,
}

impl Default for SamplerSettings {
    /// Keeps everything.
    fn default() -> Self {
        Self {
            kind: SamplerKind::Parent,
            ratio: 1.0,
            precision: 4,
            routes: Vec::new(),
            skip_paths: Vec::new(),
            trusted_callers: Vec::new(),
            slow_nano: 0,
            budget_records_s: 0,
            key: None,
        }
    }
}

/// Decides which requests are recorded. Shared by all requests; makes no system call, allocates nothing.
#[derive(Debug)]
pub struct Sampler {
    by_parent: bool,
    way: Way,
    threshold: Threshold,
    routes: Box<[(RoutePattern, Threshold)]>,
    skip_paths: PathSet,
    callers: Callers,
    strangers: Strangers,
    slow_nano: u64,
    /// The decision about every request whose path is not skipped and whose trace begins here, where all are kept.
    always: Option<HeadDecision>,
    budget: Option<Arc<Budget>>,
    /// The budget for all records of the process, which replaces the sampler's own.
    shared_budget: OnceLock<Arc<Budget>>,
}

impl Sampler {
    /// Compiles the settings.
    ///
    /// # Errors
    /// A sentence that names the pattern, network or number at fault.
    pub fn new(settings: &SamplerSettings) -> Result<Self, String> {
        if !(1..=crate::ratio::MAX_PRECISION).contains(&settings.precision) {
            return Err(format!("precision={}: must be from 1 to 14 hex digits", settings.precision));
        }
        let way = match settings.kind {
            SamplerKind::Parent | SamplerKind::Probability => Way::Consistent { precision: settings.precision },
            SamplerKind::OtelLegacyPython => Way::LegacyPython,
            SamplerKind::OtelLegacyJava => Way::LegacyJava,
        };
        let route = |(pattern, ratio): &(String, f64)| {
            Ok::<_, String>((RoutePattern::parse(pattern)?, way.threshold(checked_ratio(*ratio)?)))
        };
        let mut sampler = Self {
            by_parent: settings.kind == SamplerKind::Parent,
            way,
            threshold: way.threshold(checked_ratio(settings.ratio)?),
            routes: settings.routes.iter().map(route).collect::<Result<_, _>>()?,
            always: None,
            skip_paths: PathSet::parse(&settings.skip_paths)?,
            callers: Callers::parse(&settings.trusted_callers)?,
            strangers: Strangers::new(settings.key.as_ref()),
            slow_nano: if settings.slow_nano > 0 { settings.slow_nano } else { u64::MAX },
            budget: (settings.budget_records_s > 0).then(|| Arc::new(Budget::new(settings.budget_records_s))),
            shared_budget: OnceLock::new(),
        };
        let is_consistent = matches!(way, Way::Consistent { .. });
        if is_consistent && settings.ratio == 1.0 && sampler.routes.is_empty() && sampler.budget.is_none() {
            sampler.always = Some(sampler.kept(sampler.threshold, true));
        }
        Ok(sampler)
    }

    /// Counts requests against the budget that all records of the process share.
    pub fn share_budget(&self, budget: &Arc<Budget>) {
        let _ = self.shared_budget.set(Arc::clone(budget));
    }

    #[inline]
    fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref().map(|own| &**self.shared_budget.get().unwrap_or(own))
    }

    /// Whether the caller at this address may decide; cheap if no caller is trusted.
    #[inline]
    #[must_use]
    pub fn trusts(&self, client_address: &str) -> bool {
        !self.callers.is_empty() && self.callers.contains(client_address)
    }

    /// Whether any caller is trusted.
    #[inline]
    #[must_use]
    pub(crate) fn trusts_anybody(&self) -> bool {
        !self.callers.is_empty()
    }

    /// Whether a request that the head left out may be kept although nothing failed: because it was slow.
    #[inline]
    #[must_use]
    pub(crate) const fn keeps_slow(&self) -> bool {
        self.slow_nano != u64::MAX
    }

    /// Requests that take at least so many nanoseconds are kept.
    #[inline]
    #[must_use]
    pub const fn slow_nano(&self) -> u64 {
        self.slow_nano
    }

    /// Whether requests of this path are recorded only if they fail: probes, scrapes.
    #[inline]
    #[must_use]
    pub fn is_skipped(&self, path: &[u8]) -> bool {
        self.skip_paths.contains(path)
    }

    /// Whether a pattern of the configuration matches the path.
    #[must_use]
    pub fn names(&self, path: &[u8]) -> bool {
        self.is_skipped(path) || self.routes.iter().any(|(pattern, _)| pattern.matches(path))
    }

    /// Decides at the beginning. `now_nano` is monotonic.
    #[inline]
    #[must_use]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn head(&self, trace_id: &[u8; 16], caller: Caller, path: &[u8], now_nano: u64) -> HeadDecision {
        match &self.always {
            Some(head) if caller == Caller::Nobody && !self.is_skipped(path) => *head,
            _ => self.decide(None, trace_id, caller, path, now_nano),
        }
    }

    /// As [`Sampler::head`], with this ratio instead of the configured ones, those of routes included: for an override
    /// at run time. A trusted caller still takes precedence.
    #[must_use]
    pub fn head_at_ratio(
        &self,
        ratio: f64,
        trace_id: &[u8; 16],
        caller: Caller,
        path: &[u8],
        now_nano: u64,
    ) -> HeadDecision {
        self.decide(Some(self.way.threshold(ratio)), trace_id, caller, path, now_nano)
    }

    /// Takes back a decision that is made again, since the request belongs to another trace than assumed.
    pub fn take_back(&self, head: &HeadDecision, path: &[u8]) {
        if let Some(budget) = self.budget()
            && (head.kept || head.left_out_by == SampledOut::Budget)
        {
            budget.take_back(self.call_site(path), head.kept);
        }
    }

    /// Decides at the end: why the request is recorded and how many it stands for; None: it is not. `failed`: the
    /// application's error or timeout; `aborted`: by client or shutdown; `forced`: by a targeted capture.
    #[inline]
    #[must_use]
    pub fn tail(
        &self,
        head: &HeadDecision,
        failed: bool,
        aborted: bool,
        duration_nano: u64,
        forced: bool,
    ) -> Option<(SampledBy, f64)> {
        let ordinary = head.kept || head.left_out_by != SampledOut::Skipped;
        let certain = match () {
            () if failed => Some(SampledBy::Error),
            () if ordinary && aborted => Some(SampledBy::Abort),
            () if ordinary && duration_nano >= self.slow_nano => Some(SampledBy::Slow),
            () if forced => Some(SampledBy::Forced),
            () => None,
        };
        match (head.kept, certain) {
            (true, None) => Some((SampledBy::Head, head.adjusted_count)),
            (true, Some(_)) => Some((SampledBy::Head, 1.0)),
            (false, certain) => certain.map(|by| (by, 1.0)),
        }
    }

    #[inline(never)]
    fn decide(
        &self,
        ratio: Option<Threshold>,
        trace_id: &[u8; 16],
        caller: Caller,
        path: &[u8],
        now_nano: u64,
    ) -> HeadDecision {
        let rv = (caller == Caller::Stranger).then(|| self.strangers.randomness(trace_id));
        let head = match () {
            () if self.is_skipped(path) => HeadDecision::left_out(SampledOut::Skipped),
            () => self.decide_at(ratio, self.position(trace_id, caller, rv), caller, path, now_nano),
        };
        HeadDecision { rv, ..head }
    }

    #[inline]
    fn position(&self, trace_id: &[u8; 16], caller: Caller, rv: Option<u64>) -> u64 {
        match (rv, caller) {
            (Some(rv), _) => Way::EXACT.position(trace_id, Some(rv)),
            (None, Caller::Trusted(parent)) => self.way.position(trace_id, parent.rv),
            (None, _) => self.way.position(trace_id, None),
        }
    }

    #[inline]
    fn decide_at(
        &self,
        ratio: Option<Threshold>,
        position: u64,
        caller: Caller,
        path: &[u8],
        now_nano: u64,
    ) -> HeadDecision {
        let (threshold, is_known, decider) = match caller {
            Caller::Trusted(Parent { th: Some(t), .. }) if self.by_parent => {
                (Threshold::from_th(t), true, SampledOut::Parent)
            }
            // The caller has decided already, with an unknown threshold.
            Caller::Trusted(Parent { sampled: true, .. }) if self.by_parent => {
                (Threshold::ALWAYS, false, SampledOut::Parent)
            }
            Caller::Trusted(_) if self.by_parent => (Threshold::Never, false, SampledOut::Parent),
            _ => (ratio.unwrap_or_else(|| self.ratio_of(path)), true, SampledOut::Head),
        };
        if !threshold.keeps(position) {
            return HeadDecision::left_out(decider);
        }
        match self.budget() {
            Some(budget) => self.within(budget, threshold, is_known, position, path, now_nano),
            None => self.kept(threshold, is_known),
        }
    }

    /// Decides again, by a higher threshold that the route's budget gives.
    fn within(
        &self,
        budget: &Budget,
        threshold: Threshold,
        is_known: bool,
        position: u64,
        path: &[u8],
        now_nano: u64,
    ) -> HeadDecision {
        let share = budget.share(self.call_site(path), now_nano);
        let higher = threshold.thinned(share.of_all);
        if !higher.keeps(position) {
            return HeadDecision::left_out(SampledOut::Budget);
        }
        share.count_kept();
        self.kept(higher, is_known)
    }

    #[inline]
    fn kept(&self, threshold: Threshold, is_known: bool) -> HeadDecision {
        let is_declared = is_known && matches!(self.way, Way::Consistent { .. });
        HeadDecision {
            kept: true,
            adjusted_count: if is_known { threshold.adjusted_count() } else { UNKNOWN_COUNT },
            left_out_by: SampledOut::Head,
            th: is_declared.then(|| threshold.t()),
            rv: None,
        }
    }

    #[inline]
    fn ratio_of(&self, path: &[u8]) -> Threshold {
        self.routes
            .iter()
            .find(|(pattern, _)| pattern.matches(path))
            .map_or(self.threshold, |(_, threshold)| *threshold)
    }

    /// A configured route is one call site, and all other paths together are one: clients choose them.
    fn call_site(&self, path: &[u8]) -> CallSite {
        let route = self.routes.iter().position(|(pattern, _)| pattern.matches(path));
        CallSite::numbered(REQUESTS, route.map_or(u64::MAX, |number| number as u64))
    }
}

impl HeadDecision {
    const fn left_out(by: SampledOut) -> Self {
        Self { kept: false, adjusted_count: 0.0, left_out_by: by, th: None, rv: None }
    }
}

/// Checks that a ratio has a threshold.
///
/// # Errors
/// A sentence that names it and what is allowed.
pub fn checked_ratio(ratio: f64) -> Result<f64, String> {
    let possible = ratio == 0.0 || (2.0_f64.powi(-56)..=1.0).contains(&ratio);
    if possible { Ok(ratio) } else { Err(format!("ratio={ratio}: must be 0, or from 2**-56 to 1")) }
}
