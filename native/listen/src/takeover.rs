//! A new leader's treatment of the last write of a leader that died (P7): exactly once per file.
//!
//! Before each write the leader publishes where it goes. If it dies between the write and the release of the records,
//! they are in the segment and in the queue. Its successor reads the segment from the published offset on and releases
//! the records that it finds there; an unfinished last line is cut off, since its record is still in the queue, and a
//! `segment.repaired` record reports that. The report comes before the repair: a listener that dies in between leaves
//! both to its successor.
//!
//! The published place lies in shared memory, and is not trusted (P14): [`place`] has the conditions for trusting it,
//! [`mod@repair`] those for cutting anything off. If they do not hold, or the queue directory is a copy, nothing is cut,
//! and all segments of the sink's directory are searched for the queues' records ([`survey`]).

mod place;

use crate::attached::{Held, QueueReader};
use crate::sink::{Segments, whole_lines};
use lines::encode::Encoder;
use place::{LONGEST_BATCH, Plain, PublishedPlace};
use queue::record::Scratch;
use segments::line::{self, LinePrefix};
use segments::segment::Form;
use segments::verify::listing::{self, Listed};
use segments::verify::scan::{self, Found};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What a new leader asks about the last write of a sink.
#[derive(Clone, Debug, Default)]
pub struct Inquiry {
    /// Where the write began, as it was published.
    pub place: Option<(PathBuf, u64)>,
    pub held: Vec<Held>,
    /// The queue directory is a copy: its content describes another one.
    pub is_copy: bool,
}

/// The answer to an inquiry.
#[derive(Debug, Default)]
pub struct Findings {
    pub standing: Standing,
    /// Processes whose records are in a segment that another listener is writing right now.
    pub written_elsewhere: HashSet<u64>,
    /// A write that should have been cut off, and stays: which segment, and why.
    pub kept: Option<String>,
}

/// What segments hold, by process.
pub(crate) type Standing = HashMap<u64, Left>;

/// What segments hold of one process.
#[derive(Debug, Default)]
pub struct Left {
    pub last: Option<u64>,
    /// The sum of all losses that its `log.dropped` lines report.
    pub losses: u64,
    pub ended: bool,
}

impl Left {
    /// Adds a line that a listener wrote about the process.
    fn add(&mut self, event: &[u8], text: &[u8]) {
        match event {
            b"log.dropped" => self.losses = self.losses.max(losses_in(text).unwrap_or(0)),
            b"process.ended" => self.ended = true,
            _ => {}
        }
    }
}

