//! Fuzzes the reader of queue files: `cargo +nightly fuzz run queue_file`.
#![no_main]

#[path = "../targets/queue_file.rs"]
mod target;

use std::sync::OnceLock;

static BENCH: OnceLock<target::Bench> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| BENCH.get_or_init(target::Bench::new).check(bytes));
