//! The reports about processes in the rare lines of segments.

use super::intervals::Interval;
use crate::line;
use crate::segment::SegmentName;
use crate::segment_account::read_span;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// A process's last record.
#[derive(Clone, Debug)]
pub struct Ended {
    pub how: &'static str,
    /// When the process began, as a timestamp.
    pub started: String,
    pub accepted: u64,
    pub written: u64,
    pub reasons: Value,
    pub sampled_out: Value,
    /// What the process is called, if it has a name.
    pub producer_name: String,
    /// How often it is there.
    pub times: u64,
}

/// Everything that is reported about one process.
#[derive(Clone, Debug, Default)]
pub struct ReportedLosses {
    pub ended: Option<Ended>,
    /// The sum of its `log.dropped` records.
    pub dropped: u64,
    /// Sequences that were accepted and not written, and why.
    pub lost: Vec<(Interval, &'static str)>,
    /// Records in removed segments.
    pub removed: Vec<Interval>,
    /// Records that can stand in the sink and in its fallback.
    pub in_both: Vec<Interval>,
    /// From a listener's last footer: counts at that time.
    pub last_known_accepted: u64,
    pub at_deadline: u64,
    pub last_reasons: Value,
}

/// Sorts lines by the process that they describe.
#[must_use]
pub fn by_process<'a>(lines: impl Iterator<Item = &'a Value> + Clone) -> HashMap<u64, (u32, ReportedLosses)> {
    let mut all = HashMap::new();
    // A batch that hung in the sink can be in the fallback too, with all its lines: its records are reported.
    let is_in_both = |line: &Value| line["event_name"] == "sink.fallback" && line.get("in_both").is_some();
    let may_repeat = lines.clone().any(is_in_both);
    let mut seen = HashSet::new();
    for line in lines {
        if may_repeat && line.get("seq").is_none() && !seen.insert(line.to_string()) {
            continue;
        }
        match line["event_name"].as_str() {
            Some("process.ended") => {
                of_line(&mut all, line).into_iter().for_each(|reported| take_ended(reported, line))
            }
            Some("log.dropped") => {
                of_line(&mut all, line).into_iter().for_each(|reported| take_dropped(reported, line))
            }
            Some("segments.removed") => take_spans(&mut all, &line["spans"], |reported| &mut reported.removed),
            Some("sink.fallback") => take_spans(&mut all, &line["in_both"], |reported| &mut reported.in_both),
            _ => {}
        }
    }
    all
}

/// The newest segment whose removal is reported: those that began before it are removed too, except live ones.
#[must_use]
pub fn newest_removed<'a>(lines: impl Iterator<Item = &'a Value>) -> Option<SegmentName> {
    let names = lines.filter_map(|line| SegmentName::parse(line["newest"].as_str()?));
    names.max_by_key(|name| (name.begun_unix_milli, name.number))
}

/// Takes the counts of processes in a footer.
pub fn take_footer(all: &mut HashMap<u64, (u32, ReportedLosses)>, processes: &[Value]) {
    for process in processes {
        let Some(reported) = of_line(all, process) else { continue };
        let accepted = process["accepted"].as_u64().unwrap_or(0);
        if accepted >= reported.last_known_accepted {
            reported.last_known_accepted = accepted;
            reported.last_reasons = process["dropped"].clone();
            reported.at_deadline = sum_of(&process["dropped"]["shutdown_deadline"]);
        }
    }
}

fn of_line<'a>(all: &'a mut HashMap<u64, (u32, ReportedLosses)>, line: &Value) -> Option<&'a mut ReportedLosses> {
    let boot_id = line::parse_boot_id(line["boot_id"].as_str()?.as_bytes())?;
    let pid = u32::try_from(line["pid"].as_u64()?).ok()?;
    Some(&mut all.entry(boot_id).or_insert_with(|| (pid, ReportedLosses::default())).1)
}

fn take_ended(reported: &mut ReportedLosses, line: &Value) {
    let number = |name: &str| line[name].as_u64().unwrap_or(0);
    let how = if line["how"] == "died" { "died" } else { "closed" };
    reported.ended = Some(Ended {
        how,
        started: line["started"].as_str().unwrap_or("~").to_owned(),
        accepted: number("accepted"),
        written: number("written"),
        reasons: line["reasons"].clone(),
        sampled_out: line["sampled_out"].clone(),
        producer_name: line["producer_name"].as_str().unwrap_or_default().to_owned(),
        times: reported.ended.as_ref().map_or(0, |ended| ended.times) + 1,
    });
}

fn take_dropped(reported: &mut ReportedLosses, line: &Value) {
    reported.dropped += line["dropped"].as_u64().unwrap_or(0);
    for run in line["lost"].as_array().into_iter().flatten() {
        let (Some(first), Some(last)) = (run["first"].as_u64(), run["last"].as_u64()) else { continue };
        let reason = if run["reason"] == "corrupt" { "corrupt" } else { "torn" };
        if first <= last {
            reported.lost.push((Interval { first, last }, reason));
        }
    }
}

fn take_spans(
    all: &mut HashMap<u64, (u32, ReportedLosses)>,
    spans: &Value,
    list: impl Fn(&mut ReportedLosses) -> &mut Vec<Interval>,
) {
    for span in spans.as_array().into_iter().flatten().filter_map(read_span) {
        let reported = &mut all.entry(span.boot_id).or_insert_with(|| (span.pid, ReportedLosses::default())).1;
        list(reported).push(Interval { first: span.first, last: span.last });
    }
}

/// The sum of all numbers in a nested object.
pub fn sum_of(counts: &Value) -> u64 {
    match counts {
        Value::Object(members) => members.values().map(sum_of).sum(),
        other => other.as_u64().unwrap_or(0),
    }
}
