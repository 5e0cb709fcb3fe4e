//! The file sink: lines into segments, one after the other (format: [`segments::segment`]).
//!
//! * A segment is begun by the first write that needs it, so there are no empty ones; it ends, with
//!   a footer, before the batch that would carry it past `rotate_bytes`, at `rotate_interval`, or on
//!   close. A batch is never divided by rotation: one larger than `rotate_bytes` makes one larger
//!   segment.
//! * A temporary error (full disk, quota, read-only remount) keeps the segment, also at its footer: the next call
//!   continues in it. A failing or torn file is given up and the next write begins a new one.
//! * A segment that was removed from outside is noticed by the write into it; that batch is written again into a new
//!   segment, in a new directory if necessary.
//! * With [`FileSinkConfig::durable`] a batch is on the device before the sink returns `Ok`; see [`durable`].
//! * `latest` in the directory is a symlink to the newest segment with records; a convenience, so its
//!   errors are ignored and a foreign file of that name is left alone.

mod durable;

use super::live::{Fate, LiveSegment, Stopped};
use super::os::{Os, RealOs};
use super::{Now, OpenError, Segments, Sink, SinkStats, WriteError};
use durable::Durable;
use segments::rotation::Rotations;
use segments::segment::{self, SegmentName};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use durable::{ChainSettings, DurableSettings};

const LATEST: &str = "latest";
/// How many names are tried in a row before a directory full of segments is an error.
const NAME_TRIES: u32 = 16;

/// Where segments go and when they end.
#[derive(Clone, Debug)]
pub struct FileSinkConfig {
    /// Directory of the segments; created with mode 0700 if missing.
    pub dir: PathBuf,
    /// How the segments' names begin; see [`segment::is_prefix`].
    pub prefix: String,
    /// The listener's boot id, 16 lowercase hexadecimal digits.
    pub boot_id: String,
    /// A segment exceeds this size only if a single batch is larger; its footer may. 0: no limit.
    pub rotate_bytes: u64,
    /// Age at which a segment ends, checked at the next call. Zero: no limit.
    pub rotate_interval: Duration,
    /// Window of paced writeback, best a multiple of the page size. 0: left to the kernel.
    pub writeback_bytes: u64,
    /// Lines survive the loss of power. None: they survive every process.
    pub durable: Option<DurableSettings>,
    /// Members of the headers that say whose records these are ([`segment::origin`]), or empty.
    pub origin: String,
    /// Keeps the quota before another segment is begun. None: there is no quota.
    pub rotations: Option<Rotations>,
}

impl FileSinkConfig {
    /// Return the defaults: segments of 128 MiB or one hour, writeback in windows of 8 MiB.
    pub fn new(dir: impl Into<PathBuf>, prefix: impl Into<String>, boot_id: impl Into<String>) -> Self {
        Self {
            dir: dir.into(),
            prefix: prefix.into(),
            boot_id: boot_id.into(),
            rotate_bytes: 128 << 20,
            rotate_interval: Duration::from_secs(3600),
            writeback_bytes: 8 << 20,
            durable: None,
            origin: String::new(),
            rotations: None,
        }
    }

    fn validate(&self) -> Result<(), OpenError> {
        let invalid =
            |parameter, value: &str, reason| Err(OpenError::Invalid { parameter, value: value.to_owned(), reason });
        if !segment::is_prefix(&self.prefix) {
            return invalid("prefix", &self.prefix, "must be 1 to 100 of A-Z a-z 0-9 . _ - and not begin with a dot");
        }
        if !segment::is_boot_id(&self.boot_id) {
            return invalid("boot_id", &self.boot_id, "must be 16 lowercase hexadecimal digits");
        }
        if self.dir.as_os_str().is_empty() {
            return invalid("directory", "", "must name a directory");
        }
        Ok(())
    }
}

/// Writes segments into one directory.
#[derive(Debug)]
pub struct FileSink<O: Os = RealOs> {
    config: FileSinkConfig,
    os: O,
    live: Option<LiveSegment>,
    pacer: Pacer,
    next_number: u64,
    stats: SinkStats,
    durable: Option<Durable>,
    /// The number of the segment that was given up last, for the header of the next one.
    abandoned: Option<u64>,
    /// A part of a batch is in the live segment, and the rest may follow.
    divided: bool,
}

