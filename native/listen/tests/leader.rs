//! The leading listener: when it writes, its reaction to a failing sink, the records of dead processes, and that there
//! is only one leader.

mod death;
mod in_flight;
mod lock;

use crate::support::{
    Bench, INFO, WARN, child, child_directory, dense, die, emit, emit_each, numbers, open_producer, payload, register,
    registered, sequences,
};
use listen::leader::Round;
use proptest::prelude::*;
use queue::layout::Reason;
use queue::producer::Producer;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(1);

fn is_idle(round: Round) -> bool {
    matches!(round, Round::Idle(_))
}

#[test]
fn a_batch_is_written_when_the_records_are_enough() {
    let mut bench = Bench::with(|settings| settings.flush_records = 10);
    let (producer, event) = registered(bench.producer());
    assert!(is_idle(bench.round(TICK, true)));
    for n in 0..9 {
        emit(&producer, event, INFO, 0, n);
    }
    assert!(is_idle(bench.round(TICK, false)));
    assert!(bench.sink.taken().writes.is_empty());
    emit(&producer, event, INFO, 0, 9);
    assert_eq!(bench.round(TICK, false), Round::Wrote);
    assert_eq!(bench.sink.taken().writes, [10]);
}

#[test]
fn a_batch_is_written_when_the_bytes_are_enough() {
    let mut bench = Bench::with(|settings| settings.flush_bytes = 4096);
    let (producer, event) = registered(bench.producer());
    assert!(is_idle(bench.round(TICK, true)));
    producer.emit(event, INFO, &[0; 2048]);
    assert!(is_idle(bench.round(TICK, false)));
    producer.emit(event, INFO, &[0; 2048]);
    assert_eq!(bench.round(TICK, false), Round::Wrote);
    assert_eq!(bench.sink.taken().writes, [2]);
}

#[test]
fn a_batch_is_written_when_the_interval_has_passed() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    assert!(is_idle(bench.round(TICK, true)));
    emit(&producer, event, INFO, 0, 0);
    let Round::Idle(pause) = bench.round(Duration::from_millis(499), false) else { panic!("too early") };
    assert_eq!(pause, TICK, "as long as until the interval's end");
    assert_eq!(bench.round(TICK, false), Round::Wrote);
    assert_eq!(bench.sink.taken().writes, [1]);
}

#[test]
fn a_batch_is_written_when_someone_asks() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    assert!(is_idle(bench.round(TICK, true)));
    emit(&producer, event, INFO, 0, 0);
    assert!(is_idle(bench.round(TICK, false)));
    producer.queue().unwrap().control.request_flush();
    assert_eq!(bench.round(TICK, false), Round::Wrote);
    assert!(is_idle(bench.round(TICK, false)), "the request is done");
    emit(&producer, event, INFO, 0, 1);
    assert!(is_idle(bench.round(TICK, false)));
    assert_eq!(bench.round(TICK, true), Round::Wrote, "forced");
    assert_eq!(bench.sink.taken().writes, [1, 1]);
}

#[test]
fn a_request_that_came_before_anybody_led_is_met_by_the_first_who_does() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    emit(&producer, event, INFO, 0, 0);
    producer.queue().unwrap().control.request_flush();
    drop(bench.next_leader());
    assert_eq!(bench.round(TICK, false), Round::Wrote);
    assert!(is_idle(bench.round(TICK, false)));
    emit(&producer, event, INFO, 0, 1);
    assert!(is_idle(bench.round(TICK, false)), "the next one waits as ever");
}

#[test]
fn a_batch_ends_at_flush_bytes_and_every_queue_has_its_turn() {
    let mut bench = Bench::with(|settings| settings.flush_bytes = 2000);
    let producers = [bench.producer(), bench.producer()];
    for (thread, producer) in (0..).zip(&producers) {
        let event = register(producer);
        (0..200).for_each(|n| assert!(emit(producer, event, INFO, thread, n)));
    }
    assert_eq!(bench.round(TICK, true), Round::Wrote);
    assert_eq!(bench.round(TICK, true), Round::Wrote);
    let lines = bench.sink.lines();
    assert!(!numbers(&lines, 0).is_empty() && !numbers(&lines, 1).is_empty(), "the first does not starve the second");
    assert!(bench.sink.taken().writes.iter().all(|records| *records < 20));
    bench.drain();
    let lines = bench.sink.lines();
    assert_eq!((numbers(&lines, 0), numbers(&lines, 1)), (dense(200), dense(200)));
}

