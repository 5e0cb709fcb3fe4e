//! Questions about a part of the segments: of some directories, of some segments from a place on, of a list of keys.

use crate::segment::{Place, append, content, name, refresh, request, requests, rows};
use index::catalog::Catalog;
use index::face;
use serde_json::{Value, json};
use std::fs;

fn lines(catalog: &Catalog, keys: &[&str]) -> Vec<Value> {
    let answer = face::lines(catalog, json!(keys).to_string().as_bytes()).unwrap();
    serde_json::from_slice(&answer).unwrap()
}

fn sequences(answer: &Value) -> Vec<u64> {
    answer["rows"].as_array().unwrap().iter().map(|row| row["seq"].as_u64().unwrap()).collect()
}

#[test]
fn only_records_from_a_place_on_come_and_the_end_is_reported() {
    let place = Place::new();
    let path = place.write(1, &requests(10));
    place.write(2, &requests(3));
    let catalog = place.opened();
    let end = fs::metadata(&path).unwrap().len();
    append(&path, &content(&[request(10), request(5)]));
    refresh(&catalog);
    let query = json!({"segments": {name(1): end}, "order": "oldest"});
    let answer = rows(&catalog, &query);
    assert_eq!(sequences(&answer), [5, 10]);
    assert_eq!(answer["matched"], 2);
    assert_eq!(answer["reached"], json!({name(1): fs::metadata(&path).unwrap().len()}));
    assert_eq!(rows(&catalog, &json!({"segments": {name(9): 0}}))["rows"], json!([]));
    assert_eq!(rows(&catalog, &json!({}))["reached"], json!({}));
}

#[test]
fn every_record_from_a_place_on_is_counted_however_few_are_shown() {
    let place = Place::new();
    place.write(1, &requests(30_000));
    let catalog = place.opened();
    let answer = rows(&catalog, &json!({"segments": {name(1): 0}, "limit": 5}));
    assert_eq!((sequences(&answer).len(), answer["matched"].as_u64()), (5, Some(30_000)));
}

#[test]
fn what_is_indexed_is_shown_while_its_segment_grows_without_a_lock() {
    let place = Place::new();
    let path = place.write(1, &requests(10));
    let catalog = place.opened();
    append(&path, &content(&[request(10)]));
    assert_eq!(sequences(&rows(&catalog, &json!({"limit": 2}))), [9, 8]);
    fs::write(&path, b"").unwrap();
    assert!(sequences(&rows(&catalog, &json!({"limit": 2}))).is_empty(), "a shorter file is another one");
}

#[test]
fn a_directory_is_chosen_by_the_path_that_was_given() {
    let (one, other) = (Place::new(), Place::new());
    one.write(1, &requests(3));
    other.write(2, &requests(5));
    let paths = [one.directory.path().to_owned(), other.directory.path().to_owned()];
    let catalog = Catalog::new(&paths, Vec::new(), Some(one.cache.path())).unwrap();
    refresh(&catalog);
    let of = |paths: &Value| sequences(&rows(&catalog, &json!({"directories": paths}))).len();
    assert_eq!(of(&json!([&paths[1]])), 5);
    assert_eq!(of(&json!(&paths)), 8);
    assert_eq!(of(&json!([])), 0);
    assert_eq!(of(&json!(["/nowhere"])), 0);
}

#[test]
fn lines_come_in_the_order_of_their_keys_and_null_for_what_is_no_record() {
    let place = Place::new();
    let path = place.write(1, &requests(3));
    let catalog = place.opened();
    let second = request(0).len() + 1;
    let keys = [
        format!("{}:{second}", name(1)),
        format!("{}:1", name(1)),
        "nonsense".to_owned(),
        format!("{}:0", name(1)),
        format!("{}:0", name(2)),
        format!("{}:{}", name(1), u64::MAX),
        format!("{}:{second}", name(1)),
    ];
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let found: Vec<Option<u64>> = lines(&catalog, &keys).iter().map(|line| line["seq"].as_u64()).collect();
    assert_eq!(found, [Some(1), None, None, Some(0), None, None, Some(1)]);
    fs::remove_file(path).unwrap();
    assert!(lines(&catalog, &keys).iter().all(Value::is_null));
}

#[test]
fn a_wrong_part_is_named() {
    let catalog = Place::new().open();
    for (query, said) in [
        (json!({"segments": []}), "segments=[]: must be offsets by the names of segments"),
        (json!({"segments": {"a": -1}}), "segments={\"a\":-1}: must be"),
        (json!({"directories": "a"}), "directories=\"a\": must be a list of texts"),
    ] {
        let wrong = face::rows(&catalog, query.to_string().as_bytes()).unwrap_err();
        assert!(wrong.0.starts_with(said), "{}", wrong.0);
    }
    assert!(face::aggregate(&catalog, b"{\"segments\": {}}").is_err());
    for keys in [b"{}".as_slice(), b"[1]", b"[", b"null"] {
        assert!(face::lines(&catalog, keys).unwrap_err().0.starts_with("keys: must be a list of texts"));
    }
    let many = json!(vec!["a"; 5001]).to_string();
    assert_eq!(face::lines(&catalog, many.as_bytes()).unwrap_err().0, "keys: 5001 are too many, at most 5000");
}

#[test]
fn a_directory_that_does_not_exist_yet_is_looked_into_later() {
    let place = Place::new();
    let later = place.directory.path().join("later");
    let catalog = Catalog::new(std::slice::from_ref(&later), Vec::new(), Some(place.cache.path())).unwrap();
    assert_eq!(refresh(&catalog).rows, 0);
    fs::create_dir(&later).unwrap();
    fs::write(later.join(name(1)), content(&requests(4))).unwrap();
    assert_eq!(refresh(&catalog).rows, 4);
    let file = later.join(name(1));
    assert!(Catalog::new(&[file], Vec::new(), Some(place.cache.path())).is_err());
}
