//! The overrides in plain form, for writers to compare and change, and their conversion to the words of a copy.

use super::{
    CAPTURE, CHUNKS, COMPARED, COMPARED_AT, COPY_WORDS, DISABLED, DISABLED_AT, LEVEL, MAX_ROUTE_BYTES, RATIO,
    RULE_WORDS, TIMED_WORDS,
};

/// Most captures at one time.
pub const RULES: usize = 8;

/// Kinds of rules as they are stored.
pub const NONE: u8 = 0;
pub const TRACE: u8 = 1;
pub const ROUTE: u8 = 2;
pub(crate) const ERRORS: u8 = 3;

/// Names of the chunks modes, by their codes.
pub const CHUNKS_MODES: [&str; 4] = ["off", "summary", "timeline", "events"];

/// When an override ends, by both clocks: the one that cannot be set decides; the other is shown, and also ends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Until {
    pub monotonic_nano: u64,
    pub unix_nano: u64,
}

impl Until {
    /// Whether it has passed at `now`.
    #[must_use]
    pub fn is_over(self, now: Self) -> bool {
        // Also by the other clock: the monotonic one begins again with the machine, a queue directory on disk does not.
        now.monotonic_nano >= self.monotonic_nano || now.unix_nano >= self.unix_nano
    }
}

/// An override and its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed<T> {
    pub value: T,
    pub until: Until,
}

/// The target of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureTarget {
    Trace([u8; 16]),
    /// A path, with `{name}` for any one segment and `*` at the end for any rest.
    Route(Box<[u8]>),
    /// This many errors are still wanted.
    Errors(u32),
}

/// A capture; its id is unique in the page's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureRule {
    pub id: u32,
    pub target: CaptureTarget,
}

/// Everything that can be overridden.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Until when nothing is recorded, except in the audit lane.
    pub disabled: Option<Until>,
    /// Until when recording may be compared with not recording.
    pub compared: Option<Until>,
    /// Least severity number of application records.
    pub level: Option<Timed<u8>>,
    pub ratio: Option<Timed<f64>>,
    /// Index into [`CHUNKS_MODES`].
    pub chunks: Option<Timed<u8>>,
    /// Each at its slot until it ends.
    pub rules: [Option<Timed<CaptureRule>>; RULES],
}

impl Settings {
    pub(super) fn flags(&self) -> u64 {
        [
            (self.level.is_some(), LEVEL),
            (self.ratio.is_some(), RATIO),
            (self.chunks.is_some(), CHUNKS),
            (self.rules.iter().any(Option::is_some), CAPTURE),
            (self.disabled.is_some(), DISABLED),
            (self.compared.is_some(), COMPARED),
        ]
        .iter()
        .filter(|(set, _)| *set)
        .fold(0, |flags, (_, flag)| flags | flag)
    }
}

/// Reads a stored level; an impossible value, from a damaged page, is None. So do the next two.
pub(super) fn level(word: u64) -> Option<u8> {
    u8::try_from(word).ok()
}

pub(super) fn ratio(word: u64) -> Option<f64> {
    Some(f64::from_bits(word)).filter(|ratio| (0.0..=1.0).contains(ratio))
}

pub(super) fn chunks(word: u64) -> Option<u8> {
    u8::try_from(word).ok().filter(|code| usize::from(*code) < CHUNKS_MODES.len())
}

pub(super) fn to_words(settings: &Settings) -> [u64; COPY_WORDS] {
    let mut words = [0; COPY_WORDS];
    let mut put = |at: usize, value: u64, until: Until| {
        words[at * TIMED_WORDS..][..TIMED_WORDS].copy_from_slice(&[value, until.monotonic_nano, until.unix_nano]);
    };
    if let Some(level) = &settings.level {
        put(0, u64::from(level.value), level.until);
    }
    if let Some(ratio) = &settings.ratio {
        put(1, ratio.value.to_bits(), ratio.until);
    }
    if let Some(chunks) = &settings.chunks {
        put(2, u64::from(chunks.value), chunks.until);
    }
    for (at, until) in [(DISABLED_AT, settings.disabled), (COMPARED_AT, settings.compared)] {
        if let Some(until) = until {
            words[at..at + 2].copy_from_slice(&[until.monotonic_nano, until.unix_nano]);
        }
    }
    let stored = words[3 * TIMED_WORDS..DISABLED_AT].chunks_exact_mut(RULE_WORDS);
    for (stored, rule) in stored.zip(&settings.rules) {
        if let Some(rule) = rule {
            rule_words(stored, rule);
        }
    }
    words
}

fn rule_words(stored: &mut [u64], rule: &Timed<CaptureRule>) {
    let head = |kind: u8, len: usize| u64::from(rule.value.id) << 32 | (len as u64) << 8 | u64::from(kind);
    (stored[1], stored[2]) = (rule.until.monotonic_nano, rule.until.unix_nano);
    match &rule.value.target {
        CaptureTarget::Errors(_) => stored[0] = head(ERRORS, 0),
        CaptureTarget::Trace(id) => {
            let id = u128::from_be_bytes(*id);
            stored[0] = head(TRACE, 0);
            (stored[3], stored[4]) = ((id >> 64) as u64, id as u64);
        }
        CaptureTarget::Route(route) => {
            let route = &route[..route.len().min(MAX_ROUTE_BYTES)];
            stored[0] = head(ROUTE, route.len());
            for (word, part) in stored[5..].iter_mut().zip(route.chunks(8)) {
                let mut bytes = [0; 8];
                bytes[..part.len()].copy_from_slice(part);
                *word = u64::from_ne_bytes(bytes);
            }
        }
    }
}

/// As `route_pattern::RoutePattern` matches, without compiling the pattern first.
#[must_use]
pub fn route_matches(route: &[u8], path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    let mut segments = route.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let Some(part) = parts.next() else { return false };
        let fits = match segment {
            b"*" if segments.peek().is_none() => return true,
            [b'{', _, .., b'}'] => !part.is_empty(),
            _ => segment == part,
        };
        if !fits {
            return false;
        }
    }
    parts.next().is_none()
}
