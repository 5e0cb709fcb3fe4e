//! The listener of each lane of a configuration, in a process that serves no requests.

use super::command::Host;
use crate::options::Configuration;
use listen::settings::{Lane as Which, Role};
use listen::sink::Now;
use listen::status::health::{HealthWatch, Watched};
use listen::status::lane::Lane;
use queue::inspect::{self, QueueSnapshot};
use queue::layout::lost;
use queue::lock::Holder;
use queue::published::sinks::SinkState;
use queue::published::totals;
use queue::system::wait_writable;
use std::fmt::{self, Display, Formatter};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The listeners. The fast lane's is the first.
pub struct Listeners(Vec<Lane>);

impl Listeners {
    /// Starts the listener of each lane, whatever the configuration says about its own processes. Without `claims` the
    /// queue directories may belong to another configuration.
    ///
    /// # Errors
    /// A sentence that names the parameter.
    pub fn open(host: &Host, configuration: &Configuration, claims: bool) -> Result<Self, String> {
        if let Some(elsewhere) = configuration.settings.passed_over() {
            eprintln!("inference_logging: {elsewhere}");
        }
        let mut opened = Self(Vec::new());
        for which in configuration.settings.lanes() {
            match open(host, configuration, *which, claims) {
                Ok(lane) => opened.0.push(lane),
                Err(error) => {
                    opened.close(Instant::now());
                    return Err(if *which == Which::Audit { format!("audit lane: {error}") } else { error });
                }
            }
        }
        opened.set_only_listens();
        Ok(opened)
    }

    /// Marks this process as one that serves no requests: no other listener has to go on for it.
    pub fn set_only_listens(&self) {
        for queue in self.0.iter().filter_map(|lane| lane.service.producer.queue()) {
            queue.file.header().only_listens.store(1, Ordering::Relaxed);
        }
    }

    /// Ends the listeners. A lane whose sink hangs leaves the others their share of the time until `end`.
    pub fn close(&self, end: Instant) {
        for (ended, lane) in self.0.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now());
            lane.service.close(left / (self.0.len() - ended) as u32);
        }
    }

    /// Ends the listeners, each within `deadline`. Returns in words what they left behind.
    pub fn close_each(&self, deadline: Duration) -> Vec<String> {
        let close = |lane: &Lane| {
            lane.service.close(deadline);
            lane.service.kept()
        };
        self.0.iter().flat_map(close).collect()
    }

    /// The input of health and metrics.
    pub fn watch(&self, configuration: &Configuration) -> HealthWatch {
        let settings = &configuration.settings;
        let mut watched = settings.lanes().iter().zip(&self.0).map(|(which, lane)| Watched {
            source: Lane {
                service: Arc::clone(&lane.service),
                directory: lane.directory.clone(),
                control: lane.control,
            },
            limits: settings.health_limits(*which),
            listens: settings.listens(),
        });
        let fast = watched.next().expect("the fast lane is always on");
        HealthWatch::new(fast, watched.next(), Now::read())
    }

    /// Whether a server produces and has no other listener.
    pub fn is_needed(&self) -> bool {
        let produces = |queue: QueueSnapshot| queue.producer == Holder::AnotherProcess;
        self.0.iter().any(|lane| !is_led_elsewhere(lane) && of_servers(lane).any(produces))
    }

    /// The number of records that wait and have no listener.
    pub fn left(&self) -> u64 {
        let own = self.0.iter().filter(|lane| !is_led_elsewhere(lane));
        own.flat_map(|lane| inspect::queues(&lane.directory)).map(|queue| queue.counts.in_queue).sum()
    }

    /// The role of each listener: `leader` or `waiting`.
    pub fn roles(&self) -> String {
        let leads = |lane: &Lane| inspect::leader(&lane.directory) == Holder::ThisProcess;
        let roles = self.0.iter().map(|lane| if leads(lane) { "leader" } else { "waiting" });
        roles.collect::<Vec<_>>().join(",")
    }

    /// The counts, and the sinks that have a problem.
    pub fn counts(&self) -> Counts {
        let queues: Vec<QueueSnapshot> = self.0.iter().flat_map(of_servers).collect();
        let in_queue = queues.iter().map(|queue| queue.counts.in_queue).sum();
        let mut counts = Counts { queues: queues.len(), in_queue, ..Counts::default() };
        for total in self.0.iter().map(|lane| totals::of_directory(&lane.control.page().totals, &lane.directory)) {
            counts.written += total.written;
            counts.dropped += lost(&total.dropped);
        }
        for row in self.0.iter().flat_map(|lane| &lane.control.page().sinks) {
            if row.role().is_some() && row.state() != SinkState::Ok {
                counts.problems.push(format!("sink.{}={}", row.name(), row.state().name()));
            }
        }
        counts
    }

    /// Whether the servers have ended, nothing of theirs waits, and these listeners lead.
    pub fn has_ended(&self) -> bool {
        let waits = |queue: QueueSnapshot| queue.producer == Holder::AnotherProcess || queue.counts.in_queue > 0;
        let leads = |lane: &Lane| inspect::leader(&lane.directory) == Holder::ThisProcess;
        self.0.iter().all(|lane| leads(lane) && !of_servers(lane).any(waits))
    }
}

