//! Run-time control: an operator's temporary overrides, in a page that every process of a queue directory maps.
//!
//! No signal, no socket, no restart: a change stores one word, and every process sees it with its next load, also a
//! forked one. The file `runtime-3` is a page, version 3, of words in the machine's byte order:
//!
//! ```text
//!    0  magic          "INFLOGR\0"
//!    8  version        3
//!   16  published      [ generation:56 | what is overridden:8 ]   the one word that a request loads
//!   64  left           8 words [ rule id:32 | errors left:32 ], one per rule
//!  128  copies         2 × 181 words: level, ratio, chunks (3 words each: value, until monotonic, until Unix), then
//!                      8 rules of 21 words: [ id:32 | 0:16 | bytes of the route:8 | kind:8 ], both untils, trace id
//!                      (2 words, big-endian halves), route (16 words); then both untils of logging that is switched
//!                      off, and of a comparison
//! 3072  comparison     see [`comparison`]
//! ```
//!
//! Invariants
//! * `published` names the valid copy by the lowest bit of its generation. A writer (one at a time, by a lock that the
//!   kernel releases) fills the other copy and then stores `published`: a writer that is killed has changed nothing or
//!   everything.
//! * A reader that finds `published` changed after it read a copy reads again: only then can the copy have been
//!   refilled.
//! * A reader ignores an override that has expired; the leader removes it later.

pub mod comparison;
pub mod settings;

use comparison::{Area, Arm, ArmCounts, Compared, RENEWED_FOR_NANO};
use queue::shared_page;
use queue::system::now_monotonic_nano;
use settings::{CaptureRule, CaptureTarget, RULES, Settings, Timed, Until, chunks, level, ratio};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

const MAGIC: u64 = u64::from_le_bytes(*b"INFLOGR\0");
pub const VERSION: u32 = 3;
const BYTES: usize = 4096;

/// Bits of `published`: the overridden settings.
const LEVEL: u64 = 1;
const RATIO: u64 = 2;
const CHUNKS: u64 = 4;
const CAPTURE: u64 = 8;
const DISABLED: u64 = 16;
const COMPARED: u64 = 32;
/// Those that change how a request is recorded.
const OF_REQUESTS: u64 = RATIO | CHUNKS | CAPTURE;
const FLAGS: u64 = 0xff;

/// Longest route of a capture.
pub const MAX_ROUTE_BYTES: usize = 128;
const TIMED_WORDS: usize = 3;
const RULE_WORDS: usize = 5 + MAX_ROUTE_BYTES / 8;
/// The words of a copy with the end of a switch-off of logging.
const DISABLED_AT: usize = 3 * TIMED_WORDS + RULES * RULE_WORDS;
/// The words of a copy with the end of a comparison.
const COMPARED_AT: usize = DISABLED_AT + 2;
const COPY_WORDS: usize = COMPARED_AT + 2;
/// The words between the copies and the comparison.
const UNUSED_WORDS: usize = (3072 - 128) / 8 - 2 * COPY_WORDS;
/// How often a reader begins again when a writer comes in between; then it assumes that nothing is overridden.
const ATTEMPTS: u32 = 16;

queue::shared! {
    struct Page {
        _magic: AtomicU64,
        _version: AtomicU32,
        _pad0: AtomicU32,
        published: AtomicU64,
        _pad1: [AtomicU64; 5],
        left: [AtomicU64; RULES],
        copies: [[AtomicU64; COPY_WORDS]; 2],
        _pad2: [AtomicU64; UNUSED_WORDS],
        comparison: Area,
    }
}

const _: () = assert!(size_of::<Page>() <= BYTES);
const _: () = assert!(std::mem::offset_of!(Page, left) == 64 && std::mem::offset_of!(Page, copies) == 128);
const _: () = assert!(std::mem::offset_of!(Page, comparison) == 3072);

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Runtime({:#x})", self.0.published.load(Ordering::Relaxed))
    }
}