/// Skips the records that are `standing` in segments, written by the last leader: they are released, and not written
/// again. Returns how many records of queues they are.
pub(crate) fn read_written(standing: &Standing, queues: &mut [QueueReader], encoder: &mut Encoder) -> u64 {
    let mut records = 0;
    for queue in queues {
        let Some(left) = standing.get(&queue.file.header().boot_id) else { continue };
        if let Some(last) = left.last {
            records += queue.read_up_to(last, encoder);
        }
        queue.note_reported(left.losses, left.ended);
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
    /// The number of bytes behind them.
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

fn what_stands_in(lines: &[u8]) -> Standing {
    let mut standing = Standing::new();
    for text in line::whole_lines(lines) {
        let Some((head, process)) = LinePrefix::read(text).and_then(|head| Some((head, head.process?))) else {
            continue;
        };
        let left = standing.entry(process.boot_id).or_default();
        match process.seq {
            Some(seq) => left.last = Some(seq),
            None => left.add(head.event, text),
        }
    }
    standing
}

/// The sum of all losses that a `log.dropped` line reports: those reported before it too.
fn losses_in(line: &[u8]) -> Option<u64> {
    let line = line::parse(line).ok()?;
    let levels = line.get("reasons")?.as_object()?.values().filter_map(|levels| levels.as_object());
    Some(levels.flat_map(|levels| levels.values()).filter_map(|count| count.as_u64()).fold(0, u64::wrapping_add))
}

// Repairs the end of the segment that a dead leader wrote last, if that is allowed.
//
// Never cut: a segment that is not the sink's own, has a footer, or has a writer; anything for a queue directory that
// is a copy. A write that a durable sink has not committed is cut off only if the available queues hold all of it, and
// no chain continues from it: then it is written again. Otherwise it stays, and that is reported.

/// The state of the published write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// By a sink whose lines survive every process.
    Plain,
    /// By a sink whose lines survive the loss of power; on the device.
    Committed,
    /// By such a sink, but not committed; no process relies on it.
    Uncommitted,
}

/// Finds out which lines of the last leader's last write are there, and repairs its end; `report` is called before the
/// repair.
///
/// # Errors
/// `WouldBlock` while somebody still writes the lines that are looked for, or would have to be cut off.
pub fn repair(
    inquiry: &Inquiry,
    own: Option<Segments<'_>>,
    write: Write,
    report: &mut dyn FnMut(Torn),
) -> io::Result<Findings> {
    let is_durable = write != Write::Plain;
    let place = inquiry.place.as_ref().map(|(path, offset)| (path, PublishedPlace::open(path, *offset, own)));
    if inquiry.is_copy {
        return Ok(Findings {
            kept: place.and_then(|(_, place)| of_copy(place, write)),
            ..survey(inquiry, own, is_durable)
        });
    }
    match place {
        None => Ok(Findings::default()),
        Some((_, Ok(PublishedPlace::Compressed(lines)))) => Ok(standing(&lines)),
        Some((_, Ok(PublishedPlace::Plain(plain)))) if write == Write::Uncommitted => {
            withdraw(&plain, inquiry, own, report)
        }
        Some((_, Ok(PublishedPlace::Plain(plain)))) => read(&plain, report),
        Some((path, Err(error))) => {
            let is_no_place = error.kind() == io::ErrorKind::InvalidData;
            let kept = is_no_place.then(|| kept(path, &error.to_string()));
            Ok(Findings { kept, ..survey(inquiry, own, is_durable) })
        }
    }
}

fn standing(lines: &[u8]) -> Findings {
    Findings { standing: what_stands_in(lines), ..Findings::default() }
}

fn kept(path: &Path, why: &str) -> String {
    format!("{} is left as it is: {why}", path.display())
}

/// The write that would have been cut off for the original.
fn of_copy(place: io::Result<PublishedPlace>, write: Write) -> Option<String> {
    let Ok(PublishedPlace::Plain(plain)) = place else { return None };
    let is_left = write == Write::Uncommitted && plain.bytes_behind().is_ok_and(|bytes| bytes > 0);
    is_left.then(|| {
        let why = "the queue directory is a copy, and whether the write behind its byte";
        kept(&plain.path, &format!("{why} {} was committed is not known", plain.offset))
    })
}

/// Reads the whole lines behind the offset, and cuts an unfinished one off.
fn read(plain: &Plain, report: &mut dyn FnMut(Torn)) -> io::Result<Findings> {
    // Checked before it is read: an unfinished line in a segment without a writer stays unfinished.
    let has_writer = plain.has_writer();
    let lines = plain.read_behind()?;
    let whole = whole_lines(&lines);
    // The write may be under way still: a leader that closes leaves a thread behind that hangs.
    if has_writer && (lines.is_empty() || whole < lines.len()) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let is_all = plain.bytes_behind()? == lines.len() as u64;
    if whole < lines.len() && is_all && plain.why_whole()?.is_none() {
        let offset = plain.offset + whole as u64;
        report(Torn::at(&plain.path, offset, (lines.len() - whole) as u64));
        plain.cut(offset, false)?;
    }
    Ok(standing(&lines[..whole]))
}

/// Cuts off a write that no process relies on: its records are still in the queues.
fn withdraw(
    plain: &Plain,
    inquiry: &Inquiry,
    own: Option<Segments<'_>>,
    report: &mut dyn FnMut(Torn),
) -> io::Result<Findings> {
    if plain.bytes_behind()? == 0 {
        return Ok(Findings::default());
    }
    if plain.has_writer() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let lines = plain.read_behind()?;
    let why = match plain.why_whole()? {
        Some(why) => Some(why),
        None if plain.bytes_behind()? != lines.len() as u64 || lines.len() as u64 == LONGEST_BATCH => {
            Some("what is not committed is longer than any batch")
        }
        None if !are_held(&lines, &plain.name.boot_id, &inquiry.held) => {
            Some("lines that are not committed are in no queue any more")
        }
        None => match own {
            Some(own) if plain.is_followed(&lines, own)? => Some("another segment's chain goes on from it"),
            _ => None,
        },
    };
    if let Some(why) = why {
        return Ok(Findings { kept: Some(kept(&plain.path, why)), ..survey(inquiry, own, true) });
    }
    report(Torn::at(&plain.path, plain.offset, lines.len() as u64));
    plain.cut(plain.offset, true)?;
    Ok(Findings::default())
}

/// Whether every whole line is a record that a queue still holds, or one that the listener wrote about a process.
fn are_held(lines: &[u8], listener: &str, held: &[Held]) -> bool {
    line::whole_lines(lines).all(|text| {
        let Some(process) = LinePrefix::read(text).and_then(|head| head.process) else { return false };
        let mut queue = held.iter().filter(|queue| queue.boot_id == process.boot_id);
        match process.seq {
            Some(seq) => queue.any(|queue| (queue.first..queue.end).contains(&seq)),
            None => queue.next().is_some() || format!("{:016x}", process.boot_id) == listener,
        }
    })
}

// Finds the queues' records in all segments of a directory, when nothing says in which segment they are.
//
// Only segments that were written since the oldest of these records was made are read; for a copied queue without one,
// those since the queue was made: another listener may have written its end. A process writes in order: if its highest
// sequence is in a segment, all records before it are written too.

/// How much earlier than the oldest record a segment may have been written last: clocks are set.
const CLOCKS: Duration = Duration::from_secs(60);

/// Searches the segments of a directory, of whatever prefix. A segment that cannot be read counts as empty; with
/// `is_durable`, so does one that cannot be brought to the device.
fn survey(inquiry: &Inquiry, own: Option<Segments<'_>>, is_durable: bool) -> Findings {
    let mut findings = Findings::default();
    let processes: HashSet<u64> = inquiry.held.iter().map(|held| held.boot_id).collect();
    let listed = own.and_then(|own| listing::list(own.directory, &[]).ok()).unwrap_or_default();
    let since = since(inquiry);
    for listed in listed.iter().filter(|listed| is_younger(listed, since)) {
        let Ok(Some(found)) = scan::scan(listed, None) else { continue };
        let has_any = found.runs.iter().any(|run| processes.contains(&run.boot_id));
        if !has_any || !is_durable || found.live || is_on_device(listed) {
            add(&mut findings, &found, &processes);
        }
    }
    findings
}

fn since(inquiry: &Inquiry) -> Option<SystemTime> {
    let of = |held: &Held| held.oldest_unix_nano.or(inquiry.is_copy.then_some(held.created_unix_nano));
    let first = inquiry.held.iter().filter_map(of).min()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(first))?.checked_sub(CLOCKS)
}

