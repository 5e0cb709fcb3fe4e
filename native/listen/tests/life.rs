//! Processes and listeners that die at any step, against a simple model: the records that each process has committed.
//!
//! Actions come in any order: processes begin (a fork is one more beginning), emit, have requests in flight, die at
//! each step of an emit and of a request, close in order; the listener goes round, rotates, sees clocks jump, and dies
//! at any byte of a write, before it or behind it. At the end every committed record is in the segments exactly once
//! and in order, each request has one terminal record, every reservation that was not committed is counted as torn, the
//! end of each process is reported once with these counts, and no queue is left.

mod process;

use crate::support::{Intercepted, append, assert_books_balance, listener_settings, numbers};
use listen::delivery::{Delivery, Sinks};
use listen::leader::{Leader, Round};
use listen::sink::file::{FileSink, FileSinkConfig};
use listen::sink::{Now, Sink};
use process::{DeathStep, Process, ReportedFate, STEPS};
use proptest::prelude::*;
use queue::control::Control;
use queue::queue_file;
use segments::segment::SegmentName;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const EVENT: u16 = 16;

#[derive(Clone, Debug)]
enum Action {
    /// A process begins: started, or forked from another one.
    Begin,
    Emit {
        process: usize,
    },
    BeginRequest {
        process: usize,
    },
    Chunk {
        process: usize,
    },
    EndRequest {
        process: usize,
    },
    /// A process dies between two steps, or with nothing under way.
    Die {
        process: usize,
        at: DeathStep,
    },
    /// A process ends in good order.
    Close {
        process: usize,
    },
    Round,
    /// Some time passes for ages, and the other clock jumps.
    Clocks {
        seconds: u64,
        jump_s: i64,
    },
    /// The listener dies in its next write with this many bytes of it in the file: none, some, all but the release.
    ListenerDies {
        bytes: usize,
    },
}

fn action() -> impl Strategy<Value = Action> {
    let process = || any::<usize>();
    let step = prop::sample::select(STEPS.to_vec());
    prop_oneof![
        2 => Just(Action::Begin),
        12 => process().prop_map(|process| Action::Emit { process }),
        4 => process().prop_map(|process| Action::BeginRequest { process }),
        4 => process().prop_map(|process| Action::Chunk { process }),
        2 => process().prop_map(|process| Action::EndRequest { process }),
        3 => (process(), step).prop_map(|(process, at)| Action::Die { process, at }),
        1 => process().prop_map(|process| Action::Close { process }),
        4 => Just(Action::Round),
        1 => (0..100u64, -4000..4000i64).prop_map(|(seconds, jump_s)| Action::Clocks { seconds, jump_s }),
        2 => prop_oneof![Just(0), 0..3000usize, Just(usize::MAX)].prop_map(|bytes| Action::ListenerDies { bytes }),
    ]
}

struct World {
    queues: TempDir,
    segments: TempDir,
    processes: Vec<Process>,
    leader: Option<Leader>,
    leaders: u64,
    requests: u64,
    dies_at: Arc<Mutex<Option<usize>>>,
    now: Now,
}

impl World {
    fn new() -> Self {
        let now = Now { unix_nano: 1_000_000_000_000_000, monotonic: Duration::from_secs(1) };
        let (queues, segments) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (processes, dies_at) = (Vec::new(), Arc::default());
        Self { queues, segments, processes, leader: None, leaders: 0, requests: 0, dies_at, now }
    }

    fn apply(&mut self, action: &Action) {
        match *action {
            Action::Begin if self.processes.len() < 6 => self.begin(),
            Action::Begin => {}
            Action::Emit { process } => self.with(process, Process::emit),
            Action::BeginRequest { process } => {
                self.requests += 1;
                let number = self.requests;
                self.with(process, |process| process.begin_request(number));
            }
            Action::Chunk { process } => self.with(process, Process::chunk),
            Action::EndRequest { process } => self.with(process, Process::end_request),
            Action::Die { process, at } => self.with(process, |process| process.die(at)),
            Action::Close { process } => self.with(process, Process::close),
            Action::Round => drop(self.round()),
            Action::Clocks { seconds, jump_s } => {
                self.now.monotonic += Duration::from_secs(seconds);
                self.now.unix_nano = self.now.unix_nano.saturating_add_signed(jump_s * 1_000_000_000);
            }
            Action::ListenerDies { bytes } => *self.dies_at.lock().unwrap() = Some(bytes),
        }
    }

    fn begin(&mut self) {
        let boot_id = self.processes.len() as u64 + 1;
        self.processes.push(Process::begin(self.queues.path(), boot_id));
    }

    /// Lets one of the living processes act, if there is any.
    fn with(&mut self, which: usize, act: impl FnOnce(&mut Process)) {
        let mut alive: Vec<&mut Process> = self.processes.iter_mut().filter(|one| one.is_alive()).collect();
        if !alive.is_empty() {
            act(alive.swap_remove(which % alive.len()));
        }
    }