/// The counts of some listeners.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Queues of servers.
    pub queues: usize,
    pub in_queue: u64,
    pub written: u64,
    pub dropped: u64,
    /// Sinks that take nothing.
    pub problems: Vec<String>,
}

impl Counts {
    /// Adds those of other listeners.
    pub fn add(&mut self, more: Self) {
        self.queues += more.queues;
        self.in_queue += more.in_queue;
        self.written += more.written;
        self.dropped += more.dropped;
        self.problems.extend(more.problems);
    }
}

impl Display for Counts {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { queues, in_queue, written, dropped, problems } = self;
        write!(out, "queues={queues} in_queue={in_queue} written={written} dropped={dropped}")?;
        problems.iter().try_for_each(|problem| write!(out, " {problem}"))
    }
}

fn open(host: &Host, configuration: &Configuration, which: Which, claims: bool) -> Result<Lane, String> {
    let is_foreign = which == Which::Audit && configuration.settings.has_foreign_store();
    let store = host.databases.as_ref().filter(|_| is_foreign).map(|databases| databases.writer()).transpose()?;
    let lane = configuration.resolved().lane(which, Role::OnlyListens, claims, store)?;
    let directory = lane.queue.directory.clone();
    let service = lane.open()?;
    let control = service.control().ok_or("the queue directory has no control page")?;
    Ok(Lane { service, directory, control })
}

fn is_led_elsewhere(lane: &Lane) -> bool {
    inspect::leader(&lane.directory) == Holder::AnotherProcess
}

/// The queues of servers: those that belong to no listener.
fn of_servers(lane: &Lane) -> impl Iterator<Item = QueueSnapshot> {
    inspect::queues(&lane.directory).into_iter().filter(|queue| !queue.only_listens)
}

/// The longest delay before a change is noticed.
pub const LOOK: Duration = Duration::from_millis(500);
pub const DRAIN_LOOK: Duration = Duration::from_millis(50);
/// The share of the deadline that is kept for the last round, since producers may go on until the end.
pub const SHARE_OF_LAST_ROUND: f64 = 0.2;
/// The longest time that an option takes.
pub const LONGEST_INTERVAL_S: f64 = 86_400.0;

/// Reports the port that the system has chosen.
pub fn say_port(port: u16) {
    say(&format!("serves /metrics on port {port}"));
}

/// Writes a line to stderr. If nothing reads the pipe, the line is left out, so that it cannot hold up the signals.
pub fn say(line: &str) {
    let mut stderr = std::io::stderr();
    if wait_writable(&stderr, Duration::ZERO).unwrap_or(false) {
        let _ = stderr.write_all(format!("inference-logging listen: {line}\n").as_bytes());
    }
}