/// A mapped page. Never unmapped: requests may be about to read it, and there is one page per directory.
#[derive(Clone, Copy)]
pub struct Runtime(&'static Page);

/// The overrides for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overrides {
    pub ratio: Option<f64>,
    /// The code of a chunks mode, see [`settings`].
    pub chunks: Option<u8>,
    /// Keep all of it, whatever the sampler decides.
    pub is_captured: bool,
    /// If it fails, it may be one of the next errors that are wanted.
    pub watches_errors: bool,
}

/// How a request begins while something is overridden.
#[derive(Clone, Copy, Debug)]
pub struct Begins {
    pub is_recorded: bool,
    /// Its place in a comparison, if one is under way.
    pub compared: Option<Compared>,
}

impl Runtime {
    /// Maps the page of `directory`, creating it if needed.
    ///
    /// # Errors
    /// As [`shared_page::map`].
    pub fn open(directory: &Path) -> io::Result<Self> {
        shared_page::map(directory, "runtime", BYTES, MAGIC, VERSION).map(|(page, _)| Self(page))
    }

    /// Whether anything is overridden: one load, for the usual case that nothing is.
    #[inline]
    #[must_use]
    pub fn is_active(&self) -> bool {
        // Relaxed: the data that the word refers to is read after an Acquire load of it.
        self.0.published.load(Ordering::Relaxed) & FLAGS != 0
    }

    /// Whether anything that concerns single requests is overridden, as [`Runtime::is_active`].
    #[inline]
    #[must_use]
    pub fn overrides_requests(&self) -> bool {
        self.0.published.load(Ordering::Relaxed) & OF_REQUESTS != 0
    }

    /// The least severity of application records, if it is overridden at `now` (monotonic nanoseconds).
    #[must_use]
    pub fn level(&self, now: u64) -> Option<u8> {
        self.read(|flags, copy| (flags & LEVEL != 0).then(|| copy.timed(0, now)).flatten()).flatten().and_then(level)
    }

