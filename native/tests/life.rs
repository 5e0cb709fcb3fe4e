//! Processes and listeners that die at any step, against a simple model: which records each process has committed.
//!
//! Actions come in any order: processes begin (a fork is one more beginning), emit, die at each step of an emit, close in
//! order; the listener goes round, rotates, sees clocks jump, and dies at any byte of a write, before it or behind it.
//! At the end everything that was committed is in the segments exactly once and in order, every reservation that was not
//! is counted as torn, and no queue is left.

mod support;

use _native::control::Control;
use _native::delivery::{Delivery, Sinks};
use _native::event::EventSchema;
use _native::leader::{Leader, Round};
use _native::lock::ProcessLock;
use _native::queue_file::{self, QueueFile};
use _native::ring::{Mark, record_words};
use _native::segment::SegmentName;
use _native::sink::file::{FileSink, FileSinkConfig};
use _native::sink::{Now, Sink, WriteError};
use proptest::prelude::*;
use serde_json::Value;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{INFO, SIZES, listener_settings, numbers, payload};
use tempfile::TempDir;

const EVENT: u16 = 16;

#[derive(Clone, Debug)]
enum Action {
    /// A process begins: started, or forked from another one.
    Begin,
    Emit {
        process: usize,
    },
    /// A process dies between two steps of an emit, or with none under way.
    Die {
        process: usize,
        at: Step,
    },
    /// A process ends in good order.
    Close {
        process: usize,
    },
    Round,
    /// So much time passes for ages, and the other clock jumps.
    Clocks {
        seconds: u64,
        jump_s: i64,
    },
    /// The listener dies in its next write with so many bytes of it in the file: none, some, all but the release.
    ListenerDies {
        bytes: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Between,
    Reserved,
    Begun,
    Filled,
}

fn action() -> impl Strategy<Value = Action> {
    let process = || any::<usize>();
    let step = prop::sample::select(vec![Step::Between, Step::Reserved, Step::Begun, Step::Filled]);
    prop_oneof![
        2 => Just(Action::Begin),
        12 => process().prop_map(|process| Action::Emit { process }),
        2 => (process(), step).prop_map(|(process, at)| Action::Die { process, at }),
        1 => process().prop_map(|process| Action::Close { process }),
        4 => Just(Action::Round),
        1 => (0..100u64, -4000..4000i64).prop_map(|(seconds, jump_s)| Action::Clocks { seconds, jump_s }),
        2 => prop_oneof![Just(0), 0..3000usize, Just(usize::MAX)].prop_map(|bytes| Action::ListenerDies { bytes }),
    ]
}

/// A file sink whose process dies in a write, when it is told to.
struct Mortal {
    inner: FileSink,
    dies_at: Arc<Mutex<Option<usize>>>,
}

impl Sink for Mortal {
    fn name(&self) -> &'static str {
        "mortal"
    }

    fn prepare(&mut self, bytes: usize, now: Now) -> io::Result<Option<(&Path, u64)>> {
        self.inner.prepare(bytes, now)
    }

    fn write(&mut self, lines: &[u8], records: u64, now: Now) -> Result<(), WriteError> {
        let Some(bytes) = self.dies_at.lock().unwrap().take() else { return self.inner.write(lines, records, now) };
        let path = self.inner.live_path().unwrap();
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(&lines[..bytes.min(lines.len())]).unwrap();
        resume_unwind(Box::new("killed"));
    }

    fn maintain(&mut self, now: Now) -> io::Result<()> {
        self.inner.maintain(now)
    }

    fn close(&mut self, now: Now, footer: &[u8]) -> io::Result<()> {
        self.inner.close(now, footer)
    }
}

/// What the model knows of a process, and what a living one holds.
struct Process {
    file: Arc<QueueFile>,
    lock: Option<ProcessLock>,
    committed: u64,
    torn: u64,
}

struct World {
    queues: TempDir,
    segments: TempDir,
    processes: Vec<Process>,
    leader: Option<Leader>,
    leaders: u64,
    dies_at: Arc<Mutex<Option<usize>>>,
    now: Now,
}

impl World {
    fn new() -> Self {
        let now = Now { unix_nano: 1_000_000_000_000_000, monotonic: Duration::from_secs(1) };
        let (queues, segments) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Self { queues, segments, processes: Vec::new(), leader: None, leaders: 0, dies_at: Arc::default(), now }
    }

