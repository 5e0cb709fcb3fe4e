//! The last record about a process: when it is written, and its content.

use crate::support::{
    Bench, INFO, WARN, child, child_directory, die, emit, emit_each, open_producer, payload, register, registered,
};
use queue::layout::Reason;
use queue::producer::Producer;
use serde_json::{Value, json};

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
