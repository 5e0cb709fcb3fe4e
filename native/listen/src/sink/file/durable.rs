//! Lines that survive the loss of power: the file sink's additional work for the audit lane.
//!
//! * A batch is either whole and on the device, or not there at all: its lines are appended, `fdatasync`ed, and only
//!   then does the sink return `Ok`. One sync serves all records that have gathered during the last one.
//! * After a failed sync nothing is trusted any more (what PostgreSQL learnt in 2018): the kernel may have marked the
//!   pages clean that it could not write, so a second sync succeeds and proves nothing. The segment is cut back to its
//!   last committed line and given up; the caller writes the batch again, into a new one.
//! * The descriptor stays open from the write to the sync, and nothing else waits for its writeback: an error is
//!   reported once, to the first caller that asks.
//! * The name of a new segment, and that of its directory, is on the device before a line in it counts.
//! * One sink at a time writes the segments of a prefix in a directory, by a lock that the kernel releases: a chain has
//!   no branches. The lock is taken with the first segment and released at the close.
//! * With a chain ([`segments::chain`]) every line carries its value. A sink begins behind the end of the newest
//!   segment; names never go back, even if the clock does, so that the newest is the last name.

use super::{Fate, FileSink, LiveSegment, Stopped};
use crate::sink::os::Os;
use crate::sink::{Now, WriteError, whole_lines};
use queue::lock::{Attempt, ProcessLock};
use segments::chain::{self, Algorithm, Chain, START, Value};
use segments::line::{self, Piece};
use segments::segment::Form;
use segments::segment_store::{Inventory, RealStore, Stored};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How many bytes at the end of a segment are searched first.
const TAIL_BYTES: u64 = 256 << 10;

/// How lines survive the loss of power.
#[derive(Clone, Debug, Default)]
pub struct DurableSettings {
    /// A hash over all lines. None: lines as they are.
    pub chain: Option<ChainSettings>,
}

/// How the hash chain is computed.
#[derive(Clone)]
pub struct ChainSettings {
    pub algorithm: Algorithm,
    pub key: Option<Value>,
}

impl fmt::Debug for ChainSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key itself must not appear in a message.
        write!(f, "ChainSettings({}, keyed: {})", self.algorithm.name(), self.key.is_some())
    }
}

/// The state of a durable file sink besides its live segment.
pub(super) struct Durable {
    settings: DurableSettings,
    /// After the last written line; None until the first segment begins, and without a chain.
    chain: Option<Chain>,
    /// Before the live segment's header, which counts only with the first batch behind it.
    before_header: Option<Chain>,
    /// Held from the first segment to the close; then the directory has been searched, and is on the device.
    claim: Option<Claim>,
    /// When the newest segment began, by its name.
    newest_milli: u64,
    spare: Vec<u8>,
}

/// The right to write the segments of a prefix in a directory.
enum Claim {
    Held {
        _lock: ProcessLock,
    },
    /// The file system knows no locks.
    Unlocked,
}

impl Claim {
    fn take(dir: &Path, prefix: &str) -> io::Result<Self> {
        match ProcessLock::try_acquire(&dir.join(format!(".{prefix}.lock")), true) {
            Ok(Attempt::Acquired(lock)) => Ok(Self::Held { _lock: lock }),
            Ok(Attempt::HeldElsewhere | Attempt::HeldByThisProcess) => {
                let message = format!(
                    "the segments of {prefix} in {} have another writer: each queue directory needs a directory of its own",
                    dir.display()
                );
                Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS)) => {
                Ok(Self::Unlocked)
            }
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durable").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Durable {
    pub(super) fn new(settings: &DurableSettings) -> Self {
        let settings = settings.clone();
        Self { settings, chain: None, before_header: None, claim: None, newest_milli: 0, spare: Vec::new() }
    }
}

impl<O: Os> FileSink<O> {
    /// Before the first segment: continue where the last one of the directory ends. Not at the opening: another process
    /// may still lead.
    pub(super) fn find_end_of_chain(&mut self) -> io::Result<()> {
        if self.durable.as_ref().is_none_or(|durable| durable.claim.is_some()) {
            return Ok(());
        }
        self.create_dir()?;
        let (Some(durable), dir) = (&mut self.durable, &self.config.dir) else { return Ok(()) };
        let claim = Claim::take(dir, &self.config.prefix)?;
        let inventory = Inventory::take(&mut RealStore, dir, &self.config.prefix)?;
        durable.newest_milli = inventory.segments.last().map_or(0, |stored| stored.name.begun_unix_milli);
        if let Some(ChainSettings { algorithm, key }) = &durable.settings.chain {
            let end = end_of_chain(dir, &inventory.segments)?;
            durable.chain = Some(Chain::new(*algorithm, *key, end));
        }
        durable.claim = Some(claim);
        Ok(())
    }

    /// Let the next sink write here.
    pub(super) fn give_back_claim(&mut self) {
        if let Some(durable) = &mut self.durable {
            durable.claim = None;
        }
    }

    /// Create the directory if it is missing; a durable one is on the device then.
    pub(super) fn create_dir(&mut self) -> io::Result<()> {
        let dir = &self.config.dir;
        self.os.create_dir(dir)?;
        match dir.parent().filter(|parent| self.durable.is_some() && !parent.as_os_str().is_empty()) {
            Some(parent) => self.os.sync_dir(parent),
            None => Ok(()),
        }
    }

    /// Return the time in the name of a segment that begins now.
    pub(super) fn name_time(&mut self, unix_milli: u64) -> u64 {
        let Some(durable) = &mut self.durable else { return unix_milli };
        durable.newest_milli = unix_milli.max(durable.newest_milli + 1);
        durable.newest_milli
    }

