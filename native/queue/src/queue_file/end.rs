//! What is on record about the end of a queue, so that each report is written once, whichever process dies in between.
//!
//! An owner that ends in good order closes its ring first; an open ring without an owner means that the owner died. A
//! listener closes the ring of a dead owner too, before it reports the end: if the owner was taken for dead by mistake,
//! its next record finds the ring closed, and goes into a new queue. `end_reported` still notes that the owner died.
//!
//! What the owner gives back to the system at its end is here too.

use super::{OWNED, QueueFile, prepare_directory};
use crate::layout::{QueueHeader, Reason, SLOTS_OFFSET};
use crate::lock::{Attempt, ProcessLock};
use crate::memory;
use crate::record::Scratch;
use crate::system::now_unix_nano;
use std::fs::File;
use std::io::{self, Write};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};

/// Bits of `end_reported`.
const REPORTED: u64 = 1;
const DIED: u64 = 2;

impl QueueFile {
    /// Ends this process's ownership: the data pages go back to the system, the mapping stays valid for an emit that is
    /// under way (it will find the ring closed). `is_done`: no process wants the content of the file any more. Where the
    /// system refuses, the memory stays taken until this process ends, and stderr says so once. A queue that is closed
    /// again has no data here any more.
    pub fn disown(self: &Arc<Self>, is_done: bool) {
        OWNED.with(|owned| owned.retain(|entry| !Arc::ptr_eq(&entry.file, self)));
        let data_offset = self.bytes - self.data_bytes;
        let was_disowned = self.is_disowned.swap(true, Ordering::AcqRel);
        if is_done {
            let end = if was_disowned { data_offset } else { self.bytes };
            // The header stays mapped, and with it the file: without this all of it would stay in memory.
            // SAFETY: whole pages of our own mapping; late readers see zeroes.
            report_kept(unsafe { memory::give_back(self.base.add(SLOTS_OFFSET), end - SLOTS_OFFSET) });
        }
        if !was_disowned {
            // SAFETY: whole pages inside our own mapping; late readers see zeroes.
            report_kept(unsafe { memory::zero(self.base.add(data_offset), self.data_bytes) });
        }
    }

    /// Whether every record that was refused is in a `log.dropped` record.
    #[must_use]
    pub fn are_drops_reported(&self) -> bool {
        let mut counts = self.header().dropped.snapshot();
        counts[Reason::ShutdownDeadline as usize] = Default::default();
        let total = counts.iter().flatten().fold(0, |total: u64, count| total.wrapping_add(*count));
        total <= self.header().dropped_reported.load(Ordering::Acquire)
    }

    /// Whether its `process.ended` record is written, or would have nothing to report.
    #[must_use]
    pub fn is_end_reported(&self) -> bool {
        let header = self.header();
        let nothing = || {
            let refused = header.dropped.snapshot().iter().flatten().any(|count| *count > 0);
            let left_out = header.sampled_out.iter().any(|count| count.load(Ordering::Relaxed) > 0);
            // The death of a process that has a name is always reported.
            let named = self.has_died() && !header.producer_name().is_empty();
            !refused && !left_out && !named && self.counts().accepted == 0
        };
        header.end_reported.load(Ordering::Acquire) & REPORTED != 0 || nothing()
    }

    /// Puts a listener's own report into the queue of its process, up to its last byte: there it gets a sequence, every sink
    /// sees it, and it survives the listener. Returns false if the queue is full or closed; the caller tries again or
    /// reports it elsewhere.
    pub fn put_report(&self, event: u16, severity: u8, payload: &Scratch) -> bool {
        let words = u32::try_from(self.header().data_bytes / 8).unwrap_or(u32::MAX);
        let Ok(reservation) = self.ring().reserve(payload.as_slice().len() as u32, words) else { return false };
        reservation.commit(event, severity, now_unix_nano(), payload.as_slice());
        true
    }

    /// Notes that its `process.ended` record is written.
    pub fn note_end_reported(&self) {
        self.header().end_reported.fetch_or(REPORTED, Ordering::Release);
    }

    /// Whether the owner died, for a queue whose owner is gone.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.header().end_reported.load(Ordering::Acquire) & DIED != 0 || !self.ring().is_closed()
    }

    /// Closes the ring of an owner that is taken for dead and whose queue is drained. Returns false if it has emitted
    /// meanwhile, and so lives: its next record goes into another queue.
    #[must_use]
    pub fn close_for_dead(&self) -> bool {
        if self.ring().is_closed() {
            return true;
        }
        self.header().end_reported.fetch_or(DIED, Ordering::AcqRel);
        self.ring().close();
        let is_drained = self.ring().is_drained();
        if !is_drained {
            self.header().end_reported.fetch_and(!DIED, Ordering::AcqRel);
        }
        is_drained
    }

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

/// Says once on stderr that the system has refused to take memory back.
fn report_kept(outcome: io::Result<()>) {
    static SAID: Once = Once::new();
    if let Err(error) = outcome {
        let text =
            format!("inference_logging: the memory of a closed queue is not given back to the system: {error}\n");
        SAID.call_once(|| drop(io::stderr().write_all(text.as_bytes())));
    }
}

// Gives the rest of a queue that lost its name a new one: a copy of the file, where listeners look.

const BLOCK_BYTES: usize = 64 << 10;
