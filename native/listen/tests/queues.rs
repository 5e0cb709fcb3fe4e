//! The producing side on real files: accepted records arrive, others are counted; directories and their modes.

use crate::support::{
    Bench, INFO, QUEUE_BYTES, WARN, child, child_directory, dense, emit, numbers, queue_settings, registered, sequences,
};
use queue::inspect;
use queue::layout::Reason;
use queue::producer::{Producer, QueueSettings};
use queue::queue_file::{self, QueueCounts, QueueFile};
use ring::Mark;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

fn books(producer: &Producer) -> QueueCounts {
    producer.queue().unwrap().file.counts()
}

fn dropped(producer: &Producer, reason: Reason) -> [u64; 6] {
    books(producer).dropped[reason as usize]
}

#[test]
fn every_accepted_record_of_several_threads_arrives_once_and_in_order() {
    const THREADS: u64 = 4;
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    let running = AtomicUsize::new(THREADS as usize);
    let accepted = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let mut accepted = 0;
            for turn in 0..20_000 {
                let severity = if turn % 3 == 0 { WARN } else { INFO };
                accepted += u64::from(emit(&producer, event, severity, thread, accepted));
            }
            running.fetch_sub(1, Ordering::Release);
            accepted
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        while running.load(Ordering::Acquire) > 0 {
            bench.drain();
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<u64>>()
    });
    bench.drain();
    let lines = bench.sink.events("test");
    for (thread, accepted) in (0..).zip(&accepted) {
        assert_eq!(numbers(&lines, thread), dense(*accepted));
    }
    let total: u64 = accepted.iter().sum();
    assert_eq!(sequences(&lines), dense(total));
    let books = books(&producer);
    assert_eq!((books.accepted, books.written, books.in_queue, books.bytes_in_queue), (total, total, 0, 0));
    let refused: u64 = books.dropped.iter().flatten().sum();
    assert_eq!(refused, THREADS * 20_000 - total);
    let reported: u64 = bench.sink.events("log.dropped").iter().map(|line| line["dropped"].as_u64().unwrap()).sum();
    assert_eq!(reported, refused);
}

#[test]
fn info_is_refused_above_80_percent_and_warn_when_the_queue_is_full() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    let mut accepted = 0;
    // DEBUG and TRACE share the limit of INFO.
    while emit(&producer, event, INFO, 0, accepted) {
        accepted += 1;
    }
    assert!(!emit(&producer, event, 1, 0, 0) && !emit(&producer, event, 5, 0, 0) && !emit(&producer, event, 12, 0, 0));
    let limit = QUEUE_BYTES * 8 / 10;
    assert!((limit - 64..=limit).contains(&books(&producer).bytes_in_queue));
    while emit(&producer, event, WARN, 0, accepted) {
        accepted += 1;
    }
    assert!((QUEUE_BYTES - 64..QUEUE_BYTES).contains(&books(&producer).bytes_in_queue));
    assert!(!emit(&producer, event, 17, 0, 0) && !emit(&producer, event, 21, 0, 0));
    assert_eq!(dropped(&producer, Reason::QueueFull), [1, 1, 2, 1, 1, 1]);

    bench.drain();
    assert_eq!(numbers(&bench.sink.events("test"), 0), dense(accepted));
    let reported = bench.sink.events("log.dropped");
    assert_eq!((reported.len(), &reported[0]["dropped"]), (1, &7.into()));
    let reasons = r#"{"queue_full":{"TRACE":1,"DEBUG":1,"INFO":2,"WARN":1,"ERROR":1,"FATAL":1}}"#;
    assert_eq!(reported[0]["reasons"].to_string(), reasons);
    assert_eq!(reported[0]["severity_text"], "ERROR");
    assert!(emit(&producer, event, INFO, 0, accepted), "there is room again");
    bench.drain();
    assert_eq!(bench.sink.events("log.dropped").len(), 1, "a gap is reported once");
    assert_eq!(sequences(&bench.sink.events("test")), dense(accepted + 1));
}