    fn next_leader(&mut self) -> Leader {
        self.leaders += 1;
        let mut config = FileSinkConfig::new(self.segments.path(), "test", format!("{:016x}", self.leaders));
        config.rotate_bytes = 1500;
        config.rotate_interval = Duration::from_secs(50);
        let inner = FileSink::open(config).unwrap();
        let dies_at = Arc::clone(&self.dies_at);
        let sink: Box<dyn Sink> = Box::new(Intercepted::new(inner, move |inner, path, lines, records, now| {
            let Some(bytes) = dies_at.lock().unwrap().take() else { return inner.write(lines, records, now) };
            append(path, &lines[..bytes.min(lines.len())]);
            resume_unwind(Box::new("killed"));
        }));
        let control = Control::open(self.queues.path()).unwrap();
        let delivery = Delivery::here(Sinks::from(sink), control, self.now);
        Leader::new(listener_settings(self.queues.path()), control, delivery, self.now)
    }

    /// One round of the leader; if it dies, the next one follows.
    fn round(&mut self) -> Option<Round> {
        self.now.monotonic += Duration::from_millis(1);
        self.now.unix_nano += 1_000_000;
        let mut leader = self.leader.take().unwrap_or_else(|| self.next_leader());
        let now = self.now;
        let round = catch_unwind(AssertUnwindSafe(|| leader.round(now, true))).ok();
        // One that died is dropped, as the kernel takes its locks: that writes nothing.
        self.leader = round.is_some().then_some(leader);
        round
    }

    /// All processes end; the rest is recovered.
    fn end(&mut self) {
        self.processes.iter_mut().filter(|one| one.is_alive()).for_each(|one| one.die(DeathStep::Between));
        for _ in 0..1000 {
            let idle = matches!(self.round(), Some(Round::Idle(_)));
            if idle && queue_file::list(self.queues.path()).unwrap().is_empty() {
                return;
            }
        }
        panic!("a queue without an end");
    }

    /// The lines of all segments; each must be whole and valid.
    fn lines(&self) -> Vec<Value> {
        let entries = std::fs::read_dir(self.segments.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let segments: Vec<String> = names.filter(|name| SegmentName::parse(name).is_some()).collect();
        let texts = segments.iter().map(|name| std::fs::read_to_string(self.segments.path().join(name)).unwrap());
        texts.flat_map(|text| text.lines().map(|it| serde_json::from_str(it).unwrap()).collect::<Vec<_>>()).collect()
    }

    fn check(&self) {
        let lines = self.lines();
        assert_books_balance(self.queues.path(), "at the end");
        for (at, process) in self.processes.iter().enumerate() {
            let boot_id = at as u64 + 1;
            let of_process = |line: &&Value| line["boot_id"] == format!("{boot_id:016x}");
            let mut own: Vec<Value> = lines.iter().filter(of_process).cloned().collect();
            own.sort_by_key(|line| line["seq"].as_u64());
            assert_eq!(numbers(&own, boot_id), crate::support::dense(process.committed), "process {boot_id}");
            let reported: u64 = own.iter().filter_map(|line| line["dropped"].as_u64()).sum();
            assert_eq!(reported, process.torn, "torn records of process {boot_id}");
            assert_eq!(requests(&own), sorted(&process.reported), "requests of process {boot_id}");
            assert_eq!(ends(&own), end_of(process), "the end of process {boot_id}");
        }
    }
}

fn requests(lines: &[Value]) -> Vec<(String, String, u64)> {
    let of = |line: &Value| {
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        (text("request_id"), text("outcome"), line["chunks"].as_u64().unwrap_or(0))
    };
    let mut found: Vec<_> = lines.iter().filter(|line| line["event_name"] == "request").map(of).collect();
    found.sort();
    found
}

fn sorted(reported: &[ReportedFate]) -> Vec<(String, String, u64)> {
    let mut reported: Vec<_> =
        reported.iter().map(|(id, outcome, chunks)| (id.clone(), (*outcome).to_owned(), *chunks)).collect();
    reported.sort();
    reported
}

/// How each process ended, by its last record, and how many records it had accepted.
fn ends(lines: &[Value]) -> Vec<(String, u64)> {
    let ended = lines.iter().filter(|line| line["event_name"] == "process.ended");
    ended.map(|line| (line["how"].as_str().unwrap().to_owned(), line["accepted"].as_u64().unwrap())).collect()
}

fn end_of(process: &Process) -> Vec<(String, u64)> {
    let how = if process.is_closed { "closed" } else { "died" };
    let has_spoken = process.accepted() > 0;
    has_spoken.then(|| (how.to_owned(), process.accepted())).into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn whichever_process_dies_at_whatever_step_each_committed_record_is_in_the_segments_once(
        actions in prop::collection::vec(action(), 1..80),
    ) {
        let mut world = World::new();
        world.begin();
        actions.iter().for_each(|action| world.apply(action));
        world.end();
        world.check();
    }
}
