//! The index follows its segments: they grow, are sealed, compressed, replaced and removed.

use crate::segment::{Place, append, content, count, errors, name, refresh, request, requests, rows};
use segments::segment_lock::LiveLock;
use serde_json::json;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::time::Duration;

fn compress(path: &std::path::Path) -> std::path::PathBuf {
    let plain = fs::read(path).unwrap();
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.set_pledged_src_size(Some(plain.len() as u64)).unwrap();
    std::io::Write::write_all(&mut encoder, &plain).unwrap();
    let compressed = path.with_file_name(format!("{}.zst", path.file_name().unwrap().to_str().unwrap()));
    fs::write(&compressed, encoder.finish().unwrap()).unwrap();
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    File::options().write(true).open(&compressed).unwrap().set_modified(modified).unwrap();
    compressed
}

#[test]
fn a_live_segment_is_indexed_in_memory_and_written_when_it_is_sealed() {
    let place = Place::new();
    let path = place.write(1, &requests(100));
    let lock = LiveLock::hold(Arc::new(File::options().append(true).open(&path).unwrap()));
    let catalog = place.open();
    let progress = refresh(&catalog);
    assert_eq!((progress.live_rows, progress.done, errors(&catalog)), (100, true, 10));
    assert!(place.files().is_empty());
    append(&path, &content(&(100..20_000).map(request).collect::<Vec<_>>()));
    append(&path, b"{\"timestamp\"");
    assert_eq!(refresh(&catalog).live_rows, 20_000);
    assert_eq!(errors(&catalog), 2000);
    assert_eq!(rows(&catalog, &json!({"limit": 1}))["rows"][0]["seq"], 19_999);
    drop(lock);
    let progress = refresh(&catalog);
    assert_eq!((progress.live_rows, progress.rows), (0, 20_000));
    assert_eq!(place.files().len(), 1);
    assert_eq!(errors(&catalog), 2000);
}

#[test]
fn an_index_stays_when_its_segment_is_compressed() {
    let place = Place::new();
    let path = place.write(1, &requests(1000));
    let catalog = place.opened();
    let file = place.files().remove(0);
    let inode = fs::metadata(&file).unwrap().ino();
    compress(&path);
    fs::remove_file(&path).unwrap();
    let query = json!({"where": ["outcome=error", "attributes.x!=1"], "limit": 3});
    assert_eq!(rows(&catalog, &query)["rows"].as_array().unwrap().len(), 3);
    refresh(&catalog);
    let shown = rows(&catalog, &query);
    assert_eq!((shown["rows"][0]["seq"].as_u64(), shown["complete"].as_bool()), (Some(990), Some(true)));
    assert_eq!(errors(&place.opened()), 100);
    assert_eq!(fs::metadata(&file).unwrap().ino(), inode, "it was made anew");
}

#[test]
fn a_segment_that_shrinks_or_is_replaced_is_indexed_anew() {
    let place = Place::new();
    let path = place.write(1, &requests(1000));
    let catalog = place.opened();
    fs::write(&path, content(&requests(50))).unwrap();
    // Before the next look nothing wrong is said: lines are gone, and what columns say is of a moment ago.
    let stale = rows(&catalog, &json!({"where": ["message!=x"]}));
    assert_eq!((stale["complete"].as_bool(), stale["rows"].as_array().unwrap().len()), (Some(false), 0));
    refresh(&catalog);
    assert_eq!(errors(&catalog), 5);
    let other = place.directory.path().join("other");
    fs::write(&other, content(&requests(70))).unwrap();
    fs::rename(&other, &path).unwrap();
    refresh(&catalog);
    assert_eq!(errors(&catalog), 7);
}

#[test]
fn removed_segments_lose_their_files_and_nothing_else_is_removed() {
    let place = Place::new();
    let path = place.write(1, &requests(10));
    place.write(2, &requests(10));
    let catalog = place.opened();
    let files = place.files();
    let (foreign, link) = (files[0].with_file_name("notes.txt"), files[0].with_file_name("x.index"));
    fs::write(&foreign, "mine").unwrap();
    symlink(&foreign, &link).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(refresh(&catalog).segments, 1);
    assert!(!files[0].exists() && files[1].exists() && foreign.exists() && link.exists());
    assert_eq!(errors(&catalog), 1);
}

