//! Processes and listeners that die at any step, against a simple model: the records that each process has committed.
//!
//! Actions come in any order: processes begin (a fork is one more beginning), emit, have requests in flight, die at
//! each step of an emit and of a request, close in order; the listener goes round, rotates, sees clocks jump, and dies
//! at any byte of a write, before it or behind it. At the end every committed record is in the segments exactly once
//! and in order, each request has one terminal record, every reservation that was not committed is counted as torn, the
//! end of each process is reported once with these counts, and no queue is left.

use crate::support::{
    INFO, Intercepted, SIZES, append, assert_books_balance, begun, listener_settings, numbers, payload,
};
use listen::delivery::{Delivery, Sinks};
use listen::leader::{Leader, Round};
use listen::sink::file::{FileSink, FileSinkConfig};
use listen::sink::{Now, Sink};
use proptest::prelude::*;
use queue::control::Control;
use queue::event::{EventSchema, REQUEST, builtin};
use queue::lock::ProcessLock;
use queue::queue_file::{self, QueueFile};
use queue::record::{Scratch, Trace};
use request::fields::{self, HttpRecord};
use request::ids::RequestIds;
use request::in_flight::facts::{Answer, SlotFacts};
use request::in_flight::terminal;
use request::outcome::Outcome;
use ring::slots::{self, LastRecord, Progress, Slot};
use ring::{Mark, record_words};
use segments::segment::SegmentName;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
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

// One process of the model: its actions on its queue, step by step until it dies, and the records that must result.

/// Where a process dies: with nothing under way, in an emit, or at the end of a request.
#[derive(Clone, Copy, Debug)]
enum DeathStep {
    Between,
    Reserved,
    Begun,
    Filled,
    Claimed,
    Ending(slots::EndStep),
}

const STEPS: [DeathStep; 9] = [
    DeathStep::Between,
    DeathStep::Reserved,
    DeathStep::Begun,
    DeathStep::Filled,
    DeathStep::Claimed,
    DeathStep::Ending(slots::EndStep::Reserved),
    DeathStep::Ending(slots::EndStep::Noted),
    DeathStep::Ending(slots::EndStep::Committed),
    DeathStep::Ending(slots::EndStep::Freed),
];

