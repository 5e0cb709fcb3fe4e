//! The segments of directories that are gone: nobody listens there any more, and limits still hold.
//!
//! Each has the retention of the configuration for itself, and all together may have a number of bytes: beyond that the
//! directory that was written longest ago loses its segments first. Removals are reported on stderr and counted.

use super::pattern::{Pattern, subdirectories};
use super::served::become_owner;
use crate::listeners::say;
use listen::housekeeper::{HousekeepingSettings, Rounds};
use listen::settings::Settings;
use queue::published::housekeeping::{HousekeepingWords, Reason};
use segments::retention::{Limits, Removed};
use segments::segment::SegmentName;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{read_dir, remove_dir, remove_dir_all, remove_file, symlink_metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

const INTERVAL: Duration = Duration::from_secs(10);
/// How old an empty directory of segments must be to be removed.
const EMPTY_KEPT: Duration = Duration::from_secs(3600);
/// How old an empty directory for queues must be to be removed: a pod may have mounted it, and begin late.
const UNUSED_KEPT: Duration = Duration::from_secs(24 * 3600);
/// A quota that no segment is within.
const NOTHING: u64 = 1;

/// What looks after such segments, on a thread for each round.
pub struct EndedSegments {
    round: Arc<Round>,
    due: Instant,
    running: Option<JoinHandle<()>>,
}

struct Round {
    settings: Arc<Settings>,
    pattern: Pattern,
    most_bytes: Option<u64>,
    words: &'static HousekeepingWords,
}

/// A directory of segments.
struct Left {
    path: PathBuf,
    owner: (u32, u32),
    written: SystemTime,
    bytes: u64,
}

impl EndedSegments {
    /// Begins with nothing removed.
    pub fn new(settings: Arc<Settings>, pattern: Pattern, most_bytes: Option<u64>) -> Self {
        let words = Box::leak(Box::default());
        Self { round: Arc::new(Round { settings, pattern, most_bytes, words }), due: Instant::now(), running: None }
    }

    /// What was removed.
    pub fn counts(&self) -> &'static HousekeepingWords {
        self.round.words
    }

    /// Starts a round, if one is due. `present` names the queue directories that there are.
    pub fn look(&mut self, present: BTreeSet<String>) {
        if Instant::now() < self.due || self.running.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        self.due = Instant::now() + INTERVAL;
        let round = Arc::clone(&self.round);
        self.running = Builder::new().name("inference-ended".to_owned()).spawn(move || round.run(&present)).ok();
    }
}

impl Round {
    fn run(&self, present: &BTreeSet<String>) {
        let mut left = self.left(present);
        left.sort_by_key(|left| left.written);
        let mut total: u64 = left.iter().map(|left| left.bytes).sum();
        let limits = self.settings.limits_of_segments();
        for left in left {
            let is_over = self.most_bytes.is_some_and(|most| total > most);
            let quota_bytes = if is_over { NOTHING } else { limits.quota_bytes };
            total -= if is_over { left.bytes } else { 0 };
            self.tend(left, Limits { quota_bytes, ..limits });
        }
        for unused in self.pattern.unused() {
            if is_older(&unused, UNUSED_KEPT) {
                // One that is not empty stays.
                let _ = remove_dir(unused);
            }
        }
    }

    /// The directories of segments that belong to no queue directory.
    fn left(&self, present: &BTreeSet<String>) -> Vec<Left> {
        let directory = self.settings.directory();
        let mut names = vec![String::new()];
        for _ in 0..self.pattern.depth() {
            let inner = |name: &String| {
                let below = subdirectories(&directory.join(name));
                let prefix = if name.is_empty() { String::new() } else { format!("{name}/") };
                below.into_iter().map(move |below| format!("{prefix}{below}")).collect::<Vec<_>>()
            };
            names = names.iter().flat_map(inner).collect();
        }
        let ended = names.into_iter().filter(|name| !present.contains(name));
        ended.filter_map(|name| Left::of(directory.join(name))).collect()
    }

    /// Keeps the limits in a directory, as its owner; removes it once it has been empty for long.
    fn tend(&self, left: Left, limits: Limits) {
        let (words, waits_for) = (self.words, self.settings.values.retention_waits_for.clone());
        let (path, is_old) = (left.path.clone(), is_older(&left.path, EMPTY_KEPT));
        let as_owner = move || {
            if become_owner(left.owner).is_err() {
                return false;
            }
            keep(&left.path, limits, &waits_for, words);
            let is_empty = prefixes(&left.path).is_empty();
            if is_empty && is_old {
                empty(&left.path);
            }
            is_empty && is_old
        };
        let thread = Builder::new().name("inference-ended".to_owned()).spawn(as_owner);
        if thread.is_ok_and(|thread| thread.join().unwrap_or(false)) {
            let _ = remove_dir(path);
        }
    }
}

impl Left {
    fn of(path: PathBuf) -> Option<Self> {
        let facts = symlink_metadata(&path).ok()?;
        let bytes = segment_files(&path).map(|(path, _)| symlink_metadata(path).map_or(0, |facts| facts.len())).sum();
        Some(Self { owner: (facts.uid(), facts.gid()), written: facts.modified().ok()?, bytes, path })
    }
}

fn keep(path: &Path, limits: Limits, waits_for: &[String], words: &'static HousekeepingWords) {
    for prefix in prefixes(path) {
        let waits_for = (waits_for.to_vec(), path.to_owned());
        let settings = HousekeepingSettings::new(vec![path.to_owned()], &prefix, limits, None, waits_for);
        let Some(settings) = settings else { return };
        let mut report = |reason: Reason, removed: &Removed| {
            let (segments, bytes, reason) = (removed.segments, removed.bytes, reason.name());
            let place = path.display();
            say(&format!("{segments} segments of {bytes} bytes removed from {place}, which is not served: {reason}"));
            true
        };
        Rounds::once(settings, words, &mut report);
    }
}

/// The files of segments in a directory, with the prefix of each. Those of the audit lane are never removed.
fn segment_files(path: &Path) -> impl Iterator<Item = (PathBuf, String)> {
    let files = read_dir(path).into_iter().flatten().flatten();
    let named = files.filter_map(|file| {
        let (name, _) = SegmentName::parse_file(file.file_name().to_str()?)?;
        Some((file.path(), name.prefix))
    });
    named.filter(|(_, prefix)| !prefix.ends_with("-audit"))
}

fn prefixes(path: &Path) -> BTreeSet<String> {
    segment_files(path).map(|(_, prefix)| prefix).collect()
}

/// Removes locks and the offsets of shippers. What audit segments are in stays, and so does a segment: one that is there
/// now was begun by a pod of this name that has come back.
fn empty(path: &Path) {
    let entries = read_dir(path).into_iter().flatten().flatten();
    let is_segment = |name: &str| SegmentName::parse_file(name).is_some();
    let may_go = |name: &OsStr| name != "audit" && !name.to_str().is_some_and(is_segment);
    for entry in entries.filter(|entry| may_go(&entry.file_name())) {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let _ = if is_directory { remove_dir_all(entry.path()) } else { remove_file(entry.path()) };
    }
}

fn is_older(path: &Path, than: Duration) -> bool {
    let modified = symlink_metadata(path).and_then(|facts| facts.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > than))
}