impl FileSink {
    /// Check the configuration and create the directory; the first segment waits for the first write.
    pub fn open(config: FileSinkConfig) -> Result<Self, OpenError> {
        Self::open_with(config, RealOs)
    }
}

impl<O: Os> FileSink<O> {
    /// Open on a given operating system.
    pub fn open_with(config: FileSinkConfig, mut os: O) -> Result<Self, OpenError> {
        config.validate()?;
        os.create_dir(&config.dir).map_err(|source| OpenError::Unavailable {
            parameter: "directory",
            value: config.dir.display().to_string(),
            source,
        })?;
        let durable = config.durable.as_ref().map(Durable::new);
        // A wait for paced writeback consumes the writeback's errors, and the sync that must know them does not see
        // them.
        let pacer = Pacer::new(if durable.is_some() { 0 } else { config.writeback_bytes });
        let stats = SinkStats::default();
        Ok(Self { config, os, live: None, pacer, next_number: 1, stats, durable, abandoned: None, divided: false })
    }

    /// Append to the live segment, or to a new one; true if the live one was removed from outside.
    fn append(&mut self, lines: &[u8], records: u64, now: Now) -> Result<bool, WriteError> {
        let mut live = match self.live.take() {
            Some(live) => live,
            None => self.begin(now).map_err(WriteError::nothing_written)?,
        };
        let divided = std::mem::take(&mut self.divided);
        match live.append(&mut self.os, lines) {
            Ok(()) => {
                self.count(&mut live, records, lines);
                self.live = Some(live);
                Ok(false)
            }
            Err(Stopped { fate: Fate::Removed, .. }) => {
                self.give_up(live);
                Ok(true)
            }
            Err(Stopped { whole, fate, source }) => {
                let error = WriteError::after(&lines[..whole], source);
                self.count(&mut live, error.records, &lines[..whole]);
                match fate {
                    Fate::Usable => {
                        self.live = Some(live);
                        self.divided = divided || whole > 0;
                    }
                    Fate::Failed => self.footer_or_give_up(live, now),
                    Fate::Torn | Fate::Removed => self.give_up(live),
                }
                Err(error)
            }
        }
    }

    /// Create the next segment with its header line.
    fn begin(&mut self, now: Now) -> io::Result<LiveSegment> {
        self.find_end_of_chain()?;
        let (file, path) = self.create(now)?;
        let mut live = LiveSegment::new(file, path, self.next_number, now.monotonic);
        let mut header =
            segment::header_line(now.unix_nano, &self.config.boot_id, live.number, &self.config.origin).into_bytes();
        if let Some(abandoned) = self.abandoned {
            header.truncate(header.len() - b"}\n".len());
            header.extend_from_slice(format!(",\"abandoned\":{abandoned}}}\n").as_bytes());
        }
        self.chain_header(&mut header);
        let begun = live.append(&mut self.os, &header).map_err(|stopped| stopped.source);
        if let Err(error) = begun.and_then(|()| self.sync_name()) {
            self.discard(&live);
            return Err(error);
        }
        Ok(live)
    }

    /// Create a file under a free name, and the directory if it is missing.
    fn create(&mut self, now: Now) -> io::Result<(File, PathBuf)> {
        let mut last = io::ErrorKind::AlreadyExists.into();
        for _ in 0..NAME_TRIES {
            let name = SegmentName {
                prefix: self.config.prefix.clone(),
                begun_unix_milli: self.name_time(now.unix_nano / 1_000_000),
                boot_id: self.config.boot_id.clone(),
                number: self.next_number,
            };
            let path = self.config.dir.join(name.to_string());
            match self.os.create_segment(&path) {
                Ok(file) => return Ok((file, path)),
                Err(error) => last = error,
            }
            match last.kind() {
                io::ErrorKind::NotFound => self.create_dir()?,
                // A leftover is not touched: it keeps its number.
                io::ErrorKind::AlreadyExists => self.next_number += 1,
                _ => break,
            }
        }
        Err(last)
    }

