//! The index of one segment: what is known of its blocks, and where their bytes are, in a file or in memory.
//!
//! ```text
//! magic (8)
//! bytes of the blocks, one after the other
//! dictionaries: texts with their lengths
//! directory: which segment and which file it was made of, resource, blocks, dictionaries
//! trailer: where the directory begins (8), its length (4), its CRC-32 (4), version (4), magic (8)
//! ```
//!
//! Whatever is wrong in a file is [`Damaged`]; then the index is made anew.

use crate::block::{Block, Decoded};
use crate::builder::{Builder, Dictionary};
use crate::bytes::{Damaged, Put, Take};
use crate::columns::COLUMNS;
use crate::source::{self, Identity};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"INFERLIX";
/// Raised with every change of the format; [`COLUMNS`] is part of it.
pub const VERSION: u32 = 1;
const TRAILER_BYTES: usize = 28;
/// Above what any segment needs.
const MOST_DIRECTORY_BYTES: usize = 64 << 20;

/// The place of a column's dictionary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// The column is not indexed in this segment.
    pub is_full: bool,
    at: u64,
    bytes: u32,
    crc32: u32,
    pub count: u32,
}

/// What the index of a segment says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    pub segment: String,
    pub identity: Identity,
    /// Bytes of the content that were read: whole lines.
    pub content_bytes: u64,
    pub rows: u64,
    pub unreadable: u64,
    /// Checksum of the records, as a footer states it.
    pub crc32: Option<u32>,
    pub resource: Vec<(String, String)>,
}

enum Store {
    File(PathBuf),
    Memory { blocks: Vec<Arc<[u8]>>, texts: Vec<u8> },
}

/// The index of one segment.
pub struct Image {
    pub facts: Facts,
    /// Each with where its bytes begin in the file.
    pub blocks: Vec<(u64, Block)>,
    pub texts: Vec<Texts>,
    store: Store,
}

/// Why a part of an index cannot be had.
#[derive(Debug)]
pub enum Unreadable {
    Damaged,
    System(io::Error),
}

impl From<Damaged> for Unreadable {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl Image {
    /// Makes an index in memory of what a builder has.
    #[must_use]
    pub fn in_memory(builder: &Builder, facts: Facts) -> Self {
        let mut blocks: Vec<(u64, Block)> = builder.blocks.iter().map(|(block, _)| (0, block.clone())).collect();
        let mut bytes: Vec<Arc<[u8]>> = builder.blocks.iter().map(|(_, bytes)| Arc::clone(bytes)).collect();
        if let Some((block, open)) = builder.open_block() {
            blocks.push((0, block));
            bytes.push(open.into());
        }
        let (texts, places) = write_texts(builder.dictionaries(), 0);
        Self { facts, blocks, texts: places, store: Store::Memory { blocks: bytes, texts } }
    }

    /// Writes it as a file; the bytes must all be in memory.
    ///
    /// # Errors
    /// As the system says.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let Store::Memory { blocks: bytes, texts } = &self.store else { return Err(io::ErrorKind::Unsupported.into()) };
        to.write_all(MAGIC)?;
        let mut at = MAGIC.len() as u64;
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for ((_, block), bytes) in self.blocks.iter().zip(bytes) {
            to.write_all(bytes)?;
            blocks.push((at, block));
            at += bytes.len() as u64;
        }
        to.write_all(texts)?;
        let directory = self.directory(&blocks, at);
        to.write_all(&directory)?;
        let mut trailer = Vec::with_capacity(TRAILER_BYTES);
        trailer.put_u64(at + texts.len() as u64);
        trailer.put_u32(directory.len() as u32);
        trailer.put_u32(crc32fast::hash(&directory));
        trailer.put_u32(VERSION);
        trailer.extend_from_slice(MAGIC);
        to.write_all(&trailer)
    }

