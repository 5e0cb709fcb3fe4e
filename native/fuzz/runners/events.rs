//! Fuzzes the reader of events: `cargo +nightly fuzz run events`.
#![no_main]

#[path = "../targets/events.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::check(bytes));
