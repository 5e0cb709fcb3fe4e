//! Fuzzes the proxy's treatment of heads: `cargo +nightly fuzz run heads`.
#![no_main]

#[path = "../targets/heads.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| target::check(bytes));
