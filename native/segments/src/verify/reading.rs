//! Reads the segments of directories while other processes write, compress and remove them.
//!
//! A removal is reported before it happens, in a queue first and later in a segment. So that none is missed, segments
//! are listed, then the queues are read, then segments are listed again and read. A report that has left its queue by
//! then is in one of these. Segments that vanished in between are searched again; sealed ones are read once.

use super::listing::{self, Listed};
use super::scan::{self, Found};
use super::{Request, named, path_of};
use crate::chain::Value as ChainValue;
use crate::line;
use crate::segment::SegmentName;
use lines::encode::{Encoder, LineHead};
use lines::plan::LinePlan;
use queue::event::{EventSchema, SEGMENTS_REMOVED};
use queue::inspect::{self, QueueSnapshot};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often everything is read again because a segment vanished.
const ATTEMPTS: u32 = 10;
const MOST_THREADS: usize = 16;

/// Whether it is a database, its place, and its name: neighbours in this order follow one another.
type Name = (bool, PathBuf, SegmentName);

/// Everything that was read.
#[derive(Default)]
pub struct Reading {
    pub queues: Vec<QueueSnapshot>,
    pub segments: BTreeMap<Name, (Listed, Found)>,
    /// Reports of removals that waited in queues.
    pub reported: Vec<Value>,
    /// Files of queues that cannot be read: their records are unknown.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

/// Reads everything.
///
/// # Errors
/// A directory or a segment cannot be read.
pub fn read(request: &Request) -> io::Result<Reading> {
    let mut reading = Reading::default();
    for _ in 0..ATTEMPTS {
        if reading.read_new(request)? == 0 {
            break;
        }
    }
    reading.unreadable = request.queue_directories.iter().flat_map(|dir| inspect::unreadable(dir)).collect();
    // Queues that were opened meanwhile have no record that must be in the segments.
    let known: Vec<u64> = reading.queues.iter().map(|queue| queue.counts.boot_id).collect();
    let later = request.queue_directories.iter().flat_map(|dir| inspect::queues(dir));
    let later = later.filter(|queue| !known.contains(&queue.counts.boot_id));
    reading.queues.extend(later.map(|mut queue| {
        queue.counts.in_queue = queue.counts.accepted;
        queue
    }));
    Ok(reading)
}

impl Reading {
    /// Reads the new segments; returns how many have vanished before they were read.
    fn read_new(&mut self, request: &Request) -> io::Result<usize> {
        self.segments.retain(|_, (_, found)| found.sealed && !found.live);
        self.queues = request.queue_directories.iter().flat_map(|dir| inspect::queues(dir)).collect();
        let before = list(request)?;
        let reports = request.queue_directories.iter().flat_map(|dir| reports_of_removals(dir));
        self.reported.extend(reports.filter_map(|line| line::parse(&line).ok()));
        let mut now = list(request)?;
        let gone = before.keys().filter(|name| !now.contains_key(*name) && !self.segments.contains_key(*name)).count();
        now.retain(|name, _| !self.segments.contains_key(name));
        let listed: Vec<Listed> = now.into_values().collect();
        let found = read_all(&listed, request.chain_key)?;
        let vanished = found.iter().filter(|found| found.is_none()).count();
        for (listed, found) in listed.into_iter().zip(found) {
            self.segments.extend(found.map(|found| (name_of(&listed), (listed, found))));
        }
        Ok(gone + vanished)
    }
}

fn list(request: &Request) -> io::Result<BTreeMap<Name, Listed>> {
    let mut all = BTreeMap::new();
    for directory in &request.directories {
        let listed = listing::list(directory, &request.prefixes).map_err(|error| named(directory, &error))?;
        all.extend(listed.into_iter().map(|listed| (name_of(&listed), listed)));
    }
    let databases = request.databases.iter().map(Listed::of_database);
    all.extend(databases.map(|listed| (name_of(&listed), listed)));
    Ok(all)
}

fn name_of(listed: &Listed) -> Name {
    let place = listed.database.as_ref().map_or(&listed.directory, |database| &database.path);
    (listed.database.is_some(), place.clone(), listed.name.clone())
}

/// Scans segments on all processors; None for those that are gone.
fn read_all(listed: &[Listed], key: Option<ChainValue>) -> io::Result<Vec<Option<Found>>> {
    let found: Vec<Mutex<Option<io::Result<Option<Found>>>>> = listed.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < listed.len()) {
            let one = scan::scan(&listed[at], key).map_err(|error| named(Path::new(&path_of(&listed[at])), &error));
            *found[at].lock().expect("no thread panics holding it") = Some(one);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS).min(listed.len());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let taken = |one: Mutex<Option<_>>| one.into_inner().ok().flatten().unwrap_or(Ok(None));
    found.into_iter().map(taken).collect()
}

/// The reports of removed segments that wait in the queues of a directory, in their final form as lines.
fn reports_of_removals(directory: &Path) -> Vec<Vec<u8>> {
    let plan = LinePlan::from(EventSchema::segments_removed());
    let mut encoder = Encoder::new();
    let mut lines = Vec::new();
    for file in inspect::files(directory) {
        let boot_id = format!("{:016x}", file.header().boot_id);
        let head = LineHead { time_unix_nano: 0, severity: 0, boot_id: &boot_id, pid: file.header().pid, seq: None };
        for payload in file.ring().copy_waiting(SEGMENTS_REMOVED, &file.header().releasing) {
            let mut line = Vec::new();
            if encoder.line(&mut line, &head, &plan, &payload).is_ok() {
                lines.push(line);
            }
        }
    }
    lines
}
