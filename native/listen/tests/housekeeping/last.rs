//! The end of a listener: the quota holds after its last drain, and the record of the removal is in the log.

use super::bench::{PREFIX, quota};
use crate::support::{INFO, PATIENCE, emit, listener_settings, queue_settings, register, wait_until};
use listen::housekeeper::HousekeepingSettings;
use listen::leader::ListenerSettings;
use listen::service::Service;
use listen::sink::{FileSinkConfig, SinkSettings};
use queue::lock::{Attempt, ProcessLock};
use segments::verify::{Request, verify};
use std::path::Path;
use std::sync::Arc;

const ROTATE_BYTES: u64 = 1200;
const QUOTA_BYTES: u64 = 4 * ROTATE_BYTES;
const RECORDS: u64 = 200;

fn open(path: &Path) -> Arc<Service> {
    let (queues, segments) = (path.join("queues"), path.join("segments"));
    let directories = (vec![segments.clone()], (vec![], segments.clone()));
    let housekeeping = HousekeepingSettings::new(directories.0, PREFIX, quota(QUOTA_BYTES), None, directories.1);
    let listener = ListenerSettings { housekeeping, flush_bytes: 300, ..listener_settings(&queues) };
    let sink =
        FileSinkConfig { rotate_bytes: ROTATE_BYTES, ..FileSinkConfig::new(segments, PREFIX, "0000000000000000") };
    Service::open(queue_settings(&queues), listener, SinkSettings::File(sink), true).unwrap()
}

#[test]
fn the_quota_holds_after_a_close_that_drained_more_and_the_books_balance() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("queues")).unwrap();
    // Until the queue is closed another process leads: nothing is drained before, and no housekeeper removes anything.
    let lock = ProcessLock::try_acquire(&place.path().join("queues/leader.lock"), true).unwrap();
    let Attempt::Acquired(other) = lock else { panic!("nobody else leads") };
    let service = open(place.path());
    let event = register(&service.producer);
    (0..RECORDS).for_each(|n| assert!(emit(&service.producer, event, INFO, 0, n)));
    let closing = {
        let service = Arc::clone(&service);
        std::thread::spawn(move || service.close(PATIENCE))
    };
    wait_until("the queue is closed", || service.producer.queue().unwrap().file.ring().is_closed());
    drop(other);
    assert!(closing.join().unwrap());

    let files = std::fs::read_dir(place.path().join("segments")).unwrap().map(|entry| entry.unwrap());
    let segments = files.filter(|file| file.path().extension().is_some_and(|it| it == "jsonl"));
    let bytes: u64 = segments.map(|file| file.metadata().unwrap().len()).sum();
    // The report and the last footer come after the removal.
    assert!(bytes <= QUOTA_BYTES + ROTATE_BYTES, "{bytes} bytes");
    let request = Request {
        directories: vec![place.path().join("segments")],
        queue_directories: vec![place.path().join("queues")],
        ..Request::default()
    };
    let report = verify(&request).unwrap();
    assert_eq!(report["problems"], serde_json::json!([]), "{report}");
    assert_eq!(report["totals"]["accepted"], RECORDS, "{report}");
    let removed = report["totals"]["removed"].as_u64().unwrap();
    assert!(removed > RECORDS / 2, "{report}");
}
