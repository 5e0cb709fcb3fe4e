//! The segments of directories, and their indexes: read from the cache, or made, the newest first.

use crate::builder::Builder;
use crate::cache::{self, Cache};
use crate::image::{Facts, Image};
use crate::source::{self, Identity, LineStream, Lines, Source};
use segments::segment::SegmentName;
use segments::segment_lock;
use segments::verify::listing;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Threads of a refresh and of a query.
pub const THREADS: usize = 2;
/// Most bytes of indexes in memory, those of live segments among them.
const MOST_MEMORY: u64 = 96 << 20;
/// Most bytes of the index of one segment, which are in memory until it is written.
const MOST_OF_ONE: u64 = 48 << 20;
const PUBLISH_EVERY: Duration = Duration::from_millis(50);
const NANOS_PER_MILLI: u64 = 1_000_000;

/// A segment, and its index if there is one.
pub struct Entry {
    pub name: SegmentName,
    /// The name as text, as it stands in keys.
    pub text: Arc<str>,
    pub directory: Arc<Path>,
    pub disk_bytes: u64,
    /// The file as it was when the index was made or recognised.
    identity: Identity,
    pub image: Option<Image>,
    is_live: bool,
    /// A query could not use it: it is made anew.
    pub is_damaged: AtomicBool,
}

/// Why lines of a segment cannot be had.
pub enum NoLines {
    /// The segment is gone or another one.
    Gone,
    System(io::Error),
}

impl Entry {
    /// Opens the segment for reading lines.
    ///
    /// # Errors
    /// It is gone, or is not what was indexed.
    pub fn lines(&self) -> Result<Lines, NoLines> {
        let source = source::open(&self.directory, &self.name).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NoLines::Gone,
            _ => NoLines::System(error),
        })?;
        let content = self.image.as_ref().map_or(0, |image| image.facts.content_bytes);
        let same = if source.identity.compressed == self.identity.compressed {
            // A file that has grown has a writer, also one without the lock: a copy that goes on, for example.
            let grown = self.is_live || source.identity.bytes > self.identity.bytes;
            source.identity.inode == self.identity.inode
                && (source.identity == self.identity || grown && source.identity.bytes >= content)
        } else {
            source::is_compressed_since(&source, &self.identity, content)
        };
        if same { Ok(Lines::new(source)) } else { Err(NoLines::Gone) }
    }
}

/// All segments at one moment, in the order of their beginning.
pub type Snapshot = Arc<Vec<Arc<Entry>>>;

/// An index that is not finished, or that of a live segment.
struct Build {
    identity: Identity,
    builder: Builder,
    /// Where the next whole line begins.
    offset: u64,
    /// Of a compressed segment, which cannot be read from the middle.
    stream: Option<LineStream>,
}

/// What a refresh works with.
#[derive(Default)]
struct Work {
    builds: HashMap<SegmentName, Build>,
    problems: BTreeMap<String, String>,
}

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

struct Place {
    path: Arc<Path>,
    cache: Option<Cache>,
}

/// The index of directories of segments.
pub struct Catalog {
    places: Vec<Place>,
    prefixes: Vec<String>,
    snapshot: RwLock<Snapshot>,
    work: Mutex<Work>,
    no_cache: Vec<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let damaged = known.iter().filter(|(_, entry)| entry.is_damaged.load(Ordering::Relaxed));
        let damaged = damaged.map(|(name, _)| name.clone()).collect();
        todo.sort_by(|(one, _), (other, _)| other.name.begun_unix_milli.cmp(&one.name.begun_unix_milli));
        let there: HashSet<&SegmentName> = kept.keys().chain(todo.iter().map(|(listed, _)| &listed.name)).collect();
        work.builds.retain(|name, _| there.contains(name));
        let memory = kept.values().filter_map(|entry| Some(entry.image.as_ref()?.memory_bytes())).sum();
        let round = Round {
            deadline,
            memory: AtomicU64::new(memory),
            next: AtomicUsize::new(0),
            todo: &todo,
            damaged,
            catalog: self,
            work: Mutex::new(std::mem::take(&mut *work)),
            found: Mutex::new((kept, Instant::now())),
        };
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

