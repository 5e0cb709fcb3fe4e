//! Repairs the end of the segment that a dead leader wrote last, if that is allowed.
//!
//! Never cut: a segment that is not the sink's own, has a footer, or has a writer; anything for a queue directory that
//! is a copy. A write that a durable sink has not committed is cut off only if the available queues hold all of it, and
//! no chain continues from it: then it is written again. Otherwise it stays, and that is reported.

use super::place::{LONGEST_BATCH, Plain, PublishedPlace};
use super::{Findings, Held, Inquiry, Torn, survey, what_stands_in};
use crate::sink::{Segments, whole_lines};
use segments::line::{self, LinePrefix};
use std::io;
use std::path::Path;

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
            ..survey::survey(inquiry, own, is_durable)
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
            Ok(Findings { kept, ..survey::survey(inquiry, own, is_durable) })
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
        return Ok(Findings { kept: Some(kept(&plain.path, why)), ..survey::survey(inquiry, own, true) });
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
