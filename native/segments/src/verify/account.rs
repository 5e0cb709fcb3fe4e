//! The account of one process: the records that it accepted, against those that are in segments, were removed, were
//! lost or still wait.

use super::intervals::{Doubled, Gap, Interval, Stretch, explain, walk};
use super::listing::Listed;
use super::reported::{ReportedLosses, sum_of};
use super::scan::Run;
use super::{Problem, path_of};
use crate::segment::{SegmentName, Utc};
use queue::event::COMMAND;
use queue::inspect::QueueSnapshot;
use queue::layout::SAMPLED_OUT;
use queue::lock::Holder;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Everything that was read about one process.
#[derive(Default)]
pub struct Account<'a> {
    pub boot_id: u64,
    pub pid: u32,
    pub runs: Vec<(usize, &'a Run)>,
    pub queue: Option<QueueSnapshot>,
    pub reported: ReportedLosses,
}

/// The segments by their position, and the missing numbers among them.
pub struct Segments<'a> {
    pub listed: &'a [Listed],
    /// By segment: records of a process that its footer counts and that are missing.
    pub short: &'a [HashMap<u64, u64>],
    /// By retention, as far as removals are reported.
    pub newest_removed: Option<SegmentName>,
    /// The most records that can wait in a queue; 0: not known.
    pub most_waiting: u64,
}

impl Segments<'_> {
    /// Whether all segments are there that their listener began after the last removed one.
    fn go_on_from(&self, removed: &SegmentName) -> bool {
        let same = self.listed.iter().filter(|listed| listed.name.boot_id == removed.boot_id);
        same.map(|listed| listed.name.number)
            .filter(|number| *number > removed.number)
            .min()
            .is_none_or(|first| first == removed.number + 1)
    }
}

/// Missing records with their reason.
struct Piece {
    interval: Interval,
    reason: &'static str,
    detail: Option<String>,
    from_time: Option<String>,
    to_time: Option<String>,
}

/// The outcome for one process.
pub struct Verdict {
    pub json: Value,
    pub problems: Vec<Problem>,
    pub counts: BTreeMap<&'static str, u64>,
}

const EXPLAINED: [&str; 3] = ["retention", "torn", "corrupt"];

