//! Mapped files that another process cuts short: the lost pages become empty memory, and the process lives.
//!
//! A queue file has its space allocated, so a full disk cannot take a mapped page away. But any process of the same
//! user can truncate it, and a device or network file system can fail to read a page back. The next access to such a
//! page is a SIGBUS in the middle of a request, and would end the server. So this handler replaces the page and all
//! that follow in its mapping with zeroed memory of this process alone, closes the ring if the mapping is a queue, and
//! lets the access happen again (systemd's journal does the same with its files). Later checks then see that the
//! mapping [`Watched::is_lost`]. An address outside of these mappings goes to the earlier handler, or ends the process
//! as usual.
//!
//! Everything the handler touches is an atomic in a table of fixed size; it makes one system call, `mmap`.

use crate::memory::{self, Access, SharedMemory};
use crate::platform::errno;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// Mappings that are watched at once, one per queue and page of a directory. Further mappings are not watched.
const MAPPINGS: usize = 16_384;
/// The value of `start` while an entry is filled.
const TAKEN: usize = 1;
/// The value of `head_offset` for a mapping that is not a queue.
const NO_HEAD: usize = usize::MAX;

struct Entry {
    /// Address of the first byte; 0: free.
    start: AtomicUsize,
    bytes: AtomicUsize,
    head_offset: AtomicUsize,
    /// For pages that a directory's processes share: the hash of the directory.
    group: AtomicU64,
    lost: AtomicBool,
}

/// All zero, so that it takes no room in a program's file; [`Watched::enter`] sets every member.
static TABLE: [Entry; MAPPINGS] = [const {
    Entry {
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        head_offset: AtomicUsize::new(0),
        group: AtomicU64::new(0),
        lost: AtomicBool::new(false),
    }
}; MAPPINGS];
/// Entries from here on have never been used, and are not searched.
static USED: AtomicUsize = AtomicUsize::new(0);
static INSTALLED: Once = Once::new();

/// The handler before this one. Written before the handler is installed, and never again.
struct Previous(std::cell::UnsafeCell<MaybeUninit<libc::sigaction>>);
// SAFETY: written once, inside `Once`, before anyone can read it.
unsafe impl Sync for Previous {}
static PREVIOUS: Previous = Previous(std::cell::UnsafeCell::new(MaybeUninit::uninit()));

/// A mapping whose loss does not end the process; call `unwatch` before it is unmapped.
pub struct Watched(Option<usize>);

impl Watched {
    /// Watches a queue's mapping; a loss closes the ring whose head word is at `head_offset`.
    #[must_use]
    pub fn queue(base: *mut u8, bytes: usize, head_offset: usize) -> Self {
        Self::enter(base, bytes, head_offset)
    }

    /// Watches another mapping.
    #[must_use]
    pub fn new(base: *mut u8, bytes: usize) -> Self {
        Self::enter(base, bytes, NO_HEAD)
    }

    /// Watches pages of a directory that are never unmapped, so the result must be kept; [`lost_pages`] counts their
    /// losses.
    #[must_use]
    pub fn pages(base: *mut u8, bytes: usize, directory: &Path) -> Self {
        let watched = Self::new(base, bytes);
        if let Some(slot) = watched.0 {
            TABLE[slot].group.store(group_of(directory), Ordering::Relaxed);
        }
        watched
    }

    fn enter(base: *mut u8, bytes: usize, head_offset: usize) -> Self {
        INSTALLED.call_once(install);
        let free = |entry: &Entry| {
            entry.start.load(Ordering::Relaxed) == 0
                && entry.start.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let slot = TABLE.iter().position(free);
        if let Some(entry) = slot.map(|slot| &TABLE[slot]) {
            // Pairs with the fence in `find`: a thread that sees a word of this mapping sees that the last one has ended.
            fence(Ordering::Release);
            entry.bytes.store(bytes, Ordering::Relaxed);
            entry.head_offset.store(head_offset, Ordering::Relaxed);
            entry.group.store(0, Ordering::Relaxed);
            entry.lost.store(false, Ordering::Relaxed);
            // Before the start: a thread that searches for the mapping has to come this far. Release pairs with the
            // Acquire in `used`.
            USED.fetch_max(slot.unwrap_or_default() + 1, Ordering::Release);
            // Release pairs with the Acquire in `find`.
            entry.start.store(base as usize, Ordering::Release);
        }
        Self(slot)
    }

    /// Whether a part of the mapping has become memory of this process alone.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.is_some_and(|slot| TABLE[slot].lost.load(Ordering::Acquire))
    }

