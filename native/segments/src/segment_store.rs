//! Every call of the housekeeper to the operating system, behind one small trait, and the inventory of a directory.
//!
//! Each method is one or two system calls and decides nothing. A test wraps them to produce full disks, and processes that
//! die between any two calls.
//!
//! Only names that [`SegmentName::parse_file`] knows, of one prefix, and only regular files, reach the modules above: a
//! symbolic link or a foreign file cannot be compressed or removed, because it is not in the inventory.

use crate::segment::{self, Form, SegmentName};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The facts about a file that is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    pub bytes: u64,
    /// When it was last written, by the file system; compression keeps it.
    pub modified_unix_nano: u64,
}

/// The system calls of the housekeeper, which [`RealStore`] leaves as they are. Methods take `&mut self` so that a test can count and fail them.
pub trait Store: Send {
    /// List the names in `dir`.
    fn list(&mut self, dir: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(dir)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.collect())
    }

    /// Examine a file; None if it is gone, or not a regular file.
    fn facts(&mut self, path: &Path) -> io::Result<Option<FileFacts>> {
        let meta = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let nano = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        let modified_unix_nano = u64::try_from(nano.max(0)).unwrap_or(u64::MAX);
        Ok(meta.is_file().then_some(FileFacts { bytes: meta.len(), modified_unix_nano }))
    }

    /// Open a file for reading, not through a link.
    fn open(&mut self, path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
    }

    /// Lock a segment that has no writer; false while it has one.
    fn try_lock(&mut self, file: &File) -> io::Result<bool> {
        segment::try_lock(file)
    }

    /// Read up to the length of `into`.
    fn read(&mut self, mut file: &File, into: &mut [u8]) -> io::Result<usize> {
        file.read(into)
    }

    /// Create a new file at `path`, with the permissions and, if allowed, the owner of `like`.
    fn create(&mut self, path: &Path, like: &File) -> io::Result<File> {
        let meta = like.metadata()?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        // Its readers stay the same. Only root can give files away; other users own the files that they compress.
        let _ = std::os::unix::fs::fchown(&file, Some(meta.uid()), Some(meta.gid()));
        file.set_permissions(meta.permissions())?;
        Ok(file)
    }

    /// Make one `write` call.
    fn write(&mut self, mut file: &File, bytes: &[u8]) -> io::Result<usize> {
        file.write(bytes)
    }

    /// Wait until what was written is on the device.
    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    /// Give `file` the time of the last write of `like`.
    fn copy_time(&mut self, file: &File, like: &File) -> io::Result<()> {
        file.set_modified(like.metadata()?.modified()?)
    }

    /// Give a file another name, in one step.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Wait until the names in `dir` are on the device.
    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    /// Remove the name `path`.
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

/// A file with the interface of the standard library's readers, read through the store.
pub(crate) struct Reading<'a, S: Store> {
    pub store: &'a mut S,
    pub file: &'a File,
}

impl<S: Store> Read for Reading<'_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.store.read(self.file, into)
    }
}

/// The kernel itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealStore;

impl Store for RealStore {}

/// A segment in a directory: plain, compressed, or both if its compression was interrupted.
#[derive(Clone, Debug)]
pub struct Stored {
    pub name: SegmentName,
    pub plain: Option<FileFacts>,
    pub compressed: Option<FileFacts>,
    /// Names of the shippers that have shipped it.
    pub shipped: Vec<String>,
}

impl Stored {
    /// Bytes of all its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files().map(|(_, facts)| facts.bytes).sum()
    }

    /// The time of its last line. Not before its beginning: a clock or a copy can set the times of files back, but not
    /// names.
    #[must_use]
    pub(crate) fn last_written_unix_nano(&self) -> u64 {
        let modified = self.files().map(|(_, facts)| facts.modified_unix_nano).max().unwrap_or(0);
        modified.max(self.name.begun_unix_milli.saturating_mul(1_000_000))
    }

    /// Its files that exist.
    pub fn files(&self) -> impl Iterator<Item = (Form, FileFacts)> {
        let of = |form, facts: Option<FileFacts>| facts.map(|facts| (form, facts));
        [of(Form::Plain, self.plain), of(Form::Compressed, self.compressed)].into_iter().flatten()
    }
}

/// The segments of one prefix in a directory.
#[derive(Debug, Default)]
pub struct Inventory {
    /// In the order of their beginning.
    pub segments: Vec<Stored>,
    /// Unfinished files of compressions that were interrupted, and marks of segments that are gone.
    pub leftovers: Vec<PathBuf>,
}

impl Inventory {
    /// Lists the files of `prefix` in `dir`.
    ///
    /// # Errors
    /// The directory cannot be listed; a file that cannot be examined is left out.
    pub fn take(store: &mut impl Store, dir: &Path, prefix: &str) -> io::Result<Self> {
        let mut found = BTreeMap::<SegmentName, Stored>::new();
        let (mut leftovers, mut marks) = (Vec::new(), Vec::new());
        for file in store.list(dir)? {
            if let Some((name, shipper)) = SegmentName::parse_marker(&file).filter(|(name, _)| name.prefix == prefix) {
                marks.push((name, shipper));
                continue;
            }
            let Some((name, form)) = SegmentName::parse_file(&file).filter(|(name, _)| name.prefix == prefix) else {
                continue;
            };
            let path = dir.join(&file);
            let Ok(Some(facts)) = store.facts(&path) else { continue };
            if form == Form::Temporary {
                leftovers.push(path);
                continue;
            }
            let new = || Stored { name: name.clone(), plain: None, compressed: None, shipped: Vec::new() };
            let stored = found.entry(name.clone()).or_insert_with(new);
            match form {
                Form::Plain => stored.plain = Some(facts),
                _ => stored.compressed = Some(facts),
            }
        }
        for (name, shipper) in marks {
            match found.get_mut(&name) {
                Some(stored) => stored.shipped.push(shipper),
                None => leftovers.push(dir.join(name.marker(&shipper))),
            }
        }
        Ok(Self { segments: found.into_values().collect(), leftovers })
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(Stored::bytes).sum()
    }
}
