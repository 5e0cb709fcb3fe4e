//! Segments: the files of the file sink. This page is their format.
//!
//! Name: `{prefix}-{YYYYMMDDTHHMMSS.mmmZ}-{boot_id, 16 lowercase hex}-{number, at least 6 digits}.jsonl`,
//! where the time is the beginning of the segment (UTC), the boot id is the listener's, and numbers
//! count from 1 without gaps per boot id: a missing number is a segment that was removed.
//!
//! Content: JSON lines, each ended by `\n`.
//!
//! ```text
//! {"timestamp":…,"event_name":"segment.header","schema_version":1,"schema_url":…,"boot_id":…,"segment":N<,"queue_directory":…,"configuration":…,"resource":{…}><,"abandoned":N-1>}
//! …record lines, at least one…
//! {"timestamp":…,"event_name":"segment.footer","segment":N,"records":R,"bytes":B,"crc32":…,"spans":[…]<,"processes":[…]>}
//! ```
//!
//! Invariants:
//!
//! * `resource` has the service, pod and machine of the listener's configuration (`listen::settings::Resource`); earlier
//!   versions wrote none.
//! * A name is given once and never changes; a live segment only grows, except that an unfinished last line is cut off
//!   again when its write failed.
//! * `records` and `bytes` count the record lines with their `\n`, not header and footer; `crc32` and `spans` describe
//!   them further ([`crate::segment_account`]). `processes`, the counts of the processes' queues, is in a listener's
//!   last footer.
//! * The footer is the last line. A segment without one was live when its listener died, or its file failed; only then
//!   can it end in a line without `\n`, which readers must ignore. If the file failed, the header of the listener's
//!   next segment names it: `abandoned`.
//! * Nothing is `fsync`ed: lines survive the death of every process, not the loss of power.
//! * The writer of a segment holds its lock ([`crate::segment_lock`]).
//! * A sealed segment may be compressed into `{name}.zst` (one zstd frame with a checksum) and removed, by age or quota
//!   (`listen::housekeeper`). While both files exist they hold the same lines; `.{name}.zst.tmp` is unfinished.
//! * An empty file `{name}.shipped-{shipper}` means that a shipper's destination has acknowledged all of it.

use lines::json::escape::push_string;
use lines::json::timestamp;
use queue::configuration::fingerprint;
use queue::lock::ForkSafe;
use queue::{hex, system};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Version of the lines in a segment; raised with every change a reader could stumble over.
pub const SCHEMA_VERSION: u32 = 1;
/// The OpenTelemetry schema whose attribute names the lines use.
pub(crate) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";
/// How a segment's name ends.
pub(crate) const EXTENSION: &str = ".jsonl";
/// What follows the name of a compressed segment.
pub(crate) const COMPRESSED_EXTENSION: &str = ".zst";
/// Separates the name of a segment from that of a shipper, in the name of an empty file: its destination has
/// acknowledged all of the segment.
const SHIPPED: &str = ".shipped-";
const TEMPORARY_EXTENSION: &str = ".zst.tmp";
/// Longest prefix; leaves a name well below the 255 bytes of a file name.
pub(crate) const PREFIX_MAX: usize = 100;

const STAMP_LEN: usize = "20261121T050000.123Z".len();
const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
const SECONDS_PER_DAY: u64 = 86_400;

/// The parts of a segment's name. `Display` writes it, [`SegmentName::parse`] reads it back.
///
/// The derived order is the order of writing within one prefix, as far as the clock went forward.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    pub prefix: String,
    /// Milliseconds since the Unix epoch at which the segment began.
    pub begun_unix_milli: u64,
    pub boot_id: String,
    pub number: u64,
}

impl SegmentName {
    /// Read the parts of a file name; `None` if it is not the name of a segment.
    pub fn parse(name: &str) -> Option<Self> {
        let (rest, number) = name.strip_suffix(EXTENSION)?.rsplit_once('-')?;
        let (rest, boot_id) = rest.rsplit_once('-')?;
        let (prefix, stamp) = rest.rsplit_once('-')?;
        if !is_prefix(prefix) || !is_boot_id(boot_id) || number.len() < 6 {
            return None;
        }
        let begun_unix_milli = parse_stamp(stamp)?;
        let number = digits(number)?;
        let parsed = Self { prefix: prefix.into(), begun_unix_milli, boot_id: boot_id.into(), number };
        // One spelling per name: padded numbers and days like 31 February are refused.
        (parsed.to_string() == name).then_some(parsed)
    }
}

/// The content of a file with a segment's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain,
    Compressed,
    /// A compression that is not finished.
    Temporary,
}

impl SegmentName {
    /// Read the name of a segment's file in any form; None if it is none.
    pub fn parse_file(file: &str) -> Option<(Self, Form)> {
        let hidden = || file.strip_prefix('.')?.strip_suffix(TEMPORARY_EXTENSION);
        if let Some(name) = hidden() {
            return Self::parse(name).map(|name| (name, Form::Temporary));
        }
        let form = if file.ends_with(COMPRESSED_EXTENSION) { Form::Compressed } else { Form::Plain };
        Self::parse(file.strip_suffix(COMPRESSED_EXTENSION).unwrap_or(file)).map(|name| (name, form))
    }

