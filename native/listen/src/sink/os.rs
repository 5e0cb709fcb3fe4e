//! Every call of the sinks to the operating system, behind one small trait.
//!
//! Each method is one or two system calls and decides nothing; what an error means is decided by the callers. A test replaces
//! some of them to produce full disks, failing files, short and interrupted writes.

use queue::{platform, system};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::time::Duration;

/// What `fstat` says about an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Size in bytes.
    pub len: u64,
    /// Directory entries that name the file: 0 once it was removed, even while it is open.
    pub links: u64,
    /// A pipe, socket or terminal: writes can block for ever and cannot be taken back.
    pub is_stream: bool,
}

/// The system calls of the sinks, which [`RealOs`] leaves as they are. Methods take `&mut self` so that a test can count and
/// fail them.
pub trait Os: Send {
    /// Create `dir` and its missing parents, mode 0700; an existing one is left as it is.
    fn create_dir(&mut self, dir: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    /// Create `path` for appending, mode 0600; fails if the name exists, even as a link.
    fn create_segment(&mut self, path: &Path) -> io::Result<File> {
        // The standard library adds O_CLOEXEC.
        OpenOptions::new().append(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
    }

    /// Make one `write` call; may take fewer bytes than given.
    fn write(&mut self, mut file: &File, bytes: &[u8]) -> io::Result<usize> {
        file.write(bytes)
    }

    /// Wait until a write would take something; false when `timeout` has passed.
    fn wait_writable(&mut self, file: &File, timeout: Duration) -> io::Result<bool> {
        // A closed or failed stream also ends the wait: the write then returns the error.
        system::wait_writable(file, timeout)
    }

    /// Cut the file to `len` bytes.
    fn truncate(&mut self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    /// Return size and links of an open file.
    fn status(&mut self, file: &File) -> io::Result<FileStatus> {
        let meta = file.metadata()?;
        let kind = meta.file_type();
        let is_stream = kind.is_fifo() || kind.is_socket() || kind.is_char_device();
        Ok(FileStatus { len: meta.len(), links: meta.nlink(), is_stream })
    }

    /// Remove the name `path`.
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    /// Point the symlink `link` at `target` in one step, by way of the name `temporary`.
    ///
    /// Anything else with the name `link` is left alone and reported as `AlreadyExists`.
    fn replace_link(&mut self, target: &Path, link: &Path, temporary: &Path) -> io::Result<()> {
        if fs::symlink_metadata(link).is_ok_and(|meta| !meta.is_symlink()) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match fs::remove_file(temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => symlink(target, temporary)?,
        }
        fs::rename(temporary, link).inspect_err(|_| {
            // The rename's own error is the one to report.
            let _ = fs::remove_file(temporary);
        })
    }

    /// Begin to write the dirty pages of `range` to the device, without waiting for them.
    fn start_writeback(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        let (from, len) = offsets(&range);
        platform::start_writeback(file.as_fd(), from, len)
    }

    /// Wait until `range` is on the device, then drop it from the page cache.
    fn finish_writeback(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        let (from, len) = offsets(&range);
        platform::finish_writeback(file.as_fd(), from, len)
    }

    /// Wait until what was written to the file, and its size, is on the device.
    fn sync_data(&mut self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    /// Wait until the names in `dir` are on the device.
    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        match File::open(dir)?.sync_all() {
            // Some file systems have nothing to sync there and return this error.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            other => other,
        }
    }
}

/// The kernel itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealOs;

impl Os for RealOs {}

/// Return offset and length as the kernel's signed type; no file is longer than its range.
fn offsets(range: &Range<u64>) -> (i64, i64) {
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    (signed(range.start), signed(range.end.saturating_sub(range.start)))
}
