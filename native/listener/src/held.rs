//! The queues that a directory had at one time; their counts stay readable after the files are gone.

use queue::inspect::QueueSnapshot;
use queue::layout::Reason;
use queue::lock::Holder;
use queue::queue_file::{self, QueueFile, check_directory};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The queues of one lane. Open them before a listener of this process, which may take the locks of their files.
pub struct Held {
    pub lane: &'static str,
    /// Whether the configuration has a listener for them.
    pub is_served: bool,
    files: Vec<Arc<QueueFile>>,
    /// The names of files that are no queues of this version, each with what is wrong with it.
    pub unreadable: Vec<(String, String)>,
}

impl Held {
    /// Maps every queue of an existing queue directory.
    ///
    /// # Errors
    /// The directory is missing, or belongs to another user.
    pub fn open(lane: &'static str, directory: &Path, is_served: bool) -> io::Result<Self> {
        check_directory(directory)?;
        let mut held = Self { lane, is_served, files: Vec::new(), unreadable: Vec::new() };
        for path in queue_file::list(directory)? {
            match QueueFile::open(&path) {
                Ok(file) => held.files.push(file),
                Err(error) => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    held.unreadable.push((name, error.to_string()));
                }
            }
        }
        Ok(held)
    }

    /// Whether the directory has files.
    pub fn has_files(&self) -> bool {
        !self.files.is_empty() || !self.unreadable.is_empty()
    }

    /// The queues as they are now.
    pub fn queues(&self) -> Vec<QueueSnapshot> {
        self.files.iter().map(|file| QueueSnapshot::of(file)).collect()
    }

    /// The number of queues of dead processes, and of the records that wait in them.
    pub fn waiting(&self) -> (usize, u64) {
        let there = self.files.iter().filter(|file| file.path.exists()).map(|file| QueueSnapshot::of(file));
        let dead = there.filter(|queue| queue.producer == Holder::Nobody);
        dead.fold((0, 0), |(queues, records), queue| (queues + 1, records + queue.counts.in_queue))
    }

    /// The result for each queue, compared with its state in `before`.
    pub fn report(&self, before: &[QueueSnapshot]) -> Vec<Value> {
        before.iter().zip(self.queues()).map(|(then, now)| process(self.lane, then, &now)).collect()
    }
}

fn process(lane: &str, then: &QueueSnapshot, now: &QueueSnapshot) -> Value {
    let count = |reason: Reason| now.counts.dropped[reason as usize].iter().sum::<u64>();
    let is_dead = now.producer == Holder::Nobody;
    json!({
        "lane": lane,
        "boot_id": format!("{:016x}", now.counts.boot_id),
        "pid": now.counts.pid,
        "state": if now.producer == Holder::AnotherProcess { "alive" } else { "ended" },
        "accepted": now.counts.accepted,
        "recovered": now.counts.written - then.counts.written,
        "torn": count(Reason::Torn),
        "corrupt": count(Reason::Corrupt),
        "left": if is_dead { now.counts.in_queue } else { 0 },
    })
}