    fn apply(&mut self, action: &Action) {
        match *action {
            Action::Begin if self.processes.len() < 6 => self.begin(),
            Action::Begin => {}
            Action::Emit { process } => self.emit(process),
            Action::Die { process, at } => self.die(process, at),
            Action::Close { process } => {
                if let Some(process) = self.alive(process) {
                    process.file.ring().close();
                    process.lock = None;
                }
            }
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
        let (file, lock) = QueueFile::create(self.queues.path(), SIZES, boot_id, 1).unwrap();
        for schema in _native::event::builtin() {
            file.append_schema(&schema.to_bytes()).unwrap();
        }
        file.append_schema(&EventSchema::new(EVENT, "test", &["thread", "n"]).unwrap().to_bytes()).unwrap();
        self.processes.push(Process { file, lock: Some(lock), committed: 0, torn: 0 });
    }

    fn alive(&mut self, which: usize) -> Option<&mut Process> {
        let mut alive: Vec<&mut Process> = self.processes.iter_mut().filter(|one| one.lock.is_some()).collect();
        let count = alive.len();
        (count > 0).then(|| alive.swap_remove(which % count))
    }

    fn emit(&mut self, which: usize) {
        let Some(process) = self.alive(which) else { return };
        let bytes = payload(process.file.header().boot_id, process.committed);
        // A full queue is somebody else's test.
        let Ok(reserved) = process.file.ring().reserve(bytes.as_slice().len() as u32, u32::MAX) else { return };
        reserved.commit(EVENT, INFO, 1, bytes.as_slice());
        process.committed += 1;
    }

    fn die(&mut self, which: usize, at: Step) {
        let Some(process) = self.alive(which) else { return };
        let bytes = payload(99, 99);
        let (ring, len) = (process.file.ring(), bytes.as_slice().len() as u32);
        let head = ring.head();
        process.lock = None;
        match at {
            Step::Between => return,
            // Only the head says that something was reserved.
            Step::Reserved => {
                let position = head.position + record_words(len);
                let word = Mark { sequence: head.sequence + 1, position }.to_word();
                process.file.header().head.store(word, Ordering::Release);
            }
            Step::Begun => drop(ring.reserve(len, u32::MAX).unwrap()),
            Step::Filled => ring.reserve(len, u32::MAX).unwrap().fill(1, bytes.as_slice()),
        }
        process.torn += 1;
    }

    fn next_leader(&mut self) -> Leader {
        self.leaders += 1;
        let mut config = FileSinkConfig::new(self.segments.path(), "test", format!("{:016x}", self.leaders));
        config.rotate_bytes = 1500;
        config.rotate_interval = Duration::from_secs(50);
        let inner = FileSink::open(config).unwrap();
        let sink: Box<dyn Sink> = Box::new(Mortal { inner, dies_at: Arc::clone(&self.dies_at) });
        let control = Control::open(self.queues.path()).unwrap();
        let delivery = Delivery::here(Sinks::from(sink), control, self.now);
        Leader::new(listener_settings(self.queues.path()), control, delivery, self.now)
    }

    /// One round of the leader, whom the next one follows if it dies.
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

    /// Everybody ends; what is left is recovered.
    fn end(&mut self) {
        self.processes.iter_mut().for_each(|process| process.lock = None);
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
        for (at, process) in self.processes.iter().enumerate() {
            let boot_id = at as u64 + 1;
            let of_process = |line: &&Value| line["boot_id"] == format!("{boot_id:016x}");
            let mut own: Vec<Value> = lines.iter().filter(of_process).cloned().collect();
            own.sort_by_key(|line| line["seq"].as_u64());
            assert_eq!(numbers(&own, boot_id), support::dense(process.committed), "process {boot_id}");
            let told: u64 = own.iter().filter_map(|line| line["dropped"].as_u64()).sum();
            assert_eq!(told, process.torn, "torn records of process {boot_id}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn whoever_dies_at_whatever_step_each_committed_record_is_in_the_segments_once(
        actions in prop::collection::vec(action(), 1..80),
    ) {
        let mut world = World::new();
        world.begin();
        actions.iter().for_each(|action| world.apply(action));
        world.end();
        world.check();
    }
}
