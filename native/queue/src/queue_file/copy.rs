//! Gives the rest of a queue that lost its name a new one: a copy of the file, where listeners look.

use super::{OWNED, QueueFile, prepare_directory};
use crate::layout::{QueueHeader, SLOTS_OFFSET};
use crate::lock::{Attempt, ProcessLock};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const BLOCK_BYTES: usize = 64 << 10;

impl QueueFile {
    /// Copies the closed queue to the name that it had, and returns the copy. The requests in flight are not copied:
    /// their owner lives, and puts their records into another queue.
    ///
    /// # Errors
    /// The name is taken, or the file system's error; then there is no copy.
    pub fn copy_to_name(self: &Arc<Self>) -> io::Result<Arc<Self>> {
        let directory = self.path.parent().ok_or(io::ErrorKind::NotFound)?;
        prepare_directory(directory)?;
        if self.path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let hidden = directory.join(format!(".{:016x}.new", self.header().boot_id));
        let Attempt::Acquired(lock) = ProcessLock::try_acquire(&hidden, true)? else {
            return Err(io::ErrorKind::AlreadyExists.into());
        };
        let written = lock.with_file(|file| self.copy_to(file));
        let copied = written.and_then(|()| Self::open_as(&hidden, &self.path)).and_then(|copy| {
            // From here on the name belongs to another file than the mapping.
            OWNED.with(|owned| owned.retain(|entry| !Arc::ptr_eq(&entry.file, self)));
            std::fs::rename(&hidden, &self.path).map(|()| copy)
        });
        copied.inspect_err(|_| drop(std::fs::remove_file(&hidden)))
    }

    fn copy_to(&self, file: &File) -> io::Result<()> {
        file.set_len(self.bytes as u64)?;
        let bytes = self.all_bytes();
        let data = self.bytes - self.data_bytes;
        for (start, end) in [(0, SLOTS_OFFSET), (data, self.bytes)] {
            for at in (start..end).step_by(BLOCK_BYTES) {
                let block = &bytes[at..end.min(at + BLOCK_BYTES)];
                if block.iter().any(|byte| *byte != 0) {
                    file.write_all_at(block, at as u64)?;
                }
            }
        }
        // The copy has no reader yet.
        file.write_all_at(&[0; 8], offset_of!(QueueHeader, reader) as u64)
    }
}
