//! The place of a write, as the control page names it: trusted only if it is plausible.
//!
//! It must be a segment by its name, a regular file of the same owner, not behind a link, whose first line is the
//! header that belongs to the name; and the offset must be the beginning of a line behind that. A segment of that name
//! in the sink's own directory is preferred, whatever the rest of the path: a directory may have been moved.

use crate::sink::Segments;
use queue::system;
use segments::chain::{self, Value};
use segments::compress;
use segments::line::{self, LinePrefix};
use segments::segment::{self, Form, SegmentName};
use segments::segment_store::{Inventory, RealStore};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// More than any batch: further bytes were written by something else.
pub const LONGEST_BATCH: u64 = 1 << 30;
/// Longer than any header: it names a queue directory.
const HEADER_BYTES: usize = 64 << 10;
/// Longer than any footer except those of thousands of processes; a cut in such a footer is not noticed.
const FOOTER_BYTES: u64 = 1 << 20;

/// A segment that can be the published one.
pub enum PublishedPlace {
    Plain(Plain),
    /// A housekeeper has compressed it already: whole lines from the offset on, since a compressed segment has no
    /// others.
    Compressed(Vec<u8>),
}

/// A segment, open for reading.
pub struct Plain {
    pub path: PathBuf,
    pub name: SegmentName,
    pub offset: u64,
    file: File,
    /// The sink's directory, if the segment is one of that sink.
    own: Option<File>,
}

impl PublishedPlace {
    /// Opens the segment that was published.
    ///
    /// # Errors
    /// `NotFound`; `InvalidData` with a reason if it cannot be the published one; as the system says.
    pub fn open(path: &Path, offset: u64, own: Option<Segments<'_>>) -> io::Result<Self> {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(SegmentName::parse);
        let name = name.ok_or_else(|| unbelievable("the control page names it, and it is no segment"))?;
        if let Some(own) = own
            && let Some(place) = Self::in_own(&name, offset, own)?
        {
            return Ok(place);
        }
        let file = match read_only(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return compressed(path.parent().unwrap_or(Path::new("")), &name, offset);
            }
            other => other?,
        };
        Plain { path: path.to_owned(), name, offset, file, own: None }.checked(None).map(Self::Plain)
    }

    fn in_own(name: &SegmentName, offset: u64, own: Segments<'_>) -> io::Result<Option<Self>> {
        let directory = match OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(own.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let path = own.directory.join(name.to_string());
        match system::open_at(&directory, &name.to_string(), libc::O_RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match compressed(own.directory, name, offset) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                other => other.map(Some),
            },
            Err(error) => Err(error),
            Ok(file) => {
                let owner = directory.metadata()?.uid();
                let own = (name.prefix == own.prefix).then_some(directory);
                let plain = Plain { path, name: name.clone(), offset, file, own };
                plain.checked(Some(owner)).map(Self::Plain).map(Some)
            }
        }
    }
}

impl Plain {
    fn checked(self, owner: Option<u32>) -> io::Result<Self> {
        let facts = self.file.metadata()?;
        let me = system::user();
        if !facts.is_file() {
            return Err(unbelievable("it is no regular file"));
        }
        if facts.uid() != me && Some(facts.uid()) != owner {
            return Err(unbelievable("it belongs to another user"));
        }
        let header = self.header_bytes()?;
        let mut before = [0];
        let is_line = self.offset >= header
            && (facts.len() < self.offset || {
                self.file.read_exact_at(&mut before, self.offset - 1)?;
                before == *b"\n"
            });
        if is_line { Ok(self) } else { Err(unbelievable("no line begins where the control page says that one does")) }
    }

    /// The end of this segment's own header.
    fn header_bytes(&self) -> io::Result<u64> {
        let mut beginning = vec![0; HEADER_BYTES];
        let taken = self.file.read_at(&mut beginning, 0)?;
        let line = beginning[..taken].split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_own = |header: serde_json::Value| {
            header["event_name"] == "segment.header"
                && header["boot_id"] == self.name.boot_id.as_str()
                && header["segment"] == self.name.number
                && header.get("pid").is_none()
        };
        if line.ends_with(b"\n") && line::parse(line).is_ok_and(is_own) {
            return Ok(line.len() as u64);
        }
        Err(unbelievable("its first line is not its header"))
    }