#[test]
fn the_read_cursor_moves_only_after_the_write() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    let file = Arc::clone(&producer.queue().unwrap().file);
    let seen = Arc::new(AtomicU64::new(0));
    let note = Arc::clone(&seen);
    bench.sink.taken().before_write = Some(Box::new(move |_| {
        let tail = u64::from(file.ring().tail().sequence);
        note.store((tail << 32) | file.counts().in_queue, Ordering::Relaxed);
    }));
    for round in 0..3 {
        emit(&producer, event, INFO, 0, 2 * round);
        emit(&producer, event, INFO, 0, 2 * round + 1);
        assert_eq!(bench.round(TICK, true), Round::Wrote);
        assert_eq!(
            seen.load(Ordering::Relaxed),
            ((2 * round) << 32) | 2,
            "while the sink writes, both are in the queue"
        );
        assert_eq!(producer.queue().unwrap().file.counts().in_queue, 0);
    }
}

#[test]
fn a_failing_sink_is_tried_again_after_growing_pauses() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    emit(&producer, event, INFO, 0, 0);
    bench.sink.taken().faults.extend([0; 9]);
    let mut pause = Duration::ZERO;
    for expected in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
        assert_eq!(bench.round(pause, true), Round::Idle(Duration::from_millis(expected)));
        assert_eq!(bench.round(TICK, true), Round::Idle(Duration::from_millis(expected - 1)), "not earlier");
        pause = Duration::from_millis(expected - 1);
    }
    assert_eq!(producer.queue().unwrap().file.counts().in_queue, 1);
    assert_eq!(bench.round(pause, true), Round::Wrote);
    bench.sink.taken().faults.push_back(0);
    emit(&producer, event, INFO, 0, 1);
    assert_eq!(bench.round(TICK, true), Round::Idle(Duration::from_millis(50)), "a success begins anew");
    bench.drain();
    assert_eq!(numbers(&bench.sink.lines(), 0), [0, 1]);
    let page = producer.queue().unwrap().control.page();
    assert_eq!(page.sink_errors.load(Ordering::Relaxed), 10);
    let names: Vec<Value> = bench.sink.lines().iter().map(|line| line["event_name"].clone()).collect();
    let reported = ["test", "sink.failed", "sink.recovered", "test", "sink.failed", "sink.recovered"];
    assert_eq!(names, reported, "the log itself says what happened");
    assert_eq!(page.records_written.load(Ordering::Relaxed), 6);
    assert_eq!(page.bytes_written.load(Ordering::Relaxed), bench.sink.taken().bytes.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Two queues with gaps of their own, a sink that stops after any number of lines, and a leader that gives up in
    /// the middle: the next one continues exactly there.
    #[test]
    fn a_failing_sink_and_a_change_of_leaders_lose_and_double_nothing(
        faults in prop::collection::vec(0..12usize, 0..12),
        rounds in prop::collection::vec((0..8u64, 0..8u64, any::<bool>(), any::<bool>()), 1..12),
    ) {
        let mut bench = Bench::new();
        let producers = [bench.producer(), bench.producer()];
        let events = [register(&producers[0]), register(&producers[1])];
        bench.sink.taken().faults.extend(faults);
        let (mut emitted, mut refused) = ([0; 2], 0);
        for (first, second, gap, change) in rounds {
            for (at, count) in [(0, first), (1, second)] {
                for _ in 0..count {
                    prop_assert!(emit(&producers[at], events[at], INFO, at as u64, emitted[at]));
                    emitted[at] += 1;
                }
            }
            if gap {
                producers[1].refuse(Reason::SerializeError, WARN);
                refused += 1;
            }
            bench.round(Duration::from_secs(5), true);
            if change {
                bench.change_leader();
            }
        }
        bench.drain();
        let lines = bench.sink.events("test");
        for (at, emitted) in [(0, emitted[0]), (1, emitted[1])] {
            prop_assert_eq!(numbers(&lines, at), dense(emitted));
            let own: Vec<_> = lines.iter().filter(|line| line["thread"] == at).cloned().collect();
            prop_assert_eq!(sequences(&own), dense(emitted));
        }
        let reported = bench.sink.events("log.dropped");
        prop_assert_eq!(reported.iter().map(|line| line["dropped"].as_u64().unwrap()).sum::<u64>(), refused);
        for producer in &producers {
            prop_assert_eq!(producer.queue().unwrap().file.counts().in_queue, 0);
        }
    }
}