    fn directory(&self, blocks: &[(u64, &Block)], texts_at: u64) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(table());
        write_facts(&mut out, &self.facts);
        out.put_u32(blocks.len() as u32);
        for (at, block) in blocks {
            out.put_u64(*at);
            block.write(&mut out);
        }
        for texts in &self.texts {
            out.put_u8(u8::from(texts.is_full));
            out.put_u64(texts_at + texts.at);
            out.put_u32(texts.bytes);
            out.put_u32(texts.crc32);
            out.put_u32(texts.count);
        }
        out
    }

    /// Opens the index that a file has.
    ///
    /// # Errors
    /// There is none, it cannot be read, or it is damaged or of another version.
    pub fn open(path: &Path) -> Result<Self, Unreadable> {
        let file = source::open_regular(path)?;
        let len = file.metadata()?.len();
        let trailer_at = len.checked_sub(TRAILER_BYTES as u64).ok_or(Damaged)?;
        let mut trailer = [0; TRAILER_BYTES];
        file.read_exact_at(&mut trailer, trailer_at).map_err(cut_off)?;
        let mut from = Take(&trailer);
        let (at, bytes, crc32, version) = (from.u64()?, from.u32()?, from.u32()?, from.u32()?);
        let is_ours = version == VERSION && from.bytes(MAGIC.len())? == MAGIC;
        if !is_ours || bytes as usize > MOST_DIRECTORY_BYTES || at.checked_add(u64::from(bytes)) != Some(trailer_at) {
            return Err(Unreadable::Damaged);
        }
        let mut directory = vec![0; bytes as usize];
        file.read_exact_at(&mut directory, at).map_err(cut_off)?;
        if crc32fast::hash(&directory) != crc32 {
            return Err(Unreadable::Damaged);
        }
        Ok(Self::read(&directory, at, Store::File(path.to_owned()))?)
    }

    fn read(directory: &[u8], end: u64, store: Store) -> Result<Self, Damaged> {
        let mut from = Take(directory);
        if from.u32()? != table() {
            return Err(Damaged);
        }
        let facts = read_facts(&mut from)?;
        let mut blocks = Vec::new();
        for _ in 0..from.u32()? {
            let at = from.u64()?;
            let block = Block::read(&mut from)?;
            check_end(at, block.bytes, end)?;
            blocks.push((at, block));
        }
        let mut texts = Vec::with_capacity(COLUMNS.len());
        for _ in COLUMNS {
            let is_full = from.u8()? == 1;
            let one = Texts { is_full, at: from.u64()?, bytes: from.u32()?, crc32: from.u32()?, count: from.u32()? };
            check_end(one.at, one.bytes, end)?;
            texts.push(one);
        }
        let rows: u64 = blocks.iter().map(|(_, block)| block.rows as u64).sum();
        if !from.0.is_empty() || rows != facts.rows {
            return Err(Damaged);
        }
        Ok(Self { facts, blocks, texts, store })
    }

    /// Returns the earliest and the latest time of its records; None without records.
    #[must_use]
    pub fn times(&self) -> Option<(u64, u64)> {
        let times = self.blocks.iter().map(|(_, block)| block.times);
        times.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// Returns the bytes that it keeps in memory, without what it says of its blocks.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match &self.store {
            Store::File(_) => 0,
            Store::Memory { blocks, texts } => {
                (blocks.iter().map(|block| block.len()).sum::<usize>() + texts.len()) as u64
            }
        }
    }

    /// Opens it for reading.
    ///
    /// # Errors
    /// As the system says.
    pub fn reader(&self) -> io::Result<Reader<'_>> {
        let file = match &self.store {
            Store::File(path) => Some(source::open_regular(path)?),
            Store::Memory { .. } => None,
        };
        Ok(Reader { image: self, file, buffer: Vec::new() })
    }
}

/// Reads sections and dictionaries.
pub struct Reader<'a> {
    image: &'a Image,
    file: Option<File>,
    buffer: Vec<u8>,
}

