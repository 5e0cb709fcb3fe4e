//! Requests in flight when their process ends (P5): each has exactly one terminal record, whichever process dies where.

use crate::support::{Bench, SLOTS, child, child_directory, die, queue_settings, wait_until};
use queue::control::Control;
use queue::event::REQUEST;
use queue::inspect;
use queue::layout::{SLOTS_OFFSET, data_offset};
use queue::memory::page_bytes;
use queue::producer::{Producer, QueueSettings};
use queue::queue_file::{self, QueueFile};
use queue::record::{Scratch, Trace};
use queue::system::now_monotonic_nano;
use request::fields::{self, HttpRecord};
use request::ids::RequestIds;
use request::in_flight::InFlight;
use request::in_flight::facts::{Answer, Begun, SlotFacts};
use request::in_flight::terminal;
use request::outcome::Outcome;
use ring::Refused;
use ring::slots::{self, Progress, Slot};
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::Ordering;

const STARTED: u64 = 5_000_000_000;
const STARTED_UNIX: u64 = 1_795_237_200_000_000_000;
const MS: u64 = 1_000_000;
const STEP: &str = "INFERENCE_LOGGING_TEST_STEP";

/// Ids of the request of this number.
fn ids(number: u8) -> RequestIds {
    let trace = Trace { trace_id: [number; 16], span_id: [number; 8], parent_span_id: [0xcc; 8], flags: 1 };
    RequestIds::new(trace, Some(b"client-id"), None)
}

fn begun(ids: &RequestIds) -> Begun<'_> {
    let (method, path) = (&b"POST"[..], &b"/v1/chat/completions"[..]);
    Begun { started: STARTED, started_unix_nano: STARTED_UNIX, ..crate::support::begun(ids, method, path) }
}

fn begin(producer: &Producer, number: u8) -> InFlight {
    InFlight::begin(producer, &begun(&ids(number))).unwrap()
}

/// A terminal record as the observer makes it: its request id is all that matters here.
fn payload(number: u8) -> Scratch {
    let mut scratch = Scratch::new();
    for field in HttpRecord::fields() {
        match field.name {
            "request_id" => ids(number).push_request_id(&mut scratch),
            "outcome" => scratch.push_str("ok"),
            _ => scratch.push_absent(),
        }
    }
    scratch
}

/// Runs the other half of a test to its death by SIGKILL.
fn kill(test: &str, bench: &Bench, step: usize) {
    let output =
        child(&format!("leader::in_flight::{test}"), bench.path()).env(STEP, step.to_string()).output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{}", String::from_utf8_lossy(&output.stderr));
}

fn step() -> usize {
    std::env::var(STEP).unwrap().parse().unwrap()
}

/// Request id and outcome of each terminal record, sorted.
fn outcomes(bench: &Bench) -> Vec<(String, String)> {
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    let mut found: Vec<_> =
        bench.sink.events("request").iter().map(|line| (text(line, "request_id"), text(line, "outcome"))).collect();
    found.sort();
    found
}

