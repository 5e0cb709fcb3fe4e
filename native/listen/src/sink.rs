//! Where the listener writes: the contract between it and every sink.
//!
//! Invariants every sink keeps:
//!
//! 1. `lines` holds complete JSON lines: it ends with `\n`, and it has `records` of them.
//! 2. After `Ok`, all of `lines` was handed to the kernel, in order, once.
//! 3. After [`WriteError`], exactly the first `written` bytes were; `written` is 0 or stands just
//!    behind a `\n`, so `&lines[written..]` starts with a whole line. The listener calls again
//!    with that rest (and `records - error.records`); nothing is written twice or torn by that.
//! 4. A sink stays usable after every error: the next call tries again, beginning with the directory.
//! 5. A sink reads no clock: time comes as [`Now`].

use queue::system::{now_monotonic_nano, now_unix_nano};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use file::{FileSink, FileSinkConfig};
pub use os::{FileStatus, Os, RealOs};
pub use settings::{DeliverySettings, SinkSettings};
pub use stdout::{ConsoleSink, StdoutSink};

pub(crate) mod datagram;
pub mod file;
mod live;
pub(crate) mod os;
pub mod settings;
pub(crate) mod stdout;

/// The time of a call, from both clocks: one for names and timestamps, one for ages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since the Unix epoch (UTC); may jump.
    pub unix_nano: u64,
    /// Time since some fixed instant; never goes back.
    pub monotonic: Duration,
}

impl Now {
    /// Read both clocks.
    #[must_use]
    pub fn read() -> Self {
        Self { unix_nano: now_unix_nano(), monotonic: Duration::from_nanos(now_monotonic_nano()) }
    }
}

/// A write that stopped early. Retrying the rest is always allowed; see the module's invariants.
#[derive(Debug)]
pub struct WriteError {
    /// Bytes of `lines` that certainly stand in the sink: 0, or just behind a `\n`.
    pub written: usize,
    /// Lines in those bytes.
    pub records: u64,
    pub source: io::Error,
}

impl WriteError {
    /// Return the error of a write that took nothing.
    pub fn nothing_written(source: io::Error) -> Self {
        Self { written: 0, records: 0, source }
    }

    /// Return the error of a write that took the whole lines of `taken`, which ends at a `\n`.
    pub fn after(taken: &[u8], source: io::Error) -> Self {
        debug_assert!(taken.is_empty() || taken.ends_with(b"\n"));
        Self { written: taken.len(), records: count_lines(taken), source }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the sink stopped after {} bytes ({} records): {}", self.written, self.records, self.source)
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Why a sink could not be opened. Both are for the operator: retrying without a change does not help.
#[derive(Debug)]
pub enum OpenError {
    /// A parameter of the configuration is out of its range.
    Invalid { parameter: &'static str, value: String, reason: &'static str },
    /// The directory or stream of the sink is not available.
    Unavailable { parameter: &'static str, value: String, source: io::Error },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { parameter, value, reason } => write!(f, "{parameter}={value:?}: {reason}"),
            Self::Unavailable { parameter, value, source } => write!(f, "{parameter}={value:?}: {source}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Invalid { .. } => None,
            Self::Unavailable { source, .. } => Some(source),
        }
    }
}

/// Totals since the sink was opened; reading them costs a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkStats {
    /// Lines that stand in the sink.
    pub records: u64,
    /// Bytes of those lines; headers and footers are not counted.
    pub bytes: u64,
    /// Segments that hold records (0 for a sink without segments).
    pub segments: u64,
    /// Segments given up without a footer: removed underneath, or the file failed.
    pub segments_abandoned: u64,
}

/// The directory and prefix of the segments that a sink writes.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    pub directory: &'a Path,
    pub prefix: &'a str,
}

/// A destination of lines. One thread, its own, calls it; it may hang for as long as it likes.
pub trait Sink: Send {
    /// Name the sink in metrics: a constant like `"file"`.
    fn name(&self) -> &'static str;

    /// Get ready for `bytes` more (rotate, begin a segment) and return the file and the offset where they will be. The
    /// next listener then knows where to look for a write that this one did not live to finish.
    ///
    /// # Errors
    /// As [`Sink::write`]: nothing is written, and trying again is allowed.
    fn prepare(&mut self, bytes: usize, now: Now) -> io::Result<Option<(&Path, u64)>> {
        let _ = (bytes, now);
        Ok(None)
    }

    /// Write all of `lines` (complete JSON lines, `records` of them), or return how far it came.
    fn write(&mut self, lines: &[u8], records: u64, now: Now) -> Result<(), WriteError>;

    /// Do periodic work (rotation by age, writeback); call it at least every flush interval.
    fn maintain(&mut self, now: Now) -> io::Result<()> {
        let _ = now;
        Ok(())
    }

    /// End the output: `footer` is extra JSON members (`,"processes":[…]`) for the last line, or empty.
    ///
    /// Idempotent. After an error it can be called again; a later write begins again.
    fn close(&mut self, now: Now, footer: &[u8]) -> io::Result<()>;

    /// Take a flag that is set once no one waits for the sink any more: a write that waits for a reader then stops, so
    /// that the number of written bytes is known.
    fn heed(&mut self, ending: &Arc<AtomicBool>) {
        let _ = ending;
    }

    /// Return how many records since the last call can never be written here (larger than a datagram), and were skipped
    /// as if they had been.
    fn take_refused(&mut self) -> u64 {
        0
    }

    /// Return whether it can never take anything again, however often that is tried.
    fn has_ended(&self) -> bool {
        false
    }

    /// Return where its segments are, and how their names begin; None: it writes none.
    fn segments(&self) -> Option<Segments<'_>> {
        None
    }

    /// Return whether `Ok` means that the lines survive the loss of power, and an error that none of them is written.
    fn is_durable(&self) -> bool {
        false
    }

    /// Return the totals since the sink was opened.
    fn stats(&self) -> SinkStats {
        SinkStats::default()
    }
}

/// Return how many bytes of `bytes` are whole lines.
pub(crate) fn whole_lines(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1)
}

/// Count the lines of `bytes`.
pub(crate) fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&b| b == b'\n').count() as u64
}

// The sink that keeps nothing: "off" is a type, not an `if`. It still counts what it was given.

/// Takes every line, counts it and forgets it.
#[derive(Debug, Default)]
pub struct NullSink {
    stats: SinkStats,
}

impl NullSink {
    /// Return a sink that has counted nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Sink for NullSink {
    fn name(&self) -> &'static str {
        "null"
    }

    fn write(&mut self, lines: &[u8], records: u64, _now: Now) -> Result<(), WriteError> {
        self.stats.records += records;
        self.stats.bytes += lines.len() as u64;
        Ok(())
    }

    fn close(&mut self, _now: Now, _footer: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn stats(&self) -> SinkStats {
        self.stats
    }
}
