//! `examples/rust_producer`, compiled with these tests.

use super::server::Recorded;

#[allow(dead_code, reason = "its main opens a log from the environment")]
#[path = "../../../examples/rust_producer/src/main.rs"]
mod producer;

#[test]
fn the_example_has_each_step_and_its_message_on_record() {
    let recorded = Recorded::new();
    assert_eq!(producer::work(recorded.log).expect("events"), 1000);
    let steps = recorded.of("engine.step");
    let numbers: Vec<u64> = steps.iter().filter_map(|step| step["step"].as_u64()).collect();
    assert_eq!(numbers, (0..1000).collect::<Vec<u64>>());
    assert_eq!(recorded.of("log")[0]["message"], "model loaded");
}
