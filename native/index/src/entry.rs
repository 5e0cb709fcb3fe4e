//! A segment with its index, and whether both still belong together.

use crate::image::Image;
use crate::source::{self, Identity, Lines, Source};
use segments::segment::SegmentName;
use segments::segment_lock;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A segment, and its index if there is one.
pub struct Entry {
    pub name: SegmentName,
    /// The name as text, as it stands in keys.
    pub text: Arc<str>,
    pub directory: Arc<Path>,
    pub disk_bytes: u64,
    /// The file as it was when the index was made or recognised.
    pub identity: Identity,
    pub image: Option<Image>,
    pub is_live: bool,
    /// The bytes before the part that the index is of; 0: it is of all the segment.
    pub unread_bytes: u64,
    /// A query could not use it: it is made anew.
    pub is_damaged: AtomicBool,
}

/// Why lines of a segment cannot be had.
pub enum NoLines {
    /// The segment is gone or another one.
    Gone,
    System(io::Error),
}

impl Entry {
    /// Returns whether the index is of the segment's end only, until the whole one is made.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.unread_bytes > 0
    }

    /// Returns the index if it is of all the segment.
    #[must_use]
    pub fn whole(&self) -> Option<&Image> {
        self.image.as_ref().filter(|_| self.unread_bytes == 0)
    }

    /// Opens the segment for reading lines.
    ///
    /// # Errors
    /// It is gone, or is not what was indexed.
    pub fn lines(&self) -> Result<Lines, NoLines> {
        let source = source::open(&self.directory, &self.name).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NoLines::Gone,
            _ => NoLines::System(error),
        })?;
        let content = self.image.as_ref().map_or(0, |image| image.facts.content_bytes);
        let same = if source.identity.compressed == self.identity.compressed {
            // A file that has grown has a writer, also one without the lock: a copy that goes on, for example.
            let grown = self.is_live || source.identity.bytes > self.identity.bytes;
            source.identity.inode == self.identity.inode
                && (source.identity == self.identity || grown && source.identity.bytes >= content)
        } else {
            is_compressed_since(&source, &self.identity, content)
        };
        if same { Ok(Lines::new(source)) } else { Err(NoLines::Gone) }
    }
}

/// Whether a compressed file holds what the plain one did: compression keeps the time, and states the length.
#[must_use]
pub fn is_compressed_since(now: &Source, then: &Identity, content_bytes: u64) -> bool {
    now.identity.compressed
        && !then.compressed
        && now.identity.modified_unix_nano == then.modified_unix_nano
        && now.content_bytes() == Some(content_bytes)
}

/// All segments at one moment, in the order of their beginning.
pub type Snapshot = Arc<Vec<Arc<Entry>>>;

/// Whether the file is still what the entry's index was made of.
#[must_use]
pub fn is_current(entry: &Entry) -> bool {
    let image = entry.whole().filter(|_| !entry.is_damaged.load(Ordering::Relaxed));
    let Some(image) = image else { return false };
    source::open(&entry.directory, &entry.name).is_ok_and(|source| {
        source.identity == entry.identity && !(entry.is_live && is_sealed(&source))
            || !entry.is_live && is_compressed_since(&source, &entry.identity, image.facts.content_bytes)
    })
}

/// Whether no writer holds the segment.
#[must_use]
pub fn is_sealed(source: &Source) -> bool {
    source.identity.compressed || segment_lock::try_lock(&source.file).unwrap_or(false)
}