    /// Whether logging is switched off now. Reads the clock only where something is overridden.
    #[inline]
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.is_active() && self.is_disabled(now_monotonic_nano())
    }

    /// Whether logging is switched off at `now` (monotonic nanoseconds).
    #[must_use]
    pub fn is_disabled(&self, now: u64) -> bool {
        !self.begins(now).is_recorded
    }

    /// How a request that begins at `now` (monotonic nanoseconds) is treated.
    #[must_use]
    pub fn begins(&self, now: u64) -> Begins {
        let in_force = self.read(|flags, copy| {
            let is = |flag: u64, at: usize| flags & flag != 0 && now < copy.word(at);
            (is(DISABLED, DISABLED_AT), is(COMPARED, COMPARED_AT))
        });
        let (is_disabled, is_compared) = in_force.unwrap_or_default();
        let area = &self.0.comparison;
        let arm = if is_compared && !is_disabled { area.arm(now) } else { None };
        Begins { is_recorded: !is_disabled && arm != Some(Arm::Off), compared: arm.map(|arm| Compared::new(area, arm)) }
    }

    /// Whether requests that begin at `now` are not recorded; `requests` counts them for a comparison.
    #[inline]
    #[must_use]
    pub fn leaves_out(&self, now: u64, requests: impl FnOnce() -> u64) -> bool {
        self.is_active() && self.compares_or_leaves_out(now, requests)
    }

    #[cold]
    fn compares_or_leaves_out(&self, now: u64, requests: impl FnOnce() -> u64) -> bool {
        let begins = self.begins(now);
        if let Some(compared) = begins.compared {
            compared.count(requests());
        }
        !begins.is_recorded
    }

    /// Begins another comparison: its counts are 0. The caller has the right to compare.
    pub fn begin_comparison(&self) {
        self.0.comparison.begin();
    }

    /// Goes on with a slice of a comparison at `now` (monotonic nanoseconds), for [`RENEWED_FOR_NANO`] at most.
    pub fn hold_slice(&self, now: u64, is_off: bool) {
        self.0.comparison.hold(now + RENEWED_FOR_NANO, is_off);
    }

    /// Ends the slices: everything is recorded, and no request counted.
    pub fn end_slices(&self) {
        self.0.comparison.hold(0, false);
    }

    /// The counts of the comparison that is under way or was the last, off and on.
    #[must_use]
    pub fn compared(&self) -> [ArmCounts; 2] {
        self.0.comparison.counts()
    }

    /// The overrides for a request that begins at `now` (monotonic nanoseconds).
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn of_request(&self, trace_id: &[u8; 16], path: &[u8], now: u64) -> Overrides {
        self.read(|flags, copy| {
            let mut found = Overrides {
                ratio: (flags & RATIO != 0).then(|| copy.timed(1, now)).flatten().and_then(ratio),
                chunks: (flags & CHUNKS != 0).then(|| copy.timed(2, now)).flatten().and_then(chunks),
                ..Overrides::default()
            };
            if flags & CAPTURE != 0 {
                for slot in 0..RULES {
                    match copy.kind(slot, now) {
                        settings::TRACE => found.is_captured |= copy.trace(slot) == *trace_id,
                        settings::ROUTE => found.is_captured |= copy.is_route(slot, path),
                        settings::ERRORS => found.watches_errors |= self.errors_left(slot, copy.id(slot)) > 0,
                        _ => (),
                    }
                }
            }
            found
        })
        .unwrap_or_default()
    }

    /// A request failed at `now`: takes one of the wanted errors, if any is left for all processes together.
    #[cold]
    #[must_use]
    pub fn take_error(&self, now: u64) -> bool {
        let rules = self.read(|flags, copy| {
            std::array::from_fn::<_, RULES, _>(|slot| {
                (flags & CAPTURE != 0 && copy.kind(slot, now) == settings::ERRORS).then(|| copy.id(slot))
            })
        });
        let rules = rules.unwrap_or_default();
        rules.iter().enumerate().any(|(slot, id)| id.is_some_and(|id| self.take_one(slot, id)))
    }

    fn take_one(&self, slot: usize, id: u32) -> bool {
        let taken = self.0.left[slot].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            (word >> 32 == u64::from(id) && word & 0xffff_ffff > 0).then(|| word - 1)
        });
        taken.is_ok()
    }

    fn errors_left(&self, slot: usize, id: u32) -> u32 {
        let word = self.0.left[slot].load(Ordering::Relaxed);
        if word >> 32 == u64::from(id) { word as u32 } else { 0 }
    }

    /// Reads everything that is published, also expired overrides.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.read(|_, copy| {
            let timed =
                |at: usize| copy.is_set(at).then(|| (copy.word(at * TIMED_WORDS), copy.until(at * TIMED_WORDS + 1)));
            let rule = |slot: usize| {
                let target = match copy.kind(slot, 0) {
                    settings::TRACE => CaptureTarget::Trace(copy.trace(slot)),
                    settings::ROUTE => CaptureTarget::Route(copy.route(slot)),
                    settings::ERRORS => CaptureTarget::Errors(self.errors_left(slot, copy.id(slot))),
                    _ => return None,
                };
                Some(Timed { value: CaptureRule { id: copy.id(slot), target }, until: copy.until(copy.rule(slot) + 1) })
            };
            Settings {
                disabled: Some(copy.until(DISABLED_AT)).filter(|until| until.monotonic_nano > 0),
                compared: Some(copy.until(COMPARED_AT)).filter(|until| until.monotonic_nano > 0),
                level: timed(0).and_then(|(word, until)| Some(Timed { value: level(word)?, until })),
                ratio: timed(1).and_then(|(word, until)| Some(Timed { value: ratio(word)?, until })),
                chunks: timed(2).and_then(|(word, until)| Some(Timed { value: chunks(word)?, until })),
                rules: std::array::from_fn(rule),
            }
        })
        .unwrap_or_default()
    }

    /// Runs `look` on the valid copy until no writer came in between; None if one came each time.
    fn read<R>(&self, look: impl Fn(u64, Copy<'_>) -> R) -> Option<R> {
        for _ in 0..ATTEMPTS {
            // Acquire pairs with the Release in `publish`: the copy is as it was published, or newer.
            let published = self.0.published.load(Ordering::Acquire);
            let found = look(published & FLAGS, Copy(&self.0.copies[usize::from(published >> 8 & 1 == 1)]));
            // Pairs with the fence in `publish`: if a newer filling was seen, so is the newer word.
            fence(Ordering::Acquire);
            if self.0.published.load(Ordering::Relaxed) == published {
                return Some(found);
            }
        }
        None
    }

    /// An id that no rule has had: the coming generation, since there is one per change.
    #[must_use]
    pub fn next_id(&self) -> u32 {
        ((self.0.published.load(Ordering::Relaxed) >> 8) as u32).wrapping_add(1)
    }

    /// Fills the copy that is not valid, and then makes it the valid one. The caller holds the writers' lock.
    pub fn publish(&self, settings: &Settings, left: &[u32; RULES]) {
        let word = self.fill(settings, left);
        // Release pairs with the Acquire in `read`.
        self.0.published.store(word, Ordering::Release);
    }

    /// The first half of a change, on its own only for tests of a writer that dies; returns the word to publish.
    #[doc(hidden)]
    pub fn fill(&self, settings: &Settings, left: &[u32; RULES]) -> u64 {
        let generation = (self.0.published.load(Ordering::Relaxed) >> 8) + 1;
        // Before any store to the copy: pairs with the fence in `read`.
        fence(Ordering::Release);
        let words = settings::to_words(settings);
        for (stored, word) in self.0.copies[(generation & 1) as usize].iter().zip(words) {
            stored.store(word, Ordering::Relaxed);
        }
        for (slot, rule) in settings.rules.iter().enumerate() {
            // A rule that stays keeps its count, which other processes go on counting down.
            if let Some(Timed { value: CaptureRule { id, target: CaptureTarget::Errors(_) }, .. }) = rule
                && self.0.left[slot].load(Ordering::Relaxed) >> 32 != u64::from(*id)
            {
                self.0.left[slot].store(u64::from(*id) << 32 | u64::from(left[slot]), Ordering::Relaxed);
            }
        }
        generation << 8 | settings.flags()
    }
}