    fn publish(&self, found: &BTreeMap<SegmentName, Arc<Entry>>) {
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
            let Some(image) = &entry.image else {
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

/// Whether the file is still what the entry's index was made of.
fn is_current(entry: &Entry) -> bool {
    let Some(image) = entry.image.as_ref().filter(|_| !entry.is_damaged.load(Ordering::Relaxed)) else { return false };
    source::open(&entry.directory, &entry.name).is_ok_and(|source| {
        source.identity == entry.identity && !(entry.is_live && is_sealed(&source))
            || !entry.is_live && source::is_compressed_since(&source, &entry.identity, image.facts.content_bytes)
    })
}

/// Whether no writer holds the segment.
fn is_sealed(source: &Source) -> bool {
    source.identity.compressed || segment_lock::try_lock(&source.file).unwrap_or(false)
}

/// One refresh, by several threads.
struct Round<'a> {
    deadline: Instant,
    memory: AtomicU64,
    next: AtomicUsize,
    todo: &'a [(listing::Listed, usize)],
    /// Those whose index file is not to be used.
    damaged: HashSet<SegmentName>,
    catalog: &'a Catalog,
    work: Mutex<Work>,
    found: Mutex<(BTreeMap<SegmentName, Arc<Entry>>, Instant)>,
}

impl Round<'_> {
    fn run(&self) {
        while let Some((listed, place)) = self.todo.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let place = &self.catalog.places[*place];
            let entry = match source::open(&listed.directory, &listed.name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    self.problem(&listed.name, &error);
                    self.entry(listed, place, None)
                }
                Ok(source) => self.index(listed, place, source),
            };
            let mut found = lock(&self.found);
            found.0.insert(entry.name.clone(), Arc::new(entry));
            if found.1.elapsed() > PUBLISH_EVERY {
                found.1 = Instant::now();
                self.catalog.publish(&found.0);
            }
        }
    }

    fn problem(&self, name: &SegmentName, why: &dyn std::fmt::Display) {
        lock(&self.work).problems.insert(name.to_string(), why.to_string());
    }

    fn entry(&self, listed: &listing::Listed, place: &Place, indexed: Option<(Identity, Image, bool)>) -> Entry {
        let nothing = Identity { compressed: false, inode: 0, bytes: 0, modified_unix_nano: 0 };
        let (identity, image, is_live) = match indexed {
            Some((identity, image, is_live)) => (identity, Some(image), is_live),
            None => (nothing, None, false),
        };
        Entry {
            name: listed.name.clone(),
            text: listed.name.to_string().into(),
            directory: Arc::clone(&place.path),
            disk_bytes: listed.disk_bytes,
            identity,
            image,
            is_live,
            is_damaged: AtomicBool::new(false),
        }
    }

    fn index(&self, listed: &listing::Listed, place: &Place, source: Source) -> Entry {
        let build = lock(&self.work).builds.remove(&listed.name);
        if build.is_none()
            && !self.damaged.contains(&listed.name)
            && let Some(image) = place.cache.as_ref().and_then(|cache| cache.load(&listed.name.to_string()).ok())
            && (image.facts.identity == source.identity
                || source::is_compressed_since(&source, &image.facts.identity, image.facts.content_bytes))
        {
            return self.entry(listed, place, Some((source.identity, image, false)));
        }
        if Instant::now() >= self.deadline && build.is_none() {
            return self.entry(listed, place, None);
        }
        let build = build.filter(|build| continues(build, &source)).unwrap_or_else(|| Build {
            identity: source.identity,
            builder: Builder::new(listed.name.begun_unix_milli.saturating_mul(NANOS_PER_MILLI)),
            offset: 0,
            stream: None,
        });
        self.build(listed, place, source, build)
    }

    fn build(&self, listed: &listing::Listed, place: &Place, source: Source, mut build: Build) -> Entry {
        // Before the last read: what was written before the lock was released is then read here.
        let no_writer = is_sealed(&source);
        let ended = match read(&source, &mut build, self.deadline) {
            Ok(ended) => ended,
            Err(error) => {
                self.problem(&listed.name, &error);
                build.builder.unreadable += 1;
                true
            }
        };
        build.identity = source.identity;
        let kept = build.builder.bytes + self.memory.load(Ordering::Relaxed);
        if build.builder.bytes > MOST_OF_ONE || kept > 2 * MOST_MEMORY {
            self.problem(&listed.name, &"its index would be too large: it is not indexed");
            return self.entry(listed, place, None);
        }
        let is_live = !no_writer && build.builder.footer.is_none();
        if !ended && !is_live {
            lock(&self.work).builds.insert(listed.name.clone(), build);
            return self.entry(listed, place, None);
        }
        let facts = facts(listed, &build);
        let image = Image::in_memory(&build.builder, facts);
        if is_live {
            self.memory.fetch_add(image.memory_bytes(), Ordering::Relaxed);
            lock(&self.work).builds.insert(listed.name.clone(), build);
            return self.entry(listed, place, Some((source.identity, image, true)));
        }
        self.keep(listed, place, &source, image)
    }

    /// Writes a finished index, or keeps it in memory.
    fn keep(&self, listed: &listing::Listed, place: &Place, source: &Source, image: Image) -> Entry {
        let stored = place.cache.as_ref().map(|cache| cache.store(&image));
        match stored {
            Some(Ok(stored)) => return self.entry(listed, place, Some((source.identity, stored, false))),
            Some(Err(error)) => self.problem(&listed.name, &format!("{error:?}: its index is kept in memory")),
            None => {}
        }
        let kept = self.memory.fetch_add(image.memory_bytes(), Ordering::Relaxed) + image.memory_bytes();
        if kept > MOST_MEMORY {
            self.memory.fetch_sub(image.memory_bytes(), Ordering::Relaxed);
            self.problem(&listed.name, &"the memory for indexes is full: it is not indexed");
            return self.entry(listed, place, None);
        }
        self.entry(listed, place, Some((source.identity, image, false)))
    }
}

