//! Retention, quota and compression: rounds in real directories, on an operating system that fails or dies on command.

mod compression;
mod limits;

use crate::support::{SIZES, wait_until};
use listen::housekeeper::{Compression, Housekeeper, HousekeepingSettings, Rounds};
use listen::sink::{FileSink, FileSinkConfig, Now, Sink};
use queue::control::Control;
use queue::published::housekeeping::{HousekeepingWords, Reason};
use queue::queue_file::QueueFile;
use segments::retention::{Limits, Moment, Removed};
use segments::rotation::Rotations;
use segments::segment::LiveLock;
use segments::segment_store::{FileFacts, RealStore, Store};
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

// A directory of segments, rounds over it, and a store whose calls fail from a chosen one on.

/// 2026-11-21T05:00:00Z, when the first segment began.
const BEGIN_S: u64 = 1_795_237_200;
const PREFIX: &str = "svc";

fn name(number: u64) -> String {
    format!("{PREFIX}-20261121T0500{number:02}.000Z-00000000deadbeef-{number:06}.jsonl")
}

/// The time `seconds` after the first segment began, in Unix nanoseconds.
fn at(seconds: u64) -> u64 {
    (BEGIN_S + seconds) * 1_000_000_000
}

/// That time, where the clock was never set.
fn moment(seconds: u64) -> Moment {
    Moment { unix_nano: at(seconds), boottime_nano: at(seconds) }
}

/// Lines enough for several steps of a compression, and different in each segment.
fn content(number: u64) -> Vec<u8> {
    (0..20_000).flat_map(|line| format!("{{\"segment\":{number},\"n\":{line}}}\n").into_bytes()).collect()
}

struct Bench {
    pub dir: TempDir,
    pub words: &'static HousekeepingWords,
    /// The reports: reason, segments, bytes, oldest, newest.
    pub reported: Vec<(&'static str, Removed)>,
    pub limits: Limits,
    pub compression: Option<Compression>,
    pub other_directories: Vec<PathBuf>,
    pub waits_for: Vec<String>,
    /// By how much the clock was set forward.
    pub stepped_s: u64,
}

impl Bench {
    pub fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
            words: Box::leak(Box::default()),
            reported: Vec::new(),
            limits: Limits::default(),
            compression: None,
            other_directories: Vec::new(),
            waits_for: Vec::new(),
            stepped_s: 0,
        }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    /// Writes a file whose last write was `seconds` after the beginning.
    pub fn write(&self, file: &str, content: &[u8], seconds: u64) -> PathBuf {
        let path = self.path(file);
        fs::write(&path, content).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(BEGIN_S + seconds);
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        path
    }

    /// Writes segments `1..=last`, each ten bytes, each a second younger than the next.
    pub fn segments(&self, last: u64) {
        for number in 1..=last {
            self.write(&name(number), b"{\"n\":123}\n", number);
        }
    }

    /// Holds a segment as its writer does.
    pub fn live(&self, file: &str) -> LiveLock {
        LiveLock::hold(Arc::new(File::options().append(true).open(self.path(file)).unwrap()))
    }

    pub fn rounds<S: Store>(&self, store: S) -> Rounds<S> {
        let settings = HousekeepingSettings {
            directories: [vec![self.dir.path().to_owned()], self.other_directories.clone()].concat(),
            prefix: PREFIX.to_owned(),
            limits: self.limits,
            compression: self.compression,
            waits_for: (self.waits_for.clone(), self.dir.path().to_owned()),
            rotations: Rotations::default(),
        };
        Rounds::new(settings, self.words, store, self.words.unreported().map(Removed::from))
    }

    /// Does one round at `seconds` after the beginning.
    pub fn round(&mut self, seconds: u64) -> bool {
        let mut rounds = self.rounds(RealStore);
        self.round_of(&mut rounds, seconds)
    }

    pub fn round_of<S: Store>(&mut self, rounds: &mut Rounds<S>, seconds: u64) -> bool {
        let now = Moment { boottime_nano: at(seconds - self.stepped_s), ..moment(seconds) };
        let reported = &mut self.reported;
        rounds.round(now, &mut |_| true, &mut |reason: Reason, removed: &Removed| {
            reported.push((reason.name(), removed.clone()));
            true
        })
    }

    /// Names in the directory but for the housekeeper's own lock, sorted.
    pub fn files(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.ends_with(".housekeeping.lock"));
        names.sort();
        names
    }

    /// The content that a reader finds in segment `number`: the plain copy's, else the compressed one's.
    pub fn found(&self, number: u64) -> Vec<u8> {
        let plain = self.path(&name(number));
        if plain.exists() { fs::read(plain).unwrap() } else { self.decompressed(number) }
    }

    pub fn decompressed(&self, number: u64) -> Vec<u8> {
        let mut content = Vec::new();
        let file = File::open(self.path(&format!("{}.zst", name(number)))).unwrap();
        zstd::stream::read::Decoder::new(file).unwrap().read_to_end(&mut content).unwrap();
        content
    }

    pub fn errors(&self) -> u64 {
        self.words.errors.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// When the calls of a [`Failing`] store fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// This call alone, as a disk that is full for a moment.
    Once(usize),
    /// This and all that follow: the process is dead.
    From(usize),
}

