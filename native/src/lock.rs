//! Locks that the kernel releases when their process dies, whatever killed it.
//!
//! POSIX record locks (`fcntl F_SETLK`): they belong to the process, so a forked child does not keep its parent's lock
//! alive, and a sidecar in another pid namespace sees them without knowing a pid. Their two traps are met here:
//! * closing *any* descriptor of a locked file drops the lock, so nothing in the owning process may open that file a
//!   second time: [`ProcessLock::try_acquire`] refuses before it opens, by the table of what this process holds;
//! * they do not exclude threads of one process: the same table does.
//!
//! The table is process-wide because such locks are. It is guarded by a spin lock that carries the owner's pid, so a
//! child forked while a thread held it can take it over.

use std::ffi::CString;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// A spin lock over process-wide state that a forked child takes over.
pub(crate) struct ForkSafe<T> {
    owner_pid: AtomicU32,
    value: std::cell::UnsafeCell<T>,
}

// SAFETY: `with` gives out the value to one thread at a time.
unsafe impl<T: Send> Sync for ForkSafe<T> {}

impl<T> ForkSafe<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { owner_pid: AtomicU32::new(0), value: std::cell::UnsafeCell::new(value) }
    }

    /// Runs `work` alone in this process. Keep it short, and never call user code in it.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let pid = std::process::id();
        loop {
            let owner = self.owner_pid.load(Ordering::Relaxed);
            // Another pid stands here only in a child forked while the parent held the lock: no thread of this process
            // will ever release it.
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
}

/// Who has the lock that was asked for.
pub enum Attempt {
    Acquired(ProcessLock),
    HeldElsewhere,
    HeldByThisProcess,
}

/// Who has a lock that nobody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    ThisProcess,
    AnotherProcess,
    Nobody,
}

impl Holder {
    /// Finds who has the lock on the file at `path`, without taking it. A file that cannot be opened is held by nobody.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let pid = std::process::id();
        HELD.with(|table| {
            table.retain(|entry| entry.pid == pid);
            if is_held(table, path) {
                return Self::ThisProcess;
            }
            // Opened and closed while nobody in this process can take the lock: the close would drop it.
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
            let file = open(path, create)?;
            let held = identify(&file, pid)?;
            if !set_lock(&file)? {
                return Ok(Attempt::HeldElsewhere);
            }
            table.push(held);
            Ok(Attempt::Acquired(Self { file: ManuallyDrop::new(file), held }))
        })
    }

    /// Whether `path` still names the locked file: if not, somebody else can lock another one of that name.
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

    /// The locked file. Duplicates of the descriptor must outlive nothing: closing one drops the lock.
    #[must_use]
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        HELD.with(|table| {
            // Closed before anyone in this process can lock the file again: the close would drop that lock too. In a
            // forked child the entry is the parent's and closing does not touch the parent's lock.
            // SAFETY: dropped here only, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.file) };
            table.retain(|entry| *entry != self.held);
        });
    }
}

pub(crate) fn open(path: &Path, create: bool) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_CLOEXEC | if create { libc::O_CREAT } else { 0 };
    // SAFETY: a valid C string and no pointers kept.
    let fd = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn is_held(table: &[Held], path: &Path) -> bool {
    std::fs::symlink_metadata(path)
        .is_ok_and(|metadata| table.iter().any(|entry| entry.device == metadata.dev() && entry.inode == metadata.ino()))
}

fn identify(file: &OwnedFd, pid: u32) -> io::Result<Held> {
    // SAFETY: zeroes are a valid `stat`, and the pointer lives for the call.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::fstat(file.as_raw_fd(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Held { pid, device: stat.st_dev, inode: stat.st_ino })
}

fn whole_file() -> libc::flock {
    // SAFETY: zeroes are a valid `flock`: from the start, to the end, whatever the length.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

fn is_locked(file: &OwnedFd) -> io::Result<bool> {
    let mut lock = whole_file();
    // SAFETY: the pointer lives for the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

fn set_lock(file: &OwnedFd) -> io::Result<bool> {
    let lock = whole_file();
    // SAFETY: the pointer lives for the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EAGAIN) => Ok(false),
        _ => Err(error),
    }
}
