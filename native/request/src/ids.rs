//! Trace, span and request ids: made here, or taken from the client if they are well-formed; and W3C `tracestate`: the
//! members that earlier tracing systems want passed on, and OpenTelemetry's member.

use crate::callers::{Caller, Parent};
use crate::sampler::HeadDecision;
use queue::hex;
use queue::record::{Scratch, Trace};
use queue::system::random_id;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// W3C flag: the caller records this trace.
const SAMPLED: u8 = 0x01;
/// W3C Level 2 flag: the right-most 7 bytes of the trace id are random.
const RANDOM_TRACE_ID: u8 = 0x02;
/// Flags with a meaning; all others are sent as zero.
const KNOWN_FLAGS: u8 = SAMPLED | RANDOM_TRACE_ID;
/// Longest client request id that is kept.
pub const MAX_REQUEST_ID_BYTES: usize = 128;

/// Makes ids: three independent streams over one counter, so two processes meet only if two 64-bit seeds differ by the
/// same amount. One atomic addition per request; correct from several threads.
pub struct IdSource {
    counter: AtomicU64,
    seeds: [AtomicU64; 3],
}

impl IdSource {
    /// Seeds from the system.
    ///
    /// # Errors
    /// The system provides no random bits.
    pub fn new() -> io::Result<Self> {
        let source = Self { counter: AtomicU64::new(0), seeds: Default::default() };
        source.reseed()?;
        Ok(source)
    }