    /// How many bytes are behind the offset.
    pub fn bytes_behind(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len().saturating_sub(self.offset))
    }

    /// Reads the bytes behind the offset.
    pub fn read_behind(&self) -> io::Result<Vec<u8>> {
        let mut lines = vec![0; usize::try_from(self.bytes_behind()?.min(LONGEST_BATCH)).unwrap_or(0)];
        let mut taken = 0;
        while taken < lines.len() {
            match self.file.read_at(&mut lines[taken..], self.offset + taken as u64) {
                Ok(0) => break,
                Ok(read) => taken += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        lines.truncate(taken);
        Ok(lines)
    }

    /// Whether a process is writing it.
    pub fn has_writer(&self) -> bool {
        !segment::try_lock(&self.file).unwrap_or(true)
    }

    /// Why nothing may ever be cut off it, if so.
    pub fn why_whole(&self) -> io::Result<Option<&'static str>> {
        Ok(match () {
            () if self.own.is_none() => Some("it is no segment of this sink's directory and prefix"),
            () if self.file.metadata()?.nlink() != 1 => Some("the file has another name besides"),
            () if self.is_sealed()? => Some("it has a footer"),
            () => None,
        })
    }

    /// Whether its last whole line is its footer.
    fn is_sealed(&self) -> io::Result<bool> {
        let len = self.file.metadata()?.len();
        let begin = len.saturating_sub(FOOTER_BYTES);
        let mut end = vec![0; (len - begin) as usize];
        self.file.read_exact_at(&mut end, begin)?;
        let whole = crate::sink::whole_lines(&end);
        let last = end[..whole].split_inclusive(|byte| *byte == b'\n').next_back().unwrap_or_default();
        Ok(LinePrefix::read(last).is_some_and(|head| head.process.is_none() && head.event == b"segment.footer"))
    }

    /// Whether the chain of another segment continues from one of these lines.
    pub fn is_followed(&self, lines: &[u8], own: Segments<'_>) -> io::Result<bool> {
        let values: Vec<Value> = lines.split_inclusive(|byte| *byte == b'\n').filter_map(chain::value_of).collect();
        if values.is_empty() {
            return Ok(false);
        }
        let others = Inventory::take(&mut RealStore, own.directory, own.prefix)?.segments;
        let begins = |stored: &segments::segment_store::Stored| {
            let path = |form| own.directory.join(stored.name.file_name(form));
            match stored.plain {
                Some(_) => read_only(&path(Form::Plain)).and_then(|file| {
                    let mut beginning = vec![0; HEADER_BYTES];
                    let taken = file.read_at(&mut beginning, 0)?;
                    beginning.truncate(taken);
                    Ok(beginning)
                }),
                None => compress::read_lines(&path(Form::Compressed), 0, HEADER_BYTES as u64),
            }
        };
        let headers = others.iter().filter(|stored| stored.name != self.name).filter_map(|stored| begins(stored).ok());
        let mut previous = headers.filter_map(|beginning| {
            let line = beginning.split(|byte| *byte == b'\n').next()?;
            chain::of_header(line).map(|(_, _, previous)| previous)
        });
        Ok(previous.any(|previous| values.contains(&previous)))
    }

    /// Cuts off everything behind `len`; with `sync`, on the device too.
    ///
    /// # Errors
    /// `InvalidData` if the name belongs to another file by now; as the system says.
    pub fn cut(&self, len: u64, sync: bool) -> io::Result<()> {
        let Some(directory) = &self.own else { return Err(unbelievable("it is not of this sink")) };
        let file = system::open_at(directory, &self.name.to_string(), libc::O_WRONLY)?;
        let (one, other) = (self.file.metadata()?, file.metadata()?);
        if (one.dev(), one.ino()) != (other.dev(), other.ino()) {
            return Err(unbelievable("another file has its name by now"));
        }
        file.set_len(len)?;
        if sync { file.sync_data() } else { Ok(()) }
    }
}

/// The lines of the compressed form from `offset` on.
fn compressed(directory: &Path, name: &SegmentName, offset: u64) -> io::Result<PublishedPlace> {
    let path = directory.join(name.file_name(Form::Compressed));
    let Some(before) = offset.checked_sub(1) else { return Err(unbelievable("no line begins there")) };
    let lines = compress::read_lines(&path, before, LONGEST_BATCH)?;
    match lines.split_first() {
        Some((b'\n', rest)) => Ok(PublishedPlace::Compressed(rest.to_vec())),
        None => Ok(PublishedPlace::Compressed(Vec::new())),
        Some(_) => Err(unbelievable("no line begins where the control page says that one does")),
    }
}

fn read_only(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

fn unbelievable(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
