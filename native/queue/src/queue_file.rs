//! Queue files: the one place that creates, maps and opens them, and that knows which of them this process owns.
//!
//! A queue directory holds `<boot id>.queue` files (one per producing process), `control` (what the listener publishes)
//! and `leader.lock`. Directories are 0700 and files 0600, owned by the effective user; symbolic links are refused. A
//! file appears under its final name only when it is complete and locked, so the owner of an unlocked `.queue` file is
//! dead.

use crate::layout::{
    self, DroppedCounts, QueueHeader, Reason, SAMPLED_OUT, SCHEMAS_BYTES, SCHEMAS_OFFSET, SLOTS_OFFSET, data_offset,
};
use crate::lock::{Attempt, ForkSafe, ProcessLock, identity, open};
use crate::memory::{self, Access};
use crate::sigbus::Watched;
use crate::system;
use ring::Ring;
use ring::slots::{SLOT_BYTES, Slots};
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

mod end;

/// A queue file in memory; unmapped when the last reference goes.
pub struct QueueFile {
    base: *mut u8,
    bytes: usize,
    /// The sizes from the moment when the header was checked: a damaged header must not move the bounds.
    data_bytes: usize,
    slot_count: u32,
    pub path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    /// Another process's file, for asking for its lock when the file has no name any more.
    opened: Option<OwnedFd>,
    watched: Watched,
    /// The data are not the file's any more, but empty memory of this process.
    is_disowned: AtomicBool,
}

/// The sizes of a queue file's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Bytes of the ring: a power of two.
    pub data_bytes: u64,
    /// Requests in flight that it has slots for.
    pub slot_count: u32,
}

impl QueueSizes {
    /// Bytes of the file, with pages of the usual size.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        data_offset(self.slot_count, 4096) as u64 + self.data_bytes
    }
}

// SAFETY: the mapping is shared memory that is only accessed through atomics and the ring protocol.
unsafe impl Send for QueueFile {}
// SAFETY: as above.
unsafe impl Sync for QueueFile {}

/// The counts of one queue: `accepted = written + torn + corrupt + in_queue`; every other reason counts refusals.
#[derive(Clone, Debug)]
pub struct QueueCounts {
    pub boot_id: u64,
    pub pid: u32,
    /// Records that producers reserved.
    pub accepted: u64,
    /// Records that the sink took.
    pub written: u64,
    pub in_queue: u64,
    pub bytes_in_queue: u64,
    /// Records that sampling left out, by [`crate::layout::SampledOut`]; not lost, and not accepted.
    pub sampled_out: [u64; SAMPLED_OUT.len()],
    pub dropped: DroppedCounts,
}

struct Owned {
    pid: u32,
    file: Arc<QueueFile>,
}

/// The queue files that this process produces into. A listener in the same process must use these mappings: opening the
/// file again and closing it would drop the owner's lock.
static OWNED: ForkSafe<Vec<Owned>> = ForkSafe::new(Vec::new());

impl QueueFile {
    /// Creates this process's queue file, with its space allocated, its pages mapped, and locked until process death.
    ///
    /// # Errors
    /// `StorageFull` if the file system does not have the space now (so that it cannot be a SIGBUS later), or any other
    /// error of the file system calls.
    pub fn create(
        directory: &Path,
        sizes: QueueSizes,
        boot_id: u64,
        now_unix_nano: u64,
    ) -> io::Result<(Arc<Self>, ProcessLock)> {
        prepare_directory(directory)?;
        let hidden = directory.join(format!(".{boot_id:016x}.new"));
        let path = path_of(directory, boot_id);
        let Attempt::Acquired(lock) = ProcessLock::try_acquire(&hidden, true)? else {
            return Err(io::Error::other("a queue file with this random name is in use"));
        };
        let to_map = lock.open_to_map(&hidden).inspect_err(|_| drop(std::fs::remove_file(&hidden)))?;
        let fd = to_map.as_ref().unwrap_or(lock.file());
        let created = Self::fill_new(fd, &path, sizes, boot_id, now_unix_nano).and_then(|file| {
            let file = Arc::new(file);
            let pid = std::process::id();
            OWNED.with(|owned| {
                // Every thread of this process that sees the file by its name also finds it owned.
                std::fs::rename(&hidden, &path)?;
                owned.retain(|entry| entry.pid == pid);
                owned.push(Owned { pid, file: Arc::clone(&file) });
                Ok(file)
            })
        });
        let file = created.inspect_err(|_| drop(std::fs::remove_file(&hidden)))?;
        Ok((file, lock))
    }

