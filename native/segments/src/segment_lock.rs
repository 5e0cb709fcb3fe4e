//! The lock of a live segment: its writer holds it, and the kernel releases it with the writer, however that dies. A
//! process that wants to compress or remove a segment tries it first.
//!
//! `flock`, not the record locks of [`queue::lock`]: users read segments in the process that writes them, and closing a
//! descriptor would drop a record lock. It has one trap: a forked child shares the lock of the descriptors it inherits,
//! and would keep a dead parent's segment live, so [`close_inherited`] closes them in the child.
//!
//! The order, on which other modules rely: the lock is taken while the segment is empty, and released behind its last
//! line. So an empty segment may be live without a lock, and one with a header and no lock has no writer.

use queue::lock::ForkSafe;
use queue::system;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Held {
    pid: u32,
    descriptor: RawFd,
}

static HELD: ForkSafe<Vec<Held>> = ForkSafe::new(Vec::new());

/// The writer's lock on a segment; released when dropped.
#[derive(Debug)]
pub struct LiveLock {
    file: Arc<File>,
    pid: u32,
}

impl LiveLock {
    /// Locks a segment that was just created. A file system without locks is not an error for the writer: there, no
    /// segment can be locked for removal either.
    #[must_use]
    pub fn hold(file: Arc<File>) -> Self {
        let held = Held { pid: std::process::id(), descriptor: file.as_raw_fd() };
        let _ = system::lock_file(&file, libc::LOCK_EX | libc::LOCK_NB);
        HELD.with(|table| table.push(held));
        Self { file, pid: held.pid }
    }
}

impl Drop for LiveLock {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return; // in a forked child: the lock is the parent's
        }
        let held = Held { pid: self.pid, descriptor: self.file.as_raw_fd() };
        HELD.with(|table| table.retain(|entry| *entry != held));
        // Explicitly, and not by the close: the file may be open a while longer, for its writeback or in a child.
        let _ = system::lock_file(&self.file, libc::LOCK_UN);
    }
}

/// Locks a segment that has no writer; false while it has one. Closing `file` releases the lock.
///
/// Shared: readers look for the writer by the same lock, and must not be taken for a writer.
///
/// # Errors
/// The file system cannot lock.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match system::lock_file(file, libc::LOCK_SH | libc::LOCK_NB) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Closes, in a forked child, the live segments of its parent, whose threads do not exist here.
pub fn close_inherited() {
    let pid = std::process::id();
    HELD.with(|table| {
        for entry in table.iter().filter(|entry| entry.pid != pid) {
            // The descriptor was open in the parent at the fork. Here it belongs to a sink of a thread that does not
            // exist, so nothing else uses or closes it.
            system::close_inherited(entry.descriptor);
        }
        table.retain(|entry| entry.pid == pid);
    });
}
