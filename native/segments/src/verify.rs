//! Proves that the books of directories balance (P6): per process `accepted = written + torn + corrupt + in_queue`; or
//! shows where they do not.
//!
//! It reads the segments of directories, plain, compressed and live, and the queues of queue directories. The number of
//! records that a process accepted is known by its `process.ended` record, or by its queue. Their sequences have no
//! gaps, so each one must be in a segment, wait in the queue, be reported as torn or corrupt, or have been in a segment
//! whose removal by retention is reported. All other missing sequences are a gap. Beyond that, a sealed segment must
//! hold what its footer says, and a chained one must be a chain.
//!
//! A directory in use can be verified: queues are read before segments, so that every record that they released must be
//! found. A segment that is compressed meanwhile is found in its other form; the removal of a segment is reported
//! before it happens.

mod account;
mod chains;
mod intervals;
pub mod listing;
mod reading;
mod reported;
pub mod scan;

use crate::chain::Value as ChainValue;
use account::{Account, Segments, Verdict};
use listing::{Database, Listed};
use queue::inspect::QueueSnapshot;
use reading::Reading;
use scan::Found;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The directories and stores to verify.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub directories: Vec<PathBuf>,
    /// With segments, or instead of them.
    pub databases: Vec<Database>,
    pub queue_directories: Vec<PathBuf>,
    /// Names of services; empty: all.
    pub prefixes: Vec<String>,
    /// For chains that have one.
    pub chain_key: Option<ChainValue>,
    /// The most records that can wait in a queue; 0: not known.
    pub most_waiting: u64,
}

/// Reads everything and draws the balance, as JSON: `balanced`, `totals`, `processes`, `problems`, `notes`, `segments`.
///
/// # Errors
/// A directory or a segment cannot be read.
pub fn verify(request: &Request) -> io::Result<Value> {
    let begun = Instant::now();
    let mut report = balance(reading::read(request)?, request);
    report["seconds"] = json!(begun.elapsed().as_secs_f64());
    Ok(report)
}

fn named(path: &std::path::Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn balance(Reading { queues, segments, reported, unreadable }: Reading, request: &Request) -> Value {
    let (listed, found): (Vec<Listed>, Vec<Found>) = segments.into_values().unzip();
    let lines = || found.iter().flat_map(|found| &found.reported).chain(&reported);
    let mut by_process = reported::by_process(lines());
    for found in &found {
        reported::take_footer(&mut by_process, &found.processes);
    }
    let short: Vec<HashMap<u64, u64>> = found.iter().map(|found| found.short.clone()).collect();
    let newest_removed = reported::newest_removed(lines());
    let places = Segments { listed: &listed, short: &short, newest_removed, most_waiting: request.most_waiting };
    let accounts = accounts(&found, by_process, queues);
    let mut verdicts: Vec<Verdict> = accounts.values().map(|account| account.judge(&places)).collect();
    verdicts.sort_by_key(|verdict| verdict.json["first_time"].as_str().unwrap_or("~").to_owned());
    let mut problems: Vec<Problem> = verdicts.iter().flat_map(|verdict| verdict.problems.clone()).collect();
    problems.extend(found.iter().flat_map(|found| found.problems.clone()));
    problems.extend(unreadable.iter().map(|(path, error)| Problem::of_queue(path, error)));
    problems.extend(chains::missing(&listed, &found));
    let (chain, broken) = chains::check(&listed, &found, request.chain_key.is_some());
    problems.extend(broken);
    json!({
        "balanced": problems.is_empty(),
        "totals": totals(&verdicts),
        "processes": verdicts.iter().map(|verdict| verdict.json.clone()).collect::<Vec<_>>(),
        "problems": problems.iter().map(Problem::to_json).collect::<Vec<_>>(),
        "notes": notes(&listed, &found),
        "chain": chain,
        "segments": sizes(&listed, &found),
    })
}

fn accounts<'a>(
    found: &'a [Found],
    reported: HashMap<u64, (u32, reported::ReportedLosses)>,
    queues: Vec<QueueSnapshot>,
) -> BTreeMap<u64, Account<'a>> {
    let mut accounts = BTreeMap::<u64, Account<'a>>::new();
    let mut of = |boot_id: u64, pid: u32, change: &mut dyn FnMut(&mut Account<'a>)| {
        change(accounts.entry(boot_id).or_insert_with(|| Account { boot_id, pid, ..Account::default() }));
    };
    for (at, found) in found.iter().enumerate() {
        for run in &found.runs {
            of(run.boot_id, run.pid, &mut |account| account.runs.push((at, run)));
        }
    }
    for (boot_id, (pid, reported)) in reported {
        of(boot_id, pid, &mut |account| account.reported = reported.clone());
    }
    for queue in queues {
        of(queue.counts.boot_id, queue.counts.pid, &mut |account| account.queue = Some(queue.clone()));
    }
    // Known only by a footer's counts: it never had a record, and has nothing to prove.
    accounts.retain(|_, account| !account.is_empty());
    accounts
}