    fn fill_new(fd: &OwnedFd, path: &Path, sizes: QueueSizes, boot_id: u64, now: u64) -> io::Result<Self> {
        let QueueSizes { data_bytes, slot_count } = sizes;
        let page_bytes = memory::page_bytes()?;
        let bytes = addressable(data_offset(slot_count, page_bytes) as u64 + data_bytes)?;
        memory::allocate(fd, bytes)?;
        let mut file = Self::map(fd, bytes, path, Access::WriteNow)?;
        file.note_sizes(sizes);
        // SAFETY: a fresh, page-aligned mapping that nothing else knows yet; QueueHeader is valid for any bytes.
        let header = unsafe { &mut *file.base.cast::<QueueHeader>() };
        header.magic = layout::MAGIC;
        header.version = layout::VERSION;
        header.pid = std::process::id();
        header.data_bytes = data_bytes;
        header.boot_id = boot_id;
        header.created_unix_nano = now;
        header.slot_count = slot_count;
        header.page_bytes = page_bytes;
        Ok(file)
    }

    /// Maps another process's queue file.
    ///
    /// # Errors
    /// `InvalidData` for a file of a foreign version, truncated or not a queue; otherwise the file system's error.
    pub fn open(path: &Path) -> io::Result<Arc<Self>> {
        Self::open_as(path, path)
    }

