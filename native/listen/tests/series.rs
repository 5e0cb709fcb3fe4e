//! The counts of requests: outcomes, tokens, buckets and weights; each record once, whichever process dies when; labels
//! that no client can make grow.

mod counts;
mod routes;

use crate::support::Bench;
use lines::encode::Encoder;
use lines::series::histogram::BOUNDS;
use lines::series::{self, Series, SeriesSnapshot};
use listen::attached::{QueueReader, ReaderId, Room};
use queue::producer::Producer;
use routes::Request;
use std::path::Path;
use std::time::Duration;

fn snapshot(directory: &Path) -> Vec<SeriesSnapshot> {
    series::read(directory).unwrap().series
}

fn count(series: &SeriesSnapshot, histogram: usize) -> f64 {
    let histogram = &BOUNDS[histogram];
    series.words[histogram.first_word..histogram.sum_word()].iter().sum()
}

/// How many requests all series have.
fn total(directory: &Path) -> f64 {
    snapshot(directory).iter().map(|series| count(series, 0)).sum()
}

/// A leader reads four records of a producer, and dies before or after it has committed their counts.
fn die_around_the_count(directory: &Path, producer: &Producer, is_before: bool) {
    let mut encoder = Encoder::counting(Some(Series::open(directory, &[]).unwrap()));
    let mut queue = attach(&producer.queue().unwrap().file.path);
    queue.read_into(&mut Vec::new(), Room::of_records(4), &mut encoder);
    queue.note_counted(encoder.series.as_ref().unwrap().generation() + 1);
    if !is_before {
        encoder.series.as_mut().unwrap().commit();
    }
}

#[test]
fn a_request_falls_into_the_bucket_of_its_time_and_counts_as_many_as_it_stands_for() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let streamed = Request { duration_s: 0.3, first_chunk_s: 0.05, mean_gap_us: 11_000, ..Request::ok("m") };
    Request { chunks_s: 0.2, engine_tokens: Some([9, 5]), ..streamed }.emit(&producer);
    Request { duration_s: 100.0, adjusted_count: 2.5, ..Request::ok("m") }.emit(&producer);
    bench.drain();
    let all = snapshot(bench.path());
    let [series] = &all[..] else { panic!("{all:?}") };
    assert_eq!((series.operation.as_str(), series.model.as_str(), series.error_type.as_str()), ("chat", "m", ""));
    let [duration, first_chunk, per_chunk, per_token, ..] = &BOUNDS;
    assert_eq!(series.words[duration.bucket(0.3)], 1.0);
    assert_eq!(series.words[duration.bounds_s.len()], 2.5);
    assert_eq!(series.words[duration.sum_word()], 0.3 + 250.0);
    assert_eq!(series.words[first_chunk.first_word + first_chunk.bucket(0.05)], 1.0);
    assert_eq!(series.words[per_chunk.first_word + 1], 1.0, "11 ms a chunk");
    assert_eq!(series.words[per_token.first_word + 2], 1.0, "50 ms a token");
    assert_eq!([0, 1, 2, 3].map(|kind| count(series, kind)), [3.5, 1.0, 1.0, 1.0]);
    let exemplar = series.exemplars[duration.bucket(0.3)].unwrap();
    assert_eq!((exemplar.trace_id, exemplar.value), (u128::from_be_bytes([0x0a; 16]), 0.3));
    assert_eq!(series.exemplars[duration.bucket(0.02)], None);
}

#[test]
fn chunks_are_timed_of_successful_answers_only_and_other_requests_not_at_all() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let chunks = Request { first_chunk_s: 0.05, mean_gap_us: 11_000, chunks_s: 0.2, ..Request::ok("m") };
    let streamed = Request { engine_tokens: Some([9, 5]), ..chunks };
    Request { status: 503, ..streamed.clone() }.emit(&producer);
    Request { outcome: "client_disconnect", ..streamed.clone() }.emit(&producer);
    Request { error_type: "ValueError", outcome: "error", ..streamed.clone() }.emit(&producer);
    Request { operation: "", engine_tokens: None, ..streamed }.emit(&producer);
    bench.drain();
    let all = snapshot(bench.path());
    let errors: Vec<&str> = all.iter().map(|series| series.error_type.as_str()).collect();
    assert_eq!(errors, ["503", "client_disconnect", "ValueError"]);
    assert!(all.iter().all(|series| (count(series, 0), count(series, 1), count(series, 2)) == (1.0, 0.0, 0.0)));
}

