//! Segments that retention has removed, verified during the removal, and long afterwards.

use super::place::Place;
use super::{kinds, reasons};
use crate::support::wait_until;
use queue::producer::Producer;
use queue::system::now_unix_nano;
use segments::segment::{Form, SegmentName};
use serde_json::json;
use std::fs;

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
