//! The files of segments: which file it was, its lines one after the other, and single lines of it.
//!
//! Files are read, never mapped: one that another process cuts off is an error here, not a signal.

use crate::json::Token;
use segments::line::LONGEST_LINE;
use segments::segment::{Form, SegmentName};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

const BLOCK_BYTES: usize = 1 << 20;
/// Read ahead where neighbouring lines are wanted too.
const AHEAD_BYTES: usize = 256 << 10;
/// The longest header of a zstd frame.
const FRAME_HEADER_BYTES: usize = 18;

/// Which file a segment was read from, and how it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub compressed: bool,
    pub inode: u64,
    pub bytes: u64,
    pub modified_unix_nano: i64,
}

impl Identity {
    fn of(file: &File, compressed: bool) -> io::Result<Self> {
        let facts = file.metadata()?;
        let modified_unix_nano = facts.mtime().saturating_mul(1_000_000_000).saturating_add(facts.mtime_nsec());
        Ok(Self { compressed, inode: facts.ino(), bytes: facts.len(), modified_unix_nano })
    }
}

/// An open segment.
pub struct Source {
    pub file: File,
    pub identity: Identity,
}

/// Opens a file, not through a link, that must be a regular one.
///
/// # Errors
/// As the system says.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Opens a segment in the form that is there, the plain one first.
///
/// # Errors
/// As the system says; `NotFound` if there is none.
pub fn open(directory: &Path, name: &SegmentName) -> io::Result<Source> {
    let in_form = |form| -> io::Result<Source> {
        let file = open_regular(&directory.join(name.file_name(form)))?;
        let identity = Identity::of(&file, form == Form::Compressed)?;
        Ok(Source { file, identity })
    };
    // Plain a second time: it may have been compressed in between, not the other way round.
    match in_form(Form::Plain) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => in_form(Form::Compressed),
        other => other,
    }
}

impl Source {
    /// Returns the bytes of the lines, if they are known without reading them.
    #[must_use]
    pub fn content_bytes(&self) -> Option<u64> {
        if !self.identity.compressed {
            return Some(self.identity.bytes);
        }
        let mut head = [0; FRAME_HEADER_BYTES];
        let len = self.file.read_at(&mut head, 0).ok()?;
        zstd::zstd_safe::get_frame_content_size(&head[..len]).ok().flatten()
    }

    /// Returns the content from `offset` on.
    ///
    /// # Errors
    /// As the system says, or the compressed form is damaged.
    pub fn content(&self, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        let mut from = At { file: self.file.try_clone()?, at: 0 };
        if !self.identity.compressed {
            from.at = offset;
            return Ok(Box::new(from));
        }
        let mut content = zstd::stream::read::Decoder::new(from)?;
        io::copy(&mut content.by_ref().take(offset), &mut io::sink())?;
        Ok(Box::new(content))
    }
}

/// A file read from a place of its own.
struct At {
    file: File,
    at: u64,
}

impl Read for At {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let taken = self.file.read_at(into, self.at)?;
        self.at += taken as u64;
        Ok(taken)
    }
}

/// The lines of a segment, one after the other; goes on where the file has grown.
pub struct LineStream {
    from: Box<dyn Read + Send>,
    block: Vec<u8>,
    have: usize,
    /// Where the block begins in the content.
    pub offset: u64,
    in_long: bool,
}

impl LineStream {
    #[must_use]
    pub fn new(from: Box<dyn Read + Send>, offset: u64) -> Self {
        Self { from, block: vec![0; BLOCK_BYTES], have: 0, offset, in_long: false }
    }

    /// Reads once and passes the whole lines, each with its offset; None for one above the limit. Returns false at the
    /// end.
    ///
    /// # Errors
    /// As the system says, or the compressed form is damaged.
    pub fn pull(&mut self, mut take: impl FnMut(Option<&[u8]>, u64)) -> io::Result<bool> {
        if self.have == LONGEST_LINE {
            self.in_long = true;
            self.offset += self.have as u64;
            self.have = 0;
        } else if self.have == self.block.len() {
            self.block.resize((self.have * 2).min(LONGEST_LINE), 0);
        }
        let taken = match self.from.read(&mut self.block[self.have..]) {
            Ok(0) => return Ok(false),
            Ok(taken) => taken,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        };
        let end = self.have + taken;
        let mut begin = 0;
        // What was there before has no newline.
        while let Some(found) = memchr::memchr(b'\n', &self.block[begin.max(self.have)..end]) {
            let newline = begin.max(self.have) + found;
            let line = (!std::mem::take(&mut self.in_long)).then(|| &self.block[begin..newline]);
            take(line, self.offset + begin as u64);
            begin = newline + 1;
        }
        self.block.copy_within(begin..end, 0);
        self.have = end - begin;
        self.offset += begin as u64;
        if self.have < BLOCK_BYTES && self.block.len() > BLOCK_BYTES {
            self.block.truncate(BLOCK_BYTES);
            self.block.shrink_to_fit();
        }
        Ok(true)
    }

