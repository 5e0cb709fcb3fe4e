//! Shared by the tests of queue, leader, service and observer: a queue directory, a leader that is driven by hand with
//! a clock of the test's own, a sink in memory that fails on command, and child processes.

#[path = "../../../queue/tests/support/mod.rs"]
mod queues;

use listen::delivery::{Delivery, Sinks};
use listen::leader::{Leader, ListenerSettings, Round};
use listen::service::Service;
use listen::sink::{FileSink, FileSinkConfig, Now, Segments, Sink, SinkSettings, WriteError};
use queue::control::Control;
use queue::producer::{Producer, QueueSettings};
use queue::published::totals;
use queue::queue_file::{self, QueueSizes};
pub use queues::*;
use request::ids::RequestIds;
use request::in_flight::InFlight;
use request::in_flight::facts::Begun;
use segments::segment::SegmentName;
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const WARN: u8 = 13;
pub const SIZES: QueueSizes = QueueSizes { data_bytes: QUEUE_BYTES, slot_count: SLOTS };
/// Long enough for any machine; reached only when something is broken.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A request over HTTP that began long ago.
pub fn begun<'a>(ids: &'a RequestIds, method: &'a [u8], path: &'a [u8]) -> Begun<'a> {
    Begun {
        started: 1,
        started_unix_nano: 1,
        ids,
        method,
        path,
        protocol_version: b"",
        client_address: b"",
        is_probe: false,
        model: b"",
    }
}

/// As those of a queue's own tests, with the events of requests.
pub fn queue_settings(directory: &Path) -> QueueSettings {
    QueueSettings { events: request::fields::schemas(), ..queues::queue_settings(directory) }
}

/// A producer of a directory, and the test's own event.
pub fn open_producer(directory: &Path) -> (Producer, u16) {
    registered(Producer::open(queue_settings(directory)).unwrap())
}

pub fn registered(producer: Producer) -> (Producer, u16) {
    let event = register(&producer);
    (producer, event)
}

/// Emits the records of these numbers.
pub fn emit_each(producer: &Producer, event: u16, thread: u64, numbers: Range<u64>) {
    numbers.for_each(|n| assert!(emit(producer, event, INFO, thread, n)));
}

type Hook = Box<dyn FnMut(&[u8]) + Send>;

#[derive(Default)]
pub struct Taken {
    pub bytes: Vec<u8>,
    /// Records of each write that succeeded.
    pub writes: Vec<u64>,
    /// For each coming write: after how many lines it fails.
    pub faults: VecDeque<usize>,
    pub footer: Option<String>,
    pub before_write: Option<Hook>,
}

/// A sink in memory; clones share what it took.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Taken>>);

impl Memory {
    pub fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap()
    }

    pub fn lines(&self) -> Vec<Value> {
        let taken = self.taken();
        taken.bytes.split_inclusive(|byte| *byte == b'\n').map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    /// This sink alone, as the primary.
    pub fn sinks(&self) -> Sinks {
        Sinks::from(Box::new(self.clone()) as Box<dyn Sink>)
    }

    /// This sink alone, called by the leader's own thread.
    pub fn delivery(&self, control: Control, now: Now) -> Delivery {
        Delivery::here(self.sinks(), control, now)
    }

    /// Lines of one event.
    pub fn events(&self, name: &str) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["event_name"] == name).collect()
    }
}

