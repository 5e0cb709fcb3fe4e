//! Shared files full of noise, while they are mapped: nothing in them is trusted further than it can be checked.

use crate::support::{Bench, dense, emit_each, numbers, registered};
use lines::series;
use queue::control::Control;
use queue::inspect;
use queue::published::totals;
use request::runtime::Runtime;
use request::runtime::settings::CHUNKS_MODES;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The magic number and the version.
const STAMP: usize = 12;

/// Overwrites everything behind the stamp of the file whose name begins so, without cutting it.
fn overwrite(directory: &Path, prefix: &str, seed: u32) {
    let paths: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    let named = |path: &&PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(prefix);
    let path = paths.iter().find(named).unwrap();
    let mut bytes = vec![0u8; fs::metadata(path).unwrap().len() as usize - STAMP];
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    for byte in &mut bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = if seed == 0 { 0xff } else { (state >> 24) as u8 };
    }
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(&bytes, STAMP as u64).unwrap();
}

#[test]
fn noise_in_the_pages_that_processes_share_stops_neither_the_listener_nor_its_successor() {
    for seed in 0..8 {
        let mut bench = Bench::new();
        let (producer, event) = registered(bench.producer());
        emit_each(&producer, event, 0, 0..5);
        bench.drain();
        overwrite(bench.path(), "control", seed);
        overwrite(bench.path(), "metrics", seed);
        emit_each(&producer, event, 0, 5..10);
        bench.drain();
        drop(bench.next_leader());
        emit_each(&producer, event, 0, 10..15);
        bench.drain();
        assert_eq!(numbers(&bench.sink.events("test"), 0), dense(15), "seed {seed}");
        read_all(bench.path());
    }
}

/// Reads everything that is published to its end, whatever it contains.
fn read_all(directory: &Path) {
    let control = Control::open(directory).unwrap();
    let page = control.page();
    for row in &page.sinks {
        let _ = (row.name(), row.role(), row.state(), row.errors().count());
    }
    let _ = (control.published_write(0), control.published_write(1), control.heartbeat_age_s(1));
    let _ = totals::of_directory(&page.totals, directory);
    let _ = (series::read(directory).is_ok(), inspect::queues(directory).len());
}

#[test]
fn noise_in_the_page_of_run_time_control_changes_no_more_than_an_operator_could() {
    for seed in 0..64 {
        let directory = tempfile::tempdir().unwrap();
        let runtime = Runtime::open(directory.path()).unwrap();
        overwrite(directory.path(), "runtime", seed);
        for now in [0, 1, u64::MAX / 2, u64::MAX] {
            let _ = (runtime.is_active(), runtime.level(now), runtime.take_error(now));
            let found = runtime.of_request(&[7; 16], b"/v1/chat/completions", now);
            assert!(found.ratio.is_none_or(|ratio| (0.0..=1.0).contains(&ratio)), "seed {seed}: {:?}", found.ratio);
            assert!(found.chunks.is_none_or(|code| usize::from(code) < CHUNKS_MODES.len()), "seed {seed}");
        }
        let _ = format!("{:?}", runtime.settings());
    }
}