fn expected(pairs: &[(u8, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(number, outcome)| (format!("{number:02x}").repeat(8), (*outcome).to_owned())).collect()
}

fn deaths(bench: &Bench) -> u64 {
    let control = Control::open(bench.path()).unwrap();
    queue::published::totals::of_directory(&control.page().totals, bench.path()).producer_deaths
}

#[test]
fn a_killed_process_reports_what_each_of_its_requests_had_come_to() {
    if let Some(directory) = child_directory() {
        let producer = Producer::open(queue_settings(&directory)).unwrap();
        let stream = begin(&producer, 1);
        stream.bytes_in(30, br#"{"model":"m-7","stream":true}\n"#.strip_suffix(b"n").unwrap(), (464, 480));
        let answer = Answer { status: 200, ..Answer::default() };
        stream.answer(answer);
        stream.settle(&mut ids(1), "/v1", "/chat/{kind}");
        for chunks in 1..=3 {
            let progress = Progress { chunks, bytes: chunks * 11, last_chunk: STARTED + chunks * 20 * MS };
            stream.chunks(progress, STARTED + 20 * MS, Answer { streamed: true, ..answer });
        }
        let waiting = begin(&producer, 2);
        drop(begin(&producer, 3));
        let ended = begin(&producer, 4).end().unwrap();
        assert!(ended.record(&producer, now_monotonic_nano(), REQUEST, 9, payload(4).as_slice()));
        std::mem::forget((stream, waiting));
        die();
    }
    let mut bench = Bench::new();
    kill("a_killed_process_reports_what_each_of_its_requests_had_come_to", &bench, 0);
    bench.drain();
    assert_eq!(outcomes(&bench), expected(&[(1, "process_died"), (2, "process_died"), (4, "ok")]));
    let lines = bench.sink.events("request");
    let found = |number: u8| {
        let id = format!("{number:02x}").repeat(8);
        let mut line = lines.iter().find(|line| line["request_id"] == id).unwrap().clone();
        for key in ["boot_id", "pid", "seq", "event_name", "request_id", "trace_id", "span_id"] {
            assert!(line.as_object_mut().unwrap().shift_remove(key).is_some(), "{key}");
        }
        line
    };
    let common = json!({
        "timestamp": "2026-11-21T05:00:00.060000000Z", "severity_text": "ERROR", "parent_span_id": "cccccccccccccccc",
        "trace_flags": "01", "client_request_id": "client-id", "outcome": "process_died", "error.type": "process_died",
        "http.request.method": "POST", "url.path": "/v1/chat/completions",
    });
    let own = json!({
        "http.route": "/v1/chat/{kind}", "http.response.status_code": 200, "http.request.body.size": 30,
        "http.response.body.size": 33, "duration_s": 0.06, "chunks": 3, "gen_ai.response.time_to_first_chunk": 0.02,
        "chunk_gap_mean_us": 20000, "gen_ai.operation.name": "chat", "gen_ai.request.model": "m-7",
        "gen_ai.request.stream": true, "sampled_by": "error", "adjusted_count": 1.0,
    });
    assert_eq!(found(1), joined(&common, &own));
    // It was alive at the last chunk of the other one: at least so long it had waited.
    let own = json!({
        "http.request.body.size": 0, "http.response.body.size": 0, "duration_s": 0.06, "sampled_by": "error",
        "adjusted_count": 1.0,
    });
    assert_eq!(found(2), joined(&common, &own));
    assert!(bench.queue_files().is_empty());
    assert_eq!(deaths(&bench), 1);
}

fn joined(one: &Value, other: &Value) -> Value {
    let members = [one, other].map(|value| value.as_object().unwrap().clone());
    Value::Object(members.into_iter().flatten().collect())
}

#[test]
fn a_request_of_a_killed_process_lasted_until_the_process_was_last_seen_alive() {
    const TEST: &str = "a_request_of_a_killed_process_lasted_until_the_process_was_last_seen_alive";
    if let Some(directory) = child_directory() {
        let producer = Producer::open(queue_settings(&directory)).unwrap();
        let _busy = begin(&producer, 1);
        loop {
            std::thread::park();
        }
    }
    let mut bench = Bench::new();
    let mut busy = child(&format!("leader::in_flight::{TEST}"), bench.path()).spawn().unwrap();
    wait_until("the request to begin", || inspect::queues(bench.path()).iter().any(|queue| queue.in_flight == 1));
    let alive = now_monotonic_nano();
    bench.drain();
    busy.kill().unwrap();
    busy.wait().unwrap();
    let dead = now_monotonic_nano();
    bench.drain();
    let lines = bench.sink.events("request");
    let duration_s = lines[0]["duration_s"].as_f64().unwrap();
    assert!(terminal::seconds(alive - STARTED) <= duration_s && duration_s <= terminal::seconds(dead - STARTED));
}

#[test]
fn an_owner_killed_at_any_step_of_a_request_leaves_one_record() {
    const TEST: &str = "an_owner_killed_at_any_step_of_a_request_leaves_one_record";
    if let Some(directory) = child_directory() {
        let producer = Producer::open(queue_settings(&directory)).unwrap();
        let file = &producer.queue().unwrap().file;
        let slot = file.slots().get(0).unwrap();
        let (bytes, step) = (payload(7), step());
        let at = |reached| {
            if reached == step {
                die()
            }
        };
        slot.write_facts(&begun(&ids(7)));
        at(0);
        slot.open();
        at(1);
        assert!(slot.claim());
        at(2);
        let reservation = file.ring().reserve(bytes.as_slice().len() as u32, u32::MAX).unwrap();
        at(3);
        slot.end_with(reservation.sequence);
        at(4);
        reservation.fill(1, bytes.as_slice());
        at(5);
        reservation.commit(REQUEST, 9, 1, bytes.as_slice());
        at(6);
        slot.free();
        at(7);
    }
    for step in 0..8 {
        let mut bench = Bench::new();
        kill(TEST, &bench, step);
        bench.drain();
        let reported = match step {
            0 => vec![],
            1..6 => expected(&[(7, "process_died")]),
            _ => expected(&[(7, "ok")]),
        };
        assert_eq!(outcomes(&bench), reported, "step {step}");
        assert!(bench.queue_files().is_empty());
    }
}

#[test]
fn a_record_that_was_written_before_its_slot_was_free_is_not_written_again() {
    if let Some(directory) = child_directory() {
        let producer = Producer::open(queue_settings(&directory)).unwrap();
        let file = &producer.queue().unwrap().file;
        let slot = file.slots().get(0).unwrap();
        slot.write_facts(&begun(&ids(7)));
        slot.open();
        let bytes = payload(7);
        let reservation = file.ring().reserve(bytes.as_slice().len() as u32, u32::MAX).unwrap();
        slot.end_with(reservation.sequence);
        reservation.commit(REQUEST, 9, 1, bytes.as_slice());
        // The listener takes the record, and only then the process dies.
        wait_until("the record to be taken", || file.ring().is_drained());
        die();
    }
    let mut bench = Bench::new();
    let test = "leader::in_flight::a_record_that_was_written_before_its_slot_was_free_is_not_written_again";
    let mut dying = child(test, bench.path()).spawn().unwrap();
    wait_until("the child to be dead", || {
        bench.drain();
        dying.try_wait().unwrap().is_some()
    });
    bench.drain();
    assert_eq!(outcomes(&bench), expected(&[(7, "ok")]));
    assert!(bench.queue_files().is_empty());
}

/// A producer with three requests in flight.
fn three_in_flight(directory: &Path) -> Producer {
    let producer = Producer::open(queue_settings(directory)).unwrap();
    (1..=3).for_each(|number| std::mem::forget(begin(&producer, number)));
    producer
}

#[test]
fn a_listener_killed_at_any_step_of_the_recovery_leaves_the_rest_to_the_next_one() {
    const TEST: &str = "a_listener_killed_at_any_step_of_the_recovery_leaves_the_rest_to_the_next_one";
    if let Some(directory) = child_directory() {
        let step = step();
        if step == 0 {
            let _producer = three_in_flight(&directory);
            die();
        }
        // The steps of `QueueReader` for a dead process's queue.
        let file = QueueFile::open(&queue_file::list(&directory).unwrap()[0]).unwrap();
        let mut done = 0;
        let mut at = || {
            done += 1;
            if done == step {
                die();
            }
        };
        for slot in file.slots().iter() {
            slot.settle_end(|sequence| slots::is_committed(&file.ring(), sequence));
            at();
        }
        for slot in file.slots().iter().filter(Slot::is_open) {
            let record = terminal::record(slot, Outcome::ProcessDied, STARTED, &fields::schemas());
            at();
            assert!(slots::end_request(slot, file.ring(), &record, |_| at()));
        }
    }
    let settled = SLOTS as usize;
    for step in 1..=settled + 3 * 5 {
        let mut bench = Bench::new();
        kill(TEST, &bench, 0);
        kill(TEST, &bench, step);
        bench.drain();
        let reported = [1, 2, 3].map(|number| (number, "process_died"));
        assert_eq!(outcomes(&bench), expected(&reported), "step {step}");
        assert!(bench.queue_files().is_empty());
        assert_eq!(deaths(&bench), 1);
    }
}

#[test]
fn a_process_that_closed_its_queue_in_order_has_ended_its_requests_itself() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let in_flight: Vec<InFlight> = (1..=3).map(|number| begin(&producer, number)).collect();
    producer.close();
    assert!(InFlight::begin(&producer, &begun(&ids(9))).is_none(), "nothing begins after the end");
    bench.drain();
    assert_eq!(outcomes(&bench), expected(&[1, 2, 3].map(|number| (number, "server_shutdown"))));
    for request in in_flight {
        request.chunks(Progress { chunks: 1, bytes: 1, last_chunk: 1 }, 1, Answer::default());
        assert!(request.end().is_none(), "its record is there");
    }
    let line = &bench.sink.events("request")[0];
    assert_eq!((&line["severity_text"], &line["sampled_by"]), (&json!("WARN"), &json!("abort")));
    assert_eq!(line.get("error.type"), None);
    assert!(bench.queue_files().is_empty());
    assert_eq!(deaths(&bench), 0);
}

#[test]
fn a_request_that_found_no_room_at_the_close_gets_its_record_after_the_process() {
    const TEST: &str = "a_request_that_found_no_room_at_the_close_gets_its_record_after_the_process";
    if let Some(directory) = child_directory() {
        let producer = three_in_flight(&directory);
        let ring = producer.queue().unwrap().file.ring();
        while ring.reserve(0, u32::MAX).map(|reservation| reservation.commit(999, 9, 1, b"")) != Err(Refused::Full) {}
        producer.close();
        assert_eq!(producer.queue().unwrap().file.slots().taken(), 3);
        die();
    }
    let mut bench = Bench::new();
    kill(TEST, &bench, 0);
    bench.drain();
    assert_eq!(outcomes(&bench), expected(&[1, 2, 3].map(|number| (number, "server_shutdown"))));
    assert!(bench.queue_files().is_empty());
    assert_eq!(deaths(&bench), 0, "it had closed its queue");
}

#[test]
fn a_closed_queue_with_a_request_that_has_no_record_yet_stays_while_its_owner_lives() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    let request = begin(&producer, 1);
    // As a request that begins while the queue is being closed.
    producer.queue().unwrap().file.ring().close();
    bench.drain();
    assert!(!bench.leader.has_work(), "nothing can be done for it now");
    assert_eq!((bench.queue_files().len(), outcomes(&bench).len()), (1, 0));
    drop(request);
    bench.drain();
    assert!(bench.queue_files().is_empty());
}

