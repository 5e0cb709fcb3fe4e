//! Locks that the kernel releases when their process dies, whatever killed it.
//!
//! Record locks of an open file description (`fcntl F_OFD_SETLK`): a sidecar in another pid namespace sees them without
//! knowing a pid, and they stay when a process opens and closes a locked file a second time. They have one trap, which
//! `inherited` handles: a forked child shares the descriptions of its parent, and closes them at once.
//!
//! On a kernel without such locks, the record locks of the process (`F_SETLK`) take their place; both exclude each
//! other. Closing *any* descriptor of a file drops those, so [`ProcessLock::try_acquire`] refuses before it opens the
//! file, by a table of the locks that this process holds.
//!
//! The table is guarded by a spin lock that carries the owner's pid, so a child forked while a thread held it can take
//! it over.

use crate::platform;
use crate::system;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// A spin lock over process-wide state that a forked child takes over.
pub struct ForkSafe<T> {
    owner_pid: AtomicU32,
    value: std::cell::UnsafeCell<T>,
}

// SAFETY: `with` gives out the value to one thread at a time.
unsafe impl<T: Send> Sync for ForkSafe<T> {}

impl<T> ForkSafe<T> {
    pub const fn new(value: T) -> Self {
        Self { owner_pid: AtomicU32::new(0), value: std::cell::UnsafeCell::new(value) }
    }

    /// Runs `work` alone in this process. `work` must be short and must not call user code.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let pid = std::process::id();
        loop {
            let owner = self.owner_pid.load(Ordering::Relaxed);
            // Another pid stands here only in a child forked while the parent held the lock: no thread of this process
            // will ever release that.
            if owner != pid && self.owner_pid.compare_exchange(owner, pid, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                break;
            }
            std::thread::yield_now();
        }
        // SAFETY: this thread holds the lock, no other reference to the value exists.
        let result = work(unsafe { &mut *self.value.get() });
        self.owner_pid.store(0, Ordering::Release);
        result
    }
}

impl<T: Default> Default for ForkSafe<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Held {
    pid: u32,
    device: u64,
    inode: u64,
}

static HELD: ForkSafe<Vec<Held>> = ForkSafe::new(Vec::new());

/// An exclusive lock on a file, held by this process until dropped or dead.
pub struct ProcessLock {
    file: ManuallyDrop<OwnedFd>,
    held: Held,
    /// None: the lock belongs to the process, not to the description.
    place: Option<InheritedPlace>,
}

/// The result of asking for a lock.
pub enum Attempt {
    Acquired(ProcessLock),
    HeldElsewhere,
    HeldByThisProcess,
}

/// The holder of a lock, found without asking for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    ThisProcess,
    AnotherProcess,
    Nobody,
}

impl Holder {
    /// The name in answers: whether this process holds it, or another one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ThisProcess => "here",
            Self::AnotherProcess => "elsewhere",
            Self::Nobody => "nobody",
        }
    }

    /// Finds the holder of the lock on the file at `path`, without taking the lock. A file that cannot be opened has no
    /// holder.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let pid = std::process::id();
        HELD.with(|table| {
            table.retain(|entry| entry.pid == pid);
            if is_held(table, path) {
                return Self::ThisProcess;
            }
            // Opened and closed while no thread of this process can take the lock: the close would drop it.
            match open(path, false).and_then(|file| is_locked(&file)) {
                Ok(true) => Self::AnotherProcess,
                _ => Self::Nobody,
            }
        })
    }
}

impl ProcessLock {
    /// Tries to lock the file at `path`, which is created with mode 0600 if `create`.
    ///
    /// # Errors
    /// Any error of `open`, `stat` or `fcntl` other than the lock being held.
    pub fn try_acquire(path: &Path, create: bool) -> io::Result<Attempt> {
        let pid = std::process::id();
        HELD.with(|table| {
            table.retain(|entry| entry.pid == pid);
            if is_held(table, path) {
                return Ok(Attempt::HeldByThisProcess);
            }
            Self::lock(table, pid, || open(path, create))
        })
    }

    /// As `try_acquire`, for a file that this process has open and that may have no name any more. The lock is not put
    /// on that description, since a child may share it.
    ///
    /// # Errors
    /// As `try_acquire`; there is no `/proc`.
    pub(crate) fn try_acquire_opened(file: &OwnedFd) -> io::Result<Attempt> {
        let pid = std::process::id();
        HELD.with(|table| {
            table.retain(|entry| entry.pid == pid);
            if table.contains(&identify(file, pid)?) {
                return Ok(Attempt::HeldByThisProcess);
            }
            let path = platform::path_of(file.as_raw_fd());
            Self::lock(table, pid, || system::open(Path::new(&path), libc::O_RDWR))
        })
    }

    fn lock(table: &mut Vec<Held>, pid: u32, open: impl Fn() -> io::Result<OwnedFd>) -> io::Result<Attempt> {
        let (file, place) = loop {
            let before = forks();
            let file = open()?;
            let place = enter(&file);
            if forks() == before {
                break (file, place);
            }
            // A child may have inherited the descriptor.
            place.iter().for_each(InheritedPlace::leave);
        };
        let is_entered = place.is_some();
        let locked = identify(&file, pid).and_then(|held| Ok((held, set_lock(&file, is_entered)?)));
        if let Ok((held, Some(is_description))) = locked {
            let place = place.filter(|place| {
                is_description || {
                    place.leave();
                    false
                }
            });
            table.push(held);
            return Ok(Attempt::Acquired(Self { file: ManuallyDrop::new(file), held, place }));
        }
        place.iter().for_each(InheritedPlace::leave);
        locked.map(|_| Attempt::HeldElsewhere)
    }

