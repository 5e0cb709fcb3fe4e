//! Finds the queues' records in all segments of a directory, when nothing says in which segment they are.
//!
//! Only segments that were written since the oldest of these records was made are read; for a copied queue without one,
//! those since the queue was made: another listener may have written its end. A process writes in order: if its highest
//! sequence is in a segment, all records before it are written too.

use super::{Findings, Held, Inquiry};
use crate::sink::Segments;
use segments::line;
use segments::segment::Form;
use segments::verify::listing::{self, Listed};
use segments::verify::scan::{self, Found};
use serde_json::Value;
use std::collections::HashSet;
use std::fs::File;
use std::time::{Duration, SystemTime};

/// How much earlier than the oldest record a segment may have been written last: clocks are set.
const CLOCKS: Duration = Duration::from_secs(60);

/// Searches the segments of a directory, of whatever prefix. A segment that cannot be read counts as empty; with
/// `is_durable`, so does one that cannot be brought to the device.
pub fn survey(inquiry: &Inquiry, own: Option<Segments<'_>>, is_durable: bool) -> Findings {
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
