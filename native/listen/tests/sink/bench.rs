//! An operating system that fails on command, and a reader that checks every segment it reads.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use listen::sink::{FileSink, FileSinkConfig, Now, Os, RealOs, WriteError};
use segments::segment::SegmentName;
use tempfile::TempDir;

pub const BOOT: &str = "00000000deadbeef";
pub const A: &[u8] = b"{\"line\":\"a\"}\n";
pub const B: &[u8] = b"{\"line\":\"b\"}\n";
pub const AB: &[u8] = b"{\"line\":\"a\"}\n{\"line\":\"b\"}\n";

/// The behaviour of one call of `write`.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Short(usize),
    Fail(i32),
    /// Remove this directory, then write as usual.
    RemoveDirFirst,
}
pub use Fault::{Fail, RemoveDirFirst, Short};

#[derive(Default)]
pub struct Plan {
    /// One per call of `write`; `None` and the calls after the last one work as usual.
    pub writes: VecDeque<Option<Fault>>,
    pub fail_creates: VecDeque<i32>,
    pub truncate_fails: bool,
    /// One per call of `sync_data`, and of `sync_dir`; as for `writes`.
    pub syncs: VecDeque<Option<i32>>,
    pub dir_syncs: VecDeque<Option<i32>>,
    /// The calls that reached the device, in order: `write`, `sync`, `sync dir`.
    pub calls: Vec<&'static str>,
    pub never_writable: bool,
    pub dir: PathBuf,
    pub writeback: Vec<(&'static str, Range<u64>)>,
}

#[derive(Clone, Default)]
pub struct FaultyOs(pub Arc<Mutex<Plan>>);

impl FaultyOs {
    pub fn plan(&self, writes: &[Option<Fault>]) {
        self.0.lock().unwrap().writes.extend(writes);
    }

    pub fn set(&self, change: impl FnOnce(&mut Plan)) {
        change(&mut self.0.lock().unwrap());
    }
}

impl Os for FaultyOs {
    fn create_segment(&mut self, path: &Path) -> io::Result<File> {
        match self.0.lock().unwrap().fail_creates.pop_front() {
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => RealOs.create_segment(path),
        }
    }
    fn write(&mut self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        let mut plan = self.0.lock().unwrap();
        plan.calls.push("write");
        match plan.writes.pop_front().flatten() {
            None => RealOs.write(file, bytes),
            Some(Short(n)) => RealOs.write(file, &bytes[..n.clamp(1, bytes.len())]),
            Some(Fail(code)) => Err(io::Error::from_raw_os_error(code)),
            Some(RemoveDirFirst) => {
                fs::remove_dir_all(&plan.dir)?;
                RealOs.write(file, bytes)
            }
        }
    }
    fn wait_writable(&mut self, file: &File, timeout: Duration) -> io::Result<bool> {
        if self.0.lock().unwrap().never_writable { Ok(false) } else { RealOs.wait_writable(file, timeout) }
    }
    fn truncate(&mut self, file: &File, len: u64) -> io::Result<()> {
        match self.0.lock().unwrap().truncate_fails {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => RealOs.truncate(file, len),
        }
    }
    fn start_writeback(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        self.0.lock().unwrap().writeback.push(("start", range.clone()));
        RealOs.start_writeback(file, range)
    }
    fn finish_writeback(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        self.0.lock().unwrap().writeback.push(("finish", range.clone()));
        RealOs.finish_writeback(file, range)
    }
    fn sync_data(&mut self, file: &File) -> io::Result<()> {
        let mut plan = self.0.lock().unwrap();
        plan.calls.push("sync");
        plan.syncs.pop_front().flatten().map_or_else(|| RealOs.sync_data(file), |code| Err(fault(code)))
    }
    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        let mut plan = self.0.lock().unwrap();
        plan.calls.push("sync dir");
        plan.dir_syncs.pop_front().flatten().map_or_else(|| RealOs.sync_dir(dir), |code| Err(fault(code)))
    }
}

fn fault(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

pub struct Bench {
    _root: TempDir,
    pub dir: PathBuf,
    pub os: FaultyOs,
    pub sink: FileSink<FaultyOs>,
}

impl Bench {
    /// The segment that was begun last.
    pub fn newest(&self) -> PathBuf {
        self.dir.join(names(&self.dir).pop().unwrap().to_string())
    }
}

pub fn bench(change: impl FnOnce(&mut FileSinkConfig)) -> Bench {
    let root = TempDir::new().unwrap();
    let dir = root.path().join("logs/requests");
    let mut config = FileSinkConfig::new(&dir, "requests", BOOT);
    change(&mut config);
    let os = FaultyOs::default();
    os.set(|plan| plan.dir = dir.clone());
    let sink = FileSink::open_with(config, os.clone()).unwrap();
    Bench { _root: root, dir, os, sink }
}

/// 2026-11-21T05:00:00.123456789Z and `seconds` later, on both clocks.
pub fn at(seconds: u64) -> Now {
    Now { unix_nano: 1_795_237_200_123_456_789 + seconds * 1_000_000_000, monotonic: Duration::from_secs(seconds) }
}

/// The segments of `dir` in order.
fn names(dir: &Path) -> Vec<SegmentName> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter_map(|name| SegmentName::parse(&name)).collect();
    names.sort_by_key(|name| name.number);
    names
}

/// The segments of `dir` in order: record lines, and the footer if there is one.
pub fn segments(dir: &Path) -> Vec<(Vec<u8>, Option<serde_json::Value>)> {
    names(dir).iter().map(|name| read_segment(&dir.join(name.to_string()), name.number)).collect()
}

fn read_segment(path: &Path, number: u64) -> (Vec<u8>, Option<serde_json::Value>) {
    let content = fs::read(path).unwrap();
    let (mut records, mut footer) = (Vec::new(), None);
    let mut lines = content.split_inclusive(|&b| b == b'\n').filter(|line| line.ends_with(b"\n"));
    let header: serde_json::Value = serde_json::from_slice(lines.next().unwrap()).unwrap();
    assert_eq!((&header["event_name"], &header["segment"]), (&"segment.header".into(), &number.into()));
    for line in lines {
        assert_eq!(footer, None, "a line follows the footer of {path:?}");
        let value: serde_json::Value = serde_json::from_slice(line).unwrap();
        if value["event_name"] == "segment.footer" { footer = Some(value) } else { records.extend_from_slice(line) }
    }
    if let Some(footer) = &footer {
        assert_eq!(footer["bytes"], records.len());
        assert_eq!(footer["records"], records.iter().filter(|&&b| b == b'\n').count());
    }
    (records, footer)
}

/// The record lines of each segment, and whether it has a footer.
pub fn contents(dir: &Path) -> Vec<(Vec<u8>, bool)> {
    segments(dir).into_iter().map(|(records, footer)| (records, footer.is_some())).collect()
}

/// The given-up segment that each header names.
pub fn abandoned(dir: &Path) -> Vec<Option<u64>> {
    let header =
        |name: &SegmentName| fs::read_to_string(dir.join(name.to_string())).unwrap().lines().next().unwrap().to_owned();
    let of = |line: String| serde_json::from_str::<serde_json::Value>(&line).unwrap()["abandoned"].as_u64();
    names(dir).iter().map(header).map(of).collect()
}

/// The parts of an error that the caller sees.
pub fn code(error: &WriteError) -> (usize, u64, Option<i32>) {
    (error.written, error.records, error.source.raw_os_error())
}