#[test]
fn the_footer_has_the_counts_of_every_process_and_of_those_that_ended() {
    let mut bench = Bench::new();
    let (ended, alive) = (bench.producer(), bench.producer());
    let event = register(&ended);
    emit(&ended, event, INFO, 0, 0);
    ended.refuse(Reason::SerializeError, WARN);
    ended.close();
    bench.drain();
    emit(&alive, register(&alive), INFO, 1, 0);
    let now = bench.now;
    let boot_ids = [&ended, &alive].map(|producer| format!("{:016x}", producer.queue().unwrap().file.header().boot_id));
    bench.leader.close(now);
    let footer = bench.sink.taken().footer.take().unwrap();
    let footer: serde_json::Value = serde_json::from_str(&format!("{{\"a\":0{footer}}}")).unwrap();
    let expected = serde_json::json!([
        {"boot_id": boot_ids[0], "pid": std::process::id(), "accepted": 1, "written": 1, "in_queue": 0,
         "dropped": {"serialize_error": {"WARN": 1}}},
        {"boot_id": boot_ids[1], "pid": std::process::id(), "accepted": 1, "written": 0, "in_queue": 1, "dropped": {}},
    ]);
    assert_eq!(footer["processes"], expected);
}

// Producers that live although their lock is gone, or their own process opened their queue file: nothing is lost.

#[test]
fn a_process_that_opens_and_closes_its_own_queue_file_is_not_taken_for_dead() {
    if let Some(directory) = child_directory() {
        let (producer, event) = open_producer(&directory);
        emit_each(&producer, event, 0, 0..10);
        assert!(!fs::read(&producer.queue().unwrap().file.path).unwrap().is_empty());
        let mut stdout = std::io::stdout();
        stdout.write_all(b"\nready\n").and_then(|()| stdout.flush()).unwrap();
        assert_eq!(std::io::stdin().read(&mut [0]).unwrap(), 0);
        emit_each(&producer, event, 0, 10..20);
        return;
    }
    let mut bench = Bench::new();
    let test = "leader::alive::a_process_that_opens_and_closes_its_own_queue_file_is_not_taken_for_dead";
    let mut process = child(test, bench.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    bench.drain();
    assert_eq!((bench.queue_files().len(), bench.sink.events("process.ended").len()), (1, 0), "it lives");
    drop(process.stdin.take());
    assert!(lines.all(|line| line.is_ok()));
    assert!(process.wait().unwrap().success());
    bench.drain();
    assert_eq!(numbers(&bench.sink.events("test"), 0), dense(20));
}

#[test]
fn a_queue_whose_lock_is_lost_is_closed_before_its_file_goes_so_that_the_next_record_has_another() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    emit_each(&producer, event, 0, 0..10);
    producer.queue().unwrap().unlock();
    bench.drain();
    assert!(bench.queue_files().is_empty(), "taken for dead");
    emit_each(&producer, event, 0, 10..20);
    assert_eq!(bench.queue_files().len(), 1);
    bench.drain();
    assert_eq!(numbers(&bench.sink.events("test"), 0), dense(20));
    let ended = bench.sink.events("process.ended");
    assert_eq!((ended.len(), &ended[0]["how"], &ended[0]["accepted"]), (1, &json!("died"), &json!(10)));
}

#[test]
fn a_process_that_emits_while_its_end_is_found_is_alive_and_its_end_comes_later() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    emit_each(&producer, event, 0, 0..10);
    bench.drain();
    let file = std::sync::Arc::clone(&producer.queue().unwrap().file);
    assert!(emit(&producer, event, INFO, 0, 10));
    assert!(!file.close_for_dead(), "it has emitted");
    assert!(!file.has_died() && !file.is_end_reported());
    assert!(emit(&producer, event, INFO, 0, 11), "into another queue");
    bench.drain();
    let mut written = numbers(&bench.sink.events("test"), 0);
    written.sort_unstable();
    assert_eq!(written, dense(12));
    let ended = bench.sink.events("process.ended");
    assert_eq!((ended.len(), &ended[0]["how"], &ended[0]["accepted"]), (1, &json!("closed"), &json!(11)));
}

// The last record about a process: when it is written, and its content.

