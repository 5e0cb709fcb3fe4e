//! Every input that the fuzz targets keep (`native/fuzz/corpus.tar.zst`), in every run of the tests: a fixed error
//! stays fixed. `make fuzz` looks for more, `make fuzz-corpus` keeps it.

#[path = "../../fuzz/targets/extract.rs"]
mod extract;
#[path = "../../fuzz/targets/queue_file.rs"]
mod queue_file;
#[path = "../../fuzz/targets/record.rs"]
mod record;
#[path = "../../fuzz/targets/redact.rs"]
mod redact;

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Runs `check` on every input of one target.
fn replay(target: &str, check: impl Fn(&[u8])) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus.tar.zst");
    let mut archive = tar::Archive::new(zstd::Decoder::new(File::open(path).unwrap()).unwrap());
    let mut inputs = 0;
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().into_owned();
        if !entry.header().entry_type().is_file() || !name.starts_with(target) {
            continue;
        }
        // Shown where it fails.
        println!("{}", name.display());
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        check(&bytes);
        inputs += 1;
    }
    assert!(inputs > 0, "no input of {target}");
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