/// However a request leaves its slot, none of its texts stays in shared memory, and the header counts it no more.
#[test]
fn a_slot_that_is_given_back_holds_nothing_of_its_request() {
    let bench = Bench::new();
    let producer = bench.producer();
    let file = producer.queue().unwrap().file.clone();
    let count = || file.header().in_flight.load(Ordering::Relaxed);
    let is_in_file = |text: &[u8]| {
        let slots =
            std::fs::read(&file.path).unwrap()[SLOTS_OFFSET..data_offset(SLOTS, page_bytes().unwrap())].to_vec();
        slots.windows(text.len()).any(|bytes| bytes == text)
    };
    let texts = [&b"secret-head"[..], b"secret-tail", b"completions", b"/route", b"client-id"];
    let begin_with_body = |number| {
        let request = begin(&producer, number);
        request.bytes_in(1000, &[&b"secret-head"[..], &[b'.'; 600], b"secret-tail"].concat(), (464, 480));
        request.bytes_in(1001, b"x", (464, 480));
        request.settle(&mut ids(number), "", "/route");
        request
    };
    let (ended, dropped, _left) = (begin_with_body(1), begin_with_body(2), begin_with_body(3));
    assert!(texts.iter().all(|text| is_in_file(text)));
    assert_eq!(count(), 3);
    assert!(ended.end().unwrap().record(&producer, now_monotonic_nano(), REQUEST, 9, payload(1).as_slice()));
    drop(dropped);
    assert_eq!(count(), 1);
    producer.close();
    assert_eq!(count(), 0);
    assert!(!texts.iter().any(|text| is_in_file(text)));
}