/// The content of a request's terminal record: its id, its outcome, the chunks of one that was cut off.
type ReportedFate = (String, &'static str, u64);

struct Request {
    slot: usize,
    number: u64,
    chunks: u64,
}

impl Request {
    fn reported(&self, outcome: &'static str, chunks: u64) -> ReportedFate {
        (format!("{:016x}", self.number), outcome, chunks)
    }
}

/// The model's knowledge of a process, and the resources of a living one.
struct Process {
    pub file: Arc<QueueFile>,
    pub committed: u64,
    pub torn: u64,
    pub reported: Vec<ReportedFate>,
    pub is_closed: bool,
    lock: Option<ProcessLock>,
    open: Vec<Request>,
}

impl Process {
    pub fn begin(directory: &Path, boot_id: u64) -> Self {
        let (file, lock) = QueueFile::create(directory, SIZES, boot_id, 1).unwrap();
        let own = EventSchema::new(EVENT, "test", &["thread", "n"]).unwrap();
        for schema in builtin().iter().chain(&fields::schemas()).chain([&own]) {
            file.append_schema(&schema.to_bytes()).unwrap();
        }
        let (reported, open) = (Vec::new(), Vec::new());
        Self { file, committed: 0, torn: 0, reported, is_closed: false, lock: Some(lock), open }
    }

    pub fn is_alive(&self) -> bool {
        self.lock.is_some()
    }

    pub fn emit(&mut self) {
        let bytes = payload(self.file.header().boot_id, self.committed);
        // Another test covers a full queue.
        let Ok(reserved) = self.file.ring().reserve(bytes.as_slice().len() as u32, u32::MAX) else { return };
        reserved.commit(EVENT, INFO, 1, bytes.as_slice());
        self.committed += 1;
    }

    pub fn begin_request(&mut self, number: u64) {
        let slots = self.file.slots();
        let Some(slot) = (0..slots.count()).find(|at| !slots.get(*at).unwrap().is_taken()) else { return };
        let ids = RequestIds::new(Trace { span_id: number.to_be_bytes(), ..Trace::default() }, None, None);
        let (method, path) = (&b"POST"[..], &b"/v1/chat/completions"[..]);
        let begun = begun(&ids, method, path);
        slots.get(slot).unwrap().write_facts(&begun);
        slots.get(slot).unwrap().open();
        self.open.push(Request { slot, number, chunks: 0 });
    }

    /// A chunk of the request that began last passes.
    pub fn chunk(&mut self) {
        let Some(request) = self.open.last_mut() else { return };
        request.chunks += 1;
        let slot = self.file.slots().get(request.slot).unwrap();
        slot.write_answer(Answer { status: 200, streamed: true, ..Answer::default() });
        slot.progress(Progress { chunks: request.chunks, bytes: request.chunks, last_chunk: 1 });
    }

    pub fn end_request(&mut self) {
        self.end_request_until(None);
    }

    fn end_request_until(&mut self, death: Option<slots::EndStep>) {
        let Some(request) = self.open.pop() else { return };
        let (slot, ring) = (self.file.slots().get(request.slot).unwrap(), self.file.ring());
        let record =
            LastRecord { event: REQUEST, severity: INFO, time_unix_nano: 1, payload: terminal_payload(&request) };
        let at = |step| {
            if death == Some(step) {
                resume_unwind(Box::new("killed"));
            }
        };
        assert!(slot.claim());
        let ended = catch_unwind(AssertUnwindSafe(|| slots::end_request(slot, ring, &record, at)));
        assert!(ended.unwrap_or(death.is_some()), "room for everything");
        if let Some(slots::EndStep::Reserved | slots::EndStep::Noted) = death {
            self.torn += 1;
            self.open.push(request);
        } else {
            self.reported.push(request.reported("ok", 0));
        }
    }

    pub fn die(&mut self, at: DeathStep) {
        match at {
            DeathStep::Between => {}
            DeathStep::Claimed => {
                assert!(self.open.last().is_none_or(|it| self.file.slots().get(it.slot).unwrap().claim()))
            }
            DeathStep::Ending(step) => self.end_request_until(Some(step)),
            step => self.die_in_emit(step),
        }
        self.leave("process_died");
    }

    fn die_in_emit(&mut self, at: DeathStep) {
        let bytes = payload(99, 99);
        let (ring, len) = (self.file.ring(), bytes.as_slice().len() as u32);
        if let DeathStep::Reserved = at {
            // Only the head shows the reservation.
            let head = ring.head();
            let word = Mark { sequence: head.sequence + 1, position: head.position + record_words(len) }.to_word();
            self.file.header().head.store(word, Ordering::Release);
        } else {
            let reserved = ring.reserve(len, u32::MAX).unwrap();
            if let DeathStep::Filled = at {
                reserved.fill(1, bytes.as_slice());
            }
        }
        self.torn += 1;
    }

    /// Ends in good order: first its requests in flight end, and the lock goes with the process.
    pub fn close(&mut self) {
        for slot in self.file.slots().iter().filter(Slot::claim) {
            let record = terminal::record(slot, Outcome::ServerShutdown, 1, &fields::schemas());
            assert!(slots::end_request(slot, self.file.ring(), &record, |_| ()), "room for everything");
        }
        self.file.ring().close();
        self.is_closed = true;
        self.leave("server_shutdown");
    }

    fn leave(&mut self, outcome: &'static str) {
        self.reported.extend(self.open.drain(..).map(|request| request.reported(outcome, request.chunks)));
        self.lock = None;
    }

    /// Records that have a sequence, recovered ones included.
    pub fn accepted(&self) -> u64 {
        self.committed + self.torn + self.reported.len() as u64
    }
}

/// The fields that matter here of a terminal record as the observer makes it.
fn terminal_payload(request: &Request) -> Vec<u8> {
    let mut scratch = Scratch::new();
    for field in HttpRecord::fields() {
        match field.name {
            "request_id" => scratch.push_str(&format!("{:016x}", request.number)),
            "outcome" => scratch.push_str("ok"),
            _ => scratch.push_absent(),
        }
    }
    scratch.as_slice().to_vec()
}