#[test]
fn a_batch_that_is_tried_again_and_one_that_is_given_back_count_once() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    bench.sink.taken().faults.extend([0, 2]);
    (0..5).for_each(|_| Request::ok("m").emit(&producer));
    bench.drain();
    assert_eq!(total(bench.path()), 5.0, "retried, once from the middle");
    (0..5).for_each(|_| Request::ok("m").emit(&producer));
    bench.sink.taken().faults.push_back(3);
    bench.round(Duration::from_millis(1), true);
    assert_eq!(total(bench.path()), 5.0, "not before they are written");
    bench.change_leader();
    assert_eq!(total(bench.path()), 8.0, "three were written");
    bench.drain();
    assert_eq!(total(bench.path()), 10.0);
    assert_eq!(bench.sink.events("request").len(), 10);
}

fn attach(path: &Path) -> QueueReader {
    QueueReader::open(path, ReaderId::UNLOCKED, Duration::ZERO, false).unwrap()
}

/// A leader that reads everything and dies `before` or after its commit, without a release.
fn die_at_commit(directory: &Path, before: bool) {
    let mut encoder = Encoder::counting(Some(Series::open(directory, &[]).unwrap()));
    let generation = encoder.series.as_ref().unwrap().generation();
    for path in queue::queue_file::list(directory).unwrap() {
        let mut queue = attach(&path);
        queue.trust_counted(generation);
        queue.read_into(&mut Vec::new(), Room::of_records(u64::MAX), &mut encoder);
        queue.note_counted(generation + 1);
    }
    if !before {
        encoder.series.as_mut().unwrap().commit();
    }
}

#[test]
fn a_leader_that_dies_before_or_after_it_counts_leaves_a_successor_that_counts_the_rest() {
    for before in [true, false] {
        let mut bench = Bench::new();
        let (first, second) = (bench.producer(), bench.producer());
        for producer in [&first, &second] {
            (0..3).for_each(|_| Request::ok("m").emit(producer));
        }
        die_at_commit(bench.path(), before);
        assert_eq!(total(bench.path()), if before { 0.0 } else { 6.0 });
        bench.next_leader();
        Request::ok("m").emit(&first);
        bench.drain();
        assert_eq!(total(bench.path()), 7.0, "died before the commit: {before}");
    }
}

#[test]
fn a_note_of_a_generation_that_never_came_does_not_become_true_later() {
    let mut bench = Bench::new();
    let (first, second) = (bench.producer(), bench.producer());
    for producer in [&first, &second] {
        (0..3).for_each(|_| Request::ok("m").emit(producer));
    }
    die_at_commit(bench.path(), true);
    // The next one sees both queues, counts one of them as that generation, and dies.
    let mut encoder = Encoder::counting(Some(Series::open(bench.path(), &[]).unwrap()));
    let mut queues: Vec<QueueReader> = bench.queue_files().iter().map(|path| attach(path)).collect();
    queues.iter_mut().for_each(|queue| queue.trust_counted(encoder.series.as_ref().unwrap().generation()));
    queues[0].read_into(&mut Vec::new(), Room::of_records(u64::MAX), &mut encoder);
    listen::attached::release_all(&mut queues[..1], &mut encoder);
    drop(queues);
    bench.next_leader();
    bench.drain();
    assert_eq!(total(bench.path()), 6.0);
}

#[test]
fn counts_survive_a_change_of_leader() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    for round in 1..=4 {
        ["m", "n"].iter().for_each(|model| Request::ok(model).emit(&producer));
        bench.drain();
        assert_eq!(total(bench.path()), f64::from(2 * round));
        bench.change_leader();
    }
    assert_eq!(snapshot(bench.path()).len(), 2);
}

#[test]
fn a_client_that_makes_up_a_model_for_each_request_neither_grows_anything_nor_pushes_out_a_real_one() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let file_bytes = || std::fs::metadata(bench.directory.path().join("metrics")).unwrap().len();
    let before = file_bytes();
    Request::ok("first").emit(&producer);
    for n in 0..2000 {
        Request::ok(&format!("made-up-{n}")).emit(&producer);
        if n >= 100 && n % 10 == 0 {
            ["first", "late"].iter().for_each(|model| Request::ok(model).emit(&producer));
        }
        if n % 50 == 0 {
            bench.sink.taken().bytes.clear();
            while bench.leader.round(bench.now, true) == listen::leader::Round::Wrote {}
        }
    }
    while bench.leader.round(bench.now, true) == listen::leader::Round::Wrote {}
    let all = snapshot(bench.directory.path());
    assert_eq!(all.len(), 1 + 15 + 1 + 1, "the first ones, the late one, and all others together");
    let of =
        |model: &str| all.iter().filter(|series| series.model == model).map(|series| count(series, 0)).sum::<f64>();
    assert_eq!(of("first"), 191.0);
    assert!((150.0..175.0).contains(&of("late")), "had to come back 16 times: {}", of("late"));
    assert_eq!(of("_OTHER") + of("late"), 2000.0 - 15.0 + 190.0);
    assert_eq!(file_bytes(), before);
}

