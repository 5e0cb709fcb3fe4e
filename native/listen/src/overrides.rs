//! Changing the overrides: one writer at a time, each change on record before it takes effect.

use queue::event::{CONTROL_CHANGED, INFO};
use queue::layout::LEVELS;
use queue::lock::{Attempt, ProcessLock};
use queue::queue_file::QueueFile;
use queue::record::Scratch;
use queue::system::{now_monotonic_nano, now_unix_nano};
use request::route_pattern::RoutePattern;
use request::runtime::comparison::ArmCounts;
use request::runtime::settings::{CHUNKS_MODES, CaptureRule, CaptureTarget, RULES, Settings, Timed, Until};
use request::runtime::{MAX_ROUTE_BYTES, Runtime};
use segments::segment::Utc;
use std::io;
use std::path::Path;

/// The right to change; given back when dropped, or when the process dies.
pub struct Writer {
    runtime: Runtime,
    _lock: ProcessLock,
}

/// The new override.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Nothing is recorded, except in the audit lane.
    Disabled,
    /// Recording is compared with not recording; refused while nothing is recorded.
    Compared,
    /// Least severity number of application records.
    Level(u8),
    Ratio(f64),
    /// Index into [`CHUNKS_MODES`].
    Chunks(u8),
    Capture(CaptureTarget),
}

/// A change as its record reports it: JSON texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeChange {
    pub what: &'static str,
    pub from: String,
    pub to: String,
    /// None: from now on as configured.
    pub until_unix_nano: Option<u64>,
}

impl RuntimeChange {
    fn ended(one: Override) -> Self {
        Self { what: one.what, from: one.value, to: null(), until_unix_nano: None }
    }
}

/// One change that is in force, or was.
pub struct Override {
    pub what: &'static str,
    /// A JSON text.
    pub value: String,
    pub until: Until,
}

/// Reads both clocks.
#[must_use]
pub fn now() -> Until {
    Until { monotonic_nano: now_monotonic_nano(), unix_nano: now_unix_nano() }
}

impl Writer {
    /// Takes the lock of a directory's writers; None: another one has it.
    ///
    /// # Errors
    /// The lock file or the page cannot be opened.
    pub fn try_lock(directory: &Path) -> io::Result<Option<Self>> {
        match ProcessLock::try_acquire(&directory.join("runtime.lock"), true)? {
            Attempt::Acquired(lock) => Ok(Some(Self { runtime: Runtime::open(directory)?, _lock: lock })),
            Attempt::HeldElsewhere | Attempt::HeldByThisProcess => Ok(None),
        }
    }

    /// Makes a change, once `record` has accepted the payload that reports it.
    ///
    /// # Errors
    /// A sentence: all captures are in use, or the record was refused, so nothing is changed.
    pub fn change(
        &self,
        change: &Change,
        until: Until,
        who: &str,
        record: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), String> {
        let mut settings = self.runtime.settings();
        let mut left = [0; RULES];
        let changed = apply(&mut settings, &mut left, change, until, self.runtime.next_id())?;
        self.report_and_publish(&[changed], who, &settings, &left, record)
    }

    /// Ends every override; returns how many there were.
    ///
    /// # Errors
    /// As [`Writer::change`].
    pub fn reset(&self, who: &str, record: impl FnMut(&[u8]) -> bool) -> Result<usize, String> {
        self.end(|_| true, who, record)
    }

    /// Ends the overrides that have expired at `now`, and captures that have all the errors they wanted; returns how
    /// many.
    ///
    /// # Errors
    /// As [`Writer::change`].
    pub fn clear_over(&self, now: Until, who: &str, record: impl FnMut(&[u8]) -> bool) -> Result<usize, String> {
        self.end(|ends| ends.is_over(now), who, record)
    }

    /// Switches logging on again; returns whether it was off.
    ///
    /// # Errors
    /// As [`Writer::change`].
    pub fn enable(&self, who: &str, record: impl FnMut(&[u8]) -> bool) -> Result<usize, String> {
        self.end(|ends| ends.is_disabled, who, record)
    }

    /// Ends a comparison; returns whether there was one.
    ///
    /// # Errors
    /// As [`Writer::change`].
    pub fn end_comparison(&self, who: &str, record: impl FnMut(&[u8]) -> bool) -> Result<usize, String> {
        self.end(|ends| ends.is_compared, who, record)
    }

