//! The one place that maps memory, replaces it and gives it back; and the types that a mapped page may hold.

use crate::layout::is_page_size;
use crate::platform;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64};

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading and writing.
    Write,
    /// As `Write`, with every page there from the start.
    WriteNow,
    Read,
}

/// Allocates the first `bytes` of a file, so that a full file system is an error now and no signal later. Idempotent.
///
/// # Errors
/// The system call's error, `StorageFull` among them.
pub fn allocate(file: &impl AsFd, bytes: usize) -> io::Result<()> {
    platform::allocate(file.as_fd(), bytes)
}

/// Maps the first `bytes` of a file, for all processes that map it.
///
/// # Errors
/// The system call's error.
pub fn map(file: &impl AsFd, bytes: usize, access: Access) -> io::Result<NonNull<u8>> {
    let file = file.as_fd().as_raw_fd();
    let writes = if access == Access::Read { 0 } else { libc::PROT_WRITE };
    let of_pages = |flags| new_mapping(bytes, libc::PROT_READ | writes, libc::MAP_SHARED | flags, file);
    let base = of_pages(0)?;
    // SAFETY: the mapping is new, and nothing refers to it.
    if access == Access::WriteNow && unsafe { platform::populate(base.as_ptr(), bytes) }.is_err() {
        // SAFETY: as above.
        unsafe { unmap(base.as_ptr(), bytes) };
        return of_pages(platform::MAP_POPULATE);
    }
    Ok(base)
}

/// Maps zeroed memory that this process will share with the children that it forks. It stays for the process's life.
#[must_use]
pub fn share_with_children<T: SharedMemory>() -> Option<&'static T> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let base = new_mapping(size_of::<T>(), protection, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1).ok()?;
    // SAFETY: page-aligned, as large as `T`, zeroed, and never unmapped.
    Some(unsafe { view(base) })
}

fn new_mapping(
    bytes: usize,
    protection: libc::c_int,
    flags: libc::c_int,
    file: libc::c_int,
) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// The size of this machine's pages.
///
/// # Errors
/// `Unsupported`, with the size, where it is none that a queue file can be made for.
pub fn page_bytes() -> io::Result<u32> {
    // SAFETY: no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let known = u32::try_from(bytes).ok().filter(|bytes| is_page_size(*bytes));
    known.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, format!("memory pages of {bytes} bytes")))
}

/// Replaces whole pages with zeroed memory of this process alone. May be called in a signal handler.
///
/// # Errors
/// The system has no room, or the address is not that of a page.
///
/// # Safety
/// The pages lie in a mapping of the caller's, and every reader of them tolerates zeroes.
pub unsafe fn zero(from: *mut u8, bytes: usize) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the caller's promise.
    let base = unsafe { libc::mmap(from.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives the pages of a mapped file back to the system, for every process that maps it.
///
/// # Errors
/// The file system cannot, or the address is not that of a page.
///
/// # Safety
/// As [`zero`].
pub unsafe fn give_back(from: *mut u8, bytes: usize) -> io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { platform::give_back(from, bytes) }
}

/// A mapping that stays for the life of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lasting {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address of memory that every thread may use.
unsafe impl Send for Lasting {}

impl Lasting {
    /// Maps the first `bytes` of an allocated file, for reading and writing.
    ///
    /// # Errors
    /// The system call's error.
    pub fn map(file: &impl AsFd, bytes: usize) -> io::Result<Self> {
        map(file, bytes, Access::Write).map(|base| Self { base, bytes })
    }

    /// The address of the first byte.
    #[must_use]
    pub fn base(self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Views it as a page of type `T`.
    ///
    /// # Panics
    /// `T` is larger.
    #[must_use]
    pub fn view<T: SharedMemory>(self) -> &'static T {
        assert!(size_of::<T>() <= self.bytes, "a mapping of {} bytes", self.bytes);
        // SAFETY: page-aligned, large enough (asserted), and never unmapped.
        unsafe { view(self.base) }
    }
}

/// Ends a mapping.
///
/// # Safety
/// The mapping is the caller's, and no reference to it is left.
pub unsafe fn unmap(base: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(base.cast(), bytes) };
}

/// Views a mapping as a page of type `T`.
///
/// # Safety
/// The mapping is aligned for `T`, at least as large, and stays while the reference is used.
#[must_use]
pub unsafe fn view<'a, T: SharedMemory>(base: NonNull<u8>) -> &'a T {
    // SAFETY: the caller's promise; any bytes are a valid `T`.
    unsafe { base.cast().as_ref() }
}

/// A zeroed value in memory of this process.
#[must_use]
pub fn zeroed<T: SharedMemory>() -> Box<T> {
    // SAFETY: any bytes are a valid `T`.
    Box::new(unsafe { std::mem::zeroed() })
}

/// A type that may lie in memory that other processes change at any time: only atomics, for which any bytes are valid.
///
/// # Safety
/// The type must be as described. The macro [`crate::shared`] makes sure of it.
pub unsafe trait SharedMemory: 'static {}

// SAFETY: an atomic.
unsafe impl SharedMemory for AtomicU8 {}
// SAFETY: an atomic.
unsafe impl SharedMemory for AtomicU32 {}
// SAFETY: an atomic.
unsafe impl SharedMemory for AtomicI32 {}
// SAFETY: an atomic.
unsafe impl SharedMemory for AtomicU64 {}
// SAFETY: only such values, and nothing in between.
unsafe impl<T: SharedMemory, const N: usize> SharedMemory for [T; N] {}

/// Declares a struct, or one with `<const N: usize>`, that may lie in shared memory: `repr(C)`, and every field
/// [`SharedMemory`](crate::memory::SharedMemory).
#[macro_export]
macro_rules! shared {
    ($(#[$about:meta])* $see:vis struct $name:ident $(<const $n:ident: usize>)? {
        $($(#[$field_about:meta])* $field_see:vis $field:ident: $kind:ty),* $(,)?
    }) => {
        $(#[$about])*
        #[repr(C)]
        $see struct $name $(<const $n: usize>)? {
            $($(#[$field_about])* $field_see $field: $kind),*
        }

        // SAFETY: each field is, as the bounds say.
        unsafe impl $(<const $n: usize>)? $crate::memory::SharedMemory for $name $(<$n>)? where $($kind: $crate::memory::SharedMemory),* {}
    };
    ($(#[$about:meta])* $see:vis struct $name:ident $(<const $n:ident: usize>)? ($field_see:vis $kind:ty);) => {
        $(#[$about])*
        #[repr(C)]
        $see struct $name $(<const $n: usize>)? ($field_see $kind);

        // SAFETY: its field is, as the bound says.
        unsafe impl $(<const $n: usize>)? $crate::memory::SharedMemory for $name $(<$n>)? where $kind: $crate::memory::SharedMemory {}
    };
}