    /// Returns the bytes of an unfinished line.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.have
    }
}

/// Single lines of a segment, by offset.
pub struct Lines {
    source: Source,
    stream: Option<Box<dyn Read + Send>>,
    window: Vec<u8>,
    /// Where the window begins in the content.
    at: u64,
}

impl Lines {
    #[must_use]
    pub fn new(source: Source) -> Self {
        Self { source, stream: None, window: Vec::new(), at: 0 }
    }

    /// Returns the line of `len` bytes at `offset`; None if there is none now. Of a compressed segment offsets must rise.
    ///
    /// # Errors
    /// As the system says, or the compressed form is damaged.
    pub fn read(&mut self, offset: u64, len: usize, with_neighbours: bool) -> io::Result<Option<&[u8]>> {
        let wanted = len + 1;
        let has = offset >= self.at && offset + wanted as u64 <= self.at + self.window.len() as u64;
        if !has {
            let most = if with_neighbours || self.source.identity.compressed { AHEAD_BYTES } else { 0 };
            self.fill(offset, wanted.max(most))?;
        }
        let begin = (offset - self.at) as usize;
        let line = self.window.get(begin..begin + wanted);
        Ok(line.filter(|line| line[len] == b'\n').map(|line| &line[..len]))
    }

    /// Returns the line that begins at `offset`, if it ends within `most` bytes.
    ///
    /// # Errors
    /// As [`Lines::read`].
    pub fn until_newline(&mut self, offset: u64, most: usize) -> io::Result<Option<&[u8]>> {
        let end = self.at + self.window.len() as u64;
        if offset < self.at || offset + most as u64 > end {
            self.fill(offset, most)?;
        }
        let rest = self.window.get((offset - self.at) as usize..).unwrap_or_default();
        Ok(memchr::memchr(b'\n', rest).map(|len| &rest[..len]))
    }

    fn fill(&mut self, offset: u64, most: usize) -> io::Result<()> {
        if !self.source.identity.compressed {
            self.window.resize(most, 0);
            let taken = read_full(|into, at| self.source.file.read_at(into, offset + at as u64), &mut self.window)?;
            self.window.truncate(taken);
            self.at = offset;
            return Ok(());
        }
        if self.stream.is_none() || offset < self.at {
            self.stream = Some(self.source.content(0)?);
            self.window.clear();
            self.at = 0;
        }
        let Some(stream) = self.stream.as_mut() else { return Ok(()) };
        let kept = (offset - self.at).min(self.window.len() as u64) as usize;
        self.window.drain(..kept);
        self.at += kept as u64;
        if self.at < offset {
            self.at += io::copy(&mut stream.by_ref().take(offset - self.at), &mut io::sink())?;
        }
        let have = self.window.len();
        self.window.resize(most.max(have), 0);
        let taken = read_full(|into, _| stream.read(into), &mut self.window[have..])?;
        self.window.truncate(have + taken);
        if self.at < offset {
            self.at = offset; // the content ends before
        }
        Ok(())
    }
}

fn read_full(mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>, into: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < into.len() {
        match read(&mut into[have..], have) {
            Ok(0) => break,
            Ok(taken) => have += taken,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

/// Returns the `crc32` that a footer states.
#[must_use]
pub fn footer_crc32(line: &[u8]) -> Option<u32> {
    let mut found = None;
    let _ = crate::json::members(line, |key, _, token| {
        if let (b"crc32", Token::Text { raw, .. }) = (key, token) {
            found = std::str::from_utf8(raw).ok().and_then(|text| u32::from_str_radix(text, 16).ok());
        }
    });
    found
}