    /// Return the segment and the shipper that the name of a mark contains.
    #[must_use]
    pub(crate) fn parse_marker(file: &str) -> Option<(Self, String)> {
        let (name, shipper) = file.split_once(SHIPPED)?;
        Some((Self::parse(name)?, shipper.to_owned()))
    }

    /// Return the name of the mark that a shipper leaves.
    #[must_use]
    pub fn marker(&self, shipper: &str) -> String {
        format!("{self}{SHIPPED}{shipper}")
    }

    /// Return the name of its file in a form.
    pub fn file_name(&self, form: Form) -> String {
        match form {
            Form::Plain => self.to_string(),
            Form::Compressed => format!("{self}{COMPRESSED_EXTENSION}"),
            Form::Temporary => format!(".{self}{TEMPORARY_EXTENSION}"),
        }
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = Utc::from_unix_nano(self.begun_unix_milli.saturating_mul(NANOS_PER_MILLI));
        write!(
            f,
            "{}-{:04}{:02}{:02}T{:02}{:02}{:02}",
            self.prefix, t.year, t.month, t.day, t.hour, t.minute, t.second
        )?;
        let milli = u64::from(t.nano) / NANOS_PER_MILLI;
        write!(f, ".{milli:03}Z-{}-{:06}{EXTENSION}", self.boot_id, self.number)
    }
}

/// Return whether `prefix` can begin a segment's name: 1 to 100 of `A-Z a-z 0-9 . _ -`, not first a dot.
pub fn is_prefix(prefix: &str) -> bool {
    (1..=PREFIX_MAX).contains(&prefix.len())
        && !prefix.starts_with('.')
        && prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// Return whether `boot_id` is 16 lowercase hexadecimal digits.
pub fn is_boot_id(boot_id: &str) -> bool {
    hex::read::<8>(boot_id.as_bytes()).is_some()
}

/// Return the members of a header that name the origin of the records: the directory of the queues that they come from,
/// and the fingerprint of its configuration ([`queue::configuration`]).
pub fn origin(queue_directory: &Path, configuration: Option<&str>) -> String {
    let directory = std::path::absolute(queue_directory).unwrap_or_else(|_| queue_directory.to_owned());
    let mut members = b",\"queue_directory\":".to_vec();
    push_string(&mut members, directory.as_os_str().as_bytes());
    let mut members = String::from_utf8_lossy(&members).into_owned();
    if let Some(text) = configuration {
        members += &format!(",\"configuration\":\"{}\"", fingerprint(text));
    }
    members
}

/// Return the first line of a segment. `origin` is what [`origin`] returns, or empty.
pub fn header_line(unix_nano: u64, boot_id: &str, number: u64, origin: &str) -> String {
    let time = Utc::from_unix_nano(unix_nano);
    format!(
        "{{\"timestamp\":\"{time}\",\"event_name\":\"segment.header\",\"schema_version\":{SCHEMA_VERSION},\
         \"schema_url\":\"{SCHEMA_URL}\",\"boot_id\":\"{boot_id}\",\"segment\":{number}{origin}}}\n"
    )
}

/// Return the last line of a segment. `extra` is trusted JSON members, each led by a comma, or empty.
pub fn footer_line(unix_nano: u64, number: u64, records: u64, bytes: u64, extra: &[u8]) -> Vec<u8> {
    debug_assert!(extra.is_empty() || extra[0] == b',');
    let time = Utc::from_unix_nano(unix_nano);
    let mut line = format!(
        "{{\"timestamp\":\"{time}\",\"event_name\":\"segment.footer\",\"segment\":{number},\
         \"records\":{records},\"bytes\":{bytes}"
    )
    .into_bytes();
    line.extend_from_slice(extra);
    line.extend_from_slice(b"}\n");
    line
}

/// A point in time on the calendar. `Display` is RFC 3339 with nanoseconds, as in every line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc {
    pub year: u32,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    pub nano: u32,
}

impl Utc {
    /// Convert nanoseconds since the Unix epoch; 64 bits reach into the year 2554.
    pub fn from_unix_nano(unix_nano: u64) -> Self {
        let seconds = unix_nano / NANOS_PER_SECOND;
        let (year, month, day) = timestamp::date(seconds / SECONDS_PER_DAY);
        let of_day = (seconds % SECONDS_PER_DAY) as u32;
        let nano = (unix_nano % NANOS_PER_SECOND) as u32;
        Self { year, month, day, hour: of_day / 3600, minute: of_day / 60 % 60, second: of_day % 60, nano }
    }
}

