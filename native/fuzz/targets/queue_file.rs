//! Any damage to a dead process's queue file: the listener reaches its end, writes whole lines and no record twice, and
//! readers of the directory from outside go on.
//!
//! An input is a list of changes to a good file: one byte for what and where, two for the offset there, one for how many
//! bytes, and the bytes. See [`apply`].
//!
//! `cargo +nightly fuzz run queue_file` fuzzes the reader of queue files.
#![cfg_attr(fuzzing, no_main)]

use listen::delivery::{Delivery, Sinks};
use listen::leader::{Leader, ListenerSettings};
use listen::sink::{Now, Sink, WriteError};
use queue::control::Control;
use queue::inspect;
use queue::producer::{Producer, QueueSettings};
use queue::published::totals;
use queue::record::{Scratch, Trace};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DATA_BYTES: u64 = 65_536;
/// A record takes at least 3 words; with the two lines of the listener's own.
const MOST_LINES: u64 = DATA_BYTES / 24 + 2;
/// One round per batch, one to see that nothing is left, and some.
const MOST_ROUNDS: u32 = 64;

/// A queue directory with a leader, and a good file to damage.
pub struct Bench(Mutex<Parts>);

struct Parts {
    directory: tempfile::TempDir,
    good: Vec<u8>,
    /// Kept: a published queue of a producer is never freed, and would pass for a leak.
    _producer: Producer,
    control: Control,
    leader: Leader,
    lines: Arc<AtomicU64>,
    now: Now,
}

struct Counting(Arc<AtomicU64>);

impl Sink for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn write(&mut self, lines: &[u8], records: u64, _now: Now) -> Result<(), WriteError> {
        assert!(lines.ends_with(b"}\n"), "whole lines");
        let ends = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        assert_eq!(ends, records, "as many lines as records");
        self.0.fetch_add(records, Ordering::Relaxed);
        Ok(())
    }

    fn close(&mut self, _now: Now, _footer: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

impl Bench {
    /// Makes the directory, the good file and the leader.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (good, producer) = good_file();
        let control = Control::open(directory.path()).unwrap();
        let now = Now { unix_nano: 1_000_000_000, monotonic: Duration::from_secs(1) };
        let lines = Arc::<AtomicU64>::default();
        let sinks = Sinks::from(Box::new(Counting(Arc::clone(&lines))) as Box<dyn Sink>);
        let settings = ListenerSettings {
            queue_directory: directory.path().to_owned(),
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
        };
        let leader = Leader::new(settings, control, Delivery::here(sinks, control, now), now);
        Self(Mutex::new(Parts { directory, good, _producer: producer, control, leader, lines, now }))
    }

    /// Checks one input.
    pub fn check(&self, bytes: &[u8]) {
        self.0.lock().unwrap().check(bytes);
    }
}

impl Parts {
    fn check(&mut self, bytes: &[u8]) {
        let mut damaged = self.good.clone();
        apply(bytes, &mut damaged);
        let path = self.directory.path().join("0000000000000001.queue");
        std::fs::write(&path, damaged).unwrap();
        self.read_published();
        self.lines.store(0, Ordering::Relaxed);
        for _ in 0..MOST_ROUNDS {
            self.now.monotonic += Duration::from_millis(1);
            self.now.unix_nano += 1_000_000;
            self.leader.round(self.now, true);
            if !path.exists() {
                break;
            }
        }
        assert!(!self.leader.has_work(), "a damaged queue without an end");
        assert!(self.lines.load(Ordering::Relaxed) <= MOST_LINES, "a record was written twice");
        self.read_published();
        // A file that cannot be a queue is left alone.
        let _ = std::fs::remove_file(&path);
    }

    fn read_published(&self) {
        let _ = inspect::queues(self.directory.path());
        let _ = totals::of_directory(&self.control.page().totals, self.directory.path());
    }
}

/// The queue file of a process that was killed with records of every kind in its queue.
fn good_file() -> (Vec<u8>, Producer) {
    let directory = tempfile::tempdir().unwrap();
    let settings = QueueSettings {
        directory: directory.path().to_owned(),
        queue_bytes: DATA_BYTES,
        in_flight_slots: 2,
        max_record_bytes: 8192,
        overflow_info_ratio: 0.8,
        wake_bytes: DATA_BYTES,
        configuration: None,
        events: request::fields::schemas(),
    };
    let producer = Producer::open(settings).unwrap();
    let event = producer.register("test", &["a".to_owned(), "b".to_owned()]).unwrap();
    for n in 0..8 {
        let mut payload = Scratch::new();
        payload.push_uint(n);
        payload.push_str("text");
        assert!(producer.emit(event, 9, payload.as_slice()));
        let mut payload = Scratch::new();
        payload.push_trace(&Trace { trace_id: [1; 16], span_id: [2; 8], ..Trace::default() });
        payload.push_bytes(b"\xff");
        payload.push_map_begin(1);
        payload.push_map_key("k");
        payload.push_gaps(&[1, 2]);
        assert!(producer.emit(1, 13, payload.as_slice()));
    }
    let file = &producer.queue().unwrap().file;
    file.ring().reserve(5, u32::MAX).unwrap().fill(1, b"dying");
    (std::fs::read(&file.path).unwrap(), producer)
}

/// Changes `file` as `changes` say: the first byte's low two bits choose the header, what follows it, the records, or
/// anywhere by words; the third bit fills with one byte instead of copying; the fourth cuts the file there.
fn apply(mut changes: &[u8], file: &mut Vec<u8>) {
    while let [what, low, high, count, rest @ ..] = changes {
        let offset = usize::from(u16::from_le_bytes([*low, *high]));
        let data = file.len().saturating_sub(DATA_BYTES as usize);
        let at = match what & 3 {
            0 => offset % 1024,
            1 => 4096 + offset,
            2 => data + offset % 2048,
            _ => offset * 8,
        };
        if what & 8 != 0 {
            file.truncate(at);
        }
        let taken = if what & 4 == 0 { usize::from(*count).min(rest.len()) } else { 1.min(rest.len()) };
        let (bytes, rest) = rest.split_at(taken);
        for position in 0..usize::from(*count) {
            let byte = if what & 4 == 0 { bytes.get(position) } else { bytes.first() };
            if let (Some(stored), Some(byte)) = (file.get_mut(at + position), byte) {
                *stored = *byte;
            }
        }
        changes = rest;
    }
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static BENCH: std::sync::OnceLock<Bench> = std::sync::OnceLock::new();
    BENCH.get_or_init(Bench::new).check(bytes);
});
