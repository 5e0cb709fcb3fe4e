//! The audit lane's promise: a record that is released from a queue is on the device, in one chain, and each record is
//! there once, whichever call of the system fails and wherever the leader dies.

use crate::support::{INFO, assert_books_balance, dense, emit, listener_settings, numbers, open_producer, segments};
use listen::delivery::Delivery;
use listen::leader::{Leader, ListenerSettings};
use listen::sink::file::{ChainSettings, DurableSettings, FileSink, FileSinkConfig};
use listen::sink::{Now, Os, RealOs, Segments, Sink, WriteError};
use queue::control::Control;
use queue::producer::Producer;
use segments::chain::{self, Algorithm, Chain, START};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use Fault::{DieAfter, DieBefore, Fail, HalfThenFail};

const PRODUCERS: u64 = 3;
/// Room for two batches: then a footer and the next segment.
const ROTATE_BYTES: u64 = 4096;

/// A sink whose process dies once the write is published as committed, before anything is released.
struct DiesCommitted {
    inner: FileSink<Device>,
    after: Option<u32>,
}

impl Sink for DiesCommitted {
    fn name(&self) -> &'static str {
        "dying"
    }
    fn prepare(&mut self, bytes: usize, now: Now) -> io::Result<Option<(&Path, u64)>> {
        self.inner.prepare(bytes, now)
    }
    fn write(&mut self, lines: &[u8], records: u64, now: Now) -> Result<(), WriteError> {
        self.inner.write(lines, records, now)
    }
    fn maintain(&mut self, now: Now) -> io::Result<()> {
        self.inner.maintain(now)
    }
    fn close(&mut self, now: Now, footer: &[u8]) -> io::Result<()> {
        self.inner.close(now, footer)
    }
    fn is_durable(&self) -> bool {
        true
    }
    fn segments(&self) -> Option<Segments<'_>> {
        self.inner.segments()
    }
    fn take_refused(&mut self) -> u64 {
        match &mut self.after {
            Some(0) => resume_unwind(Box::new("killed")),
            Some(left) => *left -= 1,
            None => (),
        }
        0
    }
}

/// One machine's audit lane: its queues, its segments, its device, and leaders that come and go.
struct Lane {
    queues: tempfile::TempDir,
    root: tempfile::TempDir,
    device: Device,
    producers: Vec<(Producer, u16)>,
    leaders: u64,
    now: Now,
}

impl Lane {
    fn new(faults: &[(usize, Fault)]) -> Self {
        let (queues, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let producers = (0..PRODUCERS).map(|_| {
            let (producer, event) = open_producer(queues.path());
            (producer, event)
        });
        let producers = producers.collect();
        let device = Device::default();
        device.machine().faults.extend(faults.iter().copied());
        let now = Now { unix_nano: 1_000_000_000, monotonic: Duration::from_secs(1) };
        Self { queues, root, device, producers, leaders: 0, now }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("audit")
    }

    fn leader(&mut self, dies_committed: Option<u32>) -> Leader {
        self.leaders += 1;
        let chain = Some(ChainSettings { algorithm: Algorithm::Blake3, key: None });
        let mut config = FileSinkConfig::new(self.dir(), "audit", format!("{:016x}", self.leaders));
        config.durable = Some(DurableSettings { chain });
        config.rotate_bytes = ROTATE_BYTES;
        let inner = FileSink::open_with(config, self.device.clone()).unwrap();
        let control = Control::open(self.queues.path()).unwrap();
        let sink = Box::new(DiesCommitted { inner, after: dies_committed }) as Box<dyn Sink>;
        let settings = ListenerSettings { ..listener_settings(self.queues.path()) };
        Leader::new(settings, control, Delivery::here(sink, control, self.now), self.now)
    }

    /// Emits four records of each producer, in `batches` rounds; returns false if the leader died.
    fn work(&mut self, leader: &mut Leader, batch: u64) -> bool {
        for (thread, (producer, event)) in self.producers.iter().enumerate() {
            let first = u64::from(producer.queue().unwrap().file.ring().head().sequence);
            assert!(first == batch * 4 || first == (batch + 1) * 4);
            (first..(batch + 1) * 4).for_each(|n| assert!(emit(producer, *event, INFO, thread as u64, n)));
        }
        self.rounds(leader)
    }

    fn rounds(&mut self, leader: &mut Leader) -> bool {
        for _ in 0..60 {
            self.now.monotonic += Duration::from_secs(6);
            self.now.unix_nano += 1_000_000;
            let round = catch_unwind(AssertUnwindSafe(|| leader.round(self.now, true)));
            self.check_promise();
            if round.is_err() {
                return false;
            }
            let drained = |(producer, _): &(Producer, u16)| producer.queue().unwrap().file.ring().is_drained();
            if self.producers.iter().all(drained) {
                break;
            }
        }
        true
    }

    /// Every released record is on the device.
    fn check_promise(&self) {
        let lines = self.device.lines(&self.dir());
        for (thread, (producer, _)) in self.producers.iter().enumerate() {
            let released = producer.queue().unwrap().file.released();
            let mut found = numbers(&lines, thread as u64);
            found.retain(|n| *n < u64::from(released));
            assert_eq!(found, dense(released.into()), "calls: {:?}", self.device.machine().calls);
        }
    }

    /// Each record is there once, and all lines are one chain.
    fn check_end(&self, message: &str) {
        let (mut lines, mut chain) = (Vec::new(), Chain::new(Algorithm::Blake3, None, START));
        for path in segments(&self.dir()) {
            let bytes = fs::read(path).unwrap();
            for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
                let Some(line) = line.strip_suffix(b"\n") else { continue };
                if number == 0 {
                    assert_eq!(chain::of_header(line).unwrap().2, chain.value(), "{message}: segments link");
                }
                assert_eq!(chain.check(line), Ok(()), "{message}: {}", String::from_utf8_lossy(line));
            }
            lines.extend(parsed(&bytes));
        }
        for thread in 0..PRODUCERS {
            assert_eq!(numbers(&lines, thread), dense(12), "{message}");
        }
        assert_books_balance(self.queues.path(), message);
    }
}