    fn count(&mut self, live: &mut LiveSegment, records: u64, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        if live.records == 0 {
            // With its first record a segment stays, and its number is taken.
            self.next_number = live.number + 1;
            self.abandoned = None;
            self.stats.segments += 1;
            self.point_latest_at(live);
        }
        live.count(records, lines);
        self.stats.records += records;
        self.stats.bytes += lines.len() as u64;
    }

    fn point_latest_at(&mut self, live: &LiveSegment) {
        if let Some(target) = live.path.file_name() {
            let temporary = self.config.dir.join(format!(".{LATEST}-{}", self.config.boot_id));
            let _ = self.os.replace_link(target.as_ref(), &self.config.dir.join(LATEST), &temporary);
        }
    }

    /// End the live segment if it is too old, or too full for `more` bytes.
    fn rotate_if_due(&mut self, more: usize, now: Now) -> io::Result<()> {
        // A leader that dies has published only where the rest of its batch went, so the beginning must be there too.
        let Some(live) = self.live.as_ref().filter(|_| !self.divided) else {
            return Ok(());
        };
        let FileSinkConfig { rotate_bytes, rotate_interval, .. } = self.config;
        let full = rotate_bytes != 0 && live.len + more as u64 > rotate_bytes && live.records > 0;
        let old = !rotate_interval.is_zero() && now.monotonic.saturating_sub(live.begun) >= rotate_interval;
        if !full && !old {
            return Ok(());
        }
        match self.seal(now, b"") {
            Ok(Some(sealed)) => self.pacer.seal(&mut self.os, &sealed.file, sealed.len),
            Err(error) if self.live.is_some() => return Err(error),
            // A footer that can never be written holds back no record.
            Ok(None) | Err(_) => {}
        }
        if let Some(rotations) = &self.config.rotations {
            rotations.of(&self.config.dir).keep_quota();
        }
        Ok(())
    }

    /// End the live segment with a footer and return it, unless it is gone or had no records.
    ///
    /// After an error the segment is still live if the error may pass.
    fn seal(&mut self, now: Now, extra: &[u8]) -> io::Result<Option<LiveSegment>> {
        let Some(mut live) = self.live.take() else {
            return Ok(None);
        };
        if live.records == 0 {
            self.discard(&live);
            return Ok(None);
        }
        match self.write_footer(&mut live, now, extra) {
            Ok(()) => Ok(Some(live)),
            Err(Stopped { fate: Fate::Usable, source, .. }) => {
                self.live = Some(live);
                Err(source)
            }
            Err(stopped) => {
                self.give_up(live);
                // If the segment was removed, its footer is not missed.
                if stopped.fate == Fate::Removed { Ok(None) } else { Err(stopped.source) }
            }
        }
    }

    fn write_footer(&mut self, live: &mut LiveSegment, now: Now, extra: &[u8]) -> Result<(), Stopped> {
        let members = [live.account.members().as_bytes(), extra].concat();
        let footer = segment::footer_line(now.unix_nano, live.number, live.records, live.bytes, &members);
        if self.durable.is_some() { self.commit_footer(live, footer) } else { live.append(&mut self.os, &footer) }
    }

    /// Try once to end a failing segment in good order.
    fn footer_or_give_up(&mut self, mut live: LiveSegment, now: Now) {
        if live.records > 0 && self.write_footer(&mut live, now, b"").is_ok() {
            self.pacer.forget();
        } else {
            self.give_up(live);
        }
    }

    /// Leave a segment as it is; one without records goes.
    fn give_up(&mut self, live: LiveSegment) {
        self.pacer.forget();
        if live.records == 0 {
            self.discard(&live);
        } else {
            self.stats.segments_abandoned += 1;
            self.abandoned = Some(live.number);
        }
    }

    /// Remove a segment without records; its number is free again once the name is removed.
    fn discard(&mut self, live: &LiveSegment) {
        self.pacer.forget();
        match self.os.remove(&live.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.next_number = live.number + 1;
                self.abandoned = Some(live.number);
            }
            _ => self.forget_header(),
        }
    }

    fn pace(&mut self) {
        if let Some(live) = &self.live {
            self.pacer.advance(&mut self.os, &live.file, live.len);
        }
    }
}

