//! Fuzzes the reader of captured bodies: `cargo +nightly fuzz run extract`.
#![no_main]

#[path = "../targets/extract.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::check(bytes));
