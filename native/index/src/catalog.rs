//! The segments of directories, and their indexes: read from the cache, or made, the newest first.

use crate::cache::{self, Cache};
use crate::entry::{Entry, Snapshot, is_current};
use crate::refresh::{Found, Place, Round, Work, lock};
use segments::segment::SegmentName;
use segments::verify::listing;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Threads of a refresh and of a query.
pub const THREADS: usize = 2;
/// What a refresh has reached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub segments: usize,
    pub indexed_segments: usize,
    pub bytes: u64,
    pub indexed_bytes: u64,
    pub rows: u64,
    pub live_rows: u64,
    pub done: bool,
    pub problems: Vec<String>,
}

/// The index of directories of segments.
pub struct Catalog {
    places: Vec<Place>,
    prefixes: Vec<String>,
    snapshot: RwLock<Snapshot>,
    work: Mutex<Work>,
    no_cache: Vec<String>,
}

impl Catalog {
    /// Begins, without an index; `cache_root` is where the cache directories are, by default [`cache::default_root`].
    ///
    /// # Errors
    /// A directory cannot be read; the message names it.
    pub fn new(directories: &[PathBuf], prefixes: Vec<String>, cache_root: Option<&Path>) -> io::Result<Self> {
        let root = cache_root.map(Path::to_owned).or_else(cache::default_root);
        let (mut places, mut no_cache, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for directory in directories {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
            if !seen.insert(cache::real(directory).map_err(named)?) {
                continue;
            }
            let cache = match &root {
                None => Err("neither XDG_CACHE_HOME nor HOME names a directory".to_owned()),
                Some(root) => Cache::open(root, directory).map_err(|error| format!("{}: {error}", root.display())),
            };
            let cache = cache.map_err(|why| no_cache.push(format!("{why}; the index is kept in memory"))).ok();
            places.push(Place { path: directory.as_path().into(), cache });
        }
        let (snapshot, work) = (RwLock::default(), Mutex::default());
        Ok(Self { places, prefixes, snapshot, work, no_cache })
    }

    /// Returns the segments as the last refresh found them.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the cache directories in use.
    pub fn caches(&self) -> impl Iterator<Item = &Path> {
        self.places.iter().filter_map(|place| place.cache.as_ref().map(Cache::directory))
    }

    /// Looks for segments, and reads or makes indexes for about `budget`.
    pub fn refresh(&self, budget: Duration) -> Progress {
        let deadline = Instant::now() + budget;
        let mut work = lock(&self.work);
        work.problems.clear();
        let known: HashMap<SegmentName, Arc<Entry>> =
            self.snapshot().iter().map(|entry| (entry.name.clone(), Arc::clone(entry))).collect();
        let (mut kept, mut todo) = (BTreeMap::new(), Vec::new());
        for (listed, place) in self.list(&mut work.problems) {
            match known.get(&listed.name).filter(|entry| is_current(entry)) {
                Some(entry) => drop(kept.insert(listed.name, Arc::clone(entry))),
                None => todo.push((listed, place)),
            }
        }
        // What is known of an end is shown until the whole is.
        let ends = todo.iter().filter_map(|(listed, _)| known.get(&listed.name)).filter(|entry| entry.is_end());
        let ends: Vec<_> = ends.map(|entry| (entry.name.clone(), Arc::clone(entry))).collect();
        let is_first = kept.is_empty() && ends.is_empty();
        let damaged = known.iter().filter(|(_, entry)| entry.is_damaged.load(Ordering::Relaxed));
        let damaged = damaged.map(|(name, _)| name.clone()).collect();
        todo.sort_by_key(|(listed, _)| Reverse(listed.name.begun_unix_milli));
        let there: HashSet<&SegmentName> = kept.keys().chain(todo.iter().map(|(listed, _)| &listed.name)).collect();
        work.builds.retain(|name, _| there.contains(name));
        let memory = kept.values().filter_map(|entry| Some(entry.image.as_ref()?.memory_bytes())).sum();
        let round = Round {
            deadline,
            memory: AtomicU64::new(memory),
            next: AtomicUsize::new(0),
            todo: &todo,
            damaged,
            places: &self.places,
            publish: &|found| self.publish(found),
            work: Mutex::new(std::mem::take(&mut *work)),
            found: Mutex::new((kept.into_iter().chain(ends).collect(), Instant::now())),
        };
        if is_first {
            round.show_ends();
        }
        std::thread::scope(|scope| {
            for _ in 1..THREADS.min(todo.len()) {
                scope.spawn(|| round.run());
            }
            round.run();
        });
        *work = round.work.into_inner().unwrap_or_else(PoisonError::into_inner);
        let found = round.found.into_inner().unwrap_or_else(PoisonError::into_inner).0;
        self.publish(&found);
        self.progress(&work.problems)
    }

    fn publish(&self, found: &Found) {
        let all = Arc::new(found.values().cloned().collect());
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// The segments of all places, each once; removes the index files of those that are gone.
    fn list(&self, problems: &mut BTreeMap<String, String>) -> Vec<(listing::Listed, usize)> {
        let mut found = BTreeMap::<SegmentName, (listing::Listed, usize)>::new();
        for (at, place) in self.places.iter().enumerate() {
            let mut all = match listing::list(&place.path, &[]) {
                Ok(all) => all,
                Err(error) => {
                    problems.insert(place.path.display().to_string(), error.to_string());
                    continue;
                }
            };
            if let Some(cache) = &place.cache {
                let names: HashSet<&SegmentName> = all.iter().map(|listed| &listed.name).collect();
                cache.clean(|name| names.contains(name));
            }
            all.retain(|listed| self.prefixes.is_empty() || self.prefixes.contains(&listed.name.prefix));
            for listed in all {
                if let Some((other, _)) = found.get(&listed.name) {
                    let why = format!("is in {} too; that one is read", other.directory.display());
                    problems.insert(listed.directory.join(listed.name.to_string()).display().to_string(), why);
                } else {
                    found.insert(listed.name.clone(), (listed, at));
                }
            }
        }
        found.into_values().collect()
    }

    fn progress(&self, problems: &BTreeMap<String, String>) -> Progress {
        let snapshot = self.snapshot();
        let mut progress = Progress { done: true, ..Progress::default() };
        for entry in snapshot.iter() {
            progress.segments += 1;
            progress.bytes += entry.disk_bytes;
            let Some(image) = entry.whole() else {
                progress.done = false;
                continue;
            };
            progress.indexed_segments += 1;
            progress.indexed_bytes += entry.disk_bytes;
            progress.rows += image.facts.rows;
            progress.live_rows += if entry.is_live { image.facts.rows } else { 0 };
            if image.facts.unreadable > 0 {
                let lines = image.facts.unreadable;
                progress.problems.push(format!("{}: {lines} lines are no records", entry.text));
            }
        }
        progress.problems.extend(problems.iter().map(|(place, why)| format!("{place}: {why}")));
        progress.problems.extend(self.no_cache.iter().cloned());
        progress
    }
}