    fn end(
        &self,
        is_ending: impl Fn(&Ends) -> bool,
        who: &str,
        record: impl FnMut(&[u8]) -> bool,
    ) -> Result<usize, String> {
        let mut settings = self.runtime.settings();
        let ended = remove(&mut settings, &compared_json(self.runtime.compared()), is_ending);
        if ended.is_empty() {
            return Ok(0);
        }
        let changed: Vec<RuntimeChange> = ended.into_iter().map(RuntimeChange::ended).collect();
        self.report_and_publish(&changed, who, &settings, &[0; RULES], record)?;
        Ok(changed.len())
    }

    fn report_and_publish(
        &self,
        changed: &[RuntimeChange],
        who: &str,
        settings: &Settings,
        left: &[u32; RULES],
        mut record: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), String> {
        if !changed.iter().all(|changed| record(payload(changed, who).as_slice())) {
            return Err("nothing is changed: the record of the change was refused".into());
        }
        self.runtime.publish(settings, left);
        Ok(())
    }
}

/// An override that may end.
struct Ends {
    until: Until,
    is_exhausted: bool,
    is_disabled: bool,
    is_compared: bool,
}

impl Ends {
    const fn at(until: Until) -> Self {
        Self { until, is_exhausted: false, is_disabled: false, is_compared: false }
    }

    fn is_over(&self, now: Until) -> bool {
        self.is_exhausted || self.until.is_over(now)
    }
}

/// Whether an expired override is still published at `now`.
#[must_use]
pub fn has_over(settings: &Settings, now: Until) -> bool {
    !remove(&mut settings.clone(), &under_way_json(), |ends| ends.is_over(now)).is_empty()
}

/// The overrides whose time is not over at `now`.
#[must_use]
pub fn in_force(settings: &Settings, now: Until) -> Vec<Override> {
    remove(&mut settings.clone(), &under_way_json(), |ends| !ends.until.is_over(now))
}

/// The leader's part: ends expired overrides, and reports that through its own process's queue; if that is full, it
/// tries again later.
pub fn clear_over(runtime: Runtime, directory: &Path, queue: &QueueFile) {
    let now = now();
    if !runtime.is_active() || !has_over(&runtime.settings(), now) {
        return;
    }
    let ring = queue.ring();
    let record = |payload: &[u8]| {
        let reserved = ring.reserve(payload.len() as u32, u32::MAX);
        reserved.map(|place| place.commit(EVENT, INFO, now.unix_nano, payload)).is_ok()
    };
    if let Ok(Some(writer)) = Writer::try_lock(directory) {
        let _ = writer.clear_over(now, &format!("the listener, pid {}: its time is over", std::process::id()), record);
    }
}

fn apply(
    settings: &mut Settings,
    left: &mut [u32; RULES],
    change: &Change,
    until: Until,
    id: u32,
) -> Result<RuntimeChange, String> {
    let (what, from, to) = match change {
        Change::Disabled => ("enabled", settings.disabled.replace(until).map(|_| off_json()), off_json()),
        Change::Compared => {
            if let Some(off) = settings.disabled.filter(|until| !until.is_over(now())) {
                let until = Utc::from_unix_nano(off.unix_nano);
                return Err(format!("nothing is recorded until {until}; `inference-logging ctl enable` ends that"));
            }
            ("comparison", settings.compared.replace(until).map(|_| under_way_json()), under_way_json())
        }
        Change::Level(level) => {
            let from = settings.level.replace(Timed { value: *level, until });
            ("level", from.map(|from| level_json(from.value)), level_json(*level))
        }
        Change::Ratio(ratio) => {
            let from = settings.ratio.replace(Timed { value: *ratio, until });
            ("sample_ratio", from.map(|from| from.value.to_string()), ratio.to_string())
        }
        Change::Chunks(mode) => {
            let from = settings.chunks.replace(Timed { value: *mode, until });
            ("chunks", from.map(|from| chunks_json(from.value)), chunks_json(*mode))
        }
        Change::Capture(target) => {
            let slot = settings.rules.iter().position(Option::is_none);
            let slot = slot.ok_or_else(|| format!("{RULES} captures are in force, which is the most; reset some"))?;
            settings.rules[slot] = Some(Timed { value: CaptureRule { id, target: target.clone() }, until });
            if let CaptureTarget::Errors(wanted) = target {
                left[slot] = *wanted;
            }
            (capture_name(target), None, target_json(target))
        }
    };
    Ok(RuntimeChange { what, from: from.unwrap_or_else(null), to, until_unix_nano: Some(until.unix_nano) })
}