impl Sink for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn write(&mut self, lines: &[u8], records: u64, _now: Now) -> Result<(), WriteError> {
        let mut taken = self.taken();
        if let Some(mut hook) = taken.before_write.take() {
            drop(taken);
            hook(lines);
            taken = self.taken();
            taken.before_write = Some(hook);
        }
        let ends: Vec<usize> =
            lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
        let whole_lines = (ends.last().copied().unwrap_or(0), ends.len() as u64);
        assert_eq!(whole_lines, (lines.len(), records), "whole lines, and their number");
        if let Some(whole) = taken.faults.pop_front() {
            let cut = ends[..whole.min(ends.len())].last().copied().unwrap_or(0);
            taken.bytes.extend_from_slice(&lines[..cut]);
            return Err(WriteError::after(&lines[..cut], io::Error::other("on command")));
        }
        taken.bytes.extend_from_slice(lines);
        taken.writes.push(records);
        Ok(())
    }

    fn close(&mut self, _now: Now, footer: &[u8]) -> io::Result<()> {
        self.taken().footer = Some(String::from_utf8(footer.to_vec()).unwrap());
        Ok(())
    }
}

/// A write as a test carries it out: the sink, the file that it has prepared, the lines, and their number.
type Write = Box<dyn FnMut(&mut FileSink, &Path, &[u8], u64, Now) -> Result<(), WriteError> + Send>;

/// A file sink whose writes a test carries out.
pub struct Intercepted {
    inner: FileSink,
    prepared: PathBuf,
    write: Write,
}

impl Intercepted {
    pub fn new(
        inner: FileSink,
        write: impl FnMut(&mut FileSink, &Path, &[u8], u64, Now) -> Result<(), WriteError> + Send + 'static,
    ) -> Self {
        Self { inner, prepared: PathBuf::new(), write: Box::new(write) }
    }
}

impl Sink for Intercepted {
    fn name(&self) -> &'static str {
        "intercepted"
    }

    fn prepare(&mut self, bytes: usize, now: Now) -> io::Result<Option<(&Path, u64)>> {
        let place = self.inner.prepare(bytes, now)?;
        self.prepared = place.map(|(path, _)| path.to_owned()).unwrap_or_default();
        Ok(place)
    }

    fn write(&mut self, lines: &[u8], records: u64, now: Now) -> Result<(), WriteError> {
        (self.write)(&mut self.inner, &self.prepared, lines, records, now)
    }

    fn segments(&self) -> Option<Segments<'_>> {
        self.inner.segments()
    }

    fn is_durable(&self) -> bool {
        self.inner.is_durable()
    }

    fn maintain(&mut self, now: Now) -> io::Result<()> {
        self.inner.maintain(now)
    }

    fn close(&mut self, now: Now, footer: &[u8]) -> io::Result<()> {
        self.inner.close(now, footer)
    }
}