fn is_younger(listed: &Listed, since: Option<SystemTime>) -> bool {
    let times = [Form::Plain, Form::Compressed].map(|form| std::fs::metadata(listed.path(form))?.modified());
    times.into_iter().flatten().max().is_none_or(|written| since.is_none_or(|since| written >= since))
}

fn is_on_device(listed: &Listed) -> bool {
    let form = if listed.plain { Form::Plain } else { Form::Compressed };
    File::open(listed.path(form)).and_then(|file| file.sync_data()).is_ok()
}

fn add(findings: &mut Findings, found: &Found, processes: &HashSet<u64>) {
    for run in found.runs.iter().filter(|run| processes.contains(&run.boot_id)) {
        let left = findings.standing.entry(run.boot_id).or_default();
        left.last = left.last.max(Some(run.last));
        if found.live {
            findings.written_elsewhere.insert(run.boot_id);
        }
    }
    for line in &found.reported {
        let Some(boot_id) = process_of(line).filter(|boot_id| processes.contains(boot_id)) else { continue };
        let event = line["event_name"].as_str().unwrap_or_default();
        findings.standing.entry(boot_id).or_default().add(event.as_bytes(), line.to_string().as_bytes());
    }
}

/// The process that a listener's line is about.
fn process_of(line: &Value) -> Option<u64> {
    let digits = line["boot_id"].as_str().filter(|_| line.get("seq").is_none())?;
    line::parse_boot_id(digits.as_bytes())
}