#[test]
fn more_requests_than_the_queue_has_room_for_are_all_reported() {
    const TEST: &str = "more_requests_than_the_queue_has_room_for_are_all_reported";
    const MANY: u32 = 700;
    if let Some(directory) = child_directory() {
        let settings = QueueSettings { in_flight_slots: MANY, ..queue_settings(&directory) };
        let producer = Producer::open(settings).unwrap();
        let path = [b'x'; 600];
        for number in 0..MANY {
            let ids =
                RequestIds::new(Trace { span_id: u64::from(number + 1).to_be_bytes(), ..Trace::default() }, None, None);
            std::mem::forget(InFlight::begin(&producer, &Begun { path: &path, ..begun(&ids) }).unwrap());
        }
        assert!(InFlight::begin(&producer, &begun(&ids(1))).is_none(), "all slots are taken");
        assert_eq!(producer.queue().unwrap().file.header().in_flight_missed.load(Ordering::Relaxed), 1);
        assert_eq!(inspect::queues(&directory)[0].in_flight, u64::from(MANY));
        die();
    }
    let mut bench = Bench::new();
    kill(TEST, &bench, 0);
    bench.drain();
    let mut reported: Vec<String> = outcomes(&bench).into_iter().map(|(id, _)| id).collect();
    reported.dedup();
    assert_eq!(reported, (1..=MANY).map(|number| format!("{number:016x}")).collect::<Vec<_>>());
    let path = bench.sink.events("request")[0]["url.path"].as_str().unwrap().to_owned();
    assert_eq!(path, format!("{}…", "x".repeat(509)), "cut, and it says so");
    assert!(bench.queue_files().is_empty());
}

