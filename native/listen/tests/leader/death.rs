//! The remains of dead processes and damaged files: each test is one known damage.

use crate::support::{
    Bench, INFO, SLOTS, WARN, child, child_directory, dense, die, emit, emit_each, numbers, open_producer, payload,
    queue_settings, register, registered, sequences, wait_until,
};
use queue::control::Control;
use queue::layout::{Reason, data_offset};
use queue::memory::page_bytes;
use queue::producer::Producer;
use queue::queue_file::{QueueCounts, QueueFile};
use ring::{Mark, RECORD_HEAD_WORDS};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs the other half of a test to its death by SIGKILL, in the directory of the bench.
fn kill(test: &str, bench: &Bench) {
    let output = child(test, bench.path()).output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{}", String::from_utf8_lossy(&output.stderr));
}

/// In the child: a producer with three records, the queue's ring still open.
fn three_records(directory: &Path) -> (Producer, u16) {
    let (producer, event) = open_producer(directory);
    emit_each(&producer, event, 0, 0..3);
    (producer, event)
}

/// The counts in the footer, including those of ended queues.
fn last_books(bench: &mut Bench) -> serde_json::Value {
    bench.change_leader();
    let footer = bench.sink.taken().footer.take().unwrap();
    let footer: serde_json::Value = serde_json::from_str(&format!("{{\"a\":0{footer}}}")).unwrap();
    footer["processes"].clone()
}

/// Drains a dead child's queue, and checks the numbers that arrived, how many were torn, and that its file is gone.
fn check_recovered(bench: &mut Bench, expected: &[u64], torn: u64) {
    bench.drain();
    let lines = bench.sink.events("test");
    assert_eq!(numbers(&lines, 0), expected);
    assert!(bench.queue_files().is_empty(), "the file is removed");
    let reported: Vec<_> = bench.sink.events("log.dropped").iter().map(|line| line["reasons"].to_string()).collect();
    let reasons = format!("{{\"torn\":{{\"INFO\":{torn}}}}}");
    assert_eq!(
        reported,
        if torn == 0 { vec![] } else { vec![reasons.clone()] },
        "the gap is reported before the file goes"
    );
    let processes = last_books(bench);
    assert_eq!(processes[0]["accepted"], expected.len() as u64 + torn);
    assert_eq!((&processes[0]["written"], &processes[0]["in_queue"]), (&(expected.len() as u64).into(), &0.into()));
    bench.drain();
    assert_eq!(bench.sink.events("test").len(), expected.len(), "once");
}

#[test]
fn committed_records_of_a_killed_process_are_written_once() {
    if let Some(directory) = child_directory() {
        let _producer = three_records(&directory);
        die();
    }
    let mut bench = Bench::new();
    kill("leader::death::committed_records_of_a_killed_process_are_written_once", &bench);
    check_recovered(&mut bench, &[0, 1, 2], 0);
}

#[test]
fn a_half_written_record_is_never_emitted_and_hides_nothing_behind_it() {
    if let Some(directory) = child_directory() {
        let (producer, event) = three_records(&directory);
        let ring = producer.queue().unwrap().file.ring();
        let bytes = payload(0, 99);
        ring.reserve(bytes.as_slice().len() as u32, u32::MAX).unwrap().fill(1, bytes.as_slice());
        assert!(emit(&producer, event, INFO, 0, 3));
        ring.reserve(500, u32::MAX).unwrap().fill(1, &[0xee; 500]);
        die();
    }
    let mut bench = Bench::new();
    kill("leader::death::a_half_written_record_is_never_emitted_and_hides_nothing_behind_it", &bench);
    check_recovered(&mut bench, &[0, 1, 2, 3], 2);
    assert_eq!(sequences(&bench.sink.events("test")), [0, 1, 2, 4]);
}