#[test]
fn an_answer_that_names_its_model_or_succeeds_makes_it_known_and_the_one_that_answered_counts() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    Request { status: 404, outcome: "ok", response_model: "", ..Request::ok("made-up") }.emit(&producer);
    Request { response_model: "real", ..Request::ok("alias") }.emit(&producer);
    Request { status: 500, outcome: "error", response_model: "", ..Request::ok("real") }.emit(&producer);
    Request { outcome: "error", response_model: "broken", ..Request::ok("alias") }.emit(&producer);
    Request { status: 400, outcome: "ok", response_model: "echoed", ..Request::ok("echoed") }.emit(&producer);
    Request { outcome: "error", response_model: "", ..Request::ok("asked for") }.emit(&producer);
    Request { response_model: "", ..Request::ok("asked \\u00fcber") }.emit(&producer);
    Request { response_model: "", ..Request::ok(&"x".repeat(200)) }.emit(&producer);
    bench.drain();
    let mut labels: Vec<(String, String)> =
        snapshot(bench.path()).into_iter().map(|series| (series.model, series.error_type)).collect();
    labels.sort();
    let expected = [
        ("_OTHER", ""),
        ("_OTHER", "400"),
        ("_OTHER", "404"),
        ("_OTHER", "error"),
        ("asked über", ""),
        ("broken", "error"),
        ("real", ""),
        ("real", "500"),
    ];
    assert_eq!(labels, expected.map(|(model, error)| (model.to_owned(), error.to_owned())));
}

#[test]
fn failures_of_all_kinds_leave_room_for_successful_requests() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    for error in 0..200 {
        let error_type = format!("Error{error}");
        for operation in ["chat", "embeddings", "text_completion", "made_up"] {
            Request { outcome: "error", error_type: &error_type, operation, ..Request::ok("m") }.emit(&producer);
        }
        while bench.leader.round(bench.now, true) == listen::leader::Round::Wrote {}
    }
    Request::ok("m").emit(&producer);
    bench.drain();
    let all = snapshot(bench.path());
    assert!(all.len() <= 66, "{}", all.len());
    let successful: Vec<_> = all.iter().filter(|series| series.error_type.is_empty()).collect();
    assert_eq!((successful.len(), successful[0].model.as_str()), (1, "m"));
    assert_eq!(total(bench.path()), 801.0);
}

#[test]
fn a_directory_without_histograms_has_none_and_a_foreign_file_is_refused_by_readers_and_replaced_by_the_leader() {
    let directory = tempfile::tempdir().unwrap();
    assert!(snapshot(directory.path()).is_empty());
    // As its leader makes it: the file is there before it has its size, which may come step by step.
    for len in [0, 5, 64 << 10] {
        std::fs::write(directory.path().join("metrics"), vec![0; len]).unwrap();
        assert!(snapshot(directory.path()).is_empty());
    }
    std::fs::write(directory.path().join("metrics"), b"something else").unwrap();
    assert_eq!(series::read(directory.path()).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    drop(Series::open(directory.path(), &[]).unwrap());
    assert!(snapshot(directory.path()).is_empty());
    // The version before, in a file of the same size.
    let path = directory.path().join("metrics");
    let mut content = std::fs::read(&path).unwrap();
    assert_eq!(content[..12], *b"INFLOGM\0\x06\0\0\0");
    content[8] = 4;
    std::fs::write(&path, content).unwrap();
    let error = series::read(directory.path()).unwrap_err();
    assert!(error.to_string().contains("another version"), "{error}");
    drop(Series::open(directory.path(), &[]).unwrap());
    assert!(snapshot(directory.path()).is_empty());
}

#[test]
fn a_listener_that_cannot_have_the_file_writes_without_histograms() {
    let mut bench = Bench::new();
    std::fs::remove_file(bench.path().join("metrics")).unwrap();
    std::fs::create_dir(bench.path().join("metrics")).unwrap();
    bench.change_leader();
    let producer = bench.producer();
    Request::ok("m").emit(&producer);
    bench.drain();
    assert_eq!(bench.sink.events("request").len(), 1);
}