#[test]
fn a_slot_is_free_again_after_its_request() {
    let mut bench = Bench::new();
    let producer = bench.producer();
    for round in 0..3 * SLOTS as u8 {
        let ending = begin(&producer, round).end().unwrap();
        assert!(ending.record(&producer, now_monotonic_nano(), REQUEST, 9, payload(round).as_slice()));
    }
    let held: Vec<InFlight> = (0..SLOTS as u8).map(|number| begin(&producer, number)).collect();
    assert!(InFlight::begin(&producer, &begun(&ids(1))).is_none());
    drop(held);
    assert!(InFlight::begin(&producer, &begun(&ids(1))).is_some());
    bench.drain();
    assert_eq!(outcomes(&bench).len(), 3 * SLOTS as usize, "what is dropped without an end leaves no record");
}

#[test]
fn a_forked_childs_copy_of_a_request_is_dead() {
    let bench = Bench::new();
    let producer = bench.producer();
    let (request, other) = (begin(&producer, 1), begin(&producer, 2));
    let file = std::sync::Arc::clone(&producer.queue().unwrap().file);
    let words = || std::fs::read(&file.path).unwrap()[65_536..65_536 + SLOTS as usize * 2048].to_vec();
    let before = words();
    // The work of the fork hook in the child.
    producer.after_fork_in_child();
    request.chunks(Progress { chunks: 1, bytes: 1, last_chunk: 1 }, 1, Answer::default());
    request.bytes_in(7, b"1234567", (464, 480));
    request.settle(&mut ids(9), "", "/route");
    assert!(request.end().is_none());
    drop(other);
    assert!(words() == before, "the parent's slots are not touched");
    assert!(InFlight::begin(&producer, &begun(&ids(3))).is_some(), "the child has slots of its own");
    assert!(words() == before);
    assert_eq!(bench.queue_files().len(), 2);
}