    /// Link the header of a segment to the end of the one before.
    pub(super) fn chain_header(&mut self, header: &mut Vec<u8>) {
        let Some(durable) = &mut self.durable else { return };
        durable.before_header.clone_from(&durable.chain);
        if let Some(chain) = &mut durable.chain {
            header.truncate(header.len() - b"}\n".len());
            header.extend_from_slice(chain.header_members().as_bytes());
            header.extend_from_slice(b"}\n");
            chain.append(header);
        }
    }

    /// The live segment is removed, its header with it.
    pub(super) fn forget_header(&mut self) {
        if let Some(durable) = &mut self.durable {
            durable.chain.clone_from(&durable.before_header);
        }
    }

    /// Wait until the name of a new segment is on the device.
    pub(super) fn sync_name(&mut self) -> io::Result<()> {
        if self.durable.is_some() { self.os.sync_dir(&self.config.dir) } else { Ok(()) }
    }

    /// Bring all of `lines` to the device, in the live segment or a new one; true if that one was removed underneath.
    pub(super) fn commit(&mut self, lines: &[u8], records: u64, now: Now) -> Result<bool, WriteError> {
        let mut live = match self.live.take() {
            Some(live) => live,
            None => self.begin(now).map_err(WriteError::nothing_written)?,
        };
        let (chained, end) = self.chained(lines);
        let committed = self.append_and_sync(&mut live, &chained);
        if committed.is_ok() {
            self.count(&mut live, records, &chained);
        }
        self.keep(chained);
        match committed {
            Ok(()) => {
                self.go_on_from(end);
                self.live = Some(live);
                Ok(false)
            }
            Err(Stopped { fate: Fate::Removed, .. }) => {
                self.give_up(live);
                Ok(true)
            }
            Err(Stopped { fate, source, .. }) => {
                if fate == Fate::Usable {
                    self.live = Some(live);
                } else {
                    self.give_up(live);
                }
                Err(WriteError::nothing_written(source))
            }
        }
    }

    /// Bring the footer of a segment to the device. It is not a record: without it the segment ends as if its listener
    /// had died.
    pub(super) fn commit_footer(&mut self, live: &mut LiveSegment, footer: Vec<u8>) -> Result<(), Stopped> {
        let (chained, end) = self.chained(&footer);
        self.append_and_sync(live, &chained)?;
        self.go_on_from(end);
        Ok(())
    }

    /// Append and sync; after an error nothing of `bytes` is in the file, unless it cannot even be cut.
    fn append_and_sync(&mut self, live: &mut LiveSegment, bytes: &[u8]) -> Result<(), Stopped> {
        let start = live.len;
        let stopped = match live.append(&mut self.os, bytes) {
            Err(stopped) => stopped,
            Ok(()) => match self.os.sync_data(&live.file) {
                Ok(()) => return Ok(()),
                Err(source) => Stopped { whole: 0, fate: Fate::Failed, source },
            },
        };
        if stopped.fate == Fate::Removed {
            return Err(stopped);
        }
        let cut = live.cut_to(&mut self.os, start);
        if stopped.fate == Fate::Failed {
            // So that the cut lines do not come back with the next start of the machine; whether it helps is unknown.
            let _ = self.os.sync_data(&live.file);
        }
        let fate = if cut { stopped.fate } else { Fate::Torn };
        Err(Stopped { whole: 0, fate, source: stopped.source })
    }

    /// Return `lines` in the form to be written, and the end of the chain behind them.
    fn chained(&mut self, lines: &[u8]) -> (Vec<u8>, Option<Chain>) {
        let Some(durable) = &mut self.durable else { return (lines.to_vec(), None) };
        let mut out = std::mem::take(&mut durable.spare);
        out.clear();
        let mut end = durable.chain.clone();
        match &mut end {
            Some(chain) => {
                out.reserve(lines.len() + lines.len() / 2);
                chain.append_lines(lines, &mut out);
            }
            None => out.extend_from_slice(lines),
        }
        (out, end)
    }

    fn go_on_from(&mut self, end: Option<Chain>) {
        if let Some(durable) = &mut self.durable {
            durable.chain = end;
        }
    }

    fn keep(&mut self, spare: Vec<u8>) {
        if let Some(durable) = &mut self.durable {
            durable.spare = spare;
        }
    }
}

/// Find the value of the last line that carries one, in the newest segment that has such a line.
fn end_of_chain(dir: &Path, segments: &[Stored]) -> io::Result<Value> {
    for stored in segments.iter().rev() {
        let path = |form| dir.join(stored.name.file_name(form));
        let found = match (stored.plain, stored.compressed) {
            (Some(_), _) => end_of_plain(&path(Form::Plain))?,
            _ => last_value_in(zstd::stream::read::Decoder::new(File::open(path(Form::Compressed))?)?)?,
        };
        if let Some(value) = found {
            return Ok(value);
        }
    }
    Ok(START)
}

fn end_of_plain(path: &Path) -> io::Result<Option<Value>> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let begin = len.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; (len - begin) as usize];
    file.read_exact_at(&mut tail, begin)?;
    match last_value(&tail) {
        None if begin > 0 => last_value_in(file),
        found => Ok(found),
    }
}

fn last_value_in(content: impl io::Read) -> io::Result<Option<Value>> {
    let mut found = None;
    line::read_pieces(content, |piece| {
        if let Piece::Lines(lines) = piece {
            found = last_value(lines).or(found);
        }
    })?;
    Ok(found)
}

/// The value of the last whole line that carries one; a torn line at either end carries none.
fn last_value(bytes: &[u8]) -> Option<Value> {
    let whole = &bytes[..whole_lines(bytes)];
    whole.split_inclusive(|byte| *byte == b'\n').rev().find_map(chain::value_of)
}
