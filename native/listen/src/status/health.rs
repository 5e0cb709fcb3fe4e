//! The state of the logging, from one look at the queue directory: ok, pressured, producer_died, degraded or stuck.
//!
//! [`grade`] is the whole rule, a pure function of the snapshot, the limits, and the thresholds that counted as reached
//! before. A [`HealthWatch`] takes the snapshot, in whichever process is asked: so a listener that hangs is noticed
//! from outside of it.
//!
//! * ok: nothing to report.
//! * pressured: something is wrong, and nothing is lost by waiting. Still ready.
//! * producer_died: a process that has a name (a model instance of Triton) has died, and none of that name has come
//!   back. Nothing is lost; but Triton does not start it again and still reports itself as ready. Still ready: other
//!   instances serve.
//! * degraded: the backlog is so large that records will soon be refused, or this process has no queue. Not ready: others
//!   should take the load.
//! * stuck: records wait, and the listener that should take them makes no rounds. Not ready and not alive: of all these
//!   states, a restart helps only this one. A restart does not help against a full disk or a failing sink.

use super::number::general;
use queue::lock::Holder;
use queue::published::sinks::SinkState;
use std::borrow::Cow;
use std::time::Duration;

pub use answer::{Answer, liveness, producers, readiness};
pub use watch::{HealthWatch, Watched};

mod answer;
mod watch;

/// How long refused records and failed writes count as recent, and how far back the drain rate is measured.
pub const MEMORY_S: f64 = 60.0;
/// How long one snapshot serves all callers: a probe is open to everyone, and taking a snapshot takes time of the event
/// loop.
pub(crate) const RECENT_LOOK: Duration = Duration::from_millis(250);
const LONGEST_RETRY_AFTER_S: u32 = 60;

/// The states, from well to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Ok,
    Pressured,
    ProducerDied,
    Degraded,
    Stuck,
}

/// Every state, in their order.
pub const STATES: [State; 5] = [State::Ok, State::Pressured, State::ProducerDied, State::Degraded, State::Stuck];

impl State {
    /// The name in answers and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Pressured => "pressured",
            Self::ProducerDied => "producer_died",
            Self::Degraded => "degraded",
            Self::Stuck => "stuck",
        }
    }
}

/// The thresholds, as configured.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From this number of waiting records on, the logging is degraded.
    pub backlog_records: f64,
    /// From this fill of the fullest queue on, 0 to 1, it is degraded.
    pub backlog_ratio: f64,
    /// From this share of these two on, it is pressured.
    pub pressured_ratio: f64,
    /// Below this share of a threshold, it does not count as reached any more.
    pub clear_ratio: f64,
    /// From this age of the oldest waiting record on, the listener's interval included, it is pressured.
    pub oldest_age_s: f64,
    /// After this time without a round of the listener, it is stuck.
    pub stuck_after_s: f64,
}

/// A sink that takes nothing at the moment.
#[derive(Clone, Debug, PartialEq)]
pub struct FailingSink {
    pub name: String,
    pub state: SinkState,
    pub for_s: f64,
    /// Empty: the system has no text for it.
    pub error: String,
}

/// One snapshot, over all processes of the queue directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// How many queues there are.
    pub queues: usize,
    pub used_bytes: u64,
    pub capacity_bytes: u64,
    /// Requests that have a slot of the flight recorder.
    pub in_flight: u64,
    /// Waiting for the listener.
    pub records: u64,
    /// Share of its bytes that the fullest queue uses.
    pub fill: f64,
    /// None: no record waits.
    pub oldest_age_s: Option<f64>,
    /// Since the listener's last round, or since this process's first snapshot, whichever is shorter.
    pub stalled_s: f64,
    /// Which process has the lock of the one listener.
    pub leader: Holder,
    /// Whether this process is configured to run a listener.
    pub listens: bool,
    pub failing: Vec<FailingSink>,
    /// Whether the fallback writes instead of the sink.
    pub fallback: bool,
    pub recent_drops: u64,
    pub recent_errors: u64,
    /// The time that the two counted: since the first snapshot within [`MEMORY_S`], or since the one before it.
    pub recent_s: f64,
    /// Whether listeners cannot find this process's queue, and no other has replaced it yet.
    pub queue_missing: bool,
    /// Why this process has no queue, if it could not make one.
    pub queue_refused: Option<String>,
    /// How often the queue was replaced within the same time.
    pub recent_renewals: u64,
    /// The names of processes that had a name, have died and have no successor of that name.
    pub dead_producers: Vec<String>,
    /// Measured rate of writing; None: not known yet.
    pub records_per_s: Option<f64>,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            queues: 0,
            used_bytes: 0,
            capacity_bytes: 0,
            in_flight: 0,
            records: 0,
            fill: 0.0,
            oldest_age_s: None,
            stalled_s: 0.0,
            leader: Holder::ThisProcess,
            listens: true,
            failing: Vec::new(),
            fallback: false,
            recent_drops: 0,
            recent_errors: 0,
            recent_s: MEMORY_S,
            queue_missing: false,
            queue_refused: None,
            recent_renewals: 0,
            dead_producers: Vec::new(),
            records_per_s: None,
        }
    }
}