/// Writes behind the end of a file, past the sink that has it open.
pub fn append(path: &Path, bytes: &[u8]) {
    File::options().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

pub fn listener_settings(directory: &Path) -> ListenerSettings {
    ListenerSettings {
        queue_directory: directory.to_owned(),
        flush_interval: Duration::from_millis(500),
        flush_records: 100,
        flush_bytes: 1 << 20,
        housekeeping: None,
        redaction: None,
        hash_key: None,
        semconv: lines::catalogue::Semconv::default(),
        provider: None,
        tenants: Vec::new(),
        line_end: String::new(),
    }
}

/// A queue directory and its leader.
pub struct Bench {
    pub directory: TempDir,
    pub sink: Memory,
    pub leader: Leader,
    pub now: Now,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut ListenerSettings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = listener_settings(directory.path());
        change(&mut settings);
        let (sink, now) = (Memory::default(), Now { unix_nano: 1_000_000_000, monotonic: Duration::from_secs(1) });
        let control = Control::open(directory.path()).unwrap();
        let leader = Leader::new(settings, control, sink.delivery(control, now), now);
        Self { directory, sink, leader, now }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn producer(&self) -> Producer {
        let producer = Producer::open(queue_settings(self.path())).unwrap();
        InFlight::end_with(&producer);
        producer
    }

    /// One round, `later` than the one before.
    pub fn round(&mut self, later: Duration, force: bool) -> Round {
        self.now.monotonic += later;
        self.now.unix_nano += later.as_nanos() as u64;
        self.leader.round(self.now, force)
    }

    /// Rounds until there is nothing to do; retries included.
    pub fn drain(&mut self) {
        let (mut later, started) = (Duration::from_millis(1), Instant::now());
        while started.elapsed() < PATIENCE {
            match self.round(later, true) {
                Round::Idle(_) if !self.leader.has_work() => return,
                Round::Idle(pause) => later = pause,
                Round::Wrote => {}
            }
        }
        panic!("the leader always has something to do");
    }

    /// The leader dies, and the next one has the same sink.
    pub fn next_leader(&mut self) -> Leader {
        let control = Control::open(self.path()).unwrap();
        let next =
            Leader::new(listener_settings(self.path()), control, self.sink.delivery(control, self.now), self.now);
        std::mem::replace(&mut self.leader, next)
    }

    /// The leader ends in an orderly way, whatever is left, and the next one has the same sink.
    pub fn change_leader(&mut self) {
        let now = self.now;
        self.next_leader().close(now);
    }

    pub fn queue_files(&self) -> Vec<PathBuf> {
        queue_file::list(self.path()).unwrap()
    }
}

/// The listeners' own count of the queues' records that sinks took equals that of the queues' headers.
pub fn assert_books_balance(directory: &Path, message: &str) {
    let page = Control::open(directory).unwrap().page();
    let written = totals::of_directory(&page.totals, directory).written;
    assert_eq!(page.taken_from_queues.load(Ordering::Acquire), written, "{message}: the books do not balance");
}

/// The numbers of one thread's records, as they stand in the lines.
pub fn numbers(lines: &[Value], thread: u64) -> Vec<u64> {
    lines.iter().filter(|line| line["thread"] == thread).map(|line| line["n"].as_u64().unwrap()).collect()
}

pub fn sequences(lines: &[Value]) -> Vec<u64> {
    lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect()
}

pub fn dense(count: u64) -> Vec<u64> {
    (0..count).collect()
}

/// The plain segments of a directory, in their order.
pub fn segments(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<SegmentName> = names.filter_map(|name| SegmentName::parse(&name)).collect();
    names.sort();
    names.iter().map(|name| dir.join(name.to_string())).collect()
}

/// The lines of these segments; each must be whole.
pub fn segment_lines(directory: &Path) -> Vec<Value> {
    let texts = segments(directory).into_iter().map(|path| fs::read_to_string(path).unwrap());
    texts.flat_map(|text| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>()).collect()
}

/// A directory for queues and one for segments.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn queues(&self) -> PathBuf {
        self.path().join("queues")
    }

    /// The queue files; none while there is no directory.
    pub fn queue_files(&self) -> Vec<PathBuf> {
        queue_file::list(&self.queues()).unwrap_or_default()
    }

    /// A file of the queue directory, by how its name begins.
    pub fn file(&self, prefix: &str) -> PathBuf {
        let mut paths = fs::read_dir(self.queues()).unwrap().map(|entry| entry.unwrap().path());
        paths.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix)).unwrap()
    }

    /// The lines of all segments.
    pub fn lines(&self) -> Vec<Value> {
        segment_lines(&self.path().join("segments"))
    }

    /// Every record of a thread is written once, in whatever order.
    pub fn assert_written(&self, thread: u64, count: u64) {
        let mut written = numbers(&self.lines(), thread);
        written.sort_unstable();
        assert_eq!(written, dense(count));
    }
}

/// A process's logging, with an interval so long that only a flush writes.
pub fn open_service(path: &Path, runs_listener: bool) -> Result<Arc<Service>, String> {
    let queues = path.join("queues");
    let listener = ListenerSettings { flush_interval: Duration::from_secs(3600), ..listener_settings(&queues) };
    let sink = SinkSettings::File(FileSinkConfig::new(path.join("segments"), "test", "0000000000000000"));
    Service::open(queue_settings(&queues), listener, sink, runs_listener)
}

/// Checks again and again until `reached`.
pub fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}