#[test]
fn a_process_killed_right_after_its_reservation_hides_nothing_behind_it() {
    if let Some(directory) = child_directory() {
        let (producer, event) = three_records(&directory);
        let file = &producer.queue().unwrap().file;
        let reserve_only = |payload_words: u32| {
            let head = file.ring().head();
            let position = head.position + RECORD_HEAD_WORDS + payload_words;
            file.header().head.store(Mark { sequence: head.sequence + 1, position }.to_word(), Ordering::Release);
        };
        reserve_only(100);
        assert!(emit(&producer, event, INFO, 0, 3));
        reserve_only(7);
        reserve_only(0);
        die();
    }
    let mut bench = Bench::new();
    kill("leader::death::a_process_killed_right_after_its_reservation_hides_nothing_behind_it", &bench);
    check_recovered(&mut bench, &[0, 1, 2, 3], 3);
}

#[test]
fn a_process_killed_with_a_full_queue_loses_nothing() {
    if let Some(directory) = child_directory() {
        let (producer, event) = open_producer(&directory);
        let mut n = 0;
        while emit(&producer, event, WARN, 0, n) {
            n += 1;
        }
        fs::write(directory.join("accepted"), n.to_string()).unwrap();
        die();
    }
    let mut bench = Bench::new();
    kill("leader::death::a_process_killed_with_a_full_queue_loses_nothing", &bench);
    let accepted: u64 = fs::read_to_string(bench.path().join("accepted")).unwrap().parse().unwrap();
    bench.drain();
    assert_eq!(numbers(&bench.sink.events("test"), 0), dense(accepted));
    assert_eq!(bench.sink.events("log.dropped")[0]["reasons"].to_string(), r#"{"queue_full":{"WARN":1}}"#);
    assert!(bench.queue_files().is_empty());
}

#[test]
fn a_process_killed_at_any_instruction_loses_nothing_that_it_committed() {
    const THREADS: u64 = 3;
    if let Some(directory) = child_directory() {
        let (producer, event) = open_producer(&directory);
        let accepted: [AtomicU64; THREADS as usize] = Default::default();
        std::thread::scope(|scope| {
            for (thread, accepted) in (0..).zip(&accepted) {
                let producer = &producer;
                scope.spawn(move || {
                    loop {
                        let n = accepted.load(Ordering::Relaxed);
                        accepted.store(n + u64::from(emit(producer, event, INFO, thread, n)), Ordering::Relaxed);
                    }
                });
            }
        });
    }
    for accepted_at_death in [1, 1_000, 20_000] {
        let mut bench = Bench::new();
        let test = "leader::death::a_process_killed_at_any_instruction_loses_nothing_that_it_committed";
        let mut process = child(test, bench.path()).stdout(std::process::Stdio::null()).spawn().unwrap();
        let mut file = None;
        wait_until("the child has a queue", || {
            file = bench.queue_files().first().and_then(|path| QueueFile::open(path).ok());
            file.is_some()
        });
        let file = file.unwrap();
        wait_until("the child emits", || {
            bench.drain();
            file.counts().accepted >= accepted_at_death
        });
        process.kill().unwrap();
        process.wait().unwrap();
        bench.drain();
        let lines = bench.sink.events("test");
        let books: QueueCounts = file.counts();
        let torn: u64 = books.dropped[Reason::Torn as usize].iter().sum();
        assert!(torn <= THREADS, "at most one half-written record for each thread");
        assert_eq!((books.accepted, books.in_queue), (lines.len() as u64 + torn, 0));
        for thread in 0..THREADS {
            let numbers = numbers(&lines, thread);
            assert_eq!(numbers, dense(numbers.len() as u64));
        }
        assert!(sequences(&lines).is_sorted_by(|earlier, later| earlier < later));
        assert!(bench.queue_files().is_empty());
    }
}

#[test]
fn a_listener_killed_during_its_release_leaves_no_record_to_be_written_twice() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    emit_each(&producer, event, 0, 0..5);
    // Three of them are written, and the first word of the release is zeroed already.
    let header = producer.queue().unwrap().file.header();
    header.releasing.store(Mark { sequence: 3, position: 3 * 6 }.to_word(), Ordering::Release);
    bench.drain();
    assert_eq!(numbers(&bench.sink.lines(), 0), [3, 4]);
    assert_eq!(sequences(&bench.sink.lines()), [3, 4]);
    let books = producer.queue().unwrap().file.counts();
    assert_eq!((books.accepted, books.written, books.in_queue), (5, 5, 0));
}