/// Three batches, under faults and the death of a leader; then a leader without either finishes all of it. Returns the
/// calls made until the death.
fn live_through(
    faults: &[(usize, Fault)],
    dies_committed: Option<u32>,
    meanwhile: impl Fn(&Lane),
) -> Vec<&'static str> {
    let mut lane = Lane::new(faults);
    let mut leader = lane.leader(dies_committed);
    let mut batch = 0;
    while batch < 3 && lane.work(&mut leader, batch) {
        batch += 1;
    }
    let calls = lane.device.machine().calls.clone();
    lane.device.machine().faults.clear();
    lane.device.machine().fails_next = None;
    if batch < 3 {
        drop(leader);
        meanwhile(&lane);
        leader = lane.leader(None);
        (batch..3).for_each(|batch| assert!(lane.work(&mut leader, batch)));
    }
    leader.close(lane.now);
    lane.check_end(&format!("{faults:?} {dies_committed:?}"));
    calls
}

#[test]
fn what_is_released_is_on_the_device_and_rotation_changes_nothing_about_that() {
    let calls = live_through(&[], None, |_| ());
    assert!(calls.iter().filter(|call| **call == "create").count() > 1, "{calls:?}");
    assert_eq!(calls.iter().filter(|call| **call == "remove").count(), 0);
}

#[test]
fn a_leader_that_dies_before_or_after_any_system_call_loses_and_doubles_nothing() {
    let count = live_through(&[], None, |_| ()).len();
    for number in 0..count {
        for death in [DieBefore, DieAfter] {
            live_through(&[(number, death)], None, |_| ());
        }
    }
}

#[test]
fn a_leader_that_dies_between_commit_and_release_loses_and_doubles_nothing() {
    for batch in 0..3 {
        live_through(&[], Some(batch), |_| ());
    }
}

#[test]
fn a_leader_that_dies_in_the_middle_of_the_release_loses_and_doubles_nothing() {
    for batch in 0..3 {
        live_through(&[], Some(batch), |lane| {
            // The batch was counted and one of three queues released before the death.
            let page = Control::open(lane.queues.path()).unwrap().page();
            page.taken_from_queues.fetch_add(4 * PRODUCERS, Ordering::Relaxed);
            let file = &lane.producers[1].0.queue().unwrap().file;
            let head = file.ring().head();
            file.header().releasing.store(head.to_word(), Ordering::Release);
            file.ring().release(head);
        });
    }
}

#[test]
fn no_system_call_that_fails_once_loses_or_doubles_anything() {
    let count = live_through(&[], None, |_| ()).len();
    for number in 0..count {
        for code in [libc::EIO, libc::ENOSPC, libc::EROFS] {
            live_through(&[(number, Fail(code))], None, |_| ());
            live_through(&[(number, HalfThenFail(code))], None, |_| ());
        }
    }
}

#[test]
fn a_leader_that_dies_soon_after_a_failure_loses_and_doubles_nothing() {
    let count = live_through(&[], None, |_| ()).len();
    for number in 0..count {
        for death in number + 1..number + 7 {
            live_through(&[(number, Fail(libc::EIO)), (death, DieAfter)], None, |_| ());
            live_through(&[(number, HalfThenFail(libc::ENOSPC)), (death, DieBefore)], None, |_| ());
        }
    }
}