#[test]
fn an_oversized_record_is_counted_and_does_not_disturb_the_next() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    assert!(!producer.emit(event, WARN, &[0; 8193]));
    assert!(producer.emit(event, WARN, &[0; 8192]));
    assert!(emit(&producer, event, INFO, 0, 0));
    assert_eq!(dropped(&producer, Reason::Oversize), [0, 0, 0, 1, 0, 0]);
    bench.drain();
    assert_eq!(sequences(&bench.sink.events("test")), [0, 1]);
}

#[test]
fn a_queue_filled_to_its_last_word_is_read_once() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    // 8 words each; 1024 of them would fill the ring exactly.
    let accepted = (0..1024).filter(|_| producer.emit(event, WARN, &[0; 40])).count() as u64;
    assert_eq!(accepted, 1023);
    bench.drain();
    assert_eq!(sequences(&bench.sink.events("test")), dense(accepted));
    assert_eq!((books(&producer).written, books(&producer).dropped[Reason::Torn as usize]), (accepted, [0; 6]));
}

#[test]
fn a_closed_queue_refuses_and_counts() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    assert!(emit(&producer, event, INFO, 0, 0));
    producer.close();
    producer.close();
    assert!(!emit(&producer, event, INFO, 0, 1) && !emit(&producer, event, WARN, 0, 1));
    assert_eq!(dropped(&producer, Reason::AlreadyShutdown), [0, 0, 1, 1, 0, 0]);
    bench.drain();
    assert_eq!(numbers(&bench.sink.events("test"), 0), [0]);
    assert_eq!(bench.queue_files(), [] as [&Path; 0], "closed and drained: the file goes");
}

#[test]
fn sequences_go_on_beyond_32_bits_and_positions_beyond_31() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    let header = producer.queue().unwrap().file.header();
    let start = Mark { sequence: u32::MAX - 1, position: (1 << 31) - 30 }.to_word();
    for word in [&header.head, &header.tail, &header.releasing] {
        word.store(start, Ordering::Relaxed);
    }
    for n in 0..40 {
        assert!(emit(&producer, event, INFO, 0, n));
        bench.drain();
    }
    let first = u64::from(u32::MAX - 1);
    assert_eq!(sequences(&bench.sink.events("test")), (first..first + 40).collect::<Vec<u64>>());
    assert_eq!((books(&producer).accepted, books(&producer).written), (first + 40, first + 40));
}

#[test]
fn a_process_without_a_queue_counts_and_a_forked_one_gets_its_own() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    let parents = books(&producer).boot_id;
    assert!(emit(&producer, event, INFO, 0, 0));
    producer.after_fork_in_child();
    assert!(producer.queue().is_none());
    assert!(!producer.refuse(Reason::SerializeError, INFO));
    assert_eq!(producer.without_queue.snapshot()[Reason::SerializeError as usize], [0, 0, 1, 0, 0, 0]);
    assert!(emit(&producer, event, INFO, 1, 0));
    assert_ne!(books(&producer).boot_id, parents);
    bench.drain();
    let lines = bench.sink.events("test");
    assert_eq!((numbers(&lines, 0), numbers(&lines, 1)), (vec![0], vec![0]));
    assert_ne!(lines[0]["boot_id"], lines[1]["boot_id"]);

    producer.after_fork_in_child();
    producer.close();
    assert!(!emit(&producer, event, INFO, 0, 0), "closed before its first record: no queue any more");
    assert_eq!(producer.without_queue.snapshot()[Reason::NoQueue as usize], [0, 0, 1, 0, 0, 0]);
}

