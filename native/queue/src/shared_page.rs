//! A few pages in a file of the queue directory. Every process maps them once and never unmaps them.
//!
//! The file's name carries the version of its layout: after an update, the file of an older version does not interfere,
//! and both versions can work in one directory, each with its own file.

use crate::lock::{ForkSafe, open};
use crate::memory::{self, Lasting, SharedMemory};
use crate::sigbus::Watched;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

crate::shared! {
    /// The first bytes of every such page.
    struct Stamp {
        magic: AtomicU64,
        version: AtomicU32,
    }
}

/// Device and inode of a file.
pub type FileId = (u64, u64);

/// Maps `bytes` of the file `name` in `directory` as a page of type `T`, creating it if needed, and stamps it; returns
/// the file's identity too. The rest of a new file is zero.
///
/// # Errors
/// The file cannot be opened or sized, or `InvalidData` if it is stamped otherwise: damaged, or not ours.
///
/// # Panics
/// `T` has more than `bytes`.
pub fn map<T: SharedMemory>(
    directory: &Path,
    name: &str,
    bytes: usize,
    magic: u64,
    version: u32,
) -> io::Result<(&'static T, FileId)> {
    let path = directory.join(format!("{name}-{version}"));
    let file = File::from(open(&path, true)?);
    let facts = file.metadata()?;
    memory::allocate(&file, bytes)?;
    let mapped = map_once(&file, bytes, directory)?;
    let (page, stamp): (&T, &Stamp) = (mapped.view(), mapped.view());
    let found = stamp.magic.compare_exchange(0, magic, Ordering::Relaxed, Ordering::Relaxed);
    let stamped = stamp.version.compare_exchange(0, version, Ordering::Relaxed, Ordering::Relaxed);
    if found.is_err_and(|found| found != magic) || stamped.is_err_and(|found| found != version) {
        let reason = format!("{} is not a {name} file of version {version}", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok((page, (facts.dev(), facts.ino())))
}

/// Maps an allocated file as a page of type `T`, as [`map`] does, without a stamp.
///
/// # Errors
/// The system has no room for it.
pub fn map_whole<T: SharedMemory>(file: &impl AsFd, directory: &Path) -> io::Result<&'static T> {
    map_once(file, size_of::<T>(), directory).map(Lasting::view)
}

/// A file's mapping in this process.
struct Mapped {
    identity: (u64, u64),
    bytes: usize,
    memory: Lasting,
    watched: Watched,
}

static MAPPED: ForkSafe<Vec<Mapped>> = ForkSafe::new(Vec::new());

/// Maps the first `bytes` of a file of `directory`, or returns the mapping that this process has already: however often
/// a directory is opened, its files are mapped once. A mapping that lost pages is not reused.
///
/// # Errors
/// The system has no room for it.
fn map_once(fd: &impl AsFd, bytes: usize, directory: &Path) -> io::Result<Lasting> {
    let fd = fd.as_fd();
    let facts = File::from(fd.try_clone_to_owned()?).metadata()?;
    // No other file has its number while it is mapped.
    let identity = (facts.dev(), facts.ino());
    MAPPED.with(|mapped| {
        let is_it = |known: &&Mapped| known.identity == identity && known.bytes == bytes && !known.watched.is_lost();
        if let Some(known) = mapped.iter().find(is_it) {
            return Ok(known.memory);
        }
        let memory = Lasting::map(&fd, bytes)?;
        let watched = Watched::pages(memory.base(), bytes, directory);
        mapped.push(Mapped { identity, bytes, memory, watched });
        Ok(memory)
    })
}

// Numbers in shared memory that change all at once, whichever process is killed in between.
//
// There are two copies; the generation's lowest bit names the valid one. A change writes the other copy and then
// advances the generation, which is one store: before it nothing has changed, after it everything has. A reader that
// is overtaken reads again.

/// How often a reader begins again; a writer that changes faster than any reader can read has other troubles.
const TRIES: usize = 100;

crate::shared! {
    /// Names the valid one of two copies; zero, as in a new file, names the first.
    pub struct Generation(AtomicU64);
}

impl Generation {
    /// Reads the generation; it only grows.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Lets `read` read the valid copy, again if a writer changed it meanwhile.
    pub fn read<R>(&self, mut read: impl FnMut(usize) -> R) -> R {
        for _ in 1..TRIES {
            let before = self.now();
            let seen = read((before & 1) as usize);
            // Pairs with the fence in `change`: a reader that saw a word of the next change but one sees its generation.
            fence(Ordering::Acquire);
            if self.0.load(Ordering::Relaxed) == before {
                return seen;
            }
        }
        read((self.now() & 1) as usize)
    }

    /// Lets `write` make the copy `to` from the copy `from`, and makes it valid. One writer at a time.
    pub fn change(&self, write: impl FnOnce(usize, usize)) {
        let now = self.now();
        fence(Ordering::Release);
        write((now & 1) as usize, (now & 1 ^ 1) as usize);
        // Wraps: a damaged page must not stop the writer.
        self.0.store(now.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{AtomicU64, Generation, Ordering};

    #[test]
    fn readers_never_see_half_of_a_change() {
        let generation = Generation(AtomicU64::new(0));
        let copies: [[AtomicU64; 8]; 2] = Default::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for _ in 0..20_000 {
                    generation.change(|from, to| {
                        for (old, new) in copies[from].iter().zip(&copies[to]) {
                            new.store(old.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        }
                    });
                    // A reader gives up after so many changes in a row; real changes are milliseconds apart.
                    std::thread::yield_now();
                    (0..200).for_each(|_| std::hint::spin_loop());
                }
            });
            let mut last = 0;
            while !writer.is_finished() {
                let seen = generation.read(|copy| copies[copy].each_ref().map(|word| word.load(Ordering::Relaxed)));
                assert!(seen.iter().all(|word| *word == seen[0]), "{seen:?}");
                assert!(seen[0] >= last, "backwards");
                last = seen[0];
            }
        });
        assert_eq!(generation.now(), 20_000);
    }

    #[test]
    fn a_writer_that_dies_in_a_change_leaves_what_was_before() {
        let generation = Generation(AtomicU64::new(0));
        let copies: [AtomicU64; 2] = [AtomicU64::new(7), AtomicU64::new(0)];
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            generation.change(|_, to| {
                copies[to].store(8, Ordering::Relaxed);
                panic!("killed");
            });
        }));
        assert!(died.is_err());
        assert_eq!(generation.read(|copy| copies[copy].load(Ordering::Relaxed)), 7);
    }
}