/// A store that counts its calls, and fails some.
#[derive(Clone)]
struct Failing {
    fault: Fault,
    /// The name of a file that another user has.
    pub foreign: Option<String>,
    pub calls: Rc<RefCell<usize>>,
}

// SAFETY: only for the trait's bound; the tests use it on one thread.
unsafe impl Send for Failing {}

impl Failing {
    pub fn new(fault: Fault) -> Self {
        Self { fault, foreign: None, calls: Rc::default() }
    }

    fn call(&mut self) -> io::Result<RealStore> {
        let mut calls = self.calls.borrow_mut();
        *calls += 1;
        let fails = match self.fault {
            Fault::Once(call) => *calls == call,
            Fault::From(call) => *calls >= call,
        };
        if fails { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(RealStore) }
    }
}

impl Store for Failing {
    fn list(&mut self, dir: &Path) -> io::Result<Vec<String>> {
        self.call()?.list(dir)
    }

    fn facts(&mut self, path: &Path) -> io::Result<Option<FileFacts>> {
        self.call()?.facts(path)
    }

    fn open(&mut self, path: &Path) -> io::Result<File> {
        if path.file_name().and_then(|name| name.to_str()) == self.foreign.as_deref() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.call()?.open(path)
    }

    fn try_lock(&mut self, file: &File) -> io::Result<bool> {
        self.call()?.try_lock(file)
    }

    fn read(&mut self, file: &File, into: &mut [u8]) -> io::Result<usize> {
        self.call()?.read(file, into)
    }

    fn create(&mut self, path: &Path, like: &File) -> io::Result<File> {
        self.call()?.create(path, like)
    }

    fn write(&mut self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        // Half of it: a write may take less than it is given.
        self.call()?.write(file, &bytes[..bytes.len().div_ceil(2)])
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        self.call()?.sync(file)
    }

    fn copy_time(&mut self, file: &File, like: &File) -> io::Result<()> {
        self.call()?.copy_time(file, like)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?.rename(from, to)
    }

    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.call()?.sync_dir(dir)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.call()?.remove(path)
    }
}

/// A limit of bytes alone.
fn quota(quota_bytes: u64) -> Limits {
    Limits { quota_bytes, ..Limits::default() }
}

// The quota while segments are written as fast as possible: a sink that rotates has it kept before another segment
// begins.

const ROTATE_BYTES: u64 = 64 << 10;
const QUOTA_BYTES: u64 = 4 * ROTATE_BYTES;
const BATCH_BYTES: usize = 8 << 10;

fn bytes_in(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).unwrap().filter_map(|entry| entry.unwrap().metadata().ok());
    files.filter(fs::Metadata::is_file).map(|file| file.len()).sum()
}

#[test]
fn a_directory_never_holds_more_than_the_quota_and_one_segment_however_fast_it_is_written() {
    let (queues, segments) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (queue, _lock) = QueueFile::create(queues.path(), SIZES, 7, 1).unwrap();
    let control = Control::open(queues.path()).unwrap();
    let (directory, rotations) = (segments.path().to_owned(), Rotations::default());
    let mut settings = HousekeepingSettings::new(
        vec![directory.clone()],
        PREFIX,
        quota(QUOTA_BYTES),
        None,
        (vec![], directory.clone()),
    )
    .unwrap();
    settings.rotations = rotations.clone();
    let housekeeper = Housekeeper::start(Some(&settings), control, &queue);
    let rotation = rotations.of(&directory);
    wait_until("the housekeeper answers", || rotation.has_keeper());
    let config = FileSinkConfig {
        rotate_bytes: ROTATE_BYTES,
        rotations: Some(rotations),
        ..FileSinkConfig::new(&directory, PREFIX, "00000000deadbeef")
    };
    let mut sink = FileSink::open(config).unwrap();
    let now = Now { unix_nano: 1_795_237_200_000_000_000, monotonic: Duration::from_secs(1) };
    let lines = [vec![b'x'; BATCH_BYTES - 1], vec![b'\n']].concat();
    let mut peak = 0;
    for _ in 0..100 * (ROTATE_BYTES / BATCH_BYTES as u64) {
        sink.write(&lines, 1, now).unwrap();
        peak = peak.max(bytes_in(&directory));
    }
    // Headers and footers may exceed it.
    assert!(peak <= QUOTA_BYTES + ROTATE_BYTES + (8 << 10), "{peak} bytes");
    drop(housekeeper);
}
