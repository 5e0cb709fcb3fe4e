//! What anyone may see of a queue directory: the counts of each queue, how full it is, how long its records wait.
//!
//! Nothing here takes part in the protocol: it reads mapped words while producers and listener go on. Each number is
//! right for some moment of the call; two numbers may be of different moments.

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
    /// When the oldest record that waits was made; None: none waits, or it is just being taken away.
    pub oldest_unix_nano: Option<u64>,
    /// Who puts records into it; nobody once its owner has closed it or died.
    pub producer: Holder,
    /// Whether that one serves nothing and only listens.
    pub only_listens: bool,
    /// Its name; empty if it has none.
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
            // The slots themselves are up to 128 MiB, of which a look would read a word each.
            in_flight: file.header().in_flight.load(Ordering::Relaxed).min(u64::from(file.header().slot_count)),
            counts: file.counts(),
            only_listens: file.header().only_listens.load(Ordering::Relaxed) != 0,
            producer_name: file.header().producer_name(),
            producer: if ring.is_closed() { Holder::Nobody } else { owner(file) },
        }
    }
}

/// Who owns a queue. A listener locks what a dead process has left, so this process's own lock alone says nothing.
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

/// Returns the files that should be queues and are none of this version, or may not be read, and why.
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

/// Who leads a directory now, whatever it last published.
#[must_use]
pub fn leader(directory: &Path) -> Holder {
    Holder::of(&directory.join("leader.lock"))
}