impl<'a> Account<'a> {
    /// Whether nothing is known about it except that it existed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let ReportedLosses { ended, removed, dropped, .. } = &self.reported;
        let silent = self.runs.is_empty() && removed.is_empty() && ended.is_none() && *dropped == 0;
        silent && self.queue.is_none() && self.reported.last_known_accepted == 0
    }

    /// How many records are known to have been accepted, and whether that is the final number.
    fn accepted(&self) -> (u64, bool) {
        let seen = self.runs.iter().map(|(_, run)| run.last + 1).max().unwrap_or(0);
        let removed = self.reported.removed.iter().map(|span| span.last + 1).max().unwrap_or(0);
        match (&self.reported.ended, &self.queue) {
            (Some(ended), _) => (ended.accepted, true),
            (None, Some(queue)) => (queue.counts.accepted.max(seen), true),
            // All that is left of it was removed, and the record of its end too.
            (None, None) if self.runs.is_empty() => (removed, true),
            (None, None) => (seen.max(removed).max(self.reported.last_known_accepted), false),
        }
    }

    /// The sequence below which every record is written, or lost.
    fn written_below(&self, accepted: u64) -> u64 {
        let seen = self.runs.iter().map(|(_, run)| run.last + 1).max().unwrap_or(0);
        match (&self.reported.ended, &self.queue) {
            (None, Some(queue)) => seen.max(queue.counts.accepted - queue.counts.in_queue),
            _ => accepted,
        }
    }

    /// Whether it was a command that put its own changes on record, and no process that serves.
    fn is_command(&self) -> bool {
        let ended = self.reported.ended.as_ref().map(|ended| &ended.producer_name);
        let names = ended.into_iter().chain(self.queue.as_ref().map(|queue| &queue.producer_name));
        names.into_iter().any(|name| name.starts_with(COMMAND))
    }

    fn state(&self) -> &'static str {
        match (&self.reported.ended, &self.queue) {
            (Some(ended), _) => ended.how,
            (None, Some(queue)) if queue.producer != Holder::Nobody => "alive",
            (None, Some(_)) => "waiting_for_a_listener",
            (None, None) if self.runs.is_empty() => "removed",
            (None, None) => "end_unknown",
        }
    }

    /// Draws the balance.
    #[must_use]
    pub fn judge(&self, segments: &Segments<'_>) -> Verdict {
        let (accepted, is_end_known) = self.accepted();
        let below = self.written_below(accepted);
        let mut stretches: Vec<Stretch<(usize, &Run)>> = self.runs.iter().map(|(at, run)| stretch(*at, run)).collect();
        let (gaps, doubled) = walk(&mut stretches, below);
        let pieces = self.explain(&gaps, segments);
        let (excused, doubled) = self.excuse(doubled);
        let sum = |reasons: &[&str]| -> u64 {
            pieces.iter().filter(|piece| reasons.contains(&piece.reason)).map(|piece| piece.interval.records()).sum()
        };
        let lost = sum(&["torn", "corrupt"]);
        let missing = pieces.iter().map(|piece| piece.interval.records()).sum::<u64>() - sum(&EXPLAINED);
        let counts = BTreeMap::from([
            ("accepted", accepted),
            ("written", below.saturating_sub(pieces.iter().map(|piece| piece.interval.records()).sum())),
            ("removed", sum(&["retention"])),
            ("lost", lost),
            ("in_queue", accepted.saturating_sub(below)),
            ("missing", missing),
            ("doubled", doubled.iter().map(|one| one.interval.records()).sum()),
        ]);
        let mut problems = self.problems(&pieces, &doubled, segments);
        if !is_end_known {
            problems.push(self.end_unknown(accepted, segments.most_waiting));
        }
        self.check_counts(&counts, &mut problems);
        Verdict { json: self.to_json(&counts, &pieces, excused), problems, counts }
    }

    fn explain(&self, gaps: &[Gap<(usize, &Run)>], segments: &Segments<'_>) -> Vec<Piece> {
        let known = self.explanations();
        let mut pieces = Vec::new();
        for gap in gaps {
            let (explained, rest) = explain(gap.interval, &known);
            let piece = |interval, reason, detail| {
                let time = |of: Option<(usize, &Run)>, last: bool| {
                    of.map(|(_, run)| {
                        String::from_utf8_lossy(if last { &run.last_time } else { &run.first_time }).into()
                    })
                };
                Piece { interval, reason, detail, from_time: time(gap.after, true), to_time: time(gap.before, false) }
            };
            pieces.extend(explained.into_iter().map(|(interval, reason)| piece(interval, reason, None)));
            for interval in rest {
                let is_beginning = gap.after.is_none() && self.began_before_removal(segments);
                let (reason, detail) = if is_beginning { ("retention", None) } else { self.place(gap, segments) };
                pieces.push(piece(interval, reason, detail));
            }
        }
        self.count_unnamed(&mut pieces);
        pieces.sort_by_key(|piece| piece.interval.first);
        pieces
    }

    /// The reports about records by their sequences.
    fn explanations(&self) -> Vec<(Interval, &'static str)> {
        let lost = self.reported.lost.iter().map(|(interval, reason)| (*interval, *reason));
        let removed = self.reported.removed.iter().map(|span| (*span, "retention"));
        // The report of the first removals was itself removed, if the reports that follow say so.
        let first = self.reported.removed.iter().map(|span| span.first).min().filter(|first| *first > 0);
        let earlier = first.map(|first| (Interval { first: 0, last: first - 1 }, "retention"));
        lost.chain(removed).chain(earlier).collect()
    }

    /// Whether nothing is reported about its records, but it existed when segments were written that are removed by
    /// now: it was idle for so long that the reports about its own records are removed too.
    fn began_before_removal(&self, segments: &Segments<'_>) -> bool {
        let started = match (&self.reported.ended, &self.queue) {
            (Some(ended), _) => ended.started.clone(),
            (None, Some(queue)) => Utc::from_unix_nano(queue.created_unix_nano).to_string(),
            (None, None) => return false,
        };
        let is_before = |removed: &&SegmentName| {
            started <= Utc::from_unix_nano(removed.begun_unix_milli.saturating_mul(1_000_000)).to_string()
        };
        let removed = segments.newest_removed.as_ref().filter(is_before);
        self.reported.removed.is_empty() && removed.is_some_and(|removed| segments.go_on_from(removed))
    }

    /// Where records that no report explains must have been.
    fn place(&self, gap: &Gap<(usize, &Run)>, segments: &Segments<'_>) -> (&'static str, Option<String>) {
        let (after, before) = (gap.after.map(|(at, _)| at), gap.before.map(|(at, _)| at));
        if let (Some(one), true) = (after, after == before) {
            let counted = segments.short[one].contains_key(&self.boot_id);
            let path = path_of(&segments.listed[one]);
            let line = gap.before.map_or(0, |(_, run)| run.line);
            let detail = Some(format!("before line {line} of {path}"));
            return (if counted { "line_removed" } else { "unknown" }, detail);
        }
        if let Some(names) = missing_segments(after, before, segments.listed) {
            return ("segment_missing", Some(names));
        }
        let short = [after, before].into_iter().flatten().find(|at| segments.short[*at].contains_key(&self.boot_id));
        if let Some(short) = short {
            return ("line_removed", Some(format!("at an end of {}", path_of(&segments.listed[short]))));
        }
        let is_at_end = self.reported.ended.is_none() && self.queue.is_none() && before.is_none();
        (if is_at_end && self.reported.at_deadline > 0 { "shutdown_deadline" } else { "unknown" }, None)
    }

    /// Torn and corrupt records whose sequences are not reported: the missing records are these, if they are not more.
    fn count_unnamed(&self, pieces: &mut [Piece]) {
        let named = self.reported.lost.iter().map(|(interval, _)| interval.records()).sum::<u64>();
        let [torn, corrupt] = self.lost_counted();
        let unnamed = (torn + corrupt).saturating_sub(named);
        let open = pieces.iter_mut().filter(|piece| piece.reason == "unknown");
        if open.map(|piece| piece.interval.records()).sum::<u64>() <= unnamed {
            let reason = if corrupt == 0 { "torn" } else { "corrupt" };
            pieces.iter_mut().filter(|piece| piece.reason == "unknown").for_each(|piece| piece.reason = reason);
        }
    }

    /// Torn and corrupt records, by the process's last counts.
    fn lost_counted(&self) -> [u64; 2] {
        let reasons = self.reasons();
        ["torn", "corrupt"].map(|reason| sum_of(&reasons[reason]))
    }

    fn reasons(&self) -> Value {
        if let Some(ended) = &self.reported.ended {
            return ended.reasons.clone();
        }
        let counted = self.queue.as_ref().map(|queue| crate::segment_account::reasons_json(&queue.counts.dropped));
        counted.map_or_else(
            || self.reported.last_reasons.clone(),
            |json| crate::line::parse(json.as_bytes()).unwrap_or_default(),
        )
    }

    fn sampled_out(&self) -> Value {
        match (&self.reported.ended, &self.queue) {
            (Some(ended), _) => ended.sampled_out.clone(),
            (None, Some(queue)) => {
                SAMPLED_OUT.iter().zip(queue.counts.sampled_out).map(|(reason, count)| (reason.name(), count)).collect()
            }
            (None, None) => Value::Null,
        }
    }

    /// Divides records that are there twice into those that a `sink.fallback` record explains, and the rest.
    fn excuse(&self, doubled: Vec<Doubled<(usize, &'a Run)>>) -> (u64, Vec<Doubled<(usize, &'a Run)>>) {
        let known: Vec<(Interval, ())> = self.reported.in_both.iter().map(|span| (*span, ())).collect();
        let (mut excused, mut left) = (0, Vec::new());
        for one in doubled {
            let (explained, rest) = explain(one.interval, &known);
            excused += explained.iter().map(|(interval, ())| interval.records()).sum::<u64>();
            left.extend(rest.into_iter().map(|interval| Doubled { interval, ..one }));
        }
        (excused, left)
    }

    fn problems(&self, pieces: &[Piece], doubled: &[Doubled<(usize, &Run)>], segments: &Segments<'_>) -> Vec<Problem> {
        let missing = pieces.iter().filter(|piece| !EXPLAINED.contains(&piece.reason)).map(|piece| {
            let Interval { first, last } = piece.interval;
            let detail = piece.detail.as_ref().map_or(String::new(), |detail| format!(": {detail}"));
            Problem::of("missing", self.boot_id, format!("{}{detail}", piece.reason)).at(first, last)
        });
        let doubled = doubled.iter().map(|one| {
            let Interval { first, last } = one.interval;
            let places = one.places.map(|(at, run)| format!("{} line {}", path_of(&segments.listed[at]), run.line));
            let text = format!("in runs that begin at {} and at {}", places[0], places[1]);
            Problem::of("doubled", self.boot_id, text).at(first, last)
        });
        missing.chain(doubled).collect()
    }

    fn end_unknown(&self, accepted: u64, most_waiting: u64) -> Problem {
        let at_most = match most_waiting {
            0 => String::new(),
            most => format!(", at most {most} records (as many as a queue of the configured size holds)"),
        };
        let text = format!(
            "neither a process.ended record nor a queue: what came after sequence {} is not known{at_most}; give its \
             queue directory, or that was deleted, or lost with the machine",
            accepted.saturating_sub(1)
        );
        Problem::of("end_unknown", self.boot_id, text)
    }

    /// Compares the process's last record with itself and with the records that were read.
    fn check_counts(&self, counts: &BTreeMap<&'static str, u64>, problems: &mut Vec<Problem>) {
        let Some(ended) = &self.reported.ended else { return };
        let mut say = |kind, text| problems.push(Problem::of(kind, self.boot_id, text));
        let [torn, corrupt] = self.lost_counted();
        if ended.accepted != ended.written + torn + corrupt {
            say(
                "counts_disagree",
                format!(
                    "its process.ended record does not add up: accepted {}, written {}, torn {torn}, corrupt {corrupt}",
                    ended.accepted, ended.written
                ),
            );
        }
        let seen = self.runs.iter().map(|(_, run)| run.last + 1).max().unwrap_or(0);
        if seen > ended.accepted {
            say("counts_disagree", format!("sequence {} stands there, of {} accepted", seen - 1, ended.accepted));
        }
        if ended.times > 1 {
            say("doubled", format!("its process.ended record stands there {} times", ended.times));
        }
        let refused = sum_of(&ended.reasons) - sum_of(&ended.reasons["shutdown_deadline"]);
        if counts["removed"] == 0 && self.reported.dropped != refused {
            say("counts_disagree", format!("log.dropped records report {} drops, of {refused}", self.reported.dropped));
        }
    }

    fn to_json(&self, counts: &BTreeMap<&'static str, u64>, pieces: &[Piece], in_both: u64) -> Value {
        let gap = |piece: &Piece| {
            json!({"first": piece.interval.first, "last": piece.interval.last, "records": piece.interval.records(),
                   "reason": piece.reason, "detail": piece.detail, "from": piece.from_time, "to": piece.to_time})
        };
        let times = || self.runs.iter().flat_map(|(_, run)| [run.first_time, run.last_time]);
        let text = |time: [u8; 30]| String::from_utf8_lossy(&time).into_owned();
        let mut json = json!({
            "boot_id": format!("{:016x}", self.boot_id), "pid": self.pid, "state": self.state(),
            "first_time": times().min().map(text), "last_time": times().max().map(text),
        });
        for (name, count) in counts {
            json[*name] = json!(count);
        }
        json["in_fallback_too"] = json!(in_both);
        if self.is_command() {
            json["command"] = json!(true);
        }
        json["in_flight"] = json!(self.queue.as_ref().map_or(0, |queue| queue.in_flight));
        json["dropped"] = self.reasons();
        json["sampled_out"] = self.sampled_out();
        json["gaps"] = pieces.iter().map(gap).collect();
        json
    }
}

