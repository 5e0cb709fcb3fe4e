//! Damages to segments, and the findings that a reader with knowledge of them expects from verification.

use super::place::Place;
use super::{kinds, reasons};
use crate::support::wait_until;
use proptest::prelude::*;
use queue::producer::Producer;
use queue::system::now_unix_nano;
use segments::segment::{Form, SegmentName};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A record: boot id and sequence.
pub type Record = (String, u64);

/// A change to one of the segments; positions wrap around.
#[derive(Clone, Debug)]
pub enum Damage {
    RemoveLine(usize, usize),
    DoubleLine(usize, usize),
    /// One digit of a value becomes another one.
    AlterLine(usize, usize),
    /// A line that no listener writes is added.
    AddLine(usize, usize),
    RemoveSegment(usize),
    /// The end is cut off, from a part of the file on.
    CutOff(usize, u8),
}

pub fn any() -> impl Strategy<Value = Damage> {
    let at = || (0..100_usize, 0..100_usize);
    prop_oneof![
        at().prop_map(|(file, line)| Damage::RemoveLine(file, line)),
        at().prop_map(|(file, line)| Damage::DoubleLine(file, line)),
        at().prop_map(|(file, line)| Damage::AlterLine(file, line)),
        at().prop_map(|(file, line)| Damage::AddLine(file, line)),
        (0..100_usize).prop_map(Damage::RemoveSegment),
        (0..100_usize, 0..=255_u8).prop_map(|(file, part)| Damage::CutOff(file, part)),
    ]
}

impl Damage {
    /// Does it, if there is such a line or segment. The record of a process's end stays: without it, nothing is proven.
    pub fn apply(&self, place: &Place) {
        let files: Vec<PathBuf> = place
            .files()
            .into_iter()
            .filter(|path| !fs::read_to_string(path).unwrap().contains("process.ended"))
            .collect();
        if files.is_empty() {
            return;
        }
        let path = |at: usize| &files[at % files.len()];
        match *self {
            Self::RemoveLine(file, line) => edit(path(file), line, |lines, at| drop(lines.remove(at))),
            Self::DoubleLine(file, line) => edit(path(file), line, |lines, at| lines.insert(at, lines[at].clone())),
            Self::AlterLine(file, line) => edit(path(file), line, |lines, at| {
                let digit = lines[at].len() - "}\n".len() - 1;
                let other = if &lines[at][digit..=digit] == "7" { "8" } else { "7" };
                lines[at].replace_range(digit..=digit, other);
            }),
            Self::AddLine(file, line) => edit(path(file), line, |lines, at| lines.insert(at, "{\"a\":1}\n".to_owned())),
            Self::RemoveSegment(file) => fs::remove_file(path(file)).unwrap(),
            Self::CutOff(file, part) => {
                let len = fs::metadata(path(file)).unwrap().len();
                let file = fs::File::options().write(true).open(path(file)).unwrap();
                file.set_len(len * u64::from(part) / 256).unwrap();
            }
        }
    }
}

/// Changes the lines at one that is a record.
fn edit(path: &Path, line: usize, change: impl FnOnce(&mut Vec<String>, usize)) {
    let text = fs::read_to_string(path).unwrap();
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let records: Vec<usize> =
        (0..lines.len()).filter(|at| lines[*at].contains("\"seq\":") && lines[*at].ends_with("}\n")).collect();
    if !records.is_empty() {
        change(&mut lines, records[line % records.len()]);
        fs::write(path, lines.concat()).unwrap();
    }
}

fn name_of(path: &Path) -> SegmentName {
    SegmentName::parse(path.file_name().unwrap().to_str().unwrap()).unwrap()
}

/// The plain segments at one time.
pub struct Content(BTreeMap<PathBuf, String>);

impl Content {
    pub fn of(place: &Place) -> Self {
        Self(place.files().into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect())
    }

    fn lines(&self) -> impl Iterator<Item = Value> {
        let whole = self.0.values().flat_map(|text| text.split_inclusive('\n')).filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap())
    }

    fn records(&self) -> BTreeMap<Record, u64> {
        let mut records = BTreeMap::new();
        for line in self.lines().filter(|line| line.get("seq").is_some()) {
            let name = (line["boot_id"].as_str().unwrap().to_owned(), line["seq"].as_u64().unwrap());
            *records.entry(name).or_default() += 1;
        }
        records
    }

    pub fn missing_in(&self, after: &Self) -> BTreeSet<Record> {
        let left = after.records();
        self.records().into_keys().filter(|record| !left.contains_key(record)).collect()
    }

    /// Records that are there more than once, and how often more.
    pub fn doubled(&self) -> BTreeMap<Record, u64> {
        self.records().into_iter().filter(|(_, times)| *times > 1).map(|(name, times)| (name, times - 1)).collect()
    }

    fn reported_drops(&self) -> u64 {
        self.lines().filter_map(|line| line["dropped"].as_u64()).sum()
    }

    /// The kinds of problems that a reader must find after the changes since `before`.
    pub fn kinds(&self, before: &Self) -> BTreeSet<String> {
        let changed = |(path, text): (&PathBuf, &String)| {
            let is_sealed =
                text.lines().last().is_some_and(|line| line.contains("segment.footer")) && text.ends_with('\n');
            is_sealed && before.0[path] != *text
        };
        let ends: Vec<_> = self.0.iter().map(|(path, text)| (name_of(path), text)).collect();
        let is_footer_gone = ends.windows(2).any(|pair| {
            let [(one, before), (other, behind)] = pair else { return false };
            let footer =
                before.ends_with('\n') && before.lines().last().is_some_and(|line| line.contains("segment.footer"));
            other.boot_id == one.boot_id && other.number == one.number + 1 && behind.contains('\n') && !footer
        });
        let is_added = self.lines().any(|line| line.get("a").is_some());
        let kinds = [
            ("missing", !before.missing_in(self).is_empty()),
            ("doubled", !self.doubled().is_empty()),
            ("footer_disagrees", self.0.iter().any(changed)),
            ("footer_missing", is_footer_gone),
            ("line_unreadable", is_added),
            ("counts_disagree", self.reported_drops() != before.reported_drops()),
        ];
        kinds.into_iter().filter(|(_, is)| *is).map(|(kind, _)| kind.to_owned()).collect()
    }
}