    /// Draws new seeds; a forked child must, or it repeats its parent's ids.
    ///
    /// # Errors
    /// The system provides no random bits; the seeds stay as they are.
    pub fn reseed(&self) -> io::Result<()> {
        for seed in &self.seeds {
            seed.store(random_id()?, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes the ids of one request, as a child of `parent` if that is a valid `traceparent`.
    #[inline]
    #[must_use]
    pub fn trace(&self, parent: Option<&[u8]>) -> Trace {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        let mixed = |stream: usize| mix(self.seeds[stream].load(Ordering::Relaxed).wrapping_add(count));
        // All-zero ids are invalid.
        let span_id = (mixed(2) | 1).to_be_bytes();
        if let Some((trace_id, parent_span_id, flags)) = parent.and_then(parse_traceparent) {
            return Trace { trace_id, span_id, parent_span_id, flags };
        }
        let mut trace_id = [0; 16];
        trace_id[..8].copy_from_slice(&(mixed(0) | 1).to_be_bytes());
        trace_id[8..].copy_from_slice(&mixed(1).to_be_bytes());
        Trace { trace_id, span_id, parent_span_id: [0; 8], flags: KNOWN_FLAGS }
    }
}

/// The ids of one request, for all of its other records.
#[derive(Clone, Debug)]
pub struct RequestIds {
    /// Trace and span of its records: this package's, or those of a tracer that is mounted beside it.
    pub trace: Trace,
    /// The span id that was made here. It identifies the request, whatever ids client or tracer use.
    own: [u8; 8],
    client: Option<Box<[u8]>>,
    state: Option<TraceState>,
    /// For a trace that begins here or comes from an untrusted caller: the threshold that keeps it, for the services
    /// that this one calls.
    threshold: Option<u64>,
    /// For the trace of an untrusted caller: the randomness that decides about it instead of its id.
    random: Option<u64>,
    /// Flags as the caller sent them.
    caller_flags: u8,
    /// A tracer's span has taken the trace over.
    followed: bool,
    /// The tracer's trace came with the request.
    remote: bool,
    /// The ids have changed since they were last written into the request's slot.
    changed: bool,
}

impl RequestIds {
    /// Joins them; a client's id that is not valid is left out.
    #[must_use]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn new(trace: Trace, client: Option<&[u8]>, state: Option<TraceState>) -> Self {
        Self {
            trace,
            own: trace.span_id,
            client: client.filter(|id| is_request_id(id)).map(Into::into),
            state,
            threshold: None,
            random: None,
            caller_flags: trace.flags,
            followed: false,
            remote: false,
            changed: false,
        }
    }

    /// Whether a caller sent the trace.
    #[inline]
    #[must_use]
    pub(crate) fn has_caller(&self) -> bool {
        self.trace.parent_span_id != [0; 8]
    }

    /// The origin of the trace, for the sampler; `is_trusted` is called if there is a caller.
    #[inline]
    #[must_use]
    pub fn caller(&self, is_trusted: impl FnOnce() -> bool) -> Caller {
        if !self.has_caller() && !self.remote {
            return Caller::Nobody;
        }
        if !is_trusted() {
            return Caller::Stranger;
        }
        if !self.has_caller() {
            // By headers that only the tracer reads, so no threshold is known.
            return Caller::Nobody;
        }
        let (sampled, th, rv) = self.declared_by_caller();
        Caller::Trusted(Parent { sampled, th, rv })
    }

    /// Writes the decision into the headers for the services that this one calls, unless a trusted caller or a tracer
    /// has decided for them.
    #[inline]
    pub fn set_decision(&mut self, caller: Caller, head: &HeadDecision) {
        (self.random, self.changed) = (head.rv, true);
        if matches!(caller, Caller::Trusted(_)) || self.followed {
            return;
        }
        let sampled = if head.kept { SAMPLED } else { 0 };
        // Only the maker of the id knows whether it is random.
        self.trace.flags = sampled | self.caller_flags & RANDOM_TRACE_ID;
        self.threshold = head.th;
    }

    /// R if a keyed hash decides instead of the trace id: for other decisions about the same trace.
    #[inline]
    #[must_use]
    pub const fn random(&self) -> Option<u64> {
        self.random
    }

    /// The value of `tracestate` for the services that this one calls: the caller's, with OpenTelemetry's member
    /// replaced if the decision is made here.
    #[must_use]
    pub fn outgoing_state(&self) -> Option<String> {
        let th = self.threshold.map(|threshold| format!("th:{}", encode_threshold(threshold)));
        let rv = self.random.filter(|_| !self.followed).map(|random| format!("rv:{}", encode_random(random)));
        let own: Vec<String> = th.into_iter().chain(rv).collect();
        match (&self.state, own.is_empty()) {
            (Some(state), true) => Some(state.as_str().to_owned()),
            (Some(state), false) => Some(state.with_probability(&own.join(";"))),
            (None, false) => Some(format!("ot={}", own.join(";"))),
            (None, true) => None,
        }
    }

    /// The caller's statements about its own sampling: its flag, threshold and random value.
    #[must_use]
    pub fn declared_by_caller(&self) -> (bool, Option<u64>, Option<u64>) {
        let (threshold, random) = self.state.as_ref().map_or((None, None), TraceState::probability);
        (self.caller_flags & SAMPLED != 0, threshold, random)
    }

    /// Takes over the ids of a tracer's span. The caller's span stays the parent if it belongs to the same trace.
    /// Returns whether the trace is another one now.
    pub fn follow(&mut self, trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> bool {
        let is_other = trace_id != self.trace.trace_id;
        if is_other {
            self.trace.parent_span_id = [0; 8];
            self.state = None;
        }
        self.trace = Trace { trace_id, span_id, parent_span_id: self.trace.parent_span_id, flags: flags & KNOWN_FLAGS };
        self.threshold = None;
        self.random = self.random.filter(|_| !is_other);
        (self.followed, self.changed) = (true, true);
        is_other
    }

    /// Notes whether the trace of the tracer came with the request, by whatever headers the tracer reads.
    pub const fn set_remote(&mut self, is_remote: bool) {
        self.remote = is_remote;
    }

    /// Takes the id that another middleware found or made for the client, if it is valid.
    pub fn set_client(&mut self, id: &[u8]) {
        if is_request_id(id) && self.client.as_deref() != Some(id) {
            (self.client, self.changed) = (Some(id.into()), true);
        }
    }

    /// Whether the ids have changed since the last call.
    #[inline]
    pub(crate) const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    /// The client's id of the request, if it sent a valid one.
    #[must_use]
    pub fn client(&self) -> Option<&[u8]> {
        self.client.as_deref()
    }

    /// This package's id of the request as a number.
    #[inline]
    #[must_use]
    pub(crate) const fn own_id(&self) -> [u8; 8] {
        self.own
    }

    /// This package's id of the request: 16 hex digits.
    #[inline]
    #[must_use]
    pub fn request_id(&self) -> [u8; 16] {
        hex::of_id(self.own)
    }

    /// Appends this package's request id.
    #[inline]
    pub fn push_request_id(&self, scratch: &mut Scratch) {
        scratch.push_bytes(&self.request_id());
    }

    /// Appends the client's request id, or an absent value.
    #[inline]
    pub fn push_client_request_id(&self, scratch: &mut Scratch) {
        match &self.client {
            Some(id) => scratch.push_bytes(id),
            None => scratch.push_absent(),
        }
    }
}

/// Writes a `traceparent` of version 00, for a call made by this span.
#[must_use]
pub fn traceparent(trace: &Trace) -> String {
    let (trace_id, span_id) = (u128::from_be_bytes(trace.trace_id), u64::from_be_bytes(trace.span_id));
    format!("00-{trace_id:032x}-{span_id:016x}-{:02x}", trace.flags & KNOWN_FLAGS)
}

/// SplitMix64 (Steele, Lea, Flood 2014): a bijection that spreads consecutive inputs.
#[inline]
const fn mix(seed: u64) -> u64 {
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}

/// Parses a W3C `traceparent` (Trace Context Level 2): trace id, parent span id, flags.
#[must_use]
pub fn parse_traceparent(header: &[u8]) -> Option<([u8; 16], [u8; 8], u8)> {
    let header = trim_blanks(header);
    if header.len() < 55 || header[2] != b'-' || header[35] != b'-' || header[52] != b'-' {
        return None;
    }
    let [version] = hex::read(&header[..2])?;
    // Version 00 has exactly four fields; a later one may append more, never fewer.
    let well_ended = if version == 0 { header.len() == 55 } else { header.len() == 55 || header[55] == b'-' };
    let trace_id: [u8; 16] = hex::read(&header[3..35])?;
    let span_id: [u8; 8] = hex::read(&header[36..52])?;
    let [flags] = hex::read(&header[53..55])?;
    let valid = version != 0xff && well_ended && trace_id != [0; 16] && span_id != [0; 8];
    valid.then_some((trace_id, span_id, flags & KNOWN_FLAGS))
}

/// Parses a span id: 16 lowercase hex digits, not all zero.
#[must_use]
pub fn parse_span_id(digits: &[u8]) -> Option<[u8; 8]> {
    hex::read(digits).filter(|span_id| *span_id != [0; 8])
}

/// Whether a client's request id may stand in records: visible ASCII, 1 to 128 characters.
#[must_use]
pub fn is_request_id(id: &[u8]) -> bool {
    (1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

/// Longest list that is passed on; the recommendation asks for at least 512.
pub const MAX_TRACE_STATE_BYTES: usize = 2048;
const MAX_MEMBERS: usize = 32;
const MAX_KEY_BYTES: usize = 256;
const MAX_VALUE_BYTES: usize = 256;
/// Members longer than this are removed first if a list is too long.
const LONG_MEMBER_BYTES: usize = 128;
/// Hex digits of the 56-bit values of consistent probability sampling.
const HEX_DIGITS: usize = 14;

/// A valid list, joined by commas.
///
/// Rules of Trace Context Level 2: the lines of a request are one list, at most 32 members, each `key=value`. A list
/// that breaks a rule is dropped whole; it never affects the `traceparent` beside it. Of members with the same key the
/// first one is kept, since the latest writer puts its own in front. A list beyond [`MAX_TRACE_STATE_BYTES`] is shortened
/// as the recommendation says: whole members, the long ones first, then from the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceState(Box<str>);

impl TraceState {
    /// Joins the header's lines in their order; None if they are empty or break a rule.
    pub fn from_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut members: Vec<&str> = Vec::new();
        let mut count = 0;
        for member in lines.flat_map(|line| line.split(|byte| *byte == b',')).map(trim_blanks) {
            if member.is_empty() {
                continue;
            }
            count += 1;
            let member = (count <= MAX_MEMBERS).then(|| checked(member)).flatten()?;
            if !members.iter().any(|known| key(known) == key(member)) {
                members.push(member);
            }
        }
        shorten(&mut members);
        (!members.is_empty()).then(|| Self(members.join(",").into()))
    }

    /// The list as one header value.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The list with this value of OpenTelemetry's member `ot` in front, instead of the caller's.
    #[must_use]
    pub(crate) fn with_probability(&self, value: &str) -> String {
        let own = format!("ot={value}");
        let others = self.0.split(',').filter(|member| key(member) != "ot");
        let mut members: Vec<&str> = std::iter::once(own.as_str()).chain(others).take(MAX_MEMBERS).collect();
        shorten(&mut members);
        members.join(",")
    }

    /// The values of OpenTelemetry's member `ot`: the rejection threshold `th` and the random value `rv`, each if
    /// valid.
    #[must_use]
    pub fn probability(&self) -> (Option<u64>, Option<u64>) {
        let entry = self.0.split(',').find_map(|member| member.strip_prefix("ot="));
        let value_of = |name| {
            let fields = entry?.split(';');
            fields.filter_map(|field| field.split_once(':')).find(|(known, _)| *known == name).map(|(_, value)| value)
        };
        let threshold = value_of("th").and_then(padded_hex);
        let random = value_of("rv").filter(|value| value.len() == HEX_DIGITS).and_then(padded_hex);
        (threshold, random)
    }
}

/// The value of `rv` for a random value below 2^56.
#[must_use]
pub(crate) fn encode_random(random: u64) -> String {
    format!("{random:0HEX_DIGITS$x}")
}

/// The value of `th` for a rejection threshold below 2^56: hex digits without the zeros at the end.
#[must_use]
pub fn encode_threshold(threshold: u64) -> String {
    let digits = format!("{threshold:0HEX_DIGITS$x}");
    let significant = digits.trim_end_matches('0').len().max(1);
    digits[..significant].to_owned()
}

/// Removes the characters that HTTP calls optional white space.
pub(crate) fn trim_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

fn checked(member: &[u8]) -> Option<&str> {
    let member = std::str::from_utf8(member).ok()?;
    let (key, value) = member.split_once('=')?;
    (is_key(key.as_bytes()) && is_value(value.as_bytes())).then_some(member)
}

fn is_key(key: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let rest_is_valid = |rest: &[u8]| rest.iter().all(|byte| is_plain(byte) || b"_-*/@".contains(byte));
    key.len() <= MAX_KEY_BYTES && key.split_first().is_some_and(|(first, rest)| is_plain(first) && rest_is_valid(rest))
}

fn is_value(value: &[u8]) -> bool {
    (1..=MAX_VALUE_BYTES).contains(&value.len())
        && value.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'=')
}

fn key(member: &str) -> &str {
    member.split('=').next().unwrap_or(member)
}

fn shorten(members: &mut Vec<&str>) {
    while members.iter().map(|member| member.len() + 1).sum::<usize>() > MAX_TRACE_STATE_BYTES + 1 {
        let long = members.iter().rposition(|member| member.len() > LONG_MEMBER_BYTES);
        members.remove(long.unwrap_or(members.len() - 1));
    }
}

/// Up to 14 lowercase hex digits; the ones left out at the end are zeros.
fn padded_hex(digits: &str) -> Option<u64> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let valid = (1..=HEX_DIGITS).contains(&digits.len()) && digits.bytes().all(is_digit);
    let value = valid.then(|| u64::from_str_radix(digits, 16).ok()).flatten()?;
    Some(value << (4 * (HEX_DIGITS - digits.len())))
}
