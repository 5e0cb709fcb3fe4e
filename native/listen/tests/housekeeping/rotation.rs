//! The quota while segments are written as fast as possible: a sink that rotates has it kept before another segment
//! begins.

use super::bench::{PREFIX, quota};
use crate::support::{SIZES, wait_until};
use listen::housekeeper::{Housekeeper, HousekeepingSettings};
use listen::sink::{FileSink, FileSinkConfig, Now, Sink};
use queue::control::Control;
use queue::queue_file::QueueFile;
use segments::rotation::Rotations;
use std::fs;
use std::path::Path;
use std::time::Duration;

const ROTATE_BYTES: u64 = 64 << 10;
const QUOTA_BYTES: u64 = 4 * ROTATE_BYTES;
const BATCH_BYTES: usize = 8 << 10;

fn bytes_in(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).unwrap().filter_map(|entry| entry.unwrap().metadata().ok());
    files.filter(fs::Metadata::is_file).map(|file| file.len()).sum()
}

#[test]
fn a_directory_never_holds_more_than_the_quota_and_one_segment_however_fast_it_is_written() {
    let (queues, segments) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (queue, _lock) = QueueFile::create(queues.path(), SIZES, 7, 1).unwrap();
    let control = Control::open(queues.path()).unwrap();
    let (directory, rotations) = (segments.path().to_owned(), Rotations::default());
    let mut settings = HousekeepingSettings::new(
        vec![directory.clone()],
        PREFIX,
        quota(QUOTA_BYTES),
        None,
        (vec![], directory.clone()),
    )
    .unwrap();
    settings.rotations = rotations.clone();
    let housekeeper = Housekeeper::start(Some(&settings), control, &queue);
    let rotation = rotations.of(&directory);
    wait_until("the housekeeper answers", || rotation.has_keeper());
    let config = FileSinkConfig {
        rotate_bytes: ROTATE_BYTES,
        rotations: Some(rotations),
        ..FileSinkConfig::new(&directory, PREFIX, "00000000deadbeef")
    };
    let mut sink = FileSink::open(config).unwrap();
    let now = Now { unix_nano: 1_795_237_200_000_000_000, monotonic: Duration::from_secs(1) };
    let lines = [vec![b'x'; BATCH_BYTES - 1], vec![b'\n']].concat();
    let mut peak = 0;
    for _ in 0..100 * (ROTATE_BYTES / BATCH_BYTES as u64) {
        sink.write(&lines, 1, now).unwrap();
        peak = peak.max(bytes_in(&directory));
    }
    // Headers and footers may exceed it.
    assert!(peak <= QUOTA_BYTES + ROTATE_BYTES + (8 << 10), "{peak} bytes");
    drop(housekeeper);
}