fn totals(verdicts: &[Verdict]) -> Value {
    let mut sums = BTreeMap::<&str, u64>::new();
    let mut dropped = BTreeMap::<String, u64>::new();
    for verdict in verdicts {
        verdict.counts.iter().for_each(|(name, count)| *sums.entry(name).or_default() += count);
        for (reason, levels) in verdict.json["dropped"].as_object().into_iter().flatten() {
            *dropped.entry(reason.clone()).or_default() += reported::sum_of(levels);
        }
    }
    let mut totals = json!(sums);
    let commands = verdicts.iter().filter(|verdict| verdict.json.get("command").is_some()).count();
    totals["processes"] = json!(verdicts.len() - commands);
    totals["commands"] = json!(commands);
    totals["dropped"] = json!(dropped);
    totals
}

/// Facts that an operator may want to know and that are no faults.
fn notes(listed: &[Listed], found: &[Found]) -> Vec<Value> {
    let mut notes = Vec::new();
    for (listed, found) in listed.iter().zip(found) {
        let mut note =
            |kind: &str, text: String| notes.push(json!({"kind": kind, "segment": path_of(listed), "text": text}));
        if found.torn_bytes > 0 && !found.live {
            note("torn_end", format!("{} bytes of an unfinished line at its end: not a record", found.torn_bytes));
        }
        if !found.sealed && !found.live && listed.database.is_none() {
            note("no_footer", "its listener did not live to seal it: there is no checksum to compare".to_owned());
        }
        if listed.plain && listed.compressed {
            note("two_forms", "plain and compressed; the plain one was read".to_owned());
        }
    }
    notes
}

fn sizes(listed: &[Listed], found: &[Found]) -> Value {
    json!({
        "files": listed.len(),
        "compressed": listed.iter().filter(|listed| !listed.plain).count(),
        "live": found.iter().filter(|found| found.live).count(),
        "sealed": found.iter().filter(|found| found.sealed).count(),
        "lines": found.iter().map(|found| found.lines).sum::<u64>(),
        "bytes": found.iter().map(|found| found.bytes).sum::<u64>(),
        "disk_bytes": listed.iter().map(|listed| listed.disk_bytes).sum::<u64>(),
    })
}

/// A count that does not balance, or a part that does not fit. Without any, the books balance.
#[derive(Clone, Debug, Default)]
struct Problem {
    pub kind: &'static str,
    pub text: String,
    /// Path of a segment, or of a queue.
    pub segment: Option<String>,
    /// Counted from 1.
    pub line: Option<u64>,
    pub boot_id: Option<String>,
    /// Sequences.
    pub first: Option<u64>,
    pub last: Option<u64>,
}

impl Problem {
    /// A problem of a segment.
    #[must_use]
    pub fn of_segment(kind: &'static str, listed: &Listed, text: String) -> Self {
        Self { kind, text, segment: Some(path_of(listed)), ..Self::default() }
    }

    /// A problem of a file in a queue directory.
    #[must_use]
    pub fn of_queue(path: &Path, error: &io::Error) -> Self {
        let text = format!("what is in it is not known: {error}");
        Self { kind: "queue_unreadable", text, segment: Some(path.display().to_string()), ..Self::default() }
    }

    /// A problem of a process.
    #[must_use]
    pub fn of(kind: &'static str, boot_id: u64, text: String) -> Self {
        let mut own = Self { kind, text, ..Self::default() };
        own.of_process(boot_id);
        own
    }

    /// Names the line; 0: none.
    #[must_use]
    pub fn at_line(mut self, line: u64) -> Self {
        self.line = (line > 0).then_some(line);
        self
    }

    /// Names the records.
    #[must_use]
    pub fn at(mut self, first: u64, last: u64) -> Self {
        (self.first, self.last) = (Some(first), Some(last));
        self
    }

    /// Names the process.
    pub fn of_process(&mut self, boot_id: u64) {
        self.boot_id = Some(format!("{boot_id:016x}"));
    }

    /// The problem as JSON, without unknown members.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let members = [
            ("kind", Some(json!(self.kind))),
            ("text", Some(json!(self.text))),
            ("segment", self.segment.as_ref().map(|path| json!(path))),
            ("line", self.line.map(|line| json!(line))),
            ("boot_id", self.boot_id.as_ref().map(|boot_id| json!(boot_id))),
            ("first", self.first.map(|first| json!(first))),
            ("last", self.last.map(|last| json!(last))),
        ];
        let known = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(known.collect::<Map<_, _>>())
    }
}

/// The path of a segment for display: its plain form's, or the compressed one's if there is no other.
#[must_use]
fn path_of(listed: &Listed) -> String {
    let form = if listed.plain { crate::segment::Form::Plain } else { crate::segment::Form::Compressed };
    listed.path(form).display().to_string()
}
