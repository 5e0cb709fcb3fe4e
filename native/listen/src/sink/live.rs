//! The segment being written: appends whole lines or cuts back to them, and counts.
//!
//! Invariants: after every call the file ends behind a `\n`, or [`Fate`] says that it must not be written again; `len`
//! is the file's size; the lines that [`Stopped::whole`] counts are in the file.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::os::Os;
use super::whole_lines;
use segments::segment::LiveLock;
use segments::segment_account::SegmentAccount;

/// The consequence of a failed append for the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The condition is temporary (a full disk): continue in this segment.
    Usable,
    /// The file fails but ends behind a whole line: try a footer, then begin a new one.
    Failed,
    /// The end of the file is torn or unknown: nothing may follow it.
    Torn,
    /// The file has no name any more: its lines are lost.
    Removed,
}

/// An append that stopped early.
#[derive(Debug)]
pub(super) struct Stopped {
    /// Bytes of whole lines that certainly stand in the file.
    pub(super) whole: usize,
    pub(super) fate: Fate,
    pub(super) source: io::Error,
}

/// An open segment.
#[derive(Debug)]
pub(super) struct LiveSegment {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    pub(super) number: u64,
    /// When it was begun, on the monotonic clock.
    pub(super) begun: Duration,
    /// Size of the file.
    pub(super) len: u64,
    /// Record lines and their bytes, for the footer.
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) account: SegmentAccount,
    /// Shows other processes that the segment is live.
    _lock: LiveLock,
}

impl LiveSegment {
    pub(super) fn new(file: File, path: PathBuf, number: u64, begun: Duration) -> Self {
        let file = Arc::new(file);
        let _lock = LiveLock::hold(Arc::clone(&file));
        Self { file, path, number, begun, len: 0, records: 0, bytes: 0, account: SegmentAccount::default(), _lock }
    }

    /// Append `lines`, or as many whole ones as possible.
    pub(super) fn append(&mut self, os: &mut impl Os, lines: &[u8]) -> Result<(), Stopped> {
        let (taken, stop) = write_fully(os, &self.file, lines);
        // Checked after the write: if the file was removed meanwhile, its lines are written again into a new one, while
        // the listener still has them.
        let size = match os.status(&self.file) {
            Ok(status) if status.links > 0 => status.len,
            Ok(_) => return Err(removed(io::ErrorKind::NotFound.into())),
            Err(error) => return Err(removed(error)),
        };
        match stop {
            None => {
                self.len = size;
                Ok(())
            }
            Some(source) => Err(self.cut_back(os, &lines[..taken], size, source)),
        }
    }

    /// Count lines in the file as its records.
    pub(super) fn count(&mut self, records: u64, lines: &[u8]) {
        self.records += records;
        self.bytes += lines.len() as u64;
        self.account.add(lines, records);
    }

    /// Cut everything behind `len` off; false if that fails.
    pub(super) fn cut_to(&mut self, os: &mut impl Os, len: u64) -> bool {
        let cut = self.len == len || os.truncate(&self.file, len).is_ok();
        if cut {
            self.len = len;
        }
        cut
    }

    /// Cut the unfinished line off the end of the file, whose size is `size` after `taken` was added.
    fn cut_back(&mut self, os: &mut impl Os, taken: &[u8], size: u64, source: io::Error) -> Stopped {
        let expected = self.len + taken.len() as u64;
        if size < expected {
            // Cut from outside between two calls: it is unknown which lines are there.
            return Stopped { whole: 0, fate: Fate::Torn, source };
        }
        let whole = whole_lines(taken);
        let end = self.len + whole as u64;
        let clean = whole == taken.len() || (size == expected && os.truncate(&self.file, end).is_ok());
        self.len = if clean { size - (taken.len() - whole) as u64 } else { size };
        let fate = match (clean, passes(&source)) {
            (false, _) => Fate::Torn,
            (true, true) => Fate::Usable,
            (true, false) => Fate::Failed,
        };
        Stopped { whole, fate, source }
    }
}

fn removed(source: io::Error) -> Stopped {
    Stopped { whole: 0, fate: Fate::Removed, source }
}

/// Return whether the same file can take more later; after any other error the file is given up.
fn passes(error: &io::Error) -> bool {
    const PASSING: [i32; 6] = [libc::ENOSPC, libc::EDQUOT, libc::EROFS, libc::EAGAIN, libc::ENOMEM, libc::ENOBUFS];
    error.raw_os_error().is_some_and(|code| PASSING.contains(&code))
}

/// Write until all is taken or an error comes; interrupted and short writes go on.
fn write_fully(os: &mut impl Os, file: &File, bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut taken = 0;
    while taken < bytes.len() {
        match os.write(file, &bytes[taken..]) {
            Ok(0) => return (taken, Some(io::ErrorKind::WriteZero.into())),
            Ok(n) => taken += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (taken, Some(error)),
        }
    }
    (taken, None)
}