/// One problem, in words and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub state: State,
    pub kind: Cow<'static, str>,
    pub text: String,
}

impl Reason {
    fn new(state: State, kind: &'static str, text: impl Into<String>) -> Self {
        Self { state, kind: Cow::Borrowed(kind), text: text.into() }
    }
}

/// The thresholds that count as reached, by kind and state.
pub type Reached = Vec<(Cow<'static, str>, State)>;

/// A state, and every reason for it; the worst reason decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    pub snapshot: Snapshot,
    pub reasons: Vec<Reason>,
    /// When to ask again, if not ready: the time in which the backlog clears at the measured rate.
    pub retry_after_s: u32,
}

impl Health {
    /// The worst of the reasons' states.
    #[must_use]
    pub fn state(&self) -> State {
        self.reasons.iter().map(|reason| reason.state).max().unwrap_or(State::Ok)
    }

    /// Whether this process should get requests, as far as its logging is concerned.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state() < State::Degraded
    }

    /// Whether a restart would not help here: false only if this process's own listener should be running.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.state() != State::Stuck || !self.snapshot.listens
    }

    /// The thresholds that count as reached, for the next assessment.
    #[must_use]
    pub fn reached(&self) -> Reached {
        self.reasons.iter().map(|reason| (reason.kind.clone(), reason.state)).collect()
    }
}

/// Grades a snapshot; a threshold that was `reached` before stays so until it is cleared.
#[must_use]
pub fn grade(snapshot: Snapshot, limits: &Limits, reached: &Reached) -> Health {
    let mut reasons = Vec::new();
    reasons.extend(records(&snapshot, limits, reached));
    reasons.extend(bytes(&snapshot, limits, reached));
    reasons.extend(age(&snapshot, limits, reached));
    reasons.extend(listener(&snapshot, limits));
    queue(&snapshot, &mut reasons);
    sinks(&snapshot, &mut reasons);
    reasons.extend(
        snapshot
            .dead_producers
            .iter()
            .map(|name| Reason::new(State::ProducerDied, "producer", format!("{name} has died and has not come back"))),
    );
    let retry_after_s = retry_after_s(&snapshot, limits);
    Health { snapshot, reasons, retry_after_s }
}

/// The two grades of a backlog, the worse first, and their share of its threshold.
fn grades(limits: &Limits) -> [(State, f64); 2] {
    [(State::Degraded, 1.0), (State::Pressured, limits.pressured_ratio)]
}

fn passes(value: f64, limit: f64, threshold: (&str, State), limits: &Limits, reached: &Reached) -> bool {
    let (kind, state) = threshold;
    let is_reached = reached.iter().any(|(known, at)| known == kind && *at == state);
    if is_reached { value > limit * limits.clear_ratio } else { value >= limit }
}

fn records(seen: &Snapshot, limits: &Limits, reached: &Reached) -> Option<Reason> {
    grades(limits).into_iter().find_map(|(state, share)| {
        let limit = limits.backlog_records * share;
        passes(seen.records as f64, limit, ("records", state), limits, reached).then(|| {
            let (waiting, name, cleared) = (waiting(seen.records), state.name(), general(limit * limits.clear_ratio));
            let text = format!("{waiting} for the listener; {name} from {}, cleared at {cleared}", general(limit));
            Reason::new(state, "records", text)
        })
    })
}