#[test]
fn an_event_keeps_its_id_and_its_fields() {
    let bench = Bench::new();
    let producer = bench.producer();
    let fields = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    assert_eq!(producer.register("a", &fields(&["x", "y"])), Ok(16));
    assert_eq!(producer.register("b", &fields(&[])), Ok(17));
    assert_eq!(producer.register("a", &fields(&["x", "y"])), Ok(16));
    let error = producer.register("a", &fields(&["y", "x"])).unwrap_err();
    assert!(error.contains("\"a\"") && error.contains("already registered"), "{error}");
    assert!(producer.register("c", &fields(&["seq"])).unwrap_err().contains("seq"));
    assert!(producer.register("request", &fields(&["mine"])).is_err(), "a built-in name is taken");
    let wide = (0..256).map(|at| format!("{at:0128}")).collect::<Vec<String>>();
    let full = (0..10).find_map(|at| producer.register(&format!("wide{at}"), &wide).err()).unwrap();
    assert!(full.contains("schema area is full"), "{full}");
    assert_eq!(producer.register("small", &fields(&[])), Ok(19), "what does not fit takes no id");
}

fn create(directory: &Path) -> io::Result<()> {
    QueueFile::create(directory, crate::support::SIZES, 1, 0).map(drop)
}

fn refusal(directory: &Path) -> String {
    let error = create(directory).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains(directory.to_str().unwrap()), "names the directory: {error}");
    error.to_string()
}

#[test]
fn the_directory_is_made_private() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("a/b");
    create(&directory).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&parent.path().join("a"))), (0o700, 0o700));
    assert_eq!(mode(&queue_file::list(&directory).unwrap()[0]), 0o600);
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    for mode in [0o720, 0o702, 0o777, 0o1777] {
        std::fs::set_permissions(parent.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(refusal(parent.path()).contains("writable by group or others"));
    }
    std::fs::set_permissions(parent.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    create(parent.path()).unwrap();
}

#[test]
fn a_symbolic_link_is_refused_even_with_a_slash_behind_it() {
    let parent = tempfile::tempdir().unwrap();
    let (target, link) = (parent.path().join("target"), parent.path().join("link"));
    std::fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert!(refusal(&link).contains("symbolic link"));
    assert!(refusal(&parent.path().join("link/")).contains("symbolic link"));
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    // Only root can give a directory away; for other users, the root directory belongs to another user.
    match std::os::unix::fs::chown(directory.path(), Some(12_345), None) {
        Ok(()) => assert!(refusal(directory.path()).contains("owned by another user")),
        Err(_) => assert!(refusal(Path::new("/")).contains("owned by another user")),
    }
}

#[test]
fn a_queue_that_does_not_fit_is_an_error_at_the_start_and_leaves_no_file() {
    if let Some(directory) = child_directory() {
        // SAFETY: plain calls; the limit lives for the call.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: QUEUE_BYTES, rlim_max: QUEUE_BYTES };
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
        let error = Producer::open(QueueSettings { queue_bytes: 1 << 20, ..queue_settings(&directory) }).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let test = "queues::a_queue_that_does_not_fit_is_an_error_at_the_start_and_leaves_no_file";
    assert!(child(test, directory.path()).output().unwrap().status.success());
}

#[test]
fn the_oldest_record_that_waits_is_seen_from_outside_and_what_is_not_committed_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _lock) = QueueFile::create(directory.path(), crate::support::SIZES, 1, 1).unwrap();
    let ring = file.ring();
    let oldest = || inspect::queues(directory.path())[0].oldest_unix_nano;
    assert_eq!(oldest(), None, "nothing waits");
    let half_written = ring.reserve(8, u32::MAX).unwrap();
    assert_eq!(oldest(), None, "nothing is committed");
    for time in [30, 20] {
        ring.reserve(0, u32::MAX).unwrap().commit(16, INFO, time, b"");
    }
    assert_eq!(oldest(), Some(30), "the first in the queue's order");
    half_written.commit(16, INFO, 40, &[0; 8]);
    assert_eq!(oldest(), Some(40));
    ring.release(Mark { sequence: 2, position: 7 });
    let snapshot = &inspect::queues(directory.path())[0];
    assert_eq!(
        (snapshot.oldest_unix_nano, snapshot.counts.in_queue, snapshot.counts.bytes_in_queue),
        (Some(20), 1, 24)
    );
    assert_eq!(snapshot.capacity_bytes, QUEUE_BYTES);
    ring.release(Mark { sequence: 3, position: 10 });
    assert_eq!(oldest(), None, "all is taken away");
}