#[test]
fn a_listener_killed_during_its_release_of_torn_records_leaves_them_to_be_counted_once() {
    if let Some(directory) = child_directory() {
        let (producer, _) = three_records(&directory);
        let ring = producer.queue().unwrap().file.ring();
        let _ = ring.reserve(8, u32::MAX).unwrap();
        die();
    }
    for begun in [false, true] {
        let mut bench = Bench::new();
        kill(
            "leader::death::a_listener_killed_during_its_release_of_torn_records_leaves_them_to_be_counted_once",
            &bench,
        );
        let file = QueueFile::open(&bench.queue_files()[0]).unwrap();
        file.header().unreadable[0].store(1, Ordering::Relaxed);
        if begun {
            // All is written, and the successor has to finish the release.
            file.header().releasing.store(file.ring().head().to_word(), Ordering::Release);
        }
        bench.drain();
        assert_eq!(numbers(&bench.sink.events("test"), 0), if begun { vec![] } else { dense(3) });
        let books = file.counts();
        assert_eq!((books.accepted, books.written, books.dropped[Reason::Torn as usize]), (4, 3, [0, 0, 1, 0, 0, 0]));
        assert_eq!(bench.sink.events("log.dropped")[0]["dropped"], 1);
    }
}

#[test]
fn a_listener_killed_before_its_write_leaves_every_record() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    emit_each(&producer, event, 0, 0..5);
    bench.sink.taken().faults.push_back(0);
    bench.round(std::time::Duration::from_millis(1), true);
    drop(bench.next_leader());
    bench.drain();
    assert_eq!(numbers(&bench.sink.lines(), 0), dense(5));
}

#[test]
fn files_that_are_no_queues_of_this_version_are_left_alone_and_disturb_nobody() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    let good = fs::read(&bench.queue_files()[0]).unwrap();
    let mut foreign = good.clone();
    foreign[8] = 1;
    let noise: Vec<u8> = (0..200_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let files: Vec<(PathBuf, Vec<u8>)> = [
        ("0000000000000001.queue", foreign),
        ("0000000000000002.queue", good[..good.len() / 2].to_vec()),
        ("0000000000000003.queue", noise),
        ("0000000000000004.queue", Vec::new()),
        ("notes.txt", b"not ours".to_vec()),
    ]
    .map(|(name, bytes)| (bench.path().join(name), bytes))
    .into();
    for (path, bytes) in &files {
        fs::write(path, bytes).unwrap();
    }
    std::os::unix::fs::symlink(bench.queue_files().last().unwrap(), bench.path().join("link.queue")).unwrap();
    fs::create_dir(bench.path().join("directory.queue")).unwrap();
    assert!(emit(&producer, event, INFO, 0, 0));
    bench.drain();
    producer.close();
    bench.drain();
    assert_eq!(numbers(&bench.sink.lines(), 0), [0]);
    for (path, bytes) in &files {
        assert_eq!(&fs::read(path).unwrap(), bytes);
    }
    assert!(bench.path().join("directory.queue").is_dir());
}

/// A dead process's queue with five records, changed by `damage`, beside a living one; returns the records that arrive
/// from the dead one.
fn with_damage(damage: impl FnOnce(&mut Vec<u8>)) -> (Vec<u64>, serde_json::Value) {
    let mut bench = Bench::new();
    let alive = bench.producer();
    let event = register(&alive);
    let dead = bench.producer();
    register(&dead);
    emit_each(&dead, event, 1, 0..5);
    let mut bytes = fs::read(&dead.queue().unwrap().file.path).unwrap();
    fs::remove_file(&dead.queue().unwrap().file.path).unwrap();
    damage(&mut bytes);
    fs::write(bench.path().join("0000000000000001.queue"), bytes).unwrap();
    assert!(emit(&alive, event, INFO, 0, 0));
    bench.drain();
    assert!(emit(&alive, event, INFO, 0, 1));
    bench.drain();
    assert_eq!(numbers(&bench.sink.lines(), 0), [0, 1], "the living one is not disturbed");
    assert_eq!(bench.queue_files().len(), 1, "the damaged file is at its end");
    let processes = last_books(&mut bench);
    (numbers(&bench.sink.lines(), 1), processes[0].clone())
}

