//! The newest rows of a segment that is not indexed yet: read from its end backwards, until a page of them is there.
//!
//! So the first rows of a folder are shown at once, while a whole segment takes as long as its bytes take to read. The
//! index of an end is in memory only, says that it is not whole, and is replaced by the whole one.

use crate::builder::Builder;
use crate::image::{Facts, Image};
use crate::source::Source;
use std::io;
use std::os::unix::fs::FileExt;

/// What is read first, and at most; in between it is four times as much each time.
const FIRST_BYTES: u64 = 1 << 20;
const MOST_BYTES: u64 = 16 << 20;
/// Rows that are enough: the largest page.
pub const ENOUGH_ROWS: u64 = 1000;
/// The first line of a segment fits into it: it has what the segment gives to each record.
const HEADER_BYTES: usize = 64 << 10;

/// Makes an index of the end of a plain segment, and returns it with the bytes before it, at least 1: the whole index is
/// still to be made. None where there is none to make: it is compressed, or has no whole line
/// there.
///
/// # Errors
/// As the system says.
pub fn read(source: &Source, segment: &str, begun_unix_nano: u64) -> io::Result<Option<(Image, u64)>> {
    if source.identity.compressed {
        return Ok(None);
    }
    let mut bytes = FIRST_BYTES;
    loop {
        let begin = source.identity.bytes.saturating_sub(bytes);
        let mut builder = Builder::new(begun_unix_nano);
        let content_bytes = take(source, begin, &mut builder)?;
        let is_enough = builder.rows >= ENOUGH_ROWS || begin == 0 || bytes >= MOST_BYTES;
        if is_enough {
            let image = || Image::in_memory(&builder, facts(source, segment, content_bytes, &builder));
            return Ok((builder.rows > 0).then(|| (image(), begin.max(1))));
        }
        bytes *= 4;
    }
}

/// Takes the first line of the segment, and those between `begin` and its end; returns where the last whole one ends.
fn take(source: &Source, begin: u64, builder: &mut Builder) -> io::Result<u64> {
    if begin > 0 {
        let header = at(source, 0, HEADER_BYTES)?;
        if let Some(end) = memchr::memchr(b'\n', &header) {
            builder.take_header(&header[..end]);
        }
    }
    let block = at(source, begin, (source.identity.bytes - begin) as usize)?;
    // The first line is a part of one, unless the segment begins with it.
    let mut line = if begin == 0 { 0 } else { memchr::memchr(b'\n', &block).map_or(block.len(), |end| end + 1) };
    while let Some(len) = memchr::memchr(b'\n', &block[line..]) {
        builder.take(&block[line..line + len], begin + line as u64);
        line += len + 1;
    }
    Ok(begin + line as u64)
}

/// The bytes that are there now, at most `len`.
fn at(source: &Source, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len.min(source.identity.bytes.saturating_sub(offset) as usize)];
    let mut have = 0;
    while have < bytes.len() {
        match source.file.read_at(&mut bytes[have..], offset + have as u64) {
            Ok(0) => break,
            Ok(taken) => have += taken,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(have);
    Ok(bytes)
}

fn facts(source: &Source, segment: &str, content_bytes: u64, builder: &Builder) -> Facts {
    Facts {
        segment: segment.to_owned(),
        identity: source.identity,
        content_bytes,
        rows: builder.rows,
        unreadable: builder.unreadable,
        crc32: None,
        resource: builder.resource.clone(),
    }
}