impl<O: Os> Sink for FileSink<O> {
    fn name(&self) -> &'static str {
        "file"
    }

    fn prepare(&mut self, bytes: usize, now: Now) -> io::Result<Option<(&Path, u64)>> {
        self.rotate_if_due(bytes, now)?;
        if self.live.is_none() {
            self.live = Some(self.begin(now)?);
        }
        Ok(self.live.as_ref().map(|live| (live.path.as_path(), live.len)))
    }

    fn write(&mut self, lines: &[u8], records: u64, now: Now) -> Result<(), WriteError> {
        if lines.is_empty() {
            return Ok(());
        }
        // Before the write, not after it: the listener frees the queue first, then waits for a device.
        self.pace();
        self.rotate_if_due(lines.len(), now).map_err(WriteError::nothing_written)?;
        // A second removal within one call is deliberate interference: the caller gets the error.
        let append = if self.durable.is_some() { Self::commit } else { Self::append };
        if append(self, lines, records, now)? && append(self, lines, records, now)? {
            return Err(WriteError::nothing_written(io::ErrorKind::NotFound.into()));
        }
        Ok(())
    }

    fn maintain(&mut self, now: Now) -> io::Result<()> {
        self.pace();
        self.rotate_if_due(0, now)
    }

    fn close(&mut self, now: Now, footer: &[u8]) -> io::Result<()> {
        if let Some(sealed) = self.seal(now, footer)? {
            self.pacer.leave(&mut self.os, &sealed.file, sealed.len);
        }
        self.give_back_claim();
        Ok(())
    }

    fn stats(&self) -> SinkStats {
        self.stats
    }

    fn segments(&self) -> Option<Segments<'_>> {
        Some(Segments { directory: &self.config.dir, prefix: &self.config.prefix })
    }

    fn is_durable(&self) -> bool {
        self.durable.is_some()
    }
}

// Paced writeback: how the file sink keeps the page cache small (property P9).
//
// The lines of a segment are cut into windows of `writeback_bytes`. The writeback of a full window is started at once,
// and the window before it is waited for and dropped from the cache. So at most two windows are dirty, plus one batch,
// across segments: the rest of a sealed segment is a window like any other. Waiting here slows the listener to the
// speed of the device, never a producer. File systems without a device (tmpfs) refuse these calls, which costs nothing
// and means nothing: errors are ignored, and a failing device shows in the next write.

/// The windows of one sink, which writes one segment after the other.
#[derive(Debug)]
pub(super) struct Pacer {
    /// Bytes of a window; 0 leaves writeback to the kernel.
    window: u64,
    /// The position of the current segment's first byte whose writeback is not started.
    from: u64,
    in_flight: Option<(Arc<File>, Range<u64>)>,
}

impl Pacer {
    pub(super) fn new(window: u64) -> Self {
        Self { window, from: 0, in_flight: None }
    }

    /// Start every full window of the live segment, which has grown to `len`.
    pub(super) fn advance(&mut self, os: &mut impl Os, file: &Arc<File>, len: u64) {
        if self.window == 0 {
            return;
        }
        // The file may have been cut from outside.
        self.from = self.from.min(len);
        while len - self.from >= self.window {
            self.start(os, file, self.from..self.from + self.window);
            self.from += self.window;
        }
    }

    /// Start the rest of a sealed segment of `len` bytes; the next segment begins at 0.
    pub(super) fn seal(&mut self, os: &mut impl Os, file: &Arc<File>, len: u64) {
        self.advance(os, file, len);
        if self.window != 0 && self.from < len {
            self.start(os, file, self.from..len);
        }
        self.from = 0;
    }

    /// Start the rest of the last segment and wait for nothing: closing must not hang on a device.
    pub(super) fn leave(&mut self, os: &mut impl Os, file: &Arc<File>, len: u64) {
        if self.window != 0 && self.from < len {
            let _ = os.start_writeback(file, self.from..len);
        }
        self.forget();
    }

    /// Release every file, so that a removed one gives its space back.
    pub(super) fn forget(&mut self) {
        self.from = 0;
        self.in_flight = None;
    }

    fn start(&mut self, os: &mut impl Os, file: &Arc<File>, range: Range<u64>) {
        let _ = os.start_writeback(file, range.clone());
        if let Some((file, range)) = self.in_flight.replace((Arc::clone(file), range)) {
            let _ = os.finish_writeback(&file, range);
        }
    }
}