fn bytes(seen: &Snapshot, limits: &Limits, reached: &Reached) -> Option<Reason> {
    grades(limits).into_iter().find_map(|(state, share)| {
        let limit = limits.backlog_ratio * share;
        passes(seen.fill, limit, ("bytes", state), limits, reached).then(|| {
            let text = format!(
                "{} of a queue's bytes are in use; {} from {}, cleared at {}",
                percent(seen.fill),
                state.name(),
                percent(limit),
                percent(limit * limits.clear_ratio)
            );
            Reason::new(state, "bytes", text)
        })
    })
}

fn age(seen: &Snapshot, limits: &Limits, reached: &Reached) -> Option<Reason> {
    let limit = limits.oldest_age_s;
    let age = seen.oldest_age_s.filter(|age| passes(*age, limit, ("age", State::Pressured), limits, reached))?;
    let text = format!("the oldest record has waited {age:.1} s; pressured from {} s", general(limit));
    Some(Reason::new(State::Pressured, "age", text))
}

fn listener(seen: &Snapshot, limits: &Limits) -> Option<Reason> {
    if seen.leader == Holder::Nobody && !seen.listens {
        let waits = match seen.records {
            0 => "none waits yet".to_owned(),
            records => format!("{} until one does", waiting(records)),
        };
        let text = format!("listener is external and no process listens; {waits}");
        return Some(Reason::new(State::Pressured, "no_listener", text));
    }
    if seen.stalled_s < limits.stuck_after_s {
        return None;
    }
    let who = match seen.leader {
        Holder::Nobody => "no process listens".to_owned(),
        holder => format!("the listener ({}) makes no rounds", holder.name()),
    };
    let since = format!("for {:.1} s; stuck from {} s", seen.stalled_s, general(limits.stuck_after_s));
    Some(match seen.records {
        0 => {
            let text = format!("{who} {since} with records waiting, and none waits");
            Reason::new(State::Pressured, "listener", text)
        }
        records => Reason::new(State::Stuck, "listener", format!("{who} {since}, and {}", waiting(records))),
    })
}

fn queue(seen: &Snapshot, reasons: &mut Vec<Reason>) {
    if seen.queue_missing {
        let text = "the queue directory was deleted or moved, and a new queue cannot be created there yet";
        reasons.push(Reason::new(State::Degraded, "queue_missing", text));
    }
    if let Some(error) = &seen.queue_refused {
        let text = format!("{error}; until one can, records that find no queue are refused and counted");
        reasons.push(Reason::new(State::Degraded, "no_queue", text));
    }
    if seen.recent_renewals > 0 {
        let times = match seen.recent_renewals {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        let why = "its directory was deleted or moved, or its file cut";
        let text = format!("the queue was replaced {times} within the last {:.0} s: {why}", seen.recent_s);
        reasons.push(Reason::new(State::Pressured, "queue_replaced", text));
    }
}

fn sinks(seen: &Snapshot, reasons: &mut Vec<Reason>) {
    let mut pressured = |kind, text: String| reasons.push(Reason::new(State::Pressured, kind, text));
    for sink in &seen.failing {
        let why = if sink.error.is_empty() { String::new() } else { format!(" ({})", sink.error) };
        pressured("sink", format!("sink {} is {} for {:.1} s{why}", sink.name, sink.state.name(), sink.for_s));
    }
    if seen.fallback {
        pressured("fallback", "the fallback writes in the place of the sink".to_owned());
    }
    if seen.recent_errors > 0 && seen.failing.is_empty() {
        let text = format!("{} writes failed within the last {:.0} s", seen.recent_errors, seen.recent_s);
        pressured("errors", text);
    }
    if seen.recent_drops > 0 {
        let text = format!("{} records were lost within the last {:.0} s", seen.recent_drops, seen.recent_s);
        pressured("drops", text);
    }
}

fn waiting(records: u64) -> String {
    if records == 1 { "1 record waits".to_owned() } else { format!("{records} records wait") }
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

fn retry_after_s(seen: &Snapshot, limits: &Limits) -> u32 {
    let Some(per_s) = seen.records_per_s.filter(|_| seen.records > 0) else { return 1 };
    let records = seen.records as f64;
    let by_bytes = if seen.fill > 0.0 { records * limits.backlog_ratio / seen.fill } else { f64::INFINITY };
    let surplus = records - limits.clear_ratio * limits.backlog_records.min(by_bytes);
    if surplus <= 0.0 {
        1
    } else if per_s * f64::from(LONGEST_RETRY_AFTER_S) <= surplus {
        LONGEST_RETRY_AFTER_S
    } else {
        ((surplus / per_s).ceil() as u32).max(1)
    }
}
