//! Every input that the fuzz targets keep (`native/fuzz/corpus`), in every run of the tests: what was mended once stays
//! mended. `make fuzz` looks for more.

#[path = "../fuzz/targets/extract.rs"]
mod extract;
#[path = "../fuzz/targets/queue_file.rs"]
mod queue_file;
#[path = "../fuzz/targets/record.rs"]
mod record;
#[path = "../fuzz/targets/redact.rs"]
mod redact;

use std::fs;
use std::path::Path;

/// Runs `check` on every file of one target.
fn replay(target: &str, check: impl Fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        // Shown where it fails.
        println!("{}", path.display());
        check(&fs::read(&path).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", directory.display());
}

#[test]
fn any_payload_makes_one_valid_line_or_none() {
    replay("record", record::check);
}

#[test]
fn any_body_gives_valid_facts_or_none() {
    replay("extract", extract::check);
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
