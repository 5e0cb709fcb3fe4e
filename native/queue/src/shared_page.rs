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
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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
