//! Records of a program without a server.

#[allow(dead_code, reason = "its main opens a log from the environment")]
#[path = "../../../examples/rust_producer/src/main.rs"]
mod producer;

use super::server::{DEADLINE, Recorded};
use inferlog::{Ending, Event, Model, RequestStart, Tensor, Value, severity};
use serde_json::json;

#[test]
fn an_event_has_typed_values() {
    let recorded = Recorded::new();
    let event =
        recorded.log.register("sensor", &["place", "celsius", "count", "raw", "none"], false).expect("an event");
    let values = ["roof".into(), 21.5.into(), 3_u64.into(), Value::Json(r#"{"a":[1]}"#), Value::Absent];
    assert!(recorded.log.emit(event, severity::INFO, &values));
    assert!(!recorded.log.emit(event, severity::INFO, &values[1..]), "too few values");
    let line = recorded.of("sensor").remove(0);
    assert_eq!((&line["place"], &line["celsius"], &line["count"]), (&json!("roof"), &json!(21.5), &json!(3)));
    assert_eq!(line["raw"], json!({"a": [1]}));
    assert!(line.get("none").is_none());
    let stats = recorded.log.stats().expect("counts");
    assert_eq!((stats.accepted, stats.written, stats.in_queue, stats.dropped), (1, 1, 0, 1));
}

#[test]
fn a_handle_that_was_written_over_emits_nothing() {
    let recorded = Recorded::new();
    let event = recorded.log.register("sensor", &["place"], false).expect("an event");
    let values = [Value::Text("closed"); 7];
    let forged = [
        Event { id: queue::event::PROCESS_ENDED, fields: 7, in_request: false },
        Event { id: queue::event::LOG_DROPPED, fields: 3, in_request: false },
        Event { id: event.id + 1, ..event },
        Event { id: event.id ^ 0x100, ..event },
        Event { fields: 2, ..event },
        Event { in_request: true, ..event },
    ];
    for event in forged {
        assert!(!recorded.log.emit(event, severity::INFO, &values[..usize::from(event.fields)]), "{event:?}");
    }
    assert!(recorded.log.emit(event, severity::INFO, &values[..1]));
    let stats = recorded.log.stats().expect("counts");
    assert_eq!((stats.accepted, stats.dropped), (1, forged.len() as u64));
}

#[test]
fn messages_below_the_level_are_left_out() {
    let recorded = Recorded::with(json!({"level": "WARN"}));
    assert!(!recorded.log.message(None, severity::INFO, "app", "quiet", &[]));
    assert!(recorded.log.message(None, severity::WARN, "app", "loud", &[("why", "heat".into())]));
    let line = recorded.of("log").remove(0);
    assert_eq!(
        (&line["message"], &line["logger"], &line["attributes"]),
        (&json!("loud"), &json!("app"), &json!({"why": "heat"}))
    );
}

#[test]
fn a_request_that_is_dropped_was_given_up() {
    let recorded = Recorded::new();
    let begin = |path| recorded.log.begin(&RequestStart { method: "GET", path, ..RequestStart::default() });
    drop(begin(b"/dropped").expect("a request"));
    let mut answered = begin(b"/answered").expect("a request");
    answered.answer(200, || None);
    answered.chunk(b"", false);
    answered.end(Ending::Returned);
    let outcomes: Vec<_> = recorded.of("request").iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, [json!("server_shutdown"), json!("ok")]);
}

#[test]
fn a_request_that_a_model_serves_has_its_tensors() {
    let recorded = Recorded::new();
    let model = Model { name: "digits", version: "3", ..Model::default() };
    let begin = || recorded.log.begin(&RequestStart { model: Some(&model), ..RequestStart::default() });
    let mut answered = begin().expect("a request");
    answered.inputs([Tensor { name: "image", datatype: "FP32", shape: &[1, 64], bytes: 256 }]);
    answered.outputs([]);
    answered.end(Ending::Returned);
    let mut stream = begin().expect("a request");
    stream.chunk(b"", true);
    stream.end(Ending::Returned);
    let lines = recorded.of("request");
    assert_eq!((&lines[0]["triton.model_name"], &lines[0]["outcome"]), (&json!("digits"), &json!("ok")));
    let image = json!([{"name": "image", "datatype": "FP32", "shape": [1, 64], "bytes": 256}]);
    assert_eq!((&lines[0]["triton.inputs"], &lines[0]["triton.outputs"]), (&image, &json!([])));
    assert_eq!((&lines[0]["triton.batch_size"], lines[0].get("url.path")), (&json!(1), None));
    assert_eq!(lines[1]["error.type"], json!("response_incomplete"), "a part of the stream is missing");
    assert!(lines[1].get("triton.inputs").is_none());
}

#[test]
fn a_closed_log_refuses_records_and_counts_them() {
    let recorded = Recorded::new();
    let event = recorded.log.register("late", &["n"], false).expect("an event");
    assert!(recorded.log.close(DEADLINE));
    assert!(!recorded.log.emit(event, severity::INFO, &[1_u64.into()]));
    assert_eq!(recorded.log.stats().map(|stats| stats.dropped), Some(1));
}

#[test]
fn a_wrong_parameter_is_named_with_its_value() {
    let error = inferlog::Log::open(r#"{"version": 1, "queue_bytes": 5}"#).err().expect("an error");
    assert!(error.to_string().contains("queue_bytes=5"), "{error}");
}

// `examples/rust_producer`, compiled with these tests.

#[test]
fn the_example_has_each_step_and_its_message_on_record() {
    let recorded = Recorded::new();
    assert_eq!(producer::work(recorded.log).expect("events"), 1000);
    let steps = recorded.of("engine.step");
    let numbers: Vec<u64> = steps.iter().filter_map(|step| step["step"].as_u64()).collect();
    assert_eq!(numbers, (0..1000).collect::<Vec<u64>>());
    assert_eq!(recorded.of("log")[0]["message"], "model loaded");
}