impl Utc {
    /// Read its form in a line as nanoseconds since the Unix epoch, up to those of 63 bits; None for any other text.
    pub fn parse(text: &str) -> Option<u64> {
        let form = |at, form| text.as_bytes().get(at) == Some(&form);
        let number = |from, to| text.get(from..to).and_then(digits);
        let is_form = form(4, b'-') && form(7, b'-') && form(10, b'T') && form(13, b':') && form(16, b':');
        if text.len() != timestamp::TIMESTAMP_BYTES || !is_form || !form(19, b'.') || !form(29, b'Z') {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, month_of(number(5, 7)?)?, number(8, 10)?);
        let days = day_of_date(year, month, day)?;
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        // No 31st of February, and no leap second.
        if timestamp::date(days) != (year as u32, month as u32, day as u32) || hour > 23 || minute.max(second) > 59 {
            return None;
        }
        let seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
        seconds.checked_mul(NANOS_PER_SECOND)?.checked_add(number(20, 29)?).filter(|nano| *nano < i64::MAX as u64)
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}T", self.year, self.month, self.day)?;
        write!(f, "{:02}:{:02}:{:02}.{:09}Z", self.hour, self.minute, self.second, self.nano)
    }
}

/// Return the day, counted from 1970-01-01, of a date not before it (Hinnant, `days_from_civil`).
fn day_of_date(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = year.checked_sub(u64::from(month <= 2))?;
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let (era, year_of_era) = (year / 400, year % 400);
    let of_year = (153 * march_month + 2) / 5 + day.checked_sub(1)?;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    (era * 146_097 + of_era).checked_sub(719_468)
}

/// Read `YYYYMMDDTHHMMSS.mmmZ` as milliseconds since the epoch; the caller checks ranges.
fn parse_stamp(stamp: &str) -> Option<u64> {
    if stamp.len() != STAMP_LEN || !stamp.is_ascii() {
        return None;
    }
    let (date, time) = stamp.strip_suffix('Z')?.split_once('T')?;
    let (clock, milli) = time.split_once('.')?;
    if (date.len(), clock.len(), milli.len()) != (8, 6, 3) {
        return None;
    }
    let day = day_of_date(digits(&date[..4])?, month_of(digits(&date[4..6])?)?, digits(&date[6..])?)?;
    let seconds = digits(&clock[..2])? * 3600 + digits(&clock[2..4])? * 60 + digits(&clock[4..])?;
    Some((day * SECONDS_PER_DAY + seconds) * 1000 + digits(milli)?)
}

fn month_of(month: u64) -> Option<u64> {
    (1..=12).contains(&month).then_some(month)
}

/// Parse decimal digits alone: the standard parser would also take a sign.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

// The lock of a live segment: its writer holds it, and the kernel releases it with the writer, however that dies. A
// process that wants to compress or remove a segment tries it first.
//
// `flock`, not the record locks of [`queue::lock`]: users read segments in the process that writes them, and closing a
// descriptor would drop a record lock. It has one trap: a forked child shares the lock of the descriptors it inherits,
// and would keep a dead parent's segment live, so [`close_inherited`] closes them in the child.
//
// The order, on which other modules rely: the lock is taken while the segment is empty, and released behind its last
// line. So an empty segment may be live without a lock, and one with a header and no lock has no writer.

#[derive(Clone, Copy, PartialEq, Eq)]
struct Held {
    pid: u32,
    descriptor: RawFd,
}

static HELD: ForkSafe<Vec<Held>> = ForkSafe::new(Vec::new());

/// The writer's lock on a segment; released when dropped.
#[derive(Debug)]
pub struct LiveLock {
    file: Arc<File>,
    pid: u32,
}

impl LiveLock {
    /// Locks a segment that was just created. A file system without locks is not an error for the writer: there, no
    /// segment can be locked for removal either.
    #[must_use]
    pub fn hold(file: Arc<File>) -> Self {
        let held = Held { pid: std::process::id(), descriptor: file.as_raw_fd() };
        let _ = system::lock_file(&file, libc::LOCK_EX | libc::LOCK_NB);
        HELD.with(|table| table.push(held));
        Self { file, pid: held.pid }
    }
}

impl Drop for LiveLock {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return; // in a forked child: the lock is the parent's
        }
        let held = Held { pid: self.pid, descriptor: self.file.as_raw_fd() };
        HELD.with(|table| table.retain(|entry| *entry != held));
        // Explicitly, and not by the close: the file may be open a while longer, for its writeback or in a child.
        let _ = system::lock_file(&self.file, libc::LOCK_UN);
    }
}

/// Locks a segment that has no writer; false while it has one. Closing `file` releases the lock.
///
/// Shared: readers look for the writer by the same lock, and must not be taken for a writer.
///
/// # Errors
/// The file system cannot lock.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match system::lock_file(file, libc::LOCK_SH | libc::LOCK_NB) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Closes, in a forked child, the live segments of its parent, whose threads do not exist here.
pub fn close_inherited() {
    let pid = std::process::id();
    HELD.with(|table| {
        for entry in table.iter().filter(|entry| entry.pid != pid) {
            // The descriptor was open in the parent at the fork. Here it belongs to a sink of a thread that does not
            // exist, so nothing else uses or closes it.
            system::close_inherited(entry.descriptor);
        }
        table.retain(|entry| entry.pid == pid);
    });
}
