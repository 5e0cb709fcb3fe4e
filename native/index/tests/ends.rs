//! The newest rows of segments that are not indexed yet.

use crate::segment::{Place, append, content, count, refresh, request, rows};
use segments::segment_lock::LiveLock;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// More than is read of an end at first.
const MANY: u64 = 8000;
/// More than a refresh of a millisecond reads.
const VERY_MANY: u64 = 20_000;

fn write(place: &Place, number: u32, from: u64, to: u64) -> std::path::PathBuf {
    let header = json!({"event_name": "segment.header", "timestamp": "2026-11-21T05:00:00Z",
                        "resource": {"service.name": "chat"}});
    let lines: Vec<Vec<u8>> = [header.to_string().into_bytes()].into_iter().chain((from..to).map(request)).collect();
    place.write(number, &lines)
}

fn numbers(answer: &Value) -> Vec<u64> {
    answer["rows"].as_array().unwrap().iter().map(|row| row["seq"].as_u64().unwrap()).collect()
}

fn newest(catalog: &index::catalog::Catalog, limit: u64) -> Value {
    rows(catalog, &json!({"limit": limit, "fields": ["seq", "service.name", "trace_id"]}))
}

#[test]
fn the_last_rows_are_there_before_the_segment_is_indexed_and_the_answer_says_that_it_is_not_whole() {
    let place = Place::new();
    let path = write(&place, 1, 0, MANY);
    let catalog = place.open();
    let progress = catalog.refresh(Duration::ZERO);
    assert_eq!((progress.done, progress.indexed_segments, progress.indexed_bytes), (false, 0, 0));
    let shown = newest(&catalog, 1000);
    assert_eq!(numbers(&shown), (MANY - 1000..MANY).rev().collect::<Vec<_>>());
    assert_eq!((&shown["complete"], &shown["matched"]), (&json!(false), &Value::Null));
    let unread = shown["unindexed_bytes"].as_u64().unwrap();
    let bytes = fs::metadata(&path).unwrap().len();
    assert!((bytes - (1 << 20)..bytes).contains(&unread), "{unread} of {bytes}");
    assert_eq!(shown["rows"][0]["service.name"], "chat", "what the header says of each record");
    assert!(place.files().is_empty());
    refresh(&catalog);
    let whole = newest(&catalog, 1000);
    assert_eq!((&whole["rows"], &whole["complete"]), (&shown["rows"], &json!(true)), "the same rows by the same keys");
    assert_eq!(count(&catalog, &json!({})), MANY);
}

#[test]
fn a_page_comes_from_the_ends_of_several_segments_where_the_last_ones_are_small() {
    let place = Place::new();
    write(&place, 1, 0, 5000);
    write(&place, 2, 5000, 10_000);
    write(&place, 3, 10_000, 10_007);
    let catalog = place.open();
    catalog.refresh(Duration::ZERO);
    let shown = numbers(&newest(&catalog, 1000));
    assert_eq!(shown, (9007..10_007).rev().collect::<Vec<_>>());
}

fn hold(path: &Path) -> LiveLock {
    LiveLock::hold(Arc::new(File::options().append(true).open(path).unwrap()))
}

#[test]
fn the_end_of_a_live_segment_stays_in_view_until_the_whole_is_read() {
    let place = Place::new();
    let path = write(&place, 1, 0, VERY_MANY);
    let lock = hold(&path);
    append(&path, b"{\"timestamp\"");
    let catalog = place.open();
    let mut rounds = 0;
    while !catalog.refresh(Duration::from_millis(1)).done {
        assert_eq!(numbers(&newest(&catalog, 1)), [VERY_MANY - 1], "round {rounds}");
        // It grows meanwhile: what comes is shown once the whole is.
        append(&path, if rounds == 0 { b": no record}\n" } else { b"" });
        rounds += 1;
        assert!(rounds < 1000, "a refresh gets nowhere");
    }
    assert!(rounds > 1, "the segment is too small for this test");
    append(&path, &content(&[request(VERY_MANY)]));
    assert!(refresh(&catalog).done);
    assert_eq!(numbers(&newest(&catalog, 2)), [VERY_MANY, VERY_MANY - 1]);
    drop(lock);
}

#[test]
fn lines_longer_than_what_is_read_first_are_found_further_back() {
    let place = Place::new();
    let long = json!({"timestamp": "2026-11-21T06:00:00Z", "event_name": "log", "seq": 7, "pid": 7, "message": "x".repeat(3 << 20)});
    place.write(1, &requests_then(long));
    let catalog = place.open();
    catalog.refresh(Duration::ZERO);
    assert_eq!(numbers(&newest(&catalog, 3)), [7, 999, 998]);
}

fn requests_then(last: Value) -> Vec<Vec<u8>> {
    (0..1000).map(request).chain([last.to_string().into_bytes()]).collect()
}