/// Where a record begins in the file; each takes 6 words.
fn word(record: usize, word: usize) -> usize {
    data_offset(SLOTS, page_bytes().unwrap()) + (record * 6 + word) * 8
}

#[test]
fn a_commit_word_that_cannot_be_ends_its_queue_and_is_counted() {
    for (offset, byte) in [(7, 9), (0, 0xff), (3, 0xff), (1, 0xff)] {
        let (arrived, books) = with_damage(|bytes| bytes[word(2, 0) + offset] = byte);
        assert_eq!((arrived, books["dropped"].to_string().as_str()), (vec![0, 1], r#"{"corrupt":{"INFO":3}}"#));
        assert_eq!((&books["accepted"], &books["written"], &books["in_queue"]), (&5.into(), &2.into(), &0.into()));
    }
}

#[test]
fn a_sequence_that_cannot_be_ends_its_queue_and_is_counted() {
    for sequence in [0u64, 1, 5, 77, u64::from(u32::MAX)] {
        let (arrived, books) = with_damage(|bytes| bytes[word(2, 2)..][..8].copy_from_slice(&sequence.to_le_bytes()));
        assert_eq!((arrived, books["dropped"].to_string().as_str()), (vec![0, 1], r#"{"corrupt":{"INFO":3}}"#));
    }
}

#[test]
fn a_payload_that_cannot_be_read_costs_its_own_record_only() {
    let (arrived, books) = with_damage(|bytes| bytes[word(2, 3)] = 0xee);
    assert_eq!((arrived, books["dropped"].to_string().as_str()), (vec![0, 1, 3, 4], r#"{"corrupt":{"INFO":1}}"#));
    let (arrived, books) = with_damage(|bytes| bytes[word(2, 0) + 4] = 0xee);
    assert_eq!((arrived, books["dropped"].to_string().as_str()), (vec![0, 1, 3, 4], r#"{"corrupt":{"INFO":1}}"#));
}

#[test]
fn a_head_within_a_record_and_a_ring_without_an_end_do_not_hang_the_listener() {
    let head = |position: u32| Mark { sequence: 9, position }.to_word().to_le_bytes();
    let (arrived, _) = with_damage(|bytes| bytes[128..136].copy_from_slice(&head(15)));
    assert_eq!(arrived, [0, 1]);
    let (arrived, _) = with_damage(|bytes| bytes[128..136].copy_from_slice(&head(1 << 30)));
    assert_eq!(arrived, [] as [u64; 0]);
    // Reservations without an end, once around and on.
    let (arrived, books) = with_damage(|bytes| {
        for reservation in bytes[data_offset(SLOTS, page_bytes().unwrap())..].chunks_exact_mut(32) {
            reservation.copy_from_slice(&[[1, 0, 0, 0, 0, 0, 0, 1], [0; 8], [0; 8], [0; 8]].concat());
        }
        bytes[128..136].copy_from_slice(&head(8191));
    });
    assert_eq!((arrived, &books["in_queue"]), (vec![], &0.into()));
}

#[test]
fn noise_behind_a_good_header_does_not_stop_the_listener() {
    for seed in 0..64u32 {
        let (_, books) = with_damage(|bytes| {
            let mut state = seed.wrapping_mul(2_654_435_761) | 1;
            for byte in bytes[128..].iter_mut() {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = (state >> 24) as u8;
            }
        });
        assert_eq!(books["in_queue"], 0);
    }
}

#[test]
fn a_control_file_that_says_another_version_than_its_name_is_an_error_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    Control::open(directory.path()).unwrap();
    let path = directory.path().join("control-5");
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] += 1;
    fs::write(&path, bytes).unwrap();
    let error = Control::open(directory.path()).err().unwrap();
    assert!(error.to_string().contains("is not a control file of version 5"), "{error}");
    assert!(Producer::open(queue_settings(directory.path())).is_err());
}

#[test]
fn what_another_version_left_behind_is_not_in_the_way() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("control-1"), b"INFLOGC\0\x01\0\0\0").unwrap();
    fs::write(directory.path().join("control"), b"INFLOGC\0\x01\0\0\0").unwrap();
    assert!(Control::open(directory.path()).is_ok());
    assert!(Producer::open(queue_settings(directory.path())).is_ok());
}