    /// Ends the watch before the mapping is unmapped. Idempotent.
    pub fn unwatch(&mut self) {
        if let Some(slot) = self.0.take() {
            TABLE[slot].start.store(0, Ordering::Release);
        }
    }
}

/// How many mappings of pages that the processes of `directory` share this process has lost so far.
#[must_use]
pub(crate) fn lost_pages(directory: &Path) -> usize {
    let group = group_of(directory);
    let is_one = |entry: &&Entry| entry.group.load(Ordering::Relaxed) == group && entry.lost.load(Ordering::Acquire);
    used().iter().filter(is_one).count()
}

fn used() -> &'static [Entry] {
    &TABLE[..USED.load(Ordering::Acquire)]
}

fn group_of(directory: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    directory.hash(&mut hasher);
    // 0: no pages of a directory.
    hasher.finish().max(1)
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.unwatch();
    }
}

fn find(address: usize) -> Option<(&'static Entry, usize)> {
    used().iter().find_map(|entry| {
        let start = entry.start.load(Ordering::Acquire);
        let offset = address.checked_sub(start).filter(|_| start > TAKEN)?;
        let is_within = offset < entry.bytes.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // Still the same mapping, so that its size is not that of the next one.
        (is_within && entry.start.load(Ordering::Relaxed) == start).then_some((entry, start))
    })
}

fn install() {
    // SAFETY: zeroes are a valid `sigaction`; all pointers live for the calls. NODEFER: the handler itself may touch a
    // page that is gone too.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, std::ptr::null(), (*PREVIOUS.0.get()).as_mut_ptr());
        fence(Ordering::SeqCst);
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes valid pointers to a handler with SA_SIGINFO; errno is the interrupted code's own.
    let (address, interrupted) = unsafe { ((*info).si_addr() as usize, *errno()) };
    // A signal that a process sent has no address: its code is not positive.
    // SAFETY: as above.
    let is_access = unsafe { (*info).si_code } > 0;
    if !(is_access && find(address).is_some_and(|(entry, start)| replace(entry, start, address))) {
        pass_on(signal, info, context);
    }
    // SAFETY: as above.
    unsafe { *errno() = interrupted };
}

/// Reads a page of a file through a mapping that ends with the call.
///
/// # Errors
/// The file cannot be mapped.
pub fn with_mapped<T: SharedMemory, R>(file: &impl AsFd, read: impl FnOnce(&T) -> R) -> io::Result<R> {
    let base = memory::map(file, size_of::<T>(), Access::Read)?;
    let mut watched = Watched::new(base.as_ptr(), size_of::<T>());
    // SAFETY: page-aligned and large enough; unmapped below, after the last use.
    let found = read(unsafe { memory::view(base) });
    watched.unwatch();
    // SAFETY: our own mapping; what was found is no reference into it.
    unsafe { memory::unmap(base.as_ptr(), size_of::<T>()) };
    Ok(found)
}

/// Replaces the page at `address` and the pages behind it with zeroed memory.
fn replace(entry: &Entry, start: usize, address: usize) -> bool {
    // SAFETY: no pointers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let from = address & !(page - 1);
    let end = (start + entry.bytes.load(Ordering::Relaxed)).next_multiple_of(page);
    // SAFETY: whole pages within a mapping of ours, which holds only atomics and bytes that no reader trusts.
    if unsafe { memory::zero(from as *mut u8, end - from) }.is_err() {
        return false;
    }
    entry.lost.store(true, Ordering::Release);
    let head_offset = entry.head_offset.load(Ordering::Relaxed);
    if head_offset != NO_HEAD {
        // SAFETY: aligned and within the mapping; where that page is gone too, this ends up here once more.
        ring::close_word(unsafe { &*((start + head_offset) as *const AtomicU64) });
    }
    true
}

/// Does what would have happened without this handler.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: written before the handler could run. A previous handler is called with what the kernel passed, in the way
    // its flags ask for; the default action follows when the access happens again.
    unsafe {
        let previous = (*PREVIOUS.0.get()).assume_init_ref();
        match previous.sa_sigaction {
            // Sent by a process, not caused by an access.
            libc::SIG_IGN if (*info).si_code <= 0 => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, previous, std::ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