    /// As `open`, for a file that is about to be called `path`.
    fn open_as(hidden: &Path, path: &Path) -> io::Result<Arc<Self>> {
        let fd = open(hidden, false)?;
        let bytes = std::fs::File::from(fd.try_clone()?).metadata()?.len();
        if bytes < SLOTS_OFFSET as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "shorter than a queue header"));
        }
        let mut file = Self::map(&fd, addressable(bytes)?, path, Access::Write)?;
        file.header().check(bytes).map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad.to_string()))?;
        file.note_sizes(QueueSizes { data_bytes: file.header().data_bytes, slot_count: file.header().slot_count });
        file.opened = Some(fd);
        Ok(Arc::new(file))
    }

    fn map(fd: &OwnedFd, bytes: usize, path: &Path, access: Access) -> io::Result<Self> {
        let identity = identity(fd)?;
        let base = memory::map(fd, bytes, access)?.as_ptr();
        let watched = Watched::queue(base, bytes, offset_of!(QueueHeader, head));
        Ok(Self {
            base,
            bytes,
            data_bytes: 0,
            slot_count: 0,
            path: path.to_owned(),
            identity,
            opened: None,
            watched,
            is_disowned: AtomicBool::new(false),
        })
    }

    fn note_sizes(&mut self, sizes: QueueSizes) {
        (self.data_bytes, self.slot_count) = (sizes.data_bytes as usize, sizes.slot_count);
    }

    /// Whether the file was cut short, or cannot be read any more: the lost pages are empty memory here.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.watched.is_lost()
    }

    /// Whether the header is lost too, so that nothing is known about the queue any more.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        self.is_lost() && self.header().magic != layout::MAGIC
    }

    /// Whether the name does not belong to this file any more: it was removed, or its directory was removed or moved
    /// away, and perhaps a copy stands in its place. Later processes cannot find the file.
    #[must_use]
    pub fn has_vanished(&self) -> bool {
        match std::fs::symlink_metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino()) != self.identity,
            Err(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }

    /// Removes the name, if it belongs to this file.
    pub fn remove_name(&self) {
        if !self.has_vanished() {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Tries to take the owner's lock. If that succeeds, the owner is dead.
    ///
    /// # Errors
    /// As [`ProcessLock::try_acquire`].
    pub fn try_lock(&self) -> io::Result<Attempt> {
        match &self.opened {
            Some(opened) if self.has_vanished() => ProcessLock::try_acquire_opened(opened),
            _ => ProcessLock::try_acquire(&self.path, false),
        }
    }

    /// The file's first page.
    #[inline]
    #[must_use]
    pub fn header(&self) -> &QueueHeader {
        // SAFETY: the mapping is page-aligned, at least SLOTS_OFFSET long, and lives as long as `self`.
        unsafe { &*self.base.cast::<QueueHeader>() }
    }

    /// The ring over the file's data words.
    #[inline]
    #[must_use]
    pub fn ring(&self) -> Ring<'_> {
        let header = self.header();
        let offset = self.bytes - self.data_bytes;
        // SAFETY: a multiple of 8; create/open have checked that the data lies within the mapping, at its end.
        let words =
            unsafe { std::slice::from_raw_parts(self.base.add(offset).cast::<AtomicU64>(), self.data_bytes / 8) };
        Ring::new(&header.head, &header.tail, words)
    }

    /// The slots of the requests in flight.
    #[inline]
    #[must_use]
    pub fn slots(&self) -> Slots<'_> {
        // SAFETY: SLOTS_OFFSET is a multiple of 8; create/open have checked that the slots lie before the data.
        let words = unsafe {
            let first = self.base.add(SLOTS_OFFSET).cast::<AtomicU64>();
            std::slice::from_raw_parts(first, self.slot_count as usize * SLOT_BYTES / 8)
        };
        Slots::new(words)
    }

    /// The valid part of the schema area.
    #[must_use]
    pub fn schemas(&self) -> &[u8] {
        // Acquire pairs with the Release in `append_schema`.
        let len = (self.header().schemas_len.load(Ordering::Acquire) as usize).min(SCHEMAS_BYTES);
        // SAFETY: within the mapping; bytes below `schemas_len` are never written again.
        unsafe { std::slice::from_raw_parts(self.base.add(SCHEMAS_OFFSET), len) }
    }

    /// Everything. In a closed queue, only a record that is being committed can still change, and a reader checks its
    /// words.
    fn all_bytes(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base, self.bytes) }
    }

    /// Share of the schema area that is taken.
    #[must_use]
    pub fn schemas_fill_ratio(&self) -> f64 {
        self.header().schemas_len.load(Ordering::Relaxed) as f64 / SCHEMAS_BYTES as f64
    }

    /// Appends one schema. The caller is the only writer.
    ///
    /// # Errors
    /// `StorageFull` if the schema area has no room.
    pub fn append_schema(&self, schema: &[u8]) -> io::Result<()> {
        let len = self.header().schemas_len.load(Ordering::Relaxed) as usize;
        if len + schema.len() > SCHEMAS_BYTES {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the queue's schema area is full"));
        }
        // SAFETY: in bounds (checked), above `schemas_len`, which readers do not look at yet.
        unsafe { std::ptr::copy_nonoverlapping(schema.as_ptr(), self.base.add(SCHEMAS_OFFSET + len), schema.len()) }
        self.header().schemas_len.store((len + schema.len()) as u64, Ordering::Release);
        Ok(())
    }

    /// All 64 bits of a sequence that is not more than 2³² past the last released record.
    #[must_use]
    pub fn full_sequence(&self, sequence: u32) -> u64 {
        // No process lives long enough for so many records: a damaged base must not make a sequence overflow.
        let base =
            Some(self.header().sequence_base.load(Ordering::Acquire)).filter(|base| base >> 56 == 0).unwrap_or(0);
        base.wrapping_add(u64::from(sequence.wrapping_sub(base as u32)))
    }

    /// Reads the counts of this queue.
    #[must_use]
    pub fn counts(&self) -> QueueCounts {
        let header = self.header();
        // Tail before head, so that the difference is never negative.
        let released = self.full_sequence(self.ring().tail().sequence);
        let accepted = self.full_sequence(self.ring().head().sequence);
        let dropped = header.dropped.snapshot();
        let unreadable = [Reason::Torn, Reason::Corrupt].iter().flat_map(|reason| dropped[*reason as usize]);
        QueueCounts {
            boot_id: header.boot_id,
            pid: header.pid,
            accepted,
            written: released.saturating_sub(unreadable.fold(0, u64::saturating_add)),
            in_queue: accepted.saturating_sub(released),
            bytes_in_queue: u64::from(self.ring().used_words()) * 8,
            sampled_out: std::array::from_fn(|reason| header.sampled_out[reason].load(Ordering::Relaxed)),
            dropped,
        }
    }
}

