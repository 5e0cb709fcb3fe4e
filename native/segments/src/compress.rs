//! Compresses a segment that has no writer into `<name>.zst`, so that readers find it at any moment, whichever process
//! dies.
//!
//! ```text
//! .<name>.zst.tmp   written, given the segment's time, synced
//! <name>.zst        by renaming it; the directory synced
//! <name>            removed, once <name>.zst was read back and holds the same
//! ```
//!
//! So a complete copy has a segment's name at every step. Between the last two steps there are two copies: a reader
//! takes the plain one, and [`remove_plain`] removes it. A leftover of the first step is removed by the housekeeper. An
//! unfinished last line, which only a dead writer's segment has, is not a record and is left out.

use crate::segment::{Form, SegmentName};
use crate::segment_store::{Reading, Store};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Read and compressed between two pauses.
const STEP_BYTES: usize = 256 << 10;
/// Dirty pages that a compression leaves in the page cache, at most.
const SYNC_BYTES: u64 = 8 << 20;

/// Slows the work down, and ends it: called with the duration of the last step, returns whether to go on.
pub type Pace<'a> = &'a mut dyn FnMut(Duration) -> bool;

/// Compresses the segment `name` of `dir`, which is open as `plain` and locked; returns the sizes before and after, or
/// None if it holds no line.
///
/// # Errors
/// As the system says; `Interrupted` if `pace` ended it. The segment is left as it was, unless the error came after
/// both copies had their names.
pub fn compress(
    store: &mut impl Store,
    dir: &Path,
    name: &SegmentName,
    plain: &File,
    level: i32,
    pace: Pace<'_>,
) -> io::Result<Option<(u64, u64)>> {
    let whole = whole_lines(store, plain)?;
    if whole == 0 {
        return Ok(None);
    }
    let temporary = dir.join(name.file_name(Form::Temporary));
    let written = store.create(&temporary, plain).and_then(|file| {
        let bytes = encode(store, plain, whole, &file, level, pace)?;
        store.copy_time(&file, plain)?;
        store.sync(&file)?;
        Ok(bytes)
    });
    let renamed = written.and_then(|bytes| {
        store.rename(&temporary, &dir.join(name.file_name(Form::Compressed)))?;
        Ok(bytes)
    });
    let bytes = renamed.inspect_err(|_| {
        // The first error is the one to report; a file that cannot be removed now is a leftover.
        let _ = store.remove(&temporary);
    })?;
    remove_plain(store, dir, name, plain, pace)?;
    Ok(Some((whole, bytes)))
}

/// Removes the plain copy of a segment that exists in both forms, if the compressed one holds the same.
///
/// # Errors
/// As the system says; `Interrupted` if `pace` ended it; `InvalidData` if the compressed copy is damaged or differs:
/// then both stay, and only retention touches them any more.
pub fn remove_plain(
    store: &mut impl Store,
    dir: &Path,
    name: &SegmentName,
    plain: &File,
    pace: Pace<'_>,
) -> io::Result<()> {
    let whole = whole_lines(store, plain)?;
    let compressed = store.open(&dir.join(name.file_name(Form::Compressed)))?;
    let mut content = zstd::stream::read::Decoder::new(&compressed)?;
    rewind(plain)?;
    let mut expected = Reading { store, file: plain }.take(whole);
    let (mut one, mut other) = (vec![0; STEP_BYTES], vec![0; STEP_BYTES]);
    loop {
        let begun = Instant::now();
        let taken = read_full(&mut expected, &mut one)?;
        let found = read_full(&mut content, &mut other).map_err(|error| differs(name, &error.to_string()))?;
        if one[..taken] != other[..found] {
            return Err(differs(name, "another content"));
        }
        if taken < STEP_BYTES {
            break;
        }
        go_on(pace, begun)?;
    }
    // Neither name may come back without the other after a loss of power.
    store.sync_dir(dir)?;
    store.remove(&dir.join(name.file_name(Form::Plain)))
}

/// Reads the lines of a compressed segment from `offset` of its content on.
///
/// # Errors
/// It cannot be opened or is damaged.
pub fn read_lines(path: &Path, offset: u64, most: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let mut content = zstd::stream::read::Decoder::new(file)?;
    io::copy(&mut content.by_ref().take(offset), &mut io::sink())?;
    let mut lines = Vec::new();
    content.take(most).read_to_end(&mut lines)?;
    Ok(lines)
}

fn encode(
    store: &mut impl Store,
    plain: &File,
    whole: u64,
    file: &File,
    level: i32,
    pace: Pace<'_>,
) -> io::Result<u64> {
    rewind(plain)?;
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level)?;
    encoder.include_checksum(true)?;
    encoder.set_pledged_src_size(Some(whole))?;
    let (mut left, mut written, mut synced) = (whole, 0, 0);
    let mut block = vec![0; STEP_BYTES];
    while left > 0 {
        let begun = Instant::now();
        let most = STEP_BYTES.min(usize::try_from(left).unwrap_or(STEP_BYTES));
        let taken = read_full(&mut Reading { store, file: plain }, &mut block[..most])?;
        if taken < most {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        encoder.write_all(&block[..taken])?;
        left -= taken as u64;
        written += write_out(store, file, encoder.get_mut())?;
        if written - synced >= SYNC_BYTES {
            store.sync(file)?;
            synced = written;
        }
        go_on(pace, begun)?;
    }
    let mut rest = encoder.finish()?;
    Ok(written + write_out(store, file, &mut rest)?)
}

fn write_out(store: &mut impl Store, file: &File, bytes: &mut Vec<u8>) -> io::Result<u64> {
    let mut taken = 0;
    while taken < bytes.len() {
        match store.write(file, &bytes[taken..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => taken += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.clear();
    Ok(taken as u64)
}

/// Bytes up to and with the last newline; all of them for a segment with a footer.
fn whole_lines(store: &mut impl Store, mut file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut block = vec![0; STEP_BYTES];
    while end > 0 {
        let begin = end.saturating_sub(STEP_BYTES as u64);
        file.seek(SeekFrom::Start(begin))?;
        let taken = read_full(&mut Reading { store, file }, &mut block[..(end - begin) as usize])?;
        if let Some(last) = block[..taken].iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + last as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

fn rewind(mut file: &File) -> io::Result<()> {
    file.seek(SeekFrom::Start(0)).map(drop)
}

fn go_on(pace: Pace<'_>, begun: Instant) -> io::Result<()> {
    if pace(begun.elapsed()) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
}

fn differs(name: &SegmentName, why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{} is not its plain copy: {why}", name.file_name(Form::Compressed)),
    )
}

fn read_full(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut taken = 0;
    while taken < into.len() {
        match from.read(&mut into[taken..]) {
            Ok(0) => break,
            Ok(n) => taken += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}