pub fn problems_of(report: &Value, kind: &str) -> Vec<Value> {
    report["problems"].as_array().unwrap().iter().filter(|problem| problem["kind"] == kind).cloned().collect()
}

/// The records that problems of a kind name, and how often.
fn named(report: &Value, kind: &str) -> BTreeMap<Record, u64> {
    let mut records = BTreeMap::new();
    for problem in problems_of(report, kind) {
        let boot_id = problem["boot_id"].as_str().unwrap().to_owned();
        for seq in problem["first"].as_u64().unwrap()..=problem["last"].as_u64().unwrap() {
            *records.entry((boot_id.clone(), seq)).or_default() += 1;
        }
    }
    records
}

pub fn missing(report: &Value) -> BTreeSet<Record> {
    named(report, "missing").into_keys().collect()
}

pub fn doubled(report: &Value) -> BTreeMap<Record, u64> {
    named(report, "doubled")
}

// Segments that retention has removed, verified during the removal, and long afterwards.

#[test]
fn a_removal_whose_report_waits_in_a_queue_still_is_reported() {
    let place = Place::new(600);
    let (producer, keeper) = (place.producer(), place.producer());
    place.emit(&producer, 0, 40);
    let remove = || {
        producer.close();
        assert_eq!(place.verify()["problems"], json!([]));
        place.emit(&keeper, 1, 1);
        place.retain(3).iter().for_each(|removed| place.report_removed(&keeper, removed));
    };
    place.lead_and(1, remove, false);
    let report = place.verify();
    assert_eq!((&report["problems"], &report["totals"]["in_queue"]), (&json!([]), &json!(2)));
    assert!(report["totals"]["removed"].as_u64().unwrap() > 10);
    keeper.close();
    let report = place.verify();
    assert_eq!(report["problems"], json!([]), "nor is it lost if its process is gone: {report}");
}

/// One process writes, and then nothing for so long that its segments are removed, and the reports about that too;
/// another continues. Returns the idle one, which lives as long as it is held.
fn idle(place: &Place) -> Producer {
    let (idle, busy) = (place.producer(), place.producer());
    // The names of segments contain milliseconds.
    let created = idle.queue().unwrap().file.header().created_unix_nano;
    wait_until("the next millisecond", || now_unix_nano() / 1_000_000 > created / 1_000_000);
    place.emit(&idle, 0, 12);
    place.lead_and(1, || place.emit(&busy, 1, 40), true);
    place.retain(9);
    let reported = place.retain(6);
    reported.iter().for_each(|removed| place.report_removed(&busy, removed));
    busy.close();
    idle
}

#[test]
fn a_process_that_was_idle_for_longer_than_its_records_are_kept_is_no_gap() {
    let place = Place::new(600);
    let idle = idle(&place);
    let report = place.verify();
    assert_eq!(report["problems"], json!([]), "{report}");
    assert!(reasons(&report).contains(&(0, 11, "retention".to_owned())), "{report}");
    drop(idle);
}

#[test]
fn a_segment_that_somebody_took_behind_those_that_retention_removed_is_a_gap() {
    let place = Place::new(600);
    let idle = idle(&place);
    fs::remove_file(&place.files()[0]).unwrap();
    let report = place.verify();
    assert!(kinds(&report).contains("missing"), "{report}");
    assert!(
        reasons(&report).contains(&(0, 11, "segment_missing".to_owned())),
        "it may have had the idle one's records"
    );
    drop(idle);
}

#[test]
fn a_process_that_began_after_the_last_removal_has_no_excuse() {
    let place = Place::new(600);
    let idle = idle(&place);
    let late = place.producer();
    place.emit(&late, 2, 8);
    place.lead(2);
    assert_eq!(place.verify()["problems"], json!([]));
    let of_late = format!("{:016x}", late.queue().unwrap().file.header().boot_id);
    for path in place.files() {
        let (name, form) = SegmentName::parse_file(path.file_name().unwrap().to_str().unwrap()).unwrap();
        if name.boot_id == format!("{:016x}", 2) && form == Form::Plain {
            let text = fs::read_to_string(&path).unwrap();
            let without: String = text.split_inclusive('\n').filter(|line| !line.contains(&of_late)).collect();
            fs::write(&path, without).unwrap();
        }
    }
    assert!(kinds(&place.verify()).contains("missing"));
    drop(idle);
}
