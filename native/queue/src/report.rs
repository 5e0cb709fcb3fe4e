//! A listener's own reports go through its own process's queue: they get a sequence there, every sink sees them, and
//! they survive the listener.

use crate::queue_file::QueueFile;
use crate::record::Scratch;
use crate::system::now_unix_nano;

/// Puts a report into the queue, up to its last byte. Returns false if the queue is full or closed; the caller tries
/// again or reports it elsewhere.
pub fn put(queue: &QueueFile, event: u16, severity: u8, payload: &Scratch) -> bool {
    let words = u32::try_from(queue.header().data_bytes / 8).unwrap_or(u32::MAX);
    let Ok(reservation) = queue.ring().reserve(payload.as_slice().len() as u32, words) else { return false };
    reservation.commit(event, severity, now_unix_nano(), payload.as_slice());
    true
}