impl Reader<'_> {
    /// Returns the values of a column in a block; None if no row has one.
    ///
    /// # Errors
    /// They cannot be read or are damaged.
    pub fn section(&mut self, block: usize, id: usize) -> Result<Option<Decoded>, Unreadable> {
        let (at, facts) = &self.image.blocks[block];
        let Some(section) = facts.section(id) else { return Ok(None) };
        let (from, len) = (section.offset as usize, section.len as usize);
        let decoded = match (&self.image.store, &self.file) {
            (Store::Memory { blocks, .. }, _) => {
                let bytes = blocks[block].get(from..from + len).ok_or(Damaged)?;
                Decoded::read(section, facts.rows, bytes)?
            }
            (Store::File(_), Some(file)) => {
                self.buffer.resize(len, 0);
                file.read_exact_at(&mut self.buffer, at + from as u64).map_err(cut_off)?;
                Decoded::read(section, facts.rows, &self.buffer)?
            }
            (Store::File(_), None) => return Err(Unreadable::Damaged),
        };
        Ok(Some(decoded))
    }

    /// Returns the texts of a column, in the order of their codes.
    ///
    /// # Errors
    /// They cannot be read or are damaged.
    pub fn texts(&mut self, column: usize) -> Result<Vec<String>, Unreadable> {
        let place = self.image.texts[column];
        let bytes = match (&self.image.store, &self.file) {
            (Store::Memory { texts, .. }, _) => {
                texts.get(place.at as usize..(place.at + u64::from(place.bytes)) as usize).ok_or(Damaged)?
            }
            (Store::File(_), Some(file)) => {
                self.buffer.resize(place.bytes as usize, 0);
                file.read_exact_at(&mut self.buffer, place.at).map_err(cut_off)?;
                &self.buffer
            }
            (Store::File(_), None) => return Err(Unreadable::Damaged),
        };
        if crc32fast::hash(bytes) != place.crc32 {
            return Err(Unreadable::Damaged);
        }
        let mut from = Take(bytes);
        let mut texts = Vec::new();
        for _ in 0..place.count {
            texts.push(from.text()?.to_owned());
        }
        Ok(texts)
    }
}

fn cut_off(error: io::Error) -> Unreadable {
    if error.kind() == io::ErrorKind::UnexpectedEof { Unreadable::Damaged } else { Unreadable::System(error) }
}

fn check_end(at: u64, bytes: u32, end: u64) -> Result<(), Damaged> {
    if at.checked_add(u64::from(bytes)).is_some_and(|last| last <= end) { Ok(()) } else { Err(Damaged) }
}

/// A checksum of the columns' names: an index of other columns is of another version.
fn table() -> u32 {
    let names: Vec<String> = COLUMNS.iter().map(|column| format!("{}:{:?}", column.name, column.kind)).collect();
    crc32fast::hash(names.join(",").as_bytes())
}

fn write_texts(dictionaries: &[Dictionary], begin: u64) -> (Vec<u8>, Vec<Texts>) {
    let (mut out, mut places) = (Vec::new(), Vec::new());
    for dictionary in dictionaries {
        let at = out.len();
        dictionary.texts.iter().for_each(|text| out.put_text(text));
        places.push(Texts {
            is_full: dictionary.is_full,
            at: begin + at as u64,
            bytes: (out.len() - at) as u32,
            crc32: crc32fast::hash(&out[at..]),
            count: dictionary.texts.len() as u32,
        });
    }
    (out, places)
}

fn write_facts(out: &mut Vec<u8>, facts: &Facts) {
    out.put_text(&facts.segment);
    out.put_u8(u8::from(facts.identity.compressed));
    out.put_u64(facts.identity.inode);
    out.put_u64(facts.identity.bytes);
    out.put_u64(facts.identity.modified_unix_nano.cast_unsigned());
    out.put_u64(facts.content_bytes);
    out.put_u64(facts.rows);
    out.put_u64(facts.unreadable);
    out.put_u8(u8::from(facts.crc32.is_some()));
    out.put_u32(facts.crc32.unwrap_or(0));
    out.put_u32(facts.resource.len() as u32);
    for (name, value) in &facts.resource {
        out.put_text(name);
        out.put_text(value);
    }
}

fn read_facts(from: &mut Take<'_>) -> Result<Facts, Damaged> {
    let segment = from.text()?.to_owned();
    let identity = Identity {
        compressed: from.u8()? == 1,
        inode: from.u64()?,
        bytes: from.u64()?,
        modified_unix_nano: from.u64()?.cast_signed(),
    };
    let (content_bytes, rows, unreadable) = (from.u64()?, from.u64()?, from.u64()?);
    let (has_crc32, crc32) = (from.u8()? == 1, from.u32()?);
    let mut resource = Vec::new();
    for _ in 0..from.u32()? {
        resource.push((from.text()?.to_owned(), from.text()?.to_owned()));
    }
    Ok(Facts { segment, identity, content_bytes, rows, unreadable, crc32: has_crc32.then_some(crc32), resource })
}
