//! One refresh: indexes are read from the cache or made, by several threads, until its time is over.

use crate::builder::Builder;
use crate::cache::Cache;
use crate::entry::{Entry, is_compressed_since, is_sealed};
use crate::image::{Facts, Image};
use crate::source::{self, Identity, LineStream, Source};
use crate::tail;
use segments::segment::SegmentName;
use segments::verify::listing;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most bytes of indexes in memory, those of live segments among them.
const MOST_MEMORY: u64 = 96 << 20;
/// Most bytes of the index of one segment, which are in memory until it is written.
const MOST_OF_ONE: u64 = 48 << 20;
/// Segments of which the ends are read, if the last ones are small.
const MOST_ENDS: usize = 8;
const PUBLISH_EVERY: Duration = Duration::from_millis(50);
const NANOS_PER_MILLI: u64 = 1_000_000;

/// The segments that were found, with what they have by now.
pub type Found = BTreeMap<SegmentName, Arc<Entry>>;

/// A directory of segments, and where its index files are.
pub struct Place {
    pub path: Arc<Path>,
    pub cache: Option<Cache>,
}

/// Locks, also where a thread has panicked: what is kept is whole at any moment.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An index that is not finished, or that of a live segment.
pub struct Build {
    identity: Identity,
    builder: Builder,
    /// Where the next whole line begins.
    offset: u64,
    /// Of a compressed segment, which cannot be read from the middle.
    stream: Option<LineStream>,
}

/// What a refresh works with.
#[derive(Default)]
pub struct Work {
    pub builds: HashMap<SegmentName, Build>,
    pub problems: BTreeMap<String, String>,
}

/// One refresh, by several threads.
pub struct Round<'a> {
    pub deadline: Instant,
    pub memory: AtomicU64,
    pub next: AtomicUsize,
    pub todo: &'a [(listing::Listed, usize)],
    /// Those whose index file is not to be used.
    pub damaged: HashSet<SegmentName>,
    pub places: &'a [Place],
    /// Shows others what was found so far.
    pub publish: &'a (dyn Fn(&Found) + Sync),
    pub work: Mutex<Work>,
    pub found: Mutex<(Found, Instant)>,
}

impl Round<'_> {
    /// Takes segments until none is left; several threads do so at once.
    pub fn run(&self) {
        while let Some((listed, place)) = self.todo.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let place = &self.places[*place];
            let entry = match source::open(&listed.directory, &listed.name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    self.problem(&listed.name, &error);
                    self.entry(listed, place, None)
                }
                Ok(source) => self.index(listed, place, source),
            };
            let mut found = lock(&self.found);
            let is_less = entry.image.is_none() && found.0.get(&entry.name).is_some_and(|known| known.is_end());
            if !is_less {
                found.0.insert(entry.name.clone(), Arc::new(entry));
            }
            if found.1.elapsed() > PUBLISH_EVERY {
                found.1 = Instant::now();
                (self.publish)(&found.0);
            }
        }
    }

    /// Shows the last rows of the newest segments, a page of them, where nothing else is shown yet.
    pub fn show_ends(&self) {
        let mut rows = 0;
        for (listed, place) in self.todo.iter().take(MOST_ENDS) {
            let place = &self.places[*place];
            let name = listed.name.to_string();
            // An index file is read as quickly.
            let index = place.cache.as_ref().and_then(|cache| cache.load(&name).ok());
            rows += match index {
                Some(image) => image.facts.rows,
                None => self.show_end(listed, place, &name),
            };
            if rows >= tail::ENOUGH_ROWS {
                break;
            }
        }
        (self.publish)(&lock(&self.found).0);
    }

    /// Returns how many rows it has found. What can't be read is said where the whole segment is read.
    fn show_end(&self, listed: &listing::Listed, place: &Place, name: &str) -> u64 {
        let read = || -> io::Result<_> {
            let source = source::open(&listed.directory, &listed.name)?;
            let end = tail::read(&source, name, begun(&listed.name))?;
            Ok(end.map(|end| (source, end)))
        };
        let Ok(Some((source, (image, unread_bytes)))) = read() else { return 0 };
        let (rows, is_live) = (image.facts.rows, !is_sealed(&source));
        let entry = Entry { unread_bytes, ..self.entry(listed, place, Some((source.identity, image, is_live))) };
        lock(&self.found).0.insert(entry.name.clone(), Arc::new(entry));
        rows
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
            unread_bytes: 0,
            is_damaged: AtomicBool::new(false),
        }
    }

    fn index(&self, listed: &listing::Listed, place: &Place, source: Source) -> Entry {
        let build = lock(&self.work).builds.remove(&listed.name);
        if build.is_none()
            && !self.damaged.contains(&listed.name)
            && let Some(image) = place.cache.as_ref().and_then(|cache| cache.load(&listed.name.to_string()).ok())
            && (image.facts.identity == source.identity
                || is_compressed_since(&source, &image.facts.identity, image.facts.content_bytes))
        {
            return self.entry(listed, place, Some((source.identity, image, false)));
        }
        if Instant::now() >= self.deadline && build.is_none() {
            return self.entry(listed, place, None);
        }
        let build = build.filter(|build| continues(build, &source)).unwrap_or_else(|| Build {
            identity: source.identity,
            builder: Builder::new(begun(&listed.name)),
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
        let has_end = || lock(&self.found).0.get(&listed.name).is_some_and(|known| known.is_end());
        if !ended && (!is_live || has_end()) {
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

fn begun(name: &SegmentName) -> u64 {
    name.begun_unix_milli.saturating_mul(NANOS_PER_MILLI)
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