/// Takes out the overrides that are ending; `compared` is the value of a comparison.
fn remove(settings: &mut Settings, compared: &str, is_ending: impl Fn(&Ends) -> bool) -> Vec<Override> {
    let mut removed = Vec::new();
    let mut end = |what, value, until| removed.push(Override { what, value, until });
    let ends = |until: Until| is_ending(&Ends::at(until));
    if let Some(until) = settings.disabled.take_if(|until| is_ending(&Ends { is_disabled: true, ..Ends::at(*until) })) {
        end("enabled", off_json(), until);
    }
    if let Some(until) = settings.compared.take_if(|until| is_ending(&Ends { is_compared: true, ..Ends::at(*until) })) {
        end("comparison", compared.to_owned(), until);
    }
    if let Some(level) = settings.level.take_if(|level| ends(level.until)) {
        end("level", level_json(level.value), level.until);
    }
    if let Some(ratio) = settings.ratio.take_if(|ratio| ends(ratio.until)) {
        end("sample_ratio", ratio.value.to_string(), ratio.until);
    }
    if let Some(chunks) = settings.chunks.take_if(|chunks| ends(chunks.until)) {
        end("chunks", chunks_json(chunks.value), chunks.until);
    }
    for slot in &mut settings.rules {
        let ended = slot.take_if(|rule| {
            let is_exhausted = rule.value.target == CaptureTarget::Errors(0);
            is_ending(&Ends { is_exhausted, ..Ends::at(rule.until) })
        });
        if let Some(rule) = ended {
            end(capture_name(&rule.value.target), target_json(&rule.value.target), rule.until);
        }
    }
    removed
}

fn payload(changed: &RuntimeChange, who: &str) -> Scratch {
    let mut scratch = Scratch::new();
    scratch.push_str(who);
    scratch.push_str(changed.what);
    scratch.push_json(changed.from.as_bytes());
    scratch.push_json(changed.to.as_bytes());
    match changed.until_unix_nano {
        Some(until) => scratch.push_str(&Utc::from_unix_nano(until).to_string()),
        None => scratch.push_null(),
    }
    scratch
}

/// The event of these payloads.
pub const EVENT: u16 = CONTROL_CHANGED;

fn null() -> String {
    "null".into()
}

fn off_json() -> String {
    "\"off\"".into()
}

fn under_way_json() -> String {
    "\"under way\"".into()
}

/// The requests of a comparison while recording was on, and while it was off.
fn compared_json([off, on]: [ArmCounts; 2]) -> String {
    format!("{{\"requests_on\":{},\"requests_off\":{}}}", on.requests, off.requests)
}

fn level_json(severity: u8) -> String {
    format!("\"{}\"", LEVELS[queue::layout::level_index(severity)])
}

fn chunks_json(mode: u8) -> String {
    format!("\"{}\"", CHUNKS_MODES.get(usize::from(mode)).unwrap_or(&"?"))
}

fn capture_name(target: &CaptureTarget) -> &'static str {
    match target {
        CaptureTarget::Trace(_) => "capture.trace",
        CaptureTarget::Route(_) => "capture.route",
        CaptureTarget::Errors(_) => "capture.errors",
    }
}

fn target_json(target: &CaptureTarget) -> String {
    match target {
        CaptureTarget::Trace(id) => format!("\"{:032x}\"", u128::from_be_bytes(*id)),
        CaptureTarget::Errors(left) => left.to_string(),
        CaptureTarget::Route(route) => {
            let mut json = Vec::new();
            lines::json::escape::push_string(&mut json, route);
            String::from_utf8_lossy(&json).into_owned()
        }
    }
}

/// Checks the route of a capture.
///
/// # Errors
/// A sentence that names it and what is wrong.
pub fn checked_route(route: &str) -> Result<CaptureTarget, String> {
    RoutePattern::parse(route)?;
    if route.len() > MAX_ROUTE_BYTES {
        return Err(format!("{route:?}: a route of a capture has at most {MAX_ROUTE_BYTES} bytes"));
    }
    Ok(CaptureTarget::Route(route.as_bytes().into()))
}
