//! A system that fails or dies at any of its calls, and whose device shows what it really has.

use crate::support::segments;
use listen::sink::{Os, RealOs};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

/// The event instead of, or beside, the call with this number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    Fail(i32),
    /// Half of the bytes go through, then the next call fails.
    HalfThenFail(i32),
    DieBefore,
    DieAfter,
}
pub use Fault::{DieAfter, DieBefore, Fail, HalfThenFail};

#[derive(Clone, Copy, Default)]
pub struct OnDevice {
    pub synced: u64,
    /// A sync has failed: the pages that were dirty then never arrive, even if a later sync succeeds.
    pub poisoned: bool,
    pub is_named: bool,
}

#[derive(Default)]
pub struct Machine {
    pub files: HashMap<u64, OnDevice>,
    pub faults: HashMap<usize, Fault>,
    pub calls: Vec<&'static str>,
    pub fails_next: Option<i32>,
}

/// A system whose device shows what it really has.
#[derive(Clone, Default)]
pub struct Device(Arc<Mutex<Machine>>);

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
pub fn parsed(bytes: &[u8]) -> Vec<Value> {
    let whole = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    whole.map(|line| serde_json::from_slice(line).unwrap()).collect()
}
