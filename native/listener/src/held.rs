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

    /// The number of queues that are not done, and of the records that wait in them. Of a dead process's, all is to be
    /// written and the file to go; of another's, what waited in it in `before`.
    pub fn waiting(&self, before: &[QueueSnapshot]) -> (usize, u64) {
        let there = self.files.iter().zip(before).filter(|(file, _)| file.path.exists());
        let left = there.map(|(file, then)| left(then, &QueueSnapshot::of(file)));
        let undone = left.filter(|(is_dead, records)| *is_dead || *records > 0);
        undone.fold((0, 0), |(queues, all), (_, records)| (queues + 1, all + records))
    }

    /// The result for each queue, compared with its state in `before`.
    pub fn report(&self, before: &[QueueSnapshot]) -> Vec<Value> {
        before.iter().zip(self.queues()).map(|(then, now)| process(self.lane, then, &now)).collect()
    }
}

/// Whether the process is dead, and the number of records that are left to write, as [`Held::waiting`] says.
fn left(then: &QueueSnapshot, now: &QueueSnapshot) -> (bool, u64) {
    let is_dead = now.producer == Holder::Nobody;
    let of_before = then.counts.in_queue.saturating_sub(now.counts.written - then.counts.written);
    (is_dead, if is_dead { now.counts.in_queue } else { of_before.min(now.counts.in_queue) })
}

fn process(lane: &str, then: &QueueSnapshot, now: &QueueSnapshot) -> Value {
    let count = |reason: Reason| now.counts.dropped[reason as usize].iter().sum::<u64>();
    json!({
        "lane": lane,
        "boot_id": format!("{:016x}", now.counts.boot_id),
        "pid": now.counts.pid,
        "state": if now.producer == Holder::AnotherProcess { "alive" } else { "ended" },
        "accepted": now.counts.accepted,
        "recovered": now.counts.written - then.counts.written,
        "torn": count(Reason::Torn),
        "corrupt": count(Reason::Corrupt),
        "left": left(then, now).1,
    })
}
