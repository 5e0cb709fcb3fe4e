//! What a new leader does about the last write of one that died (P7): exactly once per file.
//!
//! Before each write the leader publishes where it goes. If it dies between the write and the release of the records,
//! they are in the segment and in the queue. Its successor reads the segment from the published offset on and releases
//! what stands there; an unfinished last line is cut off, since its record is still in the queue, and that is said in
//! a `segment.repaired` record. It is said before it is done: a listener that dies in between leaves its successor the
//! same to say and to do.

use crate::attached::{self, Attached};
use crate::compress;
use crate::encode::Encoder;
use crate::record::Scratch;
use crate::segment::COMPRESSED_EXTENSION;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// More than any batch: what lies further behind was written by something else.
const LONGEST_BATCH: u64 = 1 << 30;

/// Releases what stands in `lines`, which the last leader's last write left in its segment.
pub fn release_written(lines: &[u8], queues: &mut [Attached], encoder: &mut Encoder) {
    for queue in &mut *queues {
        if let Some(last) = last_sequence(lines, queue.boot_id()) {
            queue.read_up_to(last, encoder);
        }
        if let Some(total) = last_told(lines, queue.boot_id()) {
            queue.note_told(total);
        }
    }
    attached::release_all(queues, encoder);
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

/// The sequence of the last line of this queue. The keys searched for cannot stand in a text: its quotes are escaped.
fn last_sequence(lines: &[u8], boot_id: &str) -> Option<u64> {
    let head = format!("\"boot_id\":\"{boot_id}\",\"pid\":");
    lines.split(|byte| *byte == b'\n').rev().find_map(|line| {
        let rest = after(line, head.as_bytes())?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let rest = rest[digits..].strip_prefix(b",\"seq\":")?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
    })
}

/// The sum of all losses that the last `log.dropped` line of this queue tells of: those told before it too.
fn last_told(lines: &[u8], boot_id: &str) -> Option<u64> {
    let head = format!("\"event_name\":\"log.dropped\",\"boot_id\":\"{boot_id}\",");
    lines.split(|byte| *byte == b'\n').rev().find_map(|line| {
        let reasons = after(after(line, head.as_bytes())?, b"\"reasons\":")?;
        // Names of reasons and of levels have no digits.
        let counts = reasons.split(|byte| !byte.is_ascii_digit()).filter_map(|digits| std::str::from_utf8(digits).ok());
        Some(counts.filter_map(|digits| digits.parse::<u64>().ok()).fold(0, u64::wrapping_add))
    })
}

fn after<'a>(text: &'a [u8], needle: &[u8]) -> Option<&'a [u8]> {
    let start = text.windows(needle.len()).position(|window| window == needle)?;
    Some(&text[start + needle.len()..])
}