#[test]
fn a_link_in_the_cache_is_replaced_and_not_followed() {
    let place = Place::new();
    place.write(1, &requests(10));
    drop(place.opened());
    let file = place.files().remove(0);
    let target = place.directory.path().join("target");
    fs::rename(&file, &target).unwrap();
    symlink(&target, &file).unwrap();
    let before = fs::read(&target).unwrap();
    assert_eq!(errors(&place.opened()), 1);
    assert!(fs::symlink_metadata(&file).unwrap().is_file());
    assert_eq!(fs::read(&target).unwrap(), before);
}

#[test]
fn files_are_only_for_their_user() {
    let place = Place::new();
    place.write(1, &requests(10));
    drop(place.opened());
    let file = place.files().remove(0);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    drop(place.opened());
    assert_eq!(mode(file.parent().unwrap()), 0o700);
}

#[test]
fn without_a_cache_directory_the_index_is_in_memory_and_that_is_said() {
    let place = Place::new();
    place.write(1, &requests(100));
    let nowhere = place.directory.path().join(name(1)).join("cache");
    let directories = [place.directory.path().to_owned()];
    let catalog = index::catalog::Catalog::new(&directories, Vec::new(), Some(&nowhere)).unwrap();
    let progress = refresh(&catalog);
    assert!(progress.done && progress.problems[0].contains("kept in memory"), "{:?}", progress.problems);
    assert_eq!(errors(&catalog), 10);
}

#[test]
fn the_newest_segments_come_first_and_a_budget_ends_a_refresh() {
    let place = Place::new();
    for number in 1..=5 {
        place.write(number, &requests(3000));
    }
    let catalog = place.open();
    let progress = catalog.refresh(Duration::ZERO);
    assert!(!progress.done && progress.indexed_segments < 5);
    let mut rounds = 0;
    while !catalog.refresh(Duration::from_millis(1)).done {
        rounds += 1;
        assert!(rounds < 1000, "a refresh gets nowhere");
        let shown = rows(&catalog, &json!({"limit": 1}));
        let newest = catalog.snapshot().iter().rposition(|entry| entry.image.is_some());
        if let Some(newest) = newest {
            assert_eq!(newest, 4, "an older segment came before the newest");
            assert_eq!(shown["complete"], false);
        }
    }
    assert_eq!(count(&catalog, &json!({})), 15_000);
}

#[test]
fn pages_go_on_where_a_budget_ended() {
    let place = Place::new();
    for number in 1..=4 {
        let lines: Vec<Vec<u8>> = (0..2000).map(|at| request(u64::from(number) * 10_000 + at)).collect();
        place.write(number, &lines);
    }
    let catalog = place.opened();
    let mut query = json!({"where": ["message!=x"], "limit": 1000, "budget_s": 0, "fields": ["seq"]});
    let mut found = Vec::new();
    for _ in 0..10_000 {
        let page = rows(&catalog, &query);
        found.extend(page["rows"].as_array().unwrap().iter().map(|row| row["seq"].as_u64().unwrap()));
        if page["next"].is_null() {
            break;
        }
        query["after"] = page["next"].clone();
    }
    let mut expected: Vec<u64> = (1..=4).flat_map(|number| (0..2000).map(move |at| number * 10_000 + at)).collect();
    expected.reverse();
    assert_eq!(found, expected);
}

#[test]
fn without_time_those_segments_are_searched_that_come_first_by_the_times_in_them() {
    let place = Place::new();
    // By their names they would come the other way around.
    for number in 1..=6 {
        let lines: Vec<Vec<u8>> = (0..20).map(|at| request(u64::from(7 - number) * 100 + at)).collect();
        place.write(number, &lines);
    }
    let catalog = place.opened();
    for (order, expected) in [("oldest", [100, 101, 102]), ("newest", [619, 618, 617])] {
        let page = rows(&catalog, &json!({"order": order, "limit": 3, "budget_s": 0, "fields": ["seq"]}));
        let found: Vec<u64> = page["rows"].as_array().unwrap().iter().map(|row| row["seq"].as_u64().unwrap()).collect();
        assert_eq!(found, expected, "{order}");
    }
}