fn facts(listed: &listing::Listed, build: &Build) -> Facts {
    Facts {
        segment: listed.name.to_string(),
        identity: build.identity,
        content_bytes: build.offset,
        rows: build.builder.rows,
        unreadable: build.builder.unreadable,
        crc32: build.builder.footer.as_deref().and_then(source::footer_crc32),
        resource: build.builder.resource.clone(),
    }
}

/// Whether a build can go on with the file as it is now.
fn continues(build: &Build, source: &Source) -> bool {
    let (then, now) = (&build.identity, &source.identity);
    then.compressed == now.compressed
        && then.inode == now.inode
        && if now.compressed { then == now } else { now.bytes >= build.offset }
}

/// Reads whole lines until the end or the deadline; returns whether it was the end.
fn read(source: &Source, build: &mut Build, deadline: Instant) -> io::Result<bool> {
    let mut stream = match build.stream.take() {
        Some(stream) => stream,
        None => LineStream::new(source.content(build.offset)?, build.offset),
    };
    let builder = &mut build.builder;
    let mut first = true;
    loop {
        let more = stream.pull(|line, offset| match line {
            Some(line) => builder.take(line, offset),
            None => builder.skip_long(),
        });
        build.offset = stream.offset;
        if !more? {
            return Ok(true);
        }
        if builder.bytes > MOST_OF_ONE {
            return Ok(true);
        }
        if !first && Instant::now() >= deadline {
            if source.identity.compressed {
                build.stream = Some(stream);
            }
            return Ok(false);
        }
        first = false;
    }
}