#[test]
fn the_oldest_record_is_found_behind_the_end_of_a_lap() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _lock) = QueueFile::create(directory.path(), crate::support::SIZES, 1, 1).unwrap();
    let before_the_end = Mark { sequence: 9, position: QUEUE_BYTES as u32 / 8 - 2 };
    file.header().head.store(before_the_end.to_word(), Ordering::Relaxed);
    file.header().tail.store(before_the_end.to_word(), Ordering::Relaxed);
    file.ring().reserve(0, u32::MAX).unwrap().commit(16, INFO, 70, b"");
    assert_eq!(file.ring().oldest_time(), Some(70));
}

#[test]
fn records_of_one_event_are_copied_while_they_wait_over_the_end_of_a_lap_and_before_what_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _lock) = QueueFile::create(directory.path(), crate::support::SIZES, 1, 1).unwrap();
    let before_the_end = Mark { sequence: 9, position: QUEUE_BYTES as u32 / 8 - 5 };
    file.header().head.store(before_the_end.to_word(), Ordering::Relaxed);
    file.header().tail.store(before_the_end.to_word(), Ordering::Relaxed);
    let (ring, releasing) = (file.ring(), &file.header().releasing);
    releasing.store(before_the_end.to_word(), Ordering::Relaxed);
    let commit = |event, payload: &[u8]| {
        ring.reserve(payload.len() as u32, u32::MAX).unwrap().commit(event, INFO, 7, payload);
    };
    commit(4, b"first");
    commit(16, b"another event");
    let _dead = ring.reserve(20, u32::MAX).unwrap();
    commit(4, b"the second, longer");
    assert_eq!(ring.copy_waiting(4, releasing), [&b"first"[..], b"the second, longer"]);
    assert_eq!(ring.copy_waiting(5, releasing), [b""; 0]);
    let second = Mark { sequence: 10, position: before_the_end.position + 4 };
    releasing.store(second.to_word(), Ordering::Relaxed);
    ring.release(second);
    assert_eq!(ring.copy_waiting(4, releasing), [b"the second, longer"]);
}

#[test]
fn a_look_from_outside_sees_only_times_that_were_written_whatever_the_consumer_does() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _lock) = QueueFile::create(directory.path(), crate::support::SIZES, 1, 1).unwrap();
    let running = AtomicUsize::new(1);
    // Its words look like commit words.
    let payload = (2u64 << 56).to_le_bytes().repeat(64);
    std::thread::scope(|scope| {
        let (file, running, payload) = (&file, &running, &payload);
        scope.spawn(move || {
            // Several laps, always one record waiting.
            for turn in 0..200_000usize {
                let (ring, behind) = (file.ring(), file.ring().head());
                let event = 16 + (turn & 1) as u16;
                ring.reserve(turn as u32 % 64 * 8, u32::MAX).unwrap().commit(event, INFO, 7, &payload[..turn % 64 * 8]);
                file.header().releasing.store(behind.to_word(), Ordering::Release);
                fence(Ordering::Release);
                ring.release(behind);
            }
            running.store(0, Ordering::Release);
        });
        // More readers than cores: some are suspended in the middle of a read, for laps.
        for _ in 0..8 {
            scope.spawn(move || {
                while running.load(Ordering::Acquire) == 1 {
                    let found = file.ring().oldest_time();
                    assert!(matches!(found, None | Some(7)), "{found:?}");
                    for copy in file.ring().copy_waiting(17, &file.header().releasing) {
                        assert!(copy.len() % 16 == 8 && payload.starts_with(&copy), "{copy:?}");
                    }
                }
            });
        }
    });
}
