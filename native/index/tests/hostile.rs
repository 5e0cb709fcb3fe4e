//! Segments with anything in them: no panic, and only what is a record is one.

use crate::segment::{Place, content, count, errors, refresh, request, requests, rows, stamp};
use proptest::prelude::*;
use serde_json::json;
use std::fs;

#[test]
fn lines_that_are_no_records_are_left_out_and_counted() {
    let place = Place::new();
    let deep = [b"{\"event_name\":\"request\",\"a\":".repeat(1), vec![b'['; 200_000]].concat();
    let mut lines = requests(20);
    lines.extend([
        b"{".to_vec(),
        b"".to_vec(),
        b"[1]".to_vec(),
        b"\0\0\0".to_vec(),
        b"{\"a\":\"\xff\"}".to_vec(),
        deep,
        b"{\"outcome\":\"error\",\"duration_s\":1.5,\"outcome\":}".to_vec(),
        b"nonsense".to_vec(),
    ]);
    lines.extend((20..40).map(request));
    place.write(1, &lines);
    let catalog = place.open();
    let progress = refresh(&catalog);
    assert_eq!(progress.rows, 40);
    assert!(progress.problems[0].contains("8 lines are no records"), "{:?}", progress.problems);
    assert_eq!(errors(&catalog), 4);
}

#[test]
fn a_line_of_a_megabyte_is_a_record_like_others() {
    let place = Place::new();
    let long =
        json!({"timestamp": stamp(5), "event_name": "log", "message": "x".repeat(1 << 20) + "needle"}).to_string();
    place.write(1, &[request(1), long.clone().into_bytes(), request(2)]);
    let catalog = place.opened();
    let found = rows(&catalog, &json!({"text": "XNEEDLE", "fields": ["message"]}));
    assert_eq!(found["rows"].as_array().unwrap().len(), 1);
    let key = found["rows"][0]["key"].as_str().unwrap();
    assert_eq!(index::rows::line(&catalog.snapshot(), key).unwrap(), long.as_bytes());
    assert_eq!(count(&catalog, &json!({"events": ["log"]})), 1);
}

#[test]
fn wrong_types_and_keys_twice_are_read_from_their_lines() {
    let place = Place::new();
    let with = |members: &str| format!("{{\"timestamp\":\"{}\",{members}}}", stamp(1)).into_bytes();
    place.write(
        1,
        &[
            with(r#""event_name":"request","outcome":"ok","outcome":"error""#),
            with(r#""event_name":"request","outcome":["ok","error"]"#),
            with(r#""event_name":"request","outcome":{"x":"error"}"#),
            with(r#""event_name":"request","outc\u006fme":"error""#),
            with(r#""event_name":7,"outcome":"error","duration_s":"9""#),
            with(r#""event_name":"segment.footer","pid":1,"outcome":"error""#),
            with(r#""event_name":"segment.footer","outcome":"error""#),
            b"{\"outcome\":\"error\"}".to_vec(),
        ],
    );
    let catalog = place.opened();
    assert_eq!(errors(&catalog), 6);
    assert_eq!(count(&catalog, &json!({"where": ["outcome.x=error"]})), 1);
    assert_eq!(count(&catalog, &json!({"where": ["duration_s>1"]})), 1);
    assert_eq!(count(&catalog, &json!({"where": ["outcome=error"], "events": ["request"]})), 3);
    assert_eq!(rows(&catalog, &json!({"order": "-duration_s"}))["rows"].as_array().unwrap().len(), 0);
}

#[test]
fn a_column_with_too_many_texts_is_read_from_its_lines() {
    let place = Place::new();
    let lines: Vec<Vec<u8>> = (0..40_000_u64)
        .map(|at| {
            json!({"timestamp": stamp(at), "event_name": "request", "url.path": format!("/{at}"), "outcome": "ok"})
                .to_string()
                .into_bytes()
        })
        .collect();
    place.write(1, &lines);
    let catalog = place.opened();
    assert!(catalog.snapshot()[0].image.as_ref().unwrap().texts[index::columns::of("url.path").unwrap()].is_full);
    assert_eq!(count(&catalog, &json!({"where": ["url.path=/39999", "outcome=ok"]})), 1);
    assert_eq!(count(&catalog, &json!({"where": ["url.path!=/5"]})), 39_999);
}

#[test]
fn damaged_and_foreign_compressed_segments_are_named() {
    let place = Place::new();
    let path = place.write(1, &requests(5000));
    let compressed = zstd::stream::encode_all(&fs::read(&path).unwrap()[..], 3).unwrap();
    fs::remove_file(&path).unwrap();
    let damaged = path.with_file_name(format!("{}.zst", path.file_name().unwrap().to_str().unwrap()));
    fs::write(&damaged, &compressed[..compressed.len() / 2]).unwrap();
    place.write(2, &requests(10));
    let catalog = place.open();
    let progress = refresh(&catalog);
    assert!(progress.problems.iter().any(|problem| problem.contains("000001")), "{:?}", progress.problems);
    assert!(errors(&catalog) >= 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]
    #[test]
    fn any_bytes_are_a_segment(
        noise in prop::collection::vec(any::<u8>(), 0..300), at in 0_usize..3, compressed in any::<bool>(),
    ) {
        let place = Place::new();
        let mut lines = requests(2);
        lines.insert(at, noise.clone());
        let path = place.write(1, &lines);
        if compressed {
            fs::write(path.with_extension("jsonl.zst"), zstd::stream::encode_all(&content(&lines)[..], 1).unwrap()).unwrap();
            fs::remove_file(&path).unwrap();
        }
        let catalog = place.opened();
        let records = content(&lines);
        let objects = records.split(|byte| *byte == b'\n').filter(|line| {
            serde_json::from_slice::<serde_json::Value>(line).is_ok_and(|value| value.is_object())
        });
        prop_assert_eq!(count(&catalog, &json!({})), objects.count() as u64);
        rows(&catalog, &json!({"where": ["attributes.n!=1"], "text": "a"}));
    }
}
