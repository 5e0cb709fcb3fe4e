//! A few pages in a file of the queue directory that every process maps, never to be unmapped.
//!
//! The file's name carries the version of its layout: after an update, what an older version left behind is not in the
//! way, and both versions can be at work in one directory, each with its own file.

use crate::lock::open;
use crate::sigbus::Watched;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How every such page begins.
#[repr(C)]
struct Stamp {
    magic: AtomicU64,
    version: AtomicU32,
}

/// Maps `bytes` of the file `name` in `directory`, creating it if needed, and stamps it. The rest of a new file is zero.
///
/// # Errors
/// The file cannot be opened or sized, or `InvalidData` if it is stamped otherwise: damaged, or not ours.
pub fn map(directory: &Path, name: &str, bytes: usize, magic: u64, version: u32) -> io::Result<*mut u8> {
    let path = directory.join(format!("{name}-{version}"));
    let fd = open(&path, true)?;
    // SAFETY: plain call on an open descriptor; idempotent whoever else does it.
    let code = unsafe { libc::posix_fallocate(fd.as_raw_fd(), 0, bytes as libc::off_t) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code));
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new shared mapping of allocated pages.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Watched::pages(base.cast(), bytes, directory);
    // SAFETY: page-aligned, large enough, only atomics, and never unmapped.
    let stamp = unsafe { &*base.cast::<Stamp>() };
    let found = stamp.magic.compare_exchange(0, magic, Ordering::Relaxed, Ordering::Relaxed);
    let stamped = stamp.version.compare_exchange(0, version, Ordering::Relaxed, Ordering::Relaxed);
    if found.is_err_and(|found| found != magic) || stamped.is_err_and(|found| found != version) {
        let reason = format!("{} is not a {name} file of version {version}", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(base.cast())
}
