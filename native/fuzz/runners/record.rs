//! Fuzzes the record decoder: `cargo +nightly fuzz run record`.
#![no_main]

#[path = "../targets/record.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::check(bytes));
