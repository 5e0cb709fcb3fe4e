//! Every input that the fuzz targets keep (`native/fuzz/corpus.tar.zst`), in every run of the tests: a fixed error
//! stays fixed. `make fuzz` looks for more, `make fuzz-corpus` keeps it.

#[path = "../../fuzz/targets/events.rs"]
mod events;
#[path = "../../fuzz/targets/extract.rs"]
mod extract;
#[path = "../../fuzz/targets/queue_file.rs"]
mod queue_file;
#[path = "../../fuzz/targets/record.rs"]
mod record;
#[path = "../../fuzz/targets/redact.rs"]
mod redact;
#[path = "../../fuzz/targets/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn any_payload_makes_one_valid_line_or_none() {
    replay("record", record::check);
}

#[test]
fn any_body_gives_valid_facts_or_none() {
    replay("extract", extract::check);
}

#[test]
fn any_stream_is_read_the_same_wherever_it_is_cut() {
    replay("events", events::check);
}

#[test]
fn any_text_in_a_line_is_redacted_to_one_valid_line() {
    replay("redact", redact::check);
}

#[test]
fn any_damage_to_a_queue_file_is_written_off_and_the_listener_goes_on() {
    let bench = queue_file::Bench::new();
    replay("queue_file", |bytes| bench.check(bytes));
}