impl Drop for QueueFile {
    fn drop(&mut self) {
        self.watched.unwatch();
        // SAFETY: our own mapping, and no reference to it is left.
        unsafe { memory::unmap(self.base, self.bytes) };
    }
}

/// A size that this machine can map: one of 32 bits cannot map every queue.
fn addressable(bytes: u64) -> io::Result<usize> {
    let too_large = |_| io::Error::new(io::ErrorKind::OutOfMemory, "larger than the addresses of this machine");
    isize::try_from(bytes).map(isize::cast_unsigned).map_err(too_large)
}

/// The file of a queue in its directory.
#[must_use]
pub fn path_of(directory: &Path, boot_id: u64) -> PathBuf {
    directory.join(format!("{boot_id:016x}.queue"))
}

/// Returns the mapping if the file at `path` is a queue that this process owns.
#[must_use]
pub fn owned_by_this_process(path: &Path) -> Option<Arc<QueueFile>> {
    let pid = std::process::id();
    OWNED.with(|owned| {
        owned.iter().find(|entry| entry.pid == pid && entry.file.path == path).map(|entry| Arc::clone(&entry.file))
    })
}

/// Forgets the queues that a forked child inherited: they are its parent's, not its own.
pub(crate) fn forget_parents_queues() {
    let pid = std::process::id();
    OWNED.with(|owned| owned.retain(|entry| entry.pid == pid));
}

/// Lists the queue files of a directory, oldest name first.
///
/// # Errors
/// The directory cannot be read.
pub fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "queue"))
        .collect();
    paths.sort();
    Ok(paths)
}

/// Removes files whose creator died before it gave them their final name. A creator locks its file before it gives it a
/// size, so a file with a size and no lock has no creator.
pub fn remove_unfinished(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        let unfinished = path.extension().is_some_and(|extension| extension == "new")
            && std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
        if unfinished && matches!(ProcessLock::try_acquire(&path, false), Ok(Attempt::Acquired(_))) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Creates the directory with mode 0700 if it is missing, and refuses one that others own or may write to.
///
/// # Errors
/// `PermissionDenied` naming the directory and what is wrong with it, or the file system's error.
pub fn prepare_directory(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    check_directory(directory)
}

/// Refuses a directory that others own or may write to.
///
/// # Errors
/// As [`prepare_directory`]; `NotFound` if there is none.
pub fn check_directory(directory: &Path) -> io::Result<()> {
    // Without a slash at the end, which would have the link followed.
    let metadata = std::fs::symlink_metadata(directory.components().as_path())?;
    let user = system::user();
    let refuse = |what: &str| {
        let message = format!("queue directory {}: {what}", directory.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    };
    if !metadata.is_dir() {
        return refuse("not a directory, or a symbolic link");
    }
    if metadata.uid() != user {
        return refuse(&format!("owned by another user (uid {})", metadata.uid()));
    }
    if metadata.permissions().mode() & 0o022 != 0 {
        return refuse("writable by group or others; use mode 0700");
    }
    Ok(())
}
