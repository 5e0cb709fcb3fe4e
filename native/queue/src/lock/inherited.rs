//! Descriptors of locked files, which a forked child closes at once: a child that kept one open would keep the lock of
//! its dead parent.
//!
//! Everything here is an atomic of fixed size: the child's handler runs right after `fork`, when a lock of another
//! thread may be held for ever.

use crate::system;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// Locks that one process holds at once, one per queue: its own, and those of the dead that it recovers.
const PLACES: usize = 4096;

/// A descriptor plus one; 0: free.
static TABLE: [AtomicI32; PLACES] = [const { AtomicI32::new(0) }; PLACES];
/// Places from here on have never been used.
static USED: AtomicUsize = AtomicUsize::new(0);
static FORKS: AtomicU32 = AtomicU32::new(0);
static INSTALLED: Once = Once::new();

/// The entry of one descriptor.
pub struct InheritedPlace(usize);

/// How many forks this process has begun. If it is the same before a descriptor is opened and after it is entered,
/// every child closes that descriptor.
pub fn forks() -> u32 {
    INSTALLED.call_once(install);
    FORKS.load(Ordering::SeqCst)
}

/// Enters a descriptor; None if the table is full.
pub fn enter(file: &OwnedFd) -> Option<InheritedPlace> {
    let word = file.as_raw_fd() + 1;
    let take = |place: &AtomicI32| place.compare_exchange(0, word, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    let place = TABLE.iter().position(take)?;
    USED.fetch_max(place + 1, Ordering::SeqCst);
    Some(InheritedPlace(place))
}

impl InheritedPlace {
    /// Takes the descriptor out before it is closed: right after the close its number may belong to another file.
    pub fn leave(&self) {
        TABLE[self.0].store(0, Ordering::SeqCst);
    }
}

fn install() {
    // The handlers touch atomics, and make no call but `close`. If there is no memory to install them (the only error),
    // a child keeps the descriptors as long as it lives, which delays a recovery and loses nothing.
    system::at_fork(before_fork, in_child);
}

extern "C" fn before_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn in_child() {
    for place in &TABLE[..USED.load(Ordering::SeqCst)] {
        let word = place.swap(0, Ordering::SeqCst);
        if word > 0 {
            // Open in the parent at the fork. The child's copy belongs to the parent's lock; closing it here does not
            // release that lock.
            system::close_inherited(word - 1);
        }
    }
}
