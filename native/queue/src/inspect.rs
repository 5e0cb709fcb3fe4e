//! What any process may see of a queue directory: the counts of each queue, how full it is, how long its records wait.
//!
//! Nothing here takes part in the protocol: it reads mapped words while producers and the listener go on. Each number
//! is right for some moment of the call; two numbers may be of different moments.

use crate::lock::Holder;
use crate::queue_file::{self, QueueCounts, QueueFile};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One queue at one moment.
#[derive(Clone, Debug)]
pub struct QueueSnapshot {
    pub counts: QueueCounts,
    pub created_unix_nano: u64,
    pub capacity_bytes: u64,
    /// Share of the room for event schemas that is taken.
    pub schemas_fill_ratio: f64,
    /// Requests that have a slot of the flight recorder.
    pub in_flight: u64,
    /// When the oldest waiting record was made; None: no record waits, or the oldest is being released right now.
    pub oldest_unix_nano: Option<u64>,
    /// The process that puts records into the queue; none once the owner has closed the queue or died.
    pub producer: Holder,
    /// Whether the producer serves nothing and only listens.
    pub only_listens: bool,
    /// The producer's name; empty if it has none.
    pub producer_name: String,
}

impl QueueSnapshot {
    /// Reads a mapped queue.
    #[must_use]
    pub fn of(file: &QueueFile) -> Self {
        let ring = file.ring();
        Self {
            oldest_unix_nano: ring.oldest_time(),
            capacity_bytes: file.header().data_bytes,
            schemas_fill_ratio: file.schemas_fill_ratio(),
            created_unix_nano: file.header().created_unix_nano,
            // A header word, since the slots themselves take up to 128 MiB, and reading one word of each would touch
            // all of them.
            in_flight: file.header().in_flight.load(Ordering::Relaxed).min(u64::from(file.header().slot_count)),
            counts: file.counts(),
            only_listens: file.header().only_listens.load(Ordering::Relaxed) != 0,
            producer_name: file.header().producer_name(),
            producer: if ring.is_closed() { Holder::Nobody } else { owner(file) },
        }
    }
}

/// Finds the owner of a queue. A listener locks the queue of a dead process, so this process's own lock alone proves
/// nothing.
fn owner(file: &QueueFile) -> Holder {
    if queue_file::owned_by_this_process(&file.path).is_some() {
        return Holder::ThisProcess;
    }
    if Holder::of(&file.path) == Holder::AnotherProcess { Holder::AnotherProcess } else { Holder::Nobody }
}

/// Reads every queue of a directory, the oldest name first. A file that is gone by now, or is not a queue of this
/// version, is left out.
#[must_use]
pub fn queues(directory: &Path) -> Vec<QueueSnapshot> {
    files(directory).map(|file| QueueSnapshot::of(&file)).collect()
}

/// Returns the files that look like queues but are of another version, damaged or not readable, with the reason.
#[must_use]
pub fn unreadable(directory: &Path) -> Vec<(PathBuf, io::Error)> {
    let errors = opened(directory).filter_map(|(path, opened)| Some((path, opened.err()?)));
    errors.filter(|(_, error)| error.kind() != io::ErrorKind::NotFound).collect()
}

/// Maps each queue of a directory.
pub fn files(directory: &Path) -> impl Iterator<Item = Arc<QueueFile>> {
    opened(directory).filter_map(|(_, opened)| opened.ok())
}

fn opened(directory: &Path) -> impl Iterator<Item = (PathBuf, io::Result<Arc<QueueFile>>)> {
    let open = |path: &Path| queue_file::owned_by_this_process(path).map_or_else(|| QueueFile::open(path), Ok);
    let paths = queue_file::list(directory).unwrap_or_default();
    paths.into_iter().map(move |path| {
        let opened = open(&path);
        (path, opened)
    })
}

/// Finds the process that leads a directory now, whatever was last published.
#[must_use]
pub fn leader(directory: &Path) -> Holder {
    Holder::of(&directory.join("leader.lock"))
}