fn ended(bench: &Bench) -> Vec<Value> {
    bench.sink.events("process.ended")
}

#[test]
fn a_process_that_closes_is_ended_by_one_record_with_its_counts() {
    let mut bench = Bench::new();
    let (producer, event) = registered(bench.producer());
    emit_each(&producer, event, 0, 0..3);
    producer.refuse(Reason::Oversize, WARN);
    bench.drain();
    assert_eq!(ended(&bench).len(), 0, "it lives");
    producer.close();
    bench.drain();
    bench.drain();
    let reported = ended(&bench);
    let boot_id = format!("{:016x}", producer.queue().unwrap().file.header().boot_id);
    let expected = json!({"severity_text": "ERROR", "event_name": "process.ended", "boot_id": boot_id,
        "pid": std::process::id(), "how": "closed", "accepted": 3, "written": 3,
        "reasons": {"oversize": {"WARN": 1}}, "sampled_out": {}});
    assert_eq!(reported.len(), 1);
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(reported[0][key], *value, "{key}");
    }
    assert_eq!(reported[0].get("seq"), None, "it is the listener's record, not the process's");
    assert_eq!(reported[0]["started"].as_str().unwrap().len(), reported[0]["timestamp"].as_str().unwrap().len());
    assert_eq!(bench.sink.lines().last().unwrap(), &reported[0], "and the last one");
}

#[test]
fn a_process_that_never_had_anything_to_say_ends_without_a_record() {
    let mut bench = Bench::new();
    bench.producer().close();
    bench.drain();
    assert_eq!((bench.sink.lines().len(), bench.queue_files().len()), (0, 0));
}

#[test]
fn the_end_of_a_process_is_reported_once_though_the_sink_fails_before_or_behind_it() {
    for whole_lines in 0..3 {
        let mut bench = Bench::new();
        let producers = [bench.producer(), bench.producer()];
        for producer in &producers {
            emit(producer, register(producer), INFO, 0, 0);
        }
        bench.drain();
        producers.iter().for_each(Producer::close);
        bench.sink.taken().faults.push_back(whole_lines);
        bench.drain();
        assert_eq!(ended(&bench).len(), 2, "failed behind {whole_lines} lines");
    }
}

#[test]
fn a_leader_that_ends_while_the_sink_fails_reports_no_end_a_second_time() {
    let mut bench = Bench::new();
    let producers = [bench.producer(), bench.producer()];
    for producer in &producers {
        emit(producer, register(producer), INFO, 0, 0);
    }
    bench.drain();
    producers.iter().for_each(Producer::close);
    bench.sink.taken().faults.extend([1, 0, 0]);
    let _ = bench.round(std::time::Duration::from_secs(1), true);
    bench.change_leader();
    bench.sink.taken().faults.clear();
    bench.drain();
    assert_eq!(ended(&bench).len(), 2);
    assert!(bench.queue_files().is_empty());
}

#[test]
fn a_process_that_was_killed_ends_as_died_and_its_torn_records_are_named() {
    if let Some(directory) = child_directory() {
        let (producer, event) = open_producer(&directory);
        let torn = |producer: &Producer| {
            let bytes = payload(0, 99);
            let ring = producer.queue().unwrap().file.ring();
            ring.reserve(bytes.as_slice().len() as u32, u32::MAX).unwrap().fill(1, bytes.as_slice());
        };
        assert!(emit(&producer, event, INFO, 0, 0));
        torn(&producer);
        torn(&producer);
        assert!(emit(&producer, event, INFO, 0, 1));
        torn(&producer);
        die();
    }
    let mut bench = Bench::new();
    let test = "leader::ended::a_process_that_was_killed_ends_as_died_and_its_torn_records_are_named";
    assert!(!child(test, bench.path()).status().unwrap().success());
    bench.drain();
    let (dropped, ended) = (bench.sink.events("log.dropped"), ended(&bench));
    let lost = json!([{"first": 1, "last": 2, "reason": "torn"}, {"first": 4, "last": 4, "reason": "torn"}]);
    assert_eq!((dropped.len(), &dropped[0]["lost"]), (1, &lost));
    assert_eq!((&ended[0]["how"], &ended[0]["accepted"], &ended[0]["written"]), (&json!("died"), &json!(5), &json!(2)));
    assert_eq!(ended[0]["reasons"], json!({"torn": {"INFO": 3}}));
}