    /// Whether `path` still names the locked file: if not, another process can lock a different file of that name.
    #[must_use]
    pub fn is_named(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == (self.held.device, self.held.inode))
    }

    /// The number of the locked file, which no other file of its file system has while the lock is held.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.held.inode
    }

    /// The locked file once more, for mapping: a mapping keeps its description open, and a forked child has the
    /// mappings of its parent. None where the lock belongs to the process, since closing another descriptor would drop
    /// it.
    ///
    /// # Errors
    /// `path` cannot be opened.
    pub(crate) fn open_to_map(&self, path: &Path) -> io::Result<Option<OwnedFd>> {
        self.place.as_ref().map(|_| open(path, false)).transpose()
    }

    /// Reads or writes the locked file, without another descriptor of it.
    pub fn with_file<R>(&self, work: impl FnOnce(&File) -> R) -> R {
        // SAFETY: open as long as `self`, and not closed here.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(self.file.as_raw_fd()) });
        work(&file)
    }

    /// The locked file. No duplicate of the descriptor may be closed before the lock is released: closing one drops the
    /// lock.
    #[must_use]
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        let is_own = self.held.pid == std::process::id();
        HELD.with(|table| {
            if let Some(place) = self.place.as_ref().filter(|_| is_own) {
                // Explicitly, and not by the close: a child that is being forked right now may keep the description
                // open a moment longer.
                let _ = change_lock(&self.file, libc::F_OFD_SETLK, UNLOCKED);
                place.leave();
            }
            // A forked child has closed its copy of a descriptor that was entered. Any other descriptor is closed
            // before another thread of this process can lock the file again: the close would drop that lock too.
            if is_own || self.place.is_none() {
                // SAFETY: dropped here only, and not used afterwards.
                unsafe { ManuallyDrop::drop(&mut self.file) };
            }
            table.retain(|entry| *entry != self.held);
        });
    }
}

pub fn open(path: &Path, create: bool) -> io::Result<OwnedFd> {
    system::open(path, libc::O_RDWR | libc::O_NOFOLLOW | if create { libc::O_CREAT } else { 0 })
}

fn is_held(table: &[Held], path: &Path) -> bool {
    std::fs::symlink_metadata(path)
        .is_ok_and(|metadata| table.iter().any(|entry| entry.device == metadata.dev() && entry.inode == metadata.ino()))
}

fn identify(file: &OwnedFd, pid: u32) -> io::Result<Held> {
    identity(file).map(|(device, inode)| Held { pid, device, inode })
}

/// The device and inode of an open file.
pub fn identity(file: &OwnedFd) -> io::Result<(u64, u64)> {
    // SAFETY: open for the call, and not closed here: closing a duplicate could drop a lock.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(file.as_raw_fd()) });
    file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

// C libraries differ in the type of these.
const LOCKED: libc::c_short = libc::F_WRLCK as libc::c_short;
const UNLOCKED: libc::c_short = libc::F_UNLCK as libc::c_short;

fn whole_file(kind: libc::c_short) -> libc::flock {
    // SAFETY: zeroes are a valid `flock`: from the start, to the end, whatever the length.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

fn is_locked(file: &OwnedFd) -> io::Result<bool> {
    let ask = |command| {
        let mut lock = whole_file(LOCKED);
        // SAFETY: the pointer lives for the call.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) } {
            0 => Ok(lock.l_type != UNLOCKED),
            _ => Err(io::Error::last_os_error()),
        }
    };
    ask(libc::F_OFD_GETLK).or_else(|error| if is_unknown(&error) { ask(libc::F_GETLK) } else { Err(error) })
}

/// Takes the lock, on the description where possible; returns whether it is on the description, or None if another
/// holder has it.
fn set_lock(file: &OwnedFd, for_description: bool) -> io::Result<Option<bool>> {
    if for_description {
        match change_lock(file, libc::F_OFD_SETLK, LOCKED) {
            Err(error) if is_unknown(&error) => {}
            other => return other.map(|is_set| is_set.then_some(true)),
        }
    }
    change_lock(file, libc::F_SETLK, LOCKED).map(|is_set| is_set.then_some(false))
}

fn change_lock(file: &OwnedFd, command: libc::c_int, kind: libc::c_short) -> io::Result<bool> {
    let lock = whole_file(kind);
    // SAFETY: the pointer lives for the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EAGAIN) => Ok(false),
        _ => Err(error),
    }
}

/// Whether the kernel, or an emulation of it, has no locks of descriptions.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
}

// Descriptors of locked files, which a forked child closes at once: a child that kept one open would keep the lock of
// its dead parent.
//
// Everything here is an atomic of fixed size: the child's handler runs right after `fork`, when a lock of another
// thread may be held for ever.

/// Locks that one process holds at once, one per queue: its own, and those of the dead that it recovers.
const PLACES: usize = 4096;

/// A descriptor plus one; 0: free.
static TABLE: [AtomicI32; PLACES] = [const { AtomicI32::new(0) }; PLACES];
/// Places from here on have never been used.
static USED: AtomicUsize = AtomicUsize::new(0);
static FORKS: AtomicU32 = AtomicU32::new(0);
static INSTALLED: Once = Once::new();

/// The entry of one descriptor.
struct InheritedPlace(usize);

/// How many forks this process has begun. If it is the same before a descriptor is opened and after it is entered,
/// every child closes that descriptor.
fn forks() -> u32 {
    INSTALLED.call_once(install);
    FORKS.load(Ordering::SeqCst)
}

/// Enters a descriptor; None if the table is full.
fn enter(file: &OwnedFd) -> Option<InheritedPlace> {
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
