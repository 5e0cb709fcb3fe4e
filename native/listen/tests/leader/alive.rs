//! Producers that live although their lock is gone, or their own process opened their queue file: nothing is lost.

use crate::support::{Bench, INFO, child, child_directory, dense, emit, emit_each, numbers, open_producer, registered};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

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
