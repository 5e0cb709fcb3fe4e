//! The cache directory: one file for each segment, only for this user, written whole or not at all.

use crate::image::{Image, Unreadable};
use segments::segment::SegmentName;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

const EXTENSION: &str = ".index";
const TEMPORARY: &str = ".tmp";
const FOLDER: &str = "inference-logging";
/// A file that is still unfinished then was left by a process that died.
const LEFT_OVER: Duration = Duration::from_secs(3600);
const DIGEST_DIGITS: usize = 32;
const WRITE_BYTES: usize = 1 << 20;

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The files of one directory of segments.
pub struct Cache {
    directory: PathBuf,
}

/// Returns `$XDG_CACHE_HOME/inference-logging`, or `~/.cache/inference-logging`; None if neither is an absolute path.
#[must_use]
pub fn default_root() -> Option<PathBuf> {
    let of = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache"))).map(|cache| cache.join(FOLDER))
}

/// Returns the real path of a directory that can be read; the plain one of a directory that does not exist yet.
///
/// # Errors
/// It cannot be read, or is no directory.
pub fn real(directory: &Path) -> io::Result<PathBuf> {
    match fs::read_dir(directory) {
        Ok(_) => directory.canonicalize(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::path::absolute(directory),
        Err(error) => Err(error),
    }
}

impl Cache {
    /// Opens the place of a directory of segments below `root`, and creates it.
    ///
    /// # Errors
    /// It cannot be created, is a link, or is another user's.
    pub fn open(root: &Path, segments: &Path) -> io::Result<Self> {
        let real = real(segments)?;
        let digest = blake3::hash(real.as_os_str().as_bytes()).to_hex();
        let directory = root.join(&digest[..DIGEST_DIGITS]);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let facts = fs::symlink_metadata(&directory)?;
        // SAFETY: it takes nothing and cannot fail.
        let user = unsafe { libc::geteuid() };
        if !facts.is_dir() || facts.uid() != user {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "must be a directory of this user, and no link",
            ));
        }
        if facts.mode() & 0o077 != 0 {
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
        }
        Ok(Self { directory })
    }

    /// Returns where the files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, segment: &str) -> PathBuf {
        self.directory.join(format!("{segment}{EXTENSION}"))
    }

    /// Opens the index of a segment.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn load(&self, segment: &str) -> Result<Image, Unreadable> {
        let image = Image::open(&self.path(segment))?;
        if image.facts.segment == segment { Ok(image) } else { Err(Unreadable::Damaged) }
    }

    /// Writes an index that is in memory, and opens it as a file.
    ///
    /// # Errors
    /// As the system says; then there is no new file.
    pub fn store(&self, image: &Image) -> Result<Image, Unreadable> {
        let segment = &image.facts.segment;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.directory.join(format!(".{segment}.{}.{number}{TEMPORARY}", std::process::id()));
        let written = self.write(image, &temporary).and_then(|()| fs::rename(&temporary, self.path(segment)));
        if let Err(error) = written {
            // The first error is the one to report.
            let _ = fs::remove_file(&temporary);
            return Err(error.into());
        }
        self.load(segment)
    }

    fn write(&self, image: &Image, path: &Path) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut out = BufWriter::with_capacity(WRITE_BYTES, file);
        image.write(&mut out)?;
        out.flush()
    }

    /// Removes the files of segments that are not there any more, and what dead processes left unfinished.
    pub fn clean(&self, is_there: impl Fn(&SegmentName) -> bool) {
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            let segment = name.strip_suffix(EXTENSION).and_then(SegmentName::parse);
            let is_gone = segment.is_some_and(|segment| !is_there(&segment));
            let is_left = name.starts_with('.') && name.ends_with(TEMPORARY) && is_old(&entry);
            if is_gone || is_left {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn is_old(entry: &fs::DirEntry) -> bool {
    let age =
        entry.metadata().and_then(|facts| facts.modified()).map(|modified| SystemTime::now().duration_since(modified));
    matches!(age, Ok(Ok(age)) if age > LEFT_OVER)
}