// A system that fails or dies at any of its calls, and whose device shows what it really has.

/// The event instead of, or beside, the call with this number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Fail(i32),
    /// Half of the bytes go through, then the next call fails.
    HalfThenFail(i32),
    DieBefore,
    DieAfter,
}

#[derive(Clone, Copy, Default)]
struct OnDevice {
    pub synced: u64,
    /// A sync has failed: the pages that were dirty then never arrive, even if a later sync succeeds.
    pub poisoned: bool,
    pub is_named: bool,
}

#[derive(Default)]
struct Machine {
    pub files: HashMap<u64, OnDevice>,
    pub faults: HashMap<usize, Fault>,
    pub calls: Vec<&'static str>,
    pub fails_next: Option<i32>,
}

/// A system whose device shows what it really has.
#[derive(Clone, Default)]
struct Device(Arc<Mutex<Machine>>);

impl Device {
    pub fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Makes one call, unless a fault is planned for it.
    pub fn call<R>(&self, name: &'static str, make: impl FnOnce(&mut Machine, bool) -> io::Result<R>) -> io::Result<R> {
        let mut machine = self.machine();
        let number = machine.calls.len();
        machine.calls.push(name);
        if let Some(code) = machine.fails_next.take() {
            return Err(io::Error::from_raw_os_error(code));
        }
        match machine.faults.get(&number).copied() {
            None => make(&mut machine, false),
            Some(HalfThenFail(code)) if name == "write" => {
                machine.fails_next = Some(code);
                make(&mut machine, true)
            }
            Some(Fail(code) | HalfThenFail(code)) => {
                if name == "sync" {
                    let _ = make(&mut machine, true);
                }
                Err(io::Error::from_raw_os_error(code))
            }
            Some(DieBefore) => resume_unwind(Box::new("killed")),
            Some(DieAfter) => {
                let _ = make(&mut machine, false);
                resume_unwind(Box::new("killed"))
            }
        }
    }

    /// The whole lines that a loss of power would leave.
    pub fn lines(&self, dir: &Path) -> Vec<Value> {
        let machine = self.machine();
        let mut found = Vec::new();
        for path in segments(dir) {
            let file = File::open(path).unwrap();
            let state = machine.files.get(&file.metadata().unwrap().ino()).copied().unwrap_or_default();
            let mut bytes = Vec::new();
            file.take(if state.is_named { state.synced } else { 0 }).read_to_end(&mut bytes).unwrap();
            found.extend(parsed(&bytes));
        }
        found
    }
}

fn inode(file: &File) -> u64 {
    file.metadata().unwrap().ino()
}

impl Os for Device {
    fn create_segment(&mut self, path: &Path) -> io::Result<File> {
        self.call("create", |machine, _| {
            let file = RealOs.create_segment(path)?;
            machine.files.insert(inode(&file), OnDevice::default());
            Ok(file)
        })
    }
    fn write(&mut self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        self.call("write", |_, half| RealOs.write(file, &bytes[..if half { bytes.len() / 2 } else { bytes.len() }]))
    }
    fn truncate(&mut self, file: &File, len: u64) -> io::Result<()> {
        self.call("truncate", |machine, _| {
            let state = machine.files.entry(inode(file)).or_default();
            state.synced = state.synced.min(len);
            RealOs.truncate(file, len)
        })
    }
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.call("remove", |_, _| RealOs.remove(path))
    }
    fn replace_link(&mut self, _target: &Path, _link: &Path, _temporary: &Path) -> io::Result<()> {
        Ok(())
    }
    fn start_writeback(&mut self, _file: &File, _range: Range<u64>) -> io::Result<()> {
        panic!("nobody but the sync may learn of an error");
    }
    fn finish_writeback(&mut self, _file: &File, _range: Range<u64>) -> io::Result<()> {
        panic!("nobody but the sync may learn of an error");
    }
    fn sync_data(&mut self, file: &File) -> io::Result<()> {
        self.call("sync", |machine, fails| {
            let state = machine.files.entry(inode(file)).or_default();
            state.poisoned |= fails;
            if !state.poisoned {
                state.synced = file.metadata()?.len();
            }
            Ok(())
        })
    }
    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.call("sync dir", |machine, _| {
            for path in segments(dir) {
                machine.files.entry(inode(&File::open(path)?)).or_default().is_named = true;
            }
            Ok(())
        })
    }
}

/// The whole lines of a segment.
fn parsed(bytes: &[u8]) -> Vec<Value> {
    let whole = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    whole.map(|line| serde_json::from_slice(line).unwrap()).collect()
}