fn stretch(at: usize, run: &Run) -> Stretch<(usize, &Run)> {
    Stretch { interval: Interval { first: run.first, last: run.last }, of: (at, run) }
}

/// The numbers that are missing between two segments, in words.
fn missing_segments(after: Option<usize>, before: Option<usize>, listed: &[Listed]) -> Option<String> {
    let of = |at: usize| &listed[at].name;
    let present = |like: usize| -> HashSet<u64> {
        let same = |listed: &&Listed| listed.name.boot_id == of(like).boot_id && listed.name.prefix == of(like).prefix;
        listed.iter().filter(same).map(|listed| listed.name.number).collect()
    };
    let words = |like: usize, from: u64, to: u64| {
        let numbers = present(like);
        let missing: Vec<String> =
            (from..to).filter(|number| !numbers.contains(number)).take(10).map(|number| number.to_string()).collect();
        let name = of(like);
        (!missing.is_empty()).then(|| format!("segment {} of {}-…-{}", missing.join(", "), name.prefix, name.boot_id))
    };
    match (after, before) {
        (Some(one), Some(other)) if of(one).boot_id == of(other).boot_id => {
            let (from, to) = (of(one).number.min(of(other).number), of(one).number.max(of(other).number));
            words(one, from, to)
        }
        (after, Some(other)) => words(other, 1, of(other).number).or_else(|| {
            let one = after?;
            let last = present(one).into_iter().max()?;
            words(one, of(one).number, last)
        }),
        // After the last line: a later segment of the same listener shows that one is missing before it.
        (Some(one), None) => words(one, of(one).number, present(one).into_iter().max()?),
        (None, None) => listed.iter().enumerate().find_map(|(at, _)| words(at, 1, of(at).number)),
    }
}