/// A copy that may be refilled while it is read.
#[derive(Clone, Copy)]
struct Copy<'a>(&'a [AtomicU64; COPY_WORDS]);

impl Copy<'_> {
    fn word(self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }

    fn until(self, at: usize) -> Until {
        Until { monotonic_nano: self.word(at), unix_nano: self.word(at + 1) }
    }

    fn is_set(self, at: usize) -> bool {
        self.word(at * TIMED_WORDS + 1) > 0
    }

    fn timed(self, at: usize, now: u64) -> Option<u64> {
        (now < self.word(at * TIMED_WORDS + 1)).then(|| self.word(at * TIMED_WORDS))
    }

    fn rule(self, slot: usize) -> usize {
        3 * TIMED_WORDS + slot * RULE_WORDS
    }

    fn kind(self, slot: usize, now: u64) -> u8 {
        let at = self.rule(slot);
        if now < self.word(at + 1) { self.word(at) as u8 } else { settings::NONE }
    }

    fn id(self, slot: usize) -> u32 {
        (self.word(self.rule(slot)) >> 32) as u32
    }

    fn trace(self, slot: usize) -> [u8; 16] {
        let at = self.rule(slot) + 3;
        (u128::from(self.word(at)) << 64 | u128::from(self.word(at + 1))).to_be_bytes()
    }

    fn route_bytes(self, slot: usize) -> ([u8; MAX_ROUTE_BYTES], usize) {
        let at = self.rule(slot);
        let mut bytes = [0; MAX_ROUTE_BYTES];
        for (part, word) in bytes.chunks_exact_mut(8).zip(at + 5..) {
            part.copy_from_slice(&self.word(word).to_ne_bytes());
        }
        (bytes, (self.word(at) >> 8 & 0xff) as usize)
    }

    fn route(self, slot: usize) -> Box<[u8]> {
        let (bytes, len) = self.route_bytes(slot);
        bytes[..len.min(MAX_ROUTE_BYTES)].into()
    }

    fn is_route(self, slot: usize, path: &[u8]) -> bool {
        let (bytes, len) = self.route_bytes(slot);
        settings::route_matches(&bytes[..len.min(MAX_ROUTE_BYTES)], path)
    }
}
