//! A file of an index that is damaged in any way is made anew; no answer comes from it.

use crate::segment::{Place, errors, name, refresh, requests};
use proptest::prelude::*;
use std::fs;

const ROWS: u64 = 300;
const ERRORS: u64 = ROWS / 10;

/// A place with one segment, whose index file has been written.
fn place() -> (Place, std::path::PathBuf, Vec<u8>) {
    let place = Place::new();
    place.write(1, &requests(ROWS));
    assert_eq!(errors(&place.opened()), ERRORS);
    let [file] = &place.files()[..] else { panic!("one file was expected") };
    let (file, content) = (file.clone(), fs::read(file).unwrap());
    (place, file, content)
}

/// The answer is right at once, or after the refresh that follows the first question.
fn is_right(place: &Place) {
    let catalog = place.opened();
    let answer = index::face::aggregate(&catalog, br#"{"where":["outcome=error"]}"#).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    if answer["complete"] == true {
        let count: u64 = answer["count"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(count, ERRORS, "a wrong answer was called complete");
    } else {
        assert!(refresh(&catalog).done);
    }
    assert_eq!(errors(&catalog), ERRORS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn a_changed_byte_is_found(at in any::<prop::sample::Index>(), change in 1_u8..) {
        let (place, file, mut content) = place();
        let at = at.index(content.len());
        content[at] ^= change;
        fs::write(&file, &content).unwrap();
        is_right(&place);
    }

    #[test]
    fn a_file_that_is_cut_off_is_made_anew(at in any::<prop::sample::Index>()) {
        let (place, file, content) = place();
        fs::write(&file, &content[..at.index(content.len())]).unwrap();
        is_right(&place);
        prop_assert_eq!(fs::metadata(&file).unwrap().len(), content.len() as u64);
    }
}

#[test]
fn the_index_of_another_segment_is_not_believed() {
    let (place, file, content) = place();
    place.write(2, &requests(20));
    let other = file.with_file_name(format!("{}.index", name(2)));
    fs::write(&other, &content).unwrap();
    assert_eq!(errors(&place.opened()), ERRORS + 2);
    fs::write(&other, fs::read(&file).unwrap()).unwrap();
    assert_eq!(errors(&place.opened()), ERRORS + 2);
}

#[test]
fn an_index_of_another_version_is_made_anew() {
    let (place, file, mut content) = place();
    let version = content.len() - 12;
    content[version] += 1;
    fs::write(&file, &content).unwrap();
    is_right(&place);
    assert_ne!(fs::read(&file).unwrap(), content);
}

#[test]
fn a_file_that_shrinks_under_an_open_index_gives_no_wrong_answer() {
    let (place, file, content) = place();
    let catalog = place.opened();
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(content.len() as u64 / 3).unwrap();
    let answer = index::face::aggregate(&catalog, br#"{"where":["outcome=error"]}"#).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["complete"], false);
    refresh(&catalog);
    assert_eq!(errors(&catalog), ERRORS);
}
