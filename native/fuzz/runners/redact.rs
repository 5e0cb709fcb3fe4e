//! Fuzzes redaction: `cargo +nightly fuzz run redact`.
#![no_main]

#[path = "../targets/redact.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::check(bytes));
