//! What a new leader does about the last write of one that died (P7): exactly once per file.
//!
//! Before each write the leader publishes where it goes. If it dies between the write and the release of the records,
//! they are in the segment and in the queue. Its successor reads the segment from the published offset on and releases
//! what stands there; an unfinished last line is cut off, since its record is still in the queue, and that is said in
//! a `segment.repaired` record. It is said before it is done: a listener that dies in between leaves its successor the
//! same to say and to do.

use crate::attached::Attached;
use crate::compress;
use crate::encode::Encoder;
use crate::line::{self, Head};
use crate::record::Scratch;
use crate::segment::COMPRESSED_EXTENSION;
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// More than any batch: what lies further behind was written by something else.
const LONGEST_BATCH: u64 = 1 << 30;

/// Reads over what stands in `lines`, which the last leader's last write left in its segment: it is to be released, and
/// not written again. Returns how many records of queues that are.
pub fn read_written(lines: &[u8], queues: &mut [Attached], encoder: &mut Encoder) -> u64 {
    let (left, mut records) = (what_stands_in(lines), 0);
    for queue in queues {
        let Some(left) = left.get(&queue.file.header().boot_id) else { continue };
        if let Some(last) = left.last {
            records += queue.read_up_to(last, encoder);
        }
        queue.note_told(left.told, left.ended);
    }
    records
}

/// The end of a segment that its writer did not live to finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// File name of the segment.
    pub segment: String,
    /// Where its whole lines end.
    pub offset: u64,
    /// What stands behind them.
    pub bytes: u64,
}

impl Torn {
    fn at(path: &Path, offset: u64, bytes: u64) -> Self {
        Self { segment: path.file_name().unwrap_or_default().to_string_lossy().into_owned(), offset, bytes }
    }

    /// Returns the values of a `segment.repaired` record.
    #[must_use]
    pub fn payload(&self) -> Scratch {
        let mut payload = Scratch::new();
        payload.push_str(&self.segment);
        payload.push_uint(self.offset);
        payload.push_uint(self.bytes);
        payload
    }
}

/// Reads the whole lines behind `offset`, lets `tell` say what follows them, and cuts that off.
///
/// # Errors
/// The segment cannot be read: removed, on another mount.
pub fn read_whole_lines(path: &Path, offset: u64, tell: &mut dyn FnMut(Torn)) -> io::Result<Vec<u8>> {
    let mut file = match OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return read_compressed(path, offset),
        other => other?,
    };
    file.seek(SeekFrom::Start(offset))?;
    let mut lines = Vec::new();
    file.by_ref().take(LONGEST_BATCH).read_to_end(&mut lines)?;
    let whole = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < lines.len() {
        tell(Torn::at(path, offset + whole as u64, (lines.len() - whole) as u64));
        file.set_len(offset + whole as u64)?;
        lines.truncate(whole);
    }
    Ok(lines)
}

/// Cuts off what follows `offset`, on the device too, and lets `tell` say how much that was; returns the lines that stand
/// there nevertheless.
///
/// # Errors
/// As [`read_whole_lines`], or the cut does not reach the device.
pub fn cut_off(path: &Path, offset: u64, tell: &mut dyn FnMut(Torn)) -> io::Result<Vec<u8>> {
    let file = match OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path) {
        // What a housekeeper has compressed is on the device.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return read_compressed(path, offset),
        other => other?,
    };
    let bytes = file.metadata()?.len().saturating_sub(offset);
    if bytes > 0 {
        tell(Torn::at(path, offset, bytes));
        file.set_len(offset)?;
        file.sync_data()?;
    }
    Ok(Vec::new())
}

/// Another listener's housekeeper was quicker: whole lines, as a compressed segment has no others.
fn read_compressed(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut compressed = path.as_os_str().to_owned();
    compressed.push(COMPRESSED_EXTENSION);
    compress::read_lines(Path::new(&compressed), offset, LONGEST_BATCH)
}

/// What a batch holds of one queue.
#[derive(Default)]
struct Left {
    last: Option<u64>,
    /// The sum of all losses that its `log.dropped` lines tell of.
    told: u64,
    ended: bool,
}

fn what_stands_in(lines: &[u8]) -> HashMap<u64, Left> {
    let mut left = HashMap::<u64, Left>::new();
    for text in line::whole_lines(lines) {
        let Some((head, process)) = Head::read(text).and_then(|head| Some((head, head.process?))) else { continue };
        let left = left.entry(process.boot_id).or_default();
        match (process.seq, head.event) {
            (Some(seq), _) => left.last = Some(seq),
            (None, b"log.dropped") => left.told = left.told.max(losses_in(text).unwrap_or(0)),
            (None, b"process.ended") => left.ended = true,
            _ => {}
        }
    }
    left
}

/// The sum of all losses that a `log.dropped` line tells of: those told before it too.
fn losses_in(line: &[u8]) -> Option<u64> {
    let line: serde_json::Value = serde_json::from_slice(line).ok()?;
    let levels = line.get("reasons")?.as_object()?.values().filter_map(|levels| levels.as_object());
    Some(levels.flat_map(|levels| levels.values()).filter_map(|count| count.as_u64()).fold(0, u64::wrapping_add))
}
